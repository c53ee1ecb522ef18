"""What planning found: controls and states, what they cost along the way, and how each environment ended."""

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
    """No step makes the cost smaller, though its derivatives say so."""
    NOT_CONVEX = "not_convex"
    """No regularisation makes the model of the cost convex in the controls."""
    DIVERGED = "diverged"
    """The motion or its cost is not finite, already with the controls to start from."""

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True, eq=False)
class Plan:
    """The outcome of `optimize`; without B everywhere if the state had none.

    controls: [T, B, nu]. states: those they lead to, as the dynamics has them, with [T + 1, B] in front. cost: [B].
    history: [K, B], the cost before the first and after every iteration. iterations: [B], until each one ended.
    outcomes: of every environment (one, if unbatched). gains: [T, B, nu, d], of the feedback u + gains (x ⊖ state) that
    is the best close to the plan; None unless the method has them. seconds: how long it took.
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
        """Of the only environment."""
        if len(self.outcomes) != 1:
            raise ValueError(f"the plan is for {len(self.outcomes)} environments: see outcomes")
        return self.outcomes[0]

    @property
    def converged(self) -> Tensor:
        """bool [B]"""
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
        """The cost along the iterations, of all environments; above the smallest of each that they reached."""
        import matplotlib.pyplot as plt  # an extra

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
