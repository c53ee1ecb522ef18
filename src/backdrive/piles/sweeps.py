"""Projected Gauss-Seidel on the contacts of one big world, matrix-free, and its derivative.

The lanes are pairs of bodies of which no two share a moving body (`sparse_packs`): a pack takes up the whitened
velocities y of its bodies, solves its contacts one after the other, and puts y back. For the rows of a contact

    s = j · y + b + softness λ          λ ← clip(λ - s / d)          y ← y + j Δλ

of which a row only waits for those before it in the same contact (`coupling`). Groups of packs that have no moving body
in common are solved one after the other, each by as many sweeps as it needs: what is at rest costs little, whatever
moves elsewhere. Positions are corrected likewise, by the normal rows of what has penetrated, which only push. The
derivative is that of these very sweeps, backwards: from the impulses of every sweep, all else is found again on the
way.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from ..ir import Scalar, absolute, any_lane, carry, clip, lane_count, leave, loop, maximum, picked, select, when
from ..physics.math import spatial as sp
from ..physics.math.arrays import accumulate
from ..physics.math.spatial import Vec
from ..physics.solvers.active_set import CLAMPED as ABOUT
from .contacts import ContactBlock, ContactForm

RESTART = 8  # sweeps, after which momentum starts again: with more of it they may go in circles, and gradients grow
PERIOD = 2 * RESTART  # in which a group that is about to converge has more of it,
FAST = 0.7  # (of hundreds of sweeps with 0.8, gradients grow to 1e9), if nothing changes any more by more than
NEAR = 30.0  # times the tolerance


def momentum() -> list[float]:
    """β of the sweeps of a period: Nesterov's, that grows from zero; and of a period of a group near convergence."""
    factors, t = [], 1.0
    for _ in range(RESTART):
        after = 0.5 * (1.0 + math.sqrt(1.0 + 4.0 * t * t))
        factors.append((t - 1.0) / after)
        t = after
    return [*factors, *factors, 0.0, *[FAST] * (PERIOD - 1)]


MOMENTUM = momentum()


def stride(nv: int, lanes: int) -> int:
    """Numbers of a body's row, of which nv are used: rows are moved by whole registers."""
    return -(-nv // lanes) * lanes


class Bodies:
    """Vectors (y, and gradients with respect to it) of the two bodies of every lane of a pack: [2 nv] each.

    They are registers while the contacts of the pack are worked on. table: rows of `stride` numbers for each vector.
    """

    def __init__(self, table: Any, nv: int, ends: Any, pack: Any, vectors: int = 1) -> None:
        lanes = lane_count()
        self.nv, self.size, width = nv, 2 * nv, stride(nv, lanes)
        index = ends.at(pack * (2 * lanes))
        rows = [picked(table, vectors * width, index.at(k * lanes)) for k in range(2)]
        self.rows = [[row.at(m * width) for row in rows] for m in range(vectors)]
        self.vectors = carry(vectors * self.size)
        for m, ends_of in enumerate(self.rows):
            for k, row in enumerate(ends_of):
                self.vectors.at(m * self.size + k * nv).put(0, row.get(0, nv))

    def get(self, m: int = 0) -> Vec:
        return self.vectors.get(m, self.size)

    def add(self, changes: Vec, pushes: list[Vec], m: int = 0) -> None:
        """y += Σ j Δλ"""
        total = self.get(m)
        for x, push in zip(changes, pushes, strict=True):
            total = tuple(t + x * j for t, j in zip(total, push, strict=True))
        self.vectors.put(m, total)

    def put_back(self) -> None:
        for m, ends_of in enumerate(self.rows):
            for k, row in enumerate(ends_of):
                row.put(0, self.vectors.at(m * self.size + k * self.nv).get(0, self.nv))


# ------------------------------------------------------------------------------------------ one contact


def power(push: Vec, y: Vec, plus: Scalar = 0.0, more: Scalar = 0.0) -> Scalar:
    """j · y + plus + more, in two short chains of additions."""
    half = len(push) // 2
    return sp.dot(push[:half], y[:half], plus) + sp.dot(push[half:], y[half:], more)


def solve_contact(block: ContactBlock, y: Vec, old: Vec) -> Vec:
    """The impulses of a contact after it is solved, row by row."""
    speeds = [power(push, y, b, block.softness * x) for push, b, x in zip(block.pushes, block.b, old, strict=True)]
    new: list[Scalar] = []
    for r in range(len(speeds)):
        for c, after in enumerate(new):
            speeds[r] = speeds[r] + block.coupling[r, c] * (after - old[c])
        x = old[r] - speeds[r] * block.inverse[r]
        new.append(clip(x, -(block.mu * new[0]), block.mu * new[0]) if r else maximum(x, 0.0))
    return tuple(new)


class ContactBars(NamedTuple):
    """Gradients: with respect to the impulses before, the speeds, and the block's numbers but the pushes (of 1/d: times
    1/d); changes: of the impulses."""

    old: Vec
    speeds: Vec
    rest: Vec
    changes: Vec


def contact_adjoint(block: ContactBlock, y_bar: Vec, old: Vec, new: Vec, new_bar: Vec) -> ContactBars:
    """y_bar, new_bar: of y and the impulses after the contact was solved."""
    rows = range(len(old))
    changes, slack = sp.sub(new, old), block.mu * new[0]
    moved = [power(push, y_bar) for push in block.pushes]  # of Δλ, as far as it acts on y and on later rows
    direct = list(new_bar)
    speeds_bar, old_bar, inverse_bar = [0.0] * len(old), [0.0] * len(old), [0.0] * len(old)
    coupling_bar, mu_bar, softness_bar = dict.fromkeys(block.coupling, 0.0), 0.0, 0.0
    for r in reversed(rows):
        free = absolute(new[r]) < slack if r else new[0] > 0.0
        total = direct[r] + moved[r]
        speeds_bar[r] = select(free, -(total * block.inverse[r]), 0.0)
        inverse_bar[r] = select(free, total * changes[r], 0.0)
        old_bar[r] = select(free, direct[r] + speeds_bar[r] * block.softness, -moved[r])
        softness_bar = softness_bar + speeds_bar[r] * old[r]
        if r:  # at a bound, λ = ± μ λn
            bound = select(free, 0.0, select(new[r] < 0.0, -total, total))
            direct[0] = direct[0] + block.mu * bound
            mu_bar = mu_bar + new[0] * bound
        for c in range(r):
            coupling_bar[r, c] = speeds_bar[r] * changes[c]
            moved[c] = moved[c] + speeds_bar[r] * block.coupling[r, c]
    rest = (*coupling_bar.values(), *speeds_bar, *inverse_bar, softness_bar, mu_bar)
    return ContactBars(tuple(old_bar), tuple(speeds_bar), rest, changes)


def add_products(totals: Any, factors: Vec, vectors: Sequence[Vec]) -> None:
    """totals += Σ x a, element by element: a sum in the order in which multiply-adds are made."""
    for k in range(len(vectors[0])):
        total = totals[k]
        for x, a in zip(factors, vectors, strict=True):
            total = total + x * a[k]
        totals[k] = total


# ------------------------------------------------------------------------------------------ sweeps


def ahead(beta: Scalar, now: Vec, before: Vec) -> Vec:
    """Where a sweep starts: on from the last two."""
    return tuple(x + beta * (x - z) for x, z in zip(now, before, strict=True))


class Kept:
    """Arrays of the last sweeps, of a ring of `ring` of them, each of `size` registers: of sweep s and those before."""

    def __init__(self, array: Any, size: Any, ring: Any) -> None:
        self.array, self.size, self.ring = array, size, ring

    def of(self, s: Any) -> Any:
        return self.array.at((s + self.ring) % self.ring * self.size)


def pace(paces: Any, momentum: Any, g: Any, s: Any, most: Any) -> tuple[Any, Any]:
    """Where it stands which momentum a group has in the period of a sweep, and β."""
    at = g * (most // PERIOD + 1) + s // PERIOD
    return at, momentum[paces[at] * PERIOD + s % PERIOD]


class Group:
    """Packs first to last, the registers of their contacts, and the registers of their bodies' rows."""

    def __init__(self, g: Any, group_packs: Any, group_rows: Any, starts: Any, nv: int) -> None:
        self.each = stride(nv, lane_count()) // lane_count()  # registers of a row
        self.first, self.last = group_packs[g], group_packs[g + 1]
        self.contacts = starts[self.first], starts[self.last]
        self.rows = group_rows[g], group_rows[g + 1]
        self.numbers = self.rows[0] * self.each, self.rows[1] * self.each

    def packs(self, reverse: bool = False) -> Iterator[Any]:
        return loop(self.last, start=self.first, reverse=reverse)


def solve(
    form: ContactForm, blocks: Any, impulses: Any, y: Any, starts: Any, ends: Any, group_packs: Any, group_rows: Any,
    momentum: Any, final: Any, final_y: Any, modes: Any, worst: Any, made: Any, paces: Any, deep: Any, deep_packs: Any,
    groups: Any, registers: Any, width: Any, most: Any, ring: Any, tolerance: Scalar,
) -> None:  # fmt: skip
    """Kernel: of every group, from given impulses, sweeps until no speed changes by more than the tolerance, at most
    `most`.

    A sweep starts from x = λ + β (λ - λ before), with the y of these impulses; β: see `momentum`. The first sweep of a
    period, which has none, tells by how much is left to change which of the two the others have; paces [group, period],
    zero in the beginning, says so.

    blocks: of contacts; those of pack p are from starts[p] to starts[p + 1]. impulses: [sweep, contact, row], with
    `registers` of contacts; y: [sweep, body, stride], `width` registers a sweep; both of the last `ring` >= 2 sweeps,
    counted from the given impulses as 0. ends: the rows of y of every pack's lanes. made: how many sweeps; final,
    final_y: impulses and y after the last. modes: of every contact (see `mode`). worst: the residual
    (`complementarity.residual`) of every lane. deep: the packs in which something has penetrated; those of group g are
    from deep_packs[g] to deep_packs[g + 1].
    """
    size, rows, nv = sum(form.block), form.rows, form.body.nv
    kept, kept_y = Kept(impulses, registers * rows, ring), Kept(y, width, ring)
    excess, limit, largest = carry(1), carry(1), carry(1)
    largest[0] = 0.0
    deep_packs[0] = 0
    for g in loop(groups):
        group = Group(g, group_packs, group_rows, starts, nv)
        low, high = group.numbers
        start, stop = group.contacts
        for k in loop(stop * rows, start=start * rows):
            kept.of(-1)[k] = impulses[k]
        for k in loop(high, start=low):
            y[k] = 0.0
        for p in group.packs():
            bodies = Bodies(y, nv, ends, p)
            for c in loop(starts[p + 1], start=starts[p]):
                bodies.add(impulses.get(c, rows), ContactBlock.of(form, blocks.get(c, size)).pushes)
            bodies.put_back()
        for k in loop(high, start=low):
            kept_y.of(-1)[k] = y[k]
        made[g] = 0
        for s in loop(most):
            excess[0], limit[0] = 0.0, tolerance
            begins = s % PERIOD == 0
            at, beta = pace(paces, momentum, g, s, most)
            for _ in when(begins):
                limit[0] = NEAR * tolerance
            now, before, after = kept.of(s), kept.of(s - 1), kept.of(s + 1)
            y_now, y_before, y_after = kept_y.of(s), kept_y.of(s - 1), kept_y.of(s + 1)
            for k in loop(high, start=low):
                (y_after[k],) = ahead(beta, (y_now[k],), (y_before[k],))
            for p in group.packs():
                bodies = Bodies(y_after, nv, ends, p)
                for c in loop(starts[p + 1], start=starts[p]):
                    block = ContactBlock.of(form, blocks.get(c, size))
                    old = ahead(beta, now.get(c, rows), before.get(c, rows))
                    new = solve_contact(block, bodies.get(), old)
                    changes = sp.sub(new, old)
                    for x, inverse in zip(changes, block.inverse, strict=True):
                        excess[0] = maximum(excess[0], absolute(x) - limit[0] * inverse)
                    bodies.add(changes, block.pushes)
                    after.put(c, new)
                bodies.put_back()
            made[g] = s + 1
            below = ~any_lane(excess[0] > 0.0)
            for _ in when(begins & below):
                paces[at] = 1
            if leave(below & ~begins):
                break
        deep_packs[g + 1] = deep_packs[g]
        last, last_y = kept.of(made[g]), kept_y.of(made[g])
        for k in loop(high, start=low):
            final_y[k] = last_y[k]
        for p in group.packs():
            bodies = Bodies(last_y, nv, ends, p)
            excess[0] = 0.0
            for c in loop(starts[p + 1], start=starts[p]):
                block, x = ContactBlock.of(form, blocks.get(c, size)), last.get(c, rows)
                final.put(c, x)
                modes[c] = mode(block, x)
                largest[0] = maximum(largest[0], contact_residual(block, bodies.get(), x))
                excess[0] = maximum(excess[0], -block.rate)
            for _ in when(any_lane(excess[0] > 0.0)):
                deep[deep_packs[g + 1]] = p
                deep_packs[g + 1] = deep_packs[g + 1] + 1
    worst[0] = largest[0]


def contact_residual(block: ContactBlock, y: Vec, impulses: Vec) -> Scalar:
    """How far a contact's speeds are from where they should be, m/s."""
    worst: Scalar = 0.0
    for r, (push, old) in enumerate(zip(block.pushes, impulses, strict=True)):
        speed = power(push, y, block.b[r], block.softness * old)
        low, high = (-(block.mu * impulses[0]), block.mu * impulses[0]) if r else (0.0, 1e30)
        x = clip(old - speed * block.inverse[r], low, high)
        worst = maximum(worst, absolute(old - x) / block.inverse[r])
    return worst


def mode(block: ContactBlock, impulses: Vec) -> Scalar:
    """A whole number that says whether a contact presses, has penetrated, and sticks or slides which way."""
    most = (1.0 - ABOUT) * block.mu * impulses[0]
    code = select(impulses[0] > 0.0, 1.0, 0.0) + select(block.rate < 0.0, 2.0, 0.0)
    for x in impulses[1:]:
        code = 3.0 * code + select(x >= most, 1.0, 0.0) - select(x <= -most, 1.0, 0.0)
    return code


def solve_adjoint(
    form: ContactForm, blocks: Any, impulses: Any, y: Any, starts: Any, ends: Any, group_packs: Any, group_rows: Any,
    momentum: Any, made: Any, paces: Any, y_bar: Any, impulses_bar: Any, before_bar: Any, blocks_bar: Any, work: Any,
    groups: Any, registers: Any, width: Any, most: Any, ring: Any,
) -> None:  # fmt: skip
    """Kernel: the derivative of `solve`, of which all sweeps were kept.

    y_bar [2, body, stride], impulses_bar: gradients with respect to y and the impulses after the last sweep, in the end
    to the given impulses; the other half of y_bar, and before_bar: those of the sweep before, zero in the beginning.
    blocks_bar: gradients with respect to the blocks are added (of 1/d: times 1/d). work: [body, 2 stride]. Blocks are
    here in reverse order, so that memory is read forwards: that is a third faster.
    """
    size, rows, nv = sum(form.block), form.rows, form.body.nv
    kept, earlier = Kept(impulses, registers * rows, ring), y_bar.at(width)
    for g in loop(groups):
        group = Group(g, group_packs, group_rows, starts, nv)
        each, (low, high) = group.each, group.rows
        for s in loop(made[g], reverse=True):
            _, beta = pace(paces, momentum, g, s, most)
            now, before, after = kept.of(s), kept.of(s - 1), kept.of(s + 1)
            y_after = y.at((s + 1) * width)
            for k in loop(high, start=low):
                for m in range(each):
                    work.at(k * (2 * each))[m] = y_after.at(k * each)[m]
                    work.at(k * (2 * each) + each)[m] = y_bar.at(k * each)[m]
            for p in group.packs(reverse=True):
                bodies = Bodies(work, nv, ends, p, vectors=2)
                for c in loop(starts[p + 1], start=starts[p], reverse=True):
                    back = registers - 1 - c
                    block, block_bar = ContactBlock.of(form, blocks.get(back, size)), blocks_bar.at(back * size)
                    old, new = ahead(beta, now.get(c, rows), before.get(c, rows)), after.get(c, rows)
                    bodies.add(sp.sub(old, new), block.pushes)
                    y_old, y_new_bar = bodies.get(), bodies.get(1)
                    bars = contact_adjoint(block, y_new_bar, old, new, impulses_bar.get(c, rows))
                    for r in range(rows):
                        add_products(block_bar.at(r * form.push), (bars.changes[r], bars.speeds[r]), (y_new_bar, y_old))
                    accumulate(block_bar.at(rows * form.push), bars.rest)
                    impulses_bar.put(c, sp.add(before_bar.get(c, rows), sp.scale(1.0 + beta, bars.old)))
                    before_bar.put(c, sp.scale(-beta, bars.old))
                    bodies.add(bars.speeds, block.pushes, 1)
                bodies.put_back()
            for k in loop(high, start=low):
                for m in range(each):
                    x_bar = work.at(k * (2 * each) + each)[m]
                    y_bar.at(k * each)[m] = earlier.at(k * each)[m] + (1.0 + beta) * x_bar
                    earlier.at(k * each)[m] = -beta * x_bar
        for k in loop(group.numbers[1], start=group.numbers[0]):  # the sweep before the first is the first
            y_bar[k] = y_bar[k] + earlier[k]
        for p in group.packs():
            bodies = Bodies(y_bar, nv, ends, p)
            for c in loop(starts[p + 1], start=starts[p]):
                back = registers - 1 - c
                block, first = ContactBlock.of(form, blocks.get(back, size)), impulses.get(c, rows)
                impulses_bar.accumulate(c, before_bar.get(c, rows))
                impulses_bar.accumulate(c, [power(push, bodies.get()) for push in block.pushes])
                accumulate(blocks_bar.at(back * size), [x * a for x in first for a in bodies.get()])


# ------------------------------------------------------------------------------------------ positions


def correct_contact(block: ContactBlock, y: Vec, old: Scalar) -> Scalar:
    """π of a contact, which only pushes; where nothing has penetrated it is zero."""
    x = old - power(block.pushes[0], y, block.rate, block.softness * old) * block.inverse[0]
    return select((block.rate < 0.0) & (x > 0.0), x, 0.0)


def correct(
    form: ContactForm, blocks: Any, impulses: Any, y: Any, starts: Any, ends: Any, deep: Any, deep_packs: Any,
    made: Any, groups: Any, most: Any, step: Any, tolerance: Scalar,
) -> None:  # fmt: skip
    """Kernel: as `solve`, for the pseudo impulses π of the `deep` packs, that are zero in the beginning."""
    size, nv = sum(form.block), form.body.nv
    excess = carry(1)
    for g in loop(groups):
        made[g] = 0
        for s in loop(most):
            excess[0] = 0.0
            before, after = impulses.at(s * step), impulses.at((s + 1) * step)
            for k in loop(deep_packs[g + 1], start=deep_packs[g]):
                p = deep[k]
                bodies = Bodies(y, nv, ends, p)
                for c in loop(starts[p + 1], start=starts[p]):
                    block, old = ContactBlock.of(form, blocks.get(c, size)), before[c]
                    new = correct_contact(block, bodies.get(), old)
                    excess[0] = maximum(excess[0], absolute(new - old) - tolerance * block.inverse[0])
                    bodies.add((new - old,), block.pushes[:1])
                    after[c] = new
                bodies.put_back()
            made[g] = s + 1
            if leave(~any_lane(excess[0] > 0.0)):
                break


def correct_adjoint(
    form: ContactForm, blocks: Any, impulses: Any, y: Any, starts: Any, ends: Any, deep: Any, deep_packs: Any,
    made: Any, impulses_bar: Any, blocks_bar: Any, groups: Any, registers: Any,
) -> None:  # fmt: skip
    """Kernel: the derivative of `correct`, as `solve_adjoint`; impulses_bar: zero in the beginning."""
    size, nv = sum(form.block), form.body.nv
    rate, inverse, softness = size - 1, size - 3 - form.rows, size - 3
    for g in loop(groups):
        for s in loop(made[g], reverse=True):
            before, after = impulses.at(s * registers), impulses.at((s + 1) * registers)
            for k in loop(deep_packs[g + 1], start=deep_packs[g], reverse=True):
                p = deep[k]
                bodies = Bodies(y, nv, ends, p, vectors=2)
                for c in loop(starts[p + 1], start=starts[p], reverse=True):
                    back = registers - 1 - c
                    block, old, new = ContactBlock.of(form, blocks.get(back, size)), before[c], after[c]
                    bodies.add((old - new,), block.pushes[:1])
                    on, y_bar = new > 0.0, bodies.get(1)
                    moved = power(block.pushes[0], y_bar)
                    total = impulses_bar[c] + moved
                    speed_bar = select(on, -(total * block.inverse[0]), 0.0)
                    bars, y_old = blocks_bar.at(back * size), bodies.get()
                    add_products(bars, (new - old, speed_bar), (y_bar, y_old))
                    accumulate(bars.at(rate), (speed_bar,))
                    accumulate(bars.at(softness), (speed_bar * old,))
                    accumulate(bars.at(inverse), (select(on, total * (new - old), 0.0),))
                    impulses_bar[c] = select(on, impulses_bar[c] + speed_bar * block.softness, -moved)
                    bodies.add((speed_bar,), block.pushes[:1], 1)
                bodies.put_back()
