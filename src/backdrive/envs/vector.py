"""A Gymnasium vector environment: one batched rollout per step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium.utils import seeding
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space
from torch import Tensor

from ..model import State, checks
from ..simulator import Solver
from .batch import Batch, checked_dtype, put
from .render import Picture
from .task import Random, Snapshot, Task
from .tasks import find

Seeds = int | Sequence[int | None] | None


class VectorEnv(gymnasium.vector.VectorEnv):
    """`num_envs` environments of one task as a `gymnasium.vector.VectorEnv`.

    max_episode_steps: number of steps after which an episode is truncated; None: never. autoreset_mode: what happens
        when an episode has ended, as in Gymnasium: "NextStep" (default; the next step resets the environment, ignores
        its action and has reward 0), "SameStep" (reset at once; ``info["final_obs"]`` has the last observation of the
        episode), "Disabled" (call ``reset(options={"reset_mask": mask})``).
    task, dtype, solver, options: as in `Env`. threads: None: all cores. render_mode: None, or "rgb_array" for a tuple
        of pictures.

    Every environment has a random generator of its own, seeded as in Gymnasium: ``reset(seed=s)`` gives environment i
    the seed s + i, a list gives each its own. `step_torch`, `reset_torch` and `detach` are as in `Env`,
    with tensors [num_envs, ...]. No gradient flows through the reset of an environment.
    """

    metadata = {  # noqa: RUF012
        "render_modes": ["rgb_array"],
        "render_fps": 50,
        "autoreset_mode": AutoresetMode.NEXT_STEP,
    }

    def __init__(
        self, task: Task | str, *, num_envs: int = 1, max_episode_steps: int | None = None,
        autoreset_mode: AutoresetMode | str = AutoresetMode.NEXT_STEP, render_mode: str | None = None,
        dtype: torch.dtype | str = torch.float64, threads: int | None = None, solver: Solver | None = None,
        width: int = 480, height: int = 480, **options: Any,
    ) -> None:  # fmt: skip
        num_envs = checks.integer(num_envs, "num_envs")
        if render_mode not in (None, "rgb_array"):
            raise ValueError(f"render_mode must be None or 'rgb_array', got {render_mode!r}")
        self.task = find(task, options)
        self.batch = Batch(self.task, num_envs, checked_dtype(dtype), threads, solver)
        self.num_envs, self.max_episode_steps, self.render_mode = num_envs, max_episode_steps, render_mode
        self.single_observation_space, self.single_action_space = self.batch.spaces()
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self.autoreset_mode = AutoresetMode(autoreset_mode)
        self.metadata = {**self.metadata, "render_fps": self.task.fps, "autoreset_mode": self.autoreset_mode}
        self._randoms: list[Random] = []
        self._steps = torch.zeros(num_envs, dtype=torch.int64)  # Steps of the current episodes.
        self._ended = torch.zeros(num_envs, dtype=torch.bool)
        self._size = width, height
        self._picture: Picture | None = None

    @property
    def simulator(self) -> Any:
        """The `Simulator` of these environments."""
        return self.batch.simulator

    @property
    def state(self) -> State:
        """The current q [num_envs, nq] and v [num_envs, nv]."""
        now = self.batch.where()
        return State(now.q, now.v)

    def reset(  # Gymnasium's own vector environments take lists of seeds, too
        self, *, seed: Seeds = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Reset all environments. seed: that of the first, the others have the following ones; or a list of all, with
        None for an environment whose random numbers go on. options: {"reset_mask": bool [num_envs]} resets some,
        {"state": State} sets it."""
        observation, info = self.reset_torch(seed=seed, options=options)
        return observation.detach().numpy().copy(), {name: x.detach().numpy() for name, x in info.items()}

    def reset_torch(
        self, *, seed: Seeds = None, options: dict[str, Any] | None = None
    ) -> tuple[Tensor, dict[str, Any]]:
        mask = (options or {}).get("reset_mask")
        chosen = np.ones(self.num_envs, bool) if mask is None else np.asarray(mask)
        if mask is None:
            self._seed(seed, chosen)
            self.batch.start(self._randoms, (options or {}).get("state"))
            self._steps, self._ended = torch.zeros_like(self._steps), torch.zeros_like(self._ended)
        else:
            mask = chosen
            if mask.shape != (self.num_envs,) or mask.dtype != np.bool_ or not mask.any():
                raise ValueError(
                    f"options['reset_mask'] must be bool ({self.num_envs},) with at least one True, "
                    f"got {mask.dtype} {mask.shape}"
                )
            self._seed(seed, mask)
            self._start_anew(torch.from_numpy(mask).nonzero()[:, 0])
        info = dict(self.task.start_info(self.batch.where()))
        info |= dict.fromkeys([f"_{name}" for name in info], torch.from_numpy(chosen.copy()))
        return self.batch.observation(), info

    def _seed(self, seed: Seeds, chosen: np.ndarray) -> None:
        """Seed the generators of the environments `chosen`, bool [num_envs], where there is a seed."""
        seeds = seed if isinstance(seed, Sequence) else [None if seed is None else seed + i for i in range(len(chosen))]
        if len(seeds) != self.num_envs:
            raise ValueError(f"seed must be a number, or a list of {self.num_envs} seeds, got {len(seeds)}")
        if not self._randoms:
            self._randoms = [seeding.np_random(x)[0] for x in seeds]
        for i in np.flatnonzero(chosen).tolist():
            if seeds[i] is not None:
                self._randoms[i] = seeding.np_random(seeds[i])[0]

    def step(self, actions: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        with torch.no_grad():
            *results, info = self.step_torch(actions)
        del info["path"]
        info = {name: _arrays(x) for name, x in info.items()}
        if "final_obs" in info:  # Gymnasium's format: an array of arrays, None for others.
            final = np.full(self.num_envs, None, object)
            for i in np.flatnonzero(info["_final_obs"]):
                final[i] = info["final_obs"][i]
            info["final_obs"] = final
        observation, reward, terminated, truncated = (x.numpy().copy() for x in results)
        return observation, reward, terminated, truncated, info

    def step_torch(self, actions: Any) -> tuple[Tensor, Tensor, Tensor, Tensor, dict[str, Any]]:
        """As `step`, with tensors: observation [N, n] and reward [N], differentiable; terminated, truncated: bool [N].

        info: the terms of the reward and what else the task tells [N], with masks ``_name``, in Gymnasium's format
        (environments that this step has reset have the info of a reset); and "path": the `Trajectory` of
        this step, with its status. In the mode "SameStep", "final_obs" [N, n] has the observations before any reset.
        """
        batch, ended = self.batch, self._ended
        action = batch.action(actions, batched=True)
        if self.autoreset_mode is AutoresetMode.DISABLED and bool(ended.any()):
            where = ended.nonzero()[:, 0].tolist()
            raise RuntimeError(f"the episodes of environments {where} have ended: reset them (options['reset_mask'])")
        anew = ended.nonzero()[:, 0]
        if len(anew):  # Before the step, so that no step begins at a terminal state.
            self._start_anew(anew)
            start = type(batch.where())(*(x[anew] for x in batch.where()))
        out = batch.step(action)
        observation, reward, terminated, info = out.observation, out.reward, out.terminated, dict(out.info)
        masks = dict.fromkeys([f"_{name}" for name in info], ~ended)
        self._steps = self._steps + 1
        if len(anew):
            batch.state, self._steps[anew] = put(batch.where(), anew, start), 0
            observation = observation.index_put((anew,), batch.task.observe(start))
            reward, terminated = reward.masked_fill(ended, 0.0), terminated & ~ended
            info = {name: x.index_fill(0, anew, 0.0) for name, x in info.items()}
            for name, x in self.task.start_info(start).items():
                info[name] = info[name].index_put((anew,), x)
                masks[f"_{name}"] = torch.ones_like(ended)
        truncated = torch.zeros_like(terminated)
        if self.max_episode_steps is not None:
            truncated = self._steps >= self.max_episode_steps
        self._ended = terminated | truncated
        told: dict[str, Any] = {**info, **masks}
        if self.autoreset_mode is AutoresetMode.SAME_STEP and bool(self._ended.any()):
            final = self._ended
            last = {name: _only(final, x) for name, x in told.items()}
            told = {name: _only(~final, x) for name, x in told.items()}
            told |= {"final_obs": observation, "_final_obs": final, "final_info": last, "_final_info": final}
            self._start_anew(final.nonzero()[:, 0])
            observation = batch.observation()
            for name, x in self.task.start_info(batch.where()).items():
                told[name] = torch.where(_rows(final, x), x, told[name])
                told[f"_{name}"] = told[f"_{name}"] | final
        return observation, reward, terminated, truncated, {**told, "path": out.path}

    @property
    def steps(self) -> Tensor:
        """The number of steps since each running episode began, int [num_envs]."""
        return self._steps

    def take(self, state: State, steps: Tensor) -> None:
        """Go on from the end of a motion that was computed elsewhere, such as by ``Task.rewards``. steps: the number of
        steps since each episode began, int [num_envs]. Sensors see what they see at a reset."""
        self.batch.start([], state)
        self._steps, self._ended = steps.clone(), torch.zeros_like(self._ended)

    def detach(self) -> None:
        """Cut the graph: gradients flow back to the current states, and no farther."""
        self.batch.state = self.batch.where().detach()

    def state_dict(self) -> dict[str, Any]:
        """All that decides how the environments go on, without the graph: what they were last seen in (q, v, and what
        sensors saw), the steps of the running episodes, which of them have ended, and the random generators."""
        return {
            "state": [x.detach() for x in self.batch.where()],
            "steps": self._steps.clone(), "ended": self._ended.clone(),
            "random": [_plain(random.bit_generator.state) for random in self._randoms],
        }  # fmt: skip

    def load_state_dict(self, saved: Mapping[str, Any]) -> None:
        """Go on from where `state_dict` was called."""
        kind = Snapshot if self.batch.sensors is not None else State
        self.batch.state = kind(*saved["state"])
        self._steps, self._ended = saved["steps"].clone(), saved["ended"].clone()
        self._randoms = [seeding.np_random()[0] for _ in saved["random"]]
        for random, state in zip(self._randoms, saved["random"], strict=True):
            random.bit_generator.state = state

    def render(self) -> tuple[np.ndarray, ...] | None:
        """A picture of each environment, uint8 [height, width, 3]."""
        if self.render_mode is None:
            return None
        if self._picture is None:
            self._picture = Picture(self.task, *self._size)
        state = self.state.detach()
        return tuple(self._picture.of(state, i) for i in range(self.num_envs))

    def close_extras(self, **kwargs: Any) -> None:
        if self._picture is not None:
            self._picture.close()
            self._picture = None

    def _start_anew(self, rows: Tensor) -> None:
        new = self.batch.started([self._randoms[i] for i in rows.tolist()])
        self.batch.state = put(self.batch.where(), rows, new)
        self._steps, self._ended = self._steps.clone(), self._ended.clone()
        self._steps[rows], self._ended[rows] = 0, False


def _rows(mask: Tensor, x: Tensor) -> Tensor:
    """A mask [N] in a shape that selects rows of x [N, ...]."""
    return mask.view(-1, *[1] * (x.ndim - 1))


def _only(mask: Tensor, x: Tensor) -> Tensor:
    """x [N, ...] in the environments of the mask [N]; zero, or False, in others."""
    return x.masked_fill(_rows(~mask, x), 0)


def _arrays(x: Any) -> Any:
    return {name: _arrays(y) for name, y in x.items()} if isinstance(x, dict) else x.numpy()


def _plain(state: Any) -> Any:
    """The state of a random generator in Python's own types."""
    if isinstance(state, Mapping):
        return {str(name): _plain(x) for name, x in state.items()}
    return state.tolist() if isinstance(state, np.ndarray) else state
