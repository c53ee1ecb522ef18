"""Learn how the paddle responds: play at random, simulate the same actions, and minimise the difference."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ...model import State
from .game import Action, Game
from .paddle import Paddle
from .perception import LEFT, RIGHT, look
from .world import WIDTH, BreakoutWorld

WINDOW = 10  # Frames of a simulated motion.
HOLD = 4  # Frames for which a random action is held.
UPDATES = 40  # Iterations of the optimiser, at most.


@dataclass(frozen=True)
class RandomPlay:
    """A game played at random: the paddle's centre x [N] (px) in frames 0 to N - 1, NaN where it is partly hidden, and
    the directions [N] pushed after each frame."""

    x: Tensor
    directions: Tensor

    def __len__(self) -> int:
        return len(self.x)

    def first(self, frames: int) -> RandomPlay:
        return RandomPlay(self.x[:frames], self.directions[:frames])


def play_at_random(game: Game, frames: int, seed: int, generator: torch.Generator) -> RandomPlay:
    """Play `frames` frames with random actions; seed: of the game's own randomness."""
    turn, x, directions = game.reset(seed), [], []
    action, fresh = Action.NOOP, False
    for t in range(frames):
        if t % HOLD == 0:
            action = Action(int(torch.randint(len(Action), (), generator=generator)))
        x.append(torch.nan if fresh else _centre(look(turn.frame).paddle))
        directions.append(action.direction)
        turn = game.act(action)
        fresh = turn.over
        if fresh:  # A new game moves the paddle.
            turn = game.reset(seed + 1)
    return RandomPlay(torch.tensor(x, dtype=torch.float64), torch.tensor(directions, dtype=torch.float64))


def _centre(paddle: tuple[float, float] | None) -> float:
    """The centre of the paddle, px; NaN at a wall, where the paddle is partly hidden."""
    if paddle is None or paddle[0] <= LEFT or paddle[1] >= RIGHT or paddle[1] - paddle[0] != WIDTH:
        return torch.nan
    return 0.5 * (paddle[0] + paddle[1])


def windows(record: RandomPlay) -> tuple[Tensor, Tensor]:
    """First frames [B] of all motions that are visible throughout, and x [W + 2, B] from one frame earlier on."""
    steps = max(min(WINDOW, len(record) - 3), 1)
    if len(record) < steps + 2:
        return torch.zeros(0, dtype=torch.int64), torch.zeros(steps + 2, 0, dtype=torch.float64)
    x = record.x.unfold(0, steps + 2, 1).T
    whole = torch.isfinite(x).all(0)
    return 1 + torch.nonzero(whole).flatten(), x[:, whole]


def error(world: BreakoutWorld, paddle: Paddle, record: RandomPlay) -> Tensor:
    """Mean squared difference between simulated and observed positions of the paddle, px²; differentiable."""
    begin, x = windows(record)
    steps, batch = len(x) - 2, len(begin)
    controls = paddle.controls(record.directions).unfold(0, steps, 1)[begin].T.unsqueeze(-1)
    start = world.model.initial_state(batch)
    q, v = start.q.clone(), start.v.clone()
    q[:, 3], v[:, 3] = x[1], x[1] - x[0]
    path = world.simulator.rollout(State(q, v), controls, parameters=paddle.parameters)
    return (path.q[1:, :, 3] - x[2:]).square().mean()


def learn(world: BreakoutWorld, record: RandomPlay) -> tuple[Paddle, list[float]]:
    """Fit the paddle to a record by L-BFGS on `error`, from the guess; returns it, and the error by evaluation."""
    begin, _ = windows(record)
    if len(begin) == 0:
        return Paddle.guess(), []
    guess = Paddle.guess()
    z = torch.stack([guess.gear.log(), guess.damping.log(), torch.logit(guess.stick), torch.logit(guess.delay)])
    z.requires_grad_()
    optimizer = torch.optim.LBFGS([z], max_iter=UPDATES, line_search_fn="strong_wolfe")
    errors: list[float] = []

    def loss() -> Tensor:
        optimizer.zero_grad()
        now = error(world, _paddle(z), record)
        now.backward()
        errors.append(now.item())
        return now

    optimizer.step(loss)
    return _paddle(z.detach()), errors


def _paddle(z: Tensor) -> Paddle:
    """The paddle with free numbers z [4]: gear and damping are positive, stick and delay between 0 and 1."""
    return Paddle(*z[:2].exp(), *torch.sigmoid(z[2:]))
