"""Unitree's Laikago, a quadruped of 25 kg, built from the masses and sizes of its published description."""

from __future__ import annotations

import itertools
import math

import numpy as np
import torch
from torch import Tensor

from ..model import Box, Capsule, Fixed, HalfSpace, Hinge, Model, PositionServo, Scene, Sphere, State
from .locomotion import rewarded
from .task import Random, Task, scattered

# Front left leg, m: hip in the trunk's frame, thigh in the hip's, length of thigh and of calf, radius of the foot.
HIP, THIGH, SEGMENT, FOOT = (0.21935, 0.0875, 0.0), (0.0, 0.037, 0.0), 0.25, 0.0265
LEGS = {"FR": (1, -1), "FL": (1, 1), "RR": (-1, -1), "RL": (-1, 1)}  # Signs of x (front: 1) and y (left: 1).
STANCE = (0.0, 0.67, -1.3)  # Angles of hip, thigh and calf, rad.
HEIGHT = SEGMENT * (math.cos(STANCE[1]) + math.cos(STANCE[1] + STANCE[2])) + FOOT  # Of the trunk, m.
STIFFNESS, DAMPING = 200.0, 5.0  # Gains of the position servos, N m/rad and N m s/rad.
FRICTION = 1.0


def laikago_model(kp: float = STIFFNESS, kv: float = DAMPING) -> Model:
    """The robot standing on a floor, with a position servo on each of its 12 hinges (kp: N m/rad, kv: N m s/rad).

    Legs are in the order front right, front left, rear right, rear left; each has hinges at hip, thigh and calf. The
    robot's shapes collide with the floor, not with each other.
    """
    scene = Scene(dim=3)
    scene.add_static(HalfSpace(normal=(0.0, 0.0, 1.0)), friction=FRICTION, name="floor")
    trunk = scene.add_body(
        "trunk", mass=13.733, position=(0.0, 0.0, HEIGHT), friction=FRICTION, com=(0.002284, -4.1e-05, 0.025165),
        inertia=(0.073348887, 0.250684593, 0.254469458, 0.00030338, 0.001918218, -7.5402e-05),
    )  # fmt: skip
    bodies = [trunk]
    scene.add_shape(trunk, Box(0.5616, 0.172, 0.1875), position=(0.0, 0.0, 0.01675))
    for leg, (front, left) in LEGS.items():
        bodies += _add_leg(scene, leg, front, left, kp, kv)
    for a, b in itertools.combinations(bodies, 2):
        scene.exclude(a, b)
    return scene.build()


def _add_leg(scene: Scene, leg: str, front: int, left: int, kp: float, kv: float) -> list[str]:
    """Add hip, thigh, calf and foot of a leg, mirrored from the front left one; returns the bodies' names."""
    hip, thigh, calf, foot = names = [f"{leg}_{part}" for part in ("hip", "thigh", "calf", "foot")]
    at_hip = np.array([0.0, 0.0, HEIGHT]) + np.multiply(HIP, (front, left, 0))
    at_thigh = at_hip + np.multiply(THIGH, (0, left, 0))
    at_calf, at_foot = at_thigh - (0.0, 0.0, SEGMENT), at_thigh - (0.0, 0.0, 2.0 * SEGMENT)
    both = front * left
    scene.add_body(
        hip, mass=1.096, position=at_hip, com=(-0.001568 * front, -0.008134 * left, 0.000864),
        inertia=(0.000822113, 0.000983196, 0.000864753, -4.982e-06 * both, -3.672e-05 * front, 2.811e-06 * left),
    )  # fmt: skip
    scene.add_body(
        thigh, mass=1.528, position=at_thigh, friction=FRICTION, com=(-0.000482, 0.02001 * left, -0.031996),
        inertia=(0.00991611, 0.009280083, 0.00178256, 1.0388e-05 * left, 0.000250428, -8.511e-05 * left),
    )  # fmt: skip
    scene.add_body(
        calf, mass=0.241, position=at_calf, friction=FRICTION, com=(-0.002196, -0.000381, -0.12338),
        inertia=(0.006181961, 0.006196546, 3.4774e-05, 2.37e-07, -2.985e-06, 5.138e-06),
    )  # fmt: skip
    scene.add_body(foot, Sphere(FOOT), mass=0.06, position=at_foot, friction=FRICTION, inertia=(1.6854e-05,) * 3)
    scene.add_shape(thigh, Capsule(0.02, SEGMENT - 0.04), position=(0.0, 0.0, -SEGMENT / 2.0))
    scene.add_shape(calf, Capsule(0.01, SEGMENT - 0.06), position=(0.0, 0.0, -SEGMENT / 2.0))
    inwards, outwards = -0.872664625997, 1.0471975512
    joints = (
        ("trunk", hip, (1, 0, 0), (inwards, outwards) if left > 0 else (-outwards, -inwards), 20.0),
        (hip, thigh, (0, 1, 0), (-0.523598775598, 3.92699081699), 55.0),
        (thigh, calf, (0, 1, 0), (-2.77507351067, -0.610865238198), 55.0),
    )
    for (parent, child, axis, limits, torque), angle in zip(joints, STANCE, strict=True):
        hinge = Hinge(axis=axis, limits=limits)
        scene.add_joint(child, hinge, parent=parent, child=child, position=angle)
        scene.add_motor(child, PositionServo(kp=kp, kv=kv, force_limits=(-torque, torque)), joint=child)
    scene.add_joint(foot, Fixed(), parent=calf, child=foot)
    return names


def laikago(
    *, forward_reward_weight: float = 1.0, ctrl_cost_weight: float = 0.05, healthy_reward: float = 1.0,
    healthy_z_range: tuple[float, float] = (0.25, 0.6), reset_noise_scale: float = 0.02, action_scale: float = 0.4,
    frame_skip: int = 10,
) -> Task:  # fmt: skip
    """Unitree's Laikago, walking along x, with the rewards of the Ant.

    Action [12]: target angles of the hinges' position servos, relative to the stance, in units of action_scale (rad).
    Observation [35]: q without x and y, and v. Reward: forward_reward_weight × speed along x + healthy_reward while
    healthy - ctrl_cost_weight |action|². Termination: not healthy, that is, the trunk's height (m) outside its
    range, or the trunk tilted by more than 60°. Initial state: the stance, 1 cm above the floor, hinges uniform in ±
    reset_noise_scale, v normal with that standard deviation. 50 steps a second, of 10 × 2 ms.
    """
    model = laikago_model()
    dt = 0.002
    stance = torch.tensor(STANCE, dtype=torch.float64).repeat(len(LEGS))

    def healthy(state: State) -> Tensor:
        z, (qx, qy) = state.q[:, 2], state.q[:, 4:6].unbind(-1)
        upright = 1.0 - 2.0 * (qx.square() + qy.square())  # Cosine of the tilt.
        return (z >= healthy_z_range[0]) & (z <= healthy_z_range[1]) & (upright > 0.5)

    def start(random: Random, count: int) -> State:
        spread = reset_noise_scale
        q, v = scattered(model, random, count, position=spread, velocity=spread, normal=True)
        q[:, :7] = torch.from_numpy(model.q0[:7].copy())
        q[:, 2] += 0.01
        return State(q, v)

    reward = rewarded(dt * frame_skip, forward_reward_weight, ctrl_cost_weight, healthy_reward, healthy)
    return Task(
        name="Laikago", model=model, dt=dt, frame_skip=frame_skip, start=start, reward=reward,
        control=lambda action: stance.to(action) + action_scale * action,
        observe=lambda state: torch.cat([state.q[:, 2:], state.v], -1), ends=lambda state: ~healthy(state),
        camera=(0.6, -1.6, 0.5),
    )  # fmt: skip
