"""Any function of the state, called between steps: autograd records what it does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ...model import State
from ..call import Call
from ..program import Program
from .setting import Outcome, first_only, or_zeros
from .stepper import Stepper, step_back


def between_steps(
    program: Program, call: Call, policy: Callable[[State, int], Tensor], wrenches: Tensor | None, steps: int,
    truncate: int,
) -> Outcome:  # fmt: skip
    """Call the policy before every step; autograd records what it does, and a node for every step."""
    stepper = Stepper(program, call.q, call.v, steps, wrenches, call.constants, call.names)
    q, v = call.q, call.v
    as_given = not call.unbatched and call.device.type == "cpu"
    shape = (call.batch, program.model.nu)
    states: list[Tensor] = [q, v]
    controls: list[Tensor] = []
    for t in range(steps):
        if truncate and t and t % truncate == 0:
            q, v = q.detach(), v.detach()
        u = policy(State(q, v) if as_given else State(*call.finished(q, v, dim=0)), t)
        if not (as_given and isinstance(u, Tensor) and u.shape == shape and u.dtype is q.dtype and u.is_cpu):
            u = call.tensor("the policy's control", u, shape[1:])
        controls.append(u)
        q, v = _Step.apply(stepper, t, q, v, u, None if wrenches is None else wrenches[t], call.constants)
        states += q, v
    stepper.report(q=call.q, v=call.v, wrenches=wrenches)
    path_q, path_v = _Rows.apply(stepper.path_q, *states[::2]), _Rows.apply(stepper.path_v, *states[1::2])
    return stepper.status, q, v, path_q, path_v, _Rows.apply(stepper.controls, *controls)


class _Step(torch.autograd.Function):
    """A step of a `Stepper`: its results are in the stepper's arrays."""

    @staticmethod
    def forward(
        ctx: Any, stepper: Stepper, t: int, q: Tensor, v: Tensor, u: Tensor, wrench: Any, constants: Any
    ) -> tuple[Tensor, Tensor]:
        stepper.controls[t] = u
        stepper.advance(t)
        ctx.program, ctx.names = stepper.program, stepper.names
        ctx.save_for_backward(q, v, u, wrench, constants)
        ctx.set_materialize_grads(False)
        return stepper.path_q[t + 1].detach(), stepper.path_v[t + 1].detach()

    @staticmethod
    @first_only
    def backward(ctx: Any, q_bar: Tensor | None, v_bar: Tensor | None) -> tuple:
        q, v, u, wrench, constants = ctx.saved_tensors
        if q_bar is None and v_bar is None:
            return (None,) * 7
        bars = or_zeros(q_bar, q.shape, q), or_zeros(v_bar, v.shape, v)
        want = ctx.needs_input_grad[6]
        q_bar, v_bar, u_bar, *others = step_back(ctx.program, ctx.names, q, v, u, wrench, constants, *bars, want)
        return None, None, q_bar, v_bar, u_bar, others[0] if wrench is not None else None, others[-1] if want else None


class _Rows(torch.autograd.Function):
    """An array whose rows are these tensors already."""

    @staticmethod
    def forward(ctx: Any, array: Tensor, *rows: Tensor) -> Tensor:
        return array.detach()

    @staticmethod
    def backward(ctx: Any, bar: Tensor) -> tuple:
        return None, *bar.unbind(0)
