"""Two players that plan in the scene: one as in the paper, and one that goes to where the ball will arrive."""

from __future__ import annotations

from typing import Any, Protocol

import torch
from torch import Tensor

from ...model import State
from .game import Action
from .paddle import Hand, Paddle
from .perception import LEFT, RIGHT
from .tracking import Pair, Situation
from .world import AWAY, CONTACT, BreakoutWorld

MIDDLE = 0.5 * (LEFT + RIGHT)
LOST = 8  # frames without a ball, after which the next one is asked for
ACTIONS = (Action.NOOP, Action.RIGHT, Action.LEFT)

HORIZON = 5  # frames, as in the paper
EFFORT = 1e-3  # px², the cost of a control: without it, pushing has no price

FAR = 150  # frames, for which the ball's flight is predicted
REFRESH = 4  # frames; a prediction is kept so long unless the ball leaves it
OFF_PATH = 1.5  # px
SETTLE = 8  # frames, after which a push has had its effect
MARGIN = 10.0  # px of the paddle's width that are not aimed with
RELUCTANCE = 1.0  # px by which an action must bring the paddle nearer: one that sticks is worse than none


class Player(Protocol):
    """Chooses an action in every frame. frames: from how many it wants the ball's velocity, see `Tracker`."""

    frames: int

    def act(self, now: Situation) -> Action: ...

    def forecast(self) -> Tensor | None:
        """Where the ball is expected from the last frame on, [T, 2] px."""
        ...


class _Server:
    """Asks for a ball when there has been none for some frames."""

    def __init__(self) -> None:
        self._waited = LOST

    def wants(self, now: Situation) -> bool:
        self._waited = 0 if now.ball is not None else self._waited + 1
        return self._waited > LOST


class PaperPlayer:
    """iLQR over 5 frames: the paddle's squared distance from the ball while it descends, else from the middle.

    Its model is the scene without bricks, which are farther away than 5 frames from where the ball is to be hit. A plan
    begins after the coming frame, in which the paddle feels earlier actions only. There is a new one in every frame,
    whose first control says which action is the nearest. A ball that is hidden (beside a wall, or as it hits a brick)
    is where the scene expects it.
    """

    frames = 2

    def __init__(self, world: BreakoutWorld, paddle: Paddle) -> None:
        from ...control import ILQR, MPC, SimulatedDynamics

        self.world, self.hand, self.server = world, Hand(paddle), _Server()
        self.parameters = world.parameters(paddle)
        dynamics, method = SimulatedDynamics(world.simulator, self.parameters), ILQR(max_iterations=1)
        self.planners = {chase: MPC(dynamics, _paper_cost(chase), HORIZON, method=method) for chase in (True, False)}
        self.coming: State | None = None
        self.plan: Any = None

    def act(self, now: Situation) -> Action:
        if self.server.wants(now):
            self.coming = self.plan = None
            self.hand.did(0.0)
            return Action.FIRE
        self.coming = self._expect(now)
        chase = float(self.coming.v[1]) < 0.0
        planner = self.planners[chase]
        u = float(planner.act(self.coming))
        self.planners[not chase].reset()
        self.plan = planner.plan
        direction = self.hand.nearest(u)
        self.hand.did(direction)
        return {0.0: Action.NOOP, 1.0: Action.RIGHT, -1.0: Action.LEFT}[direction]

    def _expect(self, now: Situation) -> State:
        """The state after the coming frame; where no ball was seen at all, one that does not matter."""
        ball, velocity = now.ball, now.velocity
        if self.coming is not None and (ball is None or velocity == (0.0, 0.0)):
            x, y, vx, vy = torch.cat([self.coming.q[:2], self.coming.v[:2]]).tolist()
            ball, velocity = (x, y), (vx, vy)
        pending = torch.tensor(self.hand.controls([0.0]), dtype=torch.float64)
        with torch.no_grad():
            before = self.world.state(ball or (MIDDLE, MIDDLE), velocity, now.paddle)
            return self.world.simulator.step(before, pending, parameters=self.parameters)

    def forecast(self) -> Tensor | None:
        return None if self.plan is None else self.plan.states.q[:, :2]


def _paper_cost(chase: bool) -> Any:
    from ...control import Cost

    def final(state: State) -> Tensor:
        return (state.q[3] - (state.q[0] if chase else MIDDLE)).square()

    def stage(state: State, u: Tensor, t: Tensor) -> Tensor:
        return final(state) + EFFORT * u.square().sum()

    return Cost(stage, final)


class ArrivalPlayer:
    """Rolls the ball's flight out, off walls and bricks, to the paddle's height, and takes the paddle there.

    Of three actions now, and none after, it takes the one after which the paddle comes to rest nearest to its goal. The
    goal is off the ball by a random part of the paddle, another one for every flight: without that, the ball may go
    round for ever.
    """

    frames = 9

    def __init__(self, world: BreakoutWorld, rail: BreakoutWorld, paddle: Paddle, generator: torch.Generator) -> None:
        """world: with bricks; rail: without, for the paddle."""
        self.world, self.rail, self.paddle, self.generator = world, rail, paddle, generator
        self.hand, self.server = Hand(paddle), _Server()
        self.path: Tensor | None = None
        self.age = 0
        self.aim, self.descended = 0.0, False

    def act(self, now: Situation) -> Action:
        if self.server.wants(now):
            self.path = None
            self.hand.did(0.0)
            return Action.FIRE
        if self.descended and not now.descending:
            self.aim = float(torch.rand((), generator=self.generator)) - 0.5
        self.descended = now.descending
        self._predict(now)
        arrival = self.arrival()
        goal = MIDDLE if arrival is None else arrival + self.aim * max(now.width - MARGIN, 0.0)
        half = 0.5 * now.width
        action = self.towards(min(max(goal, LEFT + half), RIGHT - half), now.paddle)
        self.hand.did(action.direction)
        return action

    def _predict(self, now: Situation) -> None:
        """A new flight, if the last prediction is old or was wrong."""
        self.age += 1
        if now.ball is None or now.velocity[1] == 0.0:  # hidden, or only just seen again: the last one still holds
            if self.path is not None and self.age >= len(self.path):
                self.path = None
            return
        if self.path is not None and self.age < min(REFRESH, len(self.path)):
            off = self.path[self.age] - torch.tensor(now.ball, dtype=torch.float64)
            if float(off.abs().max()) < OFF_PATH:
                return
        start = self.world.state(now.ball, now.velocity, (AWAY, 0.0))
        parameters = self.world.parameters(self.paddle, now.width, now.bricks)
        path = self.world.predict(start, parameters, FAR).q[:, :2]
        low = torch.nonzero(path[:, 1] <= CONTACT).flatten()
        self.path, self.age = path if len(low) == 0 else path[: int(low[0]) + 1], 0

    def arrival(self) -> float | None:
        """Where the ball will be when it comes down to the paddle's height; None if that is not foreseen."""
        if self.path is None or len(self.path) < 2 or float(self.path[-1, 1]) > CONTACT:
            return None
        (x0, y0), (x1, y1) = self.path[-2:].tolist()
        return x0 + (y0 - CONTACT) / (y0 - y1) * (x1 - x0)

    def towards(self, goal: float, paddle: Pair) -> Action:
        controls = [self.hand.controls([a.direction] + [0.0] * SETTLE) for a in ACTIONS]
        u = torch.tensor(controls, dtype=torch.float64).T.unsqueeze(-1)
        state = self.rail.state((MIDDLE, MIDDLE), (0.0, 0.0), paddle)
        many = State(state.q.expand(len(ACTIONS), -1), state.v.expand(len(ACTIONS), -1))
        with torch.no_grad():
            ends = self.rail.simulator.rollout(many, u, parameters=self.paddle.parameters).last.q[:, 3]
        miss = (ends - goal).abs()
        miss[0] -= RELUCTANCE
        return ACTIONS[int(miss.argmin())]

    def forecast(self) -> Tensor | None:
        return None if self.path is None else self.path[self.age :]
