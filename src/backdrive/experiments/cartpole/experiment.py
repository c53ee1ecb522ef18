"""Learn boxes and networks from the same random play, and compare their predictions and their balancing."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ...identify import Fit
from ...simulator import Simulator
from ...threads import one_torch_thread
from ..run import Run
from .balance import HORIZON, PLANNER, balance
from .boxes import (
    BOUNDS,
    BOXES,
    IDENTIFIABLE,
    TRUTH,
    UNKNOWNS,
    Boxes,
    build,
    guess,
    identifiable,
    identifiable_with_deviations,
    learn_boxes,
)
from .figures import draw_curves, draw_learned
from .game import CAP, DT, FORCE, GOOD, Steps, load, play_at_random
from .model_batch import ModelBatch
from .networks import HIDDEN, MINIBATCH, NETWORK, RATE, UPDATES, Networks

FEW = 50  # Samples for which the learned masses and sizes are reported.


@dataclass(frozen=True)
class CartPoleSettings:
    """How thorough a run is."""

    samples: tuple[int, ...]
    """Numbers of steps of random play to learn from."""
    seeds: int
    """Number of seeds; each has its own random play, guess, networks and episodes."""
    episodes: int
    """Episodes of each seed, the same for both models and all numbers of samples."""
    held_out: int
    """Steps of random play for the one-step error."""


FULL = CartPoleSettings((1, 2, 5, 10, 25, 50, 100, 200, 1000), 10, 5, 2000)
QUICK = CartPoleSettings((5, 50), 5, 2, 500)


class CartPoleBench:
    """Shared by both models: random play for training and testing, initial guesses, and episodes."""

    def __init__(self, run: Run, settings: CartPoleSettings) -> None:
        self.run, self.settings = run, settings
        self.simulator = Simulator(build(), DT)
        longest = max(settings.samples)
        self.records = [
            play_at_random(longest, self._seed(seed, 0), run.generator(10 * seed + 1)) for seed in range(settings.seeds)
        ]
        self.guesses = torch.stack([guess(run.generator(10 * seed + 2)) for seed in range(settings.seeds)])
        self.held_out = play_at_random(settings.held_out, self._seed(settings.seeds, 0), run.generator(3))

    def _seed(self, seed: int, episode: int) -> int:
        """Seed of the environment; episode 0 is random play."""
        return 100_000 * self.run.seed + 100 * seed + episode

    def records_of(self, samples: int) -> list[Steps]:
        return [record.first(samples) for record in self.records]

    def rewards(self, dynamics: ModelBatch, what: str) -> Tensor:
        """Mean rewards [samples, seeds] of the models, which are in that order."""
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
        bench = CartPoleBench(run, settings)
        fits = learn_all_boxes(bench)
        identify(bench, fits)
        table = {BOXES: judge_boxes(bench, fits), NETWORK: judge_networks(bench)}
    draw_curves(run, settings.samples, table)


def learn_all_boxes(bench: CartPoleBench) -> dict[int, list[Fit]]:
    """Fits of all seeds, by the number of samples."""
    run, settings = bench.run, bench.settings
    return {
        samples: [
            learn_boxes(bench.simulator, steps, start)
            for steps, start in zip(bench.records_of(samples), bench.guesses, strict=True)
        ]
        for samples in run.track(settings.samples, "boxes: learning")
    }


def judge_boxes(bench: CartPoleBench, fits: dict[int, list[Fit]]) -> dict[str, Any]:
    """Evaluate the boxes; the guesses count as learned from 0 samples."""
    learned = [torch.stack([found.value for found in some]) for some in fits.values()]
    dynamics = Boxes(bench.simulator, torch.cat([bench.guesses, *learned]))
    return judge(bench, BOXES, (0, *fits), dynamics)


def judge_networks(bench: CartPoleBench) -> dict[str, Any]:
    samples = bench.settings.samples
    several = [
        Networks.train(bench.records_of(n), bench.run.generator(100_000 + n))
        for n in bench.run.track(samples, "network: learning")
    ]
    return judge(bench, NETWORK, samples, Networks.joined(several))


def judge(bench: CartPoleBench, name: str, samples: Sequence[int], dynamics: ModelBatch) -> dict[str, Any]:
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


def identify(bench: CartPoleBench, fits: dict[int, list[Fit]]) -> None:
    """Report the boxes learned from `FEW` samples with their uncertainty, and those learned with a known width."""
    run, truth = bench.run, identifiable(torch.tensor(TRUTH, dtype=torch.float64))
    samples = max(n for n in bench.settings.samples if n <= FEW or n == min(bench.settings.samples))
    some = fits[samples]
    values = torch.stack([found.value for found in some])
    numbers, deviations = (torch.stack(x) for x in zip(*map(identifiable_with_deviations, some), strict=True))
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
                "names": IDENTIFIABLE, "truth": truth, "values": numbers, "deviations": deviations,
                "of_guesses": identifiable(bench.guesses),
            },
            "width_known": {
                "unknowns": UNKNOWNS[:3], "values": thin_values, "deviations": torch.stack([f.std for f in thin]),
                "intervals": torch.stack([f.interval for f in thin]), "outcomes": [str(f.outcome) for f in thin],
            },
        }
    )  # fmt: skip
    for k, name in enumerate(IDENTIFIABLE):
        low, high = float(numbers[:, k].min()), float(numbers[:, k].max())
        run.say(
            f"{name}: {low:.5g} to {high:.5g} from {samples} samples, ± {float(deviations[:, k].median()):.1g}; "
            f"truth {float(truth[k]):.5g}"
        )
    for k, name in enumerate(UNKNOWNS):
        run.say(f"{name}: {float(values[:, k].min()):.3g} to {float(values[:, k].max()):.3g}; truth {TRUTH[k]:g}")
    draw_learned(run, samples, bench.guesses, values, thin_values, deviations)
