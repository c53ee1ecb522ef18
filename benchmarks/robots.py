"""The models, as text that all engines read or built alike, and motions to start them with."""

from __future__ import annotations

import functools
import importlib.util
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mujoco
import torch
from torch import Tensor

import backdrive as bd

from . import laikago as robot_file
from .laikago import DT


@dataclass(frozen=True)
class Robot:
    """One world as all engines see it."""

    mjcf: str
    model: bd.Model
    dt: float = DT  # s

    def simulator(self, *, threads: int = 1, specialize: bool | str = True, **settings: Any) -> bd.Simulator:
        settings = {"physics": "rigid", **settings}
        return bd.Simulator(self.model, self.dt, threads=threads, specialize=specialize, **settings)

    def motion(self, batch: int, steps: int, speed: float = 0.1, torque: float = 0.2) -> tuple[bd.State, Tensor]:
        """A random start near the model's own (0.3 rad, `speed` in SI units), and controls [T, B, nu]."""
        normal = _random()
        model, (q, v) = self.model, self.model.initial_state(batch)
        joints = model.nq - model.nu  # the motors drive the last coordinates
        q[:, joints:] += 0.3 * normal(batch, model.nu)
        return bd.State(q, v + speed * normal(batch, model.nv)), torque * normal(steps, batch, model.nu)


@dataclass(frozen=True, kw_only=True)
class Standing(Robot):
    """A robot on its feet: a floating base, then hinges, each with a motor.

    height, angles: of the base (m) and of the hinges [nu] (rad) when its feet just touch the floor. hold: controls
    [nu] with which it stands. spread, noise: of the controls, constant in each environment and new in each step.
    """

    height: float
    angles: Tensor
    hold: Tensor
    spread: float
    noise: float

    def stance(self, batch: int, steps: int, lift: float = 0.0) -> tuple[bd.State, Tensor]:
        """At rest in the pose, `lift` m above the floor, and controls [T, B, nu]: `hold`, but for small differences."""
        normal = _random()
        q, v = self.model.initial_state(batch)
        q[:, 2], q[:, 7:] = self.height + lift, self.angles
        own = self.hold + self.spread * normal(batch, self.model.nu)
        return bd.State(q, v), own + self.noise * normal(steps, batch, self.model.nu)


def _random() -> Callable[..., Tensor]:
    """Standard normal tensors of given shapes, the same in every run."""
    random = torch.Generator().manual_seed(0)
    return lambda *shape: torch.randn(*shape, generator=random, dtype=torch.float64)


@functools.cache
def laikago() -> Robot:
    """The quadruped of example-robot-data: a floating trunk, 12 hinges, a torque motor on each."""
    mjcf = robot_file.description()
    return Robot(mjcf, bd.load(mjcf, ignore=("contact", "limit")))


@functools.cache
def standing_laikago(shapes: str = "feet") -> Standing:
    """The same robot on a floor, with a position servo on each hinge; shapes: see `laikago.on_floor`."""
    mjcf, pose = robot_file.on_floor(shapes), robot_file.pose()
    return Standing(
        mjcf, bd.load(mjcf), height=robot_file.HEIGHT, angles=pose, hold=pose, spread=robot_file.SPREAD,
        noise=robot_file.NOISE,
    )  # fmt: skip


@functools.cache
def standing_ant(noise: float = 0.001) -> Standing:
    """gymnasium's Ant on four feet, its ankles at their limits: the motors only tremble, by `noise` (at most 1).

    By Euler's method instead of Runge-Kutta's, and without the margin in which contacts are felt before they touch.
    """
    found = importlib.util.find_spec("gymnasium")
    if found is None or found.origin is None:
        raise RuntimeError("the Ant comes with gymnasium: pip install 'gymnasium[mujoco]'")
    spec = mujoco.MjSpec.from_file(str(Path(found.origin).parent / "envs/mujoco/assets/ant.xml"))
    spec.option.integrator = mujoco.mjtIntegrator.mjINT_EULER
    for geom in spec.geoms:
        geom.margin = 0.0
    for joint in spec.joints:
        joint.margin = 0.0
    ankle, shin, radius = math.radians(31), 0.4 * math.sqrt(2), 0.08  # rad, m
    pose = ankle * torch.tensor([0, 1, 0, -1, 0, -1, 0, 1], dtype=torch.float64)
    height = shin * math.sin(ankle) + radius
    spec.compile()
    mjcf = spec.to_xml()
    model, rest = bd.load(mjcf), torch.zeros_like(pose)
    return Standing(mjcf, model, spec.option.timestep, height=height, angles=pose, hold=rest, spread=0.0, noise=noise)


def pendulum(links: int) -> Robot:
    """A chain of rods in the plane, hanging from a hinge, with a motor on every hinge."""
    length, mass = 0.4, 0.5
    moment = mass * length**2 / 12
    scene = bd.Scene(dim=2)
    opening = closing = motors = ""
    for k in range(links):
        top, parent = -k * length, f"rod{k - 1}" if k else None
        rod = scene.add_body(f"rod{k}", mass=mass, inertia=moment, position=(0, top), com=(0, -length / 2))
        joint = scene.add_joint(f"hinge{k}", bd.Hinge(), parent=parent, child=rod)
        scene.add_motor(f"motor{k}", joint=joint)
        opening += (
            f'<body name="rod{k}" pos="0 {-length if k else 0} 0"><joint name="hinge{k}" axis="0 0 1"/>'
            f'<inertial pos="0 {-length / 2} 0" mass="{mass}" diaginertia="{moment} {moment} {moment}"/>'
        )
        closing += "</body>"
        motors += f'<motor name="motor{k}" joint="hinge{k}"/>'
    mjcf = (
        f'<mujoco><compiler angle="radian"/><option gravity="0 -9.81 0"/>'
        f"<worldbody>{opening}{closing}</worldbody><actuator>{motors}</actuator></mujoco>"
    )
    return Robot(mjcf, scene.build())


def struck_chain(links: int, coordinates: str = "reduced") -> bd.Model:
    """A chain of rods in the plane, hanging from a hinge, and a ball about to hit it."""
    length = 0.2
    scene = bd.Scene(dim=2, coordinates=coordinates)
    above = None
    for k in range(links):
        rod = scene.add_body(f"rod{k}", bd.Box(0.04, length), mass=0.3, position=(0, -(k + 0.5) * length))
        scene.add_joint(f"hinge{k}", bd.Hinge(), parent=above, child=rod, anchor=(0, -k * length))
        above = rod
    place = (-0.15, -0.65 * links * length)
    scene.add_body("ball", bd.Circle(0.1), mass=1.0, position=place, velocity=(3.0, 1.0))
    return scene.build()
