"""The contact forces along a path of a pile, differentiable."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from ..physics.constraints.forces import FORCE
from ..piles.forces import forces_along, forces_vjp, shapes_of
from ..piles.rollout import as_array
from .program import Program

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
