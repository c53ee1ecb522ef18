"""Whole rollouts and their adjoint: the loops over time that run inside a kernel."""

from __future__ import annotations

from functools import partial
from typing import Any

from ..ir import Scalar, carry, clip, is_finite, loop, memory, minimum, select, switch, when, workspace
from .constraints.constrain_adjoint import all_constants
from .constraints.warm_start import WarmStart
from .math.arrays import add_to, copy, gradient_memory, local, zero
from .math.spatial import BODY
from .policy import ControlSource
from .solvers.solve import recalls
from .step import Scheme, step
from .step_adjoint import step_adjoint
from .tree.bodies import with_bodies
from .tree.dynamics_adjoint import Cotangents, bodies_adjoint
from .tree.joints import JOINTS, JointModel
from .tree.tree import Tree

STATUS = (2, 6, 10)  # numbers of a step's status: without constraints, with them, and with impacts


def rollout(
    tree: Tree, scheme: Scheme, q: Any, v: Any, driver: ControlSource, wrenches: Any,
    path_q: Any, path_v: Any, last_q: Any, last_v: Any, status: Any, steps: Any, every: Any, h: Scalar,
) -> None:  # fmt: skip
    """From the start (q, v), fill the rows of the path: the state after every `every` steps, and after the last.

    Segments of several steps start without impulses: only then do their states tell how they went on, bit by bit.
    """
    tree, size = with_bodies(tree), status_size(scheme, tree.constraints is not None)
    start_q, start_v, q, v = q, v, memory(tree.nq), memory(tree.nv)
    copy(tree.nq, start_q, q)
    copy(tree.nv, start_v, v)
    impulses = no_impulses(tree)
    for s in loop(segments(steps, every)):
        path_q.row(s).prefetch(tree.nq)  # a row lies far from the one before it
        path_v.row(s).prefetch(tree.nv)
        if impulses is not None:
            for _ in when(every > 1):
                impulses.forget()
        for t in loop(segment_end(s, steps, every), start=s * every):
            driver.prefetch(t + 1)
            status.row(t).prefetch(size)
            u = driver.control(t, q, v)
            numbers = step(tree, scheme, q, v, u, at_time(wrenches, t), h, impulses)
            status.row(t).put(0, (select(all_finite(tree, q, v), 1.0, 0.0), *numbers)[:size])
        copy(tree.nq, q, path_q.row(s))
        copy(tree.nv, v, path_v.row(s))
    copy(tree.nq, q, last_q)
    copy(tree.nv, v, last_v)


def tracking(
    tree: Tree, scheme: Scheme, q: Any, v: Any, driver: ControlSource, gains: Any, origin_q: Any, origin_v: Any, low: Any,
    high: Any, path_q: Any, path_v: Any, used: Any, status: Any, steps: Any, h: Scalar,
) -> None:  # fmt: skip
    """As `rollout`, all states, with controls u = clip(controls + gains (x ⊖ origin), low, high), which go to `used`.

    gains: nu rows of 2 nv numbers at every time, for the displacements of q and the changes of v.
    """
    nq, nv, nu = tree.nq, tree.nv, tree.nu
    tree, size = with_bodies(tree), status_size(scheme, tree.constraints is not None)
    start_q, start_v, q, v = q, v, memory(nq), memory(nv)
    copy(nq, start_q, q)
    copy(nv, start_v, v)
    impulses = no_impulses(tree)
    for t in loop(steps):
        change, u, planned = workspace(2 * nv), workspace(nu), driver.control(t, q, v)
        displacement(tree, q, origin_q.row(t), change)
        for k in loop(nv):
            change[nv + k] = v[k] - origin_v.row(t)[k]
        for m in loop(nu):
            total, row = carry(1), gains.row(t).at(m * (2 * nv))
            total[0] = planned[m]
            for k in loop(2 * nv):
                total[0] = total[0] + row[k] * change[k]
            u[m] = clip(total[0], low[m], high[m])
        copy(nu, u, used.row(t))
        numbers = step(tree, scheme, q, v, u, None, h, impulses)
        status.row(t).put(0, (select(all_finite(tree, q, v), 1.0, 0.0), *numbers)[:size])
        copy(nq, q, path_q.row(t))
        copy(nv, v, path_v.row(t))


def displacement(tree: Tree, q: Any, origin: Any, target: Any) -> None:
    """target [nv] = q ⊖ origin"""

    def one(joint: JointModel, i: Any) -> None:
        a, b = tree.q_start(i), tree.v_start(i)
        target.at(b).put(0, joint.displacement(q.at(a).get(0, joint.nq), origin.at(a).get(0, joint.nq)))

    for i in tree.links():
        switch(tree.kind(i), [partial(one, joint) for joint in JOINTS], i)


def status_size(scheme: Scheme, constrained: bool) -> int:
    """How many numbers there are of a step: 1 if finite, and the first of those that `step` returns."""
    impacts = scheme.contact_model is not None and scheme.contact_model.impacts
    return STATUS[constrained + (constrained and impacts)]


def rollout_adjoint(
    tree: Tree, scheme: Scheme, path_q: Any, path_v: Any, driver: ControlSource, wrenches: Any,
    path_q_bar: Any, path_v_bar: Any, last_q_bar: Any, last_v_bar: Any, last_v: Any, q_bar: Any, v_bar: Any,
    wrenches_bar: Any, constants_bar: Any, steps: Any, truncate: Any, h: Scalar,
) -> None:  # fmt: skip
    """From the gradient with respect to the path and the last state, those with respect to everything before.

    last_v: of the last state; NaN where it is not known. Row t of `path_q`, `path_v` is the state before step t, of
    their bars the one after it. The gradient does not pass back over states whose number is a multiple of `truncate`.
    Bars that nobody asks for are None.
    """
    sweep = BackwardSweep(tree, scheme, driver, wrenches, wrenches_bar, constants_bar, truncate, h, last_v)
    sweep.receive(last_q_bar, last_v_bar)
    for t in loop(steps, reverse=True):
        for q_row, v_row in ((path_q, path_v), (path_q_bar, path_v_bar)):
            q_row.row(t - 1).prefetch(tree.nq)
            v_row.row(t - 1).prefetch(tree.nv)
        driver.prefetch_adjoint(t)
        sweep.cut(t + 1, steps)
        sweep.receive(path_q_bar.row(t), path_v_bar.row(t))
        sweep.step(t, path_q.row(t), path_v.row(t))
    sweep.finish(q_bar, v_bar, constants_bar)


def checkpoint_adjoint(
    tree: Tree, scheme: Scheme, path_q: Any, path_v: Any, driver: ControlSource, wrenches: Any,
    path_q_bar: Any, path_v_bar: Any, last_q_bar: Any, last_v_bar: Any, last_v: Any, q_bar: Any, v_bar: Any,
    wrenches_bar: Any, constants_bar: Any, steps: Any, every: Any, truncate: Any, h: Scalar,
) -> None:  # fmt: skip
    """As `rollout_adjoint`, when only the state before every `every`-th step was kept (row s: before segment s).

    The states in between are computed again, a segment at a time.
    """
    nq, nv = tree.nq, tree.nv
    sweep = BackwardSweep(tree, scheme, driver, wrenches, wrenches_bar, constants_bar, truncate, h, last_v)
    sweep.receive(last_q_bar, last_v_bar)
    q, v, states_q, states_v = memory(nq), memory(nv), memory(every * nq), memory(every * nv)
    impulses = no_impulses(tree)
    for s in loop(segments(steps, every), reverse=True):
        start, end = s * every, segment_end(s, steps, every)
        copy(nq, path_q.row(s), q)
        copy(nv, path_v.row(s), v)
        copy(nq, q, states_q)
        copy(nv, v, states_v)
        if impulses is not None:
            impulses.forget()
        for t in loop(end - 1, start=start):
            step(sweep.tree, scheme, q, v, driver.again(t), at_time(wrenches, t), h, impulses)
            copy(nq, q, states_q.at((t + 1 - start) * nq))
            copy(nv, v, states_v.at((t + 1 - start) * nv))
        for t in loop(end, start=start, reverse=True):
            sweep.cut(t + 1, steps)
            for _ in when(t + 1 == end):
                sweep.receive(path_q_bar.row(s), path_v_bar.row(s))
            sweep.step(t, states_q.at((t - start) * nq), states_v.at((t - start) * nv))
    sweep.finish(q_bar, v_bar, constants_bar)


class BackwardSweep:
    """The gradient with respect to the current state, on its way back in time, and the sums over time."""

    def __init__(
        self, tree: Tree, scheme: Scheme, driver: ControlSource, wrenches: Any, wrenches_bar: Any, constants_bar: Any,
        truncate: Any, h: Scalar, last_v: Any = None,
    ) -> None:  # fmt: skip
        """last_v: v after the last step, if those before it follow in this order."""
        self.scheme, self.truncate, self.h = scheme, truncate, h
        self.impulses = no_impulses(tree)
        self.driver, self.wrenches, self.wrenches_bar = driver, wrenches, wrenches_bar
        self.tree = with_bodies(tree)
        self.after = None  # v after the step that is next on the way
        if last_v is not None and tree.constraints is not None and recalls(scheme.contact_model):
            self.after = memory(tree.nv)
            copy(tree.nv, last_v, self.after)
        self.q_bar, self.v_bar = memory(tree.nq), memory(tree.nv)
        zero(tree.nq, self.q_bar)
        zero(tree.nv, self.v_bar)
        self.constants_bar = self.moments_bar = None
        if constants_bar is not None:
            self.constants_bar = gradient_memory(constants_bar, tree.nconst)
            self.moments_bar = memory((tree.nlink + 1) * BODY)
            zero(tree.nconst, all_constants(self.constants_bar))
            zero((tree.nlink + 1) * BODY, self.moments_bar)

    def cut(self, number: Any, steps: Any) -> None:
        """Nothing of later states passes back over the state of this number, if it is a multiple of `truncate`."""
        for _ in when((number % self.truncate == 0) & (number < steps)):
            zero(self.tree.nq, self.q_bar)
            zero(self.tree.nv, self.v_bar)

    def receive(self, q_bar: Any, v_bar: Any) -> None:
        """What the loss says about the current state itself."""
        add_to(self.tree.nq, q_bar, self.q_bar)
        add_to(self.tree.nv, v_bar, self.v_bar)

    def step(self, t: Any, q: Any, v: Any, forces_bar: Any = None) -> None:
        """Back over step t, which started from (q, v); forces_bar: with respect to its constraints' forces."""
        tree = self.tree
        contact_model = self.scheme.contact_model
        array = (
            memory if contact_model is not None and contact_model.impacts else workspace
        )  # sums over stretches are kept
        controls_bar, wrenches_bar = array(tree.nu), None
        zero(tree.nu, controls_bar)
        if self.wrenches_bar is not None:
            wrenches_bar = array(tree.nlink * 6)
            zero(tree.nlink * 6, wrenches_bar)
        q, v = local(tree.nq, q), local(tree.nv, v)
        controls = self.driver.control(t, q, v)
        step_adjoint(
            tree, self.scheme, q, v, controls, at_time(self.wrenches, t), self.h, self.impulses,
            self.q_bar, self.v_bar, controls_bar, wrenches_bar, self.constants_bar, self.moments_bar, forces_bar,
            self.after,
        )  # fmt: skip
        if self.after is not None:
            copy(tree.nv, v, self.after)
        bars = Cotangents(self.q_bar, self.v_bar, constants=self.constants_bar)
        self.driver.vjp(t, controls_bar, q, v, bars)
        if self.wrenches_bar is not None:
            copy(tree.nlink * 6, wrenches_bar, self.wrenches_bar.row(t))

    def finish(self, q_bar: Any, v_bar: Any, constants_bar: Any) -> None:
        copy(self.tree.nq, self.q_bar, q_bar)
        copy(self.tree.nv, self.v_bar, v_bar)
        self.finish_constants(constants_bar)
        self.driver.finish()

    def finish_constants(self, constants_bar: Any) -> None:
        if constants_bar is not None:
            bodies_adjoint(self.tree, self.moments_bar, self.constants_bar)
            copy(self.tree.nconst, self.constants_bar, constants_bar)


def no_impulses(tree: Tree) -> WarmStart | None:
    """None at all, without constraints."""
    return None if tree.constraints is None else WarmStart(tree.constraints.nimpulse)


def segments(steps: Any, every: Any) -> Any:
    """How many segments of `every` steps, the last possibly shorter."""
    return (steps + every - 1) // every


def segment_end(s: Any, steps: Any, every: Any) -> Any:
    return minimum((s + 1) * every, steps)


def at_time(array: Any, t: Any) -> Any:
    return None if array is None else array.row(t)


def all_finite(tree: Tree, q: Any, v: Any) -> Any:
    """Whether all coordinates are finite: then their sum is, short of an overflow."""
    total = workspace(1)
    total[0] = 0.0
    for k in loop(tree.nq):
        total[0] = total[0] + q[k]
    for k in loop(tree.nv):
        total[0] = total[0] + v[k]
    return is_finite(total[0])
