"""Free bodies of one big world, each on its own: before and after the contacts of a step (`sparse_contact`).

Impulses act on *whitened* velocities y: with A⁻¹ = G Gᵀ (A = M + h D) and the twist J v of a body, a wrench f changes
y by K f, K = Gᵀ Jᵀ, and y changes the twist by Kᵀ y. So one vector of numbers says both how a row of a constraint
pushes a body and how fast the body moves along it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from ..ir import Floats, Known, Scalar, sqrt
from ..physics.constraints.delassus import COMPONENTS
from ..physics.integrators.integrate import Integrator, Midpoint
from ..physics.math import spatial as sp
from ..physics.math.arrays import axpy, split
from ..physics.math.spatial import IDENTITY, UNIT, ZERO3, Vec
from ..physics.step import midpoint_stages
from ..physics.tree.bodies import with_bodies
from ..physics.tree.dynamics import forward_dynamics
from ..physics.tree.inputs import DynamicsInputs
from ..physics.tree.joints import JOINTS
from ..physics.tree.poses import joint_motion, link_pose, pose_size
from ..physics.tree.tree import LinkConstants, Tree
from ..schema import layout
from ..schema.layout import NQ, NV, Kind

KIND = {2: Kind.PLANAR, 3: Kind.FREE}  # of the joint that every body has


@dataclass(frozen=True)
class BodyForm:
    """What the equations of a body depend on. bounces: velocities before the step are looked at, too."""

    dim: int
    integrator: Integrator
    bounces: bool
    wrenches: bool

    @property
    def nq(self) -> int:
        return NQ[KIND[self.dim]]

    @property
    def nv(self) -> int:
        return NV[KIND[self.dim]]

    @property
    def constants(self) -> int:
        """Numbers of a body: those of a model of one link."""
        return layout.shape_start(1, self.nq, 0)

    @property
    def inputs(self) -> tuple[int, ...]:
        """Constants, q, v (, wrench)"""
        return (self.constants, self.nq, self.nv, *([6] if self.wrenches else []))

    @property
    def motion(self) -> int:
        """Numbers of place and twists (`poses`)."""
        return pose_size(2 if self.bounces else 1)

    @property
    def outputs(self) -> tuple[int, ...]:
        """Place and twists; K; where positions start from; v*"""
        return (self.motion, self.nv * self.nv, self.nq, self.nv)

    def part_of_step(self) -> float:
        """For which part of the step positions move with the new velocities."""
        return 0.5 if isinstance(self.integrator, Midpoint) else 1.0


def one_link(form: BodyForm, constants: Sequence[Scalar]) -> Tree:
    """A world with nothing but this body."""
    topology = np.array([-1, KIND[form.dim], 0, 0, form.nv, 0])
    return Tree(1, form.nq, form.nv, 0, form.constants, Known(topology), Floats(list(constants)))


def free_motion(form: BodyForm, h: Scalar) -> Callable[..., list[Scalar]]:
    """The body without contacts, as a function of `inputs` to `outputs`."""

    def motion(*x: Scalar) -> list[Scalar]:
        constants, q, v, *rest = split(x, *form.inputs)
        joint = JOINTS[KIND[form.dim]]
        tree, wrench = with_bodies(one_link(form, constants)), Floats(list(rest[0])) if rest else None
        qs, vs, none = Floats(list(q)), Floats(list(v)), Floats([])
        if isinstance(form.integrator, Midpoint):
            start, _, _, dynamics = midpoint_stages(tree, qs, vs, none, wrench, h)
        else:
            start, dynamics = qs, forward_dynamics(tree, DynamicsInputs(qs, vs, vs, none, wrench, h))
        free = Floats([None] * form.nv)
        axpy(form.nv, h, dynamics.vdot, vs, free)
        begin, after = start.get(0, form.nq), free.get(0, form.nv)
        velocities = (after, v) if form.bounces else (after,)
        still = (*IDENTITY, *(0.0,) * (form.motion - 9))
        pose = link_pose(still, joint_motion(joint, tree.link(0), begin, *velocities))
        columns = [dynamics.frames.S.get(k, 6) for k in range(form.nv)]
        factors = [(dynamics.factors.U.get(k, 6), dynamics.factors.inverse[k]) for k in range(form.nv)]
        return [*pose, *whitening(form, pose[:9], columns, factors), *begin, *after]

    return motion


def whitening(form: BodyForm, W: Vec, columns: list[Vec], factors: list[tuple[Vec, Scalar]]) -> Vec:
    """K, row by row. The joint's coordinates take up a wrench one after the other, as in `dynamics.reduce`."""
    taken: list[Vec] = []
    for c in COMPONENTS[form.dim]:
        unit = UNIT[c % 3]
        local = sp.unrotate(W, unit)
        force = (*local, *ZERO3) if c < 3 else (*ZERO3, *local)
        column: Vec = ()
        for s, (U, inverse) in zip(columns, factors, strict=True):
            y = sp.dot(s, force)
            column = (*column, y * sqrt(inverse))
            force = tuple(f - (y * inverse) * u for f, u in zip(force, U, strict=True))
        taken.append(column)
    return tuple(column[k] for k in range(form.nv) for column in taken)


def pushed(form: BodyForm, record: Vec, pose: Vec, K: Vec, y: Vec) -> Vec:
    """The change of v that y is."""
    twist = [0.0] * 6
    for i, c in enumerate(COMPONENTS[form.dim]):
        for k in range(form.nv):
            twist[c] = twist[c] + K[k * form.nv + i] * y[k]
    if form.dim == 3:
        return (*twist[3:], *sp.unrotate(pose[:9], tuple(twist[:3])))
    return (*sp.unrotate(LinkConstants.of(record).rotation, tuple(twist[3:]))[:2], twist[2])


def finish_inputs(form: BodyForm) -> tuple[int, ...]:
    """Constants of the link; what `free_motion` returns; y of velocities, and of corrected positions"""
    return (layout.LINK, *form.outputs, form.nv, form.nv)


def finish(form: BodyForm, left: Scalar) -> Callable[..., list[Scalar]]:
    """The state after a step: q⁺ = q ⊕ left (v⁺ + p), v⁺."""

    def state(*x: Scalar) -> list[Scalar]:
        record, pose, K, begin, free, y, shift = split(x, *finish_inputs(form))
        after = sp.add(free, pushed(form, record, pose, K, y))
        move = sp.add(after, pushed(form, record, pose, K, shift))
        return [*JOINTS[KIND[form.dim]].integrate(begin, sp.scale(left, move)), *after]

    return state
