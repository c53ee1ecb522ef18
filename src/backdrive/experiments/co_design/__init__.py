"""A quadruped and its controller are learned together, by the gradient of the robot's motion.

Nine measures of the robot (lengths, foot radius, gear, springs), with the masses and inertias that follow from them,
and the weights of a periodic network get the gradient of the same rollout of 8 s. It is compared with learning the
controller alone, and with CMA-ES on all, each with the same number of motions, from the same robot and networks.
"""

from .experiment import run

__all__ = ["run"]
