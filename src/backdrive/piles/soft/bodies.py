"""Each free body on its own, at the level of accelerations; lanes are bodies.

The records are those of `piles.bodies`: of the motion, the twists are those of v and of the smooth acceleration a₀,
and `free` is a₀. Contacts change whitened accelerations y: a = a₀ + G y, with M⁻¹ = G Gᵀ.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ...ir import Floats, Scalar
from ...physics.math import spatial as sp
from ...physics.math.spatial import IDENTITY, SPATIAL, UNIT, ZERO3, ZERO6, Vec
from ...physics.soft.settings import SoftSettings
from ...physics.tree.bodies import with_bodies
from ...physics.tree.dynamics import forward_dynamics
from ...physics.tree.inputs import DynamicsInputs
from ...physics.tree.joints import JOINTS
from ...physics.tree.poses import Pose, joint_motion, link_pose
from ...physics.tree.tree import LinkConstants
from ...schema import layout
from ...schema.layout import FLOATING
from ..bodies import BodyForm, one_link, velocity_change, whitening
from ..records import RecordLayout


@dataclass(frozen=True)
class AdvanceForm:
    """Settings on which the end of a step depends."""

    body: BodyForm
    settings: SoftSettings

    @property
    def inputs(self) -> RecordLayout:
        """The numbers that the state after a step is a function of."""
        body = self.body
        return RecordLayout(
            link=layout.LINK, motion=body.motion, whitening=body.nv**2, start=body.nq, free=body.nv, v=body.nv,
            y=body.nv,
        )  # fmt: skip

    @property
    def damps(self) -> bool:
        """Whether the damping of the joint is implicit."""
        return self.settings.integrator != "euler" or self.settings.eulerdamp

    @property
    def turns(self) -> bool:
        """Whether Coriolis and gyroscopic forces are implicit."""
        return self.settings.integrator in ("implicit", "implicitfast")


def smooth_motion(form: BodyForm) -> Callable[..., list[Scalar]]:
    """The acceleration of a body without contacts, as a function from `BodyForm.inputs` to `BodyForm.outputs`."""

    def motion(*x: Scalar) -> list[Scalar]:
        constants, q, v, *rest = form.inputs.split(x)
        tree, joint = with_bodies(one_link(form, constants)), JOINTS[FLOATING[form.dim]]
        wrench = Floats(list(rest[0])) if rest else None
        qs, vs, none = Floats(list(q)), Floats(list(v)), Floats([])
        dynamics = forward_dynamics(tree, DynamicsInputs(qs, vs, vs, none, wrench, 0.0))
        a = dynamics.vdot.get(0, form.nv)
        still = (*IDENTITY, *(0.0,) * (form.motion - len(IDENTITY)))
        pose = link_pose(still, joint_motion(joint, tree.link(0), q, v, a))
        columns = [dynamics.frames.S.get(k, SPATIAL) for k in range(form.nv)]
        factors = [(dynamics.factors.U.get(k, SPATIAL), dynamics.factors.inverse[k]) for k in range(form.nv)]
        return [*pose, *whitening(form, Pose.of(pose).rotation, columns, factors), *q, *a]

    return motion


def advance(form: AdvanceForm, h: Scalar) -> Callable[..., list[Scalar]]:
    """The state after a step, v⁺ = v + h â and q⁺ = q ⊕ h v⁺, as a function of `AdvanceForm.inputs`."""

    def state(*x: Scalar) -> list[Scalar]:
        link, pose, K, q, free, v, y = form.inputs.split(x)
        motion = Pose.of(pose)
        a = sp.add(free, velocity_change(form.body, link, motion, K, y))
        if form.damps:
            a = sp.add(a, implicit_change(form, LinkConstants.of(link), motion, v, a, h))
        v_next = sp.add(v, sp.scale(h, a))
        return [*JOINTS[FLOATING[form.body.dim]].integrate(q, sp.scale(h, v_next)), *v_next]

    return state


def implicit_change(form: AdvanceForm, link: LinkConstants, motion: Pose, v: Vec, a: Vec, h: Scalar) -> Vec:
    """â - a, with (M - h D) â = M a and D = ∂τ/∂v, in coordinates of v: linear ones in world axes.

    The equations are those of motions (angular, linear) in the axes of the link.
    """
    body = sp.body_moments(link.mass, link.com, link.inertia)
    inertia, w = sp.articulated(body), v[3:]
    columns: list[list[Scalar]] = []
    rest = sp.scale(-(h * link.damping), (*a[3:], *sp.unrotate(motion.rotation, a[:3])))
    for k in range(SPATIAL):
        unit = tuple(1.0 if i == k else 0.0 for i in range(SPATIAL))
        column = list(sp.inertia_mul(inertia, unit))
        column[k] = column[k] + link.armature + h * link.damping
        if form.turns and k < 3:
            slope = sp.scale(h, gyration(body, w, UNIT[k]))
            column = list(sp.add(tuple(column), slope))
            rest = sp.sub(rest, sp.scale(a[3 + k], slope))
        columns.append(column)
    x = solve_in_order([[column[i] for column in columns] for i in range(SPATIAL)], list(rest))
    return (*sp.rotate(motion.rotation, tuple(x[3:])), *x[:3])


def gyration(body: Vec, w: Vec, u: Vec) -> Vec:
    """The derivative of the force (torque, force) that a body's rotation takes, along the angular velocity u."""
    ahead, back = (sp.rigid_field(sp.add(w, sp.scale(sign, u)), ZERO3) for sign in (1.0, -1.0))
    return sp.newton_euler(body, ZERO3, sp.scale(0.5, sp.sub(ahead, back)))


def solve_in_order(A: list[list[Scalar]], b: list[Scalar]) -> list[Scalar]:
    """A⁻¹ b by elimination without pivoting, for a matrix that is close to a positive definite one."""
    n = len(b)
    for k in range(n):
        inverse = 1.0 / A[k][k]
        for i in range(k + 1, n):
            factor = A[i][k] * inverse
            for j in range(k + 1, n):
                A[i][j] = A[i][j] - factor * A[k][j]
            b[i] = b[i] - factor * b[k]
    x: list[Scalar] = list(ZERO6[:n])
    for k in reversed(range(n)):
        total = b[k]
        for j in range(k + 1, n):
            total = total - A[k][j] * x[j]
        x[k] = total / A[k][k]
    return x
