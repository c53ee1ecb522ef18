"""Gymnasium's CartPole-v1 with a continuous action, balanced by iLQR in models that are learned from random actions.

The model is a scene: a box on a rail, and a box on a hinge that stands on it. Its two masses and the pole's length and
width are learned by `fit` from single steps of random play, (state, force, state after). The cart's size has no
influence on anything. The baseline is a network with two hidden layers of 100 that learns the change of the state from
the same steps.

Gymnasium integrates by explicit Euler, x⁺ = x + h v, v⁺ = v + h a(x, v, u); the engine by semi-implicit Euler, x⁺ = x +
h v⁺. Velocities of a step can be the same to rounding; places differ by h² a, whatever is learned.

Boxes that differ move alike if three numbers are the same: the mass of cart and pole together, the pole's mass x its
centre's distance from the hinge, and its inertia about the hinge. These are what motion tells; there are four unknowns.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..control import ILQR, MPC, Cost, Dynamics
from ..identify import Fit, Learn, Observations, fit
from ..model import Box, Hinge, Model, Scene, Slider, State
from ..simulator import Simulator
from ..threads import one_torch_thread
from ..trajectory import Trajectory
from .run import Run

DT, GRAVITY, FORCE = 0.02, 9.8, 10.0  # s, m/s², N: Gymnasium's
CAP = 1000  # steps of an episode, each of which is worth 1
HORIZON = 5
PLANNER = ILQR(max_iterations=2, tolerance=1e-4)
GOOD = 990.0  # mean reward
FEW = 50  # samples
UNKNOWNS = ("mass of cart", "mass of pole", "length of pole", "width of pole")
BOUNDS = ((0.1, 10.0), (0.01, 1.0), (0.1, 10.0), (0.001, 1.0))  # kg, kg, m, m
TRUTH = (1.0, 0.1, 1.0, 0.0)  # Gymnasium's pole is a thin rod
TOLD = ("mass of both (kg)", "pole's mass x arm (kg m)", "inertia about hinge (kg m²)")
HIDDEN, RATE, UPDATES, MINIBATCH = 100, 3e-3, 3000, 100  # of the networks


@dataclass(frozen=True)
class Settings:
    """How thorough."""

    samples: tuple[int, ...]
    """Steps of random play to learn from."""
    seeds: int
    """Each has its own random play, guess, networks and episodes."""
    episodes: int
    """Of each seed, the same for both models and all numbers of samples."""
    held_out: int
    """Steps of random play for the one-step error."""


FULL = Settings((1, 2, 5, 10, 25, 50, 100, 200, 1000), 10, 5, 2000)
QUICK = Settings((5, 50), 5, 2, 500)


# ---------------------------------------------------------------------------------------------- the environment


class CartPole:
    """CartPole-v1 itself, pushed with any force up to 10 N; episodes end as it says, or after `CAP` steps."""

    def __init__(self) -> None:
        self.env: Any = load().make("CartPole-v1", max_episode_steps=CAP, disable_env_checker=True)

    def reset(self, seed: int | None = None) -> list[float]:
        """x (m), its rate, the pole's angle (rad, to the right), its rate; without a seed chances go on."""
        return self.env.reset(seed=seed)[0].tolist()

    def push(self, force: float) -> tuple[list[float], bool]:
        """What is seen after a step, and whether the episode is over."""
        if not abs(force) <= FORCE:
            raise ValueError(f"force must be between -{FORCE:g} and {FORCE:g} N, got {force!r}")
        self.env.unwrapped.force_mag = force  # its action 1 pushes with it, -10 as well as 10
        seen, _, terminated, truncated, _ = self.env.step(1)
        return seen.tolist(), terminated or truncated


def load() -> Any:
    try:
        import gymnasium
    except ImportError as error:
        raise ImportError("cartpole needs gymnasium: pip install 'backdrive[envs]'") from error
    return gymnasium


@dataclass(frozen=True)
class Steps:
    """n steps: what was seen before them [n, 4], the force [n] N, and what was seen after them [n, 4]."""

    before: Tensor
    force: Tensor
    after: Tensor

    def first(self, count: int) -> Steps:
        return Steps(self.before[:count], self.force[:count], self.after[:count])


def play_at_random(count: int, seed: int, generator: torch.Generator) -> Steps:
    """So many steps with forces that are uniform in ± 10 N, of as many episodes as that takes."""
    env, rows = CartPole(), []
    seen = env.reset(seed)
    for force in (FORCE * (2.0 * torch.rand(count, generator=generator, dtype=torch.float64) - 1.0)).tolist():
        after, over = env.push(force)
        rows.append([*seen, force, *after])
        seen = env.reset() if over else after
    table = torch.tensor(rows, dtype=torch.float64)
    return Steps(table[:, :4], table[:, 4], table[:, 5:])


# ---------------------------------------------------------------------------------------------- models


class Several(Dynamics):
    """K models at once: a state [5] is what is seen [4], and the number of the model that goes on from there."""

    nu = 1
    lanes = 256
    count: int
    """K"""

    def predict(self, model: Tensor, seen: Tensor, force: Tensor) -> Tensor:
        """What model[i] expects to see [B, 4] a step after seen [B, 4] with the force [B, 1]."""
        raise NotImplementedError

    def step(self, x: Tensor, u: Tensor) -> Tensor:
        return torch.cat([self.predict(x[:, 4].long(), x[:, :4], u), x[:, 4:]], -1)

    def displace(self, x: Tensor, delta: Tensor) -> Tensor:
        return torch.cat([x[..., :4] + delta, x[..., 4:]], -1)

    def difference(self, x: Tensor, origin: Tensor) -> Tensor:
        return (x - origin)[..., :4]

    def errors(self, steps: Steps) -> Tensor:
        """Mean squares of the one-step errors of every model and number, [K, 4]."""
        n = len(steps.force)
        before, force, after = (x.repeat(self.count, 1) for x in (steps.before, steps.force.unsqueeze(-1), steps.after))
        with torch.no_grad():
            expected = self.predict(torch.arange(self.count).repeat_interleave(n), before, force)
        return (expected - after).square().unflatten(0, (self.count, n)).mean(1)


class Boxes(Several):
    """Scenes with the masses and sizes of `values` [K, 4], as `UNKNOWNS` has them."""

    def __init__(self, simulator: Simulator, values: Tensor) -> None:
        self.simulator, self.count = simulator, len(values)
        mass, size = values[:, :2], simulator.model.parameter("size").repeat(len(values), 1)
        size[:, POLE_Y], size[:, POLE_X] = values[:, 2], values[:, 3]
        self.parameters = {"mass": mass, **solid({"mass": mass, "size": size})}

    def _of(self, model: Tensor) -> dict[str, Tensor]:
        return {name: x[model] for name, x in self.parameters.items()}

    def predict(self, model: Tensor, seen: Tensor, force: Tensor) -> Tensor:
        return seen_in(self.simulator.step(state_of(seen), force, parameters=self._of(model)))

    def linearize(self, x: Tensor, u: Tensor) -> tuple[Tensor, Tensor]:
        A, B = self.simulator.linearize(state_of(x[:, :4]), u, parameters=self._of(x[:, 4].long()))
        return TURN @ A @ TURN.T, TURN @ B

    def rollout(self, x: Tensor, controls: Tensor) -> Tensor:
        path = self.simulator.rollout(state_of(x[:, :4]), controls, parameters=self._of(x[:, 4].long()))
        return self._states(path, x)

    def track(
        self, x: Tensor, controls: Tensor, gains: Tensor, origin: Tensor, low: Tensor, high: Tensor
    ) -> tuple[Tensor, Tensor]:
        path, used = self.simulator.track(
            state_of(x[:, :4]), controls, gains @ TURN, state_of(origin[:-1, :, :4]), limits=(low, high),
            parameters=self._of(x[:, 4].long()),
        )  # fmt: skip
        return self._states(path, x), used

    def _states(self, path: Trajectory, x: Tensor) -> Tensor:
        seen = seen_in(State(path.q, path.v))
        return torch.cat([seen, x[:, 4:].expand(len(seen), -1, -1)], -1)


POLE_X, POLE_Y = 2, 3  # rows of the parameter "size"
SIGN = torch.tensor([1.0, 1.0, -1.0, -1.0], dtype=torch.float64)  # the hinge turns to the left
TURN = torch.diag(SIGN)[:, [0, 2, 1, 3]]  # (q, v) to what is seen: x, its rate, angle, its rate


def state_of(seen: Tensor) -> State:
    q, v = (seen @ TURN).split(2, -1)
    return State(q, v)


def seen_in(state: State) -> Tensor:
    return torch.cat([state.q, state.v], -1) @ TURN.T


def build() -> Model:
    scene = Scene(dim=2, gravity=(0.0, -GRAVITY))
    scene.add_body("cart", Box(0.5, 0.3), mass=1.0)
    scene.add_body("pole", Box(0.1, 1.0), mass=1.0, position=(0.0, 0.5))
    scene.add_joint("rail", Slider(axis=(1.0, 0.0)), parent=None, child="cart")
    scene.add_joint("hinge", Hinge(), parent="cart", child="pole", anchor=(0.0, 0.0))
    scene.add_motor("force", joint="rail", gear=1.0, limits=(-FORCE, FORCE))
    return scene.build()


def solid(parameters: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """What follows from mass [K, 2] and size [K, 4]: the inertias of the boxes, and that the pole stands on its end."""
    (cart, pole), (x, y, width, length) = (parameters[name].unbind(-1) for name in ("mass", "size"))
    inertia = torch.stack([cart * (x**2 + y**2), pole * (width**2 + length**2)], -1) / 12.0
    up = torch.stack([torch.zeros_like(length), length / 2.0], -1)
    on_cart = torch.zeros_like(up)
    return {
        "inertia": inertia,
        "anchor": torch.stack([on_cart, -up], -2),
        "offset": torch.stack([on_cart, up], -2),
    }


def guess(generator: torch.Generator) -> Tensor:
    """[4], anywhere between the bounds but near the ends, all ratios alike."""
    low, high = torch.tensor(BOUNDS, dtype=torch.float64).unbind(-1)
    return low * (high / low) ** (0.1 + 0.8 * torch.rand(len(BOUNDS), generator=generator, dtype=torch.float64))


def learn_boxes(simulator: Simulator, steps: Steps, start: Tensor, width: float | None = None) -> Fit:
    """The masses and sizes with the least squares of one-step errors, from `start` [4]; the width may be known."""
    masses, sizes = (("mass", "cart"), ("mass", "pole")), (("size", "pole.y"), ("size", "pole.x"))
    wanted = [*masses, *(sizes if width is None else sizes[:1])]
    learn = [
        Learn(name, row, start=value, bounds=bounds)
        for (name, row), value, bounds in zip(wanted, start.tolist(), BOUNDS, strict=False)
    ]
    known = simulator.model.parameter("size").clone()
    known[POLE_X] = float(start[3]) if width is None else width
    after = state_of(steps.after)
    seen = Observations(torch.tensor([DT]), q=after.q.unsqueeze(0), v=after.v.unsqueeze(0))
    return fit(
        simulator, seen, learn, state=state_of(steps.before), controls=steps.force.reshape(1, -1, 1),
        parameters={"size": known}, derive=solid,
    )  # fmt: skip


def told(values: Tensor) -> Tensor:
    """What motion tells of masses and sizes [4]: see `TOLD`, [3]."""
    cart, pole, length, width = values.unbind(-1)
    return torch.stack([cart + pole, pole * length / 2.0, pole * (length**2 / 3.0 + width**2 / 12.0)], -1)


def told_with_deviations(found: Fit) -> tuple[Tensor, Tensor]:
    """[3] each; the covariance has no part along changes that leave all three as they are."""
    J = torch.func.jacrev(told)(found.value)
    return told(found.value), (J @ found.covariance @ J.T).diagonal().sqrt()


class Networks(Several):
    """K networks of two hidden layers that tell the change of what is seen; numbers go in and out in units of `scales`.

    layers: weights [K, inputs, outputs] and biases [K, 1, outputs]. scales: means and deviations of the inputs [K, 1,
    5] (what is seen, and the force), and of the changes [K, 1, 4].
    """

    def __init__(self, layers: Sequence[tuple[Tensor, Tensor]], scales: Sequence[Tensor]) -> None:
        self.layers, self.scales, self.count = layers, scales, len(scales[0])

    @classmethod
    def train(cls, steps: Sequence[Steps], generator: torch.Generator) -> Networks:
        """One for each of K records of n steps."""
        before, after = (torch.stack([getattr(s, name) for s in steps]) for name in ("before", "after"))
        inputs = torch.cat([before, torch.stack([s.force for s in steps]).unsqueeze(-1)], -1)
        changes = after - before
        sizes = (5, HIDDEN, HIDDEN, 4)
        pairs = itertools.pairwise(sizes)
        networks = cls([_layer(len(steps), *pair, generator) for pair in pairs], [*_scale(inputs), *_scale(changes)])
        mean_in, by_in, mean_out, by_out = networks.scales
        networks._fit((inputs - mean_in) / by_in, (changes - mean_out) / by_out, generator)
        return networks

    @classmethod
    def joined(cls, several: Sequence[Networks]) -> Networks:
        layers = [
            (torch.cat([W for W, _ in same]), torch.cat([b for _, b in same]))
            for same in zip(*(one.layers for one in several), strict=True)
        ]
        return cls(layers, [torch.cat(same) for same in zip(*(one.scales for one in several), strict=True)])

    def _fit(self, inputs: Tensor, changes: Tensor, generator: torch.Generator) -> None:
        leaves = [x.requires_grad_() for layer in self.layers for x in layer]
        optimizer = torch.optim.Adam(leaves, lr=RATE)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, UPDATES)
        for _ in range(UPDATES):
            some = torch.randperm(inputs.shape[1], generator=generator)[:MINIBATCH]
            error = self._through(inputs[:, some]) - changes[:, some]
            optimizer.zero_grad()
            error.square().mean((1, 2)).sum().backward()
            optimizer.step()
            schedule.step()
        for x in leaves:
            x.requires_grad_(False)

    def _through(self, y: Tensor) -> Tensor:
        """[K, n, 4] of [K, n, 5]"""
        (W, b), *others = self.layers
        y = torch.baddbmm(b, y, W)
        for W, b in others:
            y = torch.baddbmm(b, torch.tanh(y), W)
        return y

    def predict(self, model: Tensor, seen: Tensor, force: Tensor) -> Tensor:
        mean_in, by_in, mean_out, by_out = self.scales
        counts = torch.bincount(model, minlength=self.count)
        order = model.argsort(stable=True)
        place = torch.empty_like(model)  # among the rows of the same network
        place[order] = torch.arange(len(model)) - (counts.cumsum(0) - counts)[model[order]]
        inputs = seen.new_zeros(len(counts), int(counts.max()), 5)
        inputs = inputs.index_put((model, place), torch.cat([seen, force], -1))
        changes = mean_out + by_out * self._through((inputs - mean_in) / by_in)
        return seen + changes[model, place]

    def linearize(self, x: Tensor, u: Tensor) -> tuple[Tensor, Tensor]:
        """Rows do not know of each other: four copies of them, one for each number that is expected, in one sweep."""
        rows = len(x)
        seen, force = (y.repeat(4, 1).requires_grad_() for y in (x[:, :4], u))
        with torch.enable_grad():
            after = self.predict(x[:, 4].long().repeat(4), seen, force)
            seeds = torch.eye(4, dtype=x.dtype).repeat_interleave(rows, 0)
            A, B = (y.unflatten(0, (4, rows)).movedim(0, 1) for y in torch.autograd.grad(after, (seen, force), seeds))
        return A, B


def _scale(x: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and deviation [K, 1, m] of x [K, n, m]."""
    deviation = x.std(1, keepdim=True, correction=0)
    return x.mean(1, keepdim=True), torch.where(deviation > 0.0, deviation, 1.0)  # 0 of a single sample


def _layer(count: int, inputs: int, outputs: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """As torch.nn.Linear starts, uniform in ± 1 / √inputs."""
    unit = torch.rand(count, inputs + 1, outputs, generator=generator, dtype=torch.float64)
    both = (2.0 * unit - 1.0) / math.sqrt(inputs)
    return both[:, :-1].clone(), both[:, -1:].clone()


# ---------------------------------------------------------------------------------------------- acting


def _leaning(x: Tensor) -> Tensor:
    return x[2].square()


COST = Cost(lambda x, u, t: _leaning(x), _leaning)  # the paper's: the square of the pole's angle


def balance(
    dynamics: Several, models: Sequence[int], seeds: Sequence[int], tick: Callable[[int, int], None] | None = None
) -> list[int]:
    """The rewards of episodes, each with its model and its seed; all of them at once. tick: told how far it is."""
    envs = [CartPole() for _ in seeds]
    rows = [[*env.reset(seed), model] for env, seed, model in zip(envs, seeds, models, strict=True)]
    x = torch.tensor(rows, dtype=torch.float64)
    rewards = [0] * len(envs)
    going = list(range(len(envs)))
    mpc = MPC(dynamics, COST, HORIZON, limits=(-FORCE, FORCE), method=PLANNER)
    while going:
        if tick is not None:
            tick(max(rewards), CAP)
        seen, over = zip(*(envs[k].push(u) for k, u in zip(going, mpc.act(x)[:, 0].tolist(), strict=True)), strict=True)
        for k in going:
            rewards[k] += 1
        x = torch.cat([torch.tensor(seen, dtype=torch.float64), x[:, 4:]], -1)
        if any(over):  # the others go on, from their last plans
            left = ~torch.tensor(over)
            assert mpc.plan is not None
            controls = mpc.plan.controls[[*range(1, HORIZON), HORIZON - 1]][:, left]
            going, x = [k for k, end in zip(going, over, strict=True) if not end], x[left]
            mpc = MPC(dynamics, COST, HORIZON, limits=(-FORCE, FORCE), method=PLANNER, controls=controls)
    return rewards


# ---------------------------------------------------------------------------------------------- the experiment

BOXES, NETWORK = "boxes", "network"


class Bench:
    """What both models share: random play to learn from and to be judged by, guesses to start from, and episodes."""

    def __init__(self, run: Run, settings: Settings) -> None:
        self.run, self.settings = run, settings
        self.simulator = Simulator(build(), DT)
        longest = max(settings.samples)
        self.records = [
            play_at_random(longest, self._seed(seed, 0), run.generator(10 * seed + 1)) for seed in range(settings.seeds)
        ]
        self.guesses = torch.stack([guess(run.generator(10 * seed + 2)) for seed in range(settings.seeds)])
        self.held_out = play_at_random(settings.held_out, self._seed(settings.seeds, 0), run.generator(3))

    def _seed(self, seed: int, episode: int) -> int:
        """Of the environment; episode 0 is random play."""
        return 100_000 * self.run.seed + 100 * seed + episode

    def records_of(self, samples: int) -> list[Steps]:
        return [record.first(samples) for record in self.records]

    def rewards(self, dynamics: Several, what: str) -> Tensor:
        """Mean rewards, [samples, seeds], of models in that order."""
        settings = self.settings
        models = [k for k in range(dynamics.count) for _ in range(settings.episodes)]
        seeds = [self._seed(model % settings.seeds, 1 + k % settings.episodes) for k, model in enumerate(models)]

        def tick(done: int, total: int) -> None:
            self.run.advance(what, done, total)

        rewards = torch.tensor(balance(dynamics, models, seeds, tick), dtype=torch.float64)
        self.run.advance(what, CAP, CAP)
        return rewards.view(-1, settings.seeds, settings.episodes).mean(-1)


def run(run: Run) -> None:
    load()
    settings = QUICK if run.quick else FULL
    run.record(
        environment={"name": "CartPole-v1", "force_n": FORCE, "steps_at_most": CAP, "dt": DT},
        method={
            "samples": settings.samples, "seeds": settings.seeds, "episodes": settings.episodes,
            "held_out": settings.held_out, "horizon": HORIZON, "iterations_at_most": PLANNER.max_iterations,
            "cost": "angle^2", "unknowns": UNKNOWNS, "bounds": BOUNDS, "hidden": (HIDDEN, HIDDEN), "rate": RATE,
            "updates": UPDATES, "minibatch": MINIBATCH,
        },
    )  # fmt: skip
    with one_torch_thread():
        bench = Bench(run, settings)
        fits = learn_all_boxes(bench)
        identify(bench, fits)
        table = {BOXES: judge_boxes(bench, fits), NETWORK: judge_networks(bench)}
    draw_curves(run, settings, table)


def learn_all_boxes(bench: Bench) -> dict[int, list[Fit]]:
    """By the number of samples, of all seeds."""
    run, settings = bench.run, bench.settings
    return {
        samples: [
            learn_boxes(bench.simulator, steps, start)
            for steps, start in zip(bench.records_of(samples), bench.guesses, strict=True)
        ]
        for samples in run.track(settings.samples, "boxes: learning")
    }


def judge_boxes(bench: Bench, fits: dict[int, list[Fit]]) -> dict[str, Any]:
    """The guesses count as learned from 0 samples."""
    learned = [torch.stack([found.value for found in some]) for some in fits.values()]
    dynamics = Boxes(bench.simulator, torch.cat([bench.guesses, *learned]))
    return judge(bench, BOXES, (0, *fits), dynamics)


def judge_networks(bench: Bench) -> dict[str, Any]:
    samples = bench.settings.samples
    several = [
        Networks.train(bench.records_of(n), bench.run.generator(100_000 + n))
        for n in bench.run.track(samples, "network: learning")
    ]
    return judge(bench, NETWORK, samples, Networks.joined(several))


def judge(bench: Bench, name: str, samples: Sequence[int], dynamics: Several) -> dict[str, Any]:
    """One-step errors and rewards of every seed, by the number of samples."""
    errors = dynamics.errors(bench.held_out).unflatten(0, (len(samples), -1))  # [samples, seeds, 4]
    rewards = bench.rewards(dynamics, f"{name}: balancing")
    table = {}
    for n, error, reward in zip(samples, errors, rewards, strict=True):
        table[str(n)] = {
            "one_step_mse": error.mean(-1), "one_step_mse_of_velocities": error[:, [1, 3]].mean(-1), "reward": reward,
            "mean_reward": reward.mean(), "good_seeds": int((reward >= GOOD).sum()),
        }  # fmt: skip
        bench.run.say(
            f"{name}, samples: {n}; one-step error {statistics.median(error.mean(-1).tolist()):.1e} (median), reward "
            f"{float(reward.mean()):.1f} ({float(reward.min()):g} to {float(reward.max()):g}), at least {GOOD:g} for "
            f"{table[str(n)]['good_seeds']} of {len(reward)} seeds"
        )
    bench.run.record(**{name: table})
    return table


def identify(bench: Bench, fits: dict[int, list[Fit]]) -> None:
    """What the boxes are after `FEW` samples, how well that is known, and what a known width would tell."""
    run, truth = bench.run, told(torch.tensor(TRUTH, dtype=torch.float64))
    samples = max(n for n in bench.settings.samples if n <= FEW or n == min(bench.settings.samples))
    some = fits[samples]
    values = torch.stack([found.value for found in some])
    numbers, deviations = (torch.stack(x) for x in zip(*map(told_with_deviations, some), strict=True))
    thin = [
        learn_boxes(bench.simulator, steps, start, width=BOUNDS[3][0])
        for steps, start in zip(bench.records_of(samples), bench.guesses, strict=True)
    ]
    thin_values = torch.stack([found.value for found in thin])
    run.record(
        learned={
            "samples": samples, "unknowns": UNKNOWNS, "truth": TRUTH, "guesses": bench.guesses, "values": values,
            "deviations": torch.stack([found.std for found in some]), "outcomes": [str(f.outcome) for f in some],
            "told": {
                "names": TOLD, "truth": truth, "values": numbers, "deviations": deviations,
                "of_guesses": told(bench.guesses),
            },
            "width_known": {
                "unknowns": UNKNOWNS[:3], "values": thin_values, "deviations": torch.stack([f.std for f in thin]),
                "intervals": torch.stack([f.interval for f in thin]), "outcomes": [str(f.outcome) for f in thin],
            },
        }
    )  # fmt: skip
    for k, name in enumerate(TOLD):
        low, high = float(numbers[:, k].min()), float(numbers[:, k].max())
        run.say(
            f"{name}: {low:.5g} to {high:.5g} from {samples} samples, ± {float(deviations[:, k].median()):.1g}; "
            f"truth {float(truth[k]):.5g}"
        )
    for k, name in enumerate(UNKNOWNS):
        run.say(f"{name}: {float(values[:, k].min()):.3g} to {float(values[:, k].max()):.3g}; truth {TRUTH[k]:g}")
    draw_learned(run, samples, bench.guesses, values, thin_values, deviations)


# ---------------------------------------------------------------------------------------------- figures


def draw_curves(run: Run, settings: Settings, table: dict[str, dict[str, Any]]) -> None:
    """One-step error and reward against samples: medians and means of the seeds, with all seeds between the edges."""
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
        axis.set_xlim(-0.2, 1.3 * max(settings.samples))
        axis.set_xticks([0, *settings.samples], ["guess", *map(str, settings.samples)], fontsize=8)
        axis.minorticks_off()
        axis.set_xlabel("samples (steps of random play)")
        axis.legend(fontsize=8)
    run.figure("curves", figure)


def draw_learned(run: Run, samples: int, guesses: Tensor, values: Tensor, thin: Tensor, deviations: Tensor) -> None:
    """Every seed's masses and sizes, and the three numbers that motion tells, as multiples of the truth."""
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
        exact = told(truth)[k]
        error = 1.96 * deviations[:, k] / exact
        right.errorbar(k + spread, told(values)[:, k] / exact, yerr=error, fmt="o", color="C0", ms=4, lw=0.8)
    right.axhline(1.0, color="k", lw=0.8, ls="--")
    right.set_xticks(range(3), TOLD, fontsize=8)
    right.set_xlim(-0.5, 2.5)
    right.set(title="what motion tells, with 95 % intervals")
    run.figure("learned", figure)
