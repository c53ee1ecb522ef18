"""Infer the mass of chains of several lengths, and measure what gradients cost."""

from __future__ import annotations

from ...threads import one_torch_thread
from ..run import Run
from .figures import figure_one, film
from .inference import PAPER, WINDOWS, from_first_guess, from_random_starts, link_by_link, with_noise
from .run_time import run_times
from .settings import FULL, QUICK, ChainMassSettings
from .world import BALL, BOUNDS, CHAIN, DT, GRAVITY, SECONDS, ChainWorld


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
