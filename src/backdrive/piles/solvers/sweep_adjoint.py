"""The derivative of the sweeps of `sweep_kernels`, sweep by sweep backwards.

The impulses and y of every sweep are kept; everything else is recomputed on the way. Sweeps that have not converged may
cycle, and the derivative of a cycle grows without bound with the number of its sweeps: the way back of a group ends
where its cotangents have grown beyond a limit.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from ...ir import Scalar, absolute, any_lane, carry, interruptible, loop, maximum, select, when
from ...physics.math import spatial as sp
from ...physics.math.arrays import accumulate
from ...physics.math.spatial import Vec
from ..arguments import IntegerIn, IntsIn, NumberIn, PacksOut
from ..contacts import ContactBlock, ContactForm
from .sweep_parts import (
    GroupedArguments,
    IslandGroup,
    PackBodies,
    SweepHistory,
    add_products,
    along,
    extrapolate,
    schedule,
)


@dataclass(frozen=True)
class SolveAdjointArguments(GroupedArguments):
    """The arguments of `solve_adjoint`; those that `solve` has too are as there, with all sweeps kept.

    blocks and blocks_bar are in reverse order, so that memory is read forwards: that is a third faster. y_bar [2, body,
    stride]: cotangents of y after the last sweep, and of the sweep before it, initially zero. impulses_bar: cotangents
    of the impulses after the last sweep; in the end, of the given impulses. before_bar: of the sweep before, initially
    zero. blocks_bar: cotangents of the blocks are added (of 1/d: times 1/d). work: [body, 2 stride]. limit: the largest
    cotangent of y that a group passes on to the sweep before.
    """

    made: IntsIn
    schedules: IntsIn
    y_bar: PacksOut
    impulses_bar: PacksOut
    before_bar: PacksOut
    blocks_bar: PacksOut
    work: PacksOut
    groups: IntegerIn
    registers: IntegerIn
    width: IntegerIn
    most: IntegerIn
    ring: IntegerIn
    limit: NumberIn


def solve_adjoint(form: ContactForm, a: SolveAdjointArguments) -> None:
    """Kernel: the derivative of `sweep_kernels.solve`."""
    size, rows, nv = form.block.size, form.rows, form.body.nv
    kept, earlier_bar = SweepHistory(a.impulses, a.registers * rows, a.ring), a.y_bar.at(a.width)
    largest = carry(1)
    for g in loop(a.groups):
        group = IslandGroup(g, a, nv)
        each, (low, high) = group.row_registers, group.rows
        for s in interruptible(loop(a.made[g], reverse=True)):
            _, beta = schedule(a.schedules, a.momentum, g, s, a.most)
            now, before, after = kept.of(s), kept.of(s - 1), kept.of(s + 1)
            y_after = a.y.at((s + 1) * a.width)
            for k in loop(high, start=low):
                for m in range(each):
                    a.work.at(k * (2 * each))[m] = y_after.at(k * each)[m]
                    a.work.at(k * (2 * each) + each)[m] = a.y_bar.at(k * each)[m]
            for p in group.packs(reverse=True):
                bodies = PackBodies(a.work, nv, a.ends, p, vectors=2)
                for c in a.registers_of(p, reverse=True):
                    back = a.registers - 1 - c
                    block, block_bar = ContactBlock.of(form, a.blocks.get(back, size)), a.blocks_bar.at(back * size)
                    old, new = extrapolate(beta, now.get(c, rows), before.get(c, rows)), after.get(c, rows)
                    bodies.add(sp.sub(old, new), block.pushes)
                    y_old, y_new_bar = bodies.get(), bodies.get(1)
                    bars = contact_adjoint(block, y_new_bar, old, new, a.impulses_bar.get(c, rows))
                    for r in range(rows):
                        add_products(block_bar.at(r * form.push), (bars.changes[r], bars.speeds[r]), (y_new_bar, y_old))
                    accumulate(block_bar.at(form.block.first("coupling")), bars.rest)
                    a.impulses_bar.put(c, sp.add(a.before_bar.get(c, rows), sp.scale(1.0 + beta, bars.old)))
                    a.before_bar.put(c, sp.scale(-beta, bars.old))
                    bodies.add(bars.speeds, block.pushes, 1)
                bodies.store()
            largest[0] = 0.0
            for k in loop(high, start=low):
                for m in range(each):
                    x_bar = a.work.at(k * (2 * each) + each)[m]
                    largest[0] = maximum(largest[0], absolute(x_bar))
                    a.y_bar.at(k * each)[m] = earlier_bar.at(k * each)[m] + (1.0 + beta) * x_bar
                    earlier_bar.at(k * each)[m] = -beta * x_bar
            for _ in when(any_lane(largest[0] > a.limit)):
                end_way_back(form, a, group)
        start_adjoint(form, a, group)


def end_way_back(form: ContactForm, a: SolveAdjointArguments, group: IslandGroup) -> None:
    """Let the cotangents of a group be zero, so that its sweeps before get none."""
    rows, earlier_bar, (start, stop) = form.rows, a.y_bar.at(a.width), group.contacts
    for k in loop(group.registers[1], start=group.registers[0]):
        a.y_bar[k] = 0.0
        earlier_bar[k] = 0.0
    for k in loop(stop * rows, start=start * rows):
        a.impulses_bar[k] = 0.0
        a.before_bar[k] = 0.0


def start_adjoint(form: ContactForm, a: SolveAdjointArguments, group: IslandGroup) -> None:
    """The derivative of `sweep_kernels.start_from_impulses`."""
    size, rows, nv, earlier_bar = form.block.size, form.rows, form.body.nv, a.y_bar.at(a.width)
    for k in loop(group.registers[1], start=group.registers[0]):
        a.y_bar[k] = a.y_bar[k] + earlier_bar[k]
    for p in group.packs():
        bodies = PackBodies(a.y_bar, nv, a.ends, p)
        for c in a.registers_of(p):
            back = a.registers - 1 - c
            block, first = ContactBlock.of(form, a.blocks.get(back, size)), a.impulses.get(c, rows)
            a.impulses_bar.accumulate(c, a.before_bar.get(c, rows))
            a.impulses_bar.accumulate(c, [along(push, bodies.get()) for push in block.pushes])
            accumulate(a.blocks_bar.at(back * size), [x * j for x in first for j in bodies.get()])


class ContactCotangents(NamedTuple):
    """Cotangents of one contact in a sweep. old: of the impulses before; speeds: of s; rest: of the numbers of the
    block from `coupling` to `mu` (of 1/d: times 1/d). changes: Δλ itself."""

    old: Vec
    speeds: Vec
    rest: Vec
    changes: Vec


def contact_adjoint(block: ContactBlock, y_bar: Vec, old: Vec, new: Vec, new_bar: Vec) -> ContactCotangents:
    """The derivative of `sweep_kernels.solve_contact`; y_bar, new_bar: of y and of the impulses after it."""
    rows = range(len(old))
    changes, bound = sp.sub(new, old), block.mu * new[0]
    moved = [along(push, y_bar) for push in block.pushes]  # of Δλ, by its effect on y and on later rows
    direct = list(new_bar)
    speeds_bar: list[Scalar] = [0.0] * len(old)
    old_bar: list[Scalar] = [0.0] * len(old)
    inverse_bar: list[Scalar] = [0.0] * len(old)
    coupling_bar: dict[tuple[int, int], Scalar] = dict.fromkeys(block.coupling, 0.0)
    mu_bar: Scalar = 0.0
    softness_bar: list[Scalar] = [0.0] * len(old)
    for r in reversed(rows):
        free = absolute(new[r]) < bound if r else new[0] > 0.0
        total = direct[r] + moved[r]
        speeds_bar[r] = select(free, -(total * block.inverse[r]), 0.0)
        inverse_bar[r] = select(free, total * changes[r], 0.0)
        old_bar[r] = select(free, direct[r] + speeds_bar[r] * block.softness[r], -moved[r])
        softness_bar[r] = speeds_bar[r] * old[r]
        if r:  # at a bound, λ = ± μ λₙ
            bound_bar = select(free, 0.0, select(new[r] < 0.0, -total, total))
            direct[0] = direct[0] + block.mu * bound_bar
            mu_bar = mu_bar + new[0] * bound_bar
        for c in range(r):
            coupling_bar[r, c] = speeds_bar[r] * changes[c]
            moved[c] = moved[c] + speeds_bar[r] * block.coupling[r, c]
    rest = (*coupling_bar.values(), *speeds_bar, *inverse_bar, *softness_bar, mu_bar)
    return ContactCotangents(tuple(old_bar), tuple(speeds_bar), rest, changes)
