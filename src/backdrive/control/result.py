"""The result of planning: controls and states, the cost by iteration, and the outcome of each environment."""

from __future__ import annotations

import enum
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class Outcome(enum.Enum):
    """How planning ended for one environment."""

    CONVERGED = "converged"
    MAX_ITERATIONS = "max_iterations"
    LINE_SEARCH_FAILED = "line_search_failed"
    """No step size lowers the cost, although its derivatives predict a decrease."""
    NOT_CONVEX = "not_convex"
    """The second-order model of the cost is not convex in the controls, whatever the regularisation."""
    DIVERGED = "diverged"
    """The motion or its cost is not finite with the initial controls; or the gradient is not, with those found."""

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True, eq=False)
class Plan:
    """The result of `optimize`; all shapes are without B if the state was unbatched.

    controls: [T, B, nu]. states: the motion, in the form of the dynamics' states, with leading axes [T + 1, B].
    cost: [B]. history: [K, B], the cost at the start and after every iteration. iterations: [B], until each
    environment ended. outcomes: one for every environment (one if unbatched). gains: [T, B, nu, d], the optimal
    feedback near the plan, u + gains (x ⊖ state); None unless the method computes them. seconds: wall time.
    """

    controls: Tensor
    states: Any
    cost: Tensor
    history: Tensor
    iterations: Tensor
    outcomes: list[Outcome]
    gains: Tensor | None
    method: str
    seconds: float

    @property
    def outcome(self) -> Outcome:
        """The outcome of the only environment; raises if there are several."""
        if len(self.outcomes) != 1:
            raise ValueError(f"the plan is for {len(self.outcomes)} environments: see outcomes")
        return self.outcomes[0]

    @property
    def converged(self) -> Tensor:
        """Which environments have converged, bool [B]."""
        flags = torch.tensor([code is Outcome.CONVERGED for code in self.outcomes])
        return flags if self.cost.ndim else flags[0]

    def __str__(self) -> str:
        counts = Counter(str(code) for code in self.outcomes)
        ends = ", ".join(f"{count} {code}" if len(self.outcomes) > 1 else code for code, count in counts.items())
        finite = self.cost[torch.isfinite(self.cost)]
        costs = "no finite cost" if not finite.numel() else f"cost {finite.min():.6g}"
        if finite.numel() > 1:
            costs += f" ... {finite.max():.6g}"
        return f"{self.method}: {ends} after {int(self.iterations.max())} iterations in {self.seconds:.2f} s; {costs}"

    __repr__ = __str__

    def plot(self) -> Figure:
        """Plot the cost by iteration of all environments, and its distance from the final cost."""
        import matplotlib.pyplot as plt  # An optional dependency.

        figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.6), layout="constrained")
        history = self.history.reshape(len(self.history), -1)
        count = self.iterations.reshape(-1).tolist()
        for b, end in enumerate(count):
            line = history[: end + 1, b]
            style: dict[str, Any] = {"lw": 1.2, "alpha": 0.9 if len(count) < 8 else 0.5}
            left.plot(line, **style)
            right.semilogy((line - line[-1])[:-1].clamp_min(1e-16), **style)
        left.set(xlabel="iteration", ylabel="cost", title=self.method)
        right.set(xlabel="iteration", ylabel="cost above the last one")
        return figure
