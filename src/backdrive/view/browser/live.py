"""What moves while it is watched: a simulator, or an environment with a policy, in real time.

A driver moves a state on by some seconds. Only one thread calls it; others hand it what to change with `later`.
"""

from __future__ import annotations

import math
import queue
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ...model import Model, State
from ...simulator import Simulator
from ..poses import link_poses, matrices

Array = np.ndarray
Policy = Callable[..., Any]

LARGEST = 0.1
"""The longest time that is simulated at once, s: a slow machine then shows slow motion, and does not fall behind."""
PULL_FREQUENCY, PULL_SECONDS = 4.0, 0.005
"""Of a body on the spring by which it is pulled, Hz; and how long the force of the spring stays the same, s."""


class Driver(ABC):
    """Moves a state on."""

    def __init__(self, model: Model, state: State) -> None:
        self.model, self.state, self.time = model, state, 0.0
        self.note = ""
        """Why it stands still; empty while it can move."""
        self._later: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()

    def later(self, change: Callable[[], None]) -> None:
        """Have something done between two steps."""
        self._later.put(change)

    def changes(self) -> bool:
        """Do what waits to be done. Returns whether there was anything."""
        found = False
        while not self._later.empty():
            self._later.get()()
            found = True
        return found

    @abstractmethod
    def advance(self, seconds: float) -> None:
        """Move on by about this time."""

    @abstractmethod
    def step(self) -> None:
        """Move on by the shortest time that there is."""

    @abstractmethod
    def reset(self, state: State | None = None) -> None:
        """Go back to the start, or to a state."""


@dataclass(frozen=True, eq=False)
class Pull:
    """A spring from a point of a body (m, in its frame) to a place in the world (m)."""

    body: int
    point: Array
    goal: Array
    environment: int
    mass: float
    """That the spring has to move, kg."""
    strength: float = 1.0


class SimulatorDriver(Driver):
    """A simulator with constant controls, or with those of a policy ``policy(state, t)``, t the number of the step."""

    def __init__(self, simulator: Simulator, state: State | None = None, policy: Policy | None = None) -> None:
        start = simulator.model.initial_state() if state is None else state
        self._start = State(*(x.detach().to(simulator.dtype, copy=True) for x in start))
        super().__init__(simulator.model, self._start)
        self.simulator, self.policy = simulator, policy
        self.controls = torch.zeros(simulator.model.nu, dtype=simulator.dtype)
        self.parameters: dict[str, Tensor] = {}
        self.pull: Pull | None = None
        self._pulled: Array | None = None  # where the point was
        self._steps, self._left = 0, 0.0

    def reset(self, state: State | None = None) -> None:
        if state is not None:
            shape = self._start.batch_shape
            state = State(*(x.detach().to(self.simulator.dtype).expand(*shape, x.shape[-1]).clone() for x in state))
        self.state = state or self._start
        self.time, self.note, self._steps, self._left = 0.0, "", 0, 0.0
        self.pull = self._pulled = None

    def step(self) -> None:
        self._run(1)

    def advance(self, seconds: float) -> None:
        self._left += min(seconds, LARGEST)
        steps = int(self._left / self.simulator.dt)
        self._left -= steps * self.simulator.dt
        most = max(1, round(PULL_SECONDS / self.simulator.dt)) if self.pull is not None else max(steps, 1)
        while steps > 0 and not self.note:
            self._run(min(steps, most))
            steps -= most

    def _run(self, steps: int) -> None:
        if self.note:
            return
        batch, inputs = self.state.batch_shape, dict[str, Any]()
        if self.policy is None:
            inputs["controls"] = self.controls.expand(steps, *batch, self.model.nu)
        else:
            policy, first = self.policy, self._steps
            inputs |= {"steps": steps, "policy": lambda state, t: policy(state, first + t)}
        if self.pull is not None:
            wrench = self._wrench(self.pull, steps * self.simulator.dt)
            inputs["wrenches"] = wrench.expand(steps, *wrench.shape)
        if self.parameters:
            inputs["parameters"] = dict(self.parameters)
        with torch.no_grad():
            path = self.simulator.rollout(self.state, **inputs)
        if not all(bool(torch.isfinite(x).all()) for x in path.last):
            self.note = f"the state is not finite after t = {self.time:.4g} s: reset, or use a smaller dt"
            return
        self.state = State(*(x.detach() for x in path.last))
        self._steps += steps
        self.time = self._steps * self.simulator.dt

    # ---------------------------------------------------------------------------------------------- pulling

    def grab(self, link: int, place: Array, environment: int = 0, strength: float = 1.0) -> None:
        """Take a body by a point, at a place in the world (m)."""
        body = int(np.flatnonzero(self.model.body_link == link)[0])
        x, R = self._pose(link, environment)
        point = R.T @ (place - x)
        self.pull = Pull(body, point, place, environment, self._effective_mass(body, point, environment), strength)
        self._pulled = None

    def drag(self, place: Array) -> None:
        """Move the other end of the spring."""
        if self.pull is not None:
            old = self.pull
            self.pull = Pull(old.body, old.point, place, old.environment, old.mass, old.strength)

    def release(self) -> None:
        self.pull = self._pulled = None

    def held(self) -> Array | None:
        """The point that is held, in the world; None: none is."""
        if self.pull is None:
            return None
        x, R = self._pose(int(self.model.body_link[self.pull.body]), self.pull.environment)
        return np.asarray(x + R @ self.pull.point)

    def _pose(self, link: int, environment: int, q: Tensor | None = None) -> tuple[Array, Array]:
        """Position [3] and rotation [3, 3] of a link."""
        numbers = np.atleast_2d((self.state.q if q is None else q).double().numpy())
        positions, rotations = link_poses(self.model, numbers[None])
        turn = rotations[0, environment, link].astype(np.float64)
        return positions[0, environment, link].astype(np.float64), matrices(turn)

    def _wrench(self, pull: Pull, seconds: float) -> Tensor:
        """The wrench [B, nbody, k] of the spring and its damper, critically damped, about the center of mass."""
        held = self.held()
        assert held is not None
        speed = np.zeros(3) if self._pulled is None else (held - self._pulled) / seconds
        self._pulled = held
        rate = 2.0 * math.pi * PULL_FREQUENCY * math.sqrt(pull.strength)
        force = pull.mass * rate * (rate * (pull.goal - held) - 2.0 * speed)
        return self._at(pull.body, pull.point, pull.environment, force)

    def _at(self, body: int, point: Array, environment: int, force: Array) -> Tensor:
        """The wrench [B, nbody, k] of a force (N) at a point of a body (m, in its frame)."""
        _, R = self._pose(int(self.model.body_link[body]), environment)
        center = np.zeros(3)
        center[: self.model.dim] = self.model.parameter("com")[body].numpy()
        torque = np.cross(R @ (point - center), force)
        flat = [*force[:2], torque[2]] if self.model.dim == 2 else [*force, *torque]
        wrench = torch.zeros(*self.state.batch_shape, self.model.nbody, len(flat), dtype=self.simulator.dtype)
        wrench[(..., environment, body) if wrench.ndim == 3 else (body,)] = torch.tensor(flat, dtype=wrench.dtype)
        return wrench

    def _effective_mass(self, body: int, point: Array, environment: int) -> float:
        """The mass that a force at a point of a body feels, on average over its directions, kg.

        dim / trace(J M⁻¹ Jᵀ), from the accelerations by unit forces, and how they displace the point.
        """
        model, small = self.model, 1e-4
        link = int(model.body_link[body])
        rest = self.simulator.forward_dynamics(self.state)
        x, R = self._pose(link, environment)
        total = 0.0
        for axis in np.eye(3)[: model.dim]:
            pushed = self.simulator.forward_dynamics(self.state, wrench=self._at(body, point, environment, axis))
            moved = self.simulator._tangent.displace(self.state.q, small * _unit(pushed - rest))
            y, S = self._pose(link, environment, moved)
            size = float(torch.linalg.vector_norm(pushed - rest))
            total += float(axis @ (y + S @ point - x - R @ point)) / small * size
        return model.dim / total if total > 1e-9 else 0.0


def _unit(x: Tensor) -> Tensor:
    return x / torch.linalg.vector_norm(x).clamp_min(1e-300)


class EnvironmentDriver(Driver):
    """A Gymnasium environment of `backdrive.envs`, driven by ``policy(observation) -> action``; None: no action.

    Episodes that end start anew.
    """

    def __init__(self, environment: Any, policy: Policy | None = None) -> None:
        self._whole, self._base, self._policy = environment, environment.unwrapped, policy
        self._seen, _ = environment.reset()
        super().__init__(self._base.simulator.model, self._base.state.detach())
        self._seconds = self._base.task.seconds
        self._left = 0.0

    def reset(self, state: State | None = None) -> None:
        options = None if state is None else {"state": state}
        self._seen, _ = self._whole.reset(options=options)
        self.state, self.time, self.note = self._base.state.detach(), 0.0, ""

    def step(self) -> None:
        if self._policy is None:
            action = np.zeros(self._whole.action_space.shape)
        else:
            action = self._policy(self._seen)
        self._seen, _, terminated, truncated, _ = self._whole.step(action)
        self.state, self.time = self._base.state.detach(), self.time + self._seconds
        if terminated or truncated:
            self.reset()

    def advance(self, seconds: float) -> None:
        self._left += min(seconds, LARGEST)
        while self._left >= self._seconds:
            self._left -= self._seconds
            self.step()
