"""A check of gradients for users: on their own scene, against finite differences, input by input and step by step."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial

import torch
from torch import Tensor

from .differences import smooth_slope
from .model import State
from .schema.state import NAMES
from .simulator import RolloutArguments, Simulator
from .trajectory import Trajectory

Inputs = dict[str, Tensor]
Evaluation = tuple[Tensor, Tensor, Tensor]
"""A value, or one for each row of the inputs; its active sets (`Status.modes`); the sum of the terms' magnitudes."""
Function = Callable[[Inputs, bool], Evaluation]
"""Of the inputs, and whether parameters are checked: differences about a value at the border of what is possible, as an
armature of zero is, step beyond it."""

STEPS = (1e-4, 1e-5, 1e-6)  # of differences, relative to an input, in the order in which they are tried
ROUNDING = 1e-9  # changes of a value below this, relative to the sum of its terms, have fewer than six valid digits


@dataclass(frozen=True)
class GradcheckRow:
    """One comparison: the derivative along a random direction by the adjoint and by differences."""

    name: str
    adjoint: float
    difference: float
    error: float
    switched: bool  # the active set changed within the difference: the derivative jumps there


@dataclass(frozen=True)
class GradcheckReport:
    """The result of `gradcheck`; true if everything agreed (where the derivative exists)."""

    tolerance: float
    rollout: list[GradcheckRow] = field(default_factory=list)
    steps: dict[str, Tensor] = field(default_factory=dict)
    """For each of q, v and controls, the error of every single step: [T]."""
    switched: list[int] = field(default_factory=list)
    """Steps at which the active set (of contacts, limits and motors) changes within the difference."""

    @property
    def ok(self) -> bool:
        step_errors = [
            float(e) for errors in self.steps.values() for t, e in enumerate(errors) if t not in self.switched
        ]
        return all(row.switched or row.error <= self.tolerance for row in self.rollout) and all(
            e <= self.tolerance for e in step_errors
        )

    def __bool__(self) -> bool:
        return self.ok

    def __str__(self) -> str:
        lines = [f"{'input':<14}{'adjoint':>18}{'difference':>18}{'error':>10}"]
        for row in self.rollout:
            verdict = "switch" if row.switched else "ok" if row.error <= self.tolerance else "WRONG"
            lines.append(f"{row.name:<14}{row.adjoint:>18.9e}{row.difference:>18.9e}{row.error:>10.1e}  {verdict}")
        for name, errors in self.steps.items():
            worst = int(errors.argmax())
            verdict = (
                "ok" if float(errors[worst]) <= self.tolerance else "WRONG" if worst not in self.switched else "switch"
            )
            lines.append(f"each step, {name}: worst error {float(errors[worst]):.1e} at step {worst}  {verdict}")
        if self.switched:
            shown = ", ".join(map(str, self.switched[:10])) + (", ..." if len(self.switched) > 10 else "")
            lines.append(f"a contact or limit switches within the difference at steps {shown}: no derivative there")
        lines.append(f"{'all agree' if self.ok else 'DISAGREE'} to {self.tolerance:g}")
        return "\n".join(lines)


def gradcheck(
    simulator: Simulator, state: State, controls: Tensor | None = None, *, steps: int | None = None,
    wrenches: Tensor | None = None, parameters: Mapping[str, Tensor] | None = None, tolerance: float = 1e-6,
    generator: torch.Generator | None = None,
) -> GradcheckReport:  # fmt: skip
    """Compare the gradients of a rollout, with respect to all its inputs, with central differences.

    The arguments are those of `Simulator.rollout`. Each input is perturbed along a random direction, and the
    derivative of a random projection of all states is compared; then each step is checked for itself, from the states
    of the rollout, to show where an error arises. Errors are relative to the largest derivative of that input. Print
    the report.

    The simulator must be of dtype float64: differences in float32 are too rough.
    """
    if not isinstance(simulator, Simulator):
        raise TypeError(f"simulator must be a backdrive Simulator, got {type(simulator).__name__}")
    if simulator.dtype != torch.float64:
        raise TypeError("gradcheck needs a simulator of dtype torch.float64: differences in float32 are too rough")
    generator = generator or torch.Generator().manual_seed(0)
    with torch.no_grad():
        path = simulator.rollout(state, controls, steps=steps, wrenches=wrenches, parameters=parameters)
    inputs: Inputs = dict(zip(NAMES, state, strict=True))
    if controls is not None:
        inputs["controls"] = controls
    if wrenches is not None:
        inputs["wrenches"] = wrenches
    inputs |= {f"parameter {name}": x.to(torch.float64) for name, x in (parameters or {}).items()}
    inputs = {name: x.detach() for name, x in inputs.items()}

    def path_of(x: Inputs, check: bool) -> Trajectory:
        values = {name.removeprefix("parameter "): y for name, y in x.items() if name.startswith("parameter ")}
        state = State(*(x[name] for name in NAMES))
        given = RolloutArguments(state, x.get("controls"), steps, x.get("wrenches"), values)
        return simulator._rollout(given, check_parameters=check)

    weights = [torch.randn(y.shape, generator=generator, dtype=torch.float64) for y in (path.q, path.v)]

    def loss_of(x: Inputs, check: bool) -> Evaluation:
        path = path_of(x, check)
        terms = torch.cat([(y * w).flatten() for y, w in zip((path.q, path.v), weights, strict=True)])
        return terms.sum(), path.status.modes.flatten(), terms.detach().abs().sum()

    rows = [
        GradcheckRow(name, float(adjoint), float(difference), float(error), bool(switched.any()))
        for name, (adjoint, difference, error, switched) in _compare(loss_of, inputs, list(inputs), generator).items()
    ]
    errors, switched = _check_steps(simulator, path, inputs, generator)
    return GradcheckReport(tolerance, rows, errors, switched)


def _check_steps(
    simulator: Simulator, path: Trajectory, inputs: Inputs, generator: torch.Generator
) -> tuple[dict[str, Tensor], list[int]]:
    """Check every step by itself; the states along the path are one batch [T B].

    Returns the errors [T] of every input, and the steps at which the active set changes.
    """
    times = len(path) - 1
    batch = path.q.shape[1:-1].numel()
    flat: Inputs = {name: x[:-1].reshape(times * batch, x.shape[-1]) for name, x in (("q", path.q), ("v", path.v))}
    for name, rest in (("controls", 1), ("wrenches", 2)):
        if name in inputs:
            x = inputs[name]
            if x.ndim == 1 + rest:  # shared by the environments
                x = x.unsqueeze(1).expand(times, batch, *x.shape[1:])
            flat[name] = x.reshape(times * batch, *x.shape[2:])
    values = {}
    for name, x in inputs.items():
        if name.startswith("parameter "):
            key = name.removeprefix("parameter ")
            batched = x.ndim > len(simulator.model.parameters()[key].shape)
            values[key] = x.repeat(times, *[1] * (x.ndim - 1)) if batched else x
    weights = [torch.randn(flat[k].shape, generator=generator, dtype=torch.float64) for k in ("q", "v")]

    def step_of(x: Inputs, check: bool) -> Evaluation:
        controls, wrenches = (x[k].unsqueeze(0) if k in x else None for k in ("controls", "wrenches"))
        given = RolloutArguments(State(*(x[name] for name in NAMES)), controls, 1, wrenches, values)
        one = simulator._rollout(given, check_parameters=check)
        terms = torch.cat([one.q[1] * weights[0], one.v[1] * weights[1]], -1)
        return terms.sum(-1), one.status.modes[0], terms.detach().abs().sum(-1)

    compared = _compare(step_of, flat, [k for k in ("q", "v", "controls") if k in flat], generator)
    errors = {name: error.view(times, batch).amax(1) for name, (_, _, error, _) in compared.items()}
    switched = torch.stack([s for *_, s in compared.values()]).any(0).view(times, batch).any(1)
    return errors, torch.nonzero(switched).flatten().tolist()


def _compare(
    function: Function, inputs: Inputs, names: list[str], generator: torch.Generator
) -> dict[str, tuple[Tensor, Tensor, Tensor, Tensor]]:
    """For each named input: derivative along a random direction by adjoint and by differences, error, changes of the
    active set.

    Derivatives that nearly vanish are lost in the rounding of differences, which bounds the scale of errors from below.
    """
    leaves = {name: inputs[name].clone().requires_grad_() for name in names}
    with torch.enable_grad():
        value, modes, terms = function({**inputs, **leaves}, True)
        gradients = torch.autograd.grad(value.sum(), list(leaves.values()))
    value = value.detach()
    rows = value.shape
    results = {}
    for name, gradient in zip(names, gradients, strict=True):
        x = inputs[name]
        scale = _scale(x)
        direction = torch.randn(x.shape, generator=generator, dtype=torch.float64) * scale
        adjoint = _by_rows(gradient * direction, rows).sum(-1)
        with torch.no_grad():
            moved = partial(_perturbed, function, inputs, name, direction)
            difference, switched, step = smooth_slope(moved, modes, STEPS)
        size = torch.stack([adjoint.abs(), difference.abs(), 0.1 * scale * _by_rows(gradient, rows).norm(dim=-1)])
        least = (terms * ROUNDING / step).clamp_min(1e-300)
        error = (adjoint - difference).abs() / size.amax(0).maximum(least)
        results[name] = (adjoint, difference, error, switched)
    return results


def _by_rows(x: Tensor, rows: torch.Size) -> Tensor:
    """[*rows, n]; x may be empty."""
    return x.reshape(*rows, x.numel() // max(rows.numel(), 1))


def _perturbed(function: Function, inputs: Inputs, name: str, direction: Tensor, e: float) -> tuple[Tensor, Tensor]:
    value, modes, _ = function({**inputs, name: inputs[name] + e * direction}, False)
    return value, modes


def _scale(x: Tensor) -> float:
    """Perturbations are relative to the size of an input: parameters may be tiny."""
    largest = float(x.abs().max()) if x.numel() else 0.0
    return min(1.0, largest) if largest > 0.0 else 1.0
