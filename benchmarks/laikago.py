"""The quadruped of ``backdrive.envs.laikago`` as MJCF, which every engine reads: from the URDF of example-robot-data.

`description` is the robot as the URDF has it: a floating trunk and 12 hinges with a torque motor on each. `on_floor` is
the same above a floor, held by position servos. `numbers` are those that `peers.quadruped` needs. The stance and the
gains are the environment's; a test compares the mass matrices of the two.
"""

from __future__ import annotations

import importlib.metadata
from pathlib import Path
from typing import Any

import mujoco
import numpy as np
import torch
from torch import Tensor

from backdrive.envs.laikago import DAMPING, HEIGHT, STANCE, STIFFNESS

DT = 0.002  # s
SPREAD = NOISE = 0.01  # rad: standard deviation of the servos' targets, of their constant part and of each step's


def pose() -> Tensor:
    """The stance, [12] rad."""
    return torch.tensor(STANCE, dtype=torch.float64).repeat(4)


def description() -> str:
    """The robot in the air."""
    try:
        package = importlib.metadata.distribution("example-robot-data")
    except importlib.metadata.PackageNotFoundError as error:
        raise ImportError("Laikago comes with example-robot-data: pip install 'backdrive[bench]'") from error
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
    return spec.to_xml()


def on_floor(shapes: str = "feet", friction: float = 1.0) -> str:
    """Above a floor, with a position servo on each hinge; friction: its coefficient.

    shapes: what may touch: "feet" (the four spheres) or "floor" (all shapes) with the floor, or "all" with each other
    as well.
    """
    spec = mujoco.MjSpec.from_string(description())
    spec.option.timestep = DT
    for geom in list(spec.geoms):
        if shapes != "all":
            geom.contype = 0
        if shapes == "feet" and geom.type != mujoco.mjtGeom.mjGEOM_SPHERE:
            spec.delete(geom)  # the file has the masses
    spec.worldbody.add_geom(name="floor", type=mujoco.mjtGeom.mjGEOM_PLANE, size=[0, 0, 1])
    for geom in spec.geoms:
        geom.friction[0] = friction
    for motor in spec.actuators:
        motor.set_to_position(kp=STIFFNESS, kv=DAMPING)
    spec.compile()
    return spec.to_xml()


def released(lift: float, steps: int, generator: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
    """q [19] and v [18] at rest, its feet `lift` m above the floor, and targets of the servos [T, 12], rad."""
    q = torch.zeros(19, dtype=torch.float64)
    q[2], q[3], q[7:] = HEIGHT + lift, 1.0, pose()
    own, each = (torch.randn(n, 12, generator=generator, dtype=torch.float64) for n in (1, steps))
    return q, torch.zeros(18, dtype=torch.float64), pose() + SPREAD * own + NOISE * each


def numbers(mjcf: str) -> dict[str, Any]:
    """Of a robot `on_floor` whose feet alone touch: as nested lists, leg by leg and joint by joint, SI units."""
    model = mujoco.MjModel.from_xml_string(mjcf)

    def rotation(quaternion: Any) -> np.ndarray:
        flat = np.zeros(9)
        mujoco.mju_quat2Mat(flat, quaternion)
        return flat.reshape(3, 3)

    def link(body: int) -> dict[str, Any]:
        R = rotation(model.body_iquat[body])
        inertia = R @ np.diag(model.body_inertia[body]) @ R.T
        return {"mass": model.body_mass[body], "com": model.body_ipos[body].tolist(), "inertia": inertia.tolist()}

    trunk = 1
    legs = []
    for hip in np.flatnonzero(model.body_parentid == trunk):
        joints = [
            {
                **link(body),
                "offset": model.body_pos[body].tolist(),
                "axis": model.jnt_axis[model.body_jntadr[body]].tolist(),
            }
            for body in range(hip, hip + 3)
        ]
        foot = model.body_geomadr[hip + 2]
        legs.append(
            {"joints": joints, "foot": model.geom_pos[foot].tolist(), "radius": float(model.geom_size[foot, 0])}
        )
    return {
        "trunk": link(trunk), "legs": legs, "kp": STIFFNESS, "kv": DAMPING,
        "most_torque": model.actuator_forcerange[:, 1].tolist(), "friction": float(model.geom_friction[:, 0].max()),
    }  # fmt: skip
