"""Any function of the state, called between steps: autograd records what it does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ...model import State
from ...policy import MLP
from ..autograd import first_only
from ..call import Call
from ..residuals import zeros
from ..result import RolloutResult
from .observing import observe
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


def deciding(
    call: Call, loop: Loop, policy: MLP, inputs: Tensor | None, noise: Tensor | None
) -> Callable[[State, int], Tensor]:
    """A network as a function of state and time. inputs [D, B, k], noise [D, B, nu]: of its D decisions."""
    held: list[Tensor] = []

    def function(state: State, t: int) -> Tensor:
        if t % policy.hold == 0:
            number, rows = t // policy.hold, [x.unsqueeze(0) if call.unbatched else x for x in state]
            seen = [observe(loop.program, rows, policy.sensors, loop.constants, loop.parameters)]
            x = torch.cat([*seen, *([] if inputs is None else [inputs[number]])], -1)
            if loop.clip is not None:  # as in kernels: those of an environment that is lost reach no weight
                x = torch.where(torch.isfinite(x), x, 0.0)
            push = None if noise is None else noise[number].to(policy.dtype)
            u = policy(x.to(policy.dtype), push).to(loop.program.dtype)
            held[:] = [u.squeeze(0) if call.unbatched else u]
        return held[0]

    return function


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
        ctx.clip, ctx.t = stepper.loop.clip, t
        return tuple([path[t + 1].detach() for path in stepper.path])

    @staticmethod
    @first_only
    def backward(ctx: Any, *last_bars: Tensor | None) -> tuple:
        *state, control, wrench, constants = ctx.saved_tensors
        if all(bar is None for bar in last_bars):
            return (None,) * (2 + len(ctx.saved_tensors))
        step = OneStep(ctx.program, tuple(state), control, wrench, constants, ctx.parameters, ctx.solution)
        bars = [zeros(x.shape, x.dtype) if bar is None else bar for bar, x in zip(last_bars, state)]
        if ctx.clip is not None:
            bars = ctx.clip.limited(ctx.t, bars)
        found = step_vjp(step, bars, want_constants=ctx.needs_input_grad[-1])
        if ctx.clip is not None:
            found = found.kept(ctx.clip, ctx.t)
        return None, None, *found.state, found.control, found.wrench, found.constants


class _Rows(torch.autograd.Function):
    """An array whose rows are these tensors already."""

    @staticmethod
    def forward(ctx: Any, array: Tensor, *rows: Tensor) -> Tensor:
        return array.detach()

    @staticmethod
    def backward(ctx: Any, bar: Tensor) -> tuple:
        return None, *bar.unbind(0)
