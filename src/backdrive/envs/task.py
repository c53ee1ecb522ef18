"""A task: a model, and batched torch functions of its state that make it an environment."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

from ..control import Rewards
from ..model import Model, State, checks

if TYPE_CHECKING:
    from ..simulator import Simulator
    from ..trajectory import Trajectory

Random = np.random.Generator


def unchanged(action: Tensor) -> Tensor:
    """Use actions as the motors' controls."""
    return action


def never(state: State | Snapshot) -> Tensor:
    """The rule that never terminates an episode: False, bool [B]."""
    return torch.zeros(state.batch_shape, dtype=torch.bool)


def nothing(*_: Any) -> dict[str, Tensor]:
    """No entries for info."""
    return {}


class Snapshot(NamedTuple):
    """A state, as the functions of a task with `sensors` get it. data: what these saw in the step before, [B, k]."""

    q: Tensor
    v: Tensor
    data: Tensor

    @property
    def batch_shape(self) -> torch.Size:
        return self.q.shape[:-1]

    def detach(self) -> Snapshot:
        """The same tensors, cut from the autograd graph."""
        return Snapshot(*(x.detach() for x in self))


class Sensors(Protocol):
    """Quantities of a step that are no functions of the state after it, or that observation and reward share.

    of_state: whether `at_start` tells of any state what `after` would tell, up to the last stage of a step: contact
    forces, for example, it does not.
    """

    of_state: bool

    def at_start(self, state: State) -> Tensor:
        """At the start of an episode, [B, k]."""

    def after(self, path: Trajectory) -> Tensor:
        """After a step of the environment with this motion, [B, k]."""


@dataclass(frozen=True, kw_only=True)
class Task:
    """A model, and the functions that make it an environment. All functions are batched: states q [B, nq], v [B, nv].

    model, dt: the model, and the simulator's step in s. frame_skip: simulator steps per step of the environment, all
        with the same action.
    start: (random, count) -> initial State of `count` environments, float64; random numbers come from the given numpy
        generator.
    observe: state -> observations [B, n].
    reward: (before, action, after) -> {name: [B]}, the terms whose sum is the reward of a step. The action is the
        given one, before clipping.
    ends: state -> bool [B], whether the episode terminates. The time limit is not part of the task, but Gymnasium's.
    action_low, action_high: limits of an action, numbers or [action_size]; actions are clipped to them.
    action_size: number of elements of an action; None: the number of motors.
    control: actions [B, action_size] -> the model's controls [B, nu].
    settings: arguments of the `Simulator`, such as its solver.
    sensors: simulator -> `Sensors`. All functions above then get a `Snapshot`, which has q, v and the data of the
        sensors, in place of a state (but `start` returns a State).
    info: (before, action, after) -> {name: [B] or [B, k]}, what the info of a step has besides the terms of the reward.
    start_info: state -> the info of a reset.
    info_names: names that terms of the reward have in info where these are not ``reward_`` and the term's name; None:
        it is not there.
    limits: the part of the plane that a picture of a planar model shows, (left, right, bottom, top) in m.
    camera: for a spatial model, the position of the camera relative to the first body, m.

    Functions that are to have gradients must consist of differentiable torch operations.
    """

    name: str
    model: Model
    dt: float
    frame_skip: int = 1
    start: Callable[[Random, int], State]
    observe: Callable[[Any], Tensor]
    reward: Callable[[Any, Tensor, Any], Mapping[str, Tensor]]
    ends: Callable[[Any], Tensor] = never
    action_low: Any = -1.0
    action_high: Any = 1.0
    action_size: int | None = None
    control: Callable[[Tensor], Tensor] = unchanged
    settings: Mapping[str, Any] = field(default_factory=dict)
    sensors: Callable[[Simulator], Sensors] | None = None
    info: Callable[[Any, Tensor, Any], Mapping[str, Tensor]] = nothing
    start_info: Callable[[Any], Mapping[str, Tensor]] = nothing
    info_names: Mapping[str, str | None] = field(default_factory=dict)
    limits: tuple[float, float, float, float] | str = "auto"
    camera: tuple[float, float, float] = (0.0, -3.0, 1.0)

    def __post_init__(self) -> None:
        if not isinstance(self.model, Model):
            raise TypeError(f"task {self.name!r}: model must be a backdrive Model, got {type(self.model).__name__}")
        skip = checks.integer(self.frame_skip, f"task {self.name!r}: frame_skip")
        object.__setattr__(self, "frame_skip", skip)
        size = self.model.nu if self.action_size is None else self.action_size
        for name in ("action_low", "action_high"):
            limit = np.broadcast_to(np.asarray(getattr(self, name), np.float64), (size,)).copy()
            object.__setattr__(self, name, limit)
        if not (self.action_low <= self.action_high).all():
            limits = f"action_low {self.action_low} is above action_high {self.action_high}"
            raise ValueError(f"task {self.name!r}: {limits}")

    @property
    def seconds(self) -> float:
        """Duration of a step of the environment, s."""
        return self.dt * self.frame_skip

    def rewards(self, simulator: Simulator) -> Rewards:
        """Reward and end as `control.Rewards`, for rollouts of many steps in one call, whose actions are controls.

        Of the sensors' data, only what they tell of a state alone is known there, as at a reset: no contact forces.
        """
        if self.control is not unchanged:
            raise NotImplementedError(
                f"task {self.name!r}: its actions are not the controls, of which rewards are made"
            )
        look = self.looks(simulator)

        def reward(before: State, control: Tensor, after: State) -> Mapping[str, Tensor]:
            return self.reward(look(before), control, look(after))

        return Rewards(reward, lambda state: self.ends(look(state)))

    def looks(self, simulator: Simulator) -> Callable[[State], Any]:
        """A function from a state to what the task's functions get, with what sensors tell of a state alone."""
        sensors = None if self.sensors is None else self.sensors(simulator)
        return lambda state: state if sensors is None else Snapshot(*state, sensors.at_start(state))

    @property
    def fps(self) -> int:
        """Frame rate of a film in real time, with one frame per step."""
        return max(1, round(1.0 / self.seconds))


def scattered(
    model: Model, random: Random, count: int, *, position: float, velocity: float, normal: bool = False
) -> State:
    """Random states about the one the model was built in: q uniform in ± `position`; v uniform in ± `velocity`, or
    normal with that standard deviation."""
    q = model.q0 + random.uniform(-position, position, (count, model.nq))
    noise = random.standard_normal if normal else lambda shape: random.uniform(-1.0, 1.0, shape)
    return State(torch.from_numpy(q), torch.from_numpy(model.v0 + velocity * noise((count, model.nv))))
