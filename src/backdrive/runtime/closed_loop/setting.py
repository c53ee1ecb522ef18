"""What the ways of closing the loop share: what a rollout is of, and derivatives that autograd cannot see into."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ...policy import MLP, View
from .. import autograd as operators
from ..program import Program

Outcome = tuple[Tensor, ...]
"""status [T, B, n], last_q, last_v, path_q, path_v, controls [T, B, nu]"""


@dataclass(frozen=True)
class Setting:
    """What is the same in all steps of a rollout, and not differentiated."""

    program: Program
    policy: MLP
    seen: View
    ninput: int
    names: str  # of the parameters
    steps: int
    every: int
    truncate: int

    @property
    def nstate(self) -> int:
        return self.program.model.nq + self.program.model.nv


def weights_by_name(policy: MLP) -> dict[str, Tensor]:
    return {f"the policy's {name}": x.detach() for name, x in policy.named_parameters()}


class _Refusing(torch.autograd.Function):
    """A gradient that cannot be differentiated."""

    @staticmethod
    def forward(ctx: Any, anchor: Tensor, gradient: Tensor) -> Tensor:
        return gradient.clone()

    backward = operators._PullBack.backward


def first_only(backward: Callable[..., tuple]) -> Callable[..., tuple]:
    """Of a backward pass that autograd cannot see into: its results refuse to be differentiated again."""

    def first(ctx: Any, *bars: Any) -> tuple:
        again = torch.is_grad_enabled()
        with torch.no_grad():
            results = backward(ctx, *bars)
        if not again:
            return results
        anchor = torch.zeros((), requires_grad=True)
        return tuple(None if x is None else _Refusing.apply(anchor, x) for x in results)

    return first


def or_zeros(bar: Tensor | None, shape: Sequence[int], like: Tensor) -> Tensor:
    """The gradient, or zeros that take no memory."""
    return operators._zeros(shape, like) if bar is None else bar
