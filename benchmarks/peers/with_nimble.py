"""Nimble on the same robot, which it reads as URDF: its exact contact and its gradients, one environment after another.

Only the library beneath its torch layer is used, so that torch need not be installed beside it.
"""

from __future__ import annotations

import importlib.metadata
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mujoco
import nimblephysics_libs._nimblephysics as nimble
import numpy as np

BATCH_SETTINGS = "one environment after another, its LCP solver, no joint limits, float64, steps called from Python"
FREE = 6  # coordinates of the base: turn, place


def version() -> str:
    return f"nimblephysics {importlib.metadata.version('nimblephysics')}"


def batched(request: dict[str, Any], batch: int) -> Callable[[], Any]:
    """As `with_mjx.batched`."""
    robot = Robot(request)

    def roll() -> Any:
        for _ in range(batch):
            robot.begin()
            for control in robot.controls:
                robot.drive(control)
                robot.world.step()
        return robot.world.getPositions()

    return roll


def batched_gradient(request: dict[str, Any], batch: int) -> Callable[[], Any]:
    """The same, and the gradient of |q|² + |v|² of the last state for the start and all torques."""
    robot = Robot(request)

    def roll() -> Any:
        for _ in range(batch):
            robot.begin()
            steps = []
            for control in robot.controls:
                robot.drive(control)
                steps.append(nimble.neural.forwardPass(robot.world))
            bar = 2.0 * robot.world.getState()
            for step in reversed(steps):
                bar = step.backpropState(robot.world, bar).lossWrtState
        return bar

    return roll


class Robot:
    """A world with the robot and the ground; its servos are torques that are computed before every step."""

    def __init__(self, request: dict[str, Any]) -> None:
        model = mujoco.MjModel.from_xml_string(request["mjcf"])
        self.world = nimble.simulation.World()
        self.world.setGravity(upright(model.opt.gravity))
        self.world.setTimeStep(request["dt"])
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "robot.urdf")
            path.write_text(urdf(model), "utf-8")
            skeleton = self.world.loadSkeleton(str(path))
        ground = nimble.dynamics.Skeleton()
        _, body = ground.createWeldJointAndBodyNodePair()
        offset = nimble.math.Isometry3()
        offset.set_translation([0.0, -0.5, 0.0])
        shape = body.createShapeNode(nimble.dynamics.BoxShape([20.0, 1.0, 20.0]))
        shape.setRelativeTransform(offset)
        shape.createCollisionAspect()
        self.world.addSkeleton(ground)
        names = [skeleton.getDofByIndex(k).getName() for k in range(skeleton.getNumDofs())]
        hinges = [model.joint(k).name for k in range(1, model.njnt)]
        self.order = np.array([hinges.index(name) for name in names[FREE:]])
        self.limits = np.abs(model.actuator_forcerange[:, 1])[self.order]
        self.kp, self.kd = model.actuator_gainprm[self.order, 0], -model.actuator_biasprm[self.order, 2]
        self.controls = np.array(request["controls"])[:, self.order]
        q = np.array(request["q"])
        turn, turned = np.zeros(3), np.zeros(4)
        mujoco.mju_mulQuat(turned, np.array([1.0, -1.0, 0.0, 0.0]) / np.sqrt(2.0), q[3:7])
        mujoco.mju_quat2Vel(turn, turned, 1.0)
        self.start = np.concatenate([turn, upright(q[:3]), q[7:][self.order]])
        self.still = np.zeros(len(self.start))

    def begin(self) -> None:
        self.world.setPositions(self.start)
        self.world.setVelocities(self.still)

    def drive(self, control: np.ndarray) -> None:
        q, v = self.world.getPositions()[FREE:], self.world.getVelocities()[FREE:]
        torques = np.clip(self.kp * (control - q) - self.kd * v, -self.limits, self.limits)
        self.world.setControlForces(np.concatenate([np.zeros(FREE), torques]))


def upright(x: np.ndarray) -> np.ndarray:
    """With y up: friction on a floor whose normal is z has no derivative in Nimble, as it says."""
    return np.array([x[0], x[2], -x[1]])


def urdf(model: mujoco.MjModel) -> str:
    """Bodies with one hinge each, but the first, which is free; of the shapes, spheres."""
    parts = []
    for k in range(1, model.nbody):
        body, matter = model.body(k), ""
        for g in range(model.ngeom):
            if model.geom_bodyid[g] == k and model.geom_type[g] == mujoco.mjtGeom.mjGEOM_SPHERE:
                where = f'<origin xyz="{numbers(model.geom_pos[g])}"/>'
                matter += (
                    f'<collision>{where}<geometry><sphere radius="{model.geom_size[g, 0]}"/></geometry></collision>'
                )
        inertia = " ".join(f'i{axis}{axis}="{x}"' for axis, x in zip("xyz", body.inertia))
        matter += (
            f'<inertial><origin xyz="{numbers(body.ipos)}" rpy="{angles(body.iquat)}"/><mass value="{body.mass[0]}"/>'
            f'<inertia {inertia} ixy="0" ixz="0" iyz="0"/></inertial>'
        )
        parts.append(f'<link name="{body.name}">{matter}</link>')
        if k > 1:
            joint, parent = model.joint(int(body.jntadr[0])), model.body(int(body.parentid[0]))
            parts.append(
                f'<joint name="{joint.name}" type="continuous"><parent link="{parent.name}"/>'
                f'<child link="{body.name}"/><origin xyz="{numbers(body.pos)}" rpy="{angles(body.quat)}"/>'
                f'<axis xyz="{numbers(joint.axis)}"/></joint>'
            )
    return f'<robot name="robot">{"".join(parts)}</robot>'


def numbers(x: np.ndarray) -> str:
    return " ".join(repr(float(y)) for y in x)


def angles(quaternion: np.ndarray) -> str:
    """Roll, pitch and yaw, rad."""
    w, x, y, z = quaternion / np.linalg.norm(quaternion)
    roll = np.arctan2(2 * (w * x + y * z), 1 - 2 * (x * x + y * y))
    pitch = np.arcsin(np.clip(2 * (w * y - z * x), -1.0, 1.0))
    return numbers(np.array([roll, pitch, np.arctan2(2 * (w * z + x * y), 1 - 2 * (y * y + z * z))]))
