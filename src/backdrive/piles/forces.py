"""The contact forces along a path of a pile: from every state of the path, its step is made again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from ..physics.constraints.forces import FORCE
from .adjoint import PileOutputCotangents
from .arrangement import WarmStartTable
from .packs import SLOTS
from .rollout import PileWorld, as_array, wrench_of
from .step import PileInputs
from .tables import PileConstants, PileTables

if TYPE_CHECKING:
    from ..runtime.program import Program

Array = np.ndarray


def contact_forces(
    program: Program, q: Tensor, v: Tensor, wrenches: Tensor | None, constants: Tensor | None, parameters: str
) -> tuple[Array, Tensor]:
    """The forces of all contacts that occur in the steps from the states q, v [T, B, n] of a path.

    Returns the shapes of the contacts [n, 2], as the model counts them, and FORCE numbers [T, B, n, FORCE], zero where
    a contact does not exist; these are differentiable.
    """
    found: list[Array] = []
    constants = program.constants if constants is None else constants
    numbers = _PileForces.apply(program, parameters, found, q, v, wrenches, constants)
    return found[0], numbers


def shapes_of(tables: PileTables, keys: Array) -> Array:
    """The two shapes of contacts [n, 2], as the model counts them, from their keys."""
    rest, b = np.divmod(keys // SLOTS, tables.nshape)
    return tables.order[np.column_stack([rest % tables.nshape, b])]


class _PileForces(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, program: Program, parameters: str, found: list[Array], q: Tensor, v: Tensor, wrenches: Tensor | None,
        constants: Tensor,
    ) -> Tensor:  # fmt: skip
        ctx.save_for_backward(q, v, wrenches, constants)
        ctx.program, ctx.parameters = program, parameters
        paths = []
        for k in range(q.shape[1]):
            with _world(program, parameters, wrenches, constants, k) as world:
                paths.append(forces_along(world, _of_world(k, q=q, v=v, wrenches=wrenches)))
        ctx.keys = np.unique(np.concatenate([key for path in paths for key, _ in path]))
        out = np.zeros((*q.shape[:2], len(ctx.keys), FORCE), world.engine.dtype)
        for k, path in enumerate(paths):
            for t, (key, numbers) in enumerate(path):
                out[t, k, np.searchsorted(ctx.keys, key)] = numbers
        found.append(shapes_of(world.engine.tables, ctx.keys))
        return torch.from_numpy(out)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, bar: Tensor) -> tuple:
        q, v, wrenches, constants = ctx.saved_tensors
        q_bar, v_bar = torch.empty_like(q), torch.empty_like(v)
        wrenches_bar = None if wrenches is None else torch.empty_like(wrenches)
        constants_bar = constants.new_zeros(q.shape[1], constants.shape[-1])
        for k in range(q.shape[1]):
            own = _of_world(
                k, q=q, v=v, wrenches=wrenches, q_bar=q_bar, v_bar=v_bar, wrenches_bar=wrenches_bar, bar=bar
            )
            with _world(ctx.program, ctx.parameters, wrenches, constants, k) as world:
                constants_bar[k] = torch.from_numpy(forces_vjp(world, own, ctx.keys))
        if constants.ndim == 1:
            constants_bar = torch.from_numpy(constants_bar.numpy().sum(axis=0))
        return None, None, None, q_bar, v_bar, wrenches_bar, constants_bar


def _world(program: Program, parameters: str, wrenches: Tensor | None, constants: Tensor, k: int) -> Any:
    assert program.sparse is not None
    numbers = as_array(constants)
    return program.sparse.world(
        program.kernels.bounces(parameters), wrenches is not None, numbers[k] if numbers.ndim == 2 else numbers
    )


def _of_world(k: int, **tensors: Tensor | None) -> dict[str, Array]:
    return {name: as_array(x)[:, k] for name, x in tensors.items() if x is not None}


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
