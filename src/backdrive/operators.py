"""The PyTorch operators ``torch.ops.backdrive.*``: the only place with autograd code.

All tensors have one dtype and live on the CPU; shapes are those of a batch. `program` is the number of a `Program`,
`parameters` the names of the parameters (separated by commas) that `constants` was assembled from; `constants` is None,
[nconst] or [B, nconst]. The first derivative of every operator is an operator again; that one has none.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Optional

import torch
from torch import Tensor

from .physics.poses import POSE
from .physics.rollout import STATUS
from .program import Program, _with_rows

# Optional[Tensor] (not Tensor | None) is what torch's schema inference understands in every version.


def _empty(like: Tensor, *shape: int) -> Tensor:
    return torch.empty(shape, dtype=like.dtype, device=like.device)


def _rows_for(constants: Tensor, batch: int) -> Tensor:
    """Space for the gradient with respect to the constants of every environment."""
    return torch.zeros(batch, constants.shape[-1], dtype=constants.dtype)


def _summed(gradient: Tensor | None, constants: Tensor | None) -> Tensor | None:
    """Of constants that all environments share, the sum; row after row, so that its bits do not depend on threads."""
    if gradient is None or constants is None or constants.ndim == 2:
        return gradient
    return torch.from_numpy(gradient.numpy().sum(axis=0, keepdims=False))


# ---------------------------------------------------------------------------------------------- rollout


@torch.library.custom_op("backdrive::rollout", mutates_args=())
def rollout(
    q: Tensor, v: Tensor, controls: Tensor, wrenches: Optional[Tensor], constants: Optional[Tensor],  # noqa: UP045
    program: int, parameters: str, steps: int, every: int, truncate: int, with_start: bool,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """(path_q, path_v, status): the state after every `every` steps and the last, [S, B, n]; `with_start`: [S + 1, B, n]."""
    batch, rows, first = q.shape[0], -(-steps // every), int(with_start)
    path_q, path_v = _empty(q, rows + first, batch, q.shape[1]), _empty(v, rows + first, batch, v.shape[1])
    status = _empty(q, steps, batch, STATUS)
    if with_start:
        path_q[0], path_v[0] = q, v
    arrays = {
        "q": _with_rows(q), "v": _with_rows(v), "controls": _with_rows(controls),
        "wrenches": None if wrenches is None else _with_rows(wrenches),
        "path_q": path_q[first:], "path_v": path_v[first:], "status": status,
    }  # fmt: skip
    Program.of(program).run("rollout", batch, arrays, {"steps": steps, "every": every}, constants, parameters)
    return path_q, path_v, status


@rollout.register_fake
def _(q, v, controls, wrenches, constants, program, parameters, steps, every, truncate, with_start):
    rows = -(-steps // every) + int(with_start)
    batch = q.shape[0]
    return (
        q.new_empty(rows, batch, q.shape[1]), v.new_empty(rows, batch, v.shape[1]), q.new_empty(steps, batch, STATUS)
    )  # fmt: skip


@torch.library.custom_op("backdrive::rollout_backward", mutates_args=())
def rollout_backward(
    path_q_bar: Tensor, path_v_bar: Tensor, path_q: Tensor, path_v: Tensor, controls: Tensor,
    wrenches: Optional[Tensor], constants: Optional[Tensor],  # noqa: UP045
    program: int, parameters: str, every: int, truncate: int, want_wrenches: bool, want_constants: bool,
) -> list[Tensor]:  # fmt: skip
    """Gradients with respect to q, v, controls, and, if wanted, wrenches and constants. `path` are the states before steps."""
    steps, batch = controls.shape[0], path_q.shape[1]
    q_bar, v_bar = _empty(path_q, batch, path_q.shape[2]), _empty(path_v, batch, path_v.shape[2])
    controls_bar = _empty(controls, *controls.shape)
    wrenches_bar = _empty(wrenches, *wrenches.shape) if wrenches is not None else None
    wanted = constants is not None and want_constants
    constants_bar = _rows_for(constants, batch) if constants is not None and want_constants else None
    arrays = {
        "path_q": _with_rows(path_q), "path_v": _with_rows(path_v), "controls": _with_rows(controls),
        "wrenches": None if wrenches is None else _with_rows(wrenches),
        "path_q_bar": _with_rows(path_q_bar), "path_v_bar": _with_rows(path_v_bar),
        "q_bar": q_bar, "v_bar": v_bar, "controls_bar": controls_bar, "wrenches_bar": wrenches_bar,
        "constants_bar": constants_bar,
    }  # fmt: skip
    integers = {"steps": steps, "truncate": truncate or steps + 1}
    form = "rollout_adjoint" if every == 1 else "checkpoint_adjoint"
    if every > 1:
        integers["every"] = every
    Program.of(program).run(form, batch, arrays, integers, constants, parameters)
    result = [q_bar, v_bar, controls_bar]
    if want_wrenches and wrenches_bar is not None:
        result.append(wrenches_bar)
    if wanted:
        result.append(_summed(constants_bar, constants))
    return result


@rollout_backward.register_fake
def _(
    path_q_bar, path_v_bar, path_q, path_v, controls, wrenches, constants,
    program, parameters, every, truncate, want_wrenches, want_constants,
):  # fmt: skip
    result = [path_q.new_empty(path_q.shape[1:]), path_v.new_empty(path_v.shape[1:]), torch.empty_like(controls)]
    if want_wrenches:
        result.append(torch.empty_like(wrenches))
    if want_constants:
        result.append(torch.empty_like(constants))
    return result


def _rollout_context(ctx, inputs, output):
    q, v, controls, wrenches, constants, *ctx.settings = inputs
    path_q, path_v, status = output
    ctx.mark_non_differentiable(status)
    with_start = ctx.settings[-1]
    states = (path_q, path_v) if with_start else (q[None], v[None])
    ctx.save_for_backward(*states, controls, wrenches, constants)


def _rollout_gradient(ctx, path_q_bar, path_v_bar, _):
    path_q, path_v, controls, wrenches, constants = ctx.saved_tensors
    program, parameters, _, every, truncate, with_start = ctx.settings
    wants = ctx.needs_input_grad
    first = int(with_start)
    if with_start:
        path_q, path_v = path_q[:-1], path_v[:-1]
    bars = list(torch.ops.backdrive.rollout_backward(
        path_q_bar[first:], path_v_bar[first:], path_q, path_v, controls, wrenches, constants,
        program, parameters, every, truncate, wants[3], wants[4],
    ))  # fmt: skip
    q_bar, v_bar, controls_bar = bars[:3]
    if with_start:
        q_bar, v_bar = q_bar + path_q_bar[0], v_bar + path_v_bar[0]
    wrenches_bar = bars[3] if wants[3] else None
    constants_bar = bars[-1] if wants[4] else None
    return q_bar, v_bar, controls_bar, wrenches_bar, constants_bar, None, None, None, None, None, None


rollout.register_autograd(_rollout_gradient, setup_context=_rollout_context)


# ---------------------------------------------------------------------------------------------- forward, inverse, poses


@torch.library.custom_op("backdrive::forward", mutates_args=())
def forward(
    q: Tensor, v: Tensor, controls: Tensor, wrenches: Optional[Tensor], constants: Optional[Tensor],  # noqa: UP045
    program: int, parameters: str,
) -> Tensor:  # fmt: skip
    """v̇ [B, nv] of q, v, controls and wrenches."""
    vdot = _empty(v, *v.shape)
    arrays = {
        "q": _with_rows(q), "v": _with_rows(v), "controls": _with_rows(controls),
        "wrenches": None if wrenches is None else _with_rows(wrenches), "vdot": vdot,
    }  # fmt: skip
    Program.of(program).run("forward", len(q), arrays, {}, constants, parameters)
    return vdot


@forward.register_fake
def _(q, v, controls, wrenches, constants, program, parameters):
    return torch.empty_like(v)


@torch.library.custom_op("backdrive::forward_backward", mutates_args=())
def forward_backward(
    vdot_bar: Tensor, q: Tensor, v: Tensor, controls: Tensor, wrenches: Optional[Tensor],  # noqa: UP045
    constants: Optional[Tensor], program: int, parameters: str, want_wrenches: bool, want_constants: bool,  # noqa: UP045
) -> list[Tensor]:  # fmt: skip
    q_bar, v_bar, controls_bar = _empty(q, *q.shape), _empty(v, *v.shape), _empty(controls, *controls.shape)
    wrenches_bar = _empty(wrenches, *wrenches.shape) if wrenches is not None else None
    constants_bar = _rows_for(constants, len(q)) if constants is not None and want_constants else None
    arrays = {
        "q": _with_rows(q), "v": _with_rows(v), "controls": _with_rows(controls),
        "wrenches": None if wrenches is None else _with_rows(wrenches), "vdot_bar": _with_rows(vdot_bar),
        "q_bar": q_bar, "v_bar": v_bar, "controls_bar": controls_bar, "wrenches_bar": wrenches_bar,
        "constants_bar": constants_bar,
    }  # fmt: skip
    Program.of(program).run("forward_adjoint", len(q), arrays, {}, constants, parameters)
    result = [q_bar, v_bar, controls_bar]
    if want_wrenches and wrenches_bar is not None:
        result.append(wrenches_bar)
    if constants_bar is not None:
        result.append(_summed(constants_bar, constants))
    return result


@forward_backward.register_fake
def _(vdot_bar, q, v, controls, wrenches, constants, program, parameters, want_wrenches, want_constants):
    extra = [wrenches] * want_wrenches + [constants] * want_constants
    return [torch.empty_like(x) for x in (q, v, controls, *extra)]


def _forward_context(ctx, inputs, output):
    *tensors, ctx.program, ctx.parameters = inputs
    ctx.save_for_backward(*tensors)


def _forward_gradient(ctx, vdot_bar):
    wants = ctx.needs_input_grad
    bars = torch.ops.backdrive.forward_backward(
        vdot_bar, *ctx.saved_tensors, ctx.program, ctx.parameters, wants[3], wants[4]
    )
    return (*bars[:3], bars[3] if wants[3] else None, bars[-1] if wants[4] else None, None, None)


forward.register_autograd(_forward_gradient, setup_context=_forward_context)


@torch.library.custom_op("backdrive::inverse", mutates_args=())
def inverse(
    q: Tensor, v: Tensor, vdot: Tensor, constants: Optional[Tensor], program: int, parameters: str  # noqa: UP045
) -> Tensor:  # fmt: skip
    """τ [B, nv] = M(q) v̇ + c(q, v)."""
    tau = _empty(v, *v.shape)
    arrays = {"q": _with_rows(q), "v": _with_rows(v), "vdot": _with_rows(vdot), "tau": tau}
    Program.of(program).run("inverse", len(q), arrays, {}, constants, parameters)
    return tau


@inverse.register_fake
def _(q, v, vdot, constants, program, parameters):
    return torch.empty_like(v)


@torch.library.custom_op("backdrive::inverse_backward", mutates_args=())
def inverse_backward(
    tau_bar: Tensor, q: Tensor, v: Tensor, vdot: Tensor, constants: Optional[Tensor],  # noqa: UP045
    program: int, parameters: str, want_constants: bool,
) -> list[Tensor]:  # fmt: skip
    q_bar, v_bar, vdot_bar = _empty(q, *q.shape), _empty(v, *v.shape), _empty(v, *v.shape)
    constants_bar = _rows_for(constants, len(q)) if constants is not None and want_constants else None
    arrays = {
        "q": _with_rows(q), "v": _with_rows(v), "vdot": _with_rows(vdot), "tau_bar": _with_rows(tau_bar),
        "q_bar": q_bar, "v_bar": v_bar, "vdot_bar": vdot_bar, "constants_bar": constants_bar,
    }  # fmt: skip
    Program.of(program).run("inverse_adjoint", len(q), arrays, {}, constants, parameters)
    return [q_bar, v_bar, vdot_bar, *([_summed(constants_bar, constants)] if constants_bar is not None else [])]


@inverse_backward.register_fake
def _(tau_bar, q, v, vdot, constants, program, parameters, want_constants):
    return [torch.empty_like(x) for x in (q, v, vdot, *([constants] * want_constants))]


def _inverse_gradient(ctx, tau_bar):
    wanted = ctx.needs_input_grad[3]
    bars = torch.ops.backdrive.inverse_backward(tau_bar, *ctx.saved_tensors, ctx.program, ctx.parameters, wanted)
    return (*bars[:3], bars[-1] if wanted else None, None, None)


inverse.register_autograd(_inverse_gradient, setup_context=_forward_context)


@torch.library.custom_op("backdrive::poses", mutates_args=())
def poses(
    q: Tensor, v: Tensor, constants: Optional[Tensor], program: int, parameters: str  # noqa: UP045
) -> Tensor:  # fmt: skip
    """[T, B, nlink * 18] of q, v [T, B, n]: rotation (9), position, angular velocity, velocity of links, in world axes."""
    times, batch = q.shape[:2]
    out = _empty(q, times, batch, Program.of(program).model.nlink * sum(POSE))
    arrays = {"q": _with_rows(q), "v": _with_rows(v), "out": out}
    Program.of(program).run("poses", batch, arrays, {"times": times}, constants, parameters)
    return out


@poses.register_fake
def _(q, v, constants, program, parameters):
    return q.new_empty(*q.shape[:2], Program.of(program).model.nlink * sum(POSE))


@torch.library.custom_op("backdrive::poses_backward", mutates_args=())
def poses_backward(
    out_bar: Tensor, q: Tensor, v: Tensor, constants: Optional[Tensor],  # noqa: UP045
    program: int, parameters: str, want_constants: bool,
) -> list[Tensor]:  # fmt: skip
    times, batch = q.shape[:2]
    q_bar, v_bar = _empty(q, *q.shape), _empty(v, *v.shape)
    constants_bar = _rows_for(constants, batch) if constants is not None and want_constants else None
    arrays = {
        "q": _with_rows(q), "v": _with_rows(v), "out_bar": _with_rows(out_bar),
        "q_bar": q_bar, "v_bar": v_bar, "constants_bar": constants_bar,
    }  # fmt: skip
    Program.of(program).run("poses_adjoint", batch, arrays, {"times": times}, constants, parameters)
    return [q_bar, v_bar, *([_summed(constants_bar, constants)] if constants_bar is not None else [])]


@poses_backward.register_fake
def _(out_bar, q, v, constants, program, parameters, want_constants):
    return [torch.empty_like(x) for x in (q, v, *([constants] * want_constants))]


def _poses_gradient(ctx, out_bar):
    wanted = ctx.needs_input_grad[2]
    bars = torch.ops.backdrive.poses_backward(out_bar, *ctx.saved_tensors, ctx.program, ctx.parameters, wanted)
    return (*bars[:2], bars[-1] if wanted else None, None, None)


poses.register_autograd(_poses_gradient, setup_context=_forward_context)


# ---------------------------------------------------------------------------------------------- second derivatives


def _no_second_derivative(name: str) -> Callable[..., Any]:
    def backward(ctx, *bars):
        raise RuntimeError(
            f"backdrive has first derivatives only: the gradient of '{name}' was differentiated again (create_graph=True, "
            "or a Hessian). Use finite differences of gradients, or Simulator.linearize for Gauss-Newton approximations"
        )

    return backward


def _nothing(ctx, inputs, output):
    pass


for _operator in (rollout_backward, forward_backward, inverse_backward, poses_backward):
    _operator.register_autograd(_no_second_derivative(_operator._name), setup_context=_nothing)


# ---------------------------------------------------------------------------------------------- vmap
# A mapped dimension becomes part of the batch. `in_batch`: where the batch is in each tensor argument; None: the constants.


def _fold(x: Tensor, dim: int | None, size: int, at: int) -> Tensor:
    """Merge the mapped dimension `dim` (None: not mapped) of x into its batch dimension `at`."""
    if dim is None:
        x = x.unsqueeze(at).expand(*x.shape[:at], size, *x.shape[at:])
    else:
        x = x.movedim(dim, at)
    return x.flatten(at, at + 1)


def _fold_constants(x: Tensor, dim: int | None, size: int, batch: int) -> Tensor:
    if dim is not None and x.ndim == 2:  # [size, nconst] in effect: one vector per mapped element
        return x.movedim(dim, 0).repeat_interleave(batch, 0)
    return x if dim is None and x.ndim == 1 else _fold(x, dim, size, 0)


def _map(operator: Any, in_batch: Sequence[int | None], out_batch: Sequence[int]) -> None:
    def mapped(info: Any, in_dims: tuple, *args: Any) -> Any:
        first = args[0].movedim(in_dims[0], 0)[0] if in_dims[0] is not None else args[0]
        batch = first.shape[in_batch[0]]
        folded = list(args)
        for k, at in enumerate(in_batch):
            if args[k] is None:
                continue
            if at is None:
                folded[k] = _fold_constants(args[k], in_dims[k], info.batch_size, batch)
            else:
                folded[k] = _fold(args[k], in_dims[k], info.batch_size, at)
        result = operator(*folded)
        single = isinstance(result, Tensor)
        outputs = [result] if single else list(result)
        dims = [*out_batch, *[0] * (len(outputs) - len(out_batch))]
        unfolded = [y.unflatten(d, (info.batch_size, batch)) for y, d in zip(outputs, dims, strict=True)]
        return (unfolded[0], dims[0]) if single else (type(result)(unfolded), type(result)(dims))

    operator.register_vmap(mapped)


_map(rollout, (0, 0, 1, 1, None), (1, 1, 1))
_map(forward, (0, 0, 0, 0, None), (0,))
_map(inverse, (0, 0, 0, None), (0,))
_map(poses, (1, 1, None), (1,))
