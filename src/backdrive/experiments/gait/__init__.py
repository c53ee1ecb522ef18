"""A quadruped learns to run from standstill, by a network that turns a periodic sine into motor signals.

The network does not observe the robot. It learns by the gradient of motions of 8 s, one after another, and is compared
with trots of six numbers that CMA-ES tunes beforehand: one in ranges that a cautious engineer would try, one in wide
ranges. What was found runs in MuJoCo itself, and is pushed.
"""

from .experiment import run

__all__ = ["run"]
