"""The adjoint of the directions of friction: from the cotangents of the contacts' slips to that of the free motion v*.

The directions follow the slip of v*, and the slip of v decides how much they yield (`rows.contact_slip`): so they
depend on all that v* depends on. A contact whose directions are all free, and do not yield, sticks: it is the same in
all directions. Only the slips of contacts that slide have a cotangent; where none slides, nothing is to be done.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from ...ir import Index, Mask, Scalar, ScalarArray, any_lane, is_constant, loop, memory, select, vjp, when, workspace
from ...schema import layout
from ..geometry.solids import CONTACT_POINT, ContactPoint
from ..integrators import Integrator
from ..integrators.base import Stages
from ..math.arrays import accumulate, add_to, all_elements, split, zero
from ..math.spatial import Vec
from ..tree.dynamics_adjoint import Cotangents, DynamicsSeeds, dynamics_adjoint
from ..tree.forces_adjoint import damping_rate
from ..tree.poses import Pose, link_poses, link_poses_adjoint, pose_of, pose_size
from ..tree.tree import Tree
from .outcome import ConstraintOutcome
from .rows import SLIP, contact_slip, material

WIDTH = pose_size(2)  # of a pose with the twists of v* and v
PARTS = (WIDTH, WIDTH, CONTACT_POINT, layout.SHAPE, layout.SHAPE)  # sizes of what a slip is a function of


class SlipCotangents:
    """Cotangents of the slips of all contacts, and of v* [nv] (`free_bar`), which follows from them."""

    def __init__(self, tree: Tree, outcome: ConstraintOutcome) -> None:
        self.tree, self.outcome = tree, outcome
        self._slip_bars, self._sliding = memory(tree.constraints.nslot * SLIP), memory(1)
        self.free_bar = memory(tree.nv)

    def clear(self) -> None:
        self._sliding[0] = 0.0
        zero(self.tree.nv, self.free_bar)
        for c in loop(self.outcome.contacts.count[0]):
            self._slip_bars.put(c, (0.0,) * SLIP)

    def add(self, c: Index, slides: Mask, slip_bar: Vec) -> None:
        """Add the cotangent of the slip of contact c, in the lanes where it slides."""
        self._sliding[0] = select(slides, 1.0, self._sliding[0])
        accumulate(self._slip_bars.at(c * SLIP), [select(slides, x, 0.0) for x in slip_bar])

    def any_slides(self) -> Mask:
        return any_lane(self._sliding[0] > 0.0)

    def differentiate(self, q: ScalarArray, v: ScalarArray, point_bars: ScalarArray, cotangents: Cotangents) -> None:
        """From the slips to v*; those of contact points, of q and v (before the step) and of constants are added."""
        tree, outcome, constraints = self.tree, self.outcome, self.tree.constraints
        for _ in when(self.any_slides()):
            velocities, constants = (outcome.free, v), all_elements(cotangents.constants)
            poses, bars = link_poses(tree, q, *velocities, indexed=True), memory((tree.nlink + 1) * WIDTH)
            zero((tree.nlink + 1) * WIDTH, bars)
            for c in loop(outcome.contacts.count[0]):
                slot, p = outcome.contacts.slots[c], outcome.contacts.pairs[c]
                *shapes, support = constraints.pair(p)
                surface, (point, _) = constraints.pair_surface(p), outcome.contacts.point(slot)
                ends = [pose_of(poses, link, WIDTH) for link in (support.a, support.b)]
                parts = [*ends, point.numbers, *(constraints.shape_record(i) for i in shapes)]
                slip = partial(_slip_of_numbers, surface, constraints.combine)
                _, gradient = vjp(slip, [x for part in parts for x in part], self._slip_bars.get(c, SLIP))
                a_bar, b_bar, point_bar, *records_bar = split(gradient, *PARTS)
                accumulate(bars.at(support.a * WIDTH), a_bar)
                if not is_constant(support.b, 0):
                    accumulate(bars.at(support.b * WIDTH), b_bar)
                accumulate(point_bars.at(slot * CONTACT_POINT), point_bar)
                if constants is not None:
                    start = constraints.head("shape_constants")
                    for i, bar in zip(shapes, records_bar, strict=True):
                        accumulate(constants.at(start + i * layout.SHAPE), bar)
            of_velocities = (self.free_bar, cotangents.v)
            link_poses_adjoint(tree, poses, bars, q, velocities, cotangents.q, of_velocities, cotangents.constants)


def _slip_of_numbers(surface: Scalar, combine: str, *x: Scalar) -> Vec:
    """`contact_slip` of the numbers of two poses, of a contact point, and of two shapes."""
    a, b, point, record_a, record_b = split(x, *PARTS)
    friction = material(record_a, record_b, combine).friction
    return contact_slip(ContactPoint.of(point), surface, friction, Pose.of(a), Pose.of(b))


def free_motion_adjoint(
    slips: SlipCotangents | None, integrator: Integrator, stages: Stages, h: Scalar, v_bar: ScalarArray,
    cotangents: Cotangents,
) -> Scalar:  # fmt: skip
    """From the cotangent of v* = v + h v̇ to those of v (added to v_bar) and of all that v̇ depends on (added to the
    cotangents; their v is the velocity at which v̇ is evaluated).

    Returns the derivative of the loss by h.
    """
    if slips is None:
        return 0.0
    tree, rate, spin_bar = slips.tree, memory(1), memory(1)
    rate[0], spin_bar[0] = 0.0, 0.0
    totals = [(tree.nq, cotangents.q), (tree.nv, cotangents.v), (tree.nv, v_bar), (tree.nu, cotangents.controls)]
    totals.append((6 * tree.nlink, cotangents.wrenches))
    parts = [None if total is None else memory(n) for n, total in totals]
    for (n, _), part in zip(totals, parts, strict=True):
        if part is not None:
            zero(n, part)
    q_part, v_part, start_part, controls_part, wrenches_part = parts
    assert q_part is not None
    assert v_part is not None
    assert start_part is not None
    for _ in when(slips.any_slides()):
        vdot_bar, free_bar, vdot = workspace(tree.nv), slips.free_bar, stages.dynamics.vdot
        for k in loop(tree.nv):
            vdot_bar[k] = h * free_bar[k]
            start_part[k] = free_bar[k]
            rate[0] = rate[0] + free_bar[k] * vdot[k]
        inside = replace(
            cotangents, q=q_part, v=v_part, controls=controls_part, wrenches=wrenches_part, spin_time=spin_bar
        )
        seeds = DynamicsSeeds(vdot_bar, start_part)
        virtual = dynamics_adjoint(tree, stages.inputs, stages.dynamics, seeds, inside)
        rate[0] = rate[0] + integrator.share * damping_rate(tree, stages.inputs, stages.dynamics, virtual, vdot)
    for (n, total), part in zip(totals, parts, strict=True):
        if total is not None and part is not None:
            add_to(n, part, total)
    return rate[0] + spin_bar[0]
