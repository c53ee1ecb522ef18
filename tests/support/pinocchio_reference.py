"""Pinocchio's model of a backdrive model: the same tree, built joint by joint from its tables.

Pinocchio writes quaternions w last, and the velocity of a free joint in the body's axes; a link's descendants must
follow it directly, so joints are in another order. A link's joint frame stands at the joint's anchor with the link's
axes; what is fixed to a link shares its joint.
"""

from __future__ import annotations

import numpy as np
import pinocchio as pin
from models import coordinates

import backdrive as bd
from backdrive.schema import layout
from backdrive.schema.layout import LINK, Kind


class Reference:
    def __init__(self, model: bd.Model) -> None:
        self.model, self.pin = model, pin.Model()
        self.joint: dict[int, int] = {}  # of every link; fixed links have that of their parent
        self.place: dict[int, pin.SE3] = {}  # of every link's frame in its joint's frame
        self.pin.gravity = pin.Motion(np.concatenate([_padded(model.gravity), np.zeros(3)]))
        self.armature = np.zeros(model.nv)
        self.q_order, self.v_order = np.empty(0, int), np.empty(0, int)  # where Pinocchio's coordinates are in ours
        for i in _depth_first(model.parent):
            self._add(i)
        self.data = self.pin.createData()

    def record(self, i: int) -> np.ndarray:
        return self.model.constants[i * LINK : (i + 1) * LINK]

    def _add(self, i: int) -> None:
        record, kind, parent = self.record(i), self.model.kind[i], int(self.model.parent[i])
        offset, rotation = record[layout.OFFSET :][:3], record[layout.ROTATION :][:9].reshape(3, 3)
        anchor, axis = record[layout.ANCHOR :][:3], record[layout.AXIS :][:3]
        above, frame = (0, pin.SE3.Identity()) if parent < 0 else (self.joint[parent], self.place[parent])
        frame = frame * pin.SE3(rotation, offset)
        shift = pin.SE3(np.eye(3), anchor)
        if kind == Kind.FIXED:
            joint, place = above, frame
        elif kind in (Kind.HINGE, Kind.BALL):
            motion = pin.JointModelRevoluteUnaligned(axis) if kind == Kind.HINGE else pin.JointModelSpherical()
            joint, place = self.pin.addJoint(above, motion, frame * shift, f"{i}"), shift.inverse()
        elif kind == Kind.PLANAR:
            joint, place = above, pin.SE3.Identity()
            for name, motion in {"x": pin.JointModelPX(), "y": pin.JointModelPY(), "a": pin.JointModelRZ()}.items():
                joint = self.pin.addJoint(joint, motion, frame, f"{i}{name}")
                frame = pin.SE3.Identity()
        else:
            motion = pin.JointModelPrismaticUnaligned(axis) if kind == Kind.SLIDER else pin.JointModelFreeFlyer()
            frame = frame if kind == Kind.SLIDER else pin.SE3.Identity()
            joint, place = self.pin.addJoint(above, motion, frame, f"{i}"), pin.SE3.Identity()
        self.joint[i], self.place[i] = joint, place
        a, b = coordinates(self.model, i)
        self.q_order = np.concatenate([self.q_order, np.arange(a.start, a.stop)])
        self.v_order = np.concatenate([self.v_order, np.arange(b.start, b.stop)])
        xx, yy, zz, xy, xz, yz = record[layout.INERTIA :][:6]
        inertia = np.array([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]])
        if joint > 0:
            body = pin.Inertia(record[layout.MASS], record[layout.COM :][:3], inertia)
            self.pin.appendBodyToJoint(joint, body, place)
        self.armature[b] = record[layout.ARMATURE]

    # ------------------------------------------------------------------------------------------ conventions

    def q(self, q: np.ndarray) -> np.ndarray:
        return self.w_last(q)[self.q_order]

    def w_last(self, q: np.ndarray) -> np.ndarray:
        """With unit quaternions x, y, z, w."""
        q = q.copy()
        for i, kind in enumerate(self.model.kind):
            if kind in (Kind.BALL, Kind.FREE):
                stop = coordinates(self.model, i)[0].stop
                w, *xyz = q[stop - 4 : stop] / np.linalg.norm(q[stop - 4 : stop])
                q[stop - 4 : stop] = *xyz, w
        return q

    def turn(self, q: np.ndarray) -> np.ndarray:
        """[nv, nv], orthogonal: our velocities to Pinocchio's, with those of free joints in the bodies' axes."""
        turn = np.eye(self.model.nv)
        for i in self._free():
            a, b = coordinates(self.model, i)
            w, x, y, z = q[a][3:] / np.linalg.norm(q[a][3:])
            turn[b, b][:3, :3] = pin.Quaternion(w, x, y, z).matrix().T
        return turn[self.v_order]

    def drift(self, q: np.ndarray, v: np.ndarray) -> np.ndarray:
        """[nv]: Pinocchio's v̇ of a free joint is turn v̇ - ω × u, with u in the body's axes."""
        drift, turned = np.zeros(self.model.nv), np.empty(self.model.nv)
        turned[self.v_order] = self.turn(q) @ v
        for i in self._free():
            u, w = np.split(turned[coordinates(self.model, i)[1]], 2)
            drift[coordinates(self.model, i)[1]][:3] = np.cross(w, u)
        return drift[self.v_order]

    def _free(self) -> list[int]:
        return np.flatnonzero(self.model.kind == Kind.FREE).tolist()

    # ------------------------------------------------------------------------------------------ dynamics

    def mass_matrix(self, q: np.ndarray) -> np.ndarray:
        M, turn = pin.crba(self.pin, self.data, self.q(q)), self.turn(q)
        M = np.triu(M) + np.triu(M, 1).T
        return turn.T @ M @ turn + np.diag(self.armature)

    def inverse_dynamics(self, q: np.ndarray, v: np.ndarray, vdot: np.ndarray) -> np.ndarray:
        turn = self.turn(q)
        tau = pin.rnea(self.pin, self.data, self.q(q), turn @ v, turn @ vdot - self.drift(q, v))
        return turn.T @ tau + self.armature * vdot

    def forward_dynamics(self, q: np.ndarray, v: np.ndarray, tau: np.ndarray, wrenches: np.ndarray) -> np.ndarray:
        """By the articulated-body algorithm; wrenches [nlink, 6]: force and torque at the center of mass, world axes.

        Armature of free joints resists the acceleration in the world, which Pinocchio's does not: then by M⁻¹.
        """
        forces, turn, free = self._wrenches(q, wrenches), self.turn(q), np.zeros(self.model.nv, bool)
        for i in self._free():
            free[coordinates(self.model, i)[1]] = True
        if not (self.armature * free).any():
            self.pin.armature = self.armature[self.v_order]
            vdot = pin.aba(self.pin, self.data, self.q(q), turn @ v, turn @ tau, forces)
            self.pin.armature = np.zeros(self.model.nv)
            return turn.T @ (vdot + self.drift(q, v))
        bias = pin.rnea(self.pin, self.data, self.q(q), turn @ v, -self.drift(q, v), forces)
        return np.linalg.solve(self.mass_matrix(q), tau - turn.T @ bias)

    def _wrenches(self, q: np.ndarray, wrenches: np.ndarray) -> pin.StdVec_Force:
        """As Pinocchio has them: about and along the joints' frames."""
        pin.forwardKinematics(self.pin, self.data, self.q(q))
        forces = [pin.Force.Zero() for _ in range(self.pin.njoints)]
        for i, wrench in enumerate(wrenches):
            frame = self.data.oMi[self.joint[i]]
            arm = frame.rotation @ self.place[i].act(self.record(i)[layout.COM :][:3])
            moment = wrench[3:] + np.cross(arm, wrench[:3])
            forces[self.joint[i]] += pin.Force(frame.rotation.T @ wrench[:3], frame.rotation.T @ moment)
        return pin.StdVec_Force(forces)

    def joint_forces(self, q: np.ndarray, v: np.ndarray, controls: np.ndarray) -> np.ndarray:
        """Springs, dampers and motors, from the tables."""
        model, tau = self.model, np.zeros(self.model.nv)
        start = layout.reference_start(model.nlink)
        q, rest = self.w_last(q), self.w_last(model.constants[start : start + model.nq])
        for i, kind in enumerate(model.kind):
            (a, b), record = coordinates(model, i), self.record(i)
            stretch = q[a] - rest[a]
            if kind in (Kind.BALL, Kind.FREE):
                here, there = (pin.Quaternion(x[a][-4:]).matrix() for x in (q, rest))
                stretch = np.concatenate([stretch[:-4], pin.log3(there.T @ here)])
            tau[b] = -record[layout.STIFFNESS] * stretch - record[layout.DAMPING] * v[b]
        start = layout.motor_start(model.nlink, model.nq)
        for m, (a, b) in enumerate(zip(model.motor_q, model.motor_v)):
            record = model.constants[start + m * layout.MOTOR :][: layout.MOTOR]
            gear, gain, b0, b1, b2, *limits = record
            force = gain * np.clip(controls[m], *limits[:2]) + b0 + b1 * gear * q[a] + b2 * gear * v[b]
            tau[b] += gear * np.clip(force, *limits[2:])
        return tau


def _depth_first(parent: np.ndarray) -> list[int]:
    order, todo = [], np.flatnonzero(parent < 0)[::-1].tolist()
    while todo:
        order.append(todo.pop())
        todo += np.flatnonzero(parent == order[-1])[::-1].tolist()
    return order


def _padded(gravity: np.ndarray) -> np.ndarray:
    return np.concatenate([gravity, np.zeros(3 - len(gravity))])
