"""The result of a fit: values with their uncertainty, and the course of the fit, as a table and as a figure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ..model import checks
from .check import GradientCheck
from .optimizers import Outcome
from .unknowns import Unknowns

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class History:
    """The course of a fit, for all S starts; K entries: at the start of each window, and after each update.

    update: [K], number of updates so far. window: [K] s, end of the window of observations.
    values: [K, S, P]. loss: [K, S], the mean square of the residuals, in units of the noise.
    """

    update: Tensor
    window: Tensor
    values: Tensor
    loss: Tensor


@dataclass(frozen=True, eq=False)
class Fit:
    """The result of `fit`: the best start, and all of them.

    labels, units: of the P unknowns. value [P], std [P] (infinite where the observations contain no information),
    covariance [P, P], interval [P, 2] (95 % confidence: it contains the truth in 19 of 20 cases, if the model is right
    and the noise is normal). outcome: how the best start ended. loss: the mean square of its residuals, in units of the
    noise. noise: standard deviation of the residuals, in units of the given noise, or of the observations if no noise
    was given. observed: number of observed values. start: number of the best start. values [S, P], losses [S],
    outcomes: of all starts. check: the comparison of derivatives with differences, if requested.

    noise_used: "given" or "residuals", the noise that std, covariance and interval are for. misfit: the residuals are
    larger than the given noise explains (once in a thousand fits by chance, if the model is right): see `widened`.
    """

    labels: list[str]
    units: list[str]
    value: Tensor
    std: Tensor
    covariance: Tensor
    interval: Tensor
    outcome: Outcome
    loss: float
    noise: float
    noise_known: bool
    observed: int
    start: int
    values: Tensor
    losses: Tensor
    outcomes: list[Outcome]
    history: History
    seconds: float
    check: GradientCheck | None = None
    misfit: bool = False
    noise_used: str = "residuals"
    _unknowns: Unknowns = field(repr=False, kw_only=True)
    _z: Tensor = field(repr=False, kw_only=True)
    _by_residuals: Uncertainty = field(repr=False, kw_only=True)

    def widened(self) -> Fit:
        """The same fit, with the uncertainty that follows from its residuals, not from the given noise.

        It is the better choice if the noise was underestimated. If the model is wrong, no interval means much.
        """
        wide = self._by_residuals
        return replace(
            self, std=wide.std, covariance=wide.covariance, interval=wide.interval, noise_used="residuals"
        )  # fmt: skip

    @property
    def updates(self) -> int:
        return int(self.history.update[-1])

    @property
    def parameters(self) -> dict[str, Tensor]:
        """The learned parameters for `Simulator.rollout`: {name: [*shape]}; other rows have the model's values."""
        return {name: x.squeeze(0) for name, x in self._unknowns.parameters(self._z.unsqueeze(0)).items()}

    def __getitem__(self, label: str) -> float:
        """The value of an unknown by its label, such as ``fit["mass of ball"]``."""
        if label not in self.labels:
            raise ValueError(checks.unknown("unknown", label, self.labels))
        return float(self.value[self.labels.index(label)])

    def __str__(self) -> str:
        head = f"{self.outcome} after {self.updates} updates in {self.seconds:.2f} s"
        if len(self.outcomes) > 1:
            head += f"; best of {len(self.outcomes)} starts: number {self.start}"
        unit = "of the given noise" if self.noise_known else "m or rad"
        origin = "the given noise" if self.noise_used == "given" else "these residuals"
        seen = f"{self.observed} numbers observed; they deviate by {self.noise:.3g} {unit} (rms)"
        lines = [head, f"{seen}; intervals follow from {origin}"]
        rows = [("", "value", "± std", "95 % interval", "unit")]
        for name, value, std, (low, high), of in zip(
            self.labels, self.value.tolist(), self.std.tolist(), self.interval.tolist(), self.units, strict=True
        ):
            rows.append((name, f"{value:.6g}", f"{std:.2g}", f"{low:.6g} ... {high:.6g}", of))
        widths = [max(len(row[k]) for row in rows) for k in range(5)]
        for row in rows:
            cells = [row[0].ljust(widths[0]), *(row[k].rjust(widths[k]) for k in (1, 2, 3)), row[4]]
            lines.append("  ".join(cells).rstrip())
        if self.misfit:
            lines.append(misfit_warning(self.noise, self.noise_used))
        if not bool(torch.isfinite(self.std).all()):
            lines.append("infinite std: the observations do not tell these values, or not apart from each other")
        if self.check is not None:
            lines.append(str(self.check))
        return "\n".join(lines)

    __repr__ = __str__

    def plot(self, truth: Mapping[str, float] | None = None) -> Figure:
        """Plot the loss and the unknowns by update, for all starts. truth: {label: value}, for comparison."""
        import matplotlib.pyplot as plt  # An optional dependency.

        for label in truth or {}:
            self[label]
        figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.8), layout="constrained")
        update, history = self.history.update, self.history
        shown = min(len(self.labels), 10)
        for s in range(history.loss.shape[1]):
            best = s == self.start
            style: dict[str, Any] = {"lw": 1.8, "zorder": 3} if best else {"lw": 0.8, "alpha": 0.35}
            left.semilogy(update, history.loss[:, s].clamp_min(1e-32), color="C0", **style)
            for p in range(shown):
                name = {"label": self.labels[p]} if best else {}
                right.plot(update, history.values[:, s, p], color=f"C{p}", **name, **style)
        for p in range(shown):
            if self.labels[p] in (truth or {}):
                right.axhline(truth[self.labels[p]], color=f"C{p}", ls="--", lw=1)  # type: ignore[index]
        left.set(xlabel="update", ylabel="mean square of the residuals", title="loss")
        more = f" (the first {shown} of {len(self.labels)})" if shown < len(self.labels) else ""
        right.set(xlabel="update", ylabel=", ".join(dict.fromkeys(self.units)), title=f"what is learned{more}")
        right.legend(fontsize=8)
        for axis in (left, right):
            axis.grid(alpha=0.25)
        return figure


@dataclass(frozen=True)
class Uncertainty:
    """The uncertainty of an estimate: cov z = s² (JᵀJ)⁻¹ with the Jacobian J of its residuals, mapped through x(z)."""

    std: Tensor
    covariance: Tensor
    interval: Tensor

    @classmethod
    def of(cls, unknowns: Unknowns, z: Tensor, J: Tensor, residuals: Tensor, noise_known: bool) -> Uncertainty:
        """z [P], J [R, P], residuals [R]."""
        count, size = J.shape
        freedom = count - size
        if noise_known:
            variance, width = 1.0, 1.959963984540054
        elif freedom > 0:
            variance, width = float(residuals.square().sum()) / freedom, student_width(freedom)
        else:
            variance, width = math.inf, math.inf
        covariance_z, identifiable = _inverse(J.mT @ J)
        std_z = (variance * covariance_z.diagonal()).sqrt()
        std_z = torch.where(identifiable, std_z, torch.full_like(std_z, torch.inf))
        D = unknowns.jacobian(z)
        covariance = variance * (D @ covariance_z @ D.T)
        known = ~((D != 0.0) & ~identifiable).any(1)  # of no unidentifiable free number
        std = torch.where(known, covariance.diagonal().clamp_min(0.0).sqrt(), torch.inf)
        ends = torch.stack([z - width * std_z, z + width * std_z])
        mapped = unknowns.values(torch.nan_to_num(ends, posinf=1e300, neginf=-1e300))
        x = unknowns.values(z)
        linear = torch.stack([x - width * std, x + width * std])
        infinite = torch.isinf(torch.where(unknowns.alone, ends, linear))
        bounds = torch.stack([unknowns.low, unknowns.high])
        finite = torch.where(unknowns.alone, mapped, torch.clamp(linear, unknowns.low, unknowns.high))
        interval = torch.where(infinite, bounds, finite).sort(0).values.T
        return cls(std, covariance, interval)


def _inverse(H: Tensor) -> tuple[Tensor, Tensor]:
    """H⁺ [P, P], and which unknowns are identifiable, bool [P]: those without a component in the null space of H."""
    scale = H.diagonal().clamp_min(0.0).sqrt()
    felt = scale > 0
    scale = torch.where(felt, scale, torch.ones_like(scale))
    values, vectors = torch.linalg.eigh(H / (scale.unsqueeze(0) * scale.unsqueeze(1)))
    kept = values > 1e-12 * values.max().clamp_min(1e-300)
    inverse = (vectors[:, kept] / values[kept]) @ vectors[:, kept].T / (scale.unsqueeze(0) * scale.unsqueeze(1))
    lost = vectors[:, ~kept].square().sum(1) > 1e-6
    return inverse, felt & ~lost


def misfit_warning(noise: float, noise_used: str = "given") -> str:
    """noise_used: that which the intervals are for, as in `Fit`."""
    cause = (
        f"the residuals are {noise:.3g} times the given noise: the noise is larger than given, or the model is wrong"
    )
    if noise_used == "given":
        return f"{cause}; intervals from the given noise are too narrow (widened() has those from the residuals)"
    return f"{cause}; if it is the model, no interval means much"


def significant(loss: float, freedom: int) -> bool:
    """Whether the sum of squares of residuals in units of their noise, loss, is too large for chance (p < 0.001).

    It has a χ² distribution with `freedom` degrees of freedom, whose quantile is that of Wilson and Hilferty.
    """
    deviations = 3.0902  # of the normal distribution, for p = 0.001
    part = 2.0 / (9.0 * freedom)
    return loss > freedom * (1.0 - part + deviations * math.sqrt(part)) ** 3


def student_width(freedom: int) -> float:
    """Half the width of the 95 % interval of Student's t distribution, in standard deviations, accurate to 1 %.

    The closed forms for one and two degrees of freedom; else an expansion about the normal distribution in 1 / freedom.
    """
    if freedom == 1:
        return math.tan(0.475 * math.pi)
    if freedom == 2:
        return 0.95 * math.sqrt(2.0 / (1.0 - 0.95**2))
    x = 1.959963984540054
    terms = (
        (x**3 + x) / 4,
        (5 * x**5 + 16 * x**3 + 3 * x) / 96,
        (3 * x**7 + 19 * x**5 + 17 * x**3 - 15 * x) / 384,
        (79 * x**9 + 776 * x**7 + 1482 * x**5 - 1920 * x**3 - 945 * x) / 92160,
    )
    return x + sum(term / freedom ** (k + 1) for k, term in enumerate(terms))
