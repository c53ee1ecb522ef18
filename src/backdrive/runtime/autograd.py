"""Derivatives of kernels: their vector-Jacobian products as functions of torch.autograd and torch.func.

`evaluate` runs any form that has an adjoint; tensors are named as in `schema.signatures`, and each has a batch. Inside
of torch.compile it is the operator of `operators`; elsewhere an autograd function: the dispatcher of registered
operators takes longer than a step of a small world, and torch.func does not see through it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from ..physics.kernels import KernelKey
from ..schema.signatures import ONE_STEP, ROLLOUT, Role, RolloutSettings
from . import execute, operators, quick
from .program import Program
from .request import Request
from .residuals import Residuals, mapped_at_once, refuse_second_derivatives, wanted_cotangents
from .result import RolloutResult
from .transforms import plain_backward, plain_call, traced, transformed
from .vmap import vmap_evaluate, vmap_vjp

if TYPE_CHECKING:
    from ..piles.world import PileRecord

Tensors = dict[str, Tensor]


def evaluate(request: Request, tensors: Tensors, keep_steps: bool = False) -> Tensors:
    """The results of a form, by their names, differentiable. See `execute.evaluate`."""
    if traced():
        results = operators.evaluate(request, tensors)
    elif transformed():  # (an _Evaluate says that it has no jvp)
        results = _Evaluate.apply(request, *tensors.values())
    elif torch.is_grad_enabled() and _any_requires_grad(*tensors.values()):
        results = _EvaluateOnce.apply(request, *tensors.values())
    else:
        return execute.evaluate(request, tensors, keep_steps)[0]
    return {a.name: x for a, x in zip(request.results(), results)}


def vjp(request: Request, tensors: Tensors, wanted: tuple[str, ...] = ()) -> Mapping[str, Tensor]:
    """`execute.vjp` for callers who have no use for a graph."""
    if traced():
        return operators.vjp(request, tensors, wanted, None)
    if torch._C._are_functorch_transforms_active():
        return _apply_vjp(request, tensors, wanted, None)
    return execute.vjp(request, tensors, wanted)


# ---------------------------------------------------------------------------------------------- functions


class _Evaluate(torch.autograd.Function):
    """For torch.func. The last result is the record of `execute.evaluate`, which is not a tensor."""

    @staticmethod
    def forward(request: Request, *tensors: Tensor) -> tuple:
        outputs, record = execute.evaluate(request, dict(zip(request.names, tensors)), request.keeps_solution)
        return *outputs.values(), record

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple, output: tuple) -> None:
        request, *tensors = inputs
        *outputs, record = output
        _keep(ctx, request, tensors, outputs, record)

    @staticmethod
    def backward(ctx: Any, *cotangents: Any) -> tuple:
        return _backward(ctx, cotangents[:-1])

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> None:
        raise NotImplementedError(
            "backdrive has no forward-mode derivatives (jvp, jacfwd, hessian): "
            "use reverse mode (backward, grad, jacrev), or Simulator.linearize"
        )

    @staticmethod
    def vmap(info: Any, in_dims: tuple, request: Request, *tensors: Tensor) -> tuple:
        return vmap_evaluate(_Evaluate.apply, info.batch_size, in_dims[1:], request, tensors)


class _EvaluateOnce(torch.autograd.Function):
    """The same in the old style, which torch.func cannot use: a call costs a third."""

    @staticmethod
    def forward(ctx: Any, request: Request, *tensors: Tensor) -> tuple[Tensor, ...]:
        given = dict(zip(request.names, tensors))
        execute.prepare_vjp(request, given, wanted_cotangents(request, ctx.needs_input_grad[1:]))
        outputs, record = execute.evaluate(request, given, keep_steps=True)
        results = tuple(outputs.values())
        _keep(ctx, request, tensors, results, record)
        return results

    @staticmethod
    def backward(ctx: Any, *cotangents: Any) -> tuple:
        return _backward(ctx, cotangents)


def _keep(
    ctx: Any, request: Request, tensors: Sequence[Tensor], results: Sequence[Tensor], record: PileRecord | None
) -> None:
    outputs = {a.name: x for a, x in zip(request.results(), results)}
    Residuals.of(request, dict(zip(request.names, tensors)), outputs, record).save(ctx)
    ctx.set_materialize_grads(False)
    ctx.mark_non_differentiable(*(outputs[a.name] for a in request.results() if a.role is not Role.OUTPUT))


def _backward(ctx: Any, cotangents: Sequence[Tensor | None]) -> tuple:
    request = ctx.request
    if all(bar is None for bar in cotangents):
        return (None,) * (1 + len(request.names))
    wanted = wanted_cotangents(request, ctx.needs_input_grad[1:])
    found = Residuals.load(ctx).vjp(cotangents, wanted, execute.vjp if plain_backward() else _apply_vjp)
    return None, *(found.get(name) for name in request.names)


class _Vjp(torch.autograd.Function):
    """The vector-Jacobian product as a function of its own: for torch.func, and to refuse second derivatives."""

    @staticmethod
    def forward(request: Request, wanted: str, record: PileRecord | None, *tensors: Tensor) -> tuple[Tensor, ...]:
        given = dict(zip(request.names, tensors))
        return tuple(execute.vjp(request, given, wanted.split(","), record).values())

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple, output: Sequence[Tensor]) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, *cotangents: Any) -> None:
        refuse_second_derivatives()

    @staticmethod
    def vmap(info: Any, in_dims: tuple, request: Request, wanted: str, record: Any, *tensors: Tensor) -> tuple:
        """Without the record, which is of the batch of the forward pass."""
        return vmap_vjp(_apply_flat, info.batch_size, in_dims[3:], (request, wanted), tensors)


def _apply_flat(request: Request, wanted: str, *tensors: Tensor) -> tuple[Tensor, ...]:
    return _Vjp.apply(request, wanted, None, *tensors)


def _apply_vjp(request: Request, tensors: Tensors, wanted: tuple[str, ...], record: PileRecord | None) -> Tensors:
    """`execute.vjp` as a function of torch.autograd."""
    results = _Vjp.apply(request.renamed(tensors), ",".join(wanted), record, *tensors.values())
    return {bar.name: x for (bar, _), x in zip(request.cotangents(tensors, wanted), results, strict=True)}


# ---------------------------------------------------------------------------------------------- short calls

_START = tuple(a.name for a in ROLLOUT.reads if not a.optional)  # of a rollout: the state, and the controls
_PATH = tuple(a.name for a in ROLLOUT.writes if a.start)


class _QuickStep(torch.autograd.Function):
    """A step that `quick.step` has computed already."""

    @staticmethod
    def forward(ctx: Any, program: Program, done: quick.QuickResult, *tensors: Tensor) -> tuple[Tensor, ...]:
        ctx.save_for_backward(*tensors)
        ctx.program, ctx.solution = program, done.solution
        ctx.set_materialize_grads(False)
        return done.last

    @staticmethod
    def backward(ctx: Any, *last_bars: Tensor | None) -> tuple:
        *state, u = ctx.saved_tensors
        if all(bar is None for bar in last_bars):
            return (None,) * (2 + len(ctx.saved_tensors))
        if plain_backward() and not mapped_at_once(last_bars):
            found = quick.step_vjp(ctx.program, state, u, last_bars, ctx.solution)
            if found is not None:
                return None, None, *found
        single = u.ndim == 1
        if single:
            state, u = [x.unsqueeze(0) for x in state], u.unsqueeze(0)
            last_bars = tuple(None if bar is None else bar.unsqueeze(0) for bar in last_bars)
        cotangents = (*last_bars, None)  # of the status
        solutions = None if ctx.solution is None else ctx.solution.unsqueeze(0)
        *state_bars, u_bar = _rollout_vjp(Kept(ctx.program, ONE_STEP, state, u.unsqueeze(0), solutions), cotangents)
        results = (*state_bars, u_bar.squeeze(0))
        return None, None, *(x.squeeze(0) if single else x for x in results)


class _QuickRollout(torch.autograd.Function):
    """A rollout that `quick.rollout` has computed already: the path, and the last state."""

    @staticmethod
    def forward(ctx: Any, program: Program, done: quick.QuickResult, *tensors: Tensor) -> tuple[Tensor, ...]:
        ctx.save_for_backward(*done.path, tensors[-1])
        ctx.program, ctx.solution = program, done.solution
        ctx.set_materialize_grads(False)
        return *done.path, *done.last

    @staticmethod
    def backward(ctx: Any, *cotangents: Tensor | None) -> tuple:
        *path, u = ctx.saved_tensors
        path_bars, last_bars = cotangents[: len(_PATH)], cotangents[len(_PATH) :]
        if all(bar is None for bar in cotangents):
            return (None,) * (2 + len(ctx.saved_tensors))
        last_only = all(bar is None for bar in path_bars)
        if last_only and plain_backward() and not mapped_at_once(last_bars):
            found = quick.rollout_vjp(ctx.program, path, u, last_bars, ctx.solution)
            if found is not None:
                return None, None, *found
        single = u.ndim == 2
        if single:
            path, u = [x.unsqueeze(1) for x in path], u.unsqueeze(1)
            cotangents = tuple(None if bar is None else bar.unsqueeze(-2) for bar in cotangents)
        kept = Kept(ctx.program, RolloutSettings(len(u)), path, u, ctx.solution)
        found = _rollout_vjp(kept, (*cotangents, None))
        return None, None, *(x.squeeze(-2) if single else x for x in found)


class Kept(NamedTuple):
    """What the backward pass of a short call starts from. states: the path, or the start of a rollout without.
    u [T, B, nu]. solution [T, B, n]: what the solvers of the steps found, None if adjoints do not want it."""

    program: Program
    settings: RolloutSettings
    states: Sequence[Tensor]
    u: Tensor
    solution: Tensor | None


def _rollout_vjp(kept: Kept, cotangents: Sequence[Tensor | None]) -> tuple[Tensor, ...]:
    """The cotangents of the start and of the controls."""
    request = Request(kept.program, ROLLOUT, _START, "", kept.settings)
    tensors = dict(zip((*_PATH, _START[-1]), (*kept.states, kept.u)))
    if kept.solution is not None:
        tensors["solution"] = kept.solution
    residuals = Residuals(request, tensors)
    found = residuals.vjp(cotangents, (), execute.vjp if plain_backward() else _apply_vjp)
    return tuple(found[name] for name in _START)


def _any_requires_grad(*tensors: Tensor) -> bool:
    for x in tensors:  # noqa: SIM110 (faster than any() of a generator)
        if x.requires_grad:
            return True
    return False


def quick_step(program: Program, state: Sequence[Tensor], u: Tensor) -> tuple[Tensor, ...] | None:
    """`quick.step`, differentiable; None where it does not apply."""
    if not plain_call():
        return None
    done = quick.step(program, state, u)
    if done is not None and torch.is_grad_enabled() and _any_requires_grad(*state, u):
        return _QuickStep.apply(program, done, *state, u)
    return done if done is None else done.last


def quick_rollout(program: Program, state: Sequence[Tensor], u: Tensor) -> RolloutResult | None:
    """`quick.rollout`, differentiable; None where it does not apply."""
    if not plain_call():
        return None
    recorded = torch.is_grad_enabled() and _any_requires_grad(*state, u)
    if recorded:
        program.kernels.prepare(KernelKey(ROLLOUT.adjoint, solution=program.solution_size > 0))
    done = quick.rollout(program, state, u, keep=recorded)
    if done is not None and recorded:
        n = len(done.path)
        results = _QuickRollout.apply(program, done, *state, u)
        return RolloutResult(results[:n], results[n:], done.status)
    return done if done is None else RolloutResult(done.path, done.last, done.status)


def first_only(backward: Callable[..., tuple]) -> Callable[..., tuple]:
    """For a backward pass that autograd cannot see into: its results refuse to be differentiated again."""

    def first(ctx: Any, *cotangents: Any) -> tuple:
        again = torch.is_grad_enabled()
        with torch.no_grad():
            results = backward(ctx, *cotangents)
        if not again:
            return results
        anchor = torch.zeros((), requires_grad=True)
        return tuple(None if x is None else _Refusing.apply(anchor, x) for x in results)

    return first


class _Refusing(torch.autograd.Function):
    """A gradient that cannot be differentiated."""

    @staticmethod
    def forward(ctx: Any, anchor: Tensor, gradient: Tensor) -> Tensor:
        return gradient.clone()

    backward = _Vjp.backward
