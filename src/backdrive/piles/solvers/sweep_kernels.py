"""Projected Gauss-Seidel on the contacts of a pile, matrix-free.

Groups, which have no moving body in common, are solved one after the other, each by as many sweeps as it needs: a group
at rest costs little, whatever moves elsewhere. `sweep_adjoint` has the derivative.
"""

from __future__ import annotations

from dataclasses import dataclass

from ...ir import (
    Scalar,
    absolute,
    any_lane,
    carry,
    clip,
    interruptible,
    leave,
    loop,
    maximum,
    select,
    when,
)
from ...physics.math import spatial as sp
from ...physics.math.spatial import Vec
from ...physics.solvers.active_set import CLAMPED, INFINITE
from ..arguments import IntegerIn, IntsOut, NumberIn, PacksOut
from ..contacts import ContactBlock, ContactForm
from .sweep_parts import (
    NEAR_CONVERGENCE,
    PERIOD,
    GroupedArguments,
    IslandGroup,
    PackBodies,
    SweepHistory,
    along,
    extrapolate,
    schedule,
)


@dataclass(frozen=True)
class SolveArguments(GroupedArguments):
    """The arguments of `solve`.

    impulses and y are those of the last `ring` >= 2 sweeps, counted from the given impulses as 0; a sweep has
    `registers` registers of contacts, and `width` registers of y. Results: final, final_y: impulses and y after the
    last sweep. active_sets: of every contact (`active_set_code`). residual: of every lane, m/s. made: sweeps of every
    group. schedules [group, period]: its choice of momentum, initially zero. deep: packs in which a contact
    penetrates; those of group g are from deep_packs[g] to deep_packs[g + 1]. most: sweeps, at most. tolerance: m/s.
    """

    final: PacksOut
    final_y: PacksOut
    active_sets: PacksOut
    residual: PacksOut
    made: IntsOut
    schedules: IntsOut
    deep: IntsOut
    deep_packs: IntsOut
    groups: IntegerIn
    registers: IntegerIn
    width: IntegerIn
    most: IntegerIn
    ring: IntegerIn
    tolerance: NumberIn


def solve(form: ContactForm, a: SolveArguments) -> None:
    """Kernel: for every group, sweeps from the given impulses until no speed changes by more than the tolerance.

    A sweep starts from λ + β (λ - λ before) and the y that belongs to it. The first sweep of a period has no momentum:
    the change that it makes decides which of the two schedules of momentum the others have.
    """
    size, rows, nv = form.block.size, form.rows, form.body.nv
    kept, kept_y = SweepHistory(a.impulses, a.registers * rows, a.ring), SweepHistory(a.y, a.width, a.ring)
    excess, limit, largest = carry(1), carry(1), carry(1)
    largest[0] = 0.0
    a.deep_packs[0] = 0
    for g in loop(a.groups):
        group = IslandGroup(g, a, nv)
        low, high = group.registers
        start_from_impulses(form, a, group, kept, kept_y)
        a.made[g] = 0
        for s in interruptible(loop(a.most)):
            excess[0], limit[0] = 0.0, a.tolerance
            begins = s % PERIOD == 0
            at, beta = schedule(a.schedules, a.momentum, g, s, a.most)
            for _ in when(begins):
                limit[0] = NEAR_CONVERGENCE * a.tolerance
            now, before, after = kept.of(s), kept.of(s - 1), kept.of(s + 1)
            y_now, y_before, y_after = kept_y.of(s), kept_y.of(s - 1), kept_y.of(s + 1)
            for k in loop(high, start=low):
                (y_after[k],) = extrapolate(beta, (y_now[k],), (y_before[k],))
            for p in group.packs():
                bodies = PackBodies(y_after, nv, a.ends, p)
                for c in a.registers_of(p):
                    block = ContactBlock.of(form, a.blocks.get(c, size))
                    old = extrapolate(beta, now.get(c, rows), before.get(c, rows))
                    new = solve_contact(block, bodies.get(), old)
                    changes = sp.sub(new, old)
                    for x, inverse in zip(changes, block.inverse, strict=True):
                        excess[0] = maximum(excess[0], absolute(x) - limit[0] * inverse)
                    bodies.add(changes, block.pushes)
                    after.put(c, new)
                bodies.store()
            a.made[g] = s + 1
            below = ~any_lane(excess[0] > 0.0)
            for _ in when(begins & below):
                a.schedules[at] = 1
            if leave(below & ~begins):
                break
        a.deep_packs[g + 1] = a.deep_packs[g]
        last, last_y = kept.of(a.made[g]), kept_y.of(a.made[g])
        for k in loop(high, start=low):
            a.final_y[k] = last_y[k]
        for p in group.packs():
            bodies = PackBodies(last_y, nv, a.ends, p)
            excess[0] = 0.0
            for c in a.registers_of(p):
                block, x = ContactBlock.of(form, a.blocks.get(c, size)), last.get(c, rows)
                a.final.put(c, x)
                a.active_sets[c] = active_set_code(block, x)
                largest[0] = maximum(largest[0], contact_residual(block, bodies.get(), x))
                excess[0] = maximum(excess[0], -block.rate)
            for _ in when(any_lane(excess[0] > 0.0)):
                a.deep[a.deep_packs[g + 1]] = p
                a.deep_packs[g + 1] = a.deep_packs[g + 1] + 1
    a.residual[0] = largest[0]


def start_from_impulses(
    form: ContactForm, a: SolveArguments, group: IslandGroup, kept: SweepHistory, kept_y: SweepHistory
) -> None:
    """y of the given impulses; and both also as those of the sweep before, which has no momentum to give."""
    rows, (low, high), (start, stop) = form.rows, group.registers, group.contacts
    for k in loop(stop * rows, start=start * rows):
        kept.of(-1)[k] = a.impulses[k]
    for k in loop(high, start=low):
        a.y[k] = 0.0
    for p in group.packs():
        bodies = PackBodies(a.y, form.body.nv, a.ends, p)
        for c in a.registers_of(p):
            bodies.add(a.impulses.get(c, rows), ContactBlock.of(form, a.blocks.get(c, form.block.size)).pushes)
        bodies.store()
    for k in loop(high, start=low):
        kept_y.of(-1)[k] = a.y[k]


# ------------------------------------------------------------------------------------------ one contact


def solve_contact(block: ContactBlock, y: Vec, old: Vec) -> Vec:
    """The impulses of a contact after it is solved, row by row."""
    numbers = zip(block.pushes, block.b, block.softness, old, strict=True)
    speeds = [along(push, y, b, softness * x) for push, b, softness, x in numbers]
    new: list[Scalar] = []
    for r in range(len(speeds)):
        for c, x_new in enumerate(new):
            speeds[r] = speeds[r] + block.coupling[r, c] * (x_new - old[c])
        x = old[r] - speeds[r] * block.inverse[r]
        new.append(clip(x, -(block.mu * new[0]), block.mu * new[0]) if r else maximum(x, 0.0))
    return tuple(new)


def contact_residual(block: ContactBlock, y: Vec, impulses: Vec) -> Scalar:
    """How far the speeds of a contact are from satisfying the complementarity conditions, m/s.

    As `complementarity.residual` of a dense problem, with the products with 1/d that a block has.
    """
    worst: Scalar = 0.0
    for r, (push, old) in enumerate(zip(block.pushes, impulses, strict=True)):
        speed = along(push, y, block.b[r], block.softness[r] * old)
        low, high = (-(block.mu * impulses[0]), block.mu * impulses[0]) if r else (0.0, INFINITE)
        x = clip(old - speed * block.inverse[r], low, high)
        worst = maximum(worst, absolute(old - x) / block.inverse[r])
    return worst


def active_set_code(block: ContactBlock, impulses: Vec) -> Scalar:
    """A whole number: whether a contact presses and whether it penetrates, and the active set of its friction rows."""
    most = (1.0 - CLAMPED) * block.mu * impulses[0]
    code = select(impulses[0] > 0.0, 1.0, 0.0) + select(block.rate < 0.0, 2.0, 0.0)
    for x in impulses[1:]:
        code = 3.0 * code + select(x >= most, 1.0, 0.0) - select(x <= -most, 1.0, 0.0)
    return code
