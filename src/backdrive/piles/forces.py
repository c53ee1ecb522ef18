"""The contact forces along a path of a pile: from every state of the path, its step is made again."""

from __future__ import annotations

import numpy as np

from .adjoint import PileOutputCotangents
from .arrangement import WarmStartTable
from .packs import SLOTS
from .step import WorldState
from .tables import PileTables
from .world import PileWorld, WorldRows

Array = np.ndarray


def shapes_of(tables: PileTables, keys: Array) -> Array:
    """The two shapes of contacts [n, 2], as the model counts them, from their keys."""
    rest, b = np.divmod(keys // SLOTS, tables.nshape)
    return tables.order[np.column_stack([rest % tables.nshape, b])]


def forces_along(world: PileWorld, a: WorldRows) -> list[tuple[Array, Array]]:
    """Keys and FORCE numbers [n, FORCE] of the contacts of every step from the states q, v [T, n]."""
    path: list[tuple[Array, Array]] = []
    warm: WarmStartTable | None = None
    for t, (q, v) in enumerate(zip(a["q"], a["v"], strict=True)):
        step = world.forward(a, t, WorldState(np.ascontiguousarray(q), np.ascontiguousarray(v), warm))
        path.append((step.key, step.forces))
        warm = step.after.warm
    return path


def forces_vjp(world: PileWorld, a: WorldRows, keys: Array) -> Array:
    """From `bar` [T, n, FORCE] to q_bar, v_bar, wrenches_bar of every step; returns the cotangent of the constants.

    keys: of the n contacts. The impulses of a step also depend on those that it started from, and so on the states
    before it.
    """
    states: list[WorldState] = []
    warm: WarmStartTable | None = None
    for t, (q, v) in enumerate(zip(np.array(a["q"]), np.array(a["v"]), strict=True)):
        states.append(WorldState(q, v, warm))
        warm = world.forward(a, t, states[-1]).after.warm
    total, impulses_bar = world.no_constants_bar(), None
    for t, state in reversed(list(enumerate(states))):
        step = world.forward(a, t, state, keep=True)
        forces_bar = a["bar"][t][np.searchsorted(keys, step.key)]
        bars = PileOutputCotangents(np.zeros_like(state.q), np.zeros_like(state.v), impulses_bar, forces_bar)
        before = world.backward(a, t, state, step, bars)
        a["q_bar"][t], a["v_bar"][t], impulses_bar = before.q, before.v, before.impulses
        total.add(before)
        if before.wrench is not None:
            a["wrenches_bar"][t] = before.wrench
    return total.of_model(world)
