"""How often the gradient of exact impacts is right: Ants that stumble, against differences of fourth order.

python -m benchmarks.stumbling [SECONDS]

A gradient is right if it agrees with the differences of one of three sizes, none of which meets a switch: the smaller
have more rounding in them, the larger more of the fifth derivative (of the time of a slow hit it is large).
"""

from __future__ import annotations

import sys
import time

import torch
from gymnasium.utils.seeding import np_random

import backdrive as bd
from backdrive.differences import extrapolate, offsets, slopes
from backdrive.envs import VectorEnv

ENVS, BEFORE, STEPS, DT = 64, 60, 20, 0.01
SIZES, FLOOR, RIGHT = (6e-7, 3e-6, 1.2e-5), 0.05, 1e-6
OFFSETS = torch.tensor([0.0, *offsets(4)], dtype=torch.float64)


def errors(simulator: bd.Simulator, env: VectorEnv, seed: int) -> torch.Tensor:
    """Relative, of the gradient of the last q, of motions with impacts in which the differences meet no switch."""
    found = torch.stack([errors_for(simulator, env, seed, size) for size in SIZES]).amin(0)  # NaN if one of them is
    return found[~found.isnan()]


def errors_for(simulator: bd.Simulator, env: VectorEnv, seed: int, size: float) -> torch.Tensor:
    """[ENVS], against differences of this size: NaN where there is no impact, or a switch."""
    random = torch.Generator().manual_seed(seed)
    state = env.task.start(np_random(seed)[0], ENVS)

    def uniform(*shape: int) -> torch.Tensor:
        return 2.0 * torch.rand(*shape, generator=random, dtype=torch.float64) - 1.0

    with torch.no_grad():
        start = simulator.rollout(state, 0.6 * uniform(BEFORE, ENVS, 8)).last
    controls = 0.3 * uniform(ENVS, STEPS, 8)
    way = torch.randn(ENVS, STEPS, 8, generator=random, dtype=torch.float64)
    way = way / way.flatten(1).norm(dim=1)[:, None, None]
    many = (controls[:, None] + size * OFFSETS[:, None, None] * way[:, None]).flatten(0, 1).transpose(0, 1).contiguous()
    path = simulator.rollout(bd.State(*(x.repeat_interleave(5, 0) for x in start)), many.requires_grad_())
    status = path.status
    numbers = [x.reshape(STEPS, ENVS, 5) for x in (status.modes, status.impacts)]
    counts = torch.stack([(x == x[..., :1]).all(-1).all(0) for x in numbers]).all(0)
    marked = status.fallbacks + status.simultaneous > 0
    counts &= (status.converged & ~marked).reshape(STEPS, ENVS, 5).all(-1).all(0)
    counts &= (numbers[1][..., 0] > 0).any(0)
    total = path.last.q.sum(-1).reshape(ENVS, 5)
    (gradient,) = torch.autograd.grad(total[:, 0].sum(), many)
    exact = (gradient.transpose(0, 1).reshape(ENVS, 5, STEPS, 8)[:, 0] * way).sum((1, 2))
    found = extrapolate(slopes(total.detach()[:, 1:].unbind(-1), size))
    return torch.where(counts, (exact - found).abs() / found.abs().clamp(min=FLOOR), torch.nan)


if __name__ == "__main__":
    torch.set_num_threads(1)
    env = VectorEnv("Ant", num_envs=ENVS)
    simulator = bd.Simulator(env.task.model, DT, impacts=True)
    end, seed, all_errors = time.monotonic() + float(sys.argv[1] if len(sys.argv) > 1 else 60.0), 0, []
    while time.monotonic() < end or not seed:
        all_errors.append(errors(simulator, env, seed))
        seed += 1
    found = torch.cat(all_errors)
    wrong = found[found > RIGHT].sort().values
    print(f"{len(found)} motions with impacts, {len(wrong)} gradients off by more than {RIGHT:g}: {wrong.tolist()}")
