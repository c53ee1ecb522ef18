"""Learn the paddle's dynamics from frames of random play, play whole games, and compare with model-free learning."""

from __future__ import annotations

import importlib.util
import itertools
import statistics
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from ...threads import one_torch_thread
from ...view import video
from ..run import Run
from . import dqn
from .game import STICKY, Game, load
from .learning import HOLD, WINDOW, RandomPlay, learn, play_at_random
from .paddle import Paddle
from .planner import HORIZON, ArrivalPlayer, PaperPlayer, Player
from .play import SCALE, Moment, Played, moments, picture, play
from .world import BreakoutWorld

HUMAN = 31.0  # Human score as the paper quotes it from Mnih et al. 2015, where it is 31.8.
PUBLISHED = (("DQN, Mnih et al. 2015", 200e6, 401.2),)
"""Model-free methods: name, training frames and score as published (Human-level control through deep reinforcement
learning, Nature 518, extended data table 2): 50 million frames of the agent, each of 4 frames of the game."""
ARRIVAL, PAPER = "arrival", "paper"
WARM = 200  # Frames of a warm-up game, in which all kernels are compiled.
T = TypeVar("T")


@dataclass(frozen=True)
class BreakoutSettings:
    """How thorough a run is."""

    training: tuple[int, ...]
    """Numbers of frames of random play to learn from."""
    games: int
    """Number of games with the most training frames; each has its own seed and its own random play."""
    fewer: int
    """Number of games with fewer training frames."""
    frames: int
    """Frames of a game, at most; 18,000 frames are 5 minutes."""
    film: tuple[int, int]
    """First and last frame of the film."""
    dqn_steps: int
    """Actions that DQN is trained on, of 4 frames each."""


FULL = BreakoutSettings((10, 30, 100, 300, 1000), 10, 3, 18_000, (6_000, 7_800), 25_000)
QUICK = BreakoutSettings((30, 1000), 1, 1, 4_000, (0, 600), 2_000)


class BreakoutBench:
    """Shared by all games: the emulator, the scenes, and the records of random play."""

    def __init__(self, run: Run, game: Game, settings: BreakoutSettings) -> None:
        self.run, self.game, self.settings = run, game, settings
        self.world, self.rail = BreakoutWorld(bricks=True), BreakoutWorld(bricks=False)
        self._records: dict[int, RandomPlay] = {}

    def seed(self, number: int) -> int:
        """Seed of a game; its random play has a different one."""
        return 1000 * self.run.seed + 2 * number

    def paddle(self, number: int, frames: int) -> tuple[Paddle, list[float]]:
        """The paddle learned from the first `frames` frames of a game's random play; and the error by evaluation."""
        if number not in self._records:
            generator = self.run.generator(100 + number)
            longest = max(self.settings.training)
            self._records[number] = play_at_random(self.game, longest, self.seed(number) + 1, generator)
        return learn(self.rail, self._records[number].first(frames))

    def player(self, kind: str, number: int, paddle: Paddle) -> Player:
        if kind == PAPER:
            return PaperPlayer(self.rail, paddle)
        return ArrivalPlayer(self.world, self.rail, paddle, self.run.generator(500 + number))


def run(run: Run) -> None:
    load()
    settings = QUICK if run.quick else FULL
    run.record(
        game={
            "environment": "ALE/Breakout-v5", "sticky": STICKY, "frames_for_an_action": 1,
            "frames_at_most": settings.frames,
        },
        method={
            "training_frames": settings.training, "games": settings.games, "window_frames": WINDOW,
            "random_action_frames": HOLD, "horizon_frames": HORIZON,
        },
        published={"human": HUMAN, "model_free": PUBLISHED},
    )  # fmt: skip
    with Game() as game, one_torch_thread():
        bench = BreakoutBench(run, game, settings)
        kinds = [ARRIVAL, PAPER]
        for kind in kinds:  # Warm up: compiling kernels must not count as time of a frame.
            play(game, bench.player(kind, 0, Paddle.guess()), bench.seed(0), WARM)
        attempt(run, "film", lambda: film(run, bench))
        table: dict[str, dict[int, list[Played]]] = {kind: {} for kind in kinds}
        for frames, kind in itertools.product(reversed(settings.training), kinds):  # Most training first.
            games = settings.games if frames == max(settings.training) else settings.fewer
            table[kind][frames] = []
            for played in play_games(bench, kind, frames, games):
                table[kind][frames].append(played)
                found = tabulate(run, table)
            say(run, f"{kind}, {frames} training frames", found[kind][str(frames)])
            draw_scores(run, table, None)
        trained = attempt(run, "DQN", lambda: train_dqn(run, settings))
    draw_scores(run, table, trained)


def attempt(run: Run, what: str, part: Callable[[], T]) -> T | None:
    """Run an optional part: a failure is logged and recorded, and the experiment continues."""
    try:
        return part()
    except Exception as error:
        run.say(f"{what} is missing: {type(error).__name__}: {error}")
        run.record(missing={**run.results.get("missing", {}), what: f"{type(error).__name__}: {error}"})
        return None


def play_games(bench: BreakoutBench, kind: str, frames: int, games: int) -> Iterator[Played]:
    what = f"{kind}, {frames} training frames"
    for number in bench.run.track(range(games), what, games):
        paddle, _ = bench.paddle(number, frames)
        yield play(bench.game, bench.player(kind, number, paddle), bench.seed(number), bench.settings.frames)


def tabulate(run: Run, table: dict[str, dict[int, list[Played]]]) -> dict[str, dict[str, Any]]:
    """Scores of all games so far, and CPU time per frame, by player and by training frames."""
    found: dict[str, dict[str, Any]] = {}
    for name, by_frames in table.items():
        found[name] = {}
        for count, games in sorted(by_frames.items()):
            spent = np.concatenate([game.milliseconds for game in games])
            found[name][str(count)] = {
                "mean_score": statistics.fmean(game.score for game in games),
                "scores": [game.score for game in games], "frames": [game.frames for game in games],
                "milliseconds_per_frame": {
                    "mean": spent.mean(), "median": np.median(spent), "95 %": np.quantile(spent, 0.95),
                    "99 %": np.quantile(spent, 0.99),
                },
            }  # fmt: skip
    run.record(games=found)
    return found


def say(run: Run, what: str, found: dict[str, Any]) -> None:
    scores, spent = found["scores"], found["milliseconds_per_frame"]
    run.say(
        f"{what}: mean score {found['mean_score']:.1f} of {len(scores)} games ({min(scores):g} to {max(scores):g}), "
        f"{spent['mean']:.2f} ms per frame (CPU; 95 %: {spent['95 %']:.2f})"
    )


def train_dqn(run: Run, settings: BreakoutSettings) -> dqn.Trained | None:
    if not dqn.available():
        run.say("DQN is left out: pip install stable-baselines3 for it")
        return None
    trained = dqn.train(settings.dqn_steps, settings.games, run.seed, settings.frames, run.advance)
    mean = statistics.fmean(trained.scores)
    run.record(dqn={"training_frames": trained.frames, "mean_score": mean, "scores": trained.scores})
    run.say(f"DQN after {trained.frames:,} frames: mean score {mean:.1f} of {len(trained.scores)} games")
    return trained


# ---------------------------------------------------------------------------------------------- pictures


def film(run: Run, bench: BreakoutBench) -> None:
    """Film a part of the first game, with the predicted path of the ball; and record how its paddle was learned."""
    settings = bench.settings
    paddle, errors = bench.paddle(0, max(settings.training))
    run.record(paddle={"learned": paddle.numbers(), "error_px2": errors, "guess": Paddle.guess().numbers()})
    draw_learning(run, errors)
    first, last = settings.film
    player = bench.player(ARRIVAL, 0, paddle)
    game = itertools.islice(moments(bench.game, player, bench.seed(0), last), first, None)
    still: list[Moment] = []

    def images() -> Iterator[np.ndarray]:
        for k, moment in enumerate(game):
            bench.run.advance("film", k, last - first)
            if not still and moment.known.descending and len(moment.expected) > 25:
                still.append(moment)
            yield picture(moment)

    suffix = ".mp4" if importlib.util.find_spec("imageio_ffmpeg") else ".gif"
    video.write(run.file(f"game{suffix}"), images(), (160 * SCALE, 210 * SCALE), 60.0)
    if still:
        draw_still(run, still[0])


def draw_still(run: Run, moment: Moment) -> None:
    import matplotlib.pyplot as plt

    figure = plt.figure(figsize=(160 * SCALE / 130, 210 * SCALE / 130))
    axes = figure.add_axes((0.0, 0.0, 1.0, 1.0))
    axes.imshow(picture(moment), interpolation="nearest", aspect="auto")
    axes.axis("off")
    run.figure("still", figure)


def draw_learning(run: Run, errors: list[float]) -> None:
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(5.5, 3.4), layout="constrained")
    axes.semilogy(range(1, len(errors) + 1), errors, "o-", ms=3, lw=1.2)
    axes.set(xlabel="evaluation", ylabel="mean squared error of the paddle (px²)", title="learning the paddle")
    run.figure("paddle", figure)


def draw_scores(run: Run, table: dict[str, dict[int, list[Played]]], trained: dqn.Trained | None) -> None:
    """Draw score against training frames: these players, published results, and DQN as measured here."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(8.0, 4.6), layout="constrained")
    for k, (kind, by_frames) in enumerate(table.items()):
        frames = sorted(by_frames)
        scores = [[game.score for game in by_frames[n]] for n in frames]
        axes.plot(frames, [statistics.fmean(s) for s in scores], "o-", color=f"C{k}", label=f"{kind} (mean)")
        for n, some in zip(frames, scores, strict=True):
            axes.plot([n] * len(some), some, ".", color=f"C{k}", ms=3, alpha=0.5)
    axes.axhline(HUMAN, color="0.4", lw=1.0, ls="--", label=f"human, {HUMAN:g} (Mnih et al. 2015)")
    for name, count, score in PUBLISHED:
        axes.plot(count, score, "ks", ms=5)
        place: dict[str, Any] = {"textcoords": "offset points", "xytext": (-6, 6), "ha": "right"}
        axes.annotate(f"{name}, published", (count, score), fontsize=8, **place)
    if trained is not None:
        axes.plot(trained.frames, statistics.fmean(trained.scores), "C3^", label="DQN, measured here")
    axes.set(xscale="log", xlabel="training frames", ylabel="score of a game", title="Breakout, with sticky actions")
    axes.legend(fontsize=8, loc="upper center")
    run.figure("scores", figure)
