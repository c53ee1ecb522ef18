"""Gymnasium environments whose steps carry gradients; importing this module registers them as ``backdrive/...``.

    import gymnasium, backdrive.envs

    env = gymnasium.make("backdrive/Ant-v0")                     # numpy in and out, for any RL library
    envs = gymnasium.make_vec("backdrive/Ant-v0", num_envs=1024)  # one batched rollout per step
    envs.unwrapped.step_torch(actions)                           # tensors, with the graph kept
    gymnasium.make("backdrive/MuJoCoAnt-v5")                     # the twin of Gymnasium's Ant-v5, with MuJoCo's physics

A `Task` is a model with an observation, a reward, a termination rule and a distribution of initial states; `Env` and
`VectorEnv` make environments of a task. ``import backdrive`` does not load this module: it needs gymnasium
(``pip install 'backdrive[envs]'``).
"""

try:
    import gymnasium as _gymnasium
except ImportError as error:
    raise ImportError("backdrive.envs needs gymnasium: pip install 'backdrive[envs]'") from error

from .env import Env
from .task import Task
from .tasks import TASKS, TWIN_VERSION, TWINS, find
from .vector import VectorEnv

__all__ = ["TASKS", "TWINS", "Env", "Task", "VectorEnv", "find"]

for _name, _entry in {**TASKS, **TWINS}.items():
    _id = f"backdrive/{_name}-v{TWIN_VERSION if _name in TWINS else 0}"
    if _id not in _gymnasium.registry:  # It is there if this module is being reloaded.
        _gymnasium.register(
            _id,
            entry_point="backdrive.envs:Env",
            vector_entry_point="backdrive.envs:VectorEnv",
            max_episode_steps=_entry.max_episode_steps,
            kwargs={"task": _name},
        )
