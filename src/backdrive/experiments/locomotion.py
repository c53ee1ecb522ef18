"""Robots that learn to run by short-horizon actor-critic, with MuJoCo's physics, and then run in MuJoCo.

An agent learns in the twin of one of Gymnasium's environments: the same physics, rewards and terminations. The last
policy, not the best one, is evaluated in Gymnasium's own environment, over 20 episodes.

A part is one environment, one seed and one time of training. Parts run on their own, and are kept: an interrupted one
goes on where it was, a finished one is not run again, and the figure shows all parts in the folder.
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
from .run import Run, WrongOption

TELL_EVERY = 20.0
"""Seconds of training between two lines of text."""
EPISODES, FILM_SECONDS = 20, 8.0
QUICK_SECONDS, QUICK_EPISODES, QUICK_FILM = 20.0, 2, 1.0


@dataclass(frozen=True)
class Course:
    """How a robot learns. seconds: of training. settings: of SHAC. options: of the twin in training. sees: the number
    of observations that the policy sees, the first ones; None: all."""

    seconds: float
    settings: Mapping[str, Any] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    sees: int | None = None


COURSES = {
    # Without contact forces, which the policy does not need and whose cost is at most 0.04 a step: a third of the time.
    "Ant": Course(
        600.0, {"num_envs": 128}, {"include_cfrc_ext_in_observation": False, "contact_cost_weight": 0.0}, sees=27
    ),
    "HalfCheetah": Course(600.0),
    "Hopper": Course(300.0, {"learning_rate": 7e-4}),
    "Walker2d": Course(600.0, {"learning_rate": 7e-4}),
}


def run(run: Run) -> None:
    name = run.options.get("env", "Ant")
    if name not in COURSES:
        raise WrongOption(checks.unknown("env", name, COURSES))
    course = COURSES[name]
    seconds = run.number("seconds", QUICK_SECONDS if run.quick else course.seconds)
    part = Training(run, name, course, seconds)
    if part.finished():
        run.say(f"{part.name} is finished already, and kept: {part.file('json')}")
    else:
        part.score(part.train())
    run.record(parts=parts(run.out))
    draw(run, name)


class Training:
    """One environment, seed and time of training: its files, its training and its scores."""

    def __init__(self, run: Run, env: str, course: Course, seconds: float) -> None:
        self.run, self.env, self.course, self.seconds = run, env, course, seconds
        self.name = f"{env}-seed{run.seed}-{seconds:g}s"

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
        result = {
            "env": self.env, "seed": run.seed, "seconds": self.seconds, "steps": agent.steps,
            "steps_per_second": agent.steps / agent.seconds, "mujoco": _numbers(mujoco), "backdrive": _numbers(ours),
            "settings": agent.settings(), "curve": _thinned(agent.curve),
        }  # fmt: skip
        self.file("json").write_text(json.dumps(result) + "\n")
        run.say(
            f"{self.name}, {agent.seconds:.0f} s of training, {agent.steps:,} steps: return {mujoco.mean:,.0f} ± "
            f"{mujoco.std:,.0f} in Gymnasium's {self.env}-v5, {ours.mean:,.0f} ± {ours.std:,.0f} in backdrive "
            f"({episodes} episodes)"
        )
        self.film(policy)

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


def draw(run: Run, env: str) -> None:
    """Returns in training over seconds, and the score in MuJoCo at the end, of all seeds of an environment."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(7, 4), layout="constrained")
    for k, file in enumerate(sorted(run.out.glob(f"{env}-seed*.json"))):
        part = json.loads(file.read_text())
        curve, color = part["curve"], f"C{k}"
        axes.plot(curve["seconds"], curve.get("return", []), color=color, label=f"seed {part['seed']}, in training")
        axes.errorbar(
            part["seconds"], part["mujoco"]["mean"], part["mujoco"]["std"], fmt="o", color=color, capsize=3,
            label=f"last policy in MuJoCo: {part['mujoco']['mean']:,.0f}",
        )  # fmt: skip
    axes.set(xlabel="seconds of training", ylabel="return", title=f"{env}-v5")
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8)
    run.figure(env, figure)
