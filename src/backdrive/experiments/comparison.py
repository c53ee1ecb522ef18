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
from ..learn import SAC, Agent
from ..threads import one_torch_thread
from .run import Run

Act = Callable[[Tensor], Tensor]
"""The policies of all seeds: observations [S, B, n] to mean actions [S, B, na], in the actions' own units."""


@dataclass(frozen=True)
class Trial:
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


Method = Callable[[Trial], list[Progress]]
"""A method of learning: trains the seeds of a trial, and tells how each got on."""


def at_once(trial: Trial, kind: type[SAC], settings: Mapping[str, Any], **always: Any) -> list[Progress]:
    """Train the seeds of a trial in one agent. always: arguments that its file does not keep."""
    file, count = trial.agent_file(), len(trial.seeds)
    if file.exists():
        agent = kind.load(file, trial.task, **always)
    else:
        given = {**settings, **always, "window": trial.every, "max_episode_steps": trial.limit, "threads": 1}
        agent = kind(trial.task, seed=trial.seeds, **given)

    def tell(_: Agent) -> None:
        scores = trial.scores(agent.mean_action)
        agent.curve.last().update({f"score{k}": score for k, score in enumerate(scores)})
        trial.advance(agent.steps / (trial.samples * count))

    _train(agent, trial.samples * count, file, tell)
    return [_progress(agent, f"score{k}", count) for k in range(count)]


def one_by_one(trial: Trial, kind: type[Agent], settings: Mapping[str, Any]) -> list[Progress]:
    """Train an agent for each seed, one after another."""
    found = []
    for k, seed in enumerate(trial.seeds):
        file = trial.agent_file(seed)
        if file.exists():
            agent = kind.load(file, trial.task)
        else:
            agent = kind(trial.task, seed=seed, max_episode_steps=trial.limit, threads=1, **settings)
        scored = [agent.steps]

        def tell(agent: Agent, k: int = k, scored: list[int] = scored) -> None:
            if agent.steps >= scored[0] + trial.every or agent.steps >= trial.samples:
                scored[0] = agent.steps
                agent.curve.last()["score0"] = trial.scores(agent.policy(), trial.seeds[:1])[0]
            trial.advance((k + agent.steps / trial.samples) / len(trial.seeds))

        _train(agent, trial.samples, file, tell)
        found.append(_progress(agent, "score0", 1))
    return found


def _train(agent: Agent, steps: int, file: Path, tell: Callable[[Agent], None]) -> None:
    """Train an agent, whose scores are in its curve and so in its file."""
    agent.train(steps=steps, save=file, callback=tell)
    if agent.steps < steps:
        raise KeyboardInterrupt  # as `train` was; the next run goes on from the file


def _progress(agent: Agent, name: str, seeds: int) -> Progress:
    rows = [row for row in agent.curve.rows if name in row]
    samples = [round(row["steps"]) // seeds for row in rows]
    simulated = [round(row.get("simulated", row["steps"])) // seeds for row in rows]
    return Progress(samples, simulated, [round(row[name], 5) for row in rows])


def part(run: Run, name: str, about: Mapping[str, Any], method: Method, trial: Trial) -> dict[str, Any]:
    """The results of a part: kept ones, or those of training now. about: what the results say of it besides."""
    file = run.file(f"{name}.json")
    if file.exists():
        run.say(f"{name} is finished already, and kept: {file}")
        return json.loads(file.read_text())
    begin = time.perf_counter()
    with one_torch_thread():
        progress = method(trial)
    result = {
        **about, "seeds": list(trial.seeds), "seconds": round(time.perf_counter() - begin, 1),
        "best": [x.best for x in progress],
        "curves": [asdict(x) for x in progress],
    }  # fmt: skip
    file.write_text(json.dumps(result) + "\n")
    for left in run.out.glob(f"{trial.file.name}.agent*.pt"):
        left.unlink()
    return result
