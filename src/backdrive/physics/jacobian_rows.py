"""The rows of a step's Jacobians, as the kernels write them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from ..ir import Index, ScalarArray, TimedArray, loop, select, switch, to_float, workspace
from .math.arrays import copy
from .scheme import StepContext
from .state import StateArrays
from .tree.dynamics_adjoint import Cotangents
from .tree.joints import JOINTS, JointModel
from .tree.tree import Tree


@dataclass(frozen=True)
class JacobianRows:
    """Rows of the caller. after, step: nv rows (`rows`) of 2 nv + nu numbers, for displacements of q, for v, and for
    the controls: the derivatives of the elements of v⁺, and of h (v⁺ + p). solution: what the solver of the step found,
    None if it was not kept."""

    start: StateArrays
    after: TimedArray
    step: TimedArray
    rows: Index
    solution: ScalarArray | None = None


def write_row(
    ctx: StepContext,
    given: JacobianRows,
    k: Index,
    q: ScalarArray,
    found: Cotangents,
    pushed: ScalarArray | None = None,
) -> None:
    """Row k of the Jacobians, from the cotangents that a unit cotangent of velocity k leads to.

    pushed [nv]: the derivatives of p by displacements of q; None without corrections.
    """
    tree, h, nv, nu = ctx.tree, ctx.h, ctx.tree.nv, ctx.tree.nu
    assert found.controls is not None
    by_q = workspace(nv)
    write_covector(tree, q, found.q, by_q)
    of_velocity, of_step = given.after.row(k), given.step.row(k)
    copy(nv, by_q, of_velocity)
    copy(nv, found.v, of_velocity.at(nv))
    copy(nu, found.controls, of_velocity.at(2 * nv))
    for j in loop(nv):
        of_step[j] = h * (by_q[j] if pushed is None else by_q[j] + pushed[j])
        of_step[nv + j] = h * found.v[j]
    for j in loop(nu):
        of_step[2 * nv + j] = h * found.controls[j]


def write_covector(tree: Tree, q: ScalarArray, q_bar: ScalarArray, target: ScalarArray) -> None:
    """target [nv] = the cotangent of displacements of q, from that of q [nq]."""

    def one(joint: JointModel, i: Index) -> None:
        a = tree.q_start(i)
        target.at(tree.v_start(i)).put(0, joint.covector(q.at(a).get(0, joint.nq), q_bar.at(a).get(0, joint.nq)))

    for i in tree.links():
        switch(tree.kind(i), [partial(one, joint) for joint in JOINTS], i)


def unit_vector(n: Index, k: Index) -> ScalarArray:
    vector = workspace(n)
    for j in loop(n):
        vector[j] = select(to_float(k - j) == 0.0, 1.0, 0.0)
    return vector
