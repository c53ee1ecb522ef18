"""What a policy observes of a state, and the cotangent of the state."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ...policy import Sensor, View
from ...schema.signatures import POSES
from .. import autograd, quick
from ..call import request_of
from ..program import Program
from ..transforms import traced, transformed


def view(program: Program, sensors: tuple[Sensor, ...]) -> View:
    if sensors not in program.seen:
        program.seen[sensors] = View(program.model, sensors)
    return program.seen[sensors]


def observe(
    program: Program, state: Sequence[Tensor], sensors: Sequence[Sensor], constants: Tensor | None = None,
    parameters: str = "",
) -> Tensor:  # fmt: skip
    """The observations [B, n] of a state [B, n]. constants, parameters: see `Loop`."""
    seen = view(program, tuple(tuple(sensor) if isinstance(sensor, list) else sensor for sensor in sensors))
    if not seen.poses:
        return seen.observe(state, None)
    if not transformed() and not traced() and constants is None:
        poses = quick.poses(program, state)
        if poses is not None:
            return _Observe.apply(program, seen, poses, *state)
    request, tensors = request_of(program, POSES, tuple(x.unsqueeze(0) for x in state), constants, parameters)
    return seen.observe(state, autograd.evaluate(request, tensors)["out"].squeeze(0))


class _Observe(torch.autograd.Function):
    """The observations of a state whose poses are known already."""

    @staticmethod
    def forward(ctx: Any, program: Program, seen: View, poses: Tensor, *state: Tensor) -> Tensor:
        ctx.program, ctx.seen = program, seen
        ctx.save_for_backward(*state)
        return seen.observe(state, poses)

    @staticmethod
    @autograd.first_only
    def backward(ctx: Any, bar: Tensor) -> tuple:
        return None, None, None, *observe_vjp(ctx.program, ctx.seen, ctx.saved_tensors, bar)


def observe_vjp(program: Program, seen: View, state: Sequence[Tensor], bar: Tensor) -> list[Tensor]:
    """The cotangents of a state [B, n], from those of its observations [B, k] that have poses, by quick calls."""
    *direct, poses_bar = seen.vjp(bar, (*program.state_sizes, program.size("npose")))
    return [x.add_(y) for x, y in zip(quick.poses_vjp(program, state, poses_bar), direct)]
