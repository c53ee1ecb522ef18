"""Two players that plan in the scene: one as in the paper, and one that goes to the ball's point of arrival."""

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
LOST = 8  # Frames without a ball after which a new one is served.
ACTIONS = (Action.NOOP, Action.RIGHT, Action.LEFT)

HORIZON = 5  # Frames, as in the paper.
EFFORT = 1e-3  # Weight of squared controls in the cost, px²; without it, pushing would be free.

FAR = 150  # Frames for which the ball's flight is predicted.
REFRESH = 4  # Frames for which a prediction is kept, unless the ball leaves the predicted path.
OFF_PATH = 1.5  # Distance from the predicted path that counts as leaving it, px.
SETTLE = 8  # Frames after which a push has had its full effect.
MARGIN = 10.0  # Part of the paddle's width that is not used for aiming, px.
RELUCTANCE = 1.0  # Least improvement that justifies an action, px: actions may stick, so none is safer.


class Player(Protocol):
    """Chooses an action in every frame. frames: number of frames for the ball's velocity, see `Tracker`."""

    frames: int

    def act(self, now: Situation) -> Action: ...

    def forecast(self) -> Tensor | None:
        """Predicted positions of the ball from the last frame on, [T, 2] px."""
        ...


class _Server:
    """Serves a new ball when none has been seen for some frames."""

    def __init__(self) -> None:
        self._waited = LOST

    def wants(self, now: Situation) -> bool:
        self._waited = 0 if now.ball is not None else self._waited + 1
        return self._waited > LOST


class PaperPlayer:
    """iLQR over 5 frames. Cost: the paddle's squared distance from the ball while it descends, else from the middle.

    The model is the scene without bricks, which are more than 5 frames of flight away from the paddle. A plan starts
    after the coming frame, in which only earlier actions affect the paddle. Every frame has a new plan, and takes the
    action nearest to its first control. A hidden ball (beside a wall, or as it hits a brick) is assumed where the scene
    predicts it.
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
        """The predicted state after the coming frame; without any ball seen so far, its position is arbitrary."""
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
    """Simulates the ball's flight, bouncing off walls and bricks, to the paddle's height, and moves the paddle there.

    Of the three possible actions, followed by none, it takes the one after which the paddle comes to rest nearest to
    its goal. The goal is the point of arrival plus a random offset, redrawn for every flight: without it, the ball may
    repeat the same cycle forever.
    """

    frames = 9

    def __init__(self, world: BreakoutWorld, rail: BreakoutWorld, paddle: Paddle, generator: torch.Generator) -> None:
        """world: the scene with bricks. rail: without bricks, for the paddle's motion."""
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
        """Predict the flight again if the last prediction is old or was wrong."""
        self.age += 1
        if now.ball is None or now.velocity[1] == 0.0:  # Hidden, or just visible again: keep the prediction.
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
        """x of the ball when it comes down to the paddle's height, px; None if that is not predicted."""
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
