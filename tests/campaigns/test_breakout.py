"""breakout: what a frame shows is what the game knows, the scene moves as the game does, the paddle is learned."""

import sys

import matplotlib
import numpy as np
import pytest
import torch
from quick_runs import quick_run

from backdrive import experiments
from backdrive.experiments import Run
from backdrive.experiments.breakout import dqn, experiment, learning, perception, play
from backdrive.experiments.breakout.game import Action, Game
from backdrive.experiments.breakout.learning import RandomPlay
from backdrive.experiments.breakout.paddle import Hand, Paddle
from backdrive.experiments.breakout.perception import Seen, look
from backdrive.experiments.breakout.planner import ArrivalPlayer, PaperPlayer
from backdrive.experiments.breakout.tracking import Situation, Tracker
from backdrive.experiments.breakout.world import AWAY, CONTACT, BreakoutWorld

matplotlib.use("Agg")

POINTS = np.array([7, 7, 4, 4, 1, 1])  # of a brick, by row
BALL_X, BALL_Y, PADDLE_X = 99, 101, 72  # where the game's memory has them
TRUE = Paddle(*torch.tensor([5.5, 1.0, 0.25, 0.9], dtype=torch.float64))


@pytest.fixture(scope="module")
def world() -> BreakoutWorld:
    return BreakoutWorld(bricks=True)


@pytest.fixture(scope="module")
def rail() -> BreakoutWorld:
    return BreakoutWorld(bricks=False)


@pytest.fixture(scope="module")
def game():
    pytest.importorskip("ale_py", reason="the Atari game: pip install 'backdrive[atari]'")
    pytest.importorskip("gymnasium", reason="the Atari game: pip install 'backdrive[atari]'")
    with Game() as one:
        yield one


def arrival_player(world: BreakoutWorld, rail: BreakoutWorld, paddle: Paddle = TRUE) -> ArrivalPlayer:
    return ArrivalPlayer(world, rail, paddle, torch.Generator().manual_seed(0))


def situation(ball, velocity, paddle=(80.0, 0.0), bricks=None) -> Situation:
    return Situation(ball, velocity, paddle, 16.0, np.ones((6, 18), bool) if bricks is None else bricks)


# ---------------------------------------------------------------------------------------------- perception


def empty_frame() -> np.ndarray:
    frame = np.zeros((210, 160, 3), np.uint8)
    frame[17:196, :8] = frame[17:196, 152:] = frame[17:32] = 142
    frame[189:193, 60:76] = perception.RED
    return frame


def test_a_ball_in_the_colour_of_the_bricks_is_found_between_them():
    frame = empty_frame()
    for row, color in enumerate(perception.BRICK_COLORS):
        frame[57 + 6 * row : 63 + 6 * row, 8:152] = color
    frame[69:75, 16:24] = 0  # the brick of row 2, column 1 is gone
    frame[70:74, 18:20] = perception.BRICK_COLORS[2]
    seen = look(frame)
    assert seen.ball == (19.0, 210.0 - 72.0)
    assert seen.paddle == (60.0, 76.0)
    assert (~seen.bricks).nonzero()[0].tolist() == [2] and (~seen.bricks).nonzero()[1].tolist() == [1]


def test_no_ball_and_no_paddle():
    frame = empty_frame()
    frame[189:193, 60:76] = 0
    seen = look(frame)
    assert seen.ball is None and seen.paddle is None and not seen.bricks.any()


def test_what_is_seen_is_what_the_game_has_in_its_memory(game, world, rail):
    """Ball and paddle as the game's own memory has them, and the bricks that are gone make up the score."""
    off, behind = [], []
    turn, tracker, player, score = game.reset(3), Tracker(9), arrival_player(world, rail), 0.0
    for _ in range(900):
        memory = game.env.unwrapped.ale.getRAM()
        seen = look(turn.frame)
        assert seen.paddle is not None
        behind.append(int(memory[PADDLE_X]) - seen.paddle[0])
        if seen.ball is not None:
            off.append((int(memory[BALL_X]) - seen.ball[0], int(memory[BALL_Y]) + seen.ball[1]))
        if seen.ball is not None and seen.ball[1] < 100.0:
            assert (POINTS[:, None] * ~seen.bricks).sum() == score
        turn = game.act(player.act(tracker.follow(seen)))
        score += turn.reward
    assert score > 0.0 and len(off) > 800
    for values in (np.array(off), np.array(behind)[:, None]):
        usual = np.median(values, axis=0)
        assert (np.abs(values - usual).max(-1) <= 1.0).mean() > 0.97


def test_velocities_are_those_of_the_flight_since_the_last_bounce():
    def seen(x, y):
        return Seen((x, y), (60.0, 76.0), np.ones((6, 18), bool))

    two, nine = Tracker(2), Tracker(9)
    for x, y in ((20, 80), (18, 79), (16, 77), (14, 76), (12, 74)):
        now = [tracker.follow(seen(x, y)) for tracker in (two, nine)]
    assert now[0].velocity == (-2.0, -2.0)
    assert now[1].velocity == (-2.0, -1.5)
    for x, y in ((13, 73), (15, 71)):  # off the left wall
        now = [tracker.follow(seen(x, y)) for tracker in (two, nine)]
    assert now[1].velocity == (1.5, -1.5) and now[1].descending
    assert now[1].paddle == (68.0, 0.0) and now[1].width == 16.0
    nothing = nine.follow(Seen(None, (62.0, 78.0), np.ones((6, 18), bool)))
    assert nothing.velocity == (0.0, 0.0) and nothing.paddle == (70.0, 2.0) and not nothing.descending


# ---------------------------------------------------------------------------------------------- the scene


def test_the_ball_bounces_off_walls_and_bricks_and_through_where_some_are_gone(world):
    """Mirrored motions: at the last row of bricks, 117 - 2, at the upper wall, 178 - 2, and at the left one, 8 + 1."""
    bricks, frames = np.ones((6, 18), bool), torch.arange(61, dtype=torch.float64)
    up = world.state((83.0, 100.0), (0.0, 2.0), (AWAY, 0.0))
    whole = world.predict(up, world.parameters(TRUE, bricks=bricks), 60).q[:, 1]
    torch.testing.assert_close(whole, 115.0 - (15.0 - 2.0 * frames).abs(), rtol=0, atol=1e-9)
    bricks[:, 8:11] = False
    through = world.predict(up, world.parameters(TRUE, bricks=bricks), 60).q[:, 1]
    torch.testing.assert_close(through, 176.0 - (76.0 - 2.0 * frames).abs(), rtol=0, atol=1e-9)
    left = world.state((20.0, 60.0), (-1.5, 0.0), (AWAY, 0.0))
    aside = world.predict(left, world.parameters(TRUE, bricks=bricks), 60).q[:, 0]
    torch.testing.assert_close(aside, 9.0 + (11.0 - 1.5 * frames).abs(), rtol=0, atol=1e-9)


def test_arrival_is_that_of_the_mirrored_flight(world, rail):
    rng, bounced = np.random.default_rng(4), 0
    low, high = 9.0, 151.0  # of the ball's centre
    for _ in range(40):
        ball = (rng.uniform(12.0, 148.0), rng.uniform(40.0, 110.0))
        velocity = (rng.uniform(-2.5, 2.5), -rng.uniform(1.0, 3.5))
        straight = ball[0] + velocity[0] * (ball[1] - CONTACT) / -velocity[1]
        expected = straight if low < straight < high else (2 * low if straight < low else 2 * high) - straight
        if min(expected - low, high - expected) < 3.0:  # it bounces in the frame in which it arrives
            continue
        bounced += not low < straight < high
        player = arrival_player(world, rail)
        player._predict(situation(ball, velocity))
        assert player.arrival() == pytest.approx(expected, abs=1e-6)
    assert bounced >= 5


# ---------------------------------------------------------------------------------------------- learning


def record(world: BreakoutWorld, paddle: Paddle, frames: int) -> RandomPlay:
    """The paddle as the scene moves it, from the middle."""
    generator = torch.Generator().manual_seed(1)
    directions = torch.randint(-1, 2, (frames // 4 + 1,), generator=generator).repeat_interleave(4)[:frames].double()
    start = world.state((80.0, 80.0), (0.0, 0.0), (80.0, 0.0))
    with torch.no_grad():
        controls = paddle.controls(directions).unsqueeze(-1)
        x = world.simulator.rollout(start, controls, parameters=paddle.parameters).q[:-1, 3]
    return RandomPlay(x, directions)


def test_a_hand_does_frame_by_frame_what_the_record_does_at_once():
    directions = torch.randint(-1, 2, (40,), generator=torch.Generator().manual_seed(2)).double()
    hand, controls = Hand(TRUE), []
    for a in directions.tolist():
        controls.append(hand.controls([a])[0])
        hand.did(a)
    torch.testing.assert_close(
        torch.tensor(controls, dtype=torch.float64), TRUE.controls(directions), rtol=0, atol=1e-12
    )
    assert Hand(TRUE).nearest(1.0) == 1.0 and Hand(TRUE).nearest(-0.1) == 0.0 and Hand(TRUE).nearest(-0.7) == -1.0


@pytest.mark.parametrize("seed", range(5))
def test_the_gradient_of_the_error_agrees_with_differences(rail, seed):
    seen = record(rail, TRUE, 60)
    at = torch.rand(4, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    at = (at + torch.tensor([2.0, 0.3, 0.1, 0.1])) * torch.tensor([1.0, 1.0, 0.8, 0.8])
    at.requires_grad_()
    (gradient,) = torch.autograd.grad(learning.error(rail, Paddle(*at), seen), at)
    slopes = torch.zeros(4, dtype=torch.float64)
    with torch.no_grad():
        for k, move in enumerate(1e-5 * torch.eye(4, dtype=torch.float64)):
            up, down = (learning.error(rail, Paddle(*(at + sign * move)), seen) for sign in (1.0, -1.0))
            slopes[k] = (up - down) / 2e-5
    assert (gradient - slopes).norm() <= 1e-6 * slopes.norm()


def test_a_paddle_is_learned_from_its_motion(rail):
    found, errors = learning.learn(rail, record(rail, TRUE, 200))
    assert errors[-1] < 1e-3 * errors[0]
    assert float(found.speed) == pytest.approx(float(TRUE.speed), rel=0.02)


def test_from_too_few_frames_nothing_is_learned(rail):
    found, errors = learning.learn(rail, record(rail, TRUE, 2))
    assert errors == [] and found.numbers() == Paddle.guess().numbers()


def test_the_games_paddle_is_learned_from_random_play(game, rail):
    """It moves by about 6 px per frame while an action is held, and begins a frame late."""
    for seed in range(2):
        seen = learning.play_at_random(game, 1000, seed, torch.Generator().manual_seed(seed))
        found, errors = learning.learn(rail, seen)
        assert errors[-1] < 0.25 * errors[0]
        assert 5.0 < float(found.speed) < 6.5
        assert float(found.delay) > 0.8


# ---------------------------------------------------------------------------------------------- playing


def test_the_paddle_is_pushed_to_where_it_comes_to_rest_at_the_goal(world, rail):
    player = arrival_player(world, rail)
    assert player.towards(100.0, (80.0, 0.0)) is Action.RIGHT
    assert player.towards(60.0, (80.0, 0.0)) is Action.LEFT
    assert player.towards(80.5, (80.0, 0.0)) is Action.NOOP
    assert player.towards(84.0, (80.0, 5.0)) is not Action.RIGHT  # it gets there by itself


def test_a_ball_is_asked_for_when_there_is_none(world, rail):
    player = arrival_player(world, rail)
    assert player.act(situation(None, (0.0, 0.0))) is Action.FIRE
    assert player.act(situation((50.0, 80.0), (1.0, -1.0))) is not Action.FIRE
    waited = [player.act(situation(None, (0.0, 0.0))) for _ in range(12)]
    assert waited[0] is not Action.FIRE and waited[-1] is Action.FIRE


def test_a_short_game(game, world, rail):
    played = play.play(game, arrival_player(world, rail), seed=1, frames=900)
    assert game.env.unwrapped.ale.lives() == 5  # no ball was missed
    assert played.score >= 3.0 and played.frames == 900
    assert np.median(played.milliseconds) < 5.0


def test_the_same_seed_gives_the_same_game(game, world, rail):
    def paddles(seed):
        return [moment.known.paddle for moment in play.moments(game, arrival_player(world, rail), seed, 120)]

    first, again, other = paddles(5), paddles(5), paddles(6)
    assert first == again and first != other


@pytest.mark.slow
def test_the_papers_player_follows_the_ball(game, rail):
    pytest.importorskip("backdrive.control", reason="the paper's player plans with it")
    player = PaperPlayer(rail, TRUE)
    assert player.act(situation((120.0, 60.0), (1.0, -2.0))) is Action.RIGHT
    player = PaperPlayer(rail, TRUE)
    assert player.act(situation((120.0, 60.0), (1.0, 2.0), paddle=(100.0, 0.0))) is Action.LEFT  # to the middle
    played = play.play(game, PaperPlayer(rail, TRUE), seed=1, frames=500)
    assert game.env.unwrapped.ale.lives() == 5 and played.score >= 1.0


def test_a_ball_that_is_hidden_for_some_frames_is_still_followed(world, rail):
    """Beside the right wall it is not seen: it comes back from there, far from the middle."""
    hidden = situation(None, (0.0, 0.0), paddle=(125.0, 0.0))
    for player in (PaperPlayer(rail, TRUE), arrival_player(world, rail)):
        player.act(situation((151.0, 40.0), (2.0, -3.0), paddle=(125.0, 0.0)))
        assert player.act(hidden) is Action.RIGHT
        known = player.forecast()
        assert known is not None and float(known[0, 1]) == pytest.approx(34.0 if player.frames == 2 else 37.0)


# ---------------------------------------------------------------------------------------------- the experiment


def test_it_is_in_the_registry():
    assert "Belbute-Peres" in experiments.find("breakout").paper


@pytest.mark.slow
def test_the_experiment(game, tmp_path, monkeypatch):
    monkeypatch.setattr(experiment, "QUICK", experiment.BreakoutSettings((20, 60), 1, 1, 100, (60, 100), 0))
    monkeypatch.setattr(dqn, "available", lambda: False)
    run = quick_run("breakout", tmp_path)
    assert {"paddle.png", "scores.png", "results.json"} <= run.names
    assert any(path.stem == "game" and path.stat().st_size > 1000 for path in run.files)
    found = run.results["games"]["arrival"]
    assert set(found) == {"20", "60"}
    assert found["60"]["mean_score"] == np.mean(found["60"]["scores"]) and found["60"]["frames"] == [100]
    assert any("stable-baselines3" in line for line in run.lines)


def test_a_part_that_fails_is_recorded_and_the_rest_goes_on(tmp_path):
    lines: list[str] = []
    run = Run(tmp_path, log=lines.append)
    assert experiment.attempt(run, "film", lambda: 1 // 0) is None
    assert experiment.attempt(run, "DQN", lambda: 7) == 7
    assert list(run.results["missing"]) == ["film"] and "ZeroDivisionError" in run.results["missing"]["film"]
    assert "film" in lines[0]


def test_without_the_game_it_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "ale_py", None)
    with pytest.raises(ImportError, match=r"backdrive\[atari\]"):
        experiments.find("breakout").run(Run(tmp_path, quick=True))
