"""Compare every derivative that a fit uses with central differences."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from ..differences import extrapolate, offsets, slopes
from .optimizers import Derivative
from .problem import FitProblem

STEPS = (1e-3, 1e-4, 1e-2, 1e-5, 1e-6)  # Steps of the differences, in the free numbers, in the order they are tried.
GOOD = 1e-7  # No further step is tried if the differences over h and 2 h agree to this relative error.


@dataclass(frozen=True)
class Compared:
    """One derivative that was compared: with respect to one unknown, at one update of one start."""

    update: int
    start: int
    unknown: str
    derivative: float
    """Its magnitude; for a Jacobian, the norm of its column."""
    difference: float
    """The magnitude of its difference from the central difference."""
    switched: bool
    """In at least one step, a contact, limit or motor changed its mode (active set) within the difference."""


@dataclass
class GradientCheck:
    """All derivatives along a fit's path. True if each one agrees, or a contact switched its mode there.

    Errors are relative to the derivative, or to 1e-6 of the largest derivative with respect to the same unknown if that
    is more: near the minimum derivatives vanish, and differences are dominated by rounding.
    """

    tolerance: float = 1e-5
    compared: list[Compared] = field(default_factory=list)

    def errors(self) -> list[float]:
        """The relative errors of all derivatives that were compared."""
        largest: dict[str, float] = {}
        for c in self.compared:
            largest[c.unknown] = max(largest.get(c.unknown, 1e-300), c.derivative)
        return [c.difference / max(c.derivative, 1e-6 * largest[c.unknown]) for c in self.compared]

    @property
    def wrong(self) -> list[Compared]:
        """Derivatives that disagree although no mode switched."""
        return self._disagreeing(switched=False)

    @property
    def unclear(self) -> list[Compared]:
        """Derivatives that disagree where a mode switched: a difference across a switch has no meaning."""
        return self._disagreeing(switched=True)

    def _disagreeing(self, switched: bool) -> list[Compared]:
        pairs = zip(self.compared, self.errors(), strict=True)
        return [c for c, error in pairs if c.switched == switched and not error <= self.tolerance]

    @property
    def worst(self) -> float:
        """The largest error where no mode switched."""
        return max((e for c, e in zip(self.compared, self.errors(), strict=True) if not c.switched), default=0.0)

    def __bool__(self) -> bool:
        return not self.wrong

    def __str__(self) -> str:
        wrong, unclear = self.wrong, self.unclear
        agreeing = len(self.compared) - len(wrong) - len(unclear)
        lines = [f"gradients: {agreeing} of {len(self.compared)} agree with differences to {self.tolerance:g}"]
        for what, some in (("a contact switched its mode", unclear), ("WRONG", wrong)):
            for c in some[:10]:
                compared = f"{c.derivative:.3e} and {c.difference:.1e} off"
                lines.append(f"  update {c.update}, start {c.start}, {c.unknown}: {compared}, {what}")
            if len(some) > 10:
                lines.append(f"  ... and {len(some) - 10} more")
        return "\n".join(lines)

    def watch(self, update: int, problem: FitProblem, starts: Tensor, derivative: Derivative) -> None:
        """Compare one derivative; starts: the numbers of the starts that its rows belong to."""
        z, _, exact = derivative
        exact = exact if exact.ndim == 3 else exact.unsqueeze(1)  # Treat a gradient as a Jacobian with one row.
        difference, switched = _differences(problem, z, gradient=derivative[2].ndim == 2)
        size, off = exact.norm(dim=1), (exact - difference).norm(dim=1)
        for i, start in enumerate(starts.tolist()):
            for p, label in enumerate(problem.unknowns.labels):
                row = Compared(update, start, label, float(size[i, p]), float(off[i, p]), bool(switched[i, p]))
                self.compared.append(row)


def _differences(problem: FitProblem, z: Tensor, gradient: bool) -> tuple[Tensor, Tensor]:
    """∂(residuals or loss)/∂z [S, R, P] by central differences, extrapolated; and whether modes switched, [S, P].

    A small step suffers from rounding, a large one from curvature and from contacts that change their modes. Of several
    steps, the one is used whose differences over h and 2 h agree best, preferring steps without a change of mode.
    """
    starts, size = z.shape
    direction = torch.eye(size, dtype=torch.float64)
    _, modes = _values(problem, z, gradient)
    best = torch.full((starts, size), torch.inf, dtype=torch.float64)
    switched = torch.ones(starts, size, dtype=torch.bool)
    result = torch.zeros((), dtype=torch.float64)
    for step in STEPS:
        moves = torch.cat([k * step * direction for k in offsets(4)])  # [4 P, P]
        values, other = _values(problem, (z.unsqueeze(1) + moves).flatten(0, 1), gradient)
        changed = (other.unflatten(0, (starts, 4, size)) != modes.reshape(starts, 1, 1, -1)).any(-1).any(1)
        narrow, wide = slopes(values.unflatten(0, (starts, 4, size)).mT.unbind(1), step)  # [S, R, P]
        apart, sizes = (wide - narrow).norm(dim=1), narrow.norm(dim=1)
        better = (switched & ~changed) | ((switched == changed) & (apart < best))
        result = torch.where(better.unsqueeze(1), extrapolate([narrow, wide]), result)
        best, switched = torch.where(better, apart, best), switched & changed
        if bool((~switched & (best <= GOOD * sizes)).all()):
            break
    return result, switched


def _values(problem: FitProblem, z: Tensor, gradient: bool) -> tuple[Tensor, Tensor]:
    """Residuals [S, R], or the loss [S, 1]; and the modes (active sets) of all steps [S, T B]."""
    with torch.no_grad():
        path = problem.simulate(z)
        r = problem.residuals(path)
    modes = path.status.modes.unflatten(1, (-1, problem.batch)).movedim(1, 0).flatten(1)
    return r.square().mean(-1, keepdim=True) if gradient else r, modes
