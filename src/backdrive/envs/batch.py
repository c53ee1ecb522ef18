"""A batch of environments of one task, as `Env` and `VectorEnv` share it. It works on tensors, and keeps the graph."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor

from ..model import State, checks
from ..simulator import Simulator, Solver
from ..trajectory import Trajectory
from .task import Random, Snapshot, Task

NUMPY: dict[torch.dtype, Any] = {torch.float64: np.float64, torch.float32: np.float32}


@dataclass(frozen=True)
class BatchStep:
    """The result of a step of all environments: observation [B, n], reward [B], info with its terms, terminated bool
    [B], and the motion."""

    observation: Tensor
    reward: Tensor
    info: dict[str, Tensor]
    terminated: Tensor
    path: Trajectory


class Batch:
    """`count` environments. state: their current state, None before the first reset."""

    def __init__(self, task: Task, count: int, dtype: torch.dtype, threads: int | None, solver: Solver | None) -> None:
        if not isinstance(task, Task):
            raise TypeError(f"task must be a backdrive.envs.Task or a name, got {type(task).__name__}")
        self.task, self.count, self.dtype = task, count, dtype
        settings = {"nonfinite": "mark", **task.settings}  # If one environment diverges, only it ends.
        if solver is not None:
            settings["solver"] = solver
        self.simulator = Simulator(task.model, task.dt, dtype=dtype, threads=threads, **settings)
        self.sensors = None if task.sensors is None else task.sensors(self.simulator)
        self.state: State | Snapshot | None = None
        self.between: Callable[[Any], Any] = _itself
        """What every state passes through after a step, before rewards and observations: for bounds on gradients."""
        self._low, self._high = (torch.as_tensor(x, dtype=dtype) for x in (task.action_low, task.action_high))

    def spaces(self) -> tuple[spaces.Box, spaces.Box]:
        """The observation and the action space of one environment."""
        task = self.task
        size = task.observe(self._seen(task.model.initial_state(1).to(self.dtype))).shape[-1]
        actions = spaces.Box(task.action_low.astype(np.float32), task.action_high.astype(np.float32), dtype=np.float32)
        return spaces.Box(-np.inf, np.inf, (size,), dtype=NUMPY[self.dtype]), actions

    def started(self, randoms: Sequence[Random]) -> State | Snapshot:
        """Random initial states, [k, n], each from a generator of its own."""
        starts = [self.task.start(random, 1) for random in randoms]
        return self._seen(State(*(torch.cat(x) for x in zip(*starts, strict=True))).to(self.dtype))

    def _seen(self, start: State) -> State | Snapshot:
        """A state at which episodes start, with what the sensors see there."""
        return start if self.sensors is None else Snapshot(*start, self.sensors.at_start(start))

    def start(self, randoms: Sequence[Random], given: State | None) -> None:
        """Reset all environments, to random initial states or to a given state."""
        model = self.task.model
        if given is None:
            self.state = self.started(randoms)
            return
        if not isinstance(given, State):
            raise TypeError(f"options['state'] must be a backdrive State(q, v), got {type(given).__name__}")
        shapes = (self.count, model.nq), (self.count, model.nv)
        if (tuple(given.q.shape), tuple(given.v.shape)) != shapes:
            sizes = f"{list(given.q.shape)} and {list(given.v.shape)} for {self.count} environments"
            raise ValueError(f"options['state'] must have q of {model.nq} and v of {model.nv} numbers, got {sizes}")
        self.state = self._seen(given.to(self.dtype).clone())

    def observation(self) -> Tensor:
        """The observation of the current state, [B, n]."""
        return self.task.observe(self.where())

    def where(self) -> State | Snapshot:
        if self.state is None:
            raise RuntimeError("call reset before anything else")
        return self.state

    def step(self, action: Tensor) -> BatchStep:
        """One rollout of `frame_skip` steps; action [B, action_size].

        An environment whose motion is not finite keeps its state and terminates; its step has no gradient.
        """
        task, before = self.task, self.where()
        control = task.control(action.clamp(self._low, self._high))
        controls = control.expand(task.frame_skip, *control.shape)
        begin = State(before.q.view_as(before.q), before.v.view_as(before.v))
        path = self.simulator.rollout(begin, controls)
        finite = torch.isfinite(path.last.v).all(-1, keepdim=True)
        after = path.last if self.sensors is None else Snapshot(*path.last, self.sensors.after(path))
        if not finite.all():
            after = type(before)(*(torch.where(finite, x, y) for x, y in zip(after, before, strict=True)))
            for x in (*begin, controls):
                if x.requires_grad:  # Backward would compute 0 × NaN for these rows.
                    x.register_hook(lambda bar: torch.where(finite, bar, 0.0))
        self.state = after = self.between(after)
        terms = dict(task.reward(before, action, after))
        reward = torch.stack(list(terms.values())).sum(0)
        info = dict(task.info(before, action, after))
        info |= {name: x for term, x in terms.items() if (name := task.info_names.get(term, f"reward_{term}"))}
        return BatchStep(task.observe(after), reward, info, task.ends(after) | ~finite[:, 0], path)

    def action(self, action: Any, batched: bool) -> Tensor:
        """A checked tensor [B, action_size] from an array, a tensor or a list; from [action_size] if not `batched`."""
        size = len(self.task.action_low)
        shape = (self.count, size) if batched else (size,)
        tensor = action if isinstance(action, Tensor) else torch.from_numpy(np.asarray(action, NUMPY[self.dtype]))
        if tuple(tensor.shape) != shape:
            raise ValueError(f"action must have the shape {shape}, got {tuple(tensor.shape)}")
        if not bool(torch.isfinite(tensor).all()):
            place = torch.nonzero(~torch.isfinite(tensor))[0].tolist()
            raise ValueError(f"action is not finite: {tensor[tuple(place)].item()} at {place}")
        return tensor.to(self.dtype).reshape(self.count, size)


def _itself(state: Any) -> Any:
    return state


def checked_dtype(dtype: torch.dtype | str) -> torch.dtype:
    """torch.float64 or torch.float32, also by name: arguments of `gymnasium.make` may come from files."""
    names = {"float64": torch.float64, "float32": torch.float32}
    if isinstance(dtype, str) and dtype not in names:
        raise ValueError(checks.unknown("dtype", dtype, names))
    return names[dtype] if isinstance(dtype, str) else dtype


def put(state: State | Snapshot, rows: Tensor, new: State | Snapshot) -> State | Snapshot:
    """The state with some rows (indices [k]) replaced; no gradient flows through the replaced rows."""
    return type(state)(*(x.index_put((rows,), y) for x, y in zip(state, new, strict=True)))
