"""What goes into the constrained part of a substep, and what comes of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from ...ir import Index, IndexArray, Scalar, ScalarArray
from ..geometry.contact_points import ContactPoints
from ..math.spatial import Vec
from ..tree.dynamics import Dynamics
from .constraints import Constraints
from .energy_guard import EnergyGuard
from .friction_cone import FrictionCone
from .problem import ContactProblem
from .rows import NO_SLIP, SLIP, Row, Slip, contact_rows


class SubstepTimes(NamedTuple):
    """Times of a substep, in s.

    h: how long forces act (0 in an impact). left: the time in which gaps may close and penetrations are corrected: the
    `share` of the step during which positions move with v⁺; in a step that is split at impacts, the whole step size.
    unit: h, or 1 in an impact: cotangents of velocities are multiplied by it, so that they are like those of v̇.
    """

    h: Scalar
    left: Scalar
    unit: Scalar


class FreeMotion(NamedTuple):
    """A substep without constraints.

    q [nq]: the configuration at which constraints are evaluated. v [nv]: the velocity before the substep. free [nv]:
    v*, the velocity after it without constraints.
    """

    q: ScalarArray
    v: ScalarArray
    free: ScalarArray
    dynamics: Dynamics
    times: SubstepTimes


@dataclass
class LimitRows:
    """The joint limits that have a row: their numbers, how many they are, and their first row."""

    numbers: IndexArray
    count: IndexArray
    first_row: Index


@dataclass
class ConstraintOutcome:
    """The constraints of a substep and their effect; the adjoint reads it.

    q [nq]: the configuration, readable in rolled loops; None if no constraint depends on it directly. limits: None if
    there are no single rows. contacts: those that act, in the order of their rows; candidates: all that may, in this
    substep or later. first_contact: the first row of the contacts. slips [nslot, SLIP]: of the contacts, for the
    directions of friction; None in 2D. cone: aligns them with the slips of the solution; None where nothing does. free,
    v_next, move [nv]: v*, v⁺ and v⁺ + p. change [nv]: v⁺ - v*, for the adjoint only. pseudo [nv]: p, where positions
    are corrected. correction [n]: π; pushes [n]: 1 where it is not zero; corrected: 1 if positions are corrected in
    some lane. guard: the energy guard, which tells what was kept of the bias. caused, pseudo_caused [nlink + 1, 6]: the
    twists of the links that belong to v⁺ - v* and to p, for the adjoint only. residual: of the complementarity
    conditions; touching: contacts that press; depth: the deepest penetration, m; modes: a fingerprint of
    the active set.
    """

    problem: ContactProblem
    contacts: ContactPoints
    candidates: ContactPoints
    first_contact: Index
    slips: ScalarArray | None
    cone: FrictionCone | None
    free: ScalarArray
    v_next: ScalarArray
    move: ScalarArray
    change: ScalarArray
    pseudo: ScalarArray
    correction: ScalarArray
    pushes: ScalarArray
    corrected: IndexArray
    guard: EnergyGuard
    q: ScalarArray | None = None
    limits: LimitRows | None = None
    caused: ScalarArray | None = None
    pseudo_caused: ScalarArray | None = None
    residual: Scalar = 0.0
    touching: Scalar = 0.0
    depth: Scalar = 0.0
    modes: Scalar = 0.0

    def slip(self, c: Index) -> Vec:
        """The numbers of the `Slip` of contact c; none in 2D."""
        return () if self.slips is None else self.slips.get(c, SLIP)

    def contact_rows(self, constraints: Constraints, c: Index) -> list[Row]:
        """The rows of contact c."""
        point, _ = self.contacts.point(self.contacts.slots[c])
        surface = constraints.pair_surface(self.contacts.pairs[c])
        slip = NO_SLIP if self.slips is None else Slip.of(self.slip(c))
        return contact_rows(point, surface, slip, constraints.dim, constraints.directions).rows
