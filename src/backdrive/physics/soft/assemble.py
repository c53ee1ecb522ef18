"""The rows of all soft constraints of a state, put into its problem."""

from __future__ import annotations

from ...ir import Index, Scalar, ScalarArray, any_lane, loop, when
from ...schema import layout
from ...schema.layout import EqualityKind
from ..constraints.assemble import LinkMotions, signed
from ..constraints.constraints import Constraints, Support
from ..constraints.rows import joint_row
from ..math.spatial import Vec
from ..tree.poses import Pose, pose_of
from .constants import SoftConstants
from .contacts import FramedContacts
from .drift import DRIFTING, Drifting
from .problem import SoftProblem
from .rows import ContactSide, contact_rows, equality_law, equality_row, friction_row, limit_gaps, limit_row
from .settings import SoftSettings


class SoftRowAssembler:
    """Puts the rows of all constraints into the problem. links: with the twists of v; h: the step size (s)."""

    def __init__(self, soft: SoftConstants, problem: SoftProblem, links: LinkMotions, h: Scalar) -> None:
        self.constraints, self.settings = problem.constraints, problem.settings
        self.soft, self.problem, self.links, self.h = soft, problem, links, h

    def _pose(self, link: Index) -> Pose:
        return Pose.of(pose_of(self.links.poses, link, self.links.width, self.constraints.dim))

    def equalities(self, drifting: ScalarArray) -> None:
        """drifting: the motions of the links with v̇ = 0 (`drift`)."""
        constraints = self.constraints
        for i in loop(constraints.head("nequality")):
            kind, support = constraints.equality(i)
            record, soft = constraints.equality_record(i), self.soft.equality(i)
            a, b = self._pose(support.a), self._pose(support.b)
            for each in (EqualityKind.ALONG, EqualityKind.ABOUT):
                for _ in when(kind == int(each)):
                    moving = [Drifting.of(drifting.get(link, DRIFTING)) for link in (support.a, support.b)]
                    row = equality_row(each, record, soft, *moving)
                    weight = self.soft.weight(support.a, support.b, int(each == EqualityKind.ABOUT))
                    found = equality_law(self.settings, self.h, soft, row, weight, row.speed(a, b))
                    self.problem.add_single(i, support, (row.a, row.b), True, found, self.links)

    def joint_frictions(self, v: ScalarArray) -> None:
        constraints = self.constraints
        for i in loop(constraints.head("nfriction")):
            link, _, kind, support = constraints.joint("friction", i)
            row = joint_row(kind, constraints.joint_link(link), self._pose(link))
            speed, most = v[constraints.ints[support.way_a]], constraints.joint_friction(i)
            found = friction_row(self.settings, self.h, self.soft.friction(i), most, speed)
            place = constraints.head("nequality") + i
            self.problem.add_single(place, support, (row, row), most > 0.0, found, self.links)

    def limits(self, q: ScalarArray, v: ScalarArray) -> None:
        """The rows of limits that are closer than their margin in some lane: either end has its own."""
        constraints = self.constraints
        for i in loop(constraints.head("nlimit")):
            link, at, kind, support = constraints.joint("limit", i)
            record, speed = self.soft.limit(i), v[constraints.ints[support.way_a]]
            first = constraints.head("nequality") + constraints.head("nfriction") + 2 * i
            for k, (sign, gap) in enumerate(limit_gaps(constraints.limit_record(i), q[at])):
                on = gap < record[layout.MARGIN]
                for _ in when(any_lane(on)):
                    row = signed(joint_row(kind, constraints.joint_link(link), self._pose(link)), sign)
                    found = limit_row(self.settings, self.h, record, gap, sign * speed)
                    self.problem.add_single(first + k, support, (row, row), on, found, self.links)

    def contacts(self, contacts: FramedContacts) -> None:
        constraints = self.constraints
        for c in loop(contacts.count[0]):
            slot, p = contacts.slots[c], contacts.pairs[c]
            contact, on = contacts.contact(slot)
            side, support = contact_side(constraints, self.settings, self.soft, p, contact.numbers)
            found = contact_rows(self.settings, self.h, side, self._pose(support.a), self._pose(support.b))
            self.problem.add_contact(slot, support, on, found, self.links)


def contact_side(
    constraints: Constraints, settings: SoftSettings, soft: SoftConstants, p: Index, contact: Vec
) -> tuple[ContactSide, Support]:
    """What the rows of a contact of pair p depend on, and its support; contact: its numbers."""
    a, b, support = constraints.pair(p)
    number = constraints.explicit_pair(p) if settings.explicit else 0
    side = ContactSide(
        (constraints.shape_record(a), constraints.shape_record(b)),
        (soft.shape(a), soft.shape(b)),
        contact,
        soft.weight(support.a, support.b),
        number > 0,
        soft.pair(number) if settings.explicit else (),
    )
    return side, support
