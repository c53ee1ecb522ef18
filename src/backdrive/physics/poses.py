"""Where the links are in the world and how they move, for looking and for losses; and the adjoint."""

from __future__ import annotations

from functools import partial
from typing import Any

from ..compiler import Scalar, loop, switch, vjp, workspace
from . import spatial as sp
from .adjoint import accumulate, accumulate_link, split, zero
from .joints import JOINTS, Joint
from .rollout import constants_size, copy, gradient_memory
from .spatial import Vec
from .world import Link, World

POSE = (9, 3, 3, 3)  # rotation to world axes; position, angular velocity and velocity in them


def link_pose(joint: type[Joint], link: Link, above: Vec, q: Vec, v: Vec) -> Vec:
    """The pose of a link from its parent's (`above`)."""
    W, position, angular_velocity, velocity = split(above, *POSE)
    R, p = joint.pose(link, q)
    to_world, arm = sp.matmul(W, R), sp.rotate(W, p)
    joint_velocity = joint.twist(link, joint.turned(link, q, v))
    return (
        *to_world,
        *sp.add(position, arm),
        *sp.rotate(to_world, joint_velocity[:3], angular_velocity),
        *sp.rotate(to_world, joint_velocity[3:], sp.cross(angular_velocity, arm, velocity)),
    )


def link_poses(world: World, q: Any, v: Any) -> Any:
    """The poses of all links: an array over links."""
    poses = workspace((world.nlink + 1) * sum(POSE))
    poses.put(0, (*sp.IDENTITY, *(0.0,) * (sum(POSE) - 9)))

    def place(joint: type[Joint], i: Any) -> None:
        qi = q.at(world.position(i)).get(0, joint.nq)
        vi = v.at(world.velocity(i)).get(0, joint.nv)
        poses.put(i + 1, link_pose(joint, world.link(i), poses.get(world.parent(i), sum(POSE)), qi, vi))

    for i in world.links():
        switch(world.kind(i), [partial(place, joint) for joint in JOINTS], i)
    return poses


def poses(world: World, q: Any, v: Any, out: Any, times: Any) -> None:
    """Kernel: POSE numbers for every link, at every time."""
    for t in loop(times):
        result = link_poses(world, q.row(t), v.row(t))
        copy(world.nlink * sum(POSE), result.at(sum(POSE)), out.row(t))


def poses_adjoint(
    world: World, q: Any, v: Any, out_bar: Any, q_bar: Any, v_bar: Any, constants_bar: Any, times: Any
) -> None:
    """Kernel: the gradient of out_bar · poses."""
    total = None
    if constants_bar is not None:
        total = gradient_memory(constants_bar, constants_size(world))
        zero(constants_size(world), total)
    for t in loop(times):
        _poses_adjoint(world, q.row(t), v.row(t), out_bar.row(t), q_bar.row(t), v_bar.row(t), total)
    if constants_bar is not None:
        copy(constants_size(world), total, constants_bar)


def _poses_adjoint(world: World, q: Any, v: Any, out_bar: Any, q_bar: Any, v_bar: Any, constants_bar: Any) -> None:
    size, results = sum(POSE), link_poses(world, q, v)
    bars, q_total, v_total = workspace((world.nlink + 1) * size), workspace(world.nq), workspace(world.nv)
    zero(size, bars)
    copy(world.nlink * size, out_bar, bars.at(size))
    zero(world.nq, q_total)
    zero(world.nv, v_total)

    def back(joint: type[Joint], i: Any) -> None:
        a, b, parent = world.position(i), world.velocity(i), world.parent(i)
        qi, vi = q.at(a).get(0, joint.nq), v.at(b).get(0, joint.nv)
        parts = (world.link_record(i), results.get(parent, size), qi, vi)
        sizes = [len(part) for part in parts]

        def pose(*x: Scalar) -> Vec:
            record, above, qi, vi = split(x, *sizes)
            return link_pose(joint, Link.of(record), above, qi, vi)

        _, gradient = vjp(pose, sum(parts, ()), bars.get(i + 1, size))
        _, above_bar, qi_bar, vi_bar = split(gradient, *sizes)
        accumulate(bars.at(parent * size), above_bar)
        accumulate(q_total.at(a), qi_bar)
        accumulate(v_total.at(b), vi_bar)
        if constants_bar is not None:
            accumulate_link(constants_bar, i, gradient)

    for i in world.links(reverse=True):
        switch(world.kind(i), [partial(back, joint) for joint in JOINTS], i)
    copy(world.nq, q_total, q_bar)
    copy(world.nv, v_total, v_bar)
