"""A ball of known mass hits a hanging chain; from 10 s of motion, the mass of the chain is inferred.

The world is that of the paper's code, with its pixels as centimetres: links of 20 cm x 60 cm that overlap by 10 cm,
hinged to each other, under a gravity of 1 m/s²; a ball of 1 kg and 20 cm radius, pushed with 15 N for 0.1 s, that flies
without weight towards the lowest link; steps of 1/30 s. The chain weighs 7 kg, shared equally by its links. Links do
not collide with each other (at 7 kg they never touch).

Steps are split at impacts: with plain time stepping the loss has a kink wherever the hit moves into another step, and a
gradient without the derivative of the time of the hit.

The loss over 10 s has several minima for short chains: a light chain swings back and hits the ball again. Over the
first seconds there is one. So `fit` takes the observations in windows of growing length, and finds the mass from any
start.
"""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ..identify import Fit, GradientDescent, Learn, Observations, fit
from ..model import Box, Circle, Hinge, Model, Scene
from ..simulator import Simulator
from ..threads import one_torch_thread
from ..trajectory import Trajectory
from .run import Run

if TYPE_CHECKING:
    from matplotlib.axes import Axes

DT, SECONDS = 1 / 30, 10.0
STEPS = round(SECONDS / DT)
GRAVITY, PUSH, PUSHED = 1.0, 15.0, 0.1  # m/s², N, s
CHAIN, BALL = 7.0, 1.0  # kg
FIRST_GUESS = 1.0  # kg, of the chain
PAPER = GradientDescent(rate=0.01, clip=100.0, max_iterations=30)
CENTIMETRE = 0.01  # the paper's loss is in pixels squared
BOUNDS = (0.05, 200.0)  # kg
WINDOWS = 5


@dataclass(frozen=True)
class ChainMassSettings:
    """How thorough."""

    lengths: tuple[int, ...]
    """Links of the chains."""
    starts: int
    noisy: int
    """Data sets with noise, for each length."""
    links: int
    """Of the chain whose masses are learned one by one."""
    counts: tuple[int, ...]
    """Learned masses, for the run time."""
    updates: int
    """Of which the run time is measured."""


FULL = ChainMassSettings((2, 5, 10, 20), 20, 20, 10, (1, 2, 5, 10, 20, 40), 30)
QUICK = ChainMassSettings((2, 5, 10), 8, 3, 5, (1, 10, 40), 2)


class ChainWorld:
    """A chain of so many links, a ball, and what is seen of them."""

    def __init__(self, links: int) -> None:
        self.links = [f"link {i + 1}" for i in range(links)]
        self.model = build(self.links)
        self.simulator = Simulator(self.model, DT, impacts=True, specialize=False)
        self.wrenches = wrenches(self.model)

    def move(self, mass: Tensor) -> Trajectory:
        """The motion of chains of these masses, [S, links] kg, in one batch."""
        scale = torch.cat([mass * len(self.links) / CHAIN, mass.new_ones(len(mass), 1)], -1)  # the ball is as it is
        parameters = {name: self.model.parameter(name) * scale for name in ("mass", "inertia")}
        pushed = self.wrenches.unsqueeze(1).expand(-1, len(mass), -1, -1)
        return self.simulator.rollout(self.model.initial_state(len(mass)), wrenches=pushed, parameters=parameters)

    def positions(self, mass: Tensor) -> Tensor:
        """Of all bodies, m: [STEPS + 1, S, bodies, 2]."""
        path = self.move(mass)
        return torch.stack([path.position(body) for body in self.model.bodies], 2)

    def truth(self) -> Tensor:
        return torch.full((1, len(self.links)), CHAIN / len(self.links), dtype=torch.float64)

    def observe(
        self, mass: Tensor, noise: float = CENTIMETRE, generator: torch.Generator | None = None
    ) -> Observations:
        """All bodies at all steps, without noise unless there is a generator. mass: [1, links]"""
        positions = self.positions(mass)[:, 0]
        if generator is not None:
            positions = positions + noise * torch.randn(positions.shape, generator=generator, dtype=torch.float64)
        moments = torch.arange(STEPS + 1, dtype=torch.float64) * DT
        return Observations(moments, dict(zip(self.model.bodies, positions.unbind(1), strict=True)), noise=noise)

    def total(self, start: float | Tensor, bounds: Any = BOUNDS) -> Learn:
        """The mass of the chain is to be learned; all links are alike."""
        return Learn("mass", self.links, start=start, bounds=bounds, shared="total")

    def fit(self, observed: Observations, learn: Learn, **options: Any) -> Fit:
        return fit(self.simulator, observed, [learn], wrenches=self.wrenches, **options)

    def mean_square(self, mass: Tensor) -> Tensor:
        """The paper's loss of chains of these masses, [S] kg: cm², over all bodies and 10 s."""
        share = mass.unsqueeze(1).expand(-1, len(self.links)) / len(self.links)
        difference = self.positions(share) - self.positions(self.truth())
        return (difference / CENTIMETRE).square().mean((0, 2, 3))


def build(links: Sequence[str]) -> Model:
    scene = Scene(dim=2, gravity=(0.0, -GRAVITY))
    for i, link in enumerate(links):
        mass = CHAIN / len(links)
        scene.add_body(link, Box(0.2, 0.6), mass=mass, position=(0.0, -0.2 - 0.5 * i), restitution=0.5, friction=0.25)
        anchor = (0.0, 0.0 if i == 0 else 0.05 - 0.5 * i)
        scene.add_joint(f"hinge {i + 1}", Hinge(), parent=links[i - 1] if i else None, child=link, anchor=anchor)
    for a, b in itertools.combinations(links, 2):
        scene.exclude(a, b)
    low = -0.2 - 0.5 * (len(links) - 1)
    scene.add_body("ball", Circle(0.2), mass=BALL, position=(-2.5, low), restitution=1.0, friction=0.25)
    return scene.build()


def wrenches(model: Model) -> Tensor:
    """On the ball: the push, and what holds it up; [STEPS, bodies, 3]."""
    forces = torch.zeros(STEPS, model.nbody, 3, dtype=torch.float64)
    ball = forces[:, model.body_index("ball")]
    ball[: round(PUSHED / DT), 0] = PUSH
    ball[:, 1] = BALL * GRAVITY
    return forces


def run(run: Run) -> None:
    settings = QUICK if run.quick else FULL
    run.record(
        world={"dt": DT, "seconds": SECONDS, "gravity": GRAVITY, "chain_kg": CHAIN, "ball_kg": BALL},
        method={"windows": WINDOWS, "bounds_kg": BOUNDS, "descent": {"rate": PAPER.rate, "clip": PAPER.clip}},
        thoroughness={name: getattr(settings, name) for name in ChainMassSettings.__dataclass_fields__},
    )
    with one_torch_thread():
        worlds = {links: ChainWorld(links) for links in settings.lengths}
        film(run, worlds[max(n for n in worlds if n <= 10)])
        guesses = from_first_guess(run, worlds)
        from_random_starts(run, worlds, settings)
        with_noise(run, worlds, settings)
        link_by_link(run, settings)
        times = run_times(run, settings)
        figure_one(run, worlds, guesses, times)


def film(run: Run, world: ChainWorld) -> None:
    from ..view import animate

    what = "film"

    def progress(done: int, total: int) -> None:
        run.advance(what, done, total)

    animate(
        world.move(world.truth()),
        run.file("chain.mp4"),
        trail=("ball", world.links[-1]),
        title=f"a ball of {BALL:g} kg hits a chain of {CHAIN:g} kg",
        progress=progress,
    )


# ---------------------------------------------------------------------------------------------- the mass of the chain


def from_first_guess(run: Run, worlds: dict[int, ChainWorld]) -> dict[int, dict[str, Fit]]:
    """From 1 kg, by the paper's descent and by `fit`; every gradient that is used is checked."""
    found: dict[int, dict[str, Fit]] = {}
    for links, world in run.track(worlds.items(), "from 1 kg, with checks"):
        observed = world.observe(world.truth())
        found[links] = {
            "descent": world.fit(observed, world.total(FIRST_GUESS, bounds=None), optimizer=PAPER, check=True),
            "fit": world.fit(observed, world.total(FIRST_GUESS), windows=WINDOWS, check=True),
        }
        for name, result in found[links].items():
            check = result.check
            assert check is not None
            run.say(f"{links} links, {name} from 1 kg: {float(result.value):.6f} kg ({result.outcome}); {check}")
        run.record(from_first_guess={n: {name: _described(f) for name, f in two.items()} for n, two in found.items()})
    return found


def _described(result: Fit) -> dict[str, Any]:
    check = result.check
    assert check is not None
    return {
        "mass": result.value[0], "relative_error": abs(float(result.value[0]) / CHAIN - 1.0), "updates": result.updates,
        "outcome": str(result.outcome), "mass_by_update": result.history.values[:, 0, 0],
        "loss_by_update": result.history.loss[:, 0], "window_by_update": result.history.window,
        "gradients_compared": len(check.compared), "gradients_wrong": len(check.wrong),
        "largest_gradient_error": check.worst, "updates_with_mode_switch": sorted({c.update for c in check.unclear}),
    }  # fmt: skip


def from_random_starts(run: Run, worlds: dict[int, ChainWorld], settings: ChainMassSettings) -> None:
    """All starts of a chain are one batch; each is judged by itself."""
    import matplotlib.pyplot as plt

    starts = 0.5 + 11.5 * torch.rand(settings.starts, generator=run.generator(1), dtype=torch.float64)
    figure, axes = plt.subplots(2, len(worlds), figsize=(3.4 * len(worlds), 6.0), layout="constrained", sharex="row")
    results: dict[int, Any] = {}
    for column, (links, world) in enumerate(run.track(worlds.items(), f"{settings.starts} random starts")):
        observed = world.observe(world.truth())
        began = time.perf_counter()
        descent = world.fit(observed, world.total(starts, bounds=None), optimizer=PAPER)
        between = time.perf_counter()
        found = world.fit(observed, world.total(starts), windows=WINDOWS)
        seconds = {"descent": between - began, "fit": time.perf_counter() - between}
        results[links] = {"starts": starts}
        for row, (name, result) in enumerate({"descent": descent, "fit": found}.items()):
            error = (result.values[:, 0] / CHAIN - 1.0).abs()
            hits = int((error <= 1e-3).sum())
            results[links][name] = {
                "found": hits, "of": len(starts), "masses": result.values[:, 0], "largest_relative_error": error.max(),
                "outcomes": [str(o) for o in result.outcomes], "updates": result.updates, "seconds": seconds[name],
            }  # fmt: skip
            run.say(f"{links} links, {name}: to 0.1 % in {hits} of {len(starts)} starts, {seconds[name]:.1f} s")
            axes[row, column].plot(result.history.update, result.history.values[:, :, 0], lw=1.0, alpha=0.7)
            title = f"{links} links: {hits} of {len(starts)}"
            axes[row, column].set(title=title, xlabel="update", ylim=(0, 13))
            axes[row, column].axhline(CHAIN, color="k", ls="--", lw=0.8)
        run.record(random_starts=results)
    axes[0, 0].set_ylabel("the paper's descent\nmass of the chain (kg)")
    axes[1, 0].set_ylabel("fit, in windows\nmass of the chain (kg)")
    run.figure("starts", figure)


def with_noise(run: Run, worlds: dict[int, ChainWorld], settings: ChainMassSettings) -> None:
    """Observations with a noise of 1 % of how far things move (rms); does the interval of 95 % contain the truth?"""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(
        1, len(worlds), figsize=(3.0 * len(worlds), 4.2), layout="constrained", sharey=True, squeeze=False
    )
    results: dict[int, Any] = {}
    trials = [(links, k) for links in worlds for k in range(settings.noisy)]
    found: dict[int, list[Fit]] = {links: [] for links in worlds}
    for links, k in run.track(trials, "with noise"):
        world = worlds[links]
        positions = world.positions(world.truth())
        noise = 0.01 * float((positions - positions[0]).square().mean().sqrt())
        observed = world.observe(world.truth(), noise, run.generator(1000 * links + k))
        found[links].append(world.fit(observed, world.total(FIRST_GUESS), windows=WINDOWS))
        if k + 1 == settings.noisy:
            intervals = torch.stack([result.interval[0] for result in found[links]])
            inside = int(((intervals[:, 0] <= CHAIN) & (intervals[:, 1] >= CHAIN)).sum())
            results[links] = {
                "covered": inside, "of": settings.noisy, "noise_m": noise, "intervals": intervals,
                "masses": [result.value[0] for result in found[links]],
                "outcomes": [str(result.outcome) for result in found[links]],
            }  # fmt: skip
            run.record(noise=results)
            run.say(f"{links} links, noise {1000 * noise:.1f} mm: 7 kg is in {inside} of {settings.noisy} intervals")
    for axis, (links, some) in zip(axes[0], found.items(), strict=True):
        for k, result in enumerate(some):
            low, high = result.interval[0].tolist()
            color = "C0" if low <= CHAIN <= high else "C3"
            axis.plot([low, high], [k, k], color=color, lw=2)
            axis.plot(result.value, [k], "o", color=color, ms=3)
        axis.axvline(CHAIN, color="k", ls="--", lw=0.8)
        axis.set(title=f"{links} links: {results[links]['covered']} of {len(some)}", xlabel="mass of the chain (kg)")
        axis.ticklabel_format(useOffset=False)
        axis.locator_params(axis="x", nbins=4)
        axis.set_yticks([])
    axes[0, 0].set_ylabel("data sets")
    run.figure("noise", figure)


def link_by_link(run: Run, settings: ChainMassSettings) -> None:
    """Every link has a mass of its own, and all are learned together."""
    import matplotlib.pyplot as plt

    world = ChainWorld(settings.links)
    share = 0.5 + torch.rand(1, settings.links, generator=run.generator(2), dtype=torch.float64)
    truth = CHAIN * share / share.sum()
    guess = FIRST_GUESS / settings.links
    run.advance("link by link", 0, 1)
    found = world.fit(
        world.observe(truth), Learn("mass", world.links, start=guess, bounds=BOUNDS), windows=WINDOWS, check=True
    )
    run.advance("link by link", 1, 1)
    error = float((found.value / truth[0] - 1.0).abs().max())
    check = found.check
    assert check is not None
    numbers = {
        "links": settings.links, "truth": truth[0], "found": found.value, "largest_relative_error": error,
        "updates": found.updates, "outcome": str(found.outcome), "seconds": found.seconds,
        "gradients_compared": len(check.compared), "gradients_wrong": len(check.wrong),
        "largest_gradient_error": check.worst, "updates_with_mode_switch": sorted({c.update for c in check.unclear}),
    }  # fmt: skip
    run.record(link_by_link=numbers)
    run.say(f"{settings.links} masses together: to {100 * error:.2g} % ({found.outcome}, {found.updates} updates)")
    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
    place = torch.arange(settings.links) + 1
    left.bar(place, truth[0], color="0.8", label="true")
    left.plot(place, found.value, "o", color="C1", label="found")
    left.axhline(guess, color="k", ls=":", lw=0.8, label="start")
    left.set(xlabel="link, from above", ylabel="mass (kg)", xticks=place.tolist())
    left.legend()
    right.semilogy(found.history.update, (found.history.values[:, 0] / truth[0] - 1.0).abs().clamp_min(1e-16), lw=1)
    right.set(xlabel="update", ylabel="relative error of each mass")
    run.figure("link_by_link", figure)


# ---------------------------------------------------------------------------------------------- run time


def run_times(run: Run, settings: ChainMassSettings) -> dict[str, dict[str, list[float]]]:
    """30 updates of a clipped descent, with one mass for each link, all of them at 0.9 of the truth.

    Two series: chains that have as many links as masses are learned (the paper's figure: the world grows, too), and one
    chain of the largest number of links of which ever more masses are learned (what the gradient alone costs).
    Differences are forward, which is the cheapest, one rollout after the other as the paper has it; "batched" makes all
    of them in one rollout of several environments.
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
    _draw_times(axis, settings.counts, times)
    run.figure("run_time", figure)
    run.say(f"at {most} masses differences take {slower:.1f} times as long ({in_batch:.1f} times if all are one batch)")
    return times


def _seconds(
    world: ChainWorld, count: int, gradient: Callable[[ChainWorld, Tensor, Tensor, int], Tensor], updates: int
) -> float:
    """Of an update: the median."""
    target = world.positions(world.truth())[:, 0]
    mass = 0.9 * world.truth()
    gradient(world, mass, target, count)  # compiles
    seconds = []
    for _ in range(updates):
        began = time.perf_counter()
        slope = gradient(world, mass, target, count)
        mass = mass.clone()
        mass[0, :count] -= 1e-7 * slope.clamp(-100.0, 100.0)  # a small rate: so many free masses would diverge
        seconds.append(time.perf_counter() - began)
    return statistics.median(seconds)


def _loss(world: ChainWorld, mass: Tensor, target: Tensor) -> Tensor:
    """cm², [S]"""
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


MOVE = 1e-7  # kg


def _moved(mass: Tensor, count: int) -> Tensor:
    """The masses as they are, and each of the first `count` a little larger: [count + 1, links]."""
    moves = torch.zeros(count + 1, mass.shape[1], dtype=torch.float64)
    moves[1:, :count] = MOVE * torch.eye(count, dtype=torch.float64)
    return mass + moves


# ---------------------------------------------------------------------------------------------- figure 1


def figure_one(
    run: Run,
    worlds: dict[int, ChainWorld],
    guesses: dict[int, dict[str, Fit]],
    times: dict[str, dict[str, list[float]]],
) -> None:
    """As the paper has it: frames of the motion; mass and loss by update; run time by number of masses."""
    import matplotlib.pyplot as plt

    from ..view import draw

    figure = plt.figure(figsize=(12, 7.5), layout="constrained")
    panels: Any = figure.subfigures(2, 1, height_ratios=(1, 1.15))
    above, below = panels
    world = worlds[max(n for n in worlds if n <= 10)]
    path = world.move(world.truth())
    for axis, moment in zip(above.subplots(1, 5), (0.0, 1.5, 2.5, 4.0, 6.0), strict=True):
        draw(world.model, path[round(moment / DT)], axis, limits=(-3.2, 3.2, -5.8, 0.4))
        axis.set_title(f"{moment:g} s", fontsize=10)
    mass, loss, seconds = below.subplots(1, 3)
    for color, (links, two) in enumerate(guesses.items()):
        for name, style in (("descent", "--"), ("fit", "-")):
            history = two[name].history
            values = history.values[:, 0, 0]
            mean_square = worlds[links].mean_square(values.clamp_min(1e-3))
            label = f"{links} links" if name == "fit" else None
            mass.plot(history.update, values, style, color=f"C{color}", label=label, lw=1.4)
            loss.semilogy(history.update, mean_square.clamp_min(1e-20), style, color=f"C{color}", lw=1.4)
    mass.axhline(CHAIN, color="k", lw=0.8)
    mass.set(xlabel="update", ylabel="mass of the chain (kg)", title="from 1 kg: fit (—), the paper's descent (- -)")
    mass.legend(fontsize=8)
    loss.set(xlabel="update", ylabel="mean square error over 10 s (cm²)", title="loss")
    _draw_times(seconds, run.results["run_time"]["counts"], times)
    run.figure("figure_1", figure)


def _draw_times(axis: Axes, counts: Sequence[int], times: dict[str, dict[str, list[float]]]) -> None:
    colors = {"analytic": "C0", "differences": "C3", "differences, batched": "C1"}
    most = max(counts)
    for name, style, series in (("masses", "-o", f"of a chain of {most}"), ("links", ":s", "of a chain of as many")):
        for way, color in colors.items():
            label = f"{way}, {series}" if name == "masses" else None
            axis.loglog(counts, times[name][way], style, color=color, ms=4, lw=1.4, label=label)
    axis.set(xlabel="learned masses", ylabel="30 updates (s)", title=f"run time ({most} links —, as many links ···)")
    axis.legend(fontsize=7)
