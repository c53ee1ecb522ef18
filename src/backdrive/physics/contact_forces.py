"""The forces of constraints along a path, on their own: a step from every state, of which only the forces are kept."""

from __future__ import annotations

from typing import Any

from ..ir import Scalar, loop, memory
from .constraints.constrain import FORCE
from .math.arrays import copy, zero
from .policy import ControlSource
from .rollout import BackwardSweep, at_time, no_impulses
from .step import Scheme, step
from .tree.bodies import with_bodies
from .tree.tree import Tree


def forces(
    tree: Tree, scheme: Scheme, q: Any, v: Any, driver: ControlSource, wrenches: Any, out: Any, times: Any, h: Scalar
) -> None:
    """Kernel: `contact.add_forces` of a step from every state."""
    tree, impulses = with_bodies(tree), no_impulses(tree)
    size = tree.constraints.nslot * FORCE + tree.constraints.nsingle
    written, qt, vt = memory(size), memory(tree.nq), memory(tree.nv)
    for t in loop(times):
        copy(tree.nq, q.row(t), qt)
        copy(tree.nv, v.row(t), vt)
        u = driver.control(t, qt, vt)
        zero(size, written)
        step(tree, scheme, qt, vt, u, at_time(wrenches, t), h, impulses, written)
        copy(size, written, out.row(t))


def forces_adjoint(
    tree: Tree, scheme: Scheme, q: Any, v: Any, driver: ControlSource, wrenches: Any, out_bar: Any, q_bar: Any, v_bar: Any,
    wrenches_bar: Any, constants_bar: Any, times: Any, h: Scalar,
) -> None:  # fmt: skip
    """Kernel: the gradient of out_bar · forces."""
    sweep = BackwardSweep(tree, scheme, driver, wrenches, wrenches_bar, constants_bar, times + 1, h)
    size = tree.constraints.nslot * FORCE + tree.constraints.nsingle
    forces_bar = memory(size)
    for t in loop(times):
        copy(size, out_bar.row(t), forces_bar)
        zero(tree.nq, sweep.q_bar)
        zero(tree.nv, sweep.v_bar)
        sweep.step(t, q.row(t), v.row(t), forces_bar)
        copy(tree.nq, sweep.q_bar, q_bar.row(t))
        copy(tree.nv, sweep.v_bar, v_bar.row(t))
    sweep.finish_constants(constants_bar)
