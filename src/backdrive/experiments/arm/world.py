"""The arm, or the robot of a file, and the points that its tip can reach."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from ...model import Capsule, Cylinder, Hinge, Model, Scene, Sphere, State, checks, load
from ...model.speed_servos import told_speeds
from ...policy import MLP
from ...simulator import Simulator
from ...trajectory import Trajectory
from .servos import OwnServos

DT, SECONDS = 0.02, 1.5
STEPS = round(SECONDS / DT)
PARTS = {  # From the base to the tip: axis of the hinge, length (m), mass (kg), torque (N m), damping (N m s/rad).
    "turret": ((0.0, 0.0, 1.0), 0.0, 2.0, 40.0, 8.0),
    "upper arm": ((0.0, 1.0, 0.0), 0.45, 3.0, 60.0, 8.0),
    "forearm": ((0.0, 1.0, 0.0), 0.35, 2.0, 30.0, 4.0),
    "hand": ((0.0, 1.0, 0.0), 0.20, 0.8, 10.0, 1.2),
}
LIMITS = ((-2.6, 2.6), (0.0, 2.2), (0.0, 2.4), (-1.6, 1.6))  # Of the joints, rad: the elbow bends one way.
START = (0.0, 0.6, 1.0, 0.4)  # Joint angles at the start of every motion, rad.
ARMATURE, RADIUS = 0.05, 0.03  # Of the motors, kg m²; of the links, m.
REACH = sum(length for _, length, *_ in PARTS.values())
ROBOT_DT, ROBOT_HOLD = 0.004, 5  # Of a robot from a file: s, and steps for which its network's outputs last.


class LearningLimits(NamedTuple):
    """Adam's largest learning rate, and the largest norm of the derivative of a motion's loss with respect to its state
    at each decision of the network (None: any)."""

    rate: float
    clip: float | None


LEARNING = LearningLimits(2e-3, None)
ROBOT_LEARNING = LearningLimits(3e-3, 1.0)
"""Of a robot from a file."""


class ReachWorld:
    """An arm that starts each motion from the same pose, at rest.

    tip: the body whose frame's origin is to reach the target. start: joint angles [nq], rad. low, high: the limits of
    the joints [nq]. steps: of a motion. hold: steps for which a control lasts. limits: of learning. own: the actuators
    of the robot, where those of `model` are told speeds in place of angles.
    """

    def __init__(
        self, model: Model, simulator: Simulator, tip: str, start: Tensor, hold: int = 1,
        limits: LearningLimits = LEARNING, own: OwnServos | None = None,
    ) -> None:  # fmt: skip
        self.model, self.simulator, self.tip, self.hold, self.limits = model, simulator, tip, hold, limits
        self.own = own
        self.start = start.to(simulator.dtype)
        self.low, self.high = (x.to(simulator.dtype) for x in joint_ranges(model))
        self.steps = round(SECONDS / simulator.dt)
        self.decisions = math.ceil(self.steps / hold)

    @property
    def all_speeds(self) -> bool:
        """Whether all actuators are position servos that are told speeds."""
        return self.own is not None and bool((self.own.lead > 0.0).all())

    def targets(self, count: int, generator: torch.Generator) -> Tensor:
        """Random points that the tip can reach, [count, 3]: those of uniform joint angles."""
        return self.tip_of(self.angles(count, generator))

    def angles(self, count: int, generator: torch.Generator) -> Tensor:
        """Joint angles that are uniform within the limits, [count, nq]."""
        share = torch.rand(count, self.model.nq, generator=generator, dtype=self.low.dtype)
        return self.low + (self.high - self.low) * share

    @torch.no_grad()
    def tip_of(self, q: Tensor) -> Tensor:
        """The tip's positions [B, 3] for joint angles [B, nq]."""
        return self.simulator.observe(State(q, torch.zeros_like(q)), [("position", self.tip)])

    def reach(self, policy: MLP, inputs: Tensor, clip: float | None = None) -> Trajectory:
        """The motions of a policy from the start. inputs: [decisions, B, k], what it observes besides its sensors.
        clip: as `Simulator.rollout` has it."""
        start = self._start(inputs.shape[1])
        return self.simulator.rollout(start, policy=policy, inputs=inputs, steps=self.steps, clip=clip)

    @torch.no_grad()
    def reach_by_servos(self, policy: MLP, inputs: Tensor) -> Trajectory:
        """The same motions with the robot's own actuators, whose servos are told angles in every step."""
        if self.own is None:
            return self.reach(policy, inputs)
        own, told = self.own, torch.empty(0)

        def control(state: State, t: int) -> Tensor:
            nonlocal told
            if t % self.hold == 0:
                seen = own.simulator.observe(state, policy.sensors)
                told = policy(torch.cat([seen, inputs[t // self.hold]], -1))
            return own.controls(told, state.q)

        return own.simulator.rollout(self._start(inputs.shape[1]), policy=control, steps=self.steps)

    @torch.no_grad()
    def reach_angles(self, q: Tensor) -> Trajectory:
        """The motions of the own servos that are told the joint angles of the end [B, nq] from the start."""
        if self.own is None or not self.all_speeds:
            raise ValueError("only damped position servos can be told the angles of the end")
        controls = (self.own.gear * q[:, self.own.at]).expand(self.steps, -1, -1).contiguous()
        return self.own.simulator.rollout(self._start(len(q)), controls)

    def _start(self, count: int) -> State:
        q = self.start.expand(count, -1)
        return State(q, torch.zeros_like(q))

    def misses(self, path: Trajectory, targets: Tensor) -> Tensor:
        """The vectors from the targets [B, 3] to the tip at all times, [T+1, B, 3], m."""
        return path.position(self.tip) - targets


def joint_ranges(model: Model) -> tuple[Tensor, Tensor]:
    """The least and the largest coordinate of every joint, [nq] each; a hinge without limits turns by ±π."""
    if not model.nv == model.nq == model.njoint:
        raise ValueError("an arm has hinges and sliders only, each a joint with one coordinate")
    low, high = torch.full((2, model.nq), math.pi, dtype=torch.float64).mul_(torch.tensor([[-1.0], [1.0]])).unbind(0)
    if model.nlimit:
        places = torch.as_tensor(model.qadr[model.limit_link])
        low[places], high[places] = model.parameter("limit_low"), model.parameter("limit_high")
    return low, high


# ---------------------------------------------------------------------------------------------- the two kinds of arms


def paper_arm(dtype: torch.dtype = torch.float32, markers: Sequence[Sequence[float]] = ()) -> ReachWorld:
    """The arm of 1 m. markers: points that are shown as spheres, which nothing touches."""
    model = build(markers)
    return ReachWorld(model, Simulator(model, DT, dtype=dtype), "hand", torch.tensor(START))


def build(markers: Sequence[Sequence[float]] = ()) -> Model:
    """A turret that turns about the vertical, and three links upright above it; hinges at their lower ends.

    The frame of a link is at its upper end, so that the origin of the hand's frame is the tip.
    """
    scene = Scene(dim=3)
    top, parent = 0.0, None
    for (name, (axis, length, mass, torque, damping)), limits in zip(PARTS.items(), LIMITS, strict=True):
        place, middle = (0.0, 0.0, top + length), (0.0, 0.0, -length / 2)
        scene.add_body(name, mass=mass, position=place, com=middle, inertia=_rod(mass, length))
        if length:
            scene.add_shape(name, Capsule(RADIUS, length), position=middle)
        else:
            scene.add_shape(name, Cylinder(2.0 * RADIUS, 2.0 * RADIUS), position=(0.0, 0.0, -RADIUS))
        hinge = Hinge(axis=axis, limits=limits, damping=damping, armature=ARMATURE)
        scene.add_joint(name, hinge, parent=parent, child=name, anchor=(0.0, 0.0, top))
        scene.add_motor(name, joint=name, limits=(-torque, torque))
        top, parent = top + length, name
    shown = [scene.add_static(Sphere(RADIUS), position=tuple(point)) for point in markers]
    names = list(PARTS)
    for k, name in enumerate(names):  # Links pass through each other.
        for other in (*names[k + 1 :], *shown):
            scene.exclude(name, other)
    return scene.build()


def _rod(mass: float, length: float) -> tuple[float, float, float]:
    """Moments of inertia of an upright cylinder, kg m²."""
    across = mass * (length**2 / 12 + RADIUS**2 / 4)
    return (across, across, mass * RADIUS**2 / 2)


def robot_arm(file: str | Path, tip: str | None = None, dtype: torch.dtype = torch.float32) -> ReachWorld:
    """The arm of an MJCF file with MuJoCo's physics, its own actuators and limits, and without collisions.

    The network tells position servos speeds: at most those that cross the range of the joint during a motion.
    tip: the body that is to reach the target; None: the file's last body. The start is the keyframe "home", if the
    file has one.
    """
    model = load(file, ignore=("contact",))
    tip = model.bodies[-1] if tip is None else tip
    if tip not in model.bodies:
        raise ValueError(checks.unknown("body", tip, model.bodies))
    low, high = joint_ranges(model)
    told = told_speeds(model, ((high - low) / SECONDS).numpy())
    if not bool(torch.isfinite(torch.as_tensor(told.control_limits)).all()) or not model.nu:
        raise ValueError("the network's outputs span the limits of the controls, but some actuators have none")
    start = model.keyframes["home"].q if "home" in model.keyframes else model.initial_state().q
    simulator, own = (Simulator(x, ROBOT_DT, physics="mujoco", dtype=dtype) for x in (told, model))
    return ReachWorld(told, simulator, tip, start, ROBOT_HOLD, ROBOT_LEARNING, OwnServos(own))
