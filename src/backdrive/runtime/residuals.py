"""What a forward pass keeps for its adjoint, and the adjoint from it: the same for all kinds of autograd functions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from ..schema.signatures import Role
from .request import Request

if TYPE_CHECKING:
    from ..piles.world import PileRecord

Tensors = dict[str, Tensor]
Vjp = Callable[[Request, Tensors, tuple[str, ...], "PileRecord | None"], Mapping[str, Tensor]]
"""`execute.vjp`, as it is or as a function that torch records."""


class Residuals(NamedTuple):
    """What a forward pass keeps for its adjoint.

    tensors: that the adjoint reads besides cotangents. A path has all its rows, the start included; of a rollout that
    has none, the start stands in its place. record: of one big world.
    """

    request: Request
    tensors: Tensors
    record: PileRecord | None = None

    @staticmethod
    def of(request: Request, inputs: Tensors, outputs: Tensors, record: PileRecord | None) -> Residuals:
        kept: Tensors = {}
        for a in request.adjoint().reads:
            if a.role is Role.COTANGENT:
                continue
            if a.name in inputs:
                kept[a.name] = inputs[a.name]
            elif a.start:
                kept[a.name] = outputs[a.name] if a.name in outputs else inputs[a.start]
            elif a.name in outputs:
                kept[a.name] = outputs[a.name]
        return Residuals(request, kept, record)

    def save(self, ctx: Any) -> None:
        """The request keeps the program: a graph may live longer than its Simulator."""
        ctx.request, ctx.kept, ctx.record = self.request, tuple(self.tensors), self.record
        ctx.save_for_backward(*self.tensors.values())

    @staticmethod
    def load(ctx: Any) -> Residuals:
        return Residuals(ctx.request, dict(zip(ctx.kept, ctx.saved_tensors)), ctx.record)

    def vjp(self, cotangents: Sequence[Tensor | None], wanted: tuple[str, ...], function: Vjp) -> Tensors:
        """The cotangents of the inputs, by the names of the inputs, from those of the results (None: zero)."""
        if mapped_at_once(cotangents):
            raise NotImplementedError(
                "backdrive: many gradients at once (is_grads_batched=True, vectorize=True) of a recorded graph are not "
                "possible; use torch.func.jacrev, torch.func.vmap, or Simulator.linearize"
            )
        request, adjoint = self.request, self.request.adjoint()
        given = {a.name: bar for a, bar in zip(request.results(), cotangents)}
        tensors = self._before_steps()
        leads, plan = request.leads(adjoint, tensors), request.plan(adjoint)
        start_bars: Tensors = {}
        for a, shaped in zip(adjoint.reads, plan.reads):
            if a.role is not Role.COTANGENT:
                continue
            bar = given.get(a.name.removesuffix("_bar"))
            if bar is not None and a.start:  # its first row is the start's own
                start_bars[a.start], bar = bar[0], bar[1:]
            if bar is None:
                bar = zeros((*leads[shaped.lead], shaped.size), request.program.dtype)
            tensors[a.name] = bar
        results = function(request, tensors, wanted, self.record)
        found = {name.removesuffix("_bar"): bar for name, bar in results.items()}
        for name, bar in start_bars.items():
            found[name] = found[name] + bar
        return found

    def _before_steps(self) -> Tensors:
        """The tensors as the adjoint reads them: of a path, the states before the steps."""
        tensors = dict(self.tensors)
        settings = self.request.settings
        for a in self.request.adjoint().reads:
            if a.role is Role.COTANGENT:
                continue
            if a.start:
                x = self.tensors[a.name]
                tensors[a.name] = x[:-1] if settings is not None and settings.path else x.unsqueeze(0)
        return tensors


def wanted_cotangents(request: Request, needed: Sequence[bool]) -> tuple[str, ...]:
    """Names of the optional cotangents of inputs whose gradient torch needs (`ctx.needs_input_grad`)."""
    on_demand = request.signature.on_demand
    return tuple([f"{name}_bar" for name, need in zip(request.names, needed) if need and name in on_demand])


def mapped_at_once(cotangents: Sequence[Any]) -> bool:
    """Whether many gradients of a recorded graph are asked for at once."""
    return any(bar is not None and torch._C._functorch.is_legacy_batchedtensor(bar) for bar in cotangents)


def zeros(shape: Sequence[int], dtype: torch.dtype) -> Tensor:
    """Zeros that take no memory: the cotangents of states that the loss does not depend on."""
    return torch.zeros(shape[-1], dtype=dtype).expand(shape)


def refuse_second_derivatives() -> None:
    raise RuntimeError(
        "backdrive has first derivatives only: a gradient was differentiated again (create_graph=True, "
        "or a Hessian). Difference the gradients, or use Simulator.linearize for a Gauss-Newton approximation"
    )
