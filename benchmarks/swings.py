"""Swing-ups from rest, as text that MuJoCo reads and backdrive loads: a pendulum, a cartpole and an acrobot."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

import backdrive as bd
from backdrive.control import Cost


@dataclass(frozen=True)
class Swing:
    """A world that hangs, and what it costs not to stand in the end.

    heights: of the tips of its poles above the lowest point, as a part of the way up, from q [..., nq]: [..., npole].
    """

    mjcf: str
    model: bd.Model
    cost: Cost
    heights: Callable[[Tensor], Tensor]
    dt: float
    steps: int

    def simulator(self, threads: int | None = 1) -> bd.Simulator:
        return bd.Simulator(self.model, self.dt, physics="rigid", threads=threads, specialize=True)

    def start(self, seeds: int) -> tuple[bd.State, Tensor]:
        """Hanging at rest, turned by 0.1 rad (deviation), and controls of a tenth of the limits: different each."""
        random = torch.Generator().manual_seed(0)
        q, v = self.model.initial_state(seeds)
        q = q + 0.1 * torch.randn(q.shape, generator=random, dtype=q.dtype)
        most = torch.tensor(self.model.control_limits[:, 1])
        u = 0.1 * most * torch.randn(self.steps, seeds, self.model.nu, generator=random, dtype=q.dtype)
        return bd.State(q, v), u

    def stands(self, last: bd.State) -> Tensor:
        """Whether all poles are within 0.15 rad of upright and slower than 0.5 rad/s (the cart: m/s): bool [B]."""
        upright = self.heights(last.q) > (1 + math.cos(0.15)) / 2
        return upright.all(-1) & (last.v.abs() < 0.5).all(-1)


def _world(bodies: str, joint: str, limit: float) -> str:
    return (
        '<mujoco><compiler angle="radian"/><option gravity="0 -9.81 0"/>'
        f"<worldbody>{bodies}</worldbody>"
        f'<actuator><motor joint="{joint}" ctrllimited="true" ctrlrange="-{limit} {limit}"/></actuator></mujoco>'
    )


def _rod(name: str, mass: float, length: float, at: str, inside: str = "") -> str:
    """A hinge, and a thin rod that hangs from it."""
    moment = mass * length**2 / 12
    return (
        f'<body name="{name}" pos="{at}"><joint name="{name}" axis="0 0 1"/>'
        f'<inertial pos="0 {-length / 2} 0" mass="{mass}" diaginertia="{moment} {moment} {moment}"/>{inside}</body>'
    )


def _swing(mjcf: str, stage: Callable, final: Callable, heights: Callable, steps: int) -> Swing:
    return Swing(mjcf, bd.load(mjcf), Cost(stage, final), heights, 0.02, steps)


@functools.cache
def swings() -> dict[str, Swing]:
    return {"pendulum": pendulum(), "cartpole": cartpole(), "acrobot": acrobot()}


def pendulum() -> Swing:
    """1 kg, 1 m; 2 N m, of the 4.9 that would hold it level: it must swing back and forth."""

    def heights(q: Tensor) -> Tensor:
        return (1 - torch.cos(q)) / 2

    def stage(state: bd.State, u: Tensor, t: Tensor) -> Tensor:
        return 0.02 * (1 - heights(state.q)).sum() + 1e-3 * state.v.square().sum() + 1e-3 * u.square().sum()

    def final(state: bd.State) -> Tensor:
        return 40 * (1 - heights(state.q)).sum() + state.v.square().sum()

    return _swing(_world(_rod("pole", 1.0, 1.0, "0 0 0"), "pole", 2.0), stage, final, heights, 150)


def cartpole() -> Swing:
    """A pole of 0.1 kg and 1 m on a cart of 1 kg; 10 N."""

    def heights(q: Tensor) -> Tensor:
        return (1 - torch.cos(q[..., 1:])) / 2

    def stage(state: bd.State, u: Tensor, t: Tensor) -> Tensor:
        still = 1e-3 * state.q[0].square() + 1e-4 * state.v.square().sum()
        return 0.02 * (1 - heights(state.q)).sum() + still + 1e-4 * u.square().sum()

    def final(state: bd.State) -> Tensor:
        return 40 * (1 - heights(state.q)).sum() + 5 * state.q[0].square() + state.v.square().sum()

    cart = (
        '<body name="cart"><joint name="rail" type="slide" axis="1 0 0"/>'
        '<inertial pos="0 0 0" mass="1" diaginertia="1 1 1"/>' + _rod("pole", 0.1, 1.0, "0 0 0") + "</body>"
    )
    return _swing(_world(cart, "rail", 10.0), stage, final, heights, 100)


def acrobot() -> Swing:
    """Two rods of 1 kg and 1 m, a motor of 20 N m between them and none where they hang."""

    def heights(q: Tensor) -> Tensor:
        return (1 - torch.cos(q.cumsum(-1))) / 2

    def stage(state: bd.State, u: Tensor, t: Tensor) -> Tensor:
        return 1e-4 * (u.square().sum() + state.v.square().sum())

    def final(state: bd.State) -> Tensor:
        return 100 * (1 - heights(state.q)).sum() + 2 * state.v.square().sum()

    rods = _rod("upper", 1.0, 1.0, "0 0 0", _rod("lower", 1.0, 1.0, "0 -1 0"))
    return _swing(_world(rods, "lower", 20.0), stage, final, heights, 200)
