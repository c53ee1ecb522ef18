"""Quantities along a path, from its states: poses of links, forces of constraints, angles in the plane."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from torch import Tensor

from ..physics.tree.poses import POSE
from ..schema import layout
from ..schema.signatures import CONTACTS, FORCES, POSES
from . import autograd
from .call import request_of
from .program import Program

if TYPE_CHECKING:
    from ..model import Model


class PathStates(NamedTuple):
    """States [T, (B,) n] for every field, and the constants of the model that moved."""

    program: Program
    states: tuple[Tensor, ...]
    constants: Tensor | None  # None: the model's own
    parameters: str  # names of those in the constants, separated by commas

    @property
    def unbatched(self) -> bool:
        return self.states[0].ndim == 2

    def batched(self) -> tuple[Tensor, ...]:
        """The states [T, B, n], on the CPU."""
        states = tuple(x.cpu() for x in self.states)
        return tuple(x.unsqueeze(1) for x in states) if self.unbatched else states

    def finished(self, x: Tensor) -> Tensor:
        """As the states are: without B, and on their device."""
        return (x.squeeze(1) if self.unbatched else x).to(self.states[0].device)


def link_poses(path: PathStates) -> tuple[Tensor, ...]:
    """Rotation (9), position, angular velocity, velocity of every link: [T, (B,) nlink, k] each."""
    request, tensors = request_of(path.program, POSES, path.batched(), path.constants, path.parameters)
    out = autograd.evaluate(request, tensors)["out"].unflatten(-1, (-1, sum(POSE)))
    return path.finished(out).split(list(POSE), -1)


def constraint_forces(path: PathStates, controls: Tensor, wrenches: Tensor | None) -> Tensor:
    """The forces of all constraints in a step from each of the states, as the kernel `forces` writes them.

    controls, wrenches: [T, B, n]. Returns [T, (B,) nforce].
    """
    given = {"controls": controls, "wrenches": wrenches}
    request, tensors = request_of(path.program, FORCES, path.batched(), path.constants, path.parameters, None, **given)
    return path.finished(autograd.evaluate(request, tensors)["out"])


def contacts_of_big_world(path: PathStates, wrenches: Tensor | None) -> tuple[np.ndarray, Tensor]:
    """The same for one big world: shapes [n, 2] of all contacts on the way, and their forces [T, (B,) n, FORCE]."""
    from .pile_forces import contact_forces

    states = path.batched()
    controls = states[0].new_zeros(*states[0].shape[:2], path.program.model.nu)
    given = {"controls": controls, "wrenches": wrenches}
    request, tensors = request_of(path.program, CONTACTS, states, path.constants, path.parameters, None, **given)
    request.check(CONTACTS, tensors)
    q, v = states
    shapes, numbers = contact_forces(path.program, q, v, wrenches, path.constants, path.parameters)
    return shapes, path.finished(numbers)


class PlanarAngles:
    """The angles of the bodies of a 2D model (a 3D model has none)."""

    def __init__(self, model: Model) -> None:
        self._model, self._link_of = model, model.body_link.tolist()
        self._links = _link_angles(model) if model.dim == 2 else []

    def of(self, q: Tensor, body: str) -> Tensor:
        """rad, [...] of q [..., nq]: the joint angles from the root to the body, and those the model was built with."""
        angle, terms = self._links[self._link_of[self._model.body_index(body)]]
        total = q.new_full(q.shape[:-1], angle)
        for at, sign in terms:
            total = total + q[..., at] * sign
        return total


def _link_angles(model: Model) -> list[tuple[float, list[tuple[int, float]]]]:
    """For every link its angle at q = 0, rad, and the coordinates of q (with their signs) that add to it."""
    angles: list[tuple[float, list[tuple[int, float]]]] = []
    for link, (parent, kind, at) in enumerate(zip(model.parent, model.kind, model.qadr.tolist(), strict=True)):
        record = model.constants[layout.link_start(link) : layout.link_start(link + 1)]
        cosine, sine = record[layout.ROTATION], record[layout.ROTATION + 3]
        angle, terms = angles[parent] if parent >= 0 else (0.0, [])
        if kind == layout.Kind.HINGE:
            terms = [*terms, (at, float(record[layout.AXIS + 2]))]
        elif kind == layout.Kind.PLANAR:
            terms = [*terms, (at + 2, 1.0)]
        angles.append((angle + math.atan2(sine, cosine), terms))
    return angles
