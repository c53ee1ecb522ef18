"""Batched environments for Stable-Baselines3: its algorithms step all environments in one rollout.

    from stable_baselines3 import PPO
    from backdrive.envs.stable_baselines import BatchedEnv

    PPO("MlpPolicy", BatchedEnv("MuJoCoAnt", num_envs=64)).learn(1_000_000)

Nothing else of backdrive imports this module: it needs stable-baselines3 (``pip install 'backdrive[sb3]'``).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

try:
    from stable_baselines3.common.vec_env import VecEnv
except ImportError as error:
    raise ImportError(
        "backdrive.envs.stable_baselines needs Stable-Baselines3: pip install 'backdrive[sb3]'"
    ) from error

from ..model import checks
from .task import Task
from .tasks import TASKS, TWINS
from .vector import VectorEnv

Indices = int | Iterable[int] | None


class BatchedEnv(VecEnv):
    """`num_envs` environments of one task as a `stable_baselines3.common.vec_env.VecEnv`.

    task, options: as in `VectorEnv`. max_episode_steps: None: of a registered task its own, of other tasks no limit.

    An episode that ends begins anew in the same step. The info of that step has its last observation,
    ``"terminal_observation"``, and ``"TimeLimit.truncated"``: True if only the time limit ended it, so that algorithms
    bootstrap. Wrap it in `VecMonitor` for the returns of episodes. seed(s): environment i starts with seed s + i.
    """

    def __init__(
        self, task: Task | str, *, num_envs: int = 1, max_episode_steps: int | None = None, **options: Any
    ) -> None:  # fmt: skip
        known = {**TASKS, **TWINS}
        if max_episode_steps is None and isinstance(task, str) and task in known:
            max_episode_steps = known[task].max_episode_steps
        if max_episode_steps is not None:
            max_episode_steps = checks.integer(max_episode_steps, "max_episode_steps")
        options.setdefault("autoreset_mode", "SameStep")
        if options["autoreset_mode"] != "SameStep":
            raise ValueError("Stable-Baselines3 expects environments that start anew in the step that ends them")
        self.envs = VectorEnv(task, num_envs=num_envs, max_episode_steps=max_episode_steps, **options)
        self._actions: np.ndarray | None = None
        super().__init__(self.envs.num_envs, self.envs.single_observation_space, self.envs.single_action_space)

    def reset(self) -> np.ndarray:
        observation, info = self.envs.reset(seed=list(self._seeds))
        self.reset_infos = [_one(info, i) for i in range(self.num_envs)]
        self._reset_seeds()
        self._reset_options()
        return observation

    def step_async(self, actions: np.ndarray) -> None:
        self._actions = actions

    def step_wait(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, list[dict[str, Any]]]:
        if self._actions is None:
            raise RuntimeError("step_wait without step_async: there are no actions")
        observation, reward, terminated, truncated, info = self.envs.step(self._actions)
        self._actions = None
        final, told = info.pop("final_obs", None), info.pop("final_info", {})
        infos = [_one(info, i) for i in range(self.num_envs)]
        for i in np.flatnonzero(terminated | truncated).tolist():
            assert final is not None
            self.reset_infos[i] = infos[i]
            infos[i] = _one(told, i) | {"terminal_observation": final[i]}
        for i, one in enumerate(infos):
            one["TimeLimit.truncated"] = bool(truncated[i] and not terminated[i])
        return observation, reward.astype(np.float32), terminated | truncated, infos

    def close(self) -> None:
        self.envs.close()

    def get_images(self) -> Sequence[np.ndarray | None]:
        return self.envs.render() or [None] * self.num_envs

    def get_attr(self, attr_name: str, indices: Indices = None) -> list[Any]:
        value = getattr(self.envs, attr_name)
        return [value for _ in self._get_indices(indices)]

    def set_attr(self, attr_name: str, value: Any, indices: Indices = None) -> None:
        self._refuse_some(indices)
        setattr(self.envs, attr_name, value)

    def env_method(self, method_name: str, *method_args: Any, indices: Indices = None, **method_kwargs: Any) -> list:
        self._refuse_some(indices)
        value = getattr(self.envs, method_name)(*method_args, **method_kwargs)
        return [value] * self.num_envs

    def env_is_wrapped(self, wrapper_class: type, indices: Indices = None) -> list[bool]:
        return [False for _ in self._get_indices(indices)]

    def _refuse_some(self, indices: Indices) -> None:
        if list(self._get_indices(indices)) != list(range(self.num_envs)):
            raise NotImplementedError("the environments are one batch: attributes and methods are those of all of them")


def _one(info: dict[str, Any], i: int) -> dict[str, Any]:
    """What the info of a batch tells of environment i: Gymnasium's masks say which names it has."""
    names = (name for name in info if not name.startswith("_") and info.get(f"_{name}", [True] * (i + 1))[i])
    return {name: info[name][i] for name in names}
