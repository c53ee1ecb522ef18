"""How long a horizon of reinforcement learning takes: 16 steps of many Ants with a policy, and the gradient.

    python -m benchmarks.horizons [--envs 64 256] [--threads 2] [--repeats 5]

In one call (`control.Rewards`, the policy in the kernel), and step by step (`VectorEnv.step_torch`, the policy
in torch). The Ant is the twin of Gymnasium's Ant-v5 without contact forces; the policy has layers of 128, 64 and 32.
Prints µs for a step of one environment, the least of some repeats.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

import backdrive as bd
from backdrive.envs import VectorEnv, find

HORIZON = 16
OPTIONS = {"include_cfrc_ext_in_observation": False, "contact_cost_weight": 0.0}


class Horizons:
    """A horizon from states of moving Ants, by both ways; each returns the total reward."""

    def __init__(self, count: int, threads: int) -> None:
        task = find("MuJoCoAnt", OPTIONS)
        self.task, self.model = task, task.model
        self.simulator = bd.Simulator(task.model, physics="mujoco", threads=threads)
        self.rewards = task.rewards(self.simulator)
        self.envs = VectorEnv("MuJoCoAnt", num_envs=count, threads=threads, **OPTIONS)
        self.envs.reset(seed=0)
        self.policy = bd.MLP(
            (task.model.nq - 2 + task.model.nv, 128, 64, 32, task.model.nu), sensors=("q[2:]", "v"), activation="elu",
            output="tanh", low=-1.0, high=1.0, hold=task.frame_skip, std=0.3, normalize=True, observation_clip=10.0,
            dtype=torch.float32, generator=torch.Generator().manual_seed(0),
        )  # fmt: skip
        start, actions = task.start(np.random.default_rng(0), count), 2.0 * torch.rand(8, count, task.model.nu) - 1.0
        with torch.no_grad():
            controls = actions.double().repeat_interleave(task.frame_skip, 0)
            self.start = self.simulator.rollout(start, controls).last

    def in_one_call(self, noise: Tensor) -> Tensor:
        return self.rewards.rollout(
            self.simulator, self.start, policy=self.policy, noise=noise, clip=30.0
        ).rewards.sum()

    def step_by_step(self, noise: Tensor) -> Tensor:
        self.envs.reset_torch(options={"state": self.start})
        total = self.start.q.new_zeros(())
        for push in noise:
            q, v, *_ = self.envs.batch.where()
            action = self.policy(torch.cat([q[:, 2:], v], -1).float(), push).double()
            total = total + self.envs.step_torch(action)[1].sum()
        return total


def measure(way: Callable[[Tensor], Tensor], shape: tuple[int, int, int], repeats: int) -> tuple[float, float]:
    """The least times of forward and backward, µs for a step of one environment."""
    best = [float("inf")] * 2
    for _ in range(repeats):
        noise, times = torch.randn(shape), [time.perf_counter()]
        total = way(noise)
        times.append(time.perf_counter())
        total.backward()
        times.append(time.perf_counter())
        best = [min(x, b - a) for x, a, b in zip(best, times, times[1:])]
    return tuple(1e6 * x / (shape[0] * shape[1]) for x in best)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--envs", type=int, nargs="+", default=[64, 256])
    parser.add_argument("--threads", type=int, default=2, help="of the kernels")
    parser.add_argument("--torch-threads", type=int, default=1, help="of torch, which take cores from the kernels")
    parser.add_argument("--repeats", type=int, default=5)
    given = parser.parse_args()
    torch.set_num_threads(given.torch_threads)
    for count in given.envs:
        horizons = Horizons(count, given.threads)
        shape = (HORIZON, count, horizons.model.nu)
        for name, way in (("in one call", horizons.in_one_call), ("step by step", horizons.step_by_step)):
            forward, backward = measure(way, shape, given.repeats)
            both = forward + backward
            speed = f"{1e6 / both:,.0f} steps/s"
            print(f"{count} Ants, {name}: {forward:.1f} + {backward:.1f} = {both:.1f} µs/step, {speed}")


if __name__ == "__main__":
    main()
