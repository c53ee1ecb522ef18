"""The figures."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ..run import Run
from .balance import HORIZON
from .boxes import BOXES, IDENTIFIABLE, TRUTH, UNKNOWNS, identifiable
from .game import CAP, GOOD


def draw_curves(run: Run, counts: Sequence[int], table: dict[str, dict[str, Any]]) -> None:
    """Draw one-step error (median of the seeds) and reward (mean) against samples; bands contain all seeds."""
    import matplotlib.pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(10.5, 4.2), layout="constrained")
    for (name, rows), color in zip(table.items(), ("C0", "C3"), strict=True):
        samples = [int(n) for n in rows]
        for axis, what, middle in ((left, "one_step_mse", statistics.median), (right, "reward", statistics.fmean)):
            by_seed = [row[what].tolist() for row in rows.values()]
            axis.plot(samples, [middle(some) for some in by_seed], "o-", ms=4, color=color, label=name)
            axis.fill_between(samples, list(map(min, by_seed)), list(map(max, by_seed)), color=color, alpha=0.2, lw=0)
    boxes = table[BOXES]
    velocities = [float(row["one_step_mse_of_velocities"].median()) for row in boxes.values()]
    left.plot([int(n) for n in boxes], velocities, "--", color="C0", lw=1.0, label="boxes, velocities only")
    right.axhline(GOOD, color="0.5", lw=0.8, ls=":", label=f"{GOOD:g}")
    left.set(yscale="log", ylabel="mean squared error of one step (SI units)", title="held-out random play; median")
    right.set(ylabel="reward of an episode", ylim=(0, 1.03 * CAP), title=f"iLQR over {HORIZON} steps; mean")
    for axis in (left, right):
        axis.set_xscale("symlog", linthresh=1.0)
        axis.set_xlim(-0.2, 1.3 * max(counts))
        axis.set_xticks([0, *counts], ["guess", *map(str, counts)], fontsize=8)
        axis.minorticks_off()
        axis.set_xlabel("samples (steps of random play)")
        axis.legend(fontsize=8)
    run.figure("curves", figure)


def draw_learned(run: Run, samples: int, guesses: Tensor, values: Tensor, thin: Tensor, deviations: Tensor) -> None:
    """Draw every seed's masses and sizes, and the three identifiable numbers, as multiples of the truth."""
    import matplotlib.pyplot as plt

    truth = torch.tensor(TRUTH, dtype=torch.float64)
    figure, (left, right) = plt.subplots(1, 2, figsize=(10.5, 3.8), layout="constrained")
    spread = torch.linspace(-0.12, 0.12, len(values))
    for k in range(3):
        for x, style, dx in ((guesses, "0.6", -0.25), (values, "C0", 0.0), (thin, "C2", 0.25)):
            left.plot(k + dx + spread, x[:, k] / truth[k], "o", color=style, ms=4)
    left.set_xticks(range(3), UNKNOWNS[:3], fontsize=8)
    left.set(yscale="log", ylabel="learned / true", title=f"{samples} samples: masses and length")
    left.minorticks_off()
    left.set_yticks([0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0], ["0.1", "0.2", "0.5", "1", "2", "5", "10"])
    for label, color in (("guess", "0.6"), ("learned, with the width", "C0"), ("learned, width known", "C2")):
        left.plot([], [], "o", color=color, ms=4, label=label)
    left.legend(fontsize=8)
    for k in range(3):
        exact = identifiable(truth)[k]
        error = 1.96 * deviations[:, k] / exact
        right.errorbar(k + spread, identifiable(values)[:, k] / exact, yerr=error, fmt="o", color="C0", ms=4, lw=0.8)
    right.axhline(1.0, color="k", lw=0.8, ls="--")
    right.set_xticks(range(3), IDENTIFIABLE, fontsize=8)
    right.set_xlim(-0.5, 2.5)
    right.set(title="identifiable numbers, with 95 % intervals")
    run.figure("learned", figure)
