"""Planar pendulum tasks without contact."""

from __future__ import annotations

import itertools
import math

import torch
from torch import Tensor

from ..model import Box, Hinge, Scene, Slider, State, checks
from .task import Random, Task, scattered


def cart_pole() -> Task:
    """Gymnasium's CartPole-v1 with a continuous action: balance a pole on a cart.

    A cart of 1 kg on a rail carries a pole of 0.1 kg and 1 m; gravity 9.8 m/s²; 50 steps a second, with semi-implicit
    Euler (an option in Gymnasium). Action [1]: the force on the cart, in units of 10 N. Observation [4]: x (m), its
    rate, the pole's angle θ (rad, positive to the right), its rate. Initial state: all four uniform in ± 0.05. Reward:
    1 per step, which has no gradient. Termination: |x| > 2.4 m or |θ| > 12°. Time limit: 500 steps.
    """
    scene = Scene(dim=2, gravity=(0.0, -9.8))
    cart = scene.add_body("cart", Box(0.5, 0.3), mass=1.0)
    pole = scene.add_body("pole", Box(0.06, 1.0), mass=0.1, position=(0.0, 0.5), inertia=0.1 / 12.0)  # A thin rod.
    rail = scene.add_joint("rail", Slider(axis=(1.0, 0.0)), parent=None, child=cart)
    scene.add_joint("pivot", Hinge(), parent=cart, child=pole, anchor=(0.0, 0.0))
    scene.add_motor("force", joint=rail, gear=10.0)
    model = scene.build()
    to_the_right = torch.tensor([1.0, -1.0])  # The hinge's angle is positive to the left.

    def observe(state: State) -> Tensor:
        (x, theta), (x_rate, theta_rate) = ((y * to_the_right.to(y)).unbind(-1) for y in state)
        return torch.stack([x, x_rate, theta, theta_rate], -1)

    def reward(before: State, action: Tensor, after: State) -> dict[str, Tensor]:
        return {"survive": torch.ones_like(action[:, 0])}

    def ends(state: State) -> Tensor:
        x, theta = state.q.unbind(-1)
        return (x.abs() > 2.4) | (theta.abs() > math.radians(12.0))

    def start(random: Random, count: int) -> State:
        return scattered(model, random, count, position=0.05, velocity=0.05)

    return Task(
        name="CartPole", model=model, dt=0.02, start=start, observe=observe, reward=reward, ends=ends,
        limits=(-2.6, 2.6, -1.8, 3.4),
    )  # fmt: skip


def pendulum(gravity: float = 10.0) -> Task:
    """Gymnasium's Pendulum-v1: swing a rod up and hold it there, with a motor too weak to lift it at once.

    A rod of 1 kg and 1 m on a hinge; 20 steps a second. Action [1]: the torque, in units of 2 N m (Gymnasium's: in N
    m). Observation [3]: cos θ, sin θ, θ̇, where θ = 0 is upright. Initial state: θ uniform in ± π, θ̇ in ± 1 rad/s.
    Reward, from the state before the step: -(θ² + 0.1 θ̇² + 0.001 torque²), θ in [-π, π). Unlike Gymnasium's, the speed
    is not clipped at 8 rad/s. No termination. Time limit: 200 steps.
    """
    scene = Scene(dim=2, gravity=(0.0, -gravity))
    rod = scene.add_body("rod", Box(0.1, 1.0), mass=1.0, position=(0.0, 0.5), inertia=1.0 / 12.0)
    pivot = scene.add_joint("pivot", Hinge(), parent=None, child=rod, anchor=(0.0, 0.0))
    scene.add_motor("motor", joint=pivot, gear=2.0)
    model = scene.build()

    def observe(state: State) -> Tensor:
        return torch.cat([state.q.cos(), state.q.sin(), state.v], -1)

    def reward(before: State, action: Tensor, after: State) -> dict[str, Tensor]:
        angle = torch.remainder(before.q[:, 0] + math.pi, 2.0 * math.pi) - math.pi
        torque = 2.0 * action[:, 0].clamp(-1.0, 1.0)
        return {
            "angle": -angle.square(),
            "speed": -0.1 * before.v[:, 0].square(),
            "control": -0.001 * torque.square(),
        }

    def start(random: Random, count: int) -> State:
        return scattered(model, random, count, position=math.pi, velocity=1.0)

    return Task(
        name="Pendulum", model=model, dt=0.05, start=start, observe=observe, reward=reward,
        limits=(-1.3, 1.3, -1.3, 1.3),
    )  # fmt: skip


def n_link_pendulum(links: int = 3) -> Task:
    """Reach the highest point with the tip of a hanging chain of rods, within 100 steps (Qiao et al. 2021).

    `links` rods of 0.5 kg and 0.5 m, on hinges with a motor each; 20 steps a second, of 20 × 2.5 ms. Action [links]:
    torques, in units of 1.5 times the torque that holds the rods beyond the hinge horizontally; at 30 rad/s, a hinge's
    damping torque is one unit. Observation [3 links]: cosines and sines of the rods' angles to the vertical (0:
    hanging), rates of the hinges. Initial state: hanging, angles and rates uniform in ± 0.05. Reward: -(distance of the
    tip from the highest point, m)². No termination.
    """
    links = checks.integer(links, "links")
    length, mass = 0.5, 0.5
    scene = Scene(dim=2)
    above = None
    for k in range(links):
        top = -k * length
        rod = scene.add_body(f"rod{k}", Box(0.06, length), mass=mass, position=(0.0, top - length / 2.0))
        torque = 1.5 * mass * 9.81 * length * (links - k) ** 2 / 2.0  # N m
        joint = Hinge(damping=torque / 30.0)
        hinge = scene.add_joint(f"hinge{k}", joint, parent=above, child=rod, anchor=(0.0, top))
        scene.add_motor(f"motor{k}", joint=hinge, gear=torque)
        above = rod
    for a, b in itertools.combinations(range(links), 2):
        scene.exclude(f"rod{a}", f"rod{b}")
    model, reach = scene.build(), links * length

    def observe(state: State) -> Tensor:
        angle = state.q.cumsum(-1)
        return torch.cat([angle.cos(), angle.sin(), state.v], -1)

    def reward(before: State, action: Tensor, after: State) -> dict[str, Tensor]:
        angle = after.q.cumsum(-1)
        x, y = length * angle.sin().sum(-1), -length * angle.cos().sum(-1)
        return {"distance": -(x.square() + (y - reach).square())}

    def start(random: Random, count: int) -> State:
        return scattered(model, random, count, position=0.05, velocity=0.05)

    wide = 1.1 * reach
    return Task(
        name="NLinkPendulum", model=model, dt=0.0025, frame_skip=20, start=start, observe=observe, reward=reward,
        limits=(-wide, wide, -wide, wide),
    )  # fmt: skip
