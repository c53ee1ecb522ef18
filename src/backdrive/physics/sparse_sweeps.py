"""Projected Gauss-Seidel on the contacts of one big world, matrix-free, and its derivative.

The lanes are pairs of bodies of which no two share a moving body (`sparse_packs`): a pack takes up the whitened
velocities y of its bodies, solves its contacts one after the other, and puts y back. For the rows of a contact

    s = j · y + b + softness λ          λ ← clip(λ - s / d)          y ← y + j Δλ

of which a row only waits for those before it in the same contact (`coupling`). Positions are corrected likewise, by the
normal rows of what has penetrated, without bounds. The derivative is that of these very sweeps, backwards: from the
impulses of every sweep, all else is found again on the way.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from ..compiler import (
    Scalar,
    absolute,
    any_lane,
    carry,
    clip,
    lane_count,
    leave,
    loop,
    maximum,
    picked,
    select,
)
from . import spatial as sp
from .arrays import accumulate
from .sparse_contact import ContactBlock, ContactForm
from .spatial import Vec

MOMENTUM = 0.5  # sweeps converge twice as fast; more of it and they may go in circles, and gradients grow


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
    """Gradients: with respect to the impulses before, y before, and the block's numbers (of 1/d: times 1/d)."""

    old: Vec
    speeds: Vec
    block: Vec


def contact_adjoint(block: ContactBlock, y: Vec, y_bar: Vec, old: Vec, new: Vec, new_bar: Vec) -> ContactBars:
    """y: before the contact was solved; y_bar, new_bar: of what it was afterwards."""
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
    pushes_bar = [changes[r] * a + speeds_bar[r] * b for r in rows for a, b in zip(y_bar, y, strict=True)]
    block_bar = (*pushes_bar, *coupling_bar.values(), *speeds_bar, *inverse_bar, softness_bar, mu_bar, 0.0)
    return ContactBars(tuple(old_bar), tuple(speeds_bar), block_bar)


# ------------------------------------------------------------------------------------------ sweeps


def ahead(now: Vec, before: Vec) -> Vec:
    """Where a sweep starts: on from the last two."""
    return tuple(x + MOMENTUM * (x - z) for x, z in zip(now, before, strict=True))


class Kept:
    """Arrays of the last sweeps, of a ring of `ring` of them, each of `size` registers: of sweep s and those before."""

    def __init__(self, array: Any, size: Any, ring: Any) -> None:
        self.array, self.size, self.ring = array, size, ring

    def of(self, s: Any) -> Any:
        return self.array.at((s + self.ring) % self.ring * self.size)


def solve(
    form: ContactForm, blocks: Any, impulses: Any, y: Any, worst: Any, starts: Any, ends: Any, made: Any,
    packs: Any, width: Any, most: Any, ring: Any, tolerance: Scalar,
) -> None:  # fmt: skip
    """Kernel: from given impulses, sweeps until no speed changes by more than the tolerance, at most `most`.

    A sweep starts from x = λ + β (λ - λ before), with the y of these impulses; β is MOMENTUM.

    blocks: of contacts; those of pack p are from starts[p] to starts[p + 1]. impulses: [sweep, contact, row]; y:
    [sweep, body, stride], `width` registers a sweep; both of the last `ring` >= 2 sweeps, counted from the given
    impulses as 0. ends: the bodies of every pack's lanes. made: how many sweeps. worst: the residual
    (`complementarity.residual`) of every lane.
    """
    size, rows, nv = sum(form.block), form.rows, form.body.nv
    kept, kept_y = Kept(impulses, starts[packs] * rows, ring), Kept(y, width, ring)
    for k in loop(starts[packs] * rows):
        kept.of(-1)[k] = impulses[k]
    for k in loop(width):
        y[k] = 0.0
    for p in loop(packs):
        bodies = Bodies(y, nv, ends, p)
        for c in loop(starts[p + 1], start=starts[p]):
            bodies.add(impulses.get(c, rows), ContactBlock.of(form, blocks.get(c, size)).pushes)
        bodies.put_back()
    for k in loop(width):
        kept_y.of(-1)[k] = y[k]
    made[0] = 0
    excess = carry(1)
    for s in loop(most):
        excess[0] = 0.0
        now, before, after = kept.of(s), kept.of(s - 1), kept.of(s + 1)
        y_now, y_before, y_after = kept_y.of(s), kept_y.of(s - 1), kept_y.of(s + 1)
        for k in loop(width):
            (y_after[k],) = ahead((y_now[k],), (y_before[k],))
        for p in loop(packs):
            bodies = Bodies(y_after, nv, ends, p)
            for c in loop(starts[p + 1], start=starts[p]):
                block = ContactBlock.of(form, blocks.get(c, size))
                old = ahead(now.get(c, rows), before.get(c, rows))
                new = solve_contact(block, bodies.get(), old)
                changes = sp.sub(new, old)
                for x, inverse in zip(changes, block.inverse, strict=True):
                    excess[0] = maximum(excess[0], absolute(x) - tolerance * inverse)
                bodies.add(changes, block.pushes)
                after.put(c, new)
            bodies.put_back()
        made[0] = s + 1
        if leave(~any_lane(excess[0] > 0.0)):
            break
    largest = carry(1)
    largest[0] = 0.0
    last = kept.of(made[0])
    for p in loop(packs):
        bodies = Bodies(kept_y.of(made[0]), nv, ends, p)
        for c in loop(starts[p + 1], start=starts[p]):
            block, old = ContactBlock.of(form, blocks.get(c, size)), last.get(c, rows)
            for r, push in enumerate(block.pushes):
                speed = power(push, bodies.get(), block.b[r], block.softness * old[r])
                low, high = (-(block.mu * old[0]), block.mu * old[0]) if r else (0.0, 1e30)
                x = clip(old[r] - speed * block.inverse[r], low, high)
                largest[0] = maximum(largest[0], absolute(old[r] - x) / block.inverse[r])
    worst[0] = largest[0]


def solve_adjoint(
    form: ContactForm, blocks: Any, impulses: Any, y: Any, starts: Any, ends: Any, y_bar: Any,
    impulses_bar: Any, before_bar: Any, blocks_bar: Any, work: Any, packs: Any, width: Any, made: Any, ring: Any,
) -> None:  # fmt: skip
    """Kernel: the derivative of `solve`, of which all sweeps were kept.

    y_bar [2, body, stride], impulses_bar: gradients with respect to y and the impulses after the last sweep, in the end
    to the given impulses; the other half of y_bar, and before_bar: those of the sweep before, zero in the beginning.
    blocks_bar: gradients with respect to the blocks are added (of 1/d: times 1/d). work: [body, 2 stride].
    """
    size, rows, nv = sum(form.block), form.rows, form.body.nv
    kept, each = Kept(impulses, starts[packs] * rows, ring), stride(nv, lane_count()) // lane_count()
    earlier = y_bar.at(width)
    for s in loop(made, reverse=True):
        now, before, after = kept.of(s), kept.of(s - 1), kept.of(s + 1)
        y_after = y.at((s + 1) * width)
        for k in loop(width // each):
            for m in range(each):
                work.at(k * (2 * each))[m] = y_after.at(k * each)[m]
                work.at(k * (2 * each) + each)[m] = y_bar.at(k * each)[m]
        for p in loop(packs, reverse=True):
            bodies = Bodies(work, nv, ends, p, vectors=2)
            for c in loop(starts[p + 1], start=starts[p], reverse=True):
                block = ContactBlock.of(form, blocks.get(c, size))
                old, new = ahead(now.get(c, rows), before.get(c, rows)), after.get(c, rows)
                bodies.add(sp.sub(old, new), block.pushes)
                bars = contact_adjoint(block, bodies.get(), bodies.get(1), old, new, impulses_bar.get(c, rows))
                accumulate(blocks_bar.at(c * size), bars.block)
                impulses_bar.put(c, sp.add(before_bar.get(c, rows), sp.scale(1.0 + MOMENTUM, bars.old)))
                before_bar.put(c, sp.scale(-MOMENTUM, bars.old))
                bodies.add(bars.speeds, block.pushes, 1)
            bodies.put_back()
        for k in loop(width // each):
            for m in range(each):
                x_bar = work.at(k * (2 * each) + each)[m]
                y_bar.at(k * each)[m] = earlier.at(k * each)[m] + (1.0 + MOMENTUM) * x_bar
                earlier.at(k * each)[m] = -MOMENTUM * x_bar
    for k in loop(width):  # the sweep before the first is the first
        y_bar[k] = y_bar[k] + earlier[k]
    for p in loop(packs):
        bodies = Bodies(y_bar, nv, ends, p)
        for c in loop(starts[p + 1], start=starts[p]):
            block, first = ContactBlock.of(form, blocks.get(c, size)), impulses.get(c, rows)
            impulses_bar.accumulate(c, before_bar.get(c, rows))
            impulses_bar.accumulate(c, [power(push, bodies.get()) for push in block.pushes])
            accumulate(blocks_bar.at(c * size), [x * a for x in first for a in bodies.get()])


# ------------------------------------------------------------------------------------------ positions


def correct_contact(block: ContactBlock, y: Vec, old: Scalar) -> Scalar:
    """π of a contact: no bounds, but where nothing has penetrated it is zero."""
    x = old - power(block.pushes[0], y, block.rate, block.softness * old) * block.inverse[0]
    return select(block.rate < 0.0, x, 0.0)


def correct(
    form: ContactForm, blocks: Any, impulses: Any, y: Any, starts: Any, ends: Any, chosen: Any, made: Any, packs: Any,
    most: Any, step: Any, tolerance: Scalar,
) -> None:  # fmt: skip
    """Kernel: as `solve`, for the pseudo impulses π of the `chosen` packs, that are zero in the beginning."""
    size, nv = sum(form.block), form.body.nv
    made[0] = 0
    excess = carry(1)
    for s in loop(most):
        excess[0] = 0.0
        before, after = impulses.at(s * step), impulses.at((s + 1) * step)
        for k in loop(packs):
            p = chosen[k]
            bodies = Bodies(y, nv, ends, p)
            for c in loop(starts[p + 1], start=starts[p]):
                block, old = ContactBlock.of(form, blocks.get(c, size)), before[c]
                new = correct_contact(block, bodies.get(), old)
                excess[0] = maximum(excess[0], absolute(new - old) - tolerance * block.inverse[0])
                bodies.add((new - old,), block.pushes[:1])
                after[c] = new
            bodies.put_back()
        made[0] = s + 1
        if leave(~any_lane(excess[0] > 0.0)):
            break


def correct_adjoint(
    form: ContactForm, blocks: Any, impulses: Any, y: Any, starts: Any, ends: Any, chosen: Any, impulses_bar: Any,
    blocks_bar: Any, packs: Any, made: Any, step: Any,
) -> None:  # fmt: skip
    """Kernel: the derivative of `correct`, as `solve_adjoint`; impulses_bar: zero in the beginning."""
    size, nv = sum(form.block), form.body.nv
    rate, inverse, softness = size - 1, size - 3 - form.rows, size - 3
    for s in loop(made, reverse=True):
        before, after = impulses.at(s * step), impulses.at((s + 1) * step)
        for k in loop(packs, reverse=True):
            p = chosen[k]
            bodies = Bodies(y, nv, ends, p, vectors=2)
            for c in loop(starts[p + 1], start=starts[p], reverse=True):
                block, old, new = ContactBlock.of(form, blocks.get(c, size)), before[c], after[c]
                bodies.add((old - new,), block.pushes[:1])
                on, y_bar = block.rate < 0.0, bodies.get(1)
                moved = power(block.pushes[0], y_bar)
                total = impulses_bar[c] + moved
                speed_bar = select(on, -(total * block.inverse[0]), 0.0)
                bars = blocks_bar.at(c * size)
                accumulate(bars, [(new - old) * a + speed_bar * b for a, b in zip(y_bar, bodies.get(), strict=True)])
                accumulate(bars.at(rate), (speed_bar,))
                accumulate(bars.at(softness), (speed_bar * old,))
                accumulate(bars.at(inverse), (select(on, total * (new - old), 0.0),))
                impulses_bar[c] = select(on, impulses_bar[c] + speed_bar * block.softness, -moved)
                bodies.add((speed_bar,), block.pushes[:1], 1)
            bodies.put_back()
