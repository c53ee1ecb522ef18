"""Gymnasium's CartPole-v1 with a continuous action, balanced by iLQR in models that are learned from random actions.

The model is a scene: a box on a rail, and on it a box on a hinge. Its two masses and the pole's length and width are
learned by `fit` from single steps of random play, (state, force, next state). The cart's size has no influence. The
baseline is a network with two hidden layers of 100 units that learns the change of the state from the same steps.

Gymnasium integrates by explicit Euler, x⁺ = x + h v, v⁺ = v + h a(x, v, u); the engine by semi-implicit Euler, x⁺ = x +
h v⁺. The velocities after a step can agree to rounding; positions differ by h² a, whatever is learned.

The motion depends on three numbers only: the total mass, the pole's mass x the distance of its centre from the hinge,
and its inertia about the hinge. These are identifiable; the four unknowns are not.
"""

from .experiment import run

__all__ = ["run"]
