"""Calling kernels on tensors: shapes are checked, results allocated, NaN reported. No autograd: see `operators`."""

from __future__ import annotations

import ctypes
import math
import sys
import warnings
from collections.abc import Sequence
from typing import Optional

import numpy as np
import torch
from torch import Tensor

from ..physics.tree.poses import POSE
from .pages import empty
from .program import Program

# Optional[Tensor], not Tensor | None: what torch's inference of schemas understands in every version.

X_NAME = {"rollout": "controls", "forces": "controls", "forward": "controls", "inverse": "vdot", "poses": ""}


OVER_TIME = ("poses", "forces")  # of states at many times: [T, B, n]
DRIVEN = ("rollout", "forces", "forward")  # have wrenches


def _out_size(form: str, owner: Program) -> int:
    """Numbers per state that a form over time returns."""
    return owner.model.nlink * sum(POSE) if form == "poses" else owner.forces_size


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
        return {
            "status": (steps, batch, Program.of(program).status_size),
            "last_q": tuple(q.shape),
            "last_v": tuple(v.shape),
            **path,
        }
    if form in OVER_TIME:
        return {"out": (*q.shape[:2], _out_size(form, Program.of(program)))}
    return {"forward": {"vdot": tuple(v.shape)}, "inverse": {"tau": tuple(v.shape)}}[form]


def check(
    form: str, program: int, settings: Sequence[int], q: Tensor, v: Tensor, x: Tensor | None, wrenches: Tensor | None,
    constants: Tensor | None, bars: Sequence[Tensor] | None = None,
) -> None:  # fmt: skip
    """Compiled code trusts shapes: whatever reaches it was checked here."""
    owner = Program.of(program)
    _require_form(form)
    if not isinstance(q, Tensor) or q.ndim < 2 + (form in OVER_TIME):
        found = list(q.shape) if isinstance(q, Tensor) else type(q).__name__
        raise ValueError(f"backdrive {form}: q must be a tensor with a batch, got {found}")
    if (x is not None and not X_NAME[form]) or (wrenches is not None and form not in DRIVEN):
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
    elif form in OVER_TIME:
        time = [q.shape[0]]
    wanted: dict[str, tuple[Tensor | None, list[int]]] = {
        "q": (q, [*time, batch, model.nq]),
        "v": (v, [*time, batch, model.nv]),
    }
    steps_of_x = [settings[0]] if form == "rollout" else time
    if X_NAME[form]:
        width = model.nv if form == "inverse" else model.nu
        wanted[X_NAME[form]] = (x, [*steps_of_x, batch, width])
    if wrenches is not None:
        wanted["wrenches"] = (wrenches, [*steps_of_x, batch, 6 * model.nlink])
    if constants is not None:
        rows = [batch] if constants.ndim == 2 else []
        wanted["constants"] = (constants, [*rows, len(model.constants)])
    if bars is not None:
        shapes = [[*time, batch, _out_size(form, owner)]] if form in OVER_TIME else [[batch, model.nv]]
        if form == "rollout":
            last = [[batch, model.nq], [batch, model.nv], [batch, model.nv]]
            shapes = [[*time, batch, model.nq], [*time, batch, model.nv], *last]
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


def evaluate(
    form: str, q: Tensor, v: Tensor, x: Optional[Tensor], wrenches: Optional[Tensor],  # noqa: UP045
    constants: Optional[Tensor], program: int, parameters: str, settings: Sequence[int],  # noqa: UP045
) -> list[Tensor]:  # fmt: skip
    check(form, program, settings, q, v, x, wrenches, constants)
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
    elif form in OVER_TIME:
        integers = {"times": q.shape[0]}
    owner = Program.of(program)
    owner.run(form, q.shape[-2], rows, integers, constants, parameters)
    if owner.nonfinite == "raise":
        _report_nonfinite(form, inputs, next(iter(outputs.values())), owner.limited)
    return list(outputs.values())


def track(
    program: int, q: Tensor, v: Tensor, controls: Tensor, gains: Tensor, origin_q: Tensor, origin_v: Tensor,
    low: Tensor, high: Tensor, constants: Tensor | None, parameters: str,
) -> list[Tensor]:  # fmt: skip
    """States [T + 1, B, n], the controls used [T, B, nu] and status of `rollout.tracking`; no derivatives.

    q, v: [B, n]; controls [T, B, nu], gains [T, B, nu 2 nv], origin_q, origin_v [T, B, n], low, high [B, nu].
    """
    owner = Program.of(program)
    if owner.sparse is not None:
        raise NotImplementedError("backdrive: one big world (sparse=True) has no rollouts with feedback")
    model, (steps, batch) = owner.model, controls.shape[:2]
    check("rollout", program, [steps, 1, 0, 1], q, v, controls, None, constants)
    nq, nv, nu = model.nq, model.nv, model.nu
    others = {
        "gains": (gains, [steps, batch, nu * 2 * nv]), "origin.q": (origin_q, [steps, batch, nq]),
        "origin.v": (origin_v, [steps, batch, nv]), "low": (low, [batch, nu]), "high": (high, [batch, nu]),
    }  # fmt: skip
    for name, (x, shape) in others.items():
        if list(x.shape) != shape or x.dtype != owner.dtype or x.device.type != "cpu":
            got = f"{x.dtype} {list(x.shape)} on {x.device}"
            raise ValueError(f"backdrive tracking: {name} must be {owner.dtype} {shape} on the cpu, got {got}")
    path_q, path_v = empty((steps + 1, batch, nq), q.dtype), empty((steps + 1, batch, nv), q.dtype)
    path_q[0], path_v[0] = q, v
    used, status = empty((steps, batch, nu), q.dtype), empty((steps, batch, owner.status_size), q.dtype)
    rows = {
        "q": q, "v": v, "controls": controls, "gains": gains, "origin_q": origin_q, "origin_v": origin_v,
        "low": low, "high": high, "path_q": path_q[1:], "path_v": path_v[1:], "used": used, "status": status,
    }  # fmt: skip
    owner.run("tracking", batch, rows, {"steps": steps}, constants, parameters)
    return [path_q, path_v, used, status]


def jacobians(
    program: int, q: Tensor, v: Tensor, controls: Tensor, constants: Tensor | None, parameters: str
) -> Tensor:
    """The derivatives of the displacement of a step, then of v⁺, [B, 2 nv, 2 nv + nu]: see `jacobian`.

    q, v, controls: [B, n]
    """
    check("rollout", program, [1, 1, 0, 0], q, v, controls.unsqueeze(0), None, constants)
    owner, (batch, nv) = Program.of(program), v.shape
    result = empty((batch, 2 * nv, 2 * nv + controls.shape[-1]), q.dtype)
    step, after = result.transpose(0, 1).split(nv)
    rows = {"q": q, "v": v, "controls": controls, "step": step, "after": after}
    owner.run("jacobians", batch, rows, {"rows": nv}, constants, parameters)
    return result


class NotFiniteError(ValueError):
    """An input has a NaN or an infinite number."""


def _report_nonfinite(form: str, inputs: dict[str, Tensor], outcome: Tensor, limited: bool) -> None:
    """Raise if an input is not finite; warn if the motion is not, from finite inputs. Cheap when all is well."""
    if form in OVER_TIME:  # of a motion, which was reported on when it was computed
        return
    if form != "rollout":
        require_finite(inputs)
        return
    report_motion(inputs, inputs["controls"], outcome, limited)


def report_motion(inputs: dict[str, Tensor], controls: Tensor, status: Tensor, limited: bool) -> None:
    """`_report_nonfinite` of a rollout; limited: some motor is."""
    finite, clipped = status.numpy()[..., 0], status.numpy()[..., 1]
    if finite.min() > 0.5:  # what the motion does not show: limited controls, wrenches on bodies that cannot move
        if limited and clipped.max() > 0.5:
            require_finite({"controls": controls})
        if "wrenches" in inputs:
            require_finite({"wrenches": inputs["wrenches"]})
    else:
        require_finite(inputs)
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


def pull_back(
    form: str, q: Tensor, v: Tensor, x: Tensor | None, wrenches: Tensor | None, constants: Tensor | None,
    program: int, parameters: str, settings: Sequence[int], want_constants: bool, *bars: Tensor,
) -> list[Tensor]:  # fmt: skip
    """Gradients with respect to q, v, x, wrenches (those that are given) and constants (if wanted).

    Of a rollout, q and v are the states before its steps (or segments), and the bars those after them; with these comes
    v of the last state, NaN where it is not known.
    """
    check(form, program, settings, q, v, x, wrenches, constants, bars)
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
        "rollout": ("path_q_bar", "path_v_bar", "last_q_bar", "last_v_bar", "last_v"),
        "forward": ("vdot_bar",), "inverse": ("tau_bar",), "poses": ("out_bar",), "forces": ("out_bar",),
    }[form]  # fmt: skip
    rows = _present(**{start[0]: q, start[1]: v, name: x}, wrenches=wrenches)
    rows |= dict(zip(outcomes, bars, strict=True)) | results
    integers, kernel = {}, f"{form}_adjoint"
    if path:
        steps, every, truncate, _ = settings
        integers = {"steps": steps, "truncate": min(truncate or steps + 1, steps + 1)}
        if Program.of(program).sparse is not None:
            integers["record"] = settings[3]
        if every > 1:
            kernel, integers["every"] = "checkpoint_adjoint", every
    elif form in OVER_TIME:
        integers = {"times": q.shape[0]}
    Program.of(program).run(kernel, batch, rows, integers, constants, parameters)
    if "constants_bar" in results and constants is not None and constants.ndim == 1:
        # Shared by all environments: the sum, row after row, so that its bits do not depend on threads.
        results["constants_bar"] = torch.from_numpy(results["constants_bar"].numpy().sum(axis=0))
    return list(results.values())


# ---------------------------------------------------------------------------------------------- short calls


def quick_step(program: Program, q: Tensor, v: Tensor, u: Tensor) -> tuple[Tensor, Tensor] | None:
    """The state after one step of plain, contiguous tensors q [B, nq] or [nq], v and u alike: less work than a rollout.

    None if the tensors are anything else, or if something is to be reported about the step: then that must be done.
    """
    model, shape = program.model, q.shape[:-1]
    batch = math.prod(shape)
    tensors = ((q, model.nq), (v, model.nv), (u, model.nu))
    if len(shape) > 1 or not program.quick(batch) or not _plain(program, shape, *tensors):
        return None
    q_next, v_next, status = torch.empty_like(q), torch.empty_like(v), q.new_empty((batch, program.status_size))
    last_q, last_v = q_next.data_ptr(), v_next.data_ptr()
    program.step_call(
        batch, q=q.data_ptr(), v=v.data_ptr(), controls=u.data_ptr(), status=status.data_ptr(),
        last_q=last_q, last_v=last_v, path_q=last_q, path_v=last_v,
    )  # fmt: skip
    return (q_next, v_next) if _unremarkable(program, status, u) else None


def quick_rollout(program: Program, q: Tensor, v: Tensor, u: Tensor) -> tuple[Tensor, ...] | None:
    """Status, last state and path, as `evaluate` has them, of a short rollout; q, v and None as in `quick_step`.

    u: [T, B, nu], or [T, nu] without a batch, and then all results are without.
    """
    model, shape = program.model, q.shape[:-1]
    steps, batch = len(u) if u.ndim else 0, math.prod(shape)
    if len(shape) > 1 or not program.quick(batch, steps) or not _plain(program, shape, (q, model.nq), (v, model.nv)):
        return None
    if not _plain(program, (steps, *shape), (u, model.nu)):
        return None
    last_q, last_v, status = torch.empty_like(q), torch.empty_like(v), q.new_empty((*u.shape[:-1], program.status_size))
    path_q, path_v = q.new_empty((steps + 1, *q.shape)), v.new_empty((steps + 1, *v.shape))
    at_q, at_v, number = q.data_ptr(), v.data_ptr(), program.bits // 8
    path_q_at, path_v_at = path_q.data_ptr(), path_v.data_ptr()
    size_q, size_v = batch * model.nq * number, batch * model.nv * number
    ctypes.memmove(path_q_at, at_q, size_q)
    ctypes.memmove(path_v_at, at_v, size_v)
    program.rollout_call(
        batch, steps=steps, q=at_q, v=at_v, controls=u.data_ptr(), status=status.data_ptr(),
        last_q=last_q.data_ptr(), last_v=last_v.data_ptr(), path_q=path_q_at + size_q, path_v=path_v_at + size_v,
    )  # fmt: skip
    return (status, last_q, last_v, path_q, path_v) if _unremarkable(program, status, u) else None


def _unremarkable(program: Program, status: Tensor, u: Tensor) -> bool:
    """Whether there is nothing to report (`report_motion`) about steps of status [..., n] and controls u."""
    if program.nonfinite != "raise":
        return True
    numbers = status.numpy()
    if np.minimum.reduce(numbers[..., 0], axis=None) < 0.5:
        return False
    clipped = program.limited and np.maximum.reduce(numbers[..., 1], axis=None) > 0.5
    return not clipped or math.isfinite(u.sum().item())


def quick_step_back(
    program: Program, q: Tensor, v: Tensor, u: Tensor, q_bar: Tensor | None, v_bar: Tensor | None
) -> tuple[Tensor, ...] | None:
    """Gradients with respect to q, v, u of a `quick_step`, from those after it (None: zero); None as there."""
    q_bar, v_bar = (_whole(bar, x) for bar, x in ((q_bar, q), (v_bar, v)))
    model, shape = program.model, q.shape[:-1]
    batch = math.prod(shape)
    tensors = ((q, model.nq), (v, model.nv), (u, model.nu), (q_bar, model.nq), (v_bar, model.nv))
    if len(shape) > 1 or not program.quick(batch) or not _plain(program, shape, *tensors):
        return None
    results = [torch.empty_like(x) for x in (q, v, u)]
    zeros = program.zeros.data_ptr()
    program.step_adjoint_call(
        batch, path_q=q.data_ptr(), path_v=v.data_ptr(), controls=u.data_ptr(), path_q_bar=zeros, path_v_bar=zeros,
        last_q_bar=q_bar.data_ptr(), last_v_bar=v_bar.data_ptr(), last_v=program.unknown.data_ptr(),
        q_bar=results[0].data_ptr(), v_bar=results[1].data_ptr(), controls_bar=results[2].data_ptr(),
    )  # fmt: skip
    return tuple(results)


def quick_rollout_back(
    program: Program, path_q: Tensor, path_v: Tensor, u: Tensor, q_bar: Tensor | None, v_bar: Tensor | None
) -> tuple[Tensor, ...] | None:
    """Gradients with respect to q, v, u of a `quick_rollout`, from those of its last state (None: zero)."""
    model, shape, steps = program.model, path_q.shape[1:-1], len(u)
    batch = math.prod(shape)
    q_bar, v_bar = _whole(q_bar, path_q[0]), _whole(v_bar, path_v[0])
    if not _plain(program, shape, (q_bar, model.nq), (v_bar, model.nv)):
        return None
    results = [torch.empty_like(x) for x in (q_bar, v_bar, u)]
    zeros, last_v = program.zeros.data_ptr(), path_v.data_ptr() + steps * batch * model.nv * path_v.element_size()
    program.rollout_adjoint_call(
        batch, steps=steps, truncate=steps + 1, path_q=path_q.data_ptr(), path_v=path_v.data_ptr(),
        controls=u.data_ptr(), path_q_bar=zeros, path_v_bar=zeros, last_q_bar=q_bar.data_ptr(),
        last_v_bar=v_bar.data_ptr(), last_v=last_v, q_bar=results[0].data_ptr(), v_bar=results[1].data_ptr(),
        controls_bar=results[2].data_ptr(),
    )  # fmt: skip
    return tuple(results)


def quick_poses(program: Program, q: Tensor, v: Tensor) -> Tensor | None:
    """POSE numbers of every link, [B, nlink * 18], of plain tensors q [B, nq], v [B, nv]; None if they are not."""
    model = program.model
    if not program.quick(len(q)) or not _plain(program, q.shape[:1], (q, model.nq), (v, model.nv)):
        return None
    out = torch.empty(len(q), model.nlink * sum(POSE), dtype=q.dtype)
    program.poses_call(len(q), q=q.data_ptr(), v=v.data_ptr(), out=out.data_ptr())
    return out


def quick_poses_back(program: Program, q: Tensor, v: Tensor, bar: Tensor) -> tuple[Tensor, Tensor]:
    """Gradients with respect to q and v of `quick_poses`."""
    bar = bar.contiguous()
    q_bar, v_bar = torch.empty(q.shape, dtype=q.dtype), torch.empty(v.shape, dtype=v.dtype)
    addresses = {"q_bar": q_bar.data_ptr(), "v_bar": v_bar.data_ptr(), "out_bar": bar.data_ptr()}
    program.poses_adjoint_call(len(q), q=q.data_ptr(), v=v.data_ptr(), **addresses)
    return q_bar, v_bar


def _plain(program: Program, shape: Sequence[int], *tensors: tuple[Tensor, int]) -> bool:
    """Whether tensors [*shape, n] are contiguous numbers in memory."""
    for x, n in tensors:
        plain = x.dtype is program.dtype and x.is_cpu and x.is_contiguous() and type(x) in (Tensor, torch.nn.Parameter)
        if not plain or x.shape != (*shape, n) or x.is_neg() or x._is_zerotensor():
            return False
    return True


def _whole(bar: Tensor | None, x: Tensor) -> Tensor:
    return torch.zeros(x.shape, dtype=x.dtype) if bar is None else bar.contiguous()
