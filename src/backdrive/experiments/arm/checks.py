"""The gradient of the loss with respect to the network's weights, compared with differences in float64."""

from __future__ import annotations

import torch

from ...differences import central, relative_error
from ...policy import MLP
from ..run import Run
from .controller import controller
from .learning import losses
from .world import ReachWorld

MOVE = 1e-6  # Length of the difference in the space of all weights.


def check_gradient(run: Run, world: ReachWorld) -> None:
    """Check the gradient of the motion to one target. world: in float64."""
    error = gradient_error(world, controller(world, "feedback", run.generator(1)), run.generator(2))
    run.record(gradient_against_differences=error)
    run.say(f"the gradient with respect to all weights agrees with differences to {error:.1e} (float64)")


def gradient_error(world: ReachWorld, policy: MLP, generator: torch.Generator) -> float:
    """Relative error of the loss's derivative along its gradient, against central differences."""
    targets, weights = world.targets(1, generator), list(policy.parameters())
    gradients = torch.autograd.grad(losses(world, policy, "feedback", targets).sum(), weights)
    norm = float(torch.cat([g.flatten() for g in gradients]).norm())
    before = [weight.detach().clone() for weight in weights]

    @torch.no_grad()
    def loss(shift: float) -> float:
        for weight, at, g in zip(weights, before, gradients, strict=True):
            weight.copy_(at).add_(g, alpha=shift / norm)
        return float(losses(world, policy, "feedback", targets))

    return relative_error(central(loss, MOVE, order=4), norm)
