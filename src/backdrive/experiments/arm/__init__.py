"""An arm of 1 m with 4 hinges learns to reach any point of its reachable domain, by the gradient and by CMA-ES.

A network of 17,000 parameters is evaluated in every step, inside the kernel. It learns in three ways that differ in
what it observes: joint angles, their rates, the tip and the target; the target alone; or the target and the time. One
update is the gradient of 256 motions to random targets. CMA-ES searches the weights of the same network, for the
domain and for a single point. ``--robot FILE`` lets the arm of an MJCF file learn instead, with its own servos and
limits.

Targets are the tip's positions for joint angles that are uniform within the joints' limits, so that all are reachable.
"""

from .experiment import run

__all__ = ["run"]
