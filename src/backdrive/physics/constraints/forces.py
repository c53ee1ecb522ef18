"""The forces of constraints, from their impulses."""

from __future__ import annotations

from ...ir import Mask, Scalar, ScalarArray, carry, loop, select
from ..math import spatial as sp
from .constraints import Constraints
from .contact_terms import resultant
from .outcome import ConstraintOutcome

FORCE = 6  # numbers of a contact slot: force (N, on the first shape of its pair), and the point (m) at which it acts


def forces_size(constraints: Constraints) -> int:
    """Numbers that `add_forces` writes."""
    return constraints.nslot * FORCE + constraints.nsingle


def add_forces(
    constraints: Constraints, outcome: ConstraintOutcome, share: Scalar, going: Mask, forces: ScalarArray
) -> None:
    """Add λ times `share` (1/s) for every row, in the lanes where the substep counts (mask `going`).

    forces: FORCE numbers for every contact slot, in world axes, then the force of every single row.
    """
    problem, block = outcome.problem, constraints.block
    for c in loop(outcome.contacts.count[0]):
        slot, first = outcome.contacts.slots[c], outcome.first_contact + c * block
        on, rows = outcome.contacts.active(slot), outcome.contact_rows(constraints, c)
        before = forces.get(slot, FORCE)
        impulses = (share * problem.impulse[first + k] for k in range(len(rows)))
        force = resultant(rows, impulses, before[:3])
        total = (*force, *rows[0].point)
        forces.put(slot, [select(on & going, x, y) for x, y in zip(total, before, strict=True)])
    if outcome.limits is not None:
        singles = forces.at(constraints.nslot * FORCE)
        for r in loop(outcome.first_contact):
            slot = problem.slot[r]
            singles[slot] = singles[slot] + select(going, share * problem.impulse[r], 0.0)


def power_of_forces(constraints: Constraints, outcome: ConstraintOutcome, forces_bar: ScalarArray) -> Scalar:
    """Σ λ · forces_bar over all rows: the derivative of the loss by the share that `add_forces` takes."""
    problem, total = outcome.problem, carry(1)
    total[0] = 0.0
    for c in loop(outcome.contacts.count[0]):
        slot, first = outcome.contacts.slots[c], outcome.first_contact + c * constraints.block
        on, bar = outcome.contacts.active(slot), forces_bar.get(slot, FORCE)[:3]
        for k, row in enumerate(outcome.contact_rows(constraints, c)):
            total[0] = total[0] + select(on, problem.impulse[first + k] * sp.dot(bar, row.force), 0.0)
    if outcome.limits is not None:
        for r in loop(outcome.first_contact):
            single_bar = forces_bar.at(constraints.nslot * FORCE)[problem.slot[r]]
            total[0] = total[0] + problem.impulse[r] * single_bar
    return total[0]
