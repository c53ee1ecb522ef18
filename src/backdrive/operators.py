"""The PyTorch operator ``torch.ops.backdrive.evaluate``: the only place with autograd code.

One operator serves every form of kernel that has a derivative ("rollout", "forward", "inverse", "poses"), on tensors
of one dtype on the CPU, with a batch:

    q [B, nq], v [B, nv]    the state (poses: [T, B, n])
    x                       controls [T, B, nu] (rollout), [B, nu] (forward), accelerations [B, nv] (inverse), or None
    wrenches                [T, B, 6 nlink] (rollout), [B, 6 nlink] (forward), or None
    constants               [nconst] or [B, nconst], assembled from `parameters` (names, separated by commas), or None
    program                 the number of a `Program`
    settings                of a rollout: steps, every, truncate, and whether the path is wanted or only its end

Its derivative ``pull_back`` has none itself. Outside of torch.compile the same functions run as autograd functions: the
dispatcher of registered operators takes longer than a step of a small world, and torch.func does not see through it.
"""

from __future__ import annotations

import contextlib
import math
import sys
import threading
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Optional

import numpy as np
import torch
from torch import Tensor
from torch.autograd import forward_ad

from .pages import empty
from .physics.poses import POSE
from .physics.rollout import STATUS
from .program import Program

# Optional[Tensor], not Tensor | None: what torch's inference of schemas understands in every version.

X_NAME = {"rollout": "controls", "forward": "controls", "inverse": "vdot", "poses": ""}


def _require_form(form: str) -> None:
    if form not in X_NAME:
        raise ValueError(f"backdrive: there is no form {form!r}; expected one of {list(X_NAME)}")


def output_shapes(form: str, q: Tensor, v: Tensor, program: int, settings: Sequence[int]) -> dict[str, tuple[int, ...]]:
    """The shapes of what a form returns, by the names of the kernel's rows."""
    _require_form(form)
    if form == "rollout":
        steps, every, _, with_path = settings
        rows, batch = -(-steps // every) + 1, q.shape[0]
        path = {"path_q": (rows, batch, q.shape[1]), "path_v": (rows, batch, v.shape[1])} if with_path else {}
        return {"status": (steps, batch, STATUS), "last_q": tuple(q.shape), "last_v": tuple(v.shape), **path}
    if form == "poses":
        return {"out": (*q.shape[:2], Program.of(program).model.nlink * sum(POSE))}
    return {"forward": {"vdot": tuple(v.shape)}, "inverse": {"tau": tuple(v.shape)}}[form]


def _check(
    form: str, program: int, settings: Sequence[int], q: Tensor, v: Tensor, x: Tensor | None, wrenches: Tensor | None,
    constants: Tensor | None, bars: Sequence[Tensor] | None = None,
) -> None:  # fmt: skip
    """Compiled code trusts shapes: whatever reaches it was checked here."""
    owner = Program.of(program)
    _require_form(form)
    if not isinstance(q, Tensor) or q.ndim < 2 + (form == "poses"):
        got = list(q.shape) if isinstance(q, Tensor) else type(q).__name__
        raise ValueError(f"backdrive {form}: q must be a tensor with a batch, got {got}")
    if (x is not None and not X_NAME[form]) or (wrenches is not None and form not in ("rollout", "forward")):
        raise ValueError(f"backdrive {form}: {'wrenches' if wrenches is not None else 'x'} must be None")
    if len(settings) != (4 if form == "rollout" else 0):
        wanted_settings = "steps, every, truncate, path" if form == "rollout" else "none"
        raise ValueError(f"backdrive {form}: settings are {list(settings)}, expected {wanted_settings}")
    model, batch = owner.model, q.shape[-2]
    back = bars is not None
    time: list[int] = []
    if form == "rollout":
        steps, every, truncate, path = settings
        if not 1 <= every <= steps or truncate < 0 or (every != steps and not path and not back):
            raise ValueError(f"backdrive rollout: settings (steps, every, truncate, path) are {list(settings)}")
        time = [-(-steps // every)] if back else []
    elif form == "poses":
        time = [q.shape[0]]
    wanted: dict[str, tuple[Tensor | None, list[int]]] = {
        "q": (q, [*time, batch, model.nq]),
        "v": (v, [*time, batch, model.nv]),
    }
    steps_of_x = [settings[0]] if form == "rollout" else []
    if X_NAME[form]:
        width = model.nv if form == "inverse" else model.nu
        wanted[X_NAME[form]] = (x, [*steps_of_x, batch, width])
    if wrenches is not None:
        wanted["wrenches"] = (wrenches, [*steps_of_x, batch, 6 * model.nlink])
    if constants is not None:
        rows = [batch] if constants.ndim == 2 else []
        wanted["constants"] = (constants, [*rows, len(model.constants)])
    if bars is not None:
        shapes = [[*time, batch, model.nlink * sum(POSE)]] if form == "poses" else [[batch, model.nv]]
        if form == "rollout":
            shapes = [[*time, batch, model.nq], [*time, batch, model.nv], [batch, model.nq], [batch, model.nv]]
        if len(bars) != len(shapes):
            raise ValueError(f"backdrive {form}: {len(bars)} gradients, expected {len(shapes)}")
        wanted |= {f"gradient {k}": pair for k, pair in enumerate(zip(bars, shapes, strict=True))}
    for name, (tensor, shape) in wanted.items():
        if tensor is None or list(tensor.shape) != shape or tensor.dtype != owner.dtype or tensor.device.type != "cpu":
            got = "None" if tensor is None else f"{tensor.dtype} {list(tensor.shape)} on {tensor.device}"
            raise ValueError(f"backdrive {form}: {name} must be {owner.dtype} {shape} on the cpu, got {got}")
    if batch < 1:
        raise ValueError(f"backdrive {form}: the batch is empty")


def _present(**tensors: Tensor | None) -> dict[str, Tensor]:
    return {name: x for name, x in tensors.items() if x is not None}


def _evaluate(
    form: str, q: Tensor, v: Tensor, x: Optional[Tensor], wrenches: Optional[Tensor],  # noqa: UP045
    constants: Optional[Tensor], program: int, parameters: str, settings: Sequence[int],  # noqa: UP045
) -> list[Tensor]:  # fmt: skip
    _check(form, program, settings, q, v, x, wrenches, constants)
    shapes = output_shapes(form, q, v, program, settings)
    outputs = {name: empty(shape, q.dtype) for name, shape in shapes.items()}
    inputs = _present(q=q, v=v, wrenches=wrenches, **{X_NAME[form]: x})
    rows = inputs | outputs
    integers = {}
    if form == "rollout":
        steps, every, _, with_path = settings
        integers = {"steps": steps, "every": every}
        if with_path:
            outputs["path_q"][0], outputs["path_v"][0] = q, v
            rows |= {"path_q": outputs["path_q"][1:], "path_v": outputs["path_v"][1:]}
        else:  # one segment, whose end is the last state
            rows |= {"path_q": outputs["last_q"].unsqueeze(0), "path_v": outputs["last_v"].unsqueeze(0)}
    elif form == "poses":
        integers = {"times": q.shape[0]}
    owner = Program.of(program)
    owner.run(form, q.shape[-2], rows, integers, constants, parameters)
    if owner.nonfinite == "raise":
        _report_nonfinite(form, inputs, next(iter(outputs.values())))
    return list(outputs.values())


class NotFiniteError(ValueError):
    """An input has a NaN or an infinite number."""


def _report_nonfinite(form: str, inputs: dict[str, Tensor], outcome: Tensor) -> None:
    """Raise if an input is not finite; warn if the motion is not, from finite inputs. Cheap when all is well."""
    if form == "poses":  # of a motion, which was reported on when it was computed
        return
    suspects = inputs
    if form == "rollout":
        finite, clipped = outcome.numpy()[..., 0], outcome.numpy()[..., 1]
        if finite.min() > 0.5:  # what the motion does not show: limited controls, wrenches on bodies that cannot move
            hidden = ("controls", "wrenches") if clipped.max() > 0.5 else ("wrenches",)
            suspects = {name: inputs[name] for name in hidden if name in inputs}
    require_finite(suspects)
    if form == "rollout" and finite.min() < 0.5:
        step, environment = np.argwhere(finite < 0.5)[0].tolist()
        warnings.warn(
            f"the motion of environment {environment} is no longer finite after step {step} (is dt too large?); "
            "Trajectory.status.finite says where",
            RuntimeWarning,
            stacklevel=_caller(),
        )


def require_finite(tensors: dict[str, Tensor]) -> None:
    for name, tensor in tensors.items():
        if math.isfinite(tensor.sum().item()) or bool(torch.isfinite(tensor).all()):
            continue
        place = torch.nonzero(~torch.isfinite(tensor))[0].tolist()
        value = tensor[tuple(place)].item()
        raise NotFiniteError(f"{name} is not finite: {value} at {place} of its shape {list(tensor.shape)}")


def _caller() -> int:
    """The stacklevel, for a warning of who calls this, of the user's code: outside of this package and of torch."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").split(".")[0] in ("backdrive", "torch"):
        level, frame = level + 1, frame.f_back
    return level


def _pull_back(
    form: str, q: Tensor, v: Tensor, x: Tensor | None, wrenches: Tensor | None, constants: Tensor | None,
    program: int, parameters: str, settings: Sequence[int], want_constants: bool, *bars: Tensor,
) -> list[Tensor]:  # fmt: skip
    """Gradients with respect to q, v, x, wrenches (those that are given) and constants (if wanted).

    Of a rollout, q and v are the states before its steps (or segments), and the bars those after them.
    """
    _check(form, program, settings, q, v, x, wrenches, constants, bars)
    batch, name = q.shape[-2], X_NAME[form]
    path = form == "rollout"
    results: dict[str, Tensor] = {
        "q_bar": empty(q.shape[1:] if path else q.shape, q.dtype),
        "v_bar": empty(v.shape[1:] if path else v.shape, v.dtype),
    }
    if x is not None:
        results[f"{name}_bar"] = empty(x.shape, x.dtype)
    if wrenches is not None:
        results["wrenches_bar"] = empty(wrenches.shape, wrenches.dtype)
    if want_constants and constants is not None:
        results["constants_bar"] = torch.zeros(batch, constants.shape[-1], dtype=constants.dtype)
    start = ("path_q", "path_v") if path else ("q", "v")
    outcomes = {
        "rollout": ("path_q_bar", "path_v_bar", "last_q_bar", "last_v_bar"),
        "forward": ("vdot_bar",), "inverse": ("tau_bar",), "poses": ("out_bar",),
    }[form]  # fmt: skip
    rows = _present(**{start[0]: q, start[1]: v, name: x}, wrenches=wrenches)
    rows |= dict(zip(outcomes, bars, strict=True)) | results
    integers, kernel = {}, f"{form}_adjoint"
    if path:
        steps, every, truncate, _ = settings
        integers = {"steps": steps, "truncate": min(truncate or steps + 1, steps + 1)}
        if every > 1:
            kernel, integers["every"] = "checkpoint_adjoint", every
    elif form == "poses":
        integers = {"times": q.shape[0]}
    Program.of(program).run(kernel, batch, rows, integers, constants, parameters)
    if "constants_bar" in results and constants is not None and constants.ndim == 1:
        # Shared by all environments: the sum, row after row, so that its bits do not depend on threads.
        results["constants_bar"] = torch.from_numpy(results["constants_bar"].numpy().sum(axis=0))
    return list(results.values())


# ---------------------------------------------------------------------------------------------- autograd


class _Evaluate(torch.autograd.Function):
    @staticmethod
    def forward(*inputs: Any) -> tuple[Tensor, ...]:
        return tuple(_evaluate(*inputs))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple, output: Sequence[Tensor]) -> None:
        _keep(ctx, inputs, output)
        ctx.set_materialize_grads(False)
        if inputs[0] == "rollout":
            ctx.mark_non_differentiable(output[0])

    @staticmethod
    def backward(ctx: Any, *bars: Tensor) -> tuple:
        plain = not torch.is_grad_enabled() and not torch._C._are_functorch_transforms_active()
        return _differentiate(ctx, bars, _pull_back if plain else _PullBack.apply)

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> None:
        raise NotImplementedError(
            "backdrive has no forward-mode derivatives (jvp, jacfwd, hessian): "
            "use reverse mode (backward, grad, jacrev), or Simulator.linearize"
        )

    @staticmethod
    def vmap(info: Any, in_dims: tuple, *args: Any) -> tuple:
        return _vmap_evaluate(_Evaluate.apply, info, in_dims, *args)


class _QuickEvaluate(torch.autograd.Function):
    """The same in the old style, which torch.func cannot use: a call costs a third."""

    @staticmethod
    def forward(ctx: Any, *inputs: Any) -> tuple[Tensor, ...]:
        outputs = tuple(_evaluate(*inputs))
        _Evaluate.setup_context(ctx, inputs, outputs)
        return outputs

    backward = _Evaluate.backward


class _PullBack(torch.autograd.Function):
    """The gradient as a function of its own: for torch.func, and to refuse second derivatives."""

    @staticmethod
    def forward(*inputs: Any) -> tuple[Tensor, ...]:
        return tuple(_pull_back(*inputs))

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
        return _vmap_pull_back(_PullBack.apply, info, in_dims, *args)


def _vmap_evaluate(function: Any, info: Any, in_dims: tuple, *args: Any) -> tuple:
    form, q, v, x, wrenches, constants, *rest = args
    fold = _Fold(form, info.batch_size, q, in_dims[1])
    tensors = [fold.tensor(y, d, fold.start) for y, d in ((q, in_dims[1]), (v, in_dims[2]))]
    tensors += [fold.tensor(y, d, fold.other) for y, d in ((x, in_dims[3]), (wrenches, in_dims[4]))]
    outputs = function(form, *tensors, fold.constants(constants, in_dims[5]), *rest)
    at = (fold.other,) if form != "rollout" else (1, 0, 0, 1, 1)[: len(outputs)]
    return tuple(fold.unfold(y, d) for y, d in zip(outputs, at, strict=True)), at


def _vmap_pull_back(function: Any, info: Any, in_dims: tuple, *args: Any) -> tuple:
    form, q, v, x, wrenches, constants, program, parameters, settings, want_constants, *bars = args
    fold = _Fold(form, info.batch_size, q, in_dims[1], back=True)
    tensors = [fold.tensor(y, d, fold.other) for y, d in zip((q, v, x, wrenches), in_dims[1:5], strict=True)]
    rows = fold.constants(constants, in_dims[5])
    places = (1, 1, 0, 0) if form == "rollout" else (fold.other,)
    folded = [fold.tensor(y, d, at) for y, d, at in zip(bars, in_dims[10:], places, strict=True)]
    results = function(form, *tensors, rows, program, parameters, settings, want_constants, *folded)
    at = [fold.start, fold.start, *(fold.other for y in (x, wrenches) if y is not None)]
    unfolded = [fold.unfold(y, d) for y, d in zip(results, at, strict=False)]
    if want_constants and constants is not None:
        shared = constants.ndim - (in_dims[5] is not None) == 1
        constants_bar = fold.unfold(results[-1], 0)
        unfolded.append(constants_bar.sum(1) if shared else constants_bar)
        at.append(0)
    return tuple(unfolded), tuple(at)


class _Fold:
    """A dimension mapped by vmap becomes part of the batch."""

    def __init__(self, form: str, size: int, q: Tensor, q_dim: int | None, back: bool = False) -> None:
        self.size = size
        self.other = int(form in ("rollout", "poses"))  # where the batch is in tensors with a time
        self.start = int(form == "poses")  # and in q and v
        at = self.other if back else self.start
        self.batch = (q if q_dim is None else q.movedim(q_dim, 0)[0]).shape[at]

    def tensor(self, x: Tensor | None, dim: int | None, at: int) -> Tensor | None:
        """Merge the mapped dimension `dim` (None: not mapped) into the batch dimension `at`."""
        if x is None:
            return None
        if dim is None:
            x = x.unsqueeze(at).expand(*x.shape[:at], self.size, *x.shape[at:])
        else:
            x = x.movedim(dim, at)
        return x.flatten(at, at + 1)

    def constants(self, x: Tensor | None, dim: int | None) -> Tensor | None:
        """One row for every environment."""
        if x is None:
            return None
        x = x.expand(self.size, *x.shape) if dim is None else x.movedim(dim, 0)
        if x.ndim == 2:
            x = x.unsqueeze(1).expand(self.size, self.batch, x.shape[-1])
        return x.flatten(0, 1)

    def unfold(self, y: Tensor, at: int) -> Tensor:
        return y.unflatten(at, (self.size, self.batch))


def _keep(ctx: Any, inputs: tuple, output: Sequence[Tensor]) -> None:
    """Of a rollout, the path is kept: it has the states that its steps started from."""
    ctx.form, q, v, x, wrenches, constants, ctx.program, ctx.parameters, ctx.settings = inputs
    if ctx.form == "rollout" and ctx.settings[3]:
        q, v = output[3], output[4]
    ctx.owner = Program.of(ctx.program)  # the graph may live longer than its Simulator
    ctx.save_for_backward(q, v, x, wrenches, constants)


def _differentiate(ctx: Any, bars: Sequence[Tensor], pull_back: Any) -> tuple:
    if all(bar is None for bar in bars):
        return (None,) * 9
    if any(bar is not None and torch._C._functorch.is_legacy_batchedtensor(bar) for bar in bars):
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
            q, v = q[:-1], v[:-1]
        else:
            q, v = q.unsqueeze(0), v.unsqueeze(0)
        bars = [_zeros(y.shape, y) if bar is None else bar for y, bar in zip((q, v), path_bars, strict=True)]
        bars += [_zeros(y.shape[1:], y) if bar is None else bar for y, bar in zip((q, v), last_bars, strict=True)]
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
    return _evaluate(*args)


def pull_back(*args: Any) -> Sequence[Tensor]:
    """The gradients of `evaluate` (see `_pull_back`), for callers who have no use for a graph."""
    if _traced():
        return torch.ops.backdrive.pull_back(*args[:10], list(args[10:]))
    if torch._C._are_functorch_transforms_active():
        return _PullBack.apply(*args)
    return _pull_back(*args)


def _traced() -> bool:
    """Whether operators are recorded (torch.compile, torch.export, make_fx) or only their shapes asked for."""
    return torch.compiler.is_compiling() or torch._C._len_torch_dispatch_stack() > 0


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
    """The constants of a program with these parameters, [nconst] or [B, nconst], of its dtype. See `Model.assemble`."""
    if _traced():
        names = list(parameters)
        return torch.ops.backdrive.assemble(program.number, ",".join(names), [parameters[name] for name in names])
    check = _local.check_parameters and not any(_mapped(x) for x in parameters.values())
    return program.model.assemble(parameters, check=check).to(program.dtype)


# ---------------------------------------------------------------------------------------------- for torch.compile

_operator = torch.library.custom_op("backdrive::evaluate", _evaluate, mutates_args=())


@torch.library.custom_op("backdrive::pull_back", mutates_args=())
def _pull_back_operator(
    form: str, q: Tensor, v: Tensor, x: Optional[Tensor], wrenches: Optional[Tensor],  # noqa: UP045
    constants: Optional[Tensor], program: int, parameters: str, settings: Sequence[int], want_constants: bool,  # noqa: UP045
    bars: Sequence[Tensor],
) -> list[Tensor]:  # fmt: skip
    return _pull_back(form, q, v, x, wrenches, constants, program, parameters, settings, want_constants, *bars)


@_operator.register_vmap
def _(info, in_dims, *args):  # type: ignore[no-untyped-def]
    outputs, at = _vmap_evaluate(torch.ops.backdrive.evaluate, info, in_dims, *args)
    return list(outputs), list(at)


@_pull_back_operator.register_vmap
def _(info, in_dims, *args):  # type: ignore[no-untyped-def]
    def function(*args: Any) -> Sequence[Tensor]:
        return torch.ops.backdrive.pull_back(*args[:10], list(args[10:]))

    bar_dims = in_dims[10] if isinstance(in_dims[10], (list, tuple)) else [in_dims[10]] * len(args[10])
    results, at = _vmap_pull_back(function, info, (*in_dims[:10], *bar_dims), *args[:10], *args[10])
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
