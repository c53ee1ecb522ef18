"""A quadruped on its feet, plainly: one step as matrix equations, for any tool that differentiates programs.

The world of `laikago`, written once over a small namespace ``ops``, which every tool fills in (`with_torch`,
`with_jax`, `with_casadi`). Legs are alike, three hinges each, so that ``ops.legs`` may treat them as one batch. Vectors
are columns.

    M (v⁺ - v) = h (τ - c) + Jᵀ λ      0 ≤ Jₙ v⁺ + gap/h ⊥ λₙ ≥ 0,   |λₜ| ≤ μ λₙ          q⁺ = q ⊕ h (v⁺ + p)

as the engine has it, with three differences: λ is what a fixed number of Gauss-Seidel sweeps makes of that of the step
before, where the engine solves exactly; tangents are the axes of the world, where the engine's follow the slip (a foot
that does not slide moves alike); and joint limits, which this motion does not come near, are left out.

All spatial vectors (angular part first) and inertias are about the origin of the trunk and along its axes: what acts on
a link is then what acts on the trunk, and inertias are added up.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

GRAVITY = 9.81
FEET = 4
ROWS = 3  # of a foot: normal, two tangents
SLOP, ERP, SOFTNESS = 1e-4, 0.2, 1e-8  # the engine's: of a foot's radius; per step; of the inverse mass


def robot_of(ops: Any, numbers: Mapping[str, Any]) -> dict[str, Any]:
    """The robot's numbers (`laikago.numbers`) as constants of a tool."""

    def column(x: Any) -> np.ndarray:
        return np.array(x, dtype=np.float64).reshape(-1, 1)

    def cross(axis: Any) -> np.ndarray:
        return np.cross(axis, np.eye(3)).T

    legs = []
    for one in numbers["legs"]:
        joints = one["joints"]
        each = {name: [column(joint[name]) for joint in joints] for name in ("offset", "axis", "com", "mass")}
        each["axis_skew"] = [cross(joint["axis"]) for joint in joints]
        each["inertia"] = [np.array(joint["inertia"]) for joint in joints]
        legs.append(each | {"foot": [column(one["foot"])]})
    first, trunk = numbers["legs"][0], numbers["trunk"]
    return {
        "legs": ops.gather(legs), "radius": first["radius"], "kp": numbers["kp"], "kv": numbers["kv"],
        "trunk": {
            "mass": trunk["mass"], "com": ops.constant(column(trunk["com"])),
            "inertia": ops.constant(np.array(trunk["inertia"])),
        },
        "most_torque": ops.constant(column(numbers["most_torque"])), "friction": numbers["friction"],
        "slop": SLOP * first["radius"], "softness": SOFTNESS / first["joints"][-1]["mass"],
        "normals": ops.constant(np.kron(np.eye(FEET), column([1.0, 0.0, 0.0]))),  # [12, 4]: 4 to 12 rows
    }  # fmt: skip


class Leg(NamedTuple):
    """What a leg, or a batch of legs, brings to the step; in the axes of the trunk."""

    inertia: Any  # of the leg, as if it were rigid [6, 6]
    force: Any  # that it takes when no joint accelerates [6, 1]
    mass: Any  # of its joints [3, 3]
    coupled: Any  # between trunk and joints [6, 3]
    bias: Any  # of its joints [3, 1]
    gap: Any  # between foot and floor, m
    wrench: Any  # of a unit of normal and tangential force on the foot, about the trunk's origin [6, 3]
    reach: Any  # the same on its joints [3, 3]


def skew(ops: Any, a: Any) -> Any:
    x, y, z = (ops.entry(a, i) for i in range(3))
    o = 0.0 * x
    return ops.matrix([[o, -z, y], [z, o, -x], [-y, x, o]])


def rotation(ops: Any, quaternion: Any) -> Any:
    w, x, y, z = (ops.entry(quaternion, i) for i in range(4))
    return ops.matrix(
        [
            [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)],
            [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)],
            [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)],
        ]
    )


def spatial_cross(ops: Any, velocity: Any) -> Any:
    """V ×, for motions; for forces it is its negative transpose."""
    w, u = skew(ops, ops.rows(velocity, 0, 3)), skew(ops, ops.rows(velocity, 3, 6))
    return ops.block([[w, 0 * w], [u, w]])


def inertia_about_origin(ops: Any, mass: Any, center: Any, inertia: Any) -> Any:
    c = skew(ops, center)
    return ops.block([[inertia + mass * (c @ ops.T(c)), mass * c], [mass * ops.T(c), mass * ops.eye(3)]])


def force_of(ops: Any, inertia: Any, velocity: Any, acceleration: Any) -> Any:
    return inertia @ acceleration - ops.T(spatial_cross(ops, velocity)) @ (inertia @ velocity)


def leg(ops: Any, robot: Any, radius: float, q: Any, v: Any, V: Any, A: Any, to_trunk: Any, height: Any) -> Leg:
    """Of one leg, or of a batch of legs.

    robot: its numbers. radius: of its foot. q, v [3, 1]: of its joints. V, A [6, 1]: of the trunk, at `height`.
    to_trunk: from world axes.
    """
    R, p = ops.eye(3), 0.0
    axes, inertias, forces = [], [], []
    for k in range(3):
        p = p + R @ robot["offset"][k]
        angle, K = ops.entry(q, k, keep=True), robot["axis_skew"][k]
        s = R @ robot["axis"][k]
        S = ops.block([[s], [skew(ops, p + 0 * s) @ s]])
        R = R @ (ops.eye(3) + ops.sin(angle) * K + (1 - ops.cos(angle)) * (K @ K))
        moving = S * ops.entry(v, k, keep=True)
        V = V + moving
        A = A + spatial_cross(ops, V) @ moving
        center = p + R @ robot["com"][k]
        inertia = inertia_about_origin(ops, robot["mass"][k], center, R @ robot["inertia"][k] @ ops.T(R))
        axes.append(S)
        inertias.append(inertia)
        forces.append(force_of(ops, inertia, V, A))
    for k in (1, 0):  # each joint carries what follows
        inertias[k], forces[k] = inertias[k] + inertias[k + 1], forces[k] + forces[k + 1]
    S = ops.block([axes])
    coupled = ops.block([[I @ s for I, s in zip(inertias, axes)]])
    U = ops.T(S) @ coupled
    mass = ops.matrix([[ops.entry(U, min(i, j), max(i, j)) for j in range(3)] for i in range(3)])
    bias = ops.block([[ops.T(s) @ f] for s, f in zip(axes, forces)])
    foot, up = p + R @ robot["foot"][0], to_trunk[:, 2:3]
    z = ops.T(up) @ foot + height
    at = foot - radius * up  # its lowest point
    directions = ops.block([[up, to_trunk[:, 0:1], to_trunk[:, 1:2]]])
    directions = directions + 0 * R  # of every leg
    wrench = ops.block([[skew(ops, at) @ directions], [directions]])
    return Leg(inertias[0], forces[0], mass, coupled, bias, z - radius, wrench, ops.T(S) @ wrench)


def sweep(ops: Any, W: Any, friction: float, impulses: Any, speeds: Any) -> tuple[Any, Any]:
    """λ ← clip(λ - w / W_rr), row by row, and with every change w = W λ + b. Columns of FEET x ROWS."""
    rows = [ops.entry(impulses, r, keep=True) for r in range(FEET * ROWS)]
    for r, before in enumerate(rows):
        x = before - ops.entry(speeds, r, keep=True) / ops.entry(W, r, r, keep=True)
        normal = r - r % ROWS
        if r == normal:
            rows[r] = ops.maximum(x, 0.0 * x)
        else:
            most = friction * rows[normal]
            rows[r] = ops.minimum(ops.maximum(x, -most), most)
        speeds = speeds + W[:, r : r + 1] * (rows[r] - before)
    return ops.block([[x] for x in rows]), speeds


def step(ops: Any, robot: Any, h: float, sweeps: int, q: Any, v: Any, impulses: Any, control: Any) -> tuple[Any, ...]:
    """(q⁺, v⁺, λ) from columns q [19], v [18], λ [12] of the step before, and targets of the servos [12]."""
    Rb = rotation(ops, q[3:7, :])
    to_trunk = ops.T(Rb)
    spin = v[3:6, :]
    V = ops.block([[spin], [to_trunk @ v[0:3, :]]])
    fall = ops.block([[0 * spin], [GRAVITY * to_trunk[:, 2:3]]])  # weight is felt as if the world accelerated upwards
    trunk = robot["trunk"]
    inertia = inertia_about_origin(ops, trunk["mass"], trunk["com"], trunk["inertia"])
    wanted = robot["kp"] * (control - q[7:, :]) - robot["kv"] * v[6:, :]
    tau = ops.minimum(ops.maximum(wanted, -robot["most_torque"]), robot["most_torque"])

    legs = ops.legs(
        lambda one, angles, rates: leg(ops, one, robot["radius"], angles, rates, V, fall, to_trunk, q[2:3, :]),
        robot["legs"], ops.split(q[7:, :]), ops.split(v[6:, :]),
    )  # fmt: skip
    # The joints of each leg are eliminated; what is left is a system of the trunk's six.
    # The servos' damping is implicit (no torque is at its limit in this motion): M + h kv.
    implicit = h * robot["kv"] * ops.eye(3)
    own = ops.legs(
        lambda one, t: ops.solve(one.mass + implicit, ops.block([[ops.T(one.coupled), one.reach, t - one.bias]])),
        legs, ops.split(tau),
    )  # fmt: skip
    schur = inertia + ops.total(ops.legs(lambda one, x: one.inertia - one.coupled @ ops.columns(x, 0, 6), legs, own))
    rest = force_of(ops, inertia, V, fall) + ops.total(
        ops.legs(lambda one, x: one.force + one.coupled @ ops.columns(x, 9, 10), legs, own)
    )
    Y = ops.beside(ops.legs(lambda one, x: one.wrench - one.coupled @ ops.columns(x, 6, 9), legs, own))  # [6, 12]
    solved = ops.solve(schur, ops.block([[Y, -rest]]))
    Z, acceleration = solved[:, : FEET * ROWS], solved[:, FEET * ROWS :]

    def joints(motion: Any, part: Any) -> Any:
        """L⁻¹ (own part - Bᵀ motion of the trunk), of all legs, as a column."""
        return ops.under(ops.legs(lambda x, own_part: own_part - ops.columns(x, 0, 6) @ motion, own, part))

    free = V + h * (acceleration + ops.block([[0 * spin], [skew(ops, spin) @ V[3:, :]]]))
    free_joints = v[6:, :] + h * joints(acceleration, ops.legs(lambda x: ops.columns(x, 9, 10), own))

    W = ops.T(Y) @ Z + ops.diagonal(ops.legs(lambda one, x: ops.T(one.reach) @ ops.columns(x, 6, 9), legs, own))
    W = W + robot["softness"] * ops.eye(FEET * ROWS)
    speeds = ops.under(ops.legs(lambda one, u: ops.T(one.wrench) @ free + ops.T(one.reach) @ u, legs,
                                ops.split(free_joints)))  # fmt: skip
    gaps = ops.under(ops.legs(lambda one: one.gap, legs))  # [4, 1]
    slop, normals = robot["slop"], robot["normals"]
    bias = ops.maximum(gaps, -slop + 0 * gaps) / h
    start = speeds + normals @ bias + W @ impulses
    impulses, _ = ops.repeat(sweeps, lambda x, w: sweep(ops, W, robot["friction"], x, w), (impulses, start))

    def effect(push: Any) -> tuple[Any, Any]:
        """A⁻¹ Jᵀ of a column of 12: of the trunk (its own axes) and of the joints."""
        motion = Z @ push
        return motion, joints(motion, ops.legs(lambda x, y: ops.columns(x, 6, 9) @ y, own, ops.split(push)))

    trunk_change, joint_change = effect(impulses)
    after, after_joints = free + trunk_change, free_joints + joint_change
    # Of a penetration, a part is undone in the positions alone.
    depth = ops.minimum(gaps + slop, 0 * gaps)
    among = ops.T(normals) @ W @ normals
    inside = ops.where_negative(depth)
    masked = among * (inside @ ops.T(inside)) + ops.spread(1 - inside)
    trunk_out, joints_out = effect(normals @ ops.solve(masked, -(ERP / h) * depth))

    move, move_joints = after + trunk_out, after_joints + joints_out
    place = q[0:3, :] + h * (Rb @ move[3:, :])
    turned = turn(ops, q[3:7, :], h * move[:3, :])
    v = ops.block([[Rb @ after[3:, :]], [after[:3, :]], [after_joints]])
    return ops.block([[place], [turned], [q[7:, :] + h * move_joints]]), v, impulses


def turn(ops: Any, quaternion: Any, angle: Any) -> Any:
    """q ⊗ exp(angle / 2); angles of a step are small and not zero."""
    size = ops.sqrt(ops.T(angle) @ angle + 1e-30)
    w, (x, y, z) = (
        ops.entry(ops.cos(0.5 * size), 0),
        (ops.entry(ops.sin(0.5 * size) / size * angle, i) for i in range(3)),
    )
    return ops.matrix([[w, -x, -y, -z], [x, w, z, -y], [y, -z, w, x], [z, y, -x, w]]) @ quaternion
