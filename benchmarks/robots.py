"""The models, as text that all engines read or built alike, and motions to start them with."""

from __future__ import annotations

import functools
import importlib.metadata
from dataclasses import dataclass
from pathlib import Path

import mujoco
import torch
from torch import Tensor

import backdrive as bd

DT = 0.002  # s


@dataclass(frozen=True)
class Robot:
    """One world as all engines see it."""

    mjcf: str
    model: bd.Model

    def simulator(
        self, *, threads: int = 1, specialize: bool | str = True, dtype: torch.dtype = torch.float64
    ) -> bd.Simulator:
        return bd.Simulator(self.model, DT, threads=threads, specialize=specialize, dtype=dtype)

    def motion(self, batch: int, steps: int, speed: float = 0.1, torque: float = 0.2) -> tuple[bd.State, Tensor]:
        """A random start near the model's own (0.3 rad, `speed` in SI units), and controls [T, B, nu]."""
        random = torch.Generator().manual_seed(0)

        def normal(*shape: int) -> Tensor:
            return torch.randn(*shape, generator=random, dtype=torch.float64)

        model, (q, v) = self.model, self.model.initial_state(batch)
        joints = model.nq - model.nu  # the motors drive the last coordinates
        q[:, joints:] += 0.3 * normal(batch, model.nu)
        return bd.State(q, v + speed * normal(batch, model.nv)), torque * normal(steps, batch, model.nu)


@functools.cache
def laikago() -> Robot:
    """The quadruped of example-robot-data: a floating trunk, 12 hinges, a torque motor on each."""
    package = importlib.metadata.distribution("example-robot-data")
    robots = Path(str(package.locate_file("cmeel.prefix/share/example-robot-data/robots")))
    spec = mujoco.MjSpec.from_file(str(robots / "laikago_description" / "urdf" / "laikago.urdf"))
    for geom in list(spec.geoms):
        if geom.meshname:  # pictures; the shapes for contact are boxes, cylinders and spheres
            spec.delete(geom)
    for mesh in list(spec.meshes):
        spec.delete(mesh)
    for joint in spec.joints:  # the limits of the joints' torques become those of the motors
        motor = spec.add_actuator(name=joint.name, target=joint.name, trntype=mujoco.mjtTrn.mjTRN_JOINT)
        motor.set_to_motor()
        motor.forcelimited, motor.forcerange = True, joint.actfrcrange
        joint.actfrclimited = False
    spec.worldbody.first_body().add_freejoint(name="root")
    spec.compile()
    mjcf = spec.to_xml()
    return Robot(mjcf, bd.load(mjcf, ignore=("contact", "limit")))


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
