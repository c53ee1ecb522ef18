"""A single Gymnasium environment."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import torch
from torch import Tensor

from ..model import State
from ..simulator import Solver
from .batch import Batch, checked_dtype
from .render import Picture, Window
from .task import Task
from .tasks import find


class Env(gymnasium.Env):
    """A task as a `gymnasium.Env`.

    task: a `Task`, or the name of one in `backdrive.envs.TASKS`, which is made with the `options`. render_mode: None,
        "rgb_array", or "human" (a matplotlib window). dtype: float64 or float32, of the physics and the observations.
        threads, solver: of the simulator; one environment uses one thread at most.

    `step` and `reset` take and return numpy arrays. `step_torch` and `reset_torch` do the same with tensors, and keep
    the graph: an observation has gradients with respect to all earlier actions and the initial state; `detach` cuts it.
    Actions beyond their limits are clipped, as in Gymnasium's MuJoCo environments; actions that are not finite or
    have the wrong shape raise.
    """

    metadata = {"render_modes": ["human", "rgb_array"], "render_fps": 50}  # noqa: RUF012

    def __init__(
        self, task: Task | str, *, render_mode: str | None = None, dtype: torch.dtype | str = torch.float64,
        threads: int | None = 1, solver: Solver | None = None, width: int = 480, height: int = 480, **options: Any,
    ) -> None:  # fmt: skip
        self.task = find(task, options)
        self.batch = Batch(self.task, 1, checked_dtype(dtype), threads, solver)
        self.observation_space, self.action_space = self.batch.spaces()
        self.metadata = {**self.metadata, "render_fps": self.task.fps}
        if render_mode not in (None, *self.metadata["render_modes"]):
            raise ValueError(f"render_mode must be None, 'human' or 'rgb_array', got {render_mode!r}")
        self.render_mode = render_mode
        self._size = width, height
        self._picture: Picture | None = None
        self._window: Window | None = None

    @property
    def simulator(self) -> Any:
        """The `Simulator` of this environment."""
        return self.batch.simulator

    @property
    def state(self) -> State:
        """The current q [nq] and v [nv]."""
        now = self.batch.where()
        return State(now.q[0], now.v[0])

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Start a new episode at a random initial state, or at options["state"]: State(q [nq], v [nv])."""
        observation, info = self.reset_torch(seed=seed, options=options)
        if self.render_mode == "human":
            self.render()
        return observation.detach().numpy().copy(), {name: _number(x.detach()) for name, x in info.items()}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        with torch.no_grad():
            observation, reward, terminated, _, info = self.step_torch(action)
        del info["path"]
        if self.render_mode == "human":
            self.render()
        numbers = {name: _number(x) for name, x in info.items()}
        return observation.numpy().copy(), reward.item(), bool(terminated), False, numbers

    def reset_torch(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Tensor, dict[str, Any]]:
        """As `reset`, with tensors; a given state may require a gradient."""
        super().reset(seed=seed)
        given = (options or {}).get("state")
        if isinstance(given, State):
            given = State(given.q.unsqueeze(0), given.v.unsqueeze(0))
        self.batch.start([self.np_random], given)
        info = {name: x[0] for name, x in self.task.start_info(self.batch.where()).items()}
        return self.batch.observation()[0], info

    def step_torch(self, action: Any) -> tuple[Tensor, Tensor, bool, bool, dict[str, Any]]:
        """As `step`, with differentiable tensors: observation [n], reward [].

        info: the terms of the reward and what else the task tells, as tensors, and "path": the `Trajectory` of this
        step, with its status.
        """
        out = self.batch.step(self.batch.action(action, batched=False))
        info: dict[str, Any] = {name: x[0] for name, x in out.info.items()}
        return out.observation[0], out.reward[0], bool(out.terminated), False, {**info, "path": out.path}

    def detach(self) -> None:
        """Cut the graph: gradients flow back to the current state, and no farther."""
        self.batch.state = self.batch.where().detach()

    def render(self) -> np.ndarray | None:
        """The picture, uint8 [height, width, 3]; in the mode "human" it is shown in a window, and None is returned."""
        if self.render_mode is None:
            gymnasium.logger.warn("render() does nothing: the environment was made without a render_mode")
            return None
        if self._picture is None:
            self._picture = Picture(self.task, *self._size)
        now = self.batch.where().detach()
        image = self._picture.of(State(now.q, now.v), 0)
        if self.render_mode == "rgb_array":
            return image
        if self._window is None:
            self._window = Window(image, self.task)
        self._window.show(image)
        return None

    def close(self) -> None:
        if self._picture is not None:
            self._picture.close()
        if self._window is not None:
            self._window.close()
        self._picture = self._window = None


def _number(x: Tensor) -> Any:
    return x.numpy().copy() if x.ndim else x.item()
