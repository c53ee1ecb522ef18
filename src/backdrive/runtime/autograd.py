"""The PyTorch operator ``torch.ops.backdrive.evaluate``: the place with autograd code (but `sparse.forces`).

One operator serves every form of kernel that has a derivative ("rollout", "forces", "forward", "inverse", "poses"), on
tensors of one dtype on the CPU, with a batch:

    q [B, nq], v [B, nv]    the state (poses, forces: [T, B, n])
    x                       controls [T, B, nu] (rollout, forces), [B, nu] (forward), or None; accelerations [B, nv]
                            (inverse)
    wrenches                [T, B, 6 nlink] (rollout, forces), [B, 6 nlink] (forward), or None
    constants               [nconst] or [B, nconst], assembled from `parameters` (names, separated by commas), or None
    program                 the number of a `Program`
    settings                of a rollout: steps, every, truncate, and whether the path is wanted or only its end

Its derivative ``pull_back`` has none itself. Outside of torch.compile the same functions run as autograd functions: the
dispatcher of registered operators takes longer than a step of a small world, and torch.func does not see through it.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import SimpleNamespace
from typing import Any, Optional

import torch
from torch import Tensor
from torch.autograd import forward_ad

from . import execute as evaluation
from .execute import output_shapes
from .program import Program
from .vmap import vmap_evaluate, vmap_pull_back

ONE_STEP = (1, 1, 0, 0)  # settings of a rollout: one step, and only its end


# ---------------------------------------------------------------------------------------------- autograd


class _Evaluate(torch.autograd.Function):
    @staticmethod
    def forward(*inputs: Any) -> tuple[Tensor, ...]:
        return tuple(evaluation.evaluate(*inputs))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple, output: Sequence[Tensor]) -> None:
        _keep(ctx, inputs, output)
        ctx.set_materialize_grads(False)
        if inputs[0] == "rollout":
            ctx.mark_non_differentiable(output[0])

    @staticmethod
    def backward(ctx: Any, *bars: Tensor) -> tuple:
        plain = not torch.is_grad_enabled() and not torch._C._are_functorch_transforms_active()
        return _differentiate(ctx, bars, evaluation.pull_back if plain else _PullBack.apply)

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> None:
        raise NotImplementedError(
            "backdrive has no forward-mode derivatives (jvp, jacfwd, hessian): "
            "use reverse mode (backward, grad, jacrev), or Simulator.linearize"
        )

    @staticmethod
    def vmap(info: Any, in_dims: tuple, *args: Any) -> tuple:
        return vmap_evaluate(_Evaluate.apply, info, in_dims, *args)


class _QuickEvaluate(torch.autograd.Function):
    """The same in the old style, which torch.func cannot use: a call costs a third."""

    @staticmethod
    def forward(ctx: Any, *inputs: Any) -> tuple[Tensor, ...]:
        _prepare_adjoint(*inputs)
        outputs = tuple(evaluation.evaluate(*inputs))
        _Evaluate.setup_context(ctx, inputs, outputs)
        return outputs

    backward = _Evaluate.backward


def _prepare_adjoint(
    form: str, q: Tensor, v: Tensor, x: Tensor | None, wrenches: Tensor | None, constants: Tensor | None, program: int,
    parameters: str, settings: Sequence[int],
) -> None:  # fmt: skip
    """Have the kernel of a rollout's adjoint built while its own is."""
    if form == "rollout":
        kernel = "checkpoint_adjoint" if settings[1] > 1 else "rollout_adjoint"
        learned, batched = False, False
        if constants is not None:
            learned, batched = constants.requires_grad, constants.ndim == 2
        Program.of(program).prepare(kernel, wrenches is not None, learned, batched, parameters)


class _QuickStep(torch.autograd.Function):
    """A step that `evaluation.quick_step` has computed already."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, v: Tensor, u: Tensor, owner: Program, outcome: list) -> tuple[Tensor, ...]:
        ctx.save_for_backward(q, v, u)
        ctx.owner = owner
        ctx.set_materialize_grads(False)
        return outcome[0], outcome[1]

    @staticmethod
    def backward(ctx: Any, *bars: Tensor | None) -> tuple:
        plain = not torch.is_grad_enabled() and not torch._C._are_functorch_transforms_active()
        if plain and any(bar is not None for bar in bars) and not _mapped_at_once(bars):
            gradients = evaluation.quick_step_back(ctx.owner, *ctx.saved_tensors, *bars)
            if gradients is not None:
                return *gradients, None, None
        single = ctx.saved_tensors[0].ndim == 1
        q, v, u = (x.unsqueeze(0) if single else x for x in ctx.saved_tensors)
        rollout = SimpleNamespace(
            form="rollout", settings=ONE_STEP, program=ctx.owner.number, parameters="", needs_input_grad=(False,) * 9,
            saved_tensors=(q, v, u.unsqueeze(0), None, None),
        )  # fmt: skip
        bars = tuple(bar.unsqueeze(0) if bar is not None and single else bar for bar in bars)
        gradients = _differentiate(rollout, (None, *bars), evaluation.pull_back if plain else _PullBack.apply)
        if gradients[1] is None:
            return (None,) * 5
        q_bar, v_bar, u_bar = gradients[1], gradients[2], gradients[3].squeeze(0)
        return *((x.squeeze(0) if single else x) for x in (q_bar, v_bar, u_bar)), None, None


def quick_step(owner: Program, q: Tensor, v: Tensor, u: Tensor) -> tuple[Tensor, ...] | None:
    """`evaluation.quick_step`, differentiable; None where it does not apply."""
    if not plain_call():
        return None
    outcome = evaluation.quick_step(owner, q, v, u)
    if outcome is not None and torch.is_grad_enabled() and (q.requires_grad or v.requires_grad or u.requires_grad):
        return _QuickStep.apply(q, v, u, owner, list(outcome))
    return outcome


class _QuickRollout(torch.autograd.Function):
    """A rollout that `evaluation.quick_rollout` has computed already: the last state, and the path."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, v: Tensor, u: Tensor, owner: Program, outcome: list) -> tuple[Tensor, ...]:
        ctx.save_for_backward(outcome[2], outcome[3], u)
        ctx.owner = owner
        ctx.set_materialize_grads(False)
        return tuple(outcome)

    @staticmethod
    def backward(ctx: Any, *bars: Tensor | None) -> tuple:
        plain = not torch.is_grad_enabled() and not torch._C._are_functorch_transforms_active()
        path_q, path_v, u = ctx.saved_tensors
        last_only = bars[2] is None and bars[3] is None
        if plain and last_only and any(bar is not None for bar in bars) and not _mapped_at_once(bars):
            gradients = evaluation.quick_rollout_back(ctx.owner, path_q, path_v, u, bars[0], bars[1])
            if gradients is not None:
                return *gradients, None, None
        single = path_q.ndim == 2
        if single:
            path_q, path_v, u = (x.unsqueeze(1) for x in (path_q, path_v, u))
            bars = tuple(None if bar is None else bar.unsqueeze(-2) for bar in bars)
        rollout = SimpleNamespace(
            form="rollout", settings=(len(u), 1, 0, 1), program=ctx.owner.number, parameters="",
            needs_input_grad=(False,) * 9, saved_tensors=(path_q, path_v, u, None, None),
        )  # fmt: skip
        gradients = _differentiate(rollout, (None, *bars), evaluation.pull_back if plain else _PullBack.apply)[1:4]
        if single and gradients[0] is not None:
            gradients = tuple(x.squeeze(-2) for x in gradients)
        return *gradients, None, None


def quick_rollout(owner: Program, q: Tensor, v: Tensor, u: Tensor) -> Sequence[Tensor] | None:
    """`evaluation.quick_rollout`, differentiable; None where it does not apply."""
    if not plain_call():
        return None
    recorded = torch.is_grad_enabled() and (q.requires_grad or v.requires_grad or u.requires_grad)
    if recorded:
        owner.prepare("rollout_adjoint", False, False, False, "")
    outcome = evaluation.quick_rollout(owner, q, v, u)
    if outcome is not None and recorded:
        return outcome[0], *_QuickRollout.apply(q, v, u, owner, list(outcome[1:]))
    return outcome


class _PullBack(torch.autograd.Function):
    """The gradient as a function of its own: for torch.func, and to refuse second derivatives."""

    @staticmethod
    def forward(*inputs: Any) -> tuple[Tensor, ...]:
        return tuple(evaluation.pull_back(*inputs))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple, output: Sequence[Tensor]) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, *bars: Any) -> None:
        raise RuntimeError(
            "backdrive has first derivatives only: a gradient was differentiated again (create_graph=True, "
            "or a Hessian). Difference the gradients, or use Simulator.linearize for a Gauss-Newton approximation"
        )

    @staticmethod
    def vmap(info: Any, in_dims: tuple, *args: Any) -> tuple:
        return vmap_pull_back(_PullBack.apply, info, in_dims, *args)


def _keep(ctx: Any, inputs: tuple, output: Sequence[Tensor]) -> None:
    """Of a rollout, the path is kept: it has the states that its steps started from."""
    ctx.form, q, v, x, wrenches, constants, ctx.program, ctx.parameters, ctx.settings = inputs
    if ctx.form == "rollout" and ctx.settings[3]:
        q, v = output[3], output[4]
    ctx.owner = Program.of(ctx.program)  # the graph may live longer than its Simulator
    sparse = ctx.owner.sparse
    if ctx.form == "rollout" and sparse is not None and (record := sparse.last_record()) is not None:
        ctx.record, ctx.settings = record, [*ctx.settings[:3], ctx.settings[3] and record.number]
    ctx.save_for_backward(q, v, x, wrenches, constants)


def _differentiate(ctx: Any, bars: Sequence[Any], pull_back: Any) -> tuple:
    if all(bar is None for bar in bars):
        return (None,) * 9
    if _mapped_at_once(bars):
        raise NotImplementedError(
            "backdrive: many gradients at once (is_grads_batched=True, vectorize=True) of a recorded graph are not "
            "possible; use torch.func.jacrev, torch.func.vmap, or Simulator.linearize"
        )
    q, v, x, wrenches, constants = ctx.saved_tensors
    form, settings, want_constants = ctx.form, ctx.settings, ctx.needs_input_grad[5]
    start: Sequence[Tensor | None] = (None, None)
    path_bars: Sequence[Tensor | None]
    if form == "rollout":
        path_bars, last_bars = bars[3:] or (None, None), bars[1:3]
        if settings[3]:
            start = [None if bar is None else bar[0] for bar in path_bars]
            path_bars = [None if bar is None else bar[1:] for bar in path_bars]
            q, v, last_v = q[:-1], v[:-1], v[-1]
        else:
            last_v = unknown(v)
            q, v = q.unsqueeze(0), v.unsqueeze(0)
        bars = [_zeros(y.shape, y) if bar is None else bar for y, bar in zip((q, v), path_bars, strict=True)]
        bars += [_zeros(y.shape[1:], y) if bar is None else bar for y, bar in zip((q, v), last_bars, strict=True)]
        bars.append(last_v)
    results = iter(
        pull_back(form, q, v, x, wrenches, constants, ctx.program, ctx.parameters, settings, want_constants, *bars)
    )
    q_bar, v_bar = next(results), next(results)
    q_bar = q_bar if start[0] is None else q_bar + start[0]
    v_bar = v_bar if start[1] is None else v_bar + start[1]
    x_bar = None if x is None else next(results)
    wrenches_bar = None if wrenches is None else next(results)
    constants_bar = next(results) if want_constants else None
    return None, q_bar, v_bar, x_bar, wrenches_bar, constants_bar, None, None, None


def _mapped_at_once(bars: Sequence[Any]) -> bool:
    """Whether many gradients are asked for at once, of a recorded graph."""
    return any(bar is not None and torch._C._functorch.is_legacy_batchedtensor(bar) for bar in bars)


def unknown(v: Tensor) -> Tensor:
    """A velocity after a step that nobody kept, like v; it takes no memory."""
    return torch.full((v.shape[-1],), torch.nan, dtype=v.dtype).expand(v.shape)


def _zeros(shape: Sequence[int], like: Tensor) -> Tensor:
    """Zeros that take no memory: what a loss on the last state alone says about the others."""
    return torch.zeros(shape[-1], dtype=like.dtype).expand(shape)


def evaluate(*args: Any) -> Sequence[Tensor]:
    """See the top of this file for the arguments.

    Of a rollout (status, last_q, last_v, path_q, path_v), or without the path; else one tensor.
    """
    if _traced():
        return torch.ops.backdrive.evaluate(*args)
    if torch._C._are_functorch_transforms_active() or forward_ad._current_level >= 0:  # (which says it has no jvp)
        return _Evaluate.apply(*args)
    if torch.is_grad_enabled() and any(x is not None and x.requires_grad for x in args[1:6]):
        return _QuickEvaluate.apply(*args)
    return evaluation.evaluate(*args)


def pull_back(*args: Any) -> Sequence[Tensor]:
    """The gradients of `evaluate` (see `_pull_back`), for callers who have no use for a graph."""
    if _traced():
        return torch.ops.backdrive.pull_back(*args[:10], list(args[10:]))
    if torch._C._are_functorch_transforms_active():
        return _PullBack.apply(*args)
    return evaluation.pull_back(*args)


def _traced() -> bool:
    """Whether operators are recorded (torch.compile, torch.export, make_fx) or only their shapes asked for."""
    return torch.compiler.is_compiling() or torch._C._len_torch_dispatch_stack() > 0


def plain_call() -> bool:
    """Whether kernels may be called on tensors as they are: not traced, nor under torch.func or forward mode."""
    return not _traced() and not torch._C._are_functorch_transforms_active() and forward_ad._current_level < 0


def values_visible(tensors: Iterable[Tensor]) -> bool:
    """Whether Python may look at the numbers: not in traced code, nor at what vmap maps over."""
    return not _traced() and not any(_mapped(x) for x in tensors)


def _mapped(x: Any) -> bool:
    functorch = torch._C._functorch
    while isinstance(x, Tensor) and functorch.is_functorch_wrapped_tensor(x):
        if functorch.is_batchedtensor(x):
            return True
        x = functorch.get_unwrapped(x)
    return False


class _Local(threading.local):
    check_parameters = True


_local = _Local()


@contextlib.contextmanager
def unchecked_parameters() -> Iterator[None]:
    """For differences about values that lie at the border of what is possible, as an armature of zero does."""
    before, _local.check_parameters = _local.check_parameters, False
    try:
        yield
    finally:
        _local.check_parameters = before


def assemble(program: Program, parameters: Mapping[str, Tensor]) -> Tensor:
    """The constants of a program with these parameters, [nconst] or [B, nconst], of its dtype. See `Model.assemble`.

    Without gradients, those of the last call if the values are the same: comparing them is ten times faster.
    """
    if _traced():
        names = list(parameters)
        return torch.ops.backdrive.assemble(program.number, ",".join(names), [parameters[name] for name in names])
    check = _local.check_parameters and not any(_mapped(x) for x in parameters.values())
    plain = check and plain_call() and not torch.is_inference_mode_enabled()  # whose tensors no gradient may meet
    plain = plain and not any(isinstance(x, Tensor) and x.requires_grad for x in parameters.values())
    if plain and program.assembled is not None:
        before, constants = program.assembled
        if before.keys() == parameters.keys() and all(_same(x, parameters[name]) for name, x in before.items()):
            return constants
    constants = program.model.assemble(parameters, check=check).to(program.dtype)
    if plain:
        program.assembled = {name: x.clone() for name, x in parameters.items()}, constants
    return constants


def _same(a: Tensor, b: object) -> bool:
    return type(b) is Tensor and a.dtype == b.dtype and torch.equal(a, b)


# ---------------------------------------------------------------------------------------------- for torch.compile

_operator = torch.library.custom_op("backdrive::evaluate", evaluation.evaluate, mutates_args=())


@torch.library.custom_op("backdrive::pull_back", mutates_args=())
def _pull_back_operator(
    form: str, q: Tensor, v: Tensor, x: Optional[Tensor], wrenches: Optional[Tensor],  # noqa: UP045
    constants: Optional[Tensor], program: int, parameters: str, settings: Sequence[int], want_constants: bool,  # noqa: UP045
    bars: Sequence[Tensor],
) -> list[Tensor]:  # fmt: skip
    return evaluation.pull_back(
        form, q, v, x, wrenches, constants, program, parameters, settings, want_constants, *bars
    )


@_operator.register_vmap
def _(info, in_dims, *args):  # type: ignore[no-untyped-def]
    outputs, at = vmap_evaluate(torch.ops.backdrive.evaluate, info, in_dims, *args)
    return list(outputs), list(at)


@_pull_back_operator.register_vmap
def _(info, in_dims, *args):  # type: ignore[no-untyped-def]
    def function(*args: Any) -> Sequence[Tensor]:
        return torch.ops.backdrive.pull_back(*args[:10], list(args[10:]))

    bar_dims = in_dims[10] if isinstance(in_dims[10], (list, tuple)) else [in_dims[10]] * len(args[10])
    results, at = vmap_pull_back(function, info, (*in_dims[:10], *bar_dims), *args[:10], *args[10])
    return list(results), list(at)


def _require_one_device(*tensors: Tensor | None) -> None:
    """torch asks for shapes alone if any tensor is "meta"; results must not then look like numbers."""
    devices = {str(x.device) for x in tensors if x is not None}
    if len(devices) > 1:
        raise ValueError(f"backdrive: tensors must be on one device, got {sorted(devices)}")


@_operator.register_fake
def _(form, q, v, x, wrenches, constants, program, parameters, settings):  # type: ignore[no-untyped-def]
    _require_one_device(q, v, x, wrenches, constants)
    return [q.new_empty(shape) for shape in output_shapes(form, q, v, program, settings).values()]


@_pull_back_operator.register_fake
def _(form, q, v, x, wrenches, constants, program, parameters, settings, want_constants, bars):  # type: ignore[no-untyped-def]
    _require_one_device(q, v, x, wrenches, constants, *bars)
    given = [y for y in (x, wrenches, constants if want_constants else None) if y is not None]
    shapes = [y.shape[1:] if form == "rollout" else y.shape for y in (q, v)] + [y.shape for y in given]
    return [q.new_empty(shape) for shape in shapes]


def _operator_backward(ctx: Any, bars: Sequence[Tensor]) -> tuple:
    def pull_back(*args: Any) -> Sequence[Tensor]:  # always the operator: this is traced where is_compiling() is False
        return torch.ops.backdrive.pull_back(*args[:10], list(args[10:]))

    *gradients, _ = _differentiate(ctx, bars, pull_back)
    return *gradients, None if ctx.settings else []  # torch takes an empty list for one of tensors


@torch.library.custom_op("backdrive::assemble", mutates_args=())
def _assemble(program: int, names: str, values: Sequence[Tensor]) -> Tensor:
    owner = Program.of(program)
    return owner.model.assemble(dict(zip(names.split(","), values, strict=True))).to(owner.dtype)


@torch.library.custom_op("backdrive::assemble_pull_back", mutates_args=())
def _assemble_pull_back(program: int, names: str, values: Sequence[Tensor], bar: Tensor) -> list[Tensor]:
    owner = Program.of(program)

    def constants(*values: Tensor) -> Tensor:
        return owner.model.assemble(dict(zip(names.split(","), values, strict=True)), check=False).to(owner.dtype)

    return [gradient.clone() for gradient in torch.func.vjp(constants, *values)[1](bar)]


@_assemble.register_fake
def _(program, names, values):  # type: ignore[no-untyped-def]
    owner = Program.of(program)
    table = owner.model.parameters()
    batch = [x.shape[:1] for name, x in zip(names.split(","), values, strict=True) if x.ndim > len(table[name].shape)]
    return values[0].new_empty((*(batch[0] if batch else ()), len(owner.model.constants)), dtype=owner.dtype)


@_assemble_pull_back.register_fake
def _(program, names, values, bar):  # type: ignore[no-untyped-def]
    return [torch.empty_like(x) for x in values]


def _keep_parameters(ctx: Any, inputs: tuple, output: Tensor) -> None:
    ctx.program, ctx.names, values = inputs
    ctx.owner = Program.of(ctx.program)
    ctx.save_for_backward(*values)


def _assemble_backward(ctx: Any, bar: Tensor) -> tuple:
    return None, None, torch.ops.backdrive.assemble_pull_back(ctx.program, ctx.names, list(ctx.saved_tensors), bar)


_assemble.register_autograd(_assemble_backward, setup_context=_keep_parameters)
_operator.register_autograd(_operator_backward, setup_context=_keep)
_pull_back_operator.register_autograd(_PullBack.backward, setup_context=_PullBack.setup_context)
