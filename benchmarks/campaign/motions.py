"""Motions of a world as a function of one vector: start, controls, wrenches and all parameters of the model."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

import backdrive as bd
from backdrive.runtime.tangent import Tangent

from .draw import Draw
from .families import Family
from .worlds import World

DT = (1 / 30, 1 / 60, 1 / 120, 1 / 240)
CANDIDATES = 3  # starts for every motion: those are taken that touch something
MISSES = 0.1  # of the motions may touch nothing
DEEPEST = 1e-3  # m; motions that start with a deeper overlap are left out
FASTEST = 100.0  # m/s or rad/s; so are motions that a wild motor made this fast

RANGES: dict[str, tuple[float, float]] = {
    "restitution": (0.0, 1.0), "friction": (0.0, math.inf), "softness": (0.0, math.inf), "damping": (0.0, math.inf),
    "stiffness": (0.0, math.inf), "armature": (0.0, math.inf), "joint_friction": (0.0, math.inf),
}  # fmt: skip
"""Values at an end of their range stay there: differences need both sides."""


@dataclass(frozen=True)
class Motions:
    """A batch of B motions of T steps. Start q, v [B, n]; controls [T, B, nu]; wrenches [T, B, nbody, 3 or 6];
    parameters: {name: [B, *shape]}."""

    family: Family
    world: World
    dt: float
    start: bd.State
    controls: Tensor
    wrenches: Tensor
    parameters: dict[str, Tensor]

    @property
    def steps(self) -> int:
        return len(self.controls)

    @property
    def count(self) -> int:
        return len(self.start.q)

    def some(self, index: list[int] | slice, first: int = 0, steps: int | None = None) -> Motions:
        """The motions with these numbers; of them, the inputs of some of the steps."""
        during = slice(first, None if steps is None else first + steps)
        start = bd.State(self.start.q[index], self.start.v[index])
        parameters = {name: x[index] for name, x in self.parameters.items()}
        return Motions(self.family, self.world, self.dt, start, self.controls[during][:, index],
                       self.wrenches[during][:, index], parameters)  # fmt: skip

    def vector(self) -> Tensor:
        """All inputs [B, n]: a displacement of q in its tangent space, v, controls, wrenches, parameters."""
        parts = [torch.zeros_like(self.start.v), self.start.v]
        parts += [x.transpose(0, 1).flatten(1) for x in (self.controls, self.wrenches)]
        return torch.cat([*parts, *(x.flatten(1) for x in self.parameters.values())], 1)

    def rollout(self, simulator: bd.Simulator, x: Tensor) -> bd.Trajectory:
        """The motions with inputs x [B, n], differentiable with respect to them."""
        model, steps, batch = self.world.model, self.steps, len(x)
        wide = self.wrenches.shape[2:]
        sizes = [model.nv, model.nv, steps * model.nu, steps * wide.numel()]
        parts = x.split([*sizes, *(p[0].numel() for p in self.parameters.values())], 1)
        q = Tangent(model).displace(self.start.q, parts[0]).to(x.dtype)
        controls = parts[2].reshape(batch, steps, model.nu).transpose(0, 1)
        wrenches = parts[3].reshape(batch, steps, *wide).transpose(0, 1)
        given = {name: part.reshape(batch, *p.shape[1:]) for part, (name, p) in zip(parts[4:], self.parameters.items())}
        to = simulator.dtype
        return simulator.rollout(
            bd.State(q.to(to), parts[1].to(to)), controls.to(to), wrenches=wrenches.to(to), steps=steps,
            parameters=given,
        )  # fmt: skip

    def repeated(self, times: int) -> Motions:
        """Every motion several times in a row."""
        return self.some([k for k in range(self.count) for _ in range(times)])

    def direction(self, draw: Draw) -> Tensor:
        """A random direction [B, n] over all inputs jointly, along which they stay possible."""
        model, count = self.world.model, self.count

        def random(like: Tensor) -> Tensor:
            return torch.from_numpy(draw.normal(*like.shape))

        parts = [0.3 * random(self.start.v), random(self.start.v)]
        parts += [random(x).transpose(0, 1).flatten(1) for x in (self.controls, self.wrenches)]
        for name, x in self.parameters.items():
            low, high = RANGES.get(name, (-math.inf, math.inf))
            inside = (x > low) & (x < high) & x.isfinite()
            size = torch.where(inside, x.abs(), 0.0)
            if name == "inertia" and model.dim == 3:
                size = size.amax(-1, keepdim=True).expand_as(size)
            elif name in ("com", "offset", "anchor", "shape_position", "axis", "reference", "gravity"):
                size = size.clamp(min=0.1)
            parts.append((0.3 * random(x) * torch.where(inside, size, 0.0)).reshape(count, -1))
        return torch.cat(parts, 1)


def marks(family: Family, path: bd.Trajectory) -> dict[str, Tensor]:
    """By what the status says that the gradient is not exact in some step (docs/gradients.md), [B] each.

    Gradients of the sweeps of big worlds are held to be exact whether these converged or not.
    """
    s = path.status
    unsolved = ~s.finite if family.sweeps_alone else ~s.converged
    found = {"unsolved": unsolved, "fallback": s.fallbacks > 0, "simultaneous": s.simultaneous > 0}
    return {name: x.any(0) for name, x in found.items()}


def draw_motions(family: Family, count: int, draw: Draw, most_steps: int = 40, uniform: bool = False) -> Motions:
    """Random motions of a random world of the family, most of which touch something. There may be fewer than `count`.

    uniform: for the balance of energy: without controls and wrenches, of `most_steps`, from the start on.
    """
    world, dt = family.world(draw, uniform), draw.choice(DT)
    simulator = family.simulator(world.model, dt, dtype=torch.float64)
    settle, steps = draw.choice((0, 0, 5, 20, 60)), min(int(draw.spread(5, family.longest + 0.5)), most_steps)
    if uniform:
        settle, steps = 0, most_steps
    elif not world.model.gravity.any():
        settle = min(settle, 5)  # until they have flown away
    few = 2 if family.sparse else CANDIDATES
    inputs = _inputs(world, count * few, steps, draw, forced=not uniform)
    many = Motions(family, world, dt, *inputs)
    with torch.no_grad():
        if settle:
            still = torch.zeros(settle, *inputs[2].shape[1:], dtype=torch.float64)
            last = simulator.rollout(many.start, wrenches=still, parameters=many.parameters).last
            many = Motions(family, world, dt, last, *inputs[1:])
        path = many.rollout(simulator, many.vector())
    status = path.status
    fine = status.finite.all(0) & (status.depth[0] < DEEPEST) & (path.v.abs().amax((0, 2)) < FASTEST)
    fine &= path.q.isfinite().all(-1).all(0)
    touches = (status.contacts > 0).any(0) | (status.impacts > 0).any(0)
    hits, misses = ((fine & x).nonzero()[:, 0].tolist() for x in (touches, ~touches))
    return many.some((hits + misses[: math.ceil(MISSES * count)])[:count])


def _inputs(
    world: World, count: int, steps: int, draw: Draw, forced: bool
) -> tuple[bd.State, Tensor, Tensor, dict[str, Tensor]]:
    model = world.model

    def random(*shape: int) -> Tensor:
        return torch.from_numpy(draw.normal(*shape))

    controls = draw.choice((0.3, 1.0, 3.0)) * random(1, count, model.nu) + 0.3 * random(steps, count, model.nu)
    wide = 6 if model.dim == 3 else 3
    wrenches = draw.choice((0.0, 0.1, 1.0)) * random(steps, count, model.nbody, wide)
    controls, wrenches = controls * forced, wrenches * forced
    return world.starts(count, draw), controls, wrenches, _parameters(model, count, random)


def _parameters(model: bd.Model, count: int, random: Callable[..., Tensor]) -> dict[str, Tensor]:
    """Of every motion its own, which differ from the model's by a few percent."""
    parameters = {}
    for name in model.parameters().names:
        x = model.parameter(name)
        shape = (count, *x.shape[:1], 1) if name == "inertia" and x.ndim == 2 else (count, *x.shape)
        varied = x * (1.0 + 0.03 * random(*shape).clamp(-2, 2))
        low, high = RANGES.get(name, (-math.inf, math.inf))
        keep = ~x.isfinite() | (x <= low) | (x >= high)
        parameters[name] = torch.where(keep, x, varied.clamp(low, high))
    return parameters
