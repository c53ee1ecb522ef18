"""Poses and velocities of the links relative to their parents, from q and v."""

from __future__ import annotations

from functools import partial

from ...ir import Index, Scalar, ScalarArray, switch, when
from ..math import spatial as sp
from ..math.arrays import copy
from ..math.spatial import MATRIX, SPATIAL, VECTOR, ZERO3, Vec
from .joints import JOINTS, JointModel
from .tree import Tree


class Frames:
    """The links relative to their parents: arrays over links, and over the coordinates of v.

    R (9), p (3): the pose in the parent. joint_velocity (6): (w, u) in the link's axes. drift (3): the part of its rate
    that does not come from v̇. angular_velocity (3): ω, absolute, in the link's axes. S (6): the columns of the motion
    subspaces, over the coordinates of v, or of `turn` of them. Only angular_velocity has a record for the world.
    """

    def __init__(self, tree: Tree) -> None:
        self.R, self.p = tree.over_links(MATRIX, first=0), tree.over_links(VECTOR, first=0)
        self.S = tree.over_coordinates(SPATIAL)
        self.joint_velocity, self.drift = tree.over_links(SPATIAL, first=0), tree.over_links(VECTOR, first=0)
        self.angular_velocity = tree.over_links(VECTOR)
        self.angular_velocity.put(0, ZERO3)

    def slowed(self, tree: Tree, part: Scalar) -> Frames:
        """The same poses with velocities scaled by `part` (1: as they are, 0: at rest)."""
        frames = Frames(tree)
        frames.R, frames.p, frames.S = self.R, self.p, self.S
        for i in tree.links():
            frames.joint_velocity.put(i, sp.scale(part, self.joint_velocity.get(i, SPATIAL)))
            frames.drift.put(i, sp.scale(part, self.drift.get(i, VECTOR)))
            frames.angular_velocity.put(i + 1, sp.scale(part, self.angular_velocity.get(i + 1, VECTOR)))
        return frames

    def pose(self, i: Index) -> tuple[Vec, Vec]:
        """(R, p) of link i in its parent."""
        return self.R.get(i, MATRIX), self.p.get(i, VECTOR)


def place_link(tree: Tree, q: ScalarArray, v: ScalarArray, frames: Frames, i: Index) -> None:
    """Fill the frames of link i: pose, columns of S, joint velocity S y and its drift, and ω = Rᵀ ωₚ + w."""

    def place(joint: JointModel) -> None:
        a, b = tree.q_start(i), tree.v_start(i)
        link, qi = tree.link(i), q.at(a).get(0, joint.nq)
        R, p = joint.pose(link, qi)
        velocity = joint.twist(link, joint.to_link_axes(link, qi, v.at(b).get(0, joint.nv)))
        frames.R.put(i, R)
        frames.p.put(i, p)
        for _ in when(tree.turned(i) == 1 if joint.in_parent_axes else True):
            for k, column in enumerate(joint.columns(link)):
                frames.S.put(b + k, column)
        if joint.in_parent_axes:
            for _ in when(tree.turned(i) == 0):
                for k, column in enumerate(joint.columns_of_v(link, qi)):
                    frames.S.put(b + k, column)
        frames.joint_velocity.put(i, velocity)
        frames.drift.put(i, joint.drift(velocity))

    switch(tree.kind(i), [partial(place, joint) for joint in JOINTS])
    inherited = frames.angular_velocity.get(tree.parent(i), VECTOR)
    w = frames.joint_velocity.get(i, SPATIAL)[:3]
    frames.angular_velocity.put(i + 1, sp.unrotate(frames.R.get(i, MATRIX), inherited, w))


def turn(tree: Tree, q: ScalarArray, source: ScalarArray, target: ScalarArray, back: bool = False) -> None:
    """target [nv] = source [nv] rotated into the axes of the links (see `JointModel.to_link_axes`), or `back`.

    Links whose coordinates are eliminated in the axes of v are left as they are (`Tree.turned`).
    """

    def one(joint: JointModel, i: Index) -> None:
        b = tree.v_start(i)
        qi, x = q.at(tree.q_start(i)).get(0, joint.nq), source.at(b).get(0, joint.nv)
        rotate = joint.from_link_axes if back else joint.to_link_axes
        target.at(b).put(0, rotate(tree.link(i), qi, x))

    copy(tree.nv, source, target)  # most joints need no rotation
    for i in tree.links():
        for joint in JOINTS:
            if joint.in_parent_axes:
                for _ in when(tree.kind(i) == int(joint.kind)):
                    for _ in when(tree.turned(i) == 1):
                        one(joint, i)
