"""Gradients of a return over 20 steps, with respect to actions and to a policy's weights, against differences.

One vector environment has everything: for each of some seeds, an environment as it is, and eight that are moved along a
random direction, for differences of fourth order with two steps: the longer one has less rounding, the shorter one sees
less of the curvature. Seeds for which a contact changed its mode on the way, or the two disagree, are left out.
"""

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import Tensor

import backdrive as bd
from backdrive.envs import TASKS, TWINS, VectorEnv, find
from backdrive.envs.task import never

STEPS, SEEDS = 20, 16
LONG, SHORT = 3e-6, 3e-7
OFFSETS = torch.tensor([0.0, *(k * eps for eps in (LONG, SHORT) for k in (1.0, -1.0, 2.0, -2.0))], dtype=torch.float64)
WEIGHTS = torch.zeros(2, len(OFFSETS), dtype=torch.float64)  # of the differences with either step
for row, first, eps in ((0, 1, LONG), (1, 5, SHORT)):
    WEIGHTS[row, first : first + 4] = torch.tensor([8.0, -8.0, -1.0, 1.0]) / (12.0 * eps)
LEAN = {  # forces of hundreds of N, of which the sine would be observed below
    "MuJoCoHumanoid": {"include_cfrc_ext_in_observation": False},
    "MuJoCoHumanoidStandup": {"include_cfrc_ext_in_observation": False},
}
FLOOR = 0.05  # of a derivative: returns are of size 10, so that differences are right to a few 1e-9


def vector_env(name: str) -> VectorEnv:
    """Of which no episode ends: for a gradient, all that counts is that all environments see the same steps."""
    return VectorEnv(replace(find(name, LEAN.get(name)), ends=never), num_envs=SEEDS * len(OFFSETS))


def returns(env: VectorEnv, start: bd.State, act: Callable[[int, Tensor], Tensor]) -> tuple[Tensor, Tensor]:
    """[SEEDS, 9], and whether all nine moved alike, [SEEDS].

    Rewards, and a part of the observations, since CartPole's reward is constant.
    """
    observation, _ = env.reset_torch(options={"state": start})
    total, alike = torch.zeros(SEEDS, len(OFFSETS), dtype=torch.float64), torch.ones(SEEDS, dtype=torch.bool)
    for step in range(STEPS):
        observation, reward, *_, info = env.step_torch(act(step, observation))
        total = total + (reward + 0.1 * observation.sin().sum(-1)).reshape(total.shape)
        modes = info["path"].status.modes.reshape(-1, *total.shape)
        alike &= (modes == modes[..., :1]).all(-1).all(0)
        assert info["path"].status.converged.all()
    return total, alike


def moved(x: Tensor, random: torch.Generator) -> tuple[Tensor, Tensor]:
    """x [SEEDS, ...] with its nine versions [SEEDS, 9, ...], and the directions they differ in."""
    way = torch.randn(x.shape, generator=random, dtype=torch.float64)
    way /= way.flatten(1).norm(dim=1).reshape(-1, *[1] * (x.ndim - 1))
    steps = OFFSETS.reshape(1, -1, *[1] * (x.ndim - 1))
    return (x.unsqueeze(1) + steps * way.unsqueeze(1)).requires_grad_(), way


def compare(total: Tensor, alike: Tensor, x: Tensor, way: Tensor, soft: bool = False) -> None:
    """soft: forces of MuJoCo's physics are continuous where modes change, and only a difference across such a change is
    off, by as much as the gradient changes there."""
    (gradient,) = torch.autograd.grad(total[:, 0].sum(), x)
    exact = (gradient[:, 0] * way).flatten(1).sum(1)
    found = WEIGHTS @ total.detach().T  # [2, SEEDS]
    size = found.abs().clamp(min=FLOOR)
    error = ((exact - found).abs() / size).amin(0)
    alike = alike & ((found[0] - found[1]).abs() <= 1e-5 * size[1])  # else rounding, amplified on the way, decides both
    if soft:
        assert error.max() <= 1e-5
        alike = error < error.max()
    assert alike.sum() >= 3, f"{int(alike.sum())} of {SEEDS} without a switch"
    assert exact[alike].abs().max() > 0.1
    assert error[alike].max() <= 1e-6, (exact[alike], found[:, alike])


@pytest.mark.slow
@pytest.mark.parametrize("name", [*TASKS, *TWINS])
def test_with_respect_to_actions(name):
    env, random = vector_env(name), torch.Generator().manual_seed(0)
    env.reset(seed=0)
    start = bd.State(*(x[:SEEDS].repeat_interleave(len(OFFSETS), 0) for x in env.state))
    shape = SEEDS, STEPS, env.single_action_space.shape[0]
    actions, way = moved(0.2 * (2.0 * torch.rand(shape, generator=random, dtype=torch.float64) - 1.0), random)
    total, alike = returns(env, start, lambda step, _: actions[:, :, step].flatten(0, 1))
    compare(total, alike, actions, way, soft=name in TWINS)


@pytest.mark.parametrize("name", [*TASKS, "MuJoCoHopper", "MuJoCoInvertedDoublePendulum"])
def test_with_respect_to_the_weights_of_a_policy(name):
    env, random = vector_env(name), torch.Generator().manual_seed(1)
    env.reset(seed=1)
    start = bd.State(*(x[:SEEDS].repeat_interleave(len(OFFSETS), 0) for x in env.state))
    (seen,), (out,) = env.single_observation_space.shape, env.single_action_space.shape
    weights, way = moved(0.05 * torch.randn(SEEDS, out, seen, generator=random, dtype=torch.float64), random)

    def act(step: int, observation: Tensor) -> Tensor:
        return torch.tanh(weights.flatten(0, 1) @ observation.unsqueeze(-1)).squeeze(-1)

    total, alike = returns(env, start, act)
    compare(total, alike, weights, way, soft=name in TWINS)


def test_reach_back_to_the_start_and_stop_where_they_are_cut():
    env = bd.envs.Env("Pendulum")
    angle = torch.tensor([0.3], dtype=torch.float64, requires_grad=True)
    env.reset_torch(options={"state": bd.State(angle, torch.zeros_like(angle))})
    observation, reward, *_ = env.step_torch([0.1])
    assert torch.autograd.grad(reward, angle, retain_graph=True)[0].item() == pytest.approx(-0.6)
    assert torch.autograd.grad(observation[0], angle)[0].item() != 0.0
    env.detach()
    assert not env.step_torch([0.1])[0].requires_grad


def test_do_not_pass_through_a_new_start():
    env = VectorEnv("CartPole", num_envs=2, max_episode_steps=3)
    env.reset(seed=0)
    first = torch.zeros(2, 1, dtype=torch.float64, requires_grad=True)
    env.step_torch(first)
    env.reset_torch(options={"reset_mask": [True, False]})
    observation, *_ = env.step_torch(torch.zeros(2, 1))
    (gradient,) = torch.autograd.grad(observation.sum(), first)
    assert gradient[0] == 0.0 and gradient[1] != 0.0


@pytest.mark.slow
@pytest.mark.parametrize("impacts", [False, True])
@pytest.mark.parametrize("adjoint", [None, bd.Checkpoint(10)])
def test_of_steps_that_could_have_ended_elsewhere(adjoint, impacts):
    """Contact problems of an Ant with several solutions: the backward pass must find the one that the step found.

    Of this seed, a backward pass that starts the solver elsewhere finds another one.
    """
    seeds, random = 32, torch.Generator().manual_seed(1)
    env = VectorEnv("Ant", num_envs=80)
    env.reset(seed=1)
    actions = 0.2 * (2.0 * torch.rand(seeds, STEPS, 8, generator=random, dtype=torch.float64) - 1.0)
    controls, way = moved(actions, random)
    controls = controls.detach().flatten(0, 1).transpose(0, 1).repeat_interleave(5, 0).requires_grad_()
    start = bd.State(*(x[:seeds].repeat_interleave(len(OFFSETS), 0) for x in env.state))
    path = bd.Simulator(env.task.model, 0.01, impacts=impacts).rollout(start, controls, adjoint=adjoint)
    modes = path.status.modes.reshape(-1, seeds, len(OFFSETS))
    alike = (modes == modes[..., :1]).all(-1).all(0)
    total = path.last.q.sum(-1).reshape(seeds, -1)
    (gradient,) = torch.autograd.grad(total[:, 0].sum(), controls)
    gradient = gradient.reshape(STEPS, 5, seeds, len(OFFSETS), -1).sum(1)[:, :, 0].transpose(0, 1)
    exact, found = (gradient * way).sum((1, 2)), WEIGHTS @ total.detach().T
    assert alike.sum() >= (2 if impacts else 25)
    assert ((exact - found).abs() / found.abs().clamp(min=FLOOR)).amin(0)[alike].max() <= 1e-6
