"""Methods of learning, compared on one task: trained with the same number of samples, and scored on the way.

A part is one method on one task, with all its seeds. Parts run on their own, and are kept: an interrupted one goes on
where it was, if its method can, and a finished one is not run again.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..envs import Task, VectorEnv
from ..learn import Agent
from ..threads import one_torch_thread
from .run import Run

Act = Callable[[Tensor], Tensor]
"""The policies of all seeds: observations [S, B, n] to mean actions [S, B, na], in the actions' own units."""


@dataclass(frozen=True)
class Course:
    """What a method is to do. task: with `limit` steps in an episode. seeds: of all random numbers, one training each.
    samples: steps of the environment in the training of one seed. every: steps between two scores, a divisor of
    samples. episodes: over which a score is the mean return. file: that of the part, without its suffix. advance:
    called with the share that is done."""

    task: Task
    limit: int
    seeds: tuple[int, ...]
    samples: int
    every: int
    episodes: int
    file: Path
    advance: Callable[[float], None]

    def agent_file(self, seed: int | None = None) -> Path:
        """Where the agent of all seeds is kept until the part is finished, or that of one seed."""
        return self.file.with_name(f"{self.file.name}.agent{'' if seed is None else seed}.pt")

    @torch.no_grad()
    def scores(self, act: Act, seeds: Sequence[int] | None = None) -> list[float]:
        """The mean returns of the policies of all seeds, or of some, from the same starts."""
        count = len(self.seeds if seeds is None else seeds)
        env = VectorEnv(self.task, num_envs=count * self.episodes, max_episode_steps=self.limit, threads=1)
        starts = [1_000_000 + k for _ in range(count) for k in range(self.episodes)]
        observation, _ = env.reset_torch(seed=starts)
        total, running = torch.zeros(2, env.num_envs, dtype=torch.float64).unbind(0)
        running += 1.0
        while bool(running.any()):
            action = act(observation.float().view(count, self.episodes, -1))
            observation, reward, terminated, truncated, _ = env.step_torch(action.flatten(0, 1))
            total += running * reward
            running *= (~(terminated | truncated)).double()
        return total.view(count, -1).mean(1).tolist()


@dataclass
class Progress:
    """How one seed of a method got on: its score after numbers of samples, and of all simulated transitions."""

    samples: list[int]
    simulated: list[int]
    scores: list[float]

    @property
    def best(self) -> float:
        return max(self.scores)


Method = Callable[[Course], list[Progress]]
"""A method of learning: trains the seeds of a course, and tells how each got on."""


def together(course: Course, agent: Agent, act: Act, seeds: int) -> list[Progress]:
    """Train an agent of several seeds at once; its scores are in its curve, and so in its file."""

    def tell(agent: Agent) -> None:
        scores = course.scores(act)
        agent.curve.last().update({f"score{k}": score for k, score in enumerate(scores)})
        course.advance(agent.steps / (course.samples * seeds))

    agent.train(steps=course.samples * seeds, save=course.agent_file(), callback=tell)
    _finished(agent, course.samples * seeds)
    return [_progress(agent, f"score{k}", seeds) for k in range(seeds)]


def one_by_one(course: Course, make: Callable[[int], Agent], load: Callable[[Path], Agent]) -> list[Progress]:
    """Train an agent for each seed, one after another."""
    found = []
    for k, seed in enumerate(course.seeds):
        file = course.agent_file(seed)
        agent = load(file) if file.exists() else make(seed)
        scored = [agent.steps]

        def tell(agent: Agent, k: int = k, scored: list[int] = scored) -> None:
            if agent.steps >= scored[0] + course.every or agent.steps >= course.samples:
                scored[0] = agent.steps
                policy = agent.policy()
                agent.curve.last()["score0"] = course.scores(lambda x: policy(x), course.seeds[:1])[0]
            course.advance((k + agent.steps / course.samples) / len(course.seeds))

        agent.train(steps=course.samples, save=file, callback=tell)
        _finished(agent, course.samples)
        found.append(_progress(agent, "score0", 1))
    return found


def _finished(agent: Agent, steps: int) -> None:
    if agent.steps < steps:
        raise KeyboardInterrupt  # as `train` was; the next run goes on from the agent's file


def _progress(agent: Agent, name: str, seeds: int) -> Progress:
    rows = [row for row in agent.curve.rows if name in row]
    samples = [round(row["steps"]) // seeds for row in rows]
    simulated = [round(row.get("simulated", row["steps"])) // seeds for row in rows]
    return Progress(samples, simulated, [round(row[name], 5) for row in rows])


def part(run: Run, name: str, about: Mapping[str, Any], method: Method, course: Course) -> dict[str, Any]:
    """The results of a part: kept ones, or those of training now. about: what the results say of it besides."""
    file = run.file(f"{name}.json")
    if file.exists():
        run.say(f"{name} is finished already, and kept: {file}")
        return json.loads(file.read_text())
    begin = time.perf_counter()
    with one_torch_thread():
        progress = method(course)
    result = {
        **about, "seeds": list(course.seeds), "seconds": round(time.perf_counter() - begin, 1),
        "best": [x.best for x in progress],
        "curves": [asdict(x) for x in progress],
    }  # fmt: skip
    file.write_text(json.dumps(result) + "\n")
    for left in run.out.glob(f"{course.file.name}.agent*.pt"):
        left.unlink()
    return result
