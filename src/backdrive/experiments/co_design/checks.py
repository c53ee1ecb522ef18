"""The gradient of a short motion with respect to every measure, compared with central differences in float64."""

from __future__ import annotations

import torch
from torch import Tensor

from ...differences import central, least_error
from ...trajectory import Trajectory
from ..gait.controller import Trot
from ..gait.world import GaitWorld
from ..run import Run
from .hardware import MEASURES, measures
from .motion import move, nominal_world

SECONDS = 0.3
STEPS = (3e-6, 1e-5, 3e-5, 1e-4)  # Of the coordinates of the measures.
TROT = Trot(*(torch.tensor([x], dtype=torch.float64) for x in (3.0, 0.3, 0.1, 0.3, -0.1, 1.5)))


def check_gradients(run: Run) -> None:
    errors = {physics: gradient_errors(physics) for physics in ("mujoco", "rigid")}
    run.record(gradient_of_measures_against_differences=errors)
    for physics, each in errors.items():
        name = max(each, key=lambda x: each[x])
        run.say(f"gradients of {SECONDS:g} s agree with differences to {each[name]:.1e} ({physics}; the worst: {name})")


def gradient_errors(physics: str) -> dict[str, float]:
    """Relative errors of the derivatives of a trot's end with respect to each measure's coordinate, off nominal."""
    world = nominal_world(physics, SECONDS)
    x = torch.linspace(-0.4, 0.4, len(MEASURES), dtype=torch.float64)[None]

    def value(x: Tensor) -> Tensor:
        return worth(_trot(world, x))

    at = x.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(value(at), at)
    errors = {}
    for k, name in enumerate(MEASURES):
        direction = torch.zeros_like(x).index_fill_(1, torch.tensor([k]), 1.0)

        def difference(step: float, direction: Tensor = direction) -> float:
            with torch.no_grad():
                return central(lambda e: float(value(x + e * direction)), step, order=4)

        errors[name] = least_error(float(gradient[0, k]), difference, STEPS)
    return errors


def _trot(world: GaitWorld, x: Tensor) -> Trajectory:
    return move(world, TROT.targets(world.times()), measures(x))


def worth(path: Trajectory) -> Tensor:
    """A number to which all of the last state contributes."""
    q, v = path.last
    weights = torch.linspace(0.5, 1.5, q.shape[-1], dtype=q.dtype)
    return (weights * q).sum() + 0.1 * (weights[1:] * v).sum()
