"""Poses and twists of the links in the world, for collision, losses and rendering; and their adjoint.

A pose is a record of numbers: the place of a link, then one twist for every velocity that it was computed with (see
`Pose`). Poses are arrays over links, with the pose of the world as their first record.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

from ...ir import (
    Index,
    Scalar,
    ScalarArray,
    TimedArray,
    interruptible,
    is_constant,
    loop,
    memory,
    switch,
    vjp,
    workspace,
)
from ..math import spatial as sp
from ..math.arrays import accumulate, copy, gradient_memory, split, zero
from ..math.spatial import IDENTITY, MATRIX, VECTOR, Vec
from ..math.twists import point_velocity
from .joints import JOINTS, JointModel
from .tree import LinkConstants, LinkSubset, Tree, accumulate_link

PLACE = (MATRIX, VECTOR)  # sizes: rotation to world axes, position of the origin (m)
TWIST = (VECTOR, VECTOR)  # sizes: angular velocity (rad/s), velocity of the origin (m/s), both in world axes
POSE = (*PLACE, *TWIST)  # sizes of the parts of a pose with one twist
PLACE_SIZE = sum(PLACE)
TWIST_SIZE = sum(TWIST)


class Twist(NamedTuple):
    """Angular velocity (rad/s) of a link and velocity of its origin (m/s), in world axes."""

    angular: Vec
    linear: Vec


class Pose(NamedTuple):
    """The record of a link's pose, by parts: rotation (9) to world axes, origin (3) in the world (m), and twists."""

    rotation: Vec
    origin: Vec
    twists: tuple[Twist, ...] = ()

    @classmethod
    def of(cls, record: Vec) -> Pose:
        """From the numbers of a place, or of a place with any number of twists."""
        rotation, origin, *rest = split(record, *PLACE, *TWIST * twist_count(record))
        return cls(rotation, origin, tuple(map(Twist, rest[0::2], rest[1::2])))

    def twist(self, k: int = 0) -> Twist:
        """The twist for velocity k of those that the pose was computed with."""
        return self.twists[k]

    def velocity(self, point: Vec, k: int = 0) -> Vec:
        """The velocity (m/s) of the link's point at the world position `point`: ω × (point - origin) + u."""
        angular, linear = self.twists[k]
        return point_velocity(angular, linear, self.origin, point)

    @property
    def place(self) -> Vec:
        """The numbers of the pose without its twists: rotation and origin."""
        return (*self.rotation, *self.origin)


def twist_count(record: Vec) -> int:
    """How many twists a pose has."""
    return (len(record) - PLACE_SIZE) // TWIST_SIZE


def pose_size(velocities: int) -> int:
    """The size of a pose with a twist for each of so many velocities."""
    return PLACE_SIZE + velocities * TWIST_SIZE


def twist_start(k: int) -> int:
    """The offset of twist k in a pose."""
    return PLACE_SIZE + k * TWIST_SIZE


def joint_motion(joint: JointModel, link: LinkConstants, q: Vec, *velocities: Vec) -> Vec:
    """The motion of a link relative to its parent: rotation, position, and a relative twist in its axes for each v."""
    R, p = joint.pose(link, q)
    return (*R, *p, *(x for v in velocities for x in joint.twist(link, joint.to_link_axes(link, q, v))))


def link_pose(above: Vec, motion: Vec) -> Vec:
    """The pose of a link from that of its parent (`above`) and its motion relative to it (`joint_motion`)."""
    (W, position, inherited), (R, p, relative) = Pose.of(above), Pose.of(motion)
    to_world, arm = sp.matmul(W, R), sp.rotate(W, p)
    pose = [*to_world, *sp.add(position, arm)]
    for (w, u), (angular, linear) in zip(inherited, relative, strict=True):
        pose += sp.rotate(to_world, angular, w)
        pose += sp.rotate(to_world, linear, sp.cross(w, arm, u))
    return tuple(pose)


def link_poses(
    tree: Tree, q: ScalarArray, *velocities: ScalarArray, indexed: bool = False, some: LinkSubset | None = None
) -> ScalarArray:
    """The poses of all links, or of `some`: an array over links.

    indexed: whether rolled loops can read it, even in a kernel in which the loops over links are unrolled.
    """
    size = pose_size(len(velocities))
    poses = (memory if indexed else workspace)((tree.nlink + 1) * size)
    poses.put(0, pose_of(poses, 0, size))
    for i in tree.links_among(some):
        pose = link_pose(pose_of(poses, tree.parent(i), size), motion_of(tree, q, velocities, i))
        poses.put(i + 1, pose)
    return poses


def motion_of(tree: Tree, q: ScalarArray, velocities: Sequence[ScalarArray], i: Index) -> Vec:
    """`joint_motion` of link i, for whichever kind of joint it has."""
    size = pose_size(len(velocities))
    result = workspace(size)

    def put(joint: JointModel) -> None:
        qi, vi = joint_coordinates(tree, joint, q, velocities, i)
        result.put(0, joint_motion(joint, tree.link(i), qi, *vi))

    switch(tree.kind(i), [partial(put, joint) for joint in JOINTS])
    return result.get(0, size)


def joint_coordinates(
    tree: Tree, joint: JointModel, q: ScalarArray, velocities: Sequence[ScalarArray], i: Index
) -> tuple[Vec, list[Vec]]:
    """The coordinates of link i in q and in every velocity."""
    b = tree.v_start(i)
    return q.at(tree.q_start(i)).get(0, joint.nq), [v.at(b).get(0, joint.nv) for v in velocities]


def pose_of(poses: ScalarArray, record: Index, size: int, dim: int = 3) -> Vec:
    """The pose of the link with the given record, as its numbers.

    The pose of the world is constant; in a world of dim 2, so are the numbers that only change out of the plane.
    """
    still = (*IDENTITY, *(0.0,) * (size - MATRIX))
    if is_constant(record, 0):
        return still
    pose = poses.get(record, size)
    if dim == 3:
        return pose
    in_plane = _in_plane(size)
    return tuple(x if k in in_plane else still[k] for k, x in enumerate(pose))


def _in_plane(size: int) -> set[int]:
    """Which numbers of a pose change in planar motion: the rotation about z, x and y of the origin, and their rates."""
    rotation, origin = {0, 1, 3, 4}, {MATRIX, MATRIX + 1}
    rates = {k + j for k in range(PLACE_SIZE, size, TWIST_SIZE) for j in (2, 3, 4)}  # ω_z, u_x, u_y
    return rotation | origin | rates


def link_poses_adjoint(
    tree: Tree, poses: ScalarArray, poses_bar: ScalarArray, q: ScalarArray, velocities: Sequence[ScalarArray],
    q_bar: ScalarArray, velocity_bars: Sequence[ScalarArray | None], constants_bar: ScalarArray | None,
) -> None:  # fmt: skip
    """Add the gradient of poses_bar · poses to q_bar [nq], velocity_bars (each [nv]) and constants_bar [nconst].

    `poses_bar` (over links) is overwritten. Cotangents that are not wanted are None.
    """
    size = pose_size(len(velocities))

    def joint_adjoint(joint: JointModel, i: Index, motion_bar: Vec) -> None:
        a, b = tree.q_start(i), tree.v_start(i)
        qi, vi = joint_coordinates(tree, joint, q, velocities, i)
        parts = (tree.link_record(i), qi, *vi)
        sizes = [len(part) for part in parts]

        def motion(*x: Scalar) -> Vec:
            record, qi, *vi = split(x, *sizes)
            return joint_motion(joint, LinkConstants.of(record), qi, *vi)

        _, gradient = vjp(motion, [x for part in parts for x in part], motion_bar)
        _, qi_bar, *vi_bars = split(gradient, *sizes)
        accumulate(q_bar.at(a), qi_bar)
        for bar, vi_bar in zip(velocity_bars, vi_bars, strict=True):
            if bar is not None:
                accumulate(bar.at(b), vi_bar)
        if constants_bar is not None:
            accumulate_link(constants_bar, i, gradient)

    for i in tree.links(reverse=True):
        # The composition of poses is the same for all joints and differentiated once, outside of the switch.
        parent, motion = tree.parent(i), motion_of(tree, q, velocities, i)
        inputs = (*pose_of(poses, parent, size), *motion)
        _, gradient = vjp(lambda *x: link_pose(x[:size], x[size:]), inputs, poses_bar.get(i + 1, size))
        above_bar, motion_bar = split(gradient, size, size)
        accumulate(poses_bar.at(parent * size), above_bar)
        switch(tree.kind(i), [partial(joint_adjoint, joint) for joint in JOINTS], i, motion_bar)


def poses(tree: Tree, q: TimedArray, v: TimedArray, out: TimedArray, times: Index) -> None:
    """Kernel: the poses of all links with one twist, [nlink, 18], at every time."""
    size = pose_size(1)
    for t in interruptible(loop(times)):
        result = link_poses(tree, q.row(t), v.row(t))
        copy(tree.nlink * size, result.at(size), out.row(t))


def poses_adjoint(
    tree: Tree, q: TimedArray, v: TimedArray, out_bar: TimedArray, q_bar: TimedArray, v_bar: TimedArray,
    constants_bar: ScalarArray | None, times: Index,
) -> None:  # fmt: skip
    """Kernel: the gradient of out_bar · poses."""
    total, size = None, pose_size(1)
    if constants_bar is not None:
        total = gradient_memory(constants_bar, tree.nconst)
        zero(tree.nconst, total)
    for t in interruptible(loop(times)):
        poses_bar, q_total, v_total = workspace((tree.nlink + 1) * size), workspace(tree.nq), workspace(tree.nv)
        zero(size, poses_bar)
        copy(tree.nlink * size, out_bar.row(t), poses_bar.at(size))
        zero(tree.nq, q_total)
        zero(tree.nv, v_total)
        qt, vt = q.row(t), v.row(t)
        link_poses_adjoint(tree, link_poses(tree, qt, vt), poses_bar, qt, [vt], q_total, [v_total], total)
        copy(tree.nq, q_total, q_bar.row(t))
        copy(tree.nv, v_total, v_bar.row(t))
    if constants_bar is not None and total is not None:
        copy(tree.nconst, total, constants_bar)
