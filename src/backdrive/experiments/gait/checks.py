"""The gradient against differences, the same motion in MuJoCo itself, and pushes."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from ...differences import central, relative_error
from .controller import PeriodicNetwork
from .learning import loss_of
from .world import GaitWorld, fallen, mjcf, speed, upright

MOVE = 1e-6  # Length of the difference in the space of all weights.
STARTS, SPREAD = 32, 1e-3  # Disturbed starts: number; standard deviation of the joints' angles, rad.
PUSHES, PUSHED, PUSH_FORCE = 64, 0.1, (40.0, 120.0)  # Number; s; N, horizontal, at the trunk.


def gradient_error(world: GaitWorld, network: PeriodicNetwork) -> float:
    """Relative error of the loss's derivative along its gradient, against central differences. world: of a short
    horizon, since contacts that switch within the difference have no derivative."""
    weights = list(network.parameters())
    times = world.times()
    gradients = torch.autograd.grad(loss_of(world, world.move(network.targets(times)), 1.0), weights)
    norm = float(torch.cat([g.flatten() for g in gradients]).norm())
    before = [weight.detach().clone() for weight in weights]

    @torch.no_grad()
    def loss(shift: float) -> float:
        for weight, at, g in zip(weights, before, gradients, strict=True):
            weight.copy_(at).add_(g, alpha=shift / norm)
        return float(loss_of(world, world.move(network.targets(times)), 1.0))

    return relative_error(central(loss, MOVE, order=4), norm)


def in_mujoco(world: GaitWorld, targets: Tensor) -> tuple[float, bool]:
    """Speed (m/s) in MuJoCo itself for the same targets [T, nu], and whether the robot fell there."""
    import mujoco

    model = mujoco.MjModel.from_xml_string(mjcf(world.design))
    model.opt.timestep = world.simulator.dt
    data = mujoco.MjData(model)
    mujoco.mj_resetDataKeyframe(model, data, 0)
    path = [data.qpos.copy()]
    for control in float(world.design.gear) * targets.double().numpy():
        data.ctrl[:] = control
        mujoco.mj_step(model, data)
        path.append(data.qpos.copy())
    q = torch.from_numpy(np.array(path))
    return float(q[-1, 0] - q[0, 0]) / world.seconds, bool(fallen(world, q)[-1])


@torch.no_grad()
def disturbed(world: GaitWorld, targets: Tensor, generator: torch.Generator) -> tuple[float, float]:
    """Mean speed (m/s) and share of falls from starts whose joints are off by a milliradian, for targets [T, nu].

    A search that keeps its fastest motion also selects luck, which small disturbances take away.
    """
    start = world.start(STARTS)
    start.q[:, 7:] += SPREAD * torch.randn(STARTS, world.model.nu, generator=generator, dtype=start.q.dtype)
    path = world.move(targets[:, None].expand(-1, STARTS, -1), start)
    return float(speed(path, world.seconds).mean()), float(fallen(world, path.q)[-1].double().mean())


@torch.no_grad()
def pushes_survived(world: GaitWorld, targets: Tensor, generator: torch.Generator) -> float:
    """Share of random pushes that do not make the robot fall or tilt by more than 60°, for targets [T, nu]."""
    draw = torch.rand(PUSHES, 3, generator=generator, dtype=targets.dtype)
    when = ((0.25 + 0.5 * draw[:, 0]) * len(targets)).long()
    force = PUSH_FORCE[0] + (PUSH_FORCE[1] - PUSH_FORCE[0]) * draw[:, 1]
    angle = 2.0 * torch.pi * draw[:, 2]
    wrenches = targets.new_zeros(len(targets), PUSHES, world.model.nbody, 6)
    for k, first in enumerate(when.tolist()):
        during = slice(first, first + round(PUSHED / world.simulator.dt))
        wrenches[during, k, 0, 0], wrenches[during, k, 0, 1] = force[k] * angle[k].cos(), force[k] * angle[k].sin()
    path = world.move(targets[:, None].expand(-1, PUSHES, -1), wrenches=wrenches)
    lost = fallen(world, path.q)[-1] | (upright(path.q) < 0.5).any(0)
    return float((~lost).double().mean())
