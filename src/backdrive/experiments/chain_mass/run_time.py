"""The run time of gradients: by the adjoint, and by differences."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import torch
from torch import Tensor

from ..run import Run
from .figures import draw_times
from .settings import ChainMassSettings
from .world import CENTIMETRE, ChainWorld

MOVE = 1e-7  # Step of the differences, kg.


def run_times(run: Run, settings: ChainMassSettings) -> dict[str, dict[str, list[float]]]:
    """Measure 30 updates of a clipped gradient descent on individual masses, from 0.9 of the truth.

    Two series: chains with as many links as learned masses, as in the paper's figure, where the world grows, too; and
    the longest chain with more and more learned masses, which shows the cost of the gradient alone. Differences are
    forward, which is the cheapest, with one rollout after the other as in the paper; "batched" runs all of them as
    environments of one rollout.
    """
    import matplotlib.pyplot as plt

    ways: dict[str, Callable[[ChainWorld, Tensor, Tensor, int], Tensor]] = {
        "analytic": _by_adjoint, "differences": _by_differences, "differences, batched": _by_batch,
    }  # fmt: skip
    most = max(settings.counts)
    series = {"links": {n: ChainWorld(n) for n in settings.counts}}
    series["masses"] = dict.fromkeys(settings.counts, series["links"][most])
    times: dict[str, dict[str, list[float]]] = {name: {way: [] for way in ways} for name in series}
    jobs = [(name, count, way) for name in series for count in settings.counts for way in ways]
    for name, count, way in run.track(jobs, "run time"):
        times[name][way].append(30 * _seconds(series[name][count], count, ways[way], settings.updates))
        numbers = {
            "counts": settings.counts, "seconds_of_30_updates": times, "updates_measured": settings.updates,
            "as": "30 x the median of an update",
        }  # fmt: skip
        run.record(run_time=numbers)
    analytic = times["masses"]["analytic"]
    ratios = {
        f"{way}, series {name}": some[way][-1] / some["analytic"][-1]
        for name, some in times.items()
        for way in ("differences", "differences, batched")
    }
    flat = max(analytic) / min(analytic)
    run.record(run_time_flatness=flat, run_time_ratio_at_most=ratios)
    run.say(f"run time of analytic gradients from {settings.counts[0]} to {most} masses: within a factor of {flat:.2f}")
    slower, in_batch = (ratios[f"{way}, series masses"] for way in ("differences", "differences, batched"))
    figure, axis = plt.subplots(figsize=(6, 4.5), layout="constrained")
    draw_times(axis, settings.counts, times)
    run.figure("run_time", figure)
    run.say(f"at {most} masses differences take {slower:.1f} times as long ({in_batch:.1f} times if all are one batch)")
    return times


def _seconds(
    world: ChainWorld, count: int, gradient: Callable[[ChainWorld, Tensor, Tensor, int], Tensor], updates: int
) -> float:
    """Median time of an update, s."""
    target = world.positions(world.truth())[:, 0]
    mass = 0.9 * world.truth()
    gradient(world, mass, target, count)  # The first call compiles.
    seconds = []
    for _ in range(updates):
        began = time.perf_counter()
        slope = gradient(world, mass, target, count)
        mass = mass.clone()
        mass[0, :count] -= 1e-7 * slope.clamp(-100.0, 100.0)  # With a larger rate, many free masses would diverge.
        seconds.append(time.perf_counter() - began)
    return statistics.median(seconds)


def _loss(world: ChainWorld, mass: Tensor, target: Tensor) -> Tensor:
    """The paper's loss, cm², [S]."""
    return ((world.positions(mass) - target.unsqueeze(1)) / CENTIMETRE).square().mean((0, 2, 3))


def _by_adjoint(world: ChainWorld, mass: Tensor, target: Tensor, count: int) -> Tensor:
    learned = mass[:, :count].clone().requires_grad_()
    (gradient,) = torch.autograd.grad(_loss(world, torch.cat([learned, mass[:, count:]], -1), target), learned)
    return gradient[0]


def _by_differences(world: ChainWorld, mass: Tensor, target: Tensor, count: int) -> Tensor:
    moved = _moved(mass, count)
    losses = torch.cat([_loss(world, row.unsqueeze(0), target) for row in moved])
    return (losses[1:] - losses[0]) / MOVE


def _by_batch(world: ChainWorld, mass: Tensor, target: Tensor, count: int) -> Tensor:
    losses = _loss(world, _moved(mass, count), target)
    return (losses[1:] - losses[0]) / MOVE


def _moved(mass: Tensor, count: int) -> Tensor:
    """The masses, followed by copies in which one of the first `count` is increased: [count + 1, links]."""
    moves = torch.zeros(count + 1, mass.shape[1], dtype=torch.float64)
    moves[1:, :count] = MOVE * torch.eye(count, dtype=torch.float64)
    return mass + moves
