"""Reinforcement learning that uses the gradient of the physics.

    from backdrive import learn

    agent = learn.SHAC("MuJoCoAnt", num_envs=64)
    agent.train(seconds=240, progress=True)
    print(learn.evaluate(agent.policy(), "Ant-v5"))  # in MuJoCo

``import backdrive`` does not load this module: it needs gymnasium (``pip install 'backdrive[learn]'``).
"""

from .agent import Agent, Diverged
from .bptt import BPTT, BPTTSettings
from .curve import Curve
from .evaluate import Score, evaluate, widened
from .sac import SAC, SACSettings
from .shac import SHAC, SHACSettings

__all__ = [
    "BPTT", "SAC", "SHAC", "Agent", "BPTTSettings", "Curve", "Diverged", "SACSettings", "SHACSettings", "Score",
    "evaluate", "widened",
]  # fmt: skip
