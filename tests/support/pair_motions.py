"""Random motions of two bodies over a floor and beside a wall, and a judgement of their gradients by differences."""

from __future__ import annotations

from typing import NamedTuple

import torch
from contact_scenes import SHAPES
from differences import weights
from impact_scenes import Random, simulator
from torch import Tensor

import backdrive as bd

STEPS = (1e-5, 1e-6, 1e-7)  # of differences
CLEAN = 3e-6  # differences of the two smaller steps agree to this part
RIGHT = 1e-5  # and the gradient with them to this, or to ten times as much as they agree
SHARE_MARKED = 0.05  # at most this part of the clean motions may be marked


class PairWorld(NamedTuple):
    """Two bodies, how they touch each other, the floor and the wall, and how they are simulated.

    apart: the distance (m) between their centers at the start; less than about 0.7 lets them overlap. fall: the second
    body is above the first, and comes down on it at this speed (m/s), instead of flying towards it.
    """

    dim: int
    a: str
    b: str
    integrator: str
    friction: float
    restitution: float
    dt: float = 1 / 30
    apart: float = 0.75
    fall: float = 0.0

    def build(self) -> bd.Model:
        scene, up = bd.Scene(self.dim), (0.0,) * (self.dim - 1)
        surface = {"friction": self.friction, "restitution": self.restitution}
        for normal in ((*up, 1.0), (1.0, *up)):
            scene.add_static(bd.HalfSpace(normal), **surface)
        for name, kind, mass in (("a", self.a, 0.5), ("b", self.b, 2.0)):
            scene.add_body(name, SHAPES[self.dim][kind], mass=mass, **surface)
        return scene.build()

    def starts(self, samples: int, seed: int) -> bd.State:
        """Random places, turns, velocities and spins."""
        random, normal = Random(seed, samples), torch.distributions.Normal(0.0, 1.0)
        q, v = [], []
        for k in range(2):
            x, z = 0.42 + self.apart * k + random(-0.04, 0.04), random(0.42, 0.54)
            speed = [(2.0 - 4.0 * k) + random(-2.0, 2.0), random(-2.5, 1.0)]
            if self.fall:
                x, z = 1.0 + random(-0.05, 0.05), 0.3 + (self.apart + random(0.0, 0.05)) * k
                speed = [random(-0.5, 0.5), random(-1.0, 0.0) - self.fall * k]
            if self.dim == 2:
                q += [torch.stack([x, z, random(-3.0, 3.0)], 1)]
                v += [torch.stack([*speed, random(-5.0, 5.0)], 1)]
            else:
                turn = torch.nn.functional.normalize(normal.icdf(random(0.01, 0.99, 4)), dim=1)
                q += [torch.cat([torch.stack([x, random(-0.15, 0.15), z], 1), turn], 1)]
                v += [torch.cat([torch.stack([speed[0], random(-1.0, 1.0), speed[1]], 1), random(-5.0, 5.0, 3)], 1)]
        return bd.State(torch.cat(q, 1), torch.cat(v, 1))


class Judgement(NamedTuple):
    """By motion: whether differences of several sizes and of both sides agree, whether the status marks the motion, the
    error of the gradient relative to them, and whether that is wrong."""

    clean: Tensor
    marked: Tensor
    error: Tensor
    wrong: Tensor
    impacts: Tensor


def judge(world: PairWorld, samples: int, seed: int, steps: int = 6) -> Judgement:
    """The derivative of a random function of the end, along a random direction, against differences."""
    sim, start = simulator(world.build(), world.dt, world.integrator), world.starts(samples, seed)
    random = Random(seed + 1, samples)
    along = [random(-1.0, 1.0, x.shape[1]) for x in start]
    of_end = [weights(x.shape[1], seed=k) for k, x in enumerate(start)]
    turns = [slice(3, 7), slice(10, 14)] if world.dim == 3 else []

    def rolled(state: bd.State) -> tuple[bd.Trajectory, Tensor]:
        q = state.q.clone()
        for turn in turns:
            q[:, turn] = torch.nn.functional.normalize(state.q[:, turn], dim=1)
        path = sim.rollout(bd.State(q, state.v), steps=steps)
        return path, sum((x * w).sum(1) for x, w in zip(path.last, of_end, strict=True))

    leaves = [x.clone().requires_grad_() for x in start]
    path, end = rolled(bd.State(*leaves))
    gradients = torch.autograd.grad(end.sum(), leaves)
    mine = sum((g * d).sum(1) for g, d in zip(gradients, along, strict=True))
    status, here = path.status, end.detach()
    exact = status.converged & (status.fallbacks + status.simultaneous == 0)
    found, bent = [], []
    for h in STEPS:
        ends = []
        for k in (1, -1, 2, -2):
            there = bd.State(*(x + k * h * d for x, d in zip(start, along, strict=True)))
            ends.append(rolled(there)[1])
        found.append((8.0 * (ends[0] - ends[1]) - (ends[2] - ends[3])) / (12.0 * h))
        bent.append((ends[0] + ends[1] - 2.0 * here).abs() / h)
    size = found[1].abs().clamp(min=1.0)
    spread = (found[1] - found[2]).abs() / size
    smooth = (bent[1] < 1e-2 * size) & (bent[2] < 2e-3 * size) & ((found[0] - found[1]).abs() < 1e-4 * size)
    clean = (spread < CLEAN) & smooth
    error = torch.stack([(mine - x).abs() / size for x in found]).amin(0)
    wrong = clean & exact.all(0) & ~(error <= torch.clamp(10.0 * spread, min=RIGHT))
    return Judgement(clean, ~exact.all(0), error, wrong, status.impacts.amax(0))
