"""Any function of the state, called between steps: autograd records what it does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ...model import State
from ..autograd import first_only
from ..call import Call
from ..residuals import zeros
from ..result import RolloutResult
from .stepper import Loop, OneStep, Stepper, step_vjp


def between_steps(call: Call, loop: Loop, policy: Callable[[State, int], Tensor]) -> tuple[RolloutResult, Tensor]:
    """Call the policy before every step; autograd records what it does, and a node for every step.

    Returns the rollout, and its controls [T, B, nu].
    """
    stepper, truncate = Stepper(loop), loop.settings.truncate
    state = call.state
    as_given = not call.unbatched and call.device.type == "cpu"
    shape, dtype = (call.batch, call.model.nu), call.program.dtype
    states: list[tuple[Tensor, ...]] = [state]
    controls: list[Tensor] = []
    for t in range(loop.settings.steps):
        if truncate and t and t % truncate == 0:
            state = tuple(x.detach() for x in state)
        u = policy(State(*state) if as_given else State(*call.finished(*state, dim=0)), t)
        if not (as_given and isinstance(u, Tensor) and u.shape == shape and u.dtype is dtype and u.is_cpu):
            u = call.tensor("the policy's control", u, shape[1:])
        controls.append(u)
        wrench = None if loop.wrenches is None else loop.wrenches[t]
        state = _Step.apply(stepper, t, *state, u, wrench, loop.constants)
        states.append(state)
    stepper.report(wrenches=loop.wrenches)
    path = tuple(_Rows.apply(array, *rows) for array, rows in zip(stepper.path, zip(*states)))
    return RolloutResult(path, tuple(state), stepper.status), _Rows.apply(stepper.controls, *controls)


class _Step(torch.autograd.Function):
    """A step of a `Stepper`: its results are in the stepper's arrays. tensors: state, control, wrench, constants."""

    @staticmethod
    def forward(ctx: Any, stepper: Stepper, t: int, *tensors: Any) -> tuple[Tensor, ...]:
        stepper.controls[t] = tensors[-3]
        stepper.advance(t)
        ctx.program, ctx.parameters = stepper.loop.program, stepper.loop.parameters
        ctx.solution = None if stepper.solution is None else stepper.solution[t]
        ctx.save_for_backward(*tensors)
        ctx.set_materialize_grads(False)
        return tuple([path[t + 1].detach() for path in stepper.path])

    @staticmethod
    @first_only
    def backward(ctx: Any, *last_bars: Tensor | None) -> tuple:
        *state, control, wrench, constants = ctx.saved_tensors
        if all(bar is None for bar in last_bars):
            return (None,) * (2 + len(ctx.saved_tensors))
        step = OneStep(ctx.program, tuple(state), control, wrench, constants, ctx.parameters, ctx.solution)
        bars = [zeros(x.shape, x.dtype) if bar is None else bar for bar, x in zip(last_bars, state)]
        found = step_vjp(step, bars, want_constants=ctx.needs_input_grad[-1])
        return None, None, *found.state, found.control, found.wrench, found.constants


class _Rows(torch.autograd.Function):
    """An array whose rows are these tensors already."""

    @staticmethod
    def forward(ctx: Any, array: Tensor, *rows: Tensor) -> Tensor:
        return array.detach()

    @staticmethod
    def backward(ctx: Any, bar: Tensor) -> tuple:
        return None, *bar.unbind(0)
