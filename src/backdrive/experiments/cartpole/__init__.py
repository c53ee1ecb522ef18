"""Gymnasium's CartPole-v1 with a continuous action, balanced by iLQR in models that are learned from random actions.

The model is a scene: a box on a rail, and a box on a hinge that stands on it. Its two masses and the pole's length and
width are learned by `fit` from single steps of random play, (state, force, state after). The cart's size has no
influence on anything. The baseline is a network with two hidden layers of 100 that learns the change of the state from
the same steps.

Gymnasium integrates by explicit Euler, x⁺ = x + h v, v⁺ = v + h a(x, v, u); the engine by semi-implicit Euler, x⁺ = x +
h v⁺. Velocities of a step can be the same to rounding; places differ by h² a, whatever is learned.

Boxes that differ move alike if three numbers are the same: the mass of cart and pole together, the pole's mass x its
centre's distance from the hinge, and its inertia about the hinge. These are what motion tells; there are four unknowns.
"""

from .experiment import run

__all__ = ["run"]
