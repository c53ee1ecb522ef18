"""Robots that learn to run by short-horizon actor-critic, with MuJoCo's physics, and then run in MuJoCo.

An agent learns in the twin of one of Gymnasium's environments: the same physics, rewards and terminations. The last
policy, not the best one, is evaluated in Gymnasium's own environment, over 20 episodes.

A part is one environment, one method, one seed and one time of training. Parts run on their own, and are kept: an
interrupted one goes on where it was (of backdrive's own method), a finished one is not run again, and figures and table
show all parts in the folder.
"""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from ..envs import VectorEnv
from ..learn import SHAC, Agent, Curve, Score, evaluate, widened
from ..model import State, checks
from ..threads import one_torch_thread
from ..trajectory import Trajectory
from .gradient_free import timed
from .run import Run, WrongOption

TELL_EVERY = 20.0
"""Seconds of training between two lines of text."""
EPISODES, FILM_SECONDS = 20, 8.0
QUICK_SECONDS, QUICK_EPISODES, QUICK_FILM = 20.0, 2, 1.0
METHOD_COLORS = {"shac": "C0", "sac": "C1", "ppo": "C2"}


@dataclass(frozen=True)
class Course:
    """How a robot learns. seconds: of training. settings: of SHAC. options: of the twin in training. sees: the number
    of observations that the policy sees, the first ones; None: all."""

    seconds: float
    settings: Mapping[str, Any] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    sees: int | None = None


# Contact forces are neither observed nor punished in training: policies do not need them, their cost is small (0.04 a
# step of the Ant at most), and without them a window is one call of a kernel.
UNFELT = {"include_cfrc_ext_in_observation": False, "contact_cost_weight": 0.0}
UNSEEN = {f"include_{name}_in_observation": False for name in ("cinert", "cvel", "qfrc_actuator")}
# With a discount of 0.99 and steps of 8 ms, policies look 0.8 s ahead, and run as fast as they can until they fall.
# Those that look far ahead from the start may learn to stand still, and those that always learned with noise may stand
# still without. So these look farther and farther ahead, with less and less noise.
MORE_AND_MORE = {"discount": 0.98, "last_discount": 0.995, "last_noise": 0.5}
ON_LEGS = {**MORE_AND_MORE, "num_envs": 256, "horizon": 32, "learning_rate": 7e-4}
LARGE_CRITICS = {"critics": 2, "critic": (256, 128)}
COURSES = {
    "Ant": Course(600.0, {"num_envs": 128}, UNFELT, sees=27),
    "HalfCheetah": Course(600.0, {"clip": 200.0}),
    "Hopper": Course(300.0, {**ON_LEGS, "clip": 300.0}),
    "Walker2d": Course(600.0, {**ON_LEGS, "clip": 500.0}),
    "Humanoid": Course(
        900.0, {**MORE_AND_MORE, **LARGE_CRITICS, "num_envs": 128, "clip": 300.0}, {**UNFELT, **UNSEEN}, sees=45
    ),
}


def run(run: Run) -> None:
    name = run.options.get("env", "Ant")
    if name not in COURSES:
        raise WrongOption(checks.unknown("env", name, COURSES))
    method = run.options.get("method", "shac")
    if method not in ("shac", *timed.METHODS):
        raise WrongOption(checks.unknown("method", method, ("shac", *timed.METHODS)))
    course = COURSES[name]
    seconds = run.number("seconds", QUICK_SECONDS if run.quick else course.seconds)
    part = Training(run, name, course, seconds, method)
    if part.finished():
        run.say(f"{part.name} is finished already, and kept: {part.file('json')}")
    elif method == "shac":
        part.score(part.train())
    else:
        part.score_baseline()
    found = parts(run.out)
    run.record(parts=found, table=table(found))
    draw(run, name)
    draw_all(run, found)


class Training:
    """One environment, seed and time of training: its files, its training and its scores."""

    def __init__(self, run: Run, env: str, course: Course, seconds: float, method: str) -> None:
        self.run, self.env, self.course, self.seconds, self.method = run, env, course, seconds, method
        of_method = "" if method == "shac" else f"-{method}"
        self.name = f"{env}{of_method}-seed{run.seed}-{seconds:g}s"

    def file(self, suffix: str) -> Path:
        return self.run.file(f"{self.name}.{suffix}")

    def finished(self) -> bool:
        return self.file("json").exists()

    def train(self) -> SHAC:
        """Train, from where an interrupted training was."""
        run, agent = self.run, self.agent()
        if agent.steps:
            run.say(f"{self.name} goes on after {agent.seconds:.0f} s and {agent.steps:,} steps")

        told = [agent.seconds]

        def tell(agent: Agent) -> None:
            run.advance(self.name, round(min(agent.seconds, self.seconds)), round(self.seconds))
            if agent.mean_return is not None and agent.seconds > told[0] + TELL_EVERY:
                told[0] = agent.seconds
                clipped = f"{agent.curve.last()['clipped']:.0%} of the gradients clipped"
                run.say(f"{agent.seconds:.0f} s, {agent.steps:,} steps: return {agent.mean_return:,.0f}, {clipped}")

        agent.train(seconds=self.seconds, save=self.file("agent.pt"), callback=tell)
        if agent.seconds < self.seconds:
            raise KeyboardInterrupt  # as `train` was; the next run goes on from its file
        return agent

    def agent(self) -> SHAC:
        file = self.file("agent.pt")
        if file.exists():
            return SHAC.load(file)
        course = self.course
        return SHAC(f"MuJoCo{self.env}", seed=self.run.seed, dtype="float32", options=course.options, **course.settings)

    def score(self, agent: SHAC) -> None:
        """Evaluate the policy in Gymnasium's own environment and in its twin, write both, and film it."""
        run, policy = self.run, self.policy(agent)
        torch.save(policy, self.file("policy.pt"))
        episodes = QUICK_EPISODES if run.quick else EPISODES
        with one_torch_thread():
            mujoco = evaluate(policy, f"{self.env}-v5", episodes=episodes)
            ours = evaluate(policy, VectorEnv(f"MuJoCo{self.env}", num_envs=episodes, max_episode_steps=1000))
        self.keep(
            steps=agent.steps, steps_per_second=agent.steps / agent.seconds, mujoco=_numbers(mujoco),
            backdrive=_numbers(ours), settings=agent.settings(), curve=_thinned(agent.curve),
        )  # fmt: skip
        run.say(
            f"{self.name}, {agent.seconds:.0f} s of training, {agent.steps:,} steps: return {mujoco.mean:,.0f} ± "
            f"{mujoco.std:,.0f} in Gymnasium's {self.env}-v5, {ours.mean:,.0f} ± {ours.std:,.0f} in backdrive "
            f"({episodes} episodes)"
        )
        self.film(policy)

    def score_baseline(self) -> None:
        """Train and evaluate by Stable-Baselines3, in Gymnasium's environment, and write the score."""
        run, total = self.run, round(self.seconds)
        found = timed.train(
            self.method, f"{self.env}-v5", run.seed, self.seconds,
            lambda now: run.advance(self.name, min(round(now), total), total),
        )  # fmt: skip
        mujoco = evaluate(found.policy, f"{self.env}-v5", episodes=QUICK_EPISODES if run.quick else EPISODES)
        self.keep(
            steps=found.steps, steps_per_second=found.steps / self.seconds, mujoco=_numbers(mujoco), curve=found.curve
        )
        run.say(
            f"{self.name}, {found.steps:,} steps: return {mujoco.mean:,.0f} ± {mujoco.std:,.0f} in Gymnasium's "
            f"{self.env}-v5 ({len(mujoco.returns)} episodes)"
        )

    def keep(self, **results: Any) -> None:
        """Write the results of this part."""
        what = {"env": self.env, "method": self.method, "seed": self.run.seed, "seconds": self.seconds}
        self.file("json").write_text(json.dumps({**what, **results}) + "\n")

    def policy(self, agent: SHAC) -> nn.Module:
        """The policy for all of the environment's observations."""
        sees = self.course.sees
        if sees is None:
            return agent.policy()
        observation, _ = VectorEnv(f"MuJoCo{self.env}").reset()
        return widened(agent.policy(), observation.shape[-1], range(sees))

    def film(self, policy: nn.Module) -> None:
        if importlib.util.find_spec("matplotlib") is None:
            return
        path = motion(policy, f"MuJoCo{self.env}", QUICK_FILM if self.run.quick else FILM_SECONDS)
        self.run.film(self.name, path, forces=False)


@torch.no_grad()
def motion(policy: nn.Module, task: str, seconds: float) -> Trajectory:
    """The motion of a policy in backdrive, from the first state of an evaluation, until its episode ends."""
    env = VectorEnv(task, num_envs=1, threads=1)
    observation, _ = env.reset_torch(seed=0)
    start, actions = State(*(x[0] for x in env.state)), []
    for _ in range(max(1, round(seconds / env.task.seconds))):
        actions.append(policy(observation.float()).to(observation.dtype))
        observation, _, terminated, _, _ = env.step_torch(actions[-1])
        if bool(terminated):
            break
    controls = env.task.control(torch.cat(actions)).repeat_interleave(env.task.frame_skip, 0)
    return env.simulator.rollout(start, controls)


def _numbers(score: Score) -> dict[str, Any]:
    return {"mean": score.mean, "std": score.std, "returns": score.returns.tolist(), "lengths": score.lengths.tolist()}


def _thinned(curve: Curve, points: int = 200) -> dict[str, list[float]]:
    """Some points of a curve: seconds, steps and returns."""
    names = [name for name in ("seconds", "steps", "return") if name in curve.names()]
    rows = [row for row in curve.rows if "return" in row]
    chosen = [rows[i] for i in np.unique(np.linspace(0, len(rows) - 1, points).astype(int))] if rows else []
    return {name: [round(row[name], 3) for row in chosen] for name in names}


def parts(folder: Path) -> list[dict[str, Any]]:
    """The finished parts in a folder, without their curves."""
    found = [json.loads(file.read_text()) for file in sorted(folder.glob("*-seed*.json"))]
    return [{name: x for name, x in part.items() if name not in ("curve", "settings")} for part in found]


def table(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """For each environment, method and time: the scores in MuJoCo of all seeds."""
    groups: dict[tuple, list[dict[str, Any]]] = {}
    for part in sorted(found, key=lambda x: (x["env"], x["method"], x["seconds"], x["seed"])):
        groups.setdefault((part["env"], part["method"], part["seconds"]), []).append(part)
    rows = []
    for (env, method, seconds), group in groups.items():
        scores = [part["mujoco"]["mean"] for part in group]
        row = {"env": env, "method": method, "seconds": seconds, "seeds": [part["seed"] for part in group]}
        steps = float(np.mean([part["steps"] for part in group]))
        rows.append({**row, "scores": scores, "median": float(np.median(scores)), "steps": steps})
    return rows


def draw(run: Run, env: str) -> None:
    """Returns in training over seconds, and the score in MuJoCo at the end, of all seeds of an environment."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(7, 4), layout="constrained")
    for k, file in enumerate(sorted(run.out.glob(f"{env}*-seed*.json"))):
        part = json.loads(file.read_text())
        if part["env"] != env:
            continue
        curve, color = part["curve"], f"C{k}"
        what = f"{part['method'].upper()}, seed {part['seed']}"
        axes.plot(curve["seconds"], curve.get("return", []), color=color, label=f"{what}, in training")
        axes.errorbar(
            part["seconds"], part["mujoco"]["mean"], part["mujoco"]["std"], fmt="o", color=color, capsize=3,
            label=f"last policy in MuJoCo: {part['mujoco']['mean']:,.0f}",
        )  # fmt: skip
    axes.set(xlabel="seconds of training", ylabel="return", title=f"{env}-v5")
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8)
    run.figure(env, figure)


def draw_all(run: Run, found: list[dict[str, Any]]) -> None:
    """The scores in MuJoCo of all parts, one column of points for each environment, method and time."""
    import matplotlib.pyplot as plt

    rows = table(found)
    figure, axes = plt.subplots(figsize=(2.0 + 0.9 * len(rows), 4), layout="constrained")
    for k, row in enumerate(rows):
        axes.plot([k] * len(row["scores"]), row["scores"], "o", color=METHOD_COLORS[row["method"]], alpha=0.7)
        axes.plot(k, row["median"], "_", color="black", markersize=18)
    labels = [f"{row['env']}\n{row['method'].upper()}\n{row['seconds']:g} s" for row in rows]
    axes.set_xticks(range(len(rows)), labels, fontsize=8)
    axes.set(ylabel="return of the last policy in MuJoCo", title="each seed, and the median")
    axes.grid(alpha=0.3, axis="y")
    run.figure("locomotion", figure)
