"""Gradients with respect to everything, against differences that are judged by themselves first.

For every motion there is a random direction d over all inputs, and a random cotangent c of its last state and of one
before. The vector J d of derivatives of both states comes from differences of fourth order, the number c·J d from the
adjoint. A difference is clean if it agrees with that of another size, and if the left side agrees with the right: what
is on a switch of contacts, limits or motors has different derivatives on its sides, or a jump. Errors are relative to
|J d|, since the entries of c are of the order of 1; in float32 to the largest |J d| of all states on the way.

A motion may also lie in a sliver between two switches, narrower than any difference: where constraints at rest oppose
each other, they share what they cannot both have by their compliance, within 1e-10 m, before one of them gives way. Its
gradient is that of the sliver, and differences are those of both sides. Such motions are told by `status.modes`, which
differ from those of all neighbours; if their gradient disagrees, they count on their own.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

import backdrive as bd
from backdrive.differences import extrapolate, slopes

from .draw import Draw
from .motions import Motions, marks

SIZES = (2e-5, 3e-6, 6e-7, 1.5e-7)  # of differences; two neighbours must agree
MORE_SIZES = (1e-4, 3e-5, 1e-5, 3e-6, 1e-6, 3e-7, 1e-7, 4e-8)  # for a second look at what seems to be wrong
OFFSETS = (1.0, -1.0, 2.0, -2.0)


@dataclass(frozen=True)
class Tolerances:
    """agree: of the differences of two sizes; sides: of those from the left and the right; right: of the adjoint."""

    agree: float = 1e-7
    sides: float = 3e-7
    right: float = 1e-6


DOUBLE = Tolerances()
SINGLE = Tolerances(right=2e-3)  # differences are those of the same motion in float64
SAME_MOTION = 2e-5  # a motion in float32 is that in float64, relative to 1 + the largest coordinate
LEAST = 1e-3  # |J d| below it counts as this

RIGHT, WRONG, RIGHT_MARKED, WRONG_MARKED, UNDECIDED = "right", "WRONG", "right, marked", "wrong, marked", "undecided"
BETWEEN = "between switches"
OUTCOMES = (RIGHT, WRONG, RIGHT_MARKED, WRONG_MARKED, BETWEEN, UNDECIDED)


@dataclass(frozen=True)
class Judgement:
    """Of every motion, [B]: clean, error (relative, of the adjoint against clean differences), between (it has other
    modes than its neighbours on both sides), touching; marks: by what the status says that the gradient is not exact.
    right: errors up to this are."""

    clean: Tensor
    error: Tensor
    between: Tensor
    touching: Tensor
    marks: dict[str, Tensor]
    right: float

    @property
    def marked(self) -> Tensor:
        return torch.stack(list(self.marks.values())).any(0)

    def marked_by(self) -> dict[str, int]:
        """The number of clean motions with each of the marks."""
        return {f"clean, {name}": int((x & self.clean).sum()) for name, x in self.marks.items()}

    def outcomes(self) -> list[str]:
        names = []
        every = zip(*(x.tolist() for x in (self.clean, self.error, self.between, self.marked)))
        for clean, error, between, told in every:
            right = error <= self.right
            unmarked = RIGHT if right else BETWEEN if between else WRONG
            decided = (RIGHT_MARKED if right else WRONG_MARKED) if told else unmarked
            names.append(decided if clean else UNDECIDED)
        return names


@dataclass(frozen=True)
class Functional:
    """Motions, a direction of their inputs [B, n], and a cotangent [B, m] of their states at the end and at `step`."""

    motions: Motions
    direction: Tensor
    cotangent: Tensor
    step: int

    @classmethod
    def random(cls, motions: Motions, draw: Draw) -> Functional:
        model, step = motions.world.model, int(draw.rng.integers(1, motions.steps + 1))
        cotangent = torch.from_numpy(draw.normal(motions.count, 2 * (model.nq + model.nv)))
        return cls(motions, motions.direction(draw), cotangent, step)

    def some(self, index: list[int]) -> Functional:
        """Of the motions with these numbers."""
        return Functional(self.motions.some(index), self.direction[index], self.cotangent[index], self.step)

    def states(self, path: bd.Trajectory) -> Tensor:
        """[B, m], in float64."""
        last, before = path.last, path[self.step]
        return torch.cat([last.q, last.v, before.q, before.v], 1).to(torch.float64)


def judge(functional: Functional, sizes: tuple[float, ...] = SIZES) -> Judgement:
    """Compare the adjoint of every motion with differences of these sizes."""
    motions = functional.motions
    family = motions.family
    simulator = family.simulator(motions.world.model, motions.dt)
    x = motions.vector().requires_grad_()
    path = motions.rollout(simulator, x)
    (gradient,) = torch.autograd.grad((functional.states(path) * functional.cotangent).sum(), x)
    adjoint = (gradient * functional.direction).sum(1)
    exact = simulator if not family.single else family.simulator(motions.world.model, motions.dt, dtype=torch.float64)
    center, slopes, clean, between = differences(functional, exact, sizes)
    if family.single:
        states = functional.states(path).detach()
        clean &= ((states - center).abs().amax(1) < SAME_MOTION * (1.0 + center.abs().amax(1)))[None]
        with torch.no_grad():  # rounding may decide between two active sets, and so between two motions
            modes = motions.rollout(exact, x.detach()).status.modes
        clean &= (path.status.modes.to(torch.float64) == modes).all(0)[None]
    scale = slopes.norm(dim=2).clamp(min=LEAST)
    if family.single:
        scale = torch.maximum(scale, steepest(functional, exact))
    errors = (adjoint - (slopes * functional.cotangent).sum(2)).abs() / scale
    errors = torch.where(clean & errors.isfinite(), errors, torch.where(clean, torch.inf, torch.nan))
    error = errors.nan_to_num(nan=torch.inf, posinf=torch.inf).amin(0)
    touching = (path.status.contacts > 0).any(0) | (path.status.impacts > 0).any(0)
    tolerances = SINGLE if family.single else DOUBLE
    return Judgement(clean.any(0), error, between, touching, marks(family, path), tolerances.right)


def steepest(functional: Functional, simulator: bd.Simulator) -> Tensor:
    """The largest |J d| of all states of the motions, [B]: what one contact amplifies, and the next one takes back, has
    been rounded in between."""
    motions, size = functional.motions, SIZES[-2]
    x = (
        motions.vector()[:, None]
        + size * torch.tensor([1.0, -1.0], dtype=torch.float64)[:, None] * functional.direction[:, None]
    )
    with torch.no_grad():
        path = motions.repeated(2).rollout(simulator, x.flatten(0, 1))
        states = torch.cat([path.q, path.v], 2).unflatten(1, (motions.count, 2))
    return ((states[:, :, 0] - states[:, :, 1]) / (2.0 * size)).norm(dim=2).amax(0)


def differences(
    functional: Functional, simulator: bd.Simulator, sizes: tuple[float, ...]
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The states [B, m], and for every size but the first: J d [sizes - 1, B, m], and whether it is clean; and whether
    the modes of all neighbours differ from those of the motion itself, [B]."""
    motions, direction = functional.motions, functional.direction
    steps = [0.0] + [size * k for size in sizes for k in OFFSETS]
    offsets = torch.tensor(steps, dtype=torch.float64)
    x = motions.vector()[:, None] + offsets[:, None] * direction[:, None]
    with torch.no_grad():
        path = motions.repeated(len(steps)).rollout(simulator, x.flatten(0, 1))
        values = functional.states(path).unflatten(0, (motions.count, len(steps)))
    center, around = values[:, :1], values[:, 1:].unflatten(1, (len(sizes), len(OFFSETS)))
    modes = path.status.modes.unflatten(1, (motions.count, len(steps)))
    between = (modes[..., 1:] != modes[..., :1]).any(0).all(1)
    found, clean = [], []
    for k, size in enumerate(sizes):
        plus, minus, plus2, minus2 = around[:, k].unbind(1)
        found.append(extrapolate(slopes([plus, minus, plus2, minus2], size)))
        if k == 0:
            continue
        scale = found[k].norm(dim=1).clamp(min=LEAST)
        agree = (found[k] - found[k - 1]).norm(dim=1) < DOUBLE.agree * scale
        right_side = (4.0 * plus - plus2 - 3.0 * center[:, 0]) / (2.0 * size)
        left_side = (3.0 * center[:, 0] - 4.0 * minus + minus2) / (2.0 * size)
        agree &= (right_side - left_side).norm(dim=1) < DOUBLE.sides * scale
        clean.append(agree)  # False for NaN
    return center[:, 0], torch.stack(found[1:]), torch.stack(clean), between
