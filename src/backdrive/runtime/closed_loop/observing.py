"""What a policy sees of a state, and the gradient of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

from ...physics.tree.poses import POSE
from ...policy import Sensor, View
from .. import autograd as operators
from .. import execute as evaluation
from ..program import Program
from .setting import first_only


def transformed() -> bool:
    """Inside torch.func, torch.compile or forward-mode derivatives."""
    functorch = torch._C._are_functorch_transforms_active() or forward_ad._current_level >= 0
    return functorch or operators._traced()


def view(program: Program, sensors: tuple[Sensor, ...]) -> View:
    if sensors not in program.seen:
        program.seen[sensors] = View(program.model, sensors)
    return program.seen[sensors]


def observe(program: Program, q: Tensor, v: Tensor, sensors: Sequence[Sensor]) -> Tensor:
    """[B, n] of q [B, nq] and v [B, nv]."""
    seen = view(program, tuple(tuple(sensor) if isinstance(sensor, list) else sensor for sensor in sensors))
    if not seen.poses:
        return seen.observe(q, v, None)
    if not transformed():
        quick = evaluation.quick_poses(program, q, v)
        if quick is not None:
            return _Observe.apply(program, seen, q, v, quick)
    (poses,) = operators.evaluate("poses", q.unsqueeze(0), v.unsqueeze(0), None, None, None, program.number, "", [])
    return seen.observe(q, v, poses.squeeze(0))


class _Observe(torch.autograd.Function):
    """What is seen of a state whose poses are known already."""

    @staticmethod
    def forward(ctx: Any, program: Program, seen: View, q: Tensor, v: Tensor, poses: Tensor) -> Tensor:
        ctx.program, ctx.seen = program, seen
        ctx.save_for_backward(q, v)
        return seen.observe(q, v, poses)

    @staticmethod
    @first_only
    def backward(ctx: Any, bar: Tensor) -> tuple:
        q, v = ctx.saved_tensors
        return None, None, *look_back(ctx.program, ctx.seen, q, v, bar), None


def look_back(program: Program, seen: View, q: Tensor, v: Tensor, bar: Tensor) -> tuple[Tensor, Tensor]:
    """Gradients with respect to q and v from that with respect to what is seen, quickly."""
    nq, start = q.shape[-1], q.shape[-1] + v.shape[-1]
    numbers = seen.pull_back(bar, start + program.model.nlink * sum(POSE))
    q_bar, v_bar = evaluation.quick_poses_back(program, q, v, numbers[:, start:])
    return q_bar.add_(numbers[:, :nq]), v_bar.add_(numbers[:, nq:start])
