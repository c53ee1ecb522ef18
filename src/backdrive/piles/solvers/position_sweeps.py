"""Sweeps that move bodies out of penetrations, and their derivative.

The normal rows of penetrating contacts get pseudo impulses π >= 0, which only push; the whitened velocities y that
belong to them move positions, and are then forgotten.
"""

from __future__ import annotations

from dataclasses import dataclass

from ...ir import Scalar, absolute, any_lane, carry, interruptible, leave, loop, maximum, select
from ...physics.math.arrays import accumulate
from ...physics.math.spatial import Vec
from ..arguments import IntegerIn, IntsIn, IntsOut, NumberIn, PacksOut
from ..contacts import ContactBlock, ContactForm
from .sweep_parts import DeepArguments, PackBodies, add_products, along


@dataclass(frozen=True)
class CorrectArguments(DeepArguments):
    """The arguments of `correct`. impulses: π of every sweep, `step` registers apart (0: only the last is kept); those
    before the first sweep are zero. made: sweeps of every group. most: sweeps, at most. tolerance: m/s."""

    made: IntsOut
    groups: IntegerIn
    most: IntegerIn
    step: IntegerIn
    tolerance: NumberIn


def correct_contact(block: ContactBlock, y: Vec, old: Scalar) -> Scalar:
    """π of a contact after it is solved; zero where it does not penetrate."""
    x = old - along(block.pushes[0], y, block.rate, block.softness[0] * old) * block.inverse[0]
    return select((block.rate < 0.0) & (x > 0.0), x, 0.0)


def correct(form: ContactForm, a: CorrectArguments) -> None:
    """Kernel: for every group, sweeps over its deep packs until no speed changes by more than the tolerance."""
    size, nv = form.block.size, form.body.nv
    excess = carry(1)
    for g in loop(a.groups):
        a.made[g] = 0
        for s in interruptible(loop(a.most)):
            excess[0] = 0.0
            before, after = a.impulses.at(s * a.step), a.impulses.at((s + 1) * a.step)
            for p in a.packs_of(g):
                bodies = PackBodies(a.y, nv, a.ends, p)
                for c in a.registers_of(p):
                    block, old = ContactBlock.of(form, a.blocks.get(c, size)), before[c]
                    new = correct_contact(block, bodies.get(), old)
                    excess[0] = maximum(excess[0], absolute(new - old) - a.tolerance * block.inverse[0])
                    bodies.add((new - old,), block.pushes[:1])
                    after[c] = new
                bodies.store()
            a.made[g] = s + 1
            if leave(~any_lane(excess[0] > 0.0)):
                break


@dataclass(frozen=True)
class CorrectAdjointArguments(DeepArguments):
    """The arguments of `correct_adjoint`. y [body, 2 stride]: y after the last sweep, and its cotangent. impulses_bar:
    cotangents of π, initially zero. blocks, blocks_bar: as in `sweep_adjoint.SolveAdjointArguments`."""

    made: IntsIn
    impulses_bar: PacksOut
    blocks_bar: PacksOut
    groups: IntegerIn
    registers: IntegerIn


def correct_adjoint(form: ContactForm, a: CorrectAdjointArguments) -> None:
    """Kernel: the derivative of `correct`, of which all sweeps were kept."""
    size, nv = form.block.size, form.body.nv
    rate, inverse, softness = (form.block.first(name) for name in ("rate", "inverse", "softness"))
    for g in loop(a.groups):
        for s in interruptible(loop(a.made[g], reverse=True)):
            before, after = a.impulses.at(s * a.registers), a.impulses.at((s + 1) * a.registers)
            for p in a.packs_of(g, reverse=True):
                bodies = PackBodies(a.y, nv, a.ends, p, vectors=2)
                for c in a.registers_of(p, reverse=True):
                    back = a.registers - 1 - c
                    block, old, new = ContactBlock.of(form, a.blocks.get(back, size)), before[c], after[c]
                    bodies.add((old - new,), block.pushes[:1])
                    on, y_bar = new > 0.0, bodies.get(1)
                    moved = along(block.pushes[0], y_bar)
                    total = a.impulses_bar[c] + moved
                    speed_bar = select(on, -(total * block.inverse[0]), 0.0)
                    block_bar, y_old = a.blocks_bar.at(back * size), bodies.get()
                    add_products(block_bar, (new - old, speed_bar), (y_bar, y_old))
                    accumulate(block_bar.at(rate), (speed_bar,))
                    accumulate(block_bar.at(softness), (speed_bar * old,))
                    accumulate(block_bar.at(inverse), (select(on, total * (new - old), 0.0),))
                    a.impulses_bar[c] = select(on, a.impulses_bar[c] + speed_bar * block.softness[0], -moved)
                    bodies.add((speed_bar,), block.pushes[:1], 1)
                bodies.store()
