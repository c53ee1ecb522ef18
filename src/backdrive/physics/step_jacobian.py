"""The Jacobians of a step: its adjoint for every velocity after it, behind one forward pass.

With v⁺ and the correction p of positions (`contact`), q⁺ = q ⊕ h (v⁺ + p): the rows of q⁺ follow from those of v⁺ and p
by the derivatives of ⊕, which the caller knows (`tangent`). So nv gradients are enough, and nv more where positions are
corrected. What does not depend on the row, as the modes of the contacts and the factors of their matrix, is found once.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from ..ir import Scalar, loop, memory, select, switch, to_float, when, workspace
from .constraints.constrain_adjoint import ConstraintAdjoint
from .constraints.correction import correction_matrix
from .math.arrays import copy, local, zero
from .rollout import ControlSource, no_impulses
from .step import Scheme, substep
from .step_adjoint import allow, correction_adjoint
from .tree.bodies import body_moments
from .tree.dynamics_adjoint import Cotangents, dynamics_adjoint
from .tree.joints import JOINTS, Joint
from .tree.tree import Tree


def jacobians(
    tree: Tree, scheme: Scheme, q: Any, v: Any, driver: ControlSource, after: Any, step: Any, rows: Any, h: Scalar
) -> None:
    """Kernel: the derivatives of the elements of v⁺ (`after`) and of h (v⁺ + p) (`step`), nv rows each.

    A row has 2 nv + nu numbers, for displacements of q, for v and the controls. rows: nv. Of semi-implicit Euler steps
    without impacts.
    """
    nq, nv, nu = tree.nq, tree.nv, tree.nu
    bodies, impulses = body_moments(tree), no_impulses(tree)
    q, v = local(nq, q), local(nv, v)
    controls = driver.control(0, q, v)
    now = substep(tree, bodies, scheme, q, v, controls, None, h, impulses, adjoint=True)
    dynamics, outcome, constraints = now.dynamics, now.outcome, None
    pushed = None  # the derivatives of p for displacements of q
    if outcome is not None and scheme.contact_model is not None:
        allow(tree, now, v)
        constraints = ConstraintAdjoint(tree, scheme.contact_model, outcome, now.times, apart=True)
        pushed = memory(nv * nv)
        zero(nv * nv, pushed)
        for _ in when(outcome.corrected[0] > 0):
            correction_matrix(outcome.problem, outcome.pushes)
            for k in loop(rows):
                q_bar, v_bar, move_bar = memory(nq), workspace(nv), unit_vector(nv, k)
                zero(nq, q_bar)
                zero(nv, v_bar)
                constraints.forget_points()
                correction_adjoint(tree, bodies, dynamics, constraints, q, h, move_bar, Cotangents(q_bar, v_bar))
                constraints.add_corrections(q, q_bar)
                write_covector(tree, q, q_bar, pushed.at(k * nv))
        constraints.find_modes()
    for k in loop(rows):
        q_bar, v_bar, u_bar, vdot_bar = workspace(nq), unit_vector(nv, k), workspace(nu), workspace(nv)
        zero(nq, q_bar)
        zero(nu, u_bar)
        for j in loop(nv):
            vdot_bar[j] = h * v_bar[j]
        if constraints is not None:
            constraints.forget_points()
        bars = Cotangents(q_bar, v_bar, u_bar)
        dynamics_adjoint(tree, bodies, q, v, v, controls, None, h, dynamics, vdot_bar, v_bar, bars, constraints)
        by_q = workspace(nv)
        write_covector(tree, q, q_bar, by_q)
        of_speed, of_step = after.row(k), step.row(k)
        copy(nv, by_q, of_speed)
        copy(nv, v_bar, of_speed.at(nv))
        copy(nu, u_bar, of_speed.at(2 * nv))
        for j in loop(nv):
            of_step[j] = h * (by_q[j] if pushed is None else by_q[j] + pushed.at(k * nv)[j])
            of_step[nv + j] = h * v_bar[j]
        for j in loop(nu):
            of_step[2 * nv + j] = h * u_bar[j]


def write_covector(tree: Tree, q: Any, q_bar: Any, target: Any) -> None:
    """target [nv] = the gradient for displacements of q, of one for q."""

    def one(joint: type[Joint], i: Any) -> None:
        a = tree.q_start(i)
        target.at(tree.v_start(i)).put(0, joint.covector(q.at(a).get(0, joint.nq), q_bar.at(a).get(0, joint.nq)))

    for i in tree.links():
        switch(tree.kind(i), [partial(one, joint) for joint in JOINTS], i)


def unit_vector(n: Any, k: Any) -> Any:
    vector = workspace(n)
    for j in loop(n):
        vector[j] = select(to_float(k - j) == 0.0, 1.0, 0.0)
    return vector
