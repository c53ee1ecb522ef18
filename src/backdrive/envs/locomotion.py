"""Locomotion tasks: the models of Gymnasium's MuJoCo environments, read from its files, with the rewards of v5.

Time steps, frame skips and time limits (1000 steps) are Gymnasium's, too. The engine differs: contacts and limits are
rigid, and the integrator is semi-implicit Euler, also where a file asks for Runge-Kutta.
"""

from __future__ import annotations

import importlib.util
import math
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from ..model import Model, State, load
from .task import Random, Task, scattered

Range = tuple[float, float]
RIGID = {"physics": "rigid"}  # Arguments of the simulators.


def model_path(file: str) -> Path:
    """One of the MJCF files that gymnasium ships; or another one, by a path that starts with ".", "/" or "~", as in
    Gymnasium."""
    if file.startswith((".", "/", "~")):
        path = Path(file).expanduser()
        if not path.is_file():
            raise FileNotFoundError(f"there is no file {str(path)!r}")
        return path
    found = importlib.util.find_spec("gymnasium")
    assert found is not None and found.origin is not None  # `backdrive.envs` has imported it.
    path = Path(found.origin).parent / "envs" / "mujoco" / "assets" / file
    if not path.is_file():
        raise FileNotFoundError(f"this version of gymnasium has no {path}: pip install 'gymnasium>=1.0'")
    return path


def gymnasium_model(file: str) -> Model:
    """The model of a file (`model_path`)."""
    with warnings.catch_warnings():  # Users cannot change gymnasium's files.
        warnings.filterwarnings("ignore", message=".*settotalmass.*")
        return load(model_path(file))


def rewarded(
    seconds: float, forward: float, ctrl: float, survive: float = 0.0, healthy: Callable[[State], Tensor] | None = None
) -> Callable[[State, Tensor, State], dict[str, Tensor]]:
    """A reward for running: `forward` × mean speed along x - `ctrl` |action|², and `survive` while healthy, if given.

    seconds: duration of a step of the environment.
    """

    def reward(before: State, action: Tensor, after: State) -> dict[str, Tensor]:
        terms = {
            "forward": forward * ((after.q[:, 0] - before.q[:, 0]) / seconds),
            "ctrl": -ctrl * action.square().sum(-1),
        }
        if healthy is not None:
            terms["survive"] = survive * healthy(after).to(action.dtype)
        return terms

    return reward


def hopper(
    *, forward_reward_weight: float = 1.0, ctrl_cost_weight: float = 1e-3, healthy_reward: float = 1.0,
    healthy_state_range: Range = (-100.0, 100.0), healthy_z_range: Range = (0.7, math.inf),
    healthy_angle_range: Range = (-0.2, 0.2), reset_noise_scale: float = 5e-3, frame_skip: int = 4,
) -> Task:  # fmt: skip
    """Hopper-v5: one leg, hopping forwards in the plane.

    Action [3]: torques of hip, knee and ankle, in units of 200 N m. Observation [11]: q without x, v clipped to ± 10.
    Reward: forward_reward_weight × speed along x + healthy_reward while healthy - ctrl_cost_weight |action|².
    Termination: not healthy, that is, height (m), tilt (rad), or a coordinate of q[2:] or v outside its range. Initial
    state: q and v uniform in ± reset_noise_scale about the upright pose. 125 steps a second, of 4 × 2 ms.
    """
    model = gymnasium_model("hopper.xml")
    dt = 0.002
    ranges = [healthy_state_range] * (model.nq + model.nv)  # of q and v
    ranges[0], ranges[1] = (-math.inf, math.inf), healthy_z_range
    ranges[2] = tuple(np.clip(healthy_angle_range, *healthy_state_range).tolist())
    low, high = torch.tensor(ranges, dtype=torch.float64).unbind(-1)

    def healthy(state: State) -> Tensor:
        x = torch.cat(tuple(state), -1)
        return ((x > low) & (x < high)).all(-1)

    def start(random: Random, count: int) -> State:
        return scattered(model, random, count, position=reset_noise_scale, velocity=reset_noise_scale)

    reward = rewarded(dt * frame_skip, forward_reward_weight, ctrl_cost_weight, healthy_reward, healthy)
    return Task(
        name="Hopper", model=model, dt=dt, frame_skip=frame_skip, start=start, reward=reward, settings=RIGID,
        observe=lambda state: torch.cat([state.q[:, 1:], state.v.clamp(-10.0, 10.0)], -1),
        ends=lambda state: ~healthy(state), camera=(0.0, -3.0, 0.5),
    )  # fmt: skip


def half_cheetah(
    *, forward_reward_weight: float = 1.0, ctrl_cost_weight: float = 0.1, reset_noise_scale: float = 0.1,
    frame_skip: int = 5,
) -> Task:  # fmt: skip
    """HalfCheetah-v5: two legs, running forwards in the plane.

    Action [6]: torques of the joints, in units of 120, 90, 60, 120, 60, 30 N m. Observation [17]: q without x, and v.
    Reward: forward_reward_weight × speed along x - ctrl_cost_weight |action|². No termination. Initial state: q
    uniform in ± reset_noise_scale about the standing pose, v normal with that standard deviation. 20 steps a second, of
    5 × 10 ms.
    """
    model = gymnasium_model("half_cheetah.xml")
    dt = 0.01

    def start(random: Random, count: int) -> State:
        spread = reset_noise_scale
        return scattered(model, random, count, position=spread, velocity=spread, normal=True)

    reward = rewarded(dt * frame_skip, forward_reward_weight, ctrl_cost_weight)
    return Task(
        name="HalfCheetah", model=model, dt=dt, frame_skip=frame_skip, start=start, reward=reward, settings=RIGID,
        observe=lambda state: torch.cat([state.q[:, 1:], state.v], -1), camera=(0.0, -3.5, 0.6),
    )  # fmt: skip


def ant(
    *, forward_reward_weight: float = 1.0, ctrl_cost_weight: float = 0.5, healthy_reward: float = 1.0,
    healthy_z_range: Range = (0.2, 1.0), reset_noise_scale: float = 0.1, frame_skip: int = 5,
) -> Task:  # fmt: skip
    """Ant-v5: four legs, walking along x. Contact forces are neither observed nor a cost, as with Gymnasium's options
    ``include_cfrc_ext_in_observation=False, contact_cost_weight=0``. Gymnasium computes the speed from positions that
    are one simulator step older.

    Action [8]: torques of hips and ankles, in units of 150 N m. Observation [27]: q without x and y, and v. Reward:
    forward_reward_weight × speed along x + healthy_reward while healthy - ctrl_cost_weight |action|². Termination:
    not healthy, that is, the torso's height (m) outside its range. Initial state: q uniform in ± reset_noise_scale
    about the pose of the file, v normal with that standard deviation. 20 steps a second, of 5 × 10 ms.
    """
    model = gymnasium_model("ant.xml")
    dt = 0.01

    def healthy(state: State) -> Tensor:
        z = state.q[:, 2]
        return (z >= healthy_z_range[0]) & (z <= healthy_z_range[1])

    def start(random: Random, count: int) -> State:
        spread = reset_noise_scale
        q, v = scattered(model, random, count, position=spread, velocity=spread, normal=True)
        q[:, 3:7] = torch.nn.functional.normalize(q[:, 3:7], dim=-1)
        return State(q, v)

    reward = rewarded(dt * frame_skip, forward_reward_weight, ctrl_cost_weight, healthy_reward, healthy)
    return Task(
        name="Ant", model=model, dt=dt, frame_skip=frame_skip, start=start, reward=reward, settings=RIGID,
        observe=lambda state: torch.cat([state.q[:, 2:], state.v], -1), ends=lambda state: ~healthy(state),
        camera=(0.0, -4.0, 2.0),
    )  # fmt: skip
