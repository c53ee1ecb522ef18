"""A ball is thrown so that after 10 s it lies at rest 10 m away: its 6 velocities by gradients, and by CMA-ES.

The ball is a football: 0.43 kg, 11 cm radius, hollow, released 1 m above ground. It bounces (restitution 0.5), slides
and rolls (friction 0.5) on softened contact. The engine's contacts have no rolling resistance: what ends the rolling is
a viscous damping of the ball's free joint, 0.011 N s/m and N m s/rad. It acts in the air, too: the path hardly feels it
(2.6 % of the speed per second), the spin does (96 % per second). Rolling ends as exp(-1.3 t/s), not in finite time, so
"at rest" is a speed, see `REST`.

The 6 numbers are those of the start: velocity, and angular velocity x radius, so that all are in m/s.

Steps are split at impacts: the time of a bounce depends on the throw, and the gradient has that derivative.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from ..differences import along
from ..model import Free, HalfSpace, Model, Scene, Sphere, State
from ..simulator import Simulator
from ..threads import one_torch_thread
from ..trajectory import Trajectory
from .run import Run

if TYPE_CHECKING:
    from matplotlib.axes import Axes

DT, SECONDS = 1 / 100, 10.0
STEPS = round(SECONDS / DT)
RADIUS, MASS, HEIGHT = 0.11, 0.43, 1.0  # m, kg, m
DAMPING = 0.011  # N s/m and N m s/rad
MATERIAL: dict[str, Any] = {"friction": 0.5, "restitution": 0.5, "softness": 0.005}
TARGET = (10.0, 0.0, RADIUS)  # m, of the ball's centre
REST = 1e-3  # m/s, of any point of the ball
TOLERANCES = (0.30, 0.10, 0.03, 0.01)  # m
SPREAD = 3.0  # m/s, the standard deviation of each number of a random start
LONGEST = 3.0  # m/s, of a step of the descent
ITERATIONS = 87  # of the descent, at most: the paper needs 88
SIGMAS = (0.3, 1.0, 3.0)  # m/s, first deviations of CMA-ES
EVALUATIONS = 5000  # by CMA-ES, at most: twice what the paper needs
POPULATION = 9  # of CMA-ES in 6 dimensions, by default
TIMED = 40  # evaluations, for the noise of the clock
PAPER = {"gradient": {"iterations": 88, "seconds": 16.3}, "CMA-ES": {"iterations": 2422, "seconds": 59.9}}


@dataclass(frozen=True)
class BallThrowSettings:
    """How thorough."""

    starts: int


FULL, QUICK = BallThrowSettings(100), BallThrowSettings(10)


# ---------------------------------------------------------------------------------------------- the world


@dataclass(frozen=True)
class Landing:
    """Where B throws ended after 10 s; all [B]."""

    loss: Tensor
    """Distance² + (speed x 1 s)², m²."""
    distance: Tensor
    """Of the ball from its target, m."""
    speed: Tensor
    """Bound on that of any point of the ball: |v| + radius |ω|, m/s."""


class ThrowWorld:
    """The ball, the ground, and the target."""

    def __init__(self) -> None:
        self.model = build()
        self.simulator = Simulator(self.model, DT, impacts=True, pyramid=8)
        self.units = torch.tensor([1.0] * 3 + [1.0 / RADIUS] * 3, dtype=torch.float64)
        self.target = torch.tensor(TARGET, dtype=torch.float64)

    def throw(self, throws: Tensor, steps: int = STEPS) -> Trajectory:
        """The motion from these starts, [B, 6] m/s, in one batch."""
        return self.simulator.rollout(State(self.model.initial_state(len(throws)).q, throws * self.units), steps=steps)

    def landing(self, path: Trajectory) -> Landing:
        miss = path.last.q[:, :3] - self.target
        speeds = path.last.v / self.units
        loss = miss.square().sum(-1) + speeds.square().sum(-1)
        return Landing(loss, miss.norm(dim=-1), speeds[:, :3].norm(dim=-1) + speeds[:, 3:].norm(dim=-1))


def build() -> Model:
    scene = Scene(dim=3, gravity=(0.0, 0.0, -9.81))
    scene.add_static(HalfSpace(normal=(0.0, 0.0, 1.0)), **MATERIAL)
    hollow = (2.0 / 3.0 * MASS * RADIUS**2,) * 3
    scene.add_body("ball", Sphere(RADIUS), mass=MASS, inertia=hollow, position=(0.0, 0.0, HEIGHT), **MATERIAL)
    scene.add_joint("air", Free(damping=DAMPING), child="ball")
    return scene.build()


# ---------------------------------------------------------------------------------------------- the optimisers


@dataclass
class Search:
    """What an optimiser tried from one start, in that order; seconds are since it began."""

    throws: list[Tensor] = field(default_factory=list)
    loss: list[float] = field(default_factory=list)
    distance: list[float] = field(default_factory=list)
    speed: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    found: bool = False
    """To the last tolerance."""
    began: float = field(default_factory=time.perf_counter)

    def add(self, throws: Tensor, landing: Landing) -> None:
        self.throws.extend(throws.detach())
        self.loss.extend(landing.loss.tolist())
        self.distance.extend(landing.distance.tolist())
        self.speed.extend(landing.speed.tolist())
        self.seconds.extend([time.perf_counter() - self.began] * len(throws))
        self.found |= bool(((landing.distance <= TOLERANCES[-1]) & (landing.speed <= REST)).any())

    def first(self, tolerance: float) -> int | None:
        """Which evaluation, from 0, was the first to lie at rest within the tolerance."""
        tried = enumerate(zip(self.distance, self.speed, strict=True))
        return next((i for i, (distance, speed) in tried if distance <= tolerance and speed <= REST), None)


def by_gradient(world: ThrowWorld, start: Tensor) -> Search:
    """Newton's method for √loss = 0: the shortest step z - 2 loss g/|g|² to where its linearisation is zero.

    Every iteration is one rollout and one gradient. There is no line search; steps are cut to `LONGEST`. start: [6]
    """
    search, throw = Search(), start.unsqueeze(0)
    for _ in range(ITERATIONS):
        throw = throw.detach().requires_grad_()
        landing = world.landing(world.throw(throw))
        (gradient,) = torch.autograd.grad(landing.loss.sum(), throw)
        search.add(throw, landing)
        if search.found:
            break
        step = 2.0 * landing.loss.detach() * gradient / gradient.square().sum()
        throw = throw - step * (LONGEST / step.norm()).clamp_max(1.0)
    return search


def by_cma(world: ThrowWorld, start: Tensor, sigma: float, seed: int) -> Search:
    """CMA-ES with the settings of its library; each of its populations is one batch. start: [6]"""
    import cma  # an extra

    normal = np.random.default_rng(seed).standard_normal
    options = {"verbose": -9, "seed": math.nan, "randn": lambda *shape: normal(shape)}  # leave numpy's own seed alone
    search = Search()
    strategy = cma.CMAEvolutionStrategy(start.numpy(), sigma, options)
    with torch.no_grad():
        while len(search.loss) < EVALUATIONS and not search.found and not strategy.stop():
            population = strategy.ask()
            throws = torch.from_numpy(np.stack(population))
            landing = world.landing(world.throw(throws))
            search.add(throws, landing)
            strategy.tell(population, landing.loss.tolist())
    return search


# ---------------------------------------------------------------------------------------------- the experiment


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
        searches = search(run, world, starts)
        table = tabulate(run, searches)
        best = best_sigma(table)
        compare(run, table, best)
        check_throws(run, world, starts, searches["gradient"])
        draw_throws(run, world, searches["gradient"])
        draw_losses(run, searches, best)


def time_evaluations(run: Run, world: ThrowWorld, starts: Tensor) -> None:
    """What each method pays for its evaluations, and how much that varies on this machine; compiles before it times."""
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


def search(run: Run, world: ThrowWorld, starts: Tensor) -> dict[str, list[Search]]:
    """From every start with every method, by its name."""
    seeds = torch.randint(1 << 31, (len(starts),), generator=run.generator(2)).tolist()
    methods: dict[str, Callable[[Tensor, int], Search]] = {"gradient": lambda start, seed: by_gradient(world, start)}
    for sigma in SIGMAS:
        methods[_cma(sigma)] = lambda start, seed, sigma=sigma: by_cma(world, start, sigma, seed)  # type: ignore[misc]
    searches: dict[str, list[Search]] = {name: [] for name in methods}
    for start, seed in zip(run.track(starts, "starts", len(starts)), seeds, strict=True):
        for name, method in methods.items():
            searches[name].append(method(start, seed))
    return searches


def _cma(sigma: float) -> str:
    return f"CMA-ES {sigma:g} m/s"


def tabulate(run: Run, searches: dict[str, list[Search]]) -> dict[str, dict[str, Any]]:
    """Evaluations and seconds of each method to each tolerance, by start; their spread is of those that got there."""
    table: dict[str, dict[str, Any]] = {}
    for name, some in searches.items():
        table[name] = {}
        for tolerance in TOLERANCES:
            firsts = [one.first(tolerance) for one in some]
            evaluations = [None if first is None else first + 1 for first in firsts]
            seconds = [None if first is None else one.seconds[first] for one, first in zip(some, firsts, strict=True)]
            table[name][_centimetres(tolerance)] = {
                "found": sum(first is not None for first in firsts), "starts": len(firsts),
                "evaluations": _spread(evaluations), "seconds": _spread(seconds),
                "evaluations_by_start": evaluations, "seconds_by_start": seconds,
            }  # fmt: skip
    run.record(table=table)
    return table


def _centimetres(tolerance: float) -> str:
    return f"{100 * tolerance:g} cm"


def _spread(values: Sequence[float | None]) -> dict[str, float] | None:
    known = [value for value in values if value is not None]
    return {"median": statistics.median(known), "mean": statistics.fmean(known), "most": max(known)} if known else None


def best_sigma(table: dict[str, dict[str, Any]]) -> str:
    """The CMA-ES that finds most throws to the last tolerance, and of these the one with the fewest evaluations."""

    def badness(name: str) -> tuple[int, float]:
        last = table[name][_centimetres(TOLERANCES[-1])]
        return -last["found"], last["evaluations"]["median"] if last["evaluations"] else math.inf

    return min(map(_cma, SIGMAS), key=badness)


def compare(run: Run, table: dict[str, dict[str, Any]], best: str) -> None:
    """Gradients with the best CMA-ES, in words and as ratios of medians."""
    ratios = {}
    for tolerance in map(_centimetres, TOLERANCES):
        ours, theirs = table["gradient"][tolerance], table[best][tolerance]
        words = [f"at rest within {tolerance}:"]
        for name, one in (("gradient", ours), (best, theirs)):
            words.append(f"{name} {one['found']} of {one['starts']}")
            if one["found"]:
                words.append(f"in {one['evaluations']['median']:g} evaluations, {one['seconds']['median']:.3f} s;")
        if ours["found"] and theirs["found"]:
            ratios[tolerance] = {
                what: theirs[what]["median"] / ours[what]["median"] for what in ("evaluations", "seconds")
            }
            words.append("{evaluations:.1f} x fewer, {seconds:.1f} x sooner (medians)".format(**ratios[tolerance]))
        run.say(" ".join(words))
    run.record(best_cma=best, ratios_of_medians=ratios)


def check_throws(run: Run, world: ThrowWorld, starts: Tensor, searches: Sequence[Search]) -> None:
    """Of the throws found: what they feel, that they stay where they are, and that gradients are right."""
    ends = [one.throws[-1] for one in searches if one.found]
    if not ends:
        return
    found = torch.stack(ends).requires_grad_()
    path = world.throw(found)
    status = path.status
    exact = status.converged & (status.fallbacks + status.simultaneous + status.guarded == 0)
    with torch.no_grad():
        later = world.throw(found, 2 * STEPS).position("ball")
        creep = (later[-1] - later[STEPS]).norm(dim=-1)
    influence = [torch.autograd.grad(path.last.q[:, k].sum(), found, retain_graph=True)[0] for k in range(2)]
    norms = torch.stack(influence).norm(dim=0).median(0).values
    throws = torch.cat([starts, found.detach()])
    errors, switched = gradient_errors(world, throws)
    worst = float(errors[~switched].max())
    run.record(
        throws_found={
            "m_per_s": found, "impacts": status.impacts.sum(0), "steps_without_exact_gradient": int((~exact).sum()),
            "creep_in_another_10_s_m": creep.max(),
            "influence_on_the_place_m_per_m_per_s": dict(zip(("vx", "vy", "vz", "wx", "wy", "wz"), norms, strict=True)),
        },
        gradient_check={
            "throws": len(throws), "with_mode_switch": int(switched.sum()), "largest_relative_error": worst,
            "largest_relative_error_with_mode_switch": errors[switched].max() if switched.any() else None,
        },
    )  # fmt: skip
    run.say(f"in another 10 s the balls found move by {1e3 * float(creep.max()):.3f} mm at most")
    run.say(
        f"gradients of {len(throws)} throws agree with differences to {worst:.1e}, "
        f"but for {int(switched.sum())} with a change of contact modes within the difference"
    )


MOVE = 1e-6  # m/s


def gradient_errors(world: ThrowWorld, throws: Tensor) -> tuple[Tensor, Tensor]:
    """Of the loss against central differences, relative to the gradient's norm; and where a contact changes its mode
    within the difference, so that the derivative jumps; [B]."""
    at = throws.clone().requires_grad_()
    path = world.throw(at)
    (gradient,) = torch.autograd.grad(world.landing(path).loss.sum(), at)
    switched = torch.zeros(len(throws), dtype=torch.bool)

    def loss(throws: Tensor) -> Tensor:
        nonlocal switched
        moved = world.throw(throws)
        switched |= (moved.status.modes != path.status.modes).any(0)
        return world.landing(moved).loss

    slopes = torch.stack([along(loss, throws, axis, MOVE) for axis in torch.eye(6, dtype=torch.float64)], -1)
    return (slopes - gradient).norm(dim=-1) / gradient.norm(dim=-1), switched


# ---------------------------------------------------------------------------------------------- figures


def draw_throws(run: Run, world: ThrowWorld, searches: Sequence[Search]) -> None:
    """From the side and from above: how one start becomes a throw that lands, and the throws found from ten starts."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(2, 2, figsize=(12, 5.5), layout="constrained", sharex="col", height_ratios=(1, 1.6))
    one = searches[0]
    _draw_paths(axes[:, 0], world, one.throws, [plt.cm.viridis(x) for x in np.linspace(0.9, 0.0, len(one.throws))])
    axes[0, 0].set_title(f"from one start: {len(one.throws)} iterations, the last one dark")
    ends = [other.throws[-1] for other in searches[:10]]
    _draw_paths(axes[:, 1], world, ends, [f"C{i}" for i in range(len(ends))])
    axes[0, 1].set_title(f"throws found from {len(ends)} starts")
    run.figure("trajectories", figure)


def _draw_paths(axes: Sequence[Axes], world: ThrowWorld, throws: Sequence[Tensor], colors: Sequence[Any]) -> None:
    side, above = axes
    with torch.no_grad():
        paths = world.throw(torch.stack(list(throws))).position("ball")
    for path, color in zip(paths.unbind(1), colors, strict=True):
        side.plot(path[:, 0], path[:, 2], color=color, lw=1.2)
        above.plot(path[:, 0], path[:, 1], color=color, lw=1.2)
        above.plot(path[-1, 0], path[-1, 1], "o", color=color, ms=4)
    side.axhline(0.0, color="0.5", lw=0.8)
    side.set_ylabel("height (m)")
    above.plot(TARGET[0], TARGET[1], "k+", ms=14, label="target")
    above.plot(0.0, 0.0, "k.", ms=6)
    above.set(xlabel="x (m)", ylabel="y (m)")
    above.legend(loc="lower right", fontsize=8)


def draw_losses(run: Run, searches: dict[str, list[Search]], best: str) -> None:
    """The least loss so far against evaluations and against seconds: ten starts."""
    import matplotlib.pyplot as plt

    figure, (counts, seconds) = plt.subplots(1, 2, figsize=(11, 4.2), layout="constrained", sharey=True)
    for name, color in (("gradient", "C0"), (best, "C3")):
        for i, one in enumerate(searches[name][:10]):
            least, label = np.minimum.accumulate(one.loss), name if i == 0 else None
            counts.loglog(np.arange(1, len(least) + 1), least, color=color, lw=1.1, alpha=0.7, label=label)
            seconds.loglog(one.seconds, least, color=color, lw=1.1, alpha=0.7, label=label)
    for axis, what in ((counts, "evaluations"), (seconds, "seconds")):
        for tolerance in TOLERANCES:
            axis.axhline(tolerance**2, color="0.7", lw=0.7, ls=":")
        axis.set(xlabel=what)
    for what, axis in (("iterations", counts), ("seconds", seconds)):
        for name, color in (("gradient", "C0"), ("CMA-ES", "C3")):
            axis.axvline(PAPER[name][what], color=color, lw=0.9, ls="--")
    counts.set(ylabel="least loss so far (m²)", title="dashed: the paper's totals; dotted: 30, 10, 3, 1 cm")
    counts.legend(fontsize=8)
    run.figure("loss", figure)
