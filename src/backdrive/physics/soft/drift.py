"""The accelerations of the links that follow from their velocities alone, J̇ v: those with v̇ = 0; and their adjoint.

A record of a link's motion: its place, its twist, and the rate of that twist: angular acceleration (rad/s²) and
acceleration of the origin (m/s²), all in world axes.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

from ...ir import Index, Scalar, ScalarArray, memory, switch, vjp, workspace
from ..math import spatial as sp
from ..math.arrays import accumulate, split
from ..math.spatial import IDENTITY, MATRIX, SPATIAL, VECTOR, Vec
from ..tree.joints import JOINTS, JointModel
from ..tree.tree import LinkConstants, Tree, accumulate_link

PARTS = (MATRIX, VECTOR, VECTOR, VECTOR, VECTOR, VECTOR)  # sizes: rotation, origin; ω, velocity; α, acceleration
DRIFTING = sum(PARTS)
JOINT = (MATRIX, VECTOR, SPATIAL, VECTOR)  # sizes: pose in the parent, joint velocity, drift, in the link's axes
STILL = (*IDENTITY, *(0.0,) * (DRIFTING - MATRIX))  # the record of the world


class Drifting(NamedTuple):
    """The record of a link's motion, by parts."""

    rotation: Vec
    origin: Vec
    angular: Vec
    linear: Vec
    angular_rate: Vec
    linear_rate: Vec

    @classmethod
    def of(cls, record: Vec) -> Drifting:
        return cls(*split(record, *PARTS))

    def point_acceleration(self, point: Vec) -> Vec:
        """Of the link's point at the world position `point` (m), m/s²."""
        arm = sp.sub(point, self.origin)
        turning = sp.cross(self.angular, sp.cross(self.angular, arm))
        return sp.add(self.linear_rate, sp.cross(self.angular_rate, arm, turning))


def _passed_on(above: Vec, motion: Vec) -> Vec:
    """The record of a link from that of its parent and from its joint's motion."""
    W, o, w, u, alpha, a = split(above, *PARTS)
    R, p, velocity, drift = split(motion, *JOINT)
    to_world, arm = sp.matmul(W, R), sp.rotate(W, p)
    own_w, own_u = sp.rotate(to_world, velocity[:3]), sp.rotate(to_world, velocity[3:])
    swinging = sp.add(sp.cross(alpha, arm), sp.cross(w, sp.cross(w, arm)))
    coriolis = sp.cross(sp.scale(2.0, w), own_u, sp.rotate(to_world, drift))
    return (
        *to_world,
        *sp.add(o, arm),
        *sp.add(w, own_w),
        *sp.cross(w, arm, sp.add(u, own_u)),
        *sp.cross(w, own_w, alpha),
        *sp.add(a, sp.add(swinging, coriolis)),
    )


def _joint_motion(joint: JointModel, link: LinkConstants, q: Vec, v: Vec) -> Vec:
    velocity = joint.twist(link, joint.to_link_axes(link, q, v))
    R, p = joint.pose(link, q)
    return (*R, *p, *velocity, *joint.drift(velocity))


def _motion_of(tree: Tree, q: ScalarArray, v: ScalarArray, i: Index) -> Vec:
    result = workspace(sum(JOINT))

    def put(joint: JointModel) -> None:
        qi, vi = q.at(tree.q_start(i)).get(0, joint.nq), v.at(tree.v_start(i)).get(0, joint.nv)
        result.put(0, _joint_motion(joint, tree.link(i), qi, vi))

    switch(tree.kind(i), [partial(put, joint) for joint in JOINTS])
    return result.get(0, sum(JOINT))


def drifting_links(tree: Tree, q: ScalarArray, v: ScalarArray) -> ScalarArray:
    """The records of all links, over links, readable in rolled loops."""
    records = memory((tree.nlink + 1) * DRIFTING)
    records.put(0, STILL)
    for i in tree.links():
        records.put(i + 1, _passed_on(records.get(tree.parent(i), DRIFTING), _motion_of(tree, q, v, i)))
    return records


def drifting_links_adjoint(
    tree: Tree, records: ScalarArray, bars: ScalarArray, q: ScalarArray, v: ScalarArray, q_bar: ScalarArray,
    v_bar: ScalarArray, constants_bar: ScalarArray | None,
) -> None:  # fmt: skip
    """Add the gradient of bars · records to the cotangents; `bars` (over links) is overwritten."""

    def joint_adjoint(joint: JointModel, i: Index, motion_bar: Vec) -> None:
        a, b = tree.q_start(i), tree.v_start(i)
        parts = (tree.link_record(i), q.at(a).get(0, joint.nq), v.at(b).get(0, joint.nv))
        sizes = [len(part) for part in parts]

        def motion(*x: Scalar) -> Vec:
            record, qi, vi = split(x, *sizes)
            return _joint_motion(joint, LinkConstants.of(record), qi, vi)

        _, gradient = vjp(motion, [x for part in parts for x in part], motion_bar)
        _, qi_bar, vi_bar = split(gradient, *sizes)
        accumulate(q_bar.at(a), qi_bar)
        accumulate(v_bar.at(b), vi_bar)
        if constants_bar is not None:
            accumulate_link(constants_bar, i, gradient)

    for i in tree.links(reverse=True):
        parent = tree.parent(i)
        inputs = (*records.get(parent, DRIFTING), *_motion_of(tree, q, v, i))
        _, gradient = vjp(lambda *x: _passed_on(x[:DRIFTING], x[DRIFTING:]), inputs, bars.get(i + 1, DRIFTING))
        above_bar, motion_bar = split(gradient, DRIFTING, sum(JOINT))
        accumulate(bars.at(parent * DRIFTING), above_bar)
        switch(tree.kind(i), [partial(joint_adjoint, joint) for joint in JOINTS], i, motion_bar)
