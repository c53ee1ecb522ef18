"""Policies between Gymnasium's MuJoCo environments and their twins: trained in one, scored in both.

    python -m benchmarks.transfer                       # HalfCheetah, minutes; docs/mujoco_transfer.json
    python -m benchmarks.transfer --task Walker2d --steps 300000

Proximal policy optimisation by Stable-Baselines3 with its default network. An interrupted run goes on where it was: the
folder of results has a policy for every finished part of the training. Scores: returns of 20 episodes from the same 20
starts, with the mean action.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import torch
from stable_baselines3 import PPO
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import VecEnv, VecMonitor, VecNormalize

import backdrive as bd
import backdrive.envs

ENVIRONMENTS, EPISODES, PART = 32, 20, 65_536
SETTINGS = {"n_steps": 512, "batch_size": 1024, "n_epochs": 10, "learning_rate": 5e-4, "gae_lambda": 0.95}
Policy = Callable[[np.ndarray], np.ndarray]


class Twins(VecEnv):
    """A `backdrive.envs.VectorEnv` as Stable-Baselines3 has vector environments."""

    def __init__(self, task: str, count: int) -> None:
        steps = gymnasium.spec(f"backdrive/MuJoCo{task}-v5").max_episode_steps
        self.envs = bd.envs.VectorEnv(
            f"MuJoCo{task}", num_envs=count, max_episode_steps=steps, autoreset_mode="SameStep"
        )
        super().__init__(count, self.envs.single_observation_space, self.envs.single_action_space)

    def reset(self) -> np.ndarray:
        return self.envs.reset(seed=0)[0]

    def step_async(self, actions: np.ndarray) -> None:
        self._actions = actions

    def step_wait(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, list[dict[str, Any]]]:
        observation, reward, terminated, truncated, info = self.envs.step(self._actions)
        done, infos = terminated | truncated, [{} for _ in range(self.num_envs)]
        for i in np.flatnonzero(done):
            infos[i] = {
                "terminal_observation": info["final_obs"][i],
                "TimeLimit.truncated": bool(truncated[i] and not terminated[i]),
            }
        return observation, reward, done, infos

    def close(self) -> None:
        self.envs.close()

    def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
        return [getattr(self.envs, attr_name, None)] * self.num_envs

    def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
        raise NotImplementedError

    def env_method(self, method_name: str, *args: Any, indices: Any = None, **kwargs: Any) -> list[Any]:
        raise NotImplementedError

    def env_is_wrapped(self, wrapper_class: type, indices: Any = None) -> list[bool]:
        return [False] * self.num_envs


def train(task: str, ours: bool, steps: int, folder: Path) -> Policy:
    """A policy of the twin (`ours`) or of Gymnasium's environment."""
    plain = VecMonitor(Twins(task, ENVIRONMENTS)) if ours else make_vec_env(f"{task}-v5", ENVIRONMENTS, seed=0)
    name = folder / f"{task}_{'twin' if ours else 'gymnasium'}"
    model_file, norm_file = name.with_suffix(".zip"), name.with_suffix(".pkl")
    if model_file.exists() and norm_file.exists():
        envs = VecNormalize.load(str(norm_file), plain)
        model = PPO.load(model_file, envs, device="cpu")
    else:
        envs = VecNormalize(plain)
        model = PPO("MlpPolicy", envs, seed=0, device="cpu", **SETTINGS)
    while model.num_timesteps < steps:
        model.learn(min(PART, steps - model.num_timesteps), reset_num_timesteps=False)
        model.save(model_file)
        envs.save(str(norm_file))
        recent = [episode["r"] for episode in model.ep_info_buffer or []]
        print(
            f"{name.name}: {model.num_timesteps:,} steps, return {np.mean(recent) if recent else np.nan:.0f}",
            flush=True,
        )
    envs.training = False

    def policy(observation: np.ndarray) -> np.ndarray:
        return model.predict(envs.normalize_obs(observation), deterministic=True)[0]

    return policy


def scores(task: str, policy: Policy) -> dict[str, list[float]]:
    """The returns of 20 episodes in Gymnasium's environment, and in its twin from the same starts."""
    env, theirs, starts = gymnasium.make(f"{task}-v5"), [], []
    for seed in range(EPISODES):
        observation, _ = env.reset(seed=seed)
        data, total, ended = env.unwrapped.data, 0.0, False
        starts.append((data.qpos.copy(), data.qvel.copy()))
        while not ended:
            observation, reward, terminated, truncated, _ = env.step(policy(observation))
            total, ended = total + float(reward), terminated or truncated
        theirs.append(total)
    envs = gymnasium.make_vec(f"backdrive/MuJoCo{task}-v5", num_envs=EPISODES)
    state = bd.State(*(torch.from_numpy(np.array(x)) for x in zip(*starts, strict=True)))
    observation, _ = envs.reset(seed=0, options={"state": state})
    ours, running = np.zeros(EPISODES), np.ones(EPISODES, bool)
    while running.any():
        observation, reward, terminated, truncated, _ = envs.step(policy(observation))
        ours += running * reward
        running &= ~(terminated | truncated)
    return {"gymnasium": theirs, "twin": ours.tolist()}


def main() -> int:
    parser = argparse.ArgumentParser("python -m benchmarks.transfer", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--task", default="HalfCheetah", help="name of Gymnasium's environment (%(default)s)")
    parser.add_argument("--steps", type=int, default=524_288, help="of training, of each policy (%(default)s)")
    parser.add_argument("--folder", type=Path, default=Path("results/transfer"), help="of policies (%(default)s)")
    parser.add_argument("--output", type=Path, default=Path("docs/mujoco_transfer.json"), help="(%(default)s)")
    options = parser.parse_args()
    torch.set_num_threads(1)
    options.folder.mkdir(parents=True, exist_ok=True)
    results: dict[str, Any] = {"task": options.task, "steps": options.steps, "episodes": EPISODES, "trained in": {}}
    fair = True
    for name, ours in (("twin", True), ("gymnasium", False)):
        policy = train(options.task, ours, options.steps, options.folder)
        found = scores(options.task, policy)
        summary = {where: [round(float(np.mean(x)), 1), round(float(np.std(x)), 1)] for where, x in found.items()}
        results["trained in"][name] = {"return and its spread, in": summary}
        (a, spread_a), (b, spread_b) = summary["gymnasium"], summary["twin"]
        fair &= abs(a - b) <= max(spread_a, spread_b)
        print(f"trained in {name}: Gymnasium {a:.0f} ± {spread_a:.0f}, twin {b:.0f} ± {spread_b:.0f}", flush=True)
    results["the same within the spread"] = fair
    options.output.write_text(json.dumps(results, indent=2) + "\n", "utf-8")
    return 0 if fair else 1


if __name__ == "__main__":
    sys.exit(main())
