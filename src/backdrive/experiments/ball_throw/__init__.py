"""Throw a ball so that it lies at rest 10 m away after 10 s: optimise its 6 velocities with gradients and CMA-ES.

The ball is a football: 0.43 kg, 11 cm radius, hollow, released 1 m above ground. It bounces (restitution 0.5), slides
and rolls (friction 0.5) on softened contact. The engine's contacts have no rolling resistance; rolling is stopped by
viscous damping of the ball's free joint, 0.011 N s/m and N m s/rad. The damping also acts in the air, where it reduces
the speed by 2.6 % per second and the spin by 96 % per second. Rolling decays as exp(-1.3 t/s) and never quite ends, so
"at rest" means slower than `REST`.

The 6 unknowns are the initial velocity, and the initial angular velocity x radius, so that all are in m/s.

Steps are split at impacts: the time of a bounce depends on the throw, and the gradient contains that dependence.
"""

from .experiment import run

__all__ = ["run"]
