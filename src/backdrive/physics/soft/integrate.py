"""From accelerations to the acceleration of a step with implicit damping: (M + h D) â = M a.

D is the damping of the joints ("euler", unless the file disables eulerdamp), or that of joints and motors
("implicitfast"): a diagonal matrix, with which M keeps the sparsity of the tree. Others: `implicit`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from ...ir import ScalarArray, loop, workspace
from ..math.arrays import zero
from ..math.spatial import SPATIAL, ZERO6
from ..scheme import StepContext
from ..tree.dynamics import Factors, TreeMotion, expand, factor, reduce
from ..tree.dynamics_adjoint import Cotangents, VirtualPower, power_adjoint
from ..tree.kinematics import turn
from .acceleration import Acceleration
from .damping import armature_adjoint, coordinate_damping, coordinate_damping_adjoint
from .implicit import implicit


class Update(Protocol):
    """The acceleration â [nv] of a step, and its adjoint."""

    @property
    def acceleration(self) -> ScalarArray: ...

    def adjoint(self, a_bar: ScalarArray, cotangents: Cotangents, /) -> ScalarArray:
        """From the cotangent of â [nv] to that of a [nv]; adds the others to `cotangents`."""


def update(ctx: StepContext, now: Acceleration) -> Update | None:
    """From the acceleration a of a state to that of a step from there; None if they are the same."""
    return implicit(ctx, now) if ctx.soft.dense else damped(ctx, now)


@dataclass(frozen=True)
class Damped:
    """â [nv]; the factors of M + h D; â - a [nv], and the twists of the links that belong to it (over links)."""

    ctx: StepContext
    now: Acceleration
    acceleration: ScalarArray
    factors: Factors
    damping: ScalarArray
    change: ScalarArray
    twists: ScalarArray

    def adjoint(self, a_bar: ScalarArray, cotangents: Cotangents) -> ScalarArray:
        return damped_adjoint(self.ctx, self.now, self, a_bar, cotangents)


def damped(ctx: StepContext, now: Acceleration) -> Damped | None:
    """â - a = x, with (M + h D) x = -h D a; None if no damping is implicit."""
    tree, h, nv, damping = ctx.tree, ctx.h, ctx.tree.nv, implicit_damping(ctx, now)
    if damping is None:
        return None
    frames, a, q = now.dynamics.frames, now.dynamics.vdot, now.inputs.q
    force, x, change, result = (workspace(nv) for _ in range(4))
    for k in loop(nv):
        force[k] = -(h * damping[k] * a[k])
    factors = factor(tree, frames, damping, h)
    turn(tree, q, force, force)
    reduce(tree, frames, factors, force, x)
    twists = expand(tree, frames, factors, x)
    turn(tree, q, x, change, back=True)
    for k in loop(nv):
        result[k] = a[k] + change[k]
    return Damped(ctx, now, result, factors, damping, change, twists)


def implicit_damping(ctx: StepContext, now: Acceleration) -> ScalarArray | None:
    """The diagonal of D, [nv]; None if no damping is implicit."""
    if ctx.soft.integrator == "euler" and not ctx.soft.eulerdamp:
        return None
    return coordinate_damping(ctx.tree, now.inputs, ctx.soft.damps_motors)


def damped_adjoint(
    ctx: StepContext, now: Acceleration, result: Damped, a_bar: ScalarArray, cotangents: Cotangents
) -> ScalarArray:
    """From the cotangent of â [nv] to that of a [nv]; adds those that follow through M and D.

    With (M + h D) μ = â_bar, they are those of -μ · (M (â - a) + h D â).
    """
    tree, h, nv, q = ctx.tree, ctx.h, ctx.tree.nv, now.inputs.q
    frames = now.dynamics.frames
    w, virtual, inner_bar, rest, unused = (workspace(nv) for _ in range(5))
    turn(tree, q, a_bar, w)
    reduce(tree, frames, result.factors, w, w)
    N = expand(tree, frames, result.factors, w)
    turn(tree, q, w, virtual, back=True)
    for k in loop(nv):
        inner_bar[k] = a_bar[k] - h * result.damping[k] * virtual[k]
    zero(nv, rest)
    zero(nv, unused)
    inside = Cotangents(cotangents.q, unused, constants=cotangents.constants, moments=cotangents.moments)
    twists = tree.over_links(SPATIAL)
    twists.put(0, ZERO6)
    for i in tree.links():
        twists.put(i + 1, result.twists.get(i + 1, SPATIAL))
    still = TreeMotion(frames.slowed(tree, 0.0), twists, result.change)
    power_adjoint(tree, VirtualPower(q, rest, still, virtual, N, acting=0.0), -1.0, inside)
    if cotangents.constants is not None:
        _joint_adjoint(ctx, now, result, virtual, inside)
    return inner_bar


def _joint_adjoint(
    ctx: StepContext, now: Acceleration, result: Damped, virtual: ScalarArray, cotangents: Cotangents
) -> None:
    """The part of armature, damping and motors in -μ · (M (â - a) + h D â)."""
    tree, damping_bar = ctx.tree, workspace(ctx.tree.nv)
    armature_adjoint(tree, virtual, result.change, cotangents)
    assert cotangents.constants is not None
    for k in loop(tree.nv):
        damping_bar[k] = -(ctx.h * virtual[k] * result.acceleration[k])
    coordinate_damping_adjoint(tree, now.inputs, ctx.soft.damps_motors, damping_bar, cotangents.constants)
