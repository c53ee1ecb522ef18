"""The quadruped at a speed that it is asked for: its motions under disturbances, its reward, and its falls."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ...control import Rewards
from ...model import State
from ...policy import MLP
from ...trajectory import Trajectory
from ..gait.controller import REACH
from ..gait.world import LEGS, GaitWorld, ahead, upright
from .disturbances import Disturbance, calm

HOLD = 5  # Steps for which a decision of the policy lasts: 20 ms.
SPEED = 1.5  # Along x, that the robot is asked for, m/s.
FREQUENCY = 2.5  # Of the sine that the policy observes, Hz.
ALIVE, TILT, HEADING, EFFORT, SOFT = 1.0, 1.0, 1.0, 0.05, 0.1  # Of the reward; the last in m/s.
UPRIGHT = 0.5  # Least cosine of the tilt of a trunk that has not fallen.
SENSORS = ("q[3:]", "v")  # Orientation, joint angles; linear and angular velocity, joint rates.


class DisturbedWorld(GaitWorld):
    """The quadruped in MuJoCo's physics, whose policy decides every 20 ms. decide: duration of a decision, s."""

    def __init__(self, dtype: torch.dtype = torch.float32) -> None:
        super().__init__(dtype=dtype)
        self.decide = HOLD * self.simulator.dt
        self.decisions = self.steps // HOLD
        reach = torch.tensor(REACH * len(LEGS), dtype=dtype)
        self.low, self.high = self.stance - reach, self.stance + reach
        d = self.design
        self.half_size = torch.tensor([d.trunk_length, d.trunk_width, d.trunk_height], dtype=dtype) / 2
        self.rewards = Rewards(self.reward, self.fallen)

    @property
    def observations(self) -> int:
        """The number of numbers that a policy observes."""
        return self.model.nq - 3 + self.model.nv + 2

    def calm(self, decisions: int, batch: int) -> Disturbance:
        return calm(decisions, batch, self.model, self.design.friction, self.simulator.dtype)

    def go(
        self, policy: MLP, start: State, clock: Tensor, disturbance: Disturbance, clip: float | None = None,
        noise: Tensor | None = None,
    ) -> Trajectory:  # fmt: skip
        """The motion of a policy under disturbances of D decisions. clock: time of the start in each gait [B], s.
        noise: [D, B, nu]. clip: as `Simulator.rollout` has it."""
        decisions = len(disturbance.forces)
        return self.simulator.rollout(
            start, policy=policy, inputs=self.phases(clock, decisions), steps=HOLD * decisions, noise=noise, clip=clip,
            wrenches=disturbance.wrenches(HOLD), parameters=disturbance.parameters(self.model),
        )  # fmt: skip

    def phases(self, clock: Tensor, decisions: int) -> Tensor:
        """Sine and cosine of the gait's phase at the start of each decision, [D, B, 2]."""
        times = clock + self.decide * torch.arange(decisions, dtype=clock.dtype)[:, None]
        angle = 2.0 * math.pi * FREQUENCY * times
        return torch.stack([angle.sin(), angle.cos()], -1)

    def observe(self, q: Tensor, v: Tensor, phases: Tensor) -> Tensor:
        """What policies and critics observe, [..., observations]."""
        return torch.cat([q[..., 3:], v, phases], -1)

    def reward(self, before: State, control: Tensor, after: State) -> dict[str, Tensor]:
        """Of a decision: for the velocity that it is asked for, being upright, heading along x, and little effort."""
        q, v = after.q, after.v
        miss = ((v[:, 0] - SPEED).square() + v[:, 1].square() + SOFT**2).sqrt()
        return {
            "speed": SPEED - miss, "alive": ALIVE - TILT * (1.0 - upright(q)), "heading": HEADING * (ahead(q) - 1.0),
            "effort": -EFFORT * (control - before.q[:, 7:]).square().sum(-1),
        }  # fmt: skip

    def fallen(self, state: State) -> Tensor:
        """Whether the trunk is tilted by more than 60° or one of its corners touches the floor, bool [B]."""
        q = state.q
        w, x, y, z = q[:, 3], q[:, 4], q[:, 5], q[:, 6]
        length, width, height = self.half_size.tolist()
        up = upright(q)
        pitch, roll = 2.0 * (x * z - w * y), 2.0 * (y * z + w * x)
        corner = q[:, 2] - length * (pitch.square() + 1e-9).sqrt() - width * (roll.square() + 1e-9).sqrt() - height * up
        return (up < UPRIGHT) | (corner < 0.0)
