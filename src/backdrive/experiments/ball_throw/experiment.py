"""Search from random starts with gradients and with CMA-ES, and compare them."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from ...threads import one_torch_thread
from ..run import Run
from .checks import check_throws
from .figures import PAPER, draw_losses, draw_throws, film_throws
from .searches import EVALUATIONS, ITERATIONS, LONGEST, TOLERANCES, Search, by_cma, by_gradient
from .table import best_sigma, compare, tabulate
from .world import DAMPING, DT, HEIGHT, MASS, MATERIAL, RADIUS, REST, SECONDS, TARGET, ThrowWorld

SIGMAS = (0.3, 1.0, 3.0)  # Initial standard deviations of CMA-ES, m/s.
SPREAD = 3.0  # Standard deviation of each element of a random start, m/s.
POPULATION = 9  # Default population of CMA-ES in 6 dimensions.
TIMED = 40  # Evaluations that are timed.


@dataclass(frozen=True)
class BallThrowSettings:
    """How thorough a run is. starts: number of random starts."""

    starts: int


FULL, QUICK = BallThrowSettings(100), BallThrowSettings(10)


def run(run: Run) -> None:
    try:
        import cma
    except ImportError as error:
        raise ImportError("ball-throw compares with CMA-ES: pip install 'backdrive[experiments]'") from error
    settings = QUICK if run.quick else FULL
    run.record(
        world={
            "dt": DT, "seconds": SECONDS, "radius_m": RADIUS, "mass_kg": MASS, "height_m": HEIGHT, "damping": DAMPING,
            "target_m": TARGET, **MATERIAL,
        },
        method={
            "rest_m_per_s": REST, "tolerances_m": TOLERANCES, "start_deviation_m_per_s": SPREAD,
            "starts": settings.starts, "longest_step_m_per_s": LONGEST, "iterations_at_most": ITERATIONS,
            "cma_version": cma.__version__, "cma_sigmas_m_per_s": SIGMAS, "cma_evaluations_at_most": EVALUATIONS,
        },
        paper=PAPER,
    )  # fmt: skip
    starts = SPREAD * torch.randn(settings.starts, 6, generator=run.generator(1), dtype=torch.float64)
    with one_torch_thread():
        world = ThrowWorld()
        time_evaluations(run, world, starts)
        searches = search_all(run, world, starts)
        table = tabulate(run, searches)
        best = best_sigma(table)
        compare(run, table, best)
        check_throws(run, world, starts, searches["gradient"])
        draw_throws(run, world, searches["gradient"])
        draw_losses(run, searches, best)
        film_throws(run, world, searches["gradient"])


def time_evaluations(run: Run, world: ThrowWorld, starts: Tensor) -> None:
    """Measure the time of each method's evaluations, and its variation, after a first call that compiles."""
    throws = starts[:1].clone().requires_grad_()

    def rollout_and_gradient() -> None:
        torch.autograd.grad(world.landing(world.throw(throws)).loss.sum(), throws)

    @torch.no_grad()
    def population() -> None:
        world.landing(world.throw(starts[:1].expand(POPULATION, -1)))

    costs = {}
    for name, evaluate in (("rollout and gradient", rollout_and_gradient), (f"{POPULATION} rollouts", population)):
        evaluate()
        seconds = []
        for _ in range(TIMED):
            began = time.perf_counter()
            evaluate()
            seconds.append(time.perf_counter() - began)
        low, median, high = statistics.quantiles(seconds, n=4)
        costs[name] = {"least": min(seconds), "median": median, "quartiles": (low, high)}
        run.say(f"{name}: {1e3 * median:.1f} ms (half of {TIMED} between {1e3 * low:.1f} and {1e3 * high:.1f})")
    run.record(seconds_of_an_evaluation=costs)


def search_all(run: Run, world: ThrowWorld, starts: Tensor) -> dict[str, list[Search]]:
    """Search from every start with every method; the searches by the method's name."""
    seeds = torch.randint(1 << 31, (len(starts),), generator=run.generator(2)).tolist()
    methods: dict[str, Callable[[Tensor, int], Search]] = {"gradient": lambda start, seed: by_gradient(world, start)}
    for sigma in SIGMAS:
        methods[cma_name(sigma)] = lambda start, seed, sigma=sigma: by_cma(world, start, sigma, seed)  # type: ignore[misc]
    searches: dict[str, list[Search]] = {name: [] for name in methods}
    for start, seed in zip(run.track(starts, "starts", len(starts)), seeds, strict=True):
        for name, method in methods.items():
            searches[name].append(method(start, seed))
    return searches


def cma_name(sigma: float) -> str:
    return f"CMA-ES {sigma:g} m/s"
