"""A network that torch evaluates, whose matrix products are faster for large ones.

Only the states are kept: the backward pass computes the neurons of some steps at once, and from these the gradients of
the weights.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ...policy import MLP, TORCH_ACTIVATIONS, View
from ...schema.signatures import POSES
from ...schema.state import NAMES
from .. import execute, quick
from ..autograd import first_only
from ..call import request_of
from ..pages import empty
from ..residuals import Residuals
from ..result import RolloutResult
from .network import weights_by_name
from .observing import observe_vjp
from .stepper import Loop, Stepper, step_vjp

CHUNK = 512  # rows (steps x environments) whose neurons the backward pass keeps at a time


@dataclass(frozen=True, eq=False)
class TorchPolicy:
    """A network that torch evaluates. inputs: [T, B, k], observed besides the sensors of the view."""

    policy: MLP
    view: View
    inputs: Tensor | None


def by_torch(loop: Loop, policy: TorchPolicy) -> tuple[RolloutResult, Tensor]:
    """Step by step; the derivative of the whole is one node of autograd's graph. Returns controls [T, B, nu] too."""
    weights = [x for layer in policy.policy.linear for x in (layer.weight, layer.bias)]
    tensors = (*loop.state, policy.inputs, loop.wrenches, loop.constants)
    status, *results = _ByTorch.apply(loop, policy, *tensors, *weights)
    n = len(loop.state)
    return RolloutResult(tuple(results[:n]), tuple(results[n : 2 * n]), status), results[-1]


class _ByTorch(torch.autograd.Function):
    """Tensors: state, inputs, wrenches, constants, weights. They are given again, for autograd to know of them."""

    @staticmethod
    def forward(ctx: Any, loop: Loop, policy: TorchPolicy, *tensors: Any) -> tuple[Tensor, ...]:
        stepper = Stepper(loop)
        for t in range(loop.settings.steps):
            x = _observations(loop, policy, stepper.path, slice(t, t + 1))
            stepper.controls[t] = policy.policy(x[0])
            stepper.advance(t)
        stepper.report(inputs=policy.inputs, wrenches=loop.wrenches, **weights_by_name(policy.policy))
        ctx.loop, ctx.policy, ctx.solution, n = loop, policy, stepper.solution, len(loop.state)
        ctx.save_for_backward(*stepper.path, stepper.controls, *tensors[n:])
        ctx.set_materialize_grads(False)
        ctx.mark_non_differentiable(stepper.status)
        last = (path[-1].clone() for path in stepper.path)
        return stepper.status, *stepper.path, *last, stepper.controls

    @staticmethod
    @first_only
    def backward(ctx: Any, *bars: Tensor | None) -> tuple:
        want_constants = ctx.needs_input_grad[2 + len(NAMES) + 2]
        return None, None, *_BackwardPass(ctx, bars[1:], want_constants).cotangents()


def _observations(loop: Loop, policy: TorchPolicy, path: Sequence[Tensor], steps: slice) -> Tensor:
    """[C, B, sizes[0]] of the states before some steps."""
    states = tuple(x[steps] for x in path)
    x = policy.view.observe(states, _poses(loop, states) if policy.view.poses else None)
    return x if policy.inputs is None else torch.cat([x, policy.inputs[steps]], -1)


def _poses(loop: Loop, states: tuple[Tensor, ...]) -> Tensor:
    """[C, B, npose] of states [C, B, n]"""
    if loop.constants is None and len(states[0]) == 1:
        poses = quick.poses(loop.program, [x[0] for x in states])
        if poses is not None:
            return poses.unsqueeze(0)
    request, tensors = request_of(loop.program, POSES, states, loop.constants, loop.parameters)
    return execute.evaluate(request, tensors)[0]["out"]


class _BackwardPass:
    """The way back over a rollout of a network that torch evaluates."""

    def __init__(self, ctx: Any, bars: Sequence[Tensor | None], want_constants: bool) -> None:
        n, saved = len(NAMES), ctx.saved_tensors
        loop, policy = ctx.loop, ctx.policy
        self.path, self.controls, (inputs, wrenches, constants, *weights) = saved[:n], saved[n], saved[n + 1 :]
        self.loop, self.solution = loop._replace(wrenches=wrenches, constants=constants), ctx.solution
        self.policy, self.want_constants = TorchPolicy(policy.policy, policy.view, inputs), want_constants
        self.layers = list(zip(weights[::2], weights[1::2], strict=True))
        self.path_bars, last_bars, self.controls_bar = bars[:n], bars[n : 2 * n], bars[-1]
        self.state_bar = [
            torch.zeros_like(x[0]) if bar is None else bar.clone() for x, bar in zip(self.path, last_bars)
        ]
        self.totals = [[None if x is None else torch.zeros_like(x) for x in layer] for layer in self.layers]
        self.inputs_bar, self.wrenches_bar = (
            None if x is None else empty(x.shape, x.dtype) for x in (inputs, wrenches)
        )
        self.constants_bar = torch.zeros_like(constants) if want_constants else None

    def cotangents(self) -> list[Tensor | None]:
        """Of all tensors that the forward pass was given."""
        rows, steps = max(1, CHUNK // self.controls.shape[1]), self.loop.settings.steps
        for end in range(steps, 0, -rows):
            self._chunk(max(0, end - rows), end)
        self._receive(0)
        weights = [x for total in self.totals for x in total]
        return [*self.state_bar, self.inputs_bar, self.wrenches_bar, self.constants_bar, *weights]

    def _receive(self, t: int) -> None:
        """Add the part of the loss that depends on state t directly."""
        for k, bar in enumerate(self.path_bars):
            if bar is not None:
                self.state_bar[k] = self.state_bar[k] + bar[t]

    def _add(self, state_bar: Sequence[Tensor]) -> None:
        self.state_bar = [x + y for x, y in zip(self.state_bar, state_bar)]

    def _chunk(self, start: int, end: int) -> None:
        """Back over the steps from `start` to `end`, whose neurons are computed again, all at once."""
        settings, kinds = self.loop.settings, self.policy.policy.kinds()
        observed = _observations(self.loop, self.policy, self.path, slice(start, end))
        if self.loop.clip is not None:  # as in kernels: those of an environment that is lost reach no weight
            observed = observed.nan_to_num(0.0, 0.0, 0.0)
        neurons = [observed]
        for (W, b), kind in zip(self.layers, kinds, strict=True):
            y = torch.nn.functional.linear(neurons[-1], W, b)
            neurons.append(y if kind == "linear" else TORCH_ACTIVATIONS[kind](y))
        deltas = [torch.empty_like(y) for y in neurons[1:]]
        for t in range(end - 1, start - 1, -1):
            if settings.truncate and (t + 1) % settings.truncate == 0 and t + 1 < settings.steps:
                self.state_bar = [torch.zeros_like(x) for x in self.state_bar]
            self._receive(t + 1)
            self._step(t, [y[t - start] for y in neurons], [delta[t - start] for delta in deltas])
        for (W_bar, b_bar), x, delta in zip(self.totals, neurons[:-1], deltas, strict=True):
            delta = delta.flatten(0, 1)
            assert W_bar is not None
            W_bar.addmm_(delta.t(), x.flatten(0, 1))
            if b_bar is not None:
                b_bar += delta.sum(0)

    def _step(self, t: int, neurons: list[Tensor], deltas: list[Tensor]) -> None:
        """Back over step t; fills deltas [B, n], the cotangents of W x of the layers."""
        solution = None if self.solution is None else self.solution[t]
        step, clip = self.loop.at(t, [x[t] for x in self.path], self.controls[t], solution), self.loop.clip
        if clip is not None:
            self.state_bar = clip.limited(t, self.state_bar)
        found = step_vjp(step, self.state_bar, self.want_constants)
        if clip is not None:
            found = found.kept(clip, t)
        self.state_bar, bar = list(found.state), found.control
        if self.wrenches_bar is not None and found.wrench is not None:
            self.wrenches_bar[t] = found.wrench
        if self.constants_bar is not None and found.constants is not None:
            self.constants_bar += found.constants
        if self.controls_bar is not None:
            bar += self.controls_bar[t]
        layers = zip(self.layers, self.policy.policy.kinds(), neurons[1:], deltas, strict=True)
        for (W, _), kind, y, delta in reversed(list(layers)):
            if kind == "tanh":
                torch.mul(bar, 1.0 - y * y, out=delta)
            elif kind == "relu":
                torch.mul(bar, y > 0.0, out=delta)
            elif kind == "elu":
                torch.mul(bar, torch.where(y > 0.0, 1.0, 1.0 + y), out=delta)
            else:
                delta.copy_(bar)
            bar = delta @ W
        self._observe_vjp(t, bar)

    def _observe_vjp(self, t: int, bar: Tensor) -> None:
        """From the cotangent of the observations of step t, [B, n]."""
        program, view = self.loop.program, self.policy.view
        state = [x[t] for x in self.path]
        if self.inputs_bar is not None:
            self.inputs_bar[t] = bar[:, view.size :]
        bar = bar[:, : view.size]
        if view.poses and self.loop.constants is None and program.quick(len(bar), integrates=False):
            self._add(observe_vjp(program, view, state, bar))
            return
        sizes = (*program.state_sizes, program.size("npose")) if view.poses else program.state_sizes
        parts = view.vjp(bar, sizes)
        self._add(parts[: len(state)])
        if view.poses:
            self._poses_vjp(state, parts[-1])

    def _poses_vjp(self, state: list[Tensor], bar: Tensor) -> None:
        """From the cotangent of the poses, [B, npose]."""
        loop, states = self.loop, tuple(x.unsqueeze(0) for x in state)
        request, tensors = request_of(loop.program, POSES, states, loop.constants, loop.parameters)
        wanted = ("constants_bar",) if self.want_constants else ()
        bars = Residuals.of(request, tensors, {}, None).vjp((bar.unsqueeze(0),), wanted, execute.vjp)
        self._add([bars[name][0] for name in NAMES])
        if self.constants_bar is not None:
            self.constants_bar += bars["constants"]
