"""The rows of all constraints of a substep, put into its contact problem."""

from __future__ import annotations

from typing import NamedTuple

from ...ir import (
    Index,
    IndexArray,
    Mask,
    Scalar,
    ScalarArray,
    any_lane,
    carry,
    counters,
    loop,
    maximum,
    memory,
    select,
    when,
)
from ...schema import layout
from ...schema.layout import EqualityKind
from ..geometry.contact_points import ContactPoints
from ..impacts.impact import Impacts
from ..math import spatial as sp
from ..math.spatial import Vec
from ..scheme import StepContext
from ..solvers.active_set import INFINITE
from ..tree.joints import is_angular
from ..tree.poses import PLACE_SIZE, Pose, Twist, pose_of
from .constraints import Support
from .contact_terms import LIMIT_SLOP, SLOP, bounces, contact_bias, gap_bias, row_compliance, violation
from .correction import reachable
from .outcome import FreeMotion
from .problem import ContactProblem, RowData
from .rows import (
    BEFORE,
    FREE,
    NO_SLIP,
    SLIP,
    Row,
    Slip,
    contact_rows,
    contact_slip,
    equality_row,
    friction_share,
    joint_row,
    material,
    row_speed,
)

LIMIT_MARGIN = 0.05  # rad or m; a joint this close to its limit has a row for it, sooner if it approaches fast


class LinkMotions(NamedTuple):
    """Poses of the links (`poses`), with twists for several velocities: v*, and perhaps v.

    poses: an array of records of `width` numbers, over links.
    """

    poses: ScalarArray
    width: int

    def place(self, link: Index) -> Pose:
        """The pose of a link, without twists."""
        return Pose.of(self.poses.get(link, self.width)[:PLACE_SIZE])


class RowAssembler:
    """Puts the rows of all constraints into a contact problem.

    slips [nslot, SLIP]: of the contacts, for the directions of friction (`contact_rows`); None in 2D.
    """

    def __init__(
        self, ctx: StepContext, motion: FreeMotion, links: LinkMotions, problem: ContactProblem, impacts: Impacts | None
    ) -> None:
        self.constraints, self.contact_model = ctx.tree.constraints, ctx.contact_model
        self.motion, self.times, self.links = motion, motion.times, links
        self.problem, self.impacts = problem, impacts
        self.slips = memory(self.constraints.nslot * SLIP) if self.constraints.dim == 3 else None
        self.regularisation: Scalar = self.contact_model.regularisation
        if impacts is not None:
            self.regularisation = impacts.regularisation(self.contact_model.regularisation)

    def _add(self, data: RowData) -> None:
        self.problem.add(self.links.poses, self.links.width, data)

    def _speed(self, row: Row, support: Support, velocity: int = FREE) -> Scalar:
        """J v (m/s or rad/s), for one of the velocities of `LinkMotions`."""
        a, b = self._ends(support)
        return row_speed(row, a, velocity) - row_speed(row, b, velocity)

    def _ends(self, support: Support) -> tuple[Pose, Pose]:
        """The poses of the two links of a support. In an impact there is no free motion: there, v* is v."""
        width, dim = self.links.width, self.constraints.dim
        a, b = (Pose.of(pose_of(self.links.poses, link, width, dim)) for link in (support.a, support.b))
        if self.impacts is None:
            return a, b
        return self._before_impact(a, self.impacts.hitting), self._before_impact(b, self.impacts.hitting)

    def _before_impact(self, pose: Pose, hitting: Mask) -> Pose:
        """The pose, with the twist of v in place of that of v* in the lanes `hitting`."""
        free, before, *others = pose.twists
        parts = ([select(hitting, y, x) for x, y in zip(*both, strict=True)] for both in zip(free, before, strict=True))
        return pose._replace(twists=(Twist(*parts), before, *others))

    def _compliance(self, support: Support, angular: Index = 0, softness: Scalar = 0.0) -> Scalar:
        """What is added to the diagonal of the Delassus matrix, (m/s) per N s or (rad/s) per N m s."""
        scale = self.constraints.inverse_mass(support, angular)
        return row_compliance(self.regularisation, scale, softness, self.contact_model.solver.cfm)

    def equalities(self) -> None:
        constraints = self.constraints
        for i in loop(constraints.head("nequality")):
            kind, support = constraints.equality(i)
            record = constraints.equality_record(i)
            for each in EqualityKind:
                for _ in when(kind == int(each)):
                    row, error = equality_row(each, record, self.links.place(support.a), self.links.place(support.b))
                    self._add(RowData(
                        support, [row], [True], i, speeds=[self._speed(row, support)],
                        compliance=[self._compliance(support, int(each == EqualityKind.ABOUT))], low=[-INFINITE],
                        high=[INFINITE], mu=[0.0], violation=reachable(error),
                    ))  # fmt: skip

    def _joint(self, link: Index, kind: Index, support: Support) -> tuple[Row, Scalar]:
        """The row of a joint's own coordinate, and its compliance."""
        row = joint_row(kind, self.constraints.joint_link(link), self.links.place(link))
        return row, self._compliance(support, is_angular(kind))

    def _joint_speed(self, support: Support) -> Scalar:
        """The velocity of a joint in the free motion; it is the first of its link's chain."""
        return self.motion.free[self.constraints.ints[support.way_a]]

    def joint_frictions(self) -> None:
        constraints = self.constraints
        for i in loop(constraints.head("nfriction")):
            link, _, kind, support = constraints.joint("friction", i)
            row, extra = self._joint(link, kind, support)
            most = self.times.h * constraints.joint_friction(i)
            self._add(RowData(
                support, [row], [most > 0.0], constraints.head("nequality") + i,
                speeds=[self._joint_speed(support)], compliance=[extra], low=[-most], high=[most], mu=[0.0],
                violation=0.0,
            ))  # fmt: skip

    def limits(self, q: ScalarArray) -> tuple[IndexArray, IndexArray]:
        """The rows of joints that are close to a limit in some lane; the limits' numbers, and how many they are."""
        constraints = self.constraints
        numbers, count = counters(constraints.nsingle), counters(1)
        count[0] = 0
        place = constraints.head("nequality") + constraints.head("nfriction")
        for i in loop(constraints.head("nlimit")):
            link, at, kind, support = constraints.joint("limit", i)
            sign, gap = nearest_limit(constraints.limit_record(i), q[at])
            speed = sign * self._joint_speed(support)
            if self.impacts is None:
                on = gap < LIMIT_MARGIN + self.times.left * maximum(-speed, 0.0)
            else:  # in an impact, the limits that are reached
                reach = LIMIT_MARGIN + self.times.h * maximum(-speed, 0.0)
                on = gap < select(self.impacts.hitting, LIMIT_SLOP, reach)
            for _ in when(any_lane(on)):
                numbers[count[0]] = i
                count[0] = count[0] + 1
                (row, extra), bias = self._joint(link, kind, support), gap_bias(gap, LIMIT_SLOP, self.times.left)
                self._add(RowData(
                    support, [signed(row, sign)], [on], place + i, speeds=[speed + bias],
                    compliance=[extra], low=[0.0], high=[INFINITE], mu=[0.0], violation=violation(gap, LIMIT_SLOP),
                    bias=bias,
                ))  # fmt: skip
        return numbers, count

    def contacts(self, contacts: ContactPoints) -> None:
        constraints, times = self.constraints, self.times
        m = constraints.directions
        for c in loop(contacts.count[0]):
            slot, p = contacts.slots[c], contacts.pairs[c]
            point, on = contacts.point(slot)
            a, b, support = constraints.pair(p)
            surface = material(constraints.shape_record(a), constraints.shape_record(b), constraints.combine)
            slip, acts_on = NO_SLIP, constraints.pair_surface(p)
            if self.slips is not None:
                numbers = contact_slip(point, acts_on, surface.friction, *self._ends(support))
                self.slips.put(c, numbers)
                slip = Slip.of(numbers)
            rows, yielding = contact_rows(point, acts_on, slip, constraints.dim, m)
            speeds = [self._speed(row, support) for row in rows]
            before: Scalar = 0.0
            hits: Mask = False
            if constraints.bounces:
                before, threshold = self._speed(rows[0], support, BEFORE), self.contact_model.bounce_threshold
                if self.impacts is None:
                    hits = bounces(point.gap, speeds[0], before, surface.restitution, times.left, threshold)
                else:
                    hits = self.impacts.bounces(slot)
            slop = SLOP * constraints.pair_size(p)
            bias = contact_bias(point.gap, slop, surface.restitution, before, hits, times.left)
            mu = friction_share(constraints.dim, m) * surface.friction
            rough = on & (mu > 0.0)
            extra, scale = self._compliance(support, softness=surface.softness), constraints.inverse_mass(support)
            self._add(RowData(
                support, rows, [on, *[rough] * m], constraints.nsingle + slot * constraints.block,
                speeds=[speeds[0] + bias, *speeds[1:]], compliance=[extra + scale * x for x in yielding],
                low=[0.0] * (1 + m), high=[INFINITE, *[0.0] * m], mu=[0.0, *[mu] * m],
                violation=violation(point.gap, slop), bias=bias, bounces=hits,
            ))  # fmt: skip

    def pressing(self, contacts: ContactPoints, first: Index) -> Scalar:
        """How many contacts press; first: the first row of the contacts."""
        number = carry(1)
        number[0] = 0.0
        for c in loop(contacts.count[0]):
            number[0] = number[0] + select(self.problem.impulse[first + c * self.constraints.block] > 0.0, 1.0, 0.0)
        return number[0]


def nearest_limit(record: Vec, q: Scalar) -> tuple[Scalar, Scalar]:
    """1 if the lower limit is nearer and -1 if the upper one is; and the distance to it (rad or m)."""
    below, above = q - record[layout.LOW], record[layout.HIGH] - q
    lower = below < above
    return select(lower, 1.0, -1.0), select(lower, below, above)


def signed(row: Row, sign: Scalar) -> Row:
    return Row(row.point, sp.scale(sign, row.couple), sp.scale(sign, row.force))
