"""A network that torch evaluates, whose matrix products are faster for large ones.

Only the states are kept: the backward pass computes the neurons of some steps at once, and from these the gradients of
the weights.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ...physics.tree.poses import POSE
from .. import execute as evaluation
from ..pages import empty
from .observing import look_back
from .setting import Outcome, Setting, first_only, weights_by_name
from .stepper import Stepper, step_back

CHUNK = 512  # rows (steps x environments) whose neurons the backward pass keeps at a time


def by_torch(
    setting: Setting, q: Tensor, v: Tensor, inputs: Tensor | None, wrenches: Tensor | None, constants: Tensor | None
) -> Outcome:
    """Step by step; the derivative of the whole is one node of autograd's graph."""
    weights = [x for layer in setting.policy.linear for x in (layer.weight, layer.bias)]
    return _ByTorch.apply(setting, q, v, inputs, wrenches, constants, *weights)


def _poses(setting: Setting, q: Tensor, v: Tensor, constants: Tensor | None) -> Tensor | None:
    """[C, B, n] of q [C, B, nq]"""
    if not setting.seen.poses:
        return None
    if constants is None and len(q) == 1:
        poses = evaluation.quick_poses(setting.program, q[0], v[0])
        if poses is not None:
            return poses.unsqueeze(0)
    number, names = setting.program.number, setting.names
    return evaluation.evaluate("poses", q, v, None, None, constants, number, names, [])[0]


class _ByTorch(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, setting: Setting, q: Tensor, v: Tensor, inputs: Any, wrenches: Any, constants: Any, *weights: Any
    ) -> Outcome:
        stepper = Stepper(setting.program, q, v, setting.steps, wrenches, constants, setting.names)
        for t in range(setting.steps):
            x = _observations(setting, stepper.path_q, stepper.path_v, inputs, constants, slice(t, t + 1))
            stepper.controls[t] = setting.policy(x[0])
            stepper.advance(t)
        stepper.report(q=q, v=v, inputs=inputs, wrenches=wrenches, **weights_by_name(setting.policy))
        path = stepper.path_q, stepper.path_v, stepper.controls
        ctx.setting = setting
        ctx.save_for_backward(*path, inputs, wrenches, constants, *weights)
        ctx.set_materialize_grads(False)
        ctx.mark_non_differentiable(stepper.status)
        return stepper.status, path[0][-1].clone(), path[1][-1].clone(), *path

    @staticmethod
    @first_only
    def backward(ctx: Any, *bars: Tensor | None) -> tuple:
        return (None, *_ByTorchBack(ctx.setting, ctx.saved_tensors, bars, ctx.needs_input_grad[5]).gradients())


def _observations(
    setting: Setting, path_q: Tensor, path_v: Tensor, inputs: Tensor | None, constants: Tensor | None, steps: slice
) -> Tensor:
    """[C, B, sizes[0]] of some steps."""
    q, v = path_q[steps], path_v[steps]
    x = setting.seen.observe(q, v, _poses(setting, q, v, constants))
    return x if inputs is None else torch.cat([x, inputs[steps]], -1)


class _ByTorchBack:
    """The way back over a rollout of a network that torch evaluates."""

    def __init__(
        self, setting: Setting, saved: Sequence[Any], bars: Sequence[Tensor | None], want_constants: bool
    ) -> None:
        self.setting, self.want_constants = setting, want_constants
        self.q, self.v, self.u, self.inputs, self.wrenches, self.constants, *weights = saved
        self.layers = list(zip(weights[::2], weights[1::2], strict=True))
        _, last_q_bar, last_v_bar, self.path_q_bar, self.path_v_bar, self.controls_bar = bars
        self.q_bar = torch.zeros_like(self.q[0]) if last_q_bar is None else last_q_bar.clone()
        self.v_bar = torch.zeros_like(self.v[0]) if last_v_bar is None else last_v_bar.clone()
        self.totals = [[None if x is None else torch.zeros_like(x) for x in layer] for layer in self.layers]
        self.inputs_bar, self.wrenches_bar = (
            None if x is None else empty(x.shape, x.dtype) for x in (self.inputs, self.wrenches)
        )
        self.constants_bar = torch.zeros_like(self.constants) if want_constants else None

    def gradients(self) -> list[Tensor | None]:
        rows, steps = max(1, CHUNK // self.q.shape[1]), self.setting.steps
        for end in range(steps, 0, -rows):
            self._chunk(max(0, end - rows), end)
        self._receive(0)
        weights = [x for total in self.totals for x in total]
        return [self.q_bar, self.v_bar, self.inputs_bar, self.wrenches_bar, self.constants_bar, *weights]

    def _receive(self, t: int) -> None:
        """What the loss says about state t itself."""
        if self.path_q_bar is not None:
            self.q_bar = self.q_bar + self.path_q_bar[t]
        if self.path_v_bar is not None:
            self.v_bar = self.v_bar + self.path_v_bar[t]

    def _chunk(self, start: int, end: int) -> None:
        """Back over the steps from `start` to `end`, whose neurons are computed again, all at once."""
        setting, span = self.setting, slice(start, end)
        neurons = [_observations(setting, self.q, self.v, self.inputs, self.constants, span)]
        for (W, b), kind in zip(self.layers, setting.policy.kinds(), strict=True):
            y = torch.nn.functional.linear(neurons[-1], W, b)
            neurons.append(y if kind == "linear" else y.tanh_() if kind == "tanh" else y.relu_())
        deltas = [torch.empty_like(y) for y in neurons[1:]]
        for t in range(end - 1, start - 1, -1):
            truncate = setting.truncate
            if truncate and (t + 1) % truncate == 0 and t + 1 < setting.steps:
                self.q_bar, self.v_bar = torch.zeros_like(self.q_bar), torch.zeros_like(self.v_bar)
            self._receive(t + 1)
            self._step(t, [y[t - start] for y in neurons], [delta[t - start] for delta in deltas])
        for (W_bar, b_bar), x, delta in zip(self.totals, neurons[:-1], deltas, strict=True):
            delta = delta.flatten(0, 1)
            assert W_bar is not None
            W_bar.addmm_(delta.t(), x.flatten(0, 1))
            if b_bar is not None:
                b_bar += delta.sum(0)

    def _step(self, t: int, neurons: list[Tensor], deltas: list[Tensor]) -> None:
        """Back over step t; fills deltas [B, n], the gradients with respect to W x of the layers."""
        setting, program = self.setting, self.setting.program
        wrench = None if self.wrenches is None else self.wrenches[t]
        self.q_bar, self.v_bar, bar, *others = step_back(
            program, setting.names, self.q[t], self.v[t], self.u[t], wrench, self.constants, self.q_bar, self.v_bar,
            self.want_constants,
        )  # fmt: skip
        if self.wrenches_bar is not None:
            self.wrenches_bar[t] = others[0]
        if self.constants_bar is not None:
            self.constants_bar += others[-1]
        if self.controls_bar is not None:
            bar += self.controls_bar[t]
        layers = zip(self.layers, setting.policy.kinds(), neurons[1:], deltas, strict=True)
        for (W, _), kind, y, delta in reversed(list(layers)):
            if kind == "tanh":
                torch.mul(bar, 1.0 - y * y, out=delta)
            elif kind == "relu":
                torch.mul(bar, y > 0.0, out=delta)
            else:
                delta.copy_(bar)
            bar = delta @ W
        self._look_back(t, bar)

    def _look_back(self, t: int, bar: Tensor) -> None:
        """From the gradient with respect to the observations of step t, [B, n]."""
        setting, model = self.setting, self.setting.program.model
        size, nq, nv = setting.seen.size, model.nq, model.nv
        if self.inputs_bar is not None:
            self.inputs_bar[t] = bar[:, size:]
        poses = bool(setting.seen.poses)
        if poses and self.constants is None and setting.program.quick(len(bar)):
            q_bar, v_bar = look_back(setting.program, setting.seen, self.q[t], self.v[t], bar[:, :size])
            self.q_bar, self.v_bar = self.q_bar + q_bar, self.v_bar + v_bar
            return
        numbers = setting.seen.pull_back(bar[:, :size], nq + nv + poses * model.nlink * sum(POSE))
        self.q_bar, self.v_bar = self.q_bar + numbers[:, :nq], self.v_bar + numbers[:, nq : nq + nv]
        if poses:
            q, v, bar = self.q[t : t + 1], self.v[t : t + 1], numbers[None, :, nq + nv :]
            number, names, want = setting.program.number, setting.names, self.want_constants
            q_bar, v_bar, *others = evaluation.pull_back(
                "poses", q, v, None, None, self.constants, number, names, [], want, bar
            )
            self.q_bar, self.v_bar = self.q_bar + q_bar[0], self.v_bar + v_bar[0]
            if self.constants_bar is not None:
                self.constants_bar += others[0]
