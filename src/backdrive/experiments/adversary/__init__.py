"""A quadruped learns to keep its gait when it is pushed, slips and carries loads that an adversary chose by gradient.

Degrave et al. 2016 name "adversarial robotics training" as a use of a differentiable engine. Here policy and adversary
follow the gradient of the same rollouts: the policy up its return, the adversary down it with its pushes, the floor's
friction and the masses of the robot, within bounds. The rivals learn from random disturbances within the same bounds,
or from none, with the same number of evaluations. All are tested on disturbances that none has seen.
"""

from .experiment import run

__all__ = ["run"]
