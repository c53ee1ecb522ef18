"""The forces of the constraints in a step, as results, and their adjoint.

FORCE numbers for every contact slot (force on the first shape, and point, in world axes), then the force of every other
constraint that there can be, as rigid physics has them (`constraints.forces`).
"""

from __future__ import annotations

from typing import NamedTuple

from ...ir import Index, Scalar, ScalarArray, absolute, loop, memory, minimum, select, to_float, when
from ...schema import layout
from ..constraints.constraints import Constraints
from ..constraints.contact_terms import resultant
from ..constraints.forces import FORCE
from ..math import spatial as sp
from ..math.spatial import Vec
from ..tree.dynamics_adjoint import Cotangents
from ..tree.poses import Pose, link_poses, pose_of, pose_size
from ..tree.tree import Tree
from .acceleration import Acceleration, SoftConstrained
from .acceleration_adjoint import SoftTerms
from .assemble import contact_side
from .rows import contact_rows, limit_gaps, limit_row
from .settings import STAGES, SoftSettings


class FirstContacts:
    """Which contacts a step has found so far, over slots: the first stage in which there is a contact gives its
    point."""

    def __init__(self, constraints: Constraints) -> None:
        self.stage = memory(constraints.nslot)
        for slot in loop(constraints.nslot):
            self.stage[slot] = float(STAGES)

    def find(self, now: Acceleration, s: Index) -> None:
        """Add the contacts of stage s; stages follow each other."""
        if now.constrained is None:
            return
        contacts = now.constrained.contacts
        for c in loop(contacts.count[0]):
            slot = contacts.slots[c]
            _, on = contacts.contact(slot)
            self.stage[slot] = select(on, minimum(self.stage[slot], to_float(s)), self.stage[slot])

    def share(self, slot: Index, s: Index) -> Scalar:
        """1 where stage s gives the point of the contact in a slot, else 0."""
        return select(absolute(self.stage[slot] - to_float(s)) < 0.5, 1.0, 0.0)


class Share(NamedTuple):
    """The part of a state in the forces of a step; if it is that of a stage of a Runge-Kutta method: which one, and
    the first stages of all contacts."""

    force: Scalar
    stage: Index = 0
    first: FirstContacts | None = None

    def point(self, slot: Index) -> Scalar:
        """The part in the point of a contact."""
        return 1.0 if self.first is None else self.first.share(slot, self.stage)


WHOLE = Share(1.0)


def add_soft_forces(
    tree: Tree, settings: SoftSettings, h: Scalar, now: Acceleration, share: Share, forces: ScalarArray
) -> None:
    """Add the forces of the constraints of a state."""
    if now.constrained is None:
        return
    constrained, constraints = now.constrained, tree.constraints
    for _ in when(constrained.newton.problem.count > 0):
        singles, f = forces.at(constraints.nslot * FORCE), constrained.solution.f
        for i in loop(constraints.head("nequality") + constraints.head("nfriction")):  # these rows are always there
            singles[i] = singles[i] + share.force * f[i]
        _add_limits(settings, h, now, constrained, share.force, singles)
        _add_contacts(tree, settings, h, now, share, forces)


def _add_limits(
    settings: SoftSettings, h: Scalar, now: Acceleration, constrained: SoftConstrained, weight: Scalar,
    singles: ScalarArray,
) -> None:  # fmt: skip
    constraints = constrained.newton.problem.constraints
    first = constraints.head("nequality") + constraints.head("nfriction")
    v, a, nv = memory(constrained.newton.nv), memory(constrained.newton.nv), constrained.newton.nv
    for k in loop(nv):
        v[k], a[k] = now.inputs.v[k], now.dynamics.vdot[k]
    for i in loop(constraints.head("nlimit")):
        _, at, _, support = constraints.joint("limit", i)
        dof, record = constraints.ints[support.way_a], constrained.soft.limit(i)
        for sign, gap in limit_gaps(constraints.limit_record(i), constrained.q[at]):
            reference, law = limit_row(settings, h, record, gap, sign * v[dof])
            force = select(gap < record[layout.MARGIN], law.force(sign * a[dof] - reference), 0.0)
            singles[first + i] = singles[first + i] + weight * force


def _add_contacts(
    tree: Tree, settings: SoftSettings, h: Scalar, now: Acceleration, share: Share, forces: ScalarArray
) -> None:
    constrained, constraints, width = now.constrained, tree.constraints, pose_size(1)
    assert constrained is not None
    contacts, problem = constrained.contacts, constrained.newton.problem
    poses = link_poses(tree, now.inputs.q, now.inputs.v, indexed=True)
    for c in loop(contacts.count[0]):
        slot, first = contacts.slots[c], problem.first_row(c)
        contact, on = contacts.contact(slot)
        side, support = contact_side(constraints, settings, constrained.soft, contacts.pairs[c], contact.numbers)
        a, b = (Pose.of(pose_of(poses, link, width, constraints.dim)) for link in (support.a, support.b))
        rows = contact_rows(settings, h, side, a, b).rows
        force = resultant(rows, [constrained.solution.f[first + k] for k in range(len(rows))])
        found = (*sp.scale(share.force, force), *sp.scale(share.point(slot), rows[0].point))
        before = forces.get(slot, FORCE)
        forces.put(slot, [y + select(on, x, 0.0) for x, y in zip(found, before, strict=True)])


class ForceBars:
    """The cotangents of the forces of a step, as far as a state has a share in them."""

    def __init__(self, constraints: Constraints, forces_bar: ScalarArray, share: Share) -> None:
        self.forces_bar, self.share = forces_bar, share
        self.singles = forces_bar.at(constraints.nslot * FORCE)

    def single(self, place: Index) -> Scalar:
        return self.share.force * self.singles[place]

    def contact(self, slot: Index) -> Vec:
        bar = self.forces_bar.get(slot, FORCE)
        return (*sp.scale(self.share.force, bar[:3]), *sp.scale(self.share.point(slot), bar[3:]))


def soft_forces_adjoint(
    tree: Tree, settings: SoftSettings, h: Scalar, now: Acceleration, bars: ForceBars, a_bar: ScalarArray,
    cotangents: Cotangents,
) -> None:  # fmt: skip
    """Add the gradient of the forces with respect to the accelerations to a_bar [nv], and others to the cotangents."""
    if now.constrained is None:
        return
    a = now.dynamics.vdot
    terms = SoftTerms(tree, settings, h, now.constrained, a, bars, a_bar)
    terms.add_rows(now.inputs.q, now.inputs.v, a, cotangents.q, cotangents.v, cotangents.constants)
