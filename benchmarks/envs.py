"""Environments for reinforcement learning: vectorised Ants, backdrive's and Gymnasium's, on all cores."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import gymnasium
import mujoco
import numpy as np
import torch

import backdrive as bd
import backdrive.envs
from backdrive.backends import available_cores

from .report import Table, Target, microseconds, per_second
from .timing import Case, Run

COUNT = 1024
LEAN = {"include_cfrc_ext_in_observation": False, "contact_cost_weight": 0.0}  # what backdrive's Ant has
SECONDS = 60.0
BY_EULER = "Gymnasium, sync, 64, by Euler"


def measure(run: Run) -> list[Table]:
    """Steps of environments (5 of the simulator's) per second, with random actions and new starts where one fell."""
    cores = available_cores()
    table = Table(
        f"Ant, vector environments, {cores} cores, float64", ["", "environments", "µs per step", "steps/s", "ratio"]
    )
    theirs, whole = _gymnasium_cases(cores, **LEAN), _gymnasium_cases(cores)  # first, for they fork
    whole.pop(BY_EULER)
    ours = {
        "backdrive": _case("backdrive/Ant-v0", COUNT),
        "backdrive, one thread": _case("backdrive/Ant-v0", COUNT, threads=1),
        "backdrive, float32": _case("backdrive/Ant-v0", COUNT, dtype="float32"),
        "backdrive, with gradients": _gradient_case(COUNT),
    }
    cases = {**theirs, **ours}
    times = run.interleave({name: case for name, (case, _) in cases.items()}, SECONDS)
    best = min(times[name] for name in theirs if name != BY_EULER)
    for name, (_, environments) in cases.items():
        ratio = best / times[name]
        target = Target(ratio, 10.0, "× Gymnasium's best", at_least=True) if name == "backdrive" else None
        cells = f"{environments:,}", microseconds(times[name]), per_second(times[name]), f"{ratio:.3g} ×"
        table.add(name, *cells, target=target)
    table.check("Ants in the air: states after a step, backdrive's against MuJoCo's by Euler", _difference(), 1e-9)
    table.notes.append(
        "Gymnasium's file asks for Runge-Kutta: four evaluations per step. The ratio is to that, as people use it."
    )
    table.notes.append("With gradients: 10 steps, and the gradient of their rewards with respect to all actions.")
    return [table, _twins(run, whole, cores)]


def _twins(run: Run, theirs: dict[str, tuple[Case, int]], cores: int) -> Table:
    """The same with MuJoCo's physics: Gymnasium's own environment, and its twin."""
    columns = ["", "environments", "µs per step", "steps/s", "ratio"]
    table = Table(f"Twins of Ant-v5, vector environments, {cores} cores, float64", columns)
    name = "backdrive/MuJoCoAnt-v5"
    cases = {
        **theirs,
        "backdrive": _case(name, COUNT),
        "backdrive, one thread": _case(name, COUNT, threads=1),
        "backdrive, float32": _case(name, COUNT, dtype="float32"),
        "backdrive, with gradients": _gradient_case(COUNT, task="MuJoCoAnt"),
    }
    times = run.interleave({f"twins: {name}": case for name, (case, _) in cases.items()}, SECONDS)
    best = min(times[f"twins: {name}"] for name in theirs)
    for name, (_, environments) in cases.items():
        seconds = times[f"twins: {name}"]
        target = Target(best / seconds, 40.0, "× Gymnasium's best", at_least=True) if name == "backdrive" else None
        cells = f"{environments:,}", microseconds(seconds), per_second(seconds), f"{best / seconds:.3g} ×"
        table.add(name, *cells, target=target)
    table.check("observations and rewards of 20 steps, against Gymnasium's", _twin_difference(), 1e-6)
    return table


def _twin_difference(steps: int = 20) -> float:
    """The largest of all observations and rewards, from the same start and actions."""
    theirs, ours = gymnasium.make("Ant-v5").unwrapped, bd.envs.Env("MuJoCoAnt")
    theirs.reset(seed=0), ours.reset(seed=0)
    worst, random = 0.0, np.random.default_rng(0)
    for action in random.uniform(-1.0, 1.0, (steps, 8)):
        (a, reward, *_), (b, our_reward, *_) = theirs.step(action), ours.step(action)
        worst = max(worst, float(np.abs(a - b).max()), abs(reward - our_reward))
    return worst


def _gymnasium_cases(cores: int, **options: Any) -> dict[str, tuple[Case, int]]:
    cases = {}
    for mode, count in (("async", cores), ("async", 16 * cores), ("sync", 64)):
        cases[f"Gymnasium, {mode}, {count}"] = _case("Ant-v5", count, vectorization_mode=mode, **options)
    euler = gymnasium.make_vec("Ant-v5", num_envs=64, vectorization_mode="sync", **options)
    for env in euler.envs:
        env.unwrapped.model.opt.integrator = mujoco.mjtIntegrator.mjINT_EULER
    cases[BY_EULER] = (_stepping(euler), 64), 64
    return cases


def _case(name: str, count: int, **options: Any) -> tuple[Case, int]:
    return (_stepping(gymnasium.make_vec(name, num_envs=count, **options)), count), count


def _stepping(envs: gymnasium.vector.VectorEnv) -> Callable[[], Any]:
    """A step, with the next of some random actions."""
    envs.reset(seed=0)
    random = np.random.default_rng(0)
    actions = itertools.cycle(random.uniform(-1.0, 1.0, (50, *envs.action_space.shape)).astype(np.float32))
    for _ in range(20):  # they have landed
        envs.step(next(actions))
    return lambda: envs.step(next(actions))


def _gradient_case(count: int, steps: int = 10, task: str = "Ant", **options: Any) -> tuple[Case, int]:
    envs = bd.envs.VectorEnv(task, num_envs=count, **options)
    envs.reset(seed=0)
    random = torch.Generator().manual_seed(0)
    actions = 2.0 * torch.rand(steps, *envs.action_space.shape, generator=random, dtype=torch.float64) - 1.0
    actions.requires_grad_()

    def descend() -> None:
        envs.detach()
        total = sum(envs.step_torch(action)[1].sum() for action in actions)
        torch.autograd.grad(total, actions)

    return (descend, count * steps), count


def _difference() -> float:
    """The largest of all observations, one step from a state that touches nothing."""
    theirs, ours = gymnasium.make("Ant-v5", **LEAN).unwrapped, bd.envs.Env("Ant")
    theirs.model.opt.integrator = mujoco.mjtIntegrator.mjINT_EULER
    q, v = theirs.init_qpos.copy(), 0.3 * np.random.default_rng(0).standard_normal(theirs.model.nv)
    q[2], q[[8, 14]], q[[10, 12]] = 0.9, 0.9, -0.9  # ankles amid their limits
    theirs.reset(seed=0)
    theirs.set_state(q, v)
    ours.reset(options={"state": bd.State(torch.from_numpy(q), torch.from_numpy(v))})
    action = np.full(8, 0.2)
    return float(np.abs(theirs.step(action)[0] - ours.step(action)[0]).max())
