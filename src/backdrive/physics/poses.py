"""Where the links are in the world and how they move, for collision, for losses and for looking; and the adjoint."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from ..compiler import Scalar, is_constant, loop, memory, switch, vjp, workspace
from . import spatial as sp
from .arrays import accumulate, copy, gradient_memory, split, zero
from .joints import JOINTS, Joint
from .spatial import Vec
from .world import Link, World, accumulate_link

PLACE = (9, 3)  # rotation to world axes, position of the origin
TWIST = (3, 3)  # angular velocity, velocity of the origin, both in world axes
POSE = (*PLACE, *TWIST)


def link_pose(joint: type[Joint], link: Link, above: Vec, q: Vec, *velocities: Vec) -> Vec:
    """The place of a link, and its twists for one or several velocities v, from its parent's (`above`)."""
    W, position, *twists = split(above, *PLACE, *TWIST * len(velocities))
    R, p = joint.pose(link, q)
    to_world, arm = sp.matmul(W, R), sp.rotate(W, p)
    pose = [*to_world, *sp.add(position, arm)]
    for v, w, u in zip(velocities, twists[::2], twists[1::2], strict=True):
        relative = joint.twist(link, joint.turned(link, q, v))
        pose += sp.rotate(to_world, relative[:3], w)
        pose += sp.rotate(to_world, relative[3:], sp.cross(w, arm, u))
    return tuple(pose)


def pose_size(velocities: int) -> int:
    return sum(PLACE) + velocities * sum(TWIST)


def link_poses(world: World, q: Any, *velocities: Any, indexed: bool = False) -> Any:
    """The poses of all links: an array over links; `indexed`: one that rolled loops can read, also if links are not."""
    size = pose_size(len(velocities))
    poses = (memory if indexed else workspace)((world.nlink + 1) * size)
    poses.put(0, pose_of(poses, 0, size))

    def place(joint: type[Joint], i: Any) -> None:
        b = world.velocity(i)
        qi = q.at(world.position(i)).get(0, joint.nq)
        vi = [v.at(b).get(0, joint.nv) for v in velocities]
        poses.put(i + 1, link_pose(joint, world.link(i), poses.get(world.parent(i), size), qi, *vi))

    for i in world.links():
        switch(world.kind(i), [partial(place, joint) for joint in JOINTS], i)
    return poses


def pose_of(poses: Any, record: Any, size: int) -> Vec:
    """The pose of a link given by its record; if that is known to be the world's, so is the pose."""
    if is_constant(record, 0):
        return (*sp.IDENTITY, *(0.0,) * (size - 9))
    return poses.get(record, size)


def link_poses_adjoint(
    world: World, poses: Any, bars: Any, q: Any, velocities: Sequence[Any], q_bar: Any, velocity_bars: Sequence[Any],
    constants_bar: Any,
) -> None:  # fmt: skip
    """Add the gradient of bars · poses; `bars` (over links) are overwritten; a velocity bar may be None."""
    size = pose_size(len(velocities))

    def back(joint: type[Joint], i: Any) -> None:
        a, b, parent = world.position(i), world.velocity(i), world.parent(i)
        vi = [v.at(b).get(0, joint.nv) for v in velocities]
        parts = (world.link_record(i), poses.get(parent, size), q.at(a).get(0, joint.nq), *vi)
        sizes = [len(part) for part in parts]

        def pose(*x: Scalar) -> Vec:
            record, above, qi, *vi = split(x, *sizes)
            return link_pose(joint, Link.of(record), above, qi, *vi)

        _, gradient = vjp(pose, sum(parts, ()), bars.get(i + 1, size))
        _, above_bar, qi_bar, *vi_bars = split(gradient, *sizes)
        accumulate(bars.at(parent * size), above_bar)
        accumulate(q_bar.at(a), qi_bar)
        for bar, vi_bar in zip(velocity_bars, vi_bars, strict=True):
            if bar is not None:
                accumulate(bar.at(b), vi_bar)
        if constants_bar is not None:
            accumulate_link(constants_bar, i, gradient)

    for i in world.links(reverse=True):
        switch(world.kind(i), [partial(back, joint) for joint in JOINTS], i)


def poses(world: World, q: Any, v: Any, out: Any, times: Any) -> None:
    """Kernel: POSE numbers for every link, at every time."""
    for t in loop(times):
        result = link_poses(world, q.row(t), v.row(t))
        copy(world.nlink * sum(POSE), result.at(sum(POSE)), out.row(t))


def poses_adjoint(
    world: World, q: Any, v: Any, out_bar: Any, q_bar: Any, v_bar: Any, constants_bar: Any, times: Any
) -> None:
    """Kernel: the gradient of out_bar · poses."""
    total, size = None, sum(POSE)
    if constants_bar is not None:
        total = gradient_memory(constants_bar, world.nconst)
        zero(world.nconst, total)
    for t in loop(times):
        bars, q_total, v_total = workspace((world.nlink + 1) * size), workspace(world.nq), workspace(world.nv)
        zero(size, bars)
        copy(world.nlink * size, out_bar.row(t), bars.at(size))
        zero(world.nq, q_total)
        zero(world.nv, v_total)
        qt, vt = q.row(t), v.row(t)
        link_poses_adjoint(world, link_poses(world, qt, vt), bars, qt, [vt], q_total, [v_total], total)
        copy(world.nq, q_total, q_bar.row(t))
        copy(world.nv, v_total, v_bar.row(t))
    if constants_bar is not None:
        copy(world.nconst, total, constants_bar)
