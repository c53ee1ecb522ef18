"""The contact forces along a path of a pile: from every state of the path, its step is made again."""

from __future__ import annotations

import numpy as np

from .adjoint import PileOutputCotangents
from .arrangement import WarmStartTable
from .packs import SLOTS
from .rollout import PileWorld, wrench_of
from .step import PileInputs
from .tables import PileConstants, PileTables

Array = np.ndarray


def shapes_of(tables: PileTables, keys: Array) -> Array:
    """The two shapes of contacts [n, 2], as the model counts them, from their keys."""
    rest, b = np.divmod(keys // SLOTS, tables.nshape)
    return tables.order[np.column_stack([rest % tables.nshape, b])]


def forces_along(world: PileWorld, a: dict[str, Array]) -> list[tuple[Array, Array]]:
    """Keys and FORCE numbers [n, FORCE] of the contacts of every step."""
    path: list[tuple[Array, Array]] = []
    warm: WarmStartTable | None = None
    for t, (q, v) in enumerate(zip(a["q"], a["v"], strict=True)):
        step = world.forward(a, t, np.ascontiguousarray(q), np.ascontiguousarray(v), warm)
        path.append((step.contacts.key, world.engine.forces(world.constants, step)))
        warm = step.impulses
    return path


def forces_vjp(world: PileWorld, a: dict[str, Array], keys: Array) -> Array:
    """From `bar` [T, n, FORCE] to q_bar, v_bar, wrenches_bar of every step; returns the cotangent of the constants.

    The impulses of a step also depend on those that it started from, and so on the states before it.
    """
    before: list[tuple[Array, Array, WarmStartTable | None]] = []
    warm: WarmStartTable | None = None
    for t, (q, v) in enumerate(zip(np.array(a["q"]), np.array(a["v"]), strict=True)):
        before.append((q, v, warm))
        warm = world.forward(a, t, q, v, warm).impulses
    links_bar, records_bar = np.zeros_like(world.constants.links), np.zeros_like(world.constants.records)
    impulses_bar: Array | None = None
    for t in reversed(range(len(before))):
        q, v, warm = before[t]
        step = world.forward(a, t, q, v, warm, keep=True)
        forces_bar = a["bar"][t][np.searchsorted(keys, step.contacts.key)]
        after = PileOutputCotangents(np.zeros_like(q), np.zeros_like(v), impulses_bar, forces_bar)
        inputs = PileInputs(q, v, wrench_of(a, t), warm)
        bars = world.adjoint.backward(world.memory, world.constants, inputs, step, after)
        a["q_bar"][t], a["v_bar"][t], impulses_bar = bars.q, bars.v, bars.impulses
        links_bar += bars.links
        records_bar += bars.records
        if bars.wrench is not None:
            a["wrenches_bar"][t] = bars.wrench
    return PileConstants.vjp(world.engine.tables, world.engine.body, links_bar, records_bar)
