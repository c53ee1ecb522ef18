"""Each free body of a pile on its own: its motion before and after the contacts of a step; lanes are bodies.

Impulses act on *whitened* velocities y: with A⁻¹ = G Gᵀ (A = M + h D) and the twist J v of a body, a wrench f changes y
by K f, where K = Gᵀ Jᵀ, and y changes the twist by Kᵀ y. The mass matrix of whitened velocities is the identity: the
same vector K f says how an impulse changes y and how fast the body moves along the wrench.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from ..ir import Floats, Known, Scalar, sqrt
from ..physics.constraints.root_frame import COMPONENTS
from ..physics.integrators import Integrator
from ..physics.math import spatial as sp
from ..physics.math.arrays import axpy
from ..physics.math.spatial import IDENTITY, UNIT, ZERO3, Vec
from ..physics.state import StateArrays, StepInputs
from ..physics.tree.bodies import with_bodies
from ..physics.tree.joints import JOINTS
from ..physics.tree.poses import Pose, joint_motion, link_pose, pose_size
from ..physics.tree.tree import LinkConstants, Tree
from ..schema import layout
from ..schema.layout import FLOATING, NQ, NV
from .records import RecordLayout


@dataclass(frozen=True)
class BodyForm:
    """Settings on which the equations of a body depend.

    bounces: whether restitution counts. wrenches: whether there are any.
    """

    dim: int
    integrator: Integrator
    bounces: bool
    wrenches: bool

    @property
    def nq(self) -> int:
        return NQ[FLOATING[self.dim]]

    @property
    def nv(self) -> int:
        return NV[FLOATING[self.dim]]

    @property
    def constants(self) -> int:
        """Numbers of a body: the constants of a model with one link and nothing else."""
        return layout.shape_start(1, self.nq, 0)

    @property
    def motion(self) -> int:
        """Numbers of a body's `Pose`, with the twist of the free motion at the end of the step; and with that of the
        velocity before the step, if contacts read it."""
        return pose_size(2 if self.reads_before else 1)

    @property
    def reads_before(self) -> bool:
        """Whether contacts depend on the velocity before the step: restitution, and directions of friction in 3D."""
        return self.bounces or self.dim == 3

    @functools.cached_property
    def inputs(self) -> RecordLayout:
        """The numbers that the free motion is a function of."""
        wrench = {"wrench": 6} if self.wrenches else {}
        return RecordLayout(constants=self.constants, q=self.nq, v=self.nv, **wrench)

    @functools.cached_property
    def outputs(self) -> RecordLayout:
        """The free motion: `Pose`, K, the configuration from which positions start, and v*."""
        return RecordLayout(motion=self.motion, whitening=self.nv**2, start=self.nq, free=self.nv)

    @functools.cached_property
    def finish_inputs(self) -> RecordLayout:
        """The numbers that the state after a step is a function of: constants of the link, the free motion, and y of
        the impulses and of the position correction."""
        return RecordLayout(
            link=layout.LINK, motion=self.motion, whitening=self.nv**2, start=self.nq, free=self.nv, y=self.nv,
            shift=self.nv,
        )  # fmt: skip

    def part_of_step(self) -> float:
        """The part of the step in which positions move with the velocity at its end."""
        return self.integrator.share


def one_link(form: BodyForm, constants: Sequence[Scalar]) -> Tree:
    """A tree with nothing but this body."""
    topology = np.array([-1, FLOATING[form.dim], 0, 0, form.nv, 0, 1])
    constant = Floats(list(constants))
    return Tree(1, form.nq, form.nv, 0, form.constants, Known(topology), constant, branching=False)


def free_motion(form: BodyForm, h: Scalar) -> Callable[..., list[Scalar]]:
    """The motion of a body without contacts, as a function from `BodyForm.inputs` to `BodyForm.outputs`."""

    def motion(*x: Scalar) -> list[Scalar]:
        constants, q, v, *rest = form.inputs.split(x)
        tree, joint = with_bodies(one_link(form, constants)), JOINTS[FLOATING[form.dim]]
        wrench = Floats(list(rest[0])) if rest else None
        qs, vs, none = Floats(list(q)), Floats(list(v)), Floats([])
        stages = form.integrator.stages(tree, StateArrays(qs, vs), StepInputs(none, wrench), h)
        dynamics = stages.dynamics
        free = Floats([None] * form.nv)
        axpy(form.nv, h, dynamics.vdot, vs, free)
        q_start, v_free = stages.start.get(0, form.nq), free.get(0, form.nv)
        velocities = (v_free, v) if form.reads_before else (v_free,)
        still = (*IDENTITY, *(0.0,) * (form.motion - len(IDENTITY)))
        pose = link_pose(still, joint_motion(joint, tree.link(0), q_start, *velocities))
        columns = [dynamics.frames.S.get(k, 6) for k in range(form.nv)]
        factors = [(dynamics.factors.U.get(k, 6), dynamics.factors.inverse[k]) for k in range(form.nv)]
        return [*pose, *whitening(form, Pose.of(pose).rotation, columns, factors), *q_start, *v_free]

    return motion


def whitening(form: BodyForm, W: Vec, columns: Sequence[Vec], factors: Sequence[tuple[Vec, Scalar]]) -> Vec:
    """K [nv, nv], row by row; W: the rotation of the body, columns: of S, factors: U and 1/d.

    The coordinates of the joint take up a wrench one after the other, as in `dynamics.reduce`.
    """
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


def velocity_change(form: BodyForm, link: Vec, motion: Pose, K: Vec, y: Vec) -> Vec:
    """The change of v (in generalised coordinates) that belongs to a change y of the whitened velocity."""
    twist: list[Scalar] = [0.0] * 6
    for i, c in enumerate(COMPONENTS[form.dim]):
        for k in range(form.nv):
            twist[c] = twist[c] + K[k * form.nv + i] * y[k]
    if form.dim == 3:
        return (*twist[3:], *sp.unrotate(motion.rotation, tuple(twist[:3])))
    return (*sp.unrotate(LinkConstants.of(link).rotation, tuple(twist[3:]))[:2], twist[2])


def finish(form: BodyForm, left: Scalar) -> Callable[..., list[Scalar]]:
    """The state after a step, q⁺ = q ⊕ left (v⁺ + p) and v⁺, as a function of `BodyForm.finish_inputs`."""

    def state(*x: Scalar) -> list[Scalar]:
        link, pose, K, q_start, v_free, y, shift = form.finish_inputs.split(x)
        motion = Pose.of(pose)
        v_next = sp.add(v_free, velocity_change(form, link, motion, K, y))
        move = sp.add(v_next, velocity_change(form, link, motion, K, shift))
        return [*JOINTS[FLOATING[form.dim]].integrate(q_start, sp.scale(left, move)), *v_next]

    return state
