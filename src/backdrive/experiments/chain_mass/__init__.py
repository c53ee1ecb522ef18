"""A ball of known mass hits a hanging chain; the mass of the chain is inferred from 10 s of motion.

The world is that of the paper's code, with its pixels as centimetres: links of 20 cm x 60 cm that overlap by 10 cm,
hinged to each other, under a gravity of 1 m/s²; a ball of 1 kg and 20 cm radius, pushed with 15 N for 0.1 s, that flies
without weight towards the lowest link; steps of 1/30 s. The chain weighs 7 kg, shared equally by its links. Links do
not collide with each other (at 7 kg they never touch).

Steps are split at impacts: with plain time stepping, the loss has a kink wherever the impact moves into another step,
and its gradient lacks the derivative of the time of impact.

For short chains, the loss over 10 s has several local minima, because a light chain swings back and hits the ball
again; over the first seconds there is only one. So `fit` uses windows of observations of growing length, and finds the
mass from any start.
"""

from .experiment import run

__all__ = ["run"]
