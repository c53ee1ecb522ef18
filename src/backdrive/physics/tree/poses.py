"""Where the links are in the world and how they move, for collision, for losses and for looking; and the adjoint."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from ...ir import Scalar, is_constant, loop, memory, switch, vjp, workspace
from ..math import spatial as sp
from ..math.arrays import accumulate, copy, gradient_memory, split, zero
from ..math.spatial import Vec
from .joints import JOINTS, Joint
from .tree import Link, LinkSubset, Tree, accumulate_link

PLACE = (9, 3)  # rotation to world axes, position of the origin
TWIST = (3, 3)  # angular velocity, velocity of the origin, both in world axes
POSE = (*PLACE, *TWIST)


def joint_motion(joint: type[Joint], link: Link, q: Vec, *velocities: Vec) -> Vec:
    """How a joint moves its link: rotation and position in the parent, and relative twists in the link's axes."""
    R, p = joint.pose(link, q)
    return (*R, *p, *(x for v in velocities for x in joint.twist(link, joint.turned(link, q, v))))


def link_pose(above: Vec, motion: Vec) -> Vec:
    """The place of a link, and its twists for one or several velocities v, from its parent's (`above`)."""
    twists = (len(motion) - sum(PLACE)) // sum(TWIST)
    W, position, *inherited = split(above, *PLACE, *TWIST * twists)
    R, p, *relative = split(motion, *PLACE, *TWIST * twists)
    to_world, arm = sp.matmul(W, R), sp.rotate(W, p)
    pose = [*to_world, *sp.add(position, arm)]
    for k in range(0, 2 * twists, 2):
        w, u = inherited[k : k + 2]
        pose += sp.rotate(to_world, relative[k], w)
        pose += sp.rotate(to_world, relative[k + 1], sp.cross(w, arm, u))
    return tuple(pose)


def pose_size(velocities: int) -> int:
    return sum(PLACE) + velocities * sum(TWIST)


def link_poses(tree: Tree, q: Any, *velocities: Any, indexed: bool = False, some: LinkSubset | None = None) -> Any:
    """The poses of all links, or of some: an array over links; `indexed`: one that rolled loops can read, also if links
    are not."""
    size = pose_size(len(velocities))
    poses = (memory if indexed else workspace)((tree.nlink + 1) * size)
    poses.put(0, pose_of(poses, 0, size))
    for i in tree.links_among(some):
        pose = link_pose(pose_of(poses, tree.parent(i), size), motion_of(tree, q, velocities, i))
        poses.put(i + 1, pose)
    return poses


def motion_of(tree: Tree, q: Any, velocities: Sequence[Any], i: Any) -> Vec:
    """`joint_motion` of link i, whatever its joint."""
    size = pose_size(len(velocities))
    result = workspace(size)

    def put(joint: type[Joint]) -> None:
        qi, vi = joint_coordinates(tree, joint, q, velocities, i)
        result.put(0, joint_motion(joint, tree.link(i), qi, *vi))

    switch(tree.kind(i), [partial(put, joint) for joint in JOINTS])
    return result.get(0, size)


def joint_coordinates(
    tree: Tree, joint: type[Joint], q: Any, velocities: Sequence[Any], i: Any
) -> tuple[Vec, list[Vec]]:
    """Of link i, in q and in every velocity."""
    b = tree.v_start(i)
    return q.at(tree.q_start(i)).get(0, joint.nq), [v.at(b).get(0, joint.nv) for v in velocities]


def pose_of(poses: Any, record: Any, size: int, dim: int = 3) -> Vec:
    """The pose of a link given by its record; if that is known to be the world's, so is the pose. In worlds of dim 2,
    what is not in the plane is known, too."""
    still = (*sp.IDENTITY, *(0.0,) * (size - 9))
    if is_constant(record, 0):
        return still
    pose = poses.get(record, size)
    if dim == 3:
        return pose
    # In the plane only the turn about z, x, y and their rates are not as at rest.
    free = {0, 1, 3, 4, 9, 10, *(k + j for k in range(sum(PLACE), size, sum(TWIST)) for j in (2, 3, 4))}
    return tuple(x if k in free else still[k] for k, x in enumerate(pose))


def link_poses_adjoint(
    tree: Tree, poses: Any, bars: Any, q: Any, velocities: Sequence[Any], q_bar: Any, velocity_bars: Sequence[Any],
    constants_bar: Any,
) -> None:  # fmt: skip
    """Add the gradient of bars · poses; `bars` (over links) are overwritten; a velocity bar may be None."""
    size = pose_size(len(velocities))

    def back(joint: type[Joint], i: Any, motion_bar: Vec) -> None:
        a, b = tree.q_start(i), tree.v_start(i)
        qi, vi = joint_coordinates(tree, joint, q, velocities, i)
        parts = (tree.link_record(i), qi, *vi)
        sizes = [len(part) for part in parts]

        def motion(*x: Scalar) -> Vec:
            record, qi, *vi = split(x, *sizes)
            return joint_motion(joint, Link.of(record), qi, *vi)

        _, gradient = vjp(motion, [x for part in parts for x in part], motion_bar)
        _, qi_bar, *vi_bars = split(gradient, *sizes)
        accumulate(q_bar.at(a), qi_bar)
        for bar, vi_bar in zip(velocity_bars, vi_bars, strict=True):
            if bar is not None:
                accumulate(bar.at(b), vi_bar)
        if constants_bar is not None:
            accumulate_link(constants_bar, i, gradient)

    for i in tree.links(reverse=True):
        # What all joints share is differentiated once, what each does for itself.
        parent, motion = tree.parent(i), motion_of(tree, q, velocities, i)
        inputs = (*pose_of(poses, parent, size), *motion)
        _, gradient = vjp(lambda *x: link_pose(x[:size], x[size:]), inputs, bars.get(i + 1, size))
        above_bar, motion_bar = split(gradient, size, size)
        accumulate(bars.at(parent * size), above_bar)
        switch(tree.kind(i), [partial(back, joint) for joint in JOINTS], i, motion_bar)


def poses(tree: Tree, q: Any, v: Any, out: Any, times: Any) -> None:
    """Kernel: POSE numbers for every link, at every time."""
    for t in loop(times):
        result = link_poses(tree, q.row(t), v.row(t))
        copy(tree.nlink * sum(POSE), result.at(sum(POSE)), out.row(t))


def poses_adjoint(
    tree: Tree, q: Any, v: Any, out_bar: Any, q_bar: Any, v_bar: Any, constants_bar: Any, times: Any
) -> None:
    """Kernel: the gradient of out_bar · poses."""
    total, size = None, sum(POSE)
    if constants_bar is not None:
        total = gradient_memory(constants_bar, tree.nconst)
        zero(tree.nconst, total)
    for t in loop(times):
        bars, q_total, v_total = workspace((tree.nlink + 1) * size), workspace(tree.nq), workspace(tree.nv)
        zero(size, bars)
        copy(tree.nlink * size, out_bar.row(t), bars.at(size))
        zero(tree.nq, q_total)
        zero(tree.nv, v_total)
        qt, vt = q.row(t), v.row(t)
        link_poses_adjoint(tree, link_poses(tree, qt, vt), bars, qt, [vt], q_total, [v_total], total)
        copy(tree.nq, q_total, q_bar.row(t))
        copy(tree.nv, v_total, v_bar.row(t))
    if constants_bar is not None:
        copy(tree.nconst, total, constants_bar)
