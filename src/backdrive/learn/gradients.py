"""Bounds for gradients that grow along a motion: chaos makes some of them useless long before they overflow."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn


@dataclass
class ClipCount:
    """How many gradients of states a `clipped` pass backwards saw, clipped, and set to zero for not being finite."""

    seen: int = 0
    clipped: int = 0
    not_finite: int = 0

    @property
    def share(self) -> float:
        """The share that was clipped."""
        return self.clipped / max(self.seen, 1)


class _Clip(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, q: Tensor, v: Tensor, limit: float, count: ClipCount) -> tuple[Tensor, Tensor]:
        ctx.limit, ctx.count = limit, count
        return q.view_as(q), v.view_as(v)

    @staticmethod
    def backward(ctx: Any, q_bar: Tensor, v_bar: Tensor) -> tuple[Tensor | None, ...]:
        count = ctx.count
        size = torch.cat([q_bar, v_bar], -1).norm(dim=-1, keepdim=True)
        factor = ctx.limit / size.clamp(min=ctx.limit)
        count.seen += len(size)
        count.clipped += int((size > ctx.limit).sum())
        finite = torch.isfinite(size)
        if not bool(finite.all()):
            count.not_finite += int((~finite).sum())
            q_bar, v_bar, factor = (torch.where(finite, x, 0.0) for x in (q_bar, v_bar, factor))
        return q_bar * factor, v_bar * factor, None, None


def descend(
    network: nn.Module, optimiser: torch.optim.Optimizer, limit: float, count: ClipCount, samples: int = 1
) -> float:
    """A step of an optimiser along the gradients divided by `samples`, scaled to a norm of at most `limit`; none, and
    counted, if they are not finite. Returns the norm before scaling."""
    gradients = [x.grad for x in network.parameters() if x.grad is not None]
    if samples != 1:
        torch._foreach_div_(gradients, samples)
    norm = float(nn.utils.clip_grad_norm_(network.parameters(), limit, foreach=True))
    if norm < float("inf"):
        optimiser.step()
    else:
        count.not_finite += 1
    return norm


def clipped(state: Any, limit: float, count: ClipCount) -> Any:
    """The same state; backwards, the gradient of (q, v) of each environment is scaled to a norm of at most `limit`.

    A gradient that is not finite becomes 0. state: a `State`, or a snapshot with q, v and more, [N, ...].
    """
    q, v = _Clip.apply(state.q, state.v, limit, count)
    return state._replace(q=q, v=v)
