"""A check of gradients for users: on their own scene, against finite differences, input by input and step by step."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor

from .differences import Reached, smooth_slope
from .model import State
from .schema.state import NAMES
from .simulator import RolloutArguments, Simulator
from .trajectory import Trajectory

Inputs = dict[str, Tensor]
Function = Callable[[Inputs, bool], Reached]
"""Of the inputs, and whether parameters are checked: differences about a value at the border of what is possible, as an
armature of zero is, step beyond it."""

STEPS = (1e-4, 1e-5, 1e-3, 1e-6, 1e-7, 1e-8)  # of differences, relative to an input, in the order they are tried
MARGIN = 3.0  # Errors of differences are known up to this factor.


class Verdict(enum.Enum):
    """What a comparison with differences shows."""

    AGREES = "agrees"
    INCONCLUSIVE = "inconclusive"
    """They differ, but the difference is not known better: a mode switches within it, or its size changes it."""
    WRONG = "wrong"
    """They differ, and differences of several sizes agree with each other."""

    def __str__(self) -> str:
        return self.value

    @classmethod
    def of_all(cls, verdicts: Iterable[Verdict]) -> Verdict:
        """WRONG if one is, else INCONCLUSIVE if one is."""
        found = set(verdicts)
        return next((verdict for verdict in (cls.WRONG, cls.INCONCLUSIVE) if verdict in found), cls.AGREES)


SHOWN = {Verdict.AGREES: "ok", Verdict.INCONCLUSIVE: "inconclusive", Verdict.WRONG: "WRONG"}


@dataclass(frozen=True)
class GradcheckRow:
    """One comparison: the derivative along a random direction by the adjoint and by differences."""

    name: str
    adjoint: float
    difference: float
    error: float
    switched: bool  # the active set changed within the difference: the derivative jumps there
    noise: float  # of the difference, relative as the error is: differences of several sizes are that far apart
    verdict: Verdict


@dataclass(frozen=True)
class GradcheckReport:
    """The result of `gradcheck`; true if everything agreed."""

    tolerance: float
    rollout: list[GradcheckRow] = field(default_factory=list)
    steps: dict[str, Tensor] = field(default_factory=dict)
    """For each of q, v and controls, the error of every single step: [T]."""
    switched: list[int] = field(default_factory=list)
    """Steps at which the active set (of contacts, limits and motors) changes within the difference."""
    step_verdicts: dict[str, list[Verdict]] = field(default_factory=dict)
    """For each of q, v and controls, the verdict on every single step."""

    @property
    def verdict(self) -> Verdict:
        """AGREES only if every comparison does; WRONG if one is wrong; else INCONCLUSIVE."""
        steps = [verdict for verdicts in self.step_verdicts.values() for verdict in verdicts]
        return Verdict.of_all([*(row.verdict for row in self.rollout), *steps])

    @property
    def ok(self) -> bool:
        return self.verdict is Verdict.AGREES

    def __bool__(self) -> bool:
        return self.ok

    def __str__(self) -> str:
        lines = [f"{'input':<14}{'adjoint':>18}{'difference':>18}{'error':>10}"]
        for row in self.rollout:
            numbers = f"{row.adjoint:>18.9e}{row.difference:>18.9e}{row.error:>10.1e}"
            lines.append(f"{row.name:<14}{numbers}  {SHOWN[row.verdict]}{_reason(row)}")
        for name, errors in self.steps.items():
            verdicts = self.step_verdicts[name]
            verdict = Verdict.of_all(verdicts)
            those = [t for t, each in enumerate(verdicts) if each is verdict]
            worst = max(those, key=lambda t: float(errors[t].nan_to_num(torch.inf)))
            lines.append(f"each step, {name}: worst error {float(errors[worst]):.1e} at step {worst}  {SHOWN[verdict]}")
        if self.switched:
            shown = ", ".join(map(str, self.switched[:10])) + (", ..." if len(self.switched) > 10 else "")
            lines.append(f"a contact or limit switches within the difference at steps {shown}: no derivative there")
        return "\n".join([*lines, *self._sum()])

    def _sum(self) -> list[str]:
        """The last lines: the verdict on all, and what to do."""
        if self.verdict is Verdict.AGREES:
            return [f"all agree to {self.tolerance:g}"]
        if self.verdict is Verdict.WRONG:
            return [f"DISAGREE to {self.tolerance:g}"]
        return [
            "to decide: start elsewhere (contacts at rest are at a switch: take random states, or later ones of the",
            "path), take fewer steps, or another direction (generator=)",
            f"INCONCLUSIVE: {self._count(Verdict.AGREES)} of {self._count(*Verdict)} comparisons agree to "
            f"{self.tolerance:g}, the others cannot be decided",
        ]

    def _count(self, *verdicts: Verdict) -> int:
        steps = [verdict for those in self.step_verdicts.values() for verdict in those]
        return sum(verdict in verdicts for verdict in [*(row.verdict for row in self.rollout), *steps])


def _reason(row: GradcheckRow) -> str:
    if row.verdict is not Verdict.INCONCLUSIVE:
        return ""
    return ": a mode switches" if row.switched else f": differences vary by {row.noise:.0e}"


def gradcheck(
    simulator: Simulator, state: State, controls: Tensor | None = None, *, steps: int | None = None,
    wrenches: Tensor | None = None, parameters: Mapping[str, Tensor] | None = None, tolerance: float = 1e-6,
    generator: torch.Generator | None = None,
) -> GradcheckReport:  # fmt: skip
    """Compare the gradients of a rollout, with respect to all its inputs, with central differences.

    The arguments are those of `Simulator.rollout`. Each input is perturbed along a random direction, and the
    derivative of a random projection of all states is compared; then each step is checked for itself, from the states
    of the rollout, to show where an error arises. Errors are relative to the derivative, or to a tenth of the length of
    that input's gradient, if it is more. Differences of several sizes say how well they are known themselves. Print the
    report; its `verdict` is AGREES, WRONG, or, where differences cannot decide, INCONCLUSIVE: it then says what to do.

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

    def loss_of(x: Inputs, check: bool) -> Reached:
        path = path_of(x, check)
        terms = torch.cat([(y * w).flatten() for y, w in zip((path.q, path.v), weights, strict=True)])
        return Reached(terms.sum(), path.status.modes.flatten(), terms.detach().abs().sum())

    report = GradcheckReport(tolerance)
    compared = _compare(loss_of, inputs, list(inputs), tolerance, generator)
    largest = _largest(compared)
    for name, found in compared.items():
        error, (verdict,) = found.judged(tolerance, largest)
        noise = found.noise / found.scale.clamp_min(1e-300)
        adjoint, difference = float(found.adjoint), float(found.difference)
        row = GradcheckRow(name, adjoint, difference, float(error), bool(found.crossed), float(noise), verdict)
        report.rollout.append(row)
    _check_steps(simulator, path, inputs, report, generator)
    return report


def _check_steps(
    simulator: Simulator, path: Trajectory, inputs: Inputs, report: GradcheckReport, generator: torch.Generator
) -> None:
    """Check every step by itself, and add to the report; the states along the path are one batch [T B]."""
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

    def step_of(x: Inputs, check: bool) -> Reached:
        controls, wrenches = (x[k].unsqueeze(0) if k in x else None for k in ("controls", "wrenches"))
        given = RolloutArguments(State(*(x[name] for name in NAMES)), controls, 1, wrenches, values)
        one = simulator._rollout(given, check_parameters=check)
        terms = torch.cat([one.q[1] * weights[0], one.v[1] * weights[1]], -1)
        return Reached(terms.sum(-1), one.status.modes[0], terms.detach().abs().sum(-1))

    names: list[str] = [k for k in ("q", "v", "controls") if k in flat]
    compared = _compare(step_of, flat, names, report.tolerance, generator)
    largest = _largest(compared)
    for name, found in compared.items():
        error, verdicts = found.judged(report.tolerance, largest)
        report.steps[name] = error.view(times, batch).amax(1)
        by_step = [verdicts[t * batch : (t + 1) * batch] for t in range(times)]
        report.step_verdicts[name] = [Verdict.of_all(those) for those in by_step]
    switched = torch.stack([found.switched for found in compared.values()]).any(0).view(times, batch).any(1)
    report.switched.extend(torch.nonzero(switched).flatten().tolist())


class Comparison(NamedTuple):
    """Derivatives along a random direction, one for each value of a function: tensors [*rows].

    scale: the larger of the derivative and a tenth of the gradient's length. crossed: a mode switched within the
    difference; switched: which of them, by mode. noise: of the difference. jump: of the derivative at this point.
    """

    adjoint: Tensor
    difference: Tensor
    scale: Tensor
    crossed: Tensor
    switched: Tensor
    noise: Tensor
    jump: Tensor

    def judged(self, tolerance: float, largest: Tensor) -> tuple[Tensor, list[Verdict]]:
        """Errors [*rows], and the verdict on each value.

        largest: the largest scale among all inputs [*rows]. A derivative that nearly vanishes beside those is lost in
        the noise of its difference: then its error is relative to that scale, as long as the noise is small beside it.
        """
        miss, noise = (self.adjoint - self.difference).abs(), MARGIN * self.noise
        vanishes = (miss > tolerance * self.scale) & (miss <= noise) & (noise <= tolerance * largest)
        error = miss / torch.where(vanishes, largest, self.scale).clamp_min(1e-300)
        unknown = self.crossed | (miss <= noise.maximum(self.jump.abs())) | ~torch.isfinite(self.difference)
        unknown &= torch.isfinite(self.adjoint) | ~torch.isfinite(self.difference)
        verdicts = torch.where(error <= tolerance, 0, torch.where(unknown, 1, 2)).flatten().tolist()
        return error, [(Verdict.AGREES, Verdict.INCONCLUSIVE, Verdict.WRONG)[k] for k in verdicts]


def _compare(
    function: Function, inputs: Inputs, names: list[str], tolerance: float, generator: torch.Generator
) -> dict[str, Comparison]:
    """For each named input: the derivatives along a random direction, by the adjoint and by differences."""
    leaves = {name: inputs[name].clone().requires_grad_() for name in names}
    with torch.enable_grad():
        value = function({**inputs, **leaves}, True).values
        gradients = torch.autograd.grad(value.sum(), list(leaves.values()))
    rows = value.shape
    results = {}
    for name, gradient in zip(names, gradients, strict=True):
        x = inputs[name]
        size = _scale(x)
        direction = torch.randn(x.shape, generator=generator, dtype=torch.float64) * size
        adjoint = _by_rows(gradient * direction, rows).sum(-1)
        scale = adjoint.abs().maximum(0.1 * size * _by_rows(gradient, rows).norm(dim=-1))

        def moved(e: float, name: str = name, direction: Tensor = direction) -> Reached:
            return function({**inputs, name: inputs[name] + e * direction}, False)

        with torch.no_grad():
            slope = smooth_slope(moved, STEPS, 0.1 * tolerance * scale)
        crossed = slope.switched if slope.switched.shape == rows else slope.switched.any()
        scale = scale.maximum(slope.value.abs())
        results[name] = Comparison(adjoint, slope.value, scale, crossed, slope.switched, slope.error, slope.jump)
    return results


def _largest(compared: Mapping[str, Comparison]) -> Tensor:
    """The largest scale among all inputs."""
    return torch.stack([each.scale.nan_to_num(0.0, 0.0) for each in compared.values()]).amax(0)


def _by_rows(x: Tensor, rows: torch.Size) -> Tensor:
    """[*rows, n]; x may be empty."""
    return x.reshape(*rows, x.numel() // max(rows.numel(), 1))


def _scale(x: Tensor) -> float:
    """Perturbations are relative to the size of an input: parameters may be tiny."""
    largest = float(x.abs().max()) if x.numel() else 0.0
    return min(1.0, largest) if largest > 0.0 else 1.0
