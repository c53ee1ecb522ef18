"""Small agents, for tests that are not about how well they learn."""

import torch

from backdrive import learn


def small(task="Pendulum", **given):
    sizes = {"num_envs": 4, "horizon": 5, "actor": (8,), "critic": (8,), "threads": 1}
    return learn.SHAC(task, **{**sizes, **given})


def weights(agent):
    return torch.cat([x.detach().flatten() for network in agent.networks().values() for x in network.parameters()])
