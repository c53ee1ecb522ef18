"""Poses and velocities of the links, from q and v."""

from __future__ import annotations

from functools import partial
from typing import Any

from ...ir import Scalar, switch, when
from ..math import spatial as sp
from ..math.arrays import copy
from ..math.spatial import ZERO3, Vec
from .joints import JOINTS, Joint
from .tree import Tree


class Frames:
    """Arrays over links: pose (R, p) in the parent, joint velocity (w, u) and its drift, angular velocity ω; and the
    columns of S over coordinates of v."""

    def __init__(self, tree: Tree) -> None:
        self.R, self.p = tree.over_links(9, first=0), tree.over_links(3, first=0)
        self.S = tree.over_coordinates(6)
        self.joint_velocity, self.drift = tree.over_links(6, first=0), tree.over_links(3, first=0)
        self.angular_velocity = tree.over_links(3)
        self.angular_velocity.put(0, ZERO3)

    def slowed(self, tree: Tree, part: Scalar) -> Frames:
        """The same poses, with so much of the velocities."""
        frames = Frames(tree)
        frames.R, frames.p, frames.S = self.R, self.p, self.S
        for i in tree.links():
            frames.joint_velocity.put(i, sp.scale(part, self.joint_velocity.get(i, 6)))
            frames.drift.put(i, sp.scale(part, self.drift.get(i, 3)))
            frames.angular_velocity.put(i + 1, sp.scale(part, self.angular_velocity.get(i + 1, 3)))
        return frames

    def pose(self, i: Any) -> tuple[Vec, Vec]:
        return self.R.get(i, 9), self.p.get(i, 3)


def place_link(tree: Tree, q: Any, v: Any, frames: Frames, i: Any) -> None:
    """Pose of link i in its parent, joint columns S, joint velocity S y, and angular velocity ω = Rᵀ ωₚ + w."""

    def place(joint: type[Joint]) -> None:
        a, b = tree.q_start(i), tree.v_start(i)
        link, qi = tree.link(i), q.at(a).get(0, joint.nq)
        R, p = joint.pose(link, qi)
        velocity = joint.twist(link, joint.turned(link, qi, v.at(b).get(0, joint.nv)))
        frames.R.put(i, R)
        frames.p.put(i, p)
        for k, column in enumerate(joint.columns(link)):
            frames.S.put(b + k, column)
        frames.joint_velocity.put(i, velocity)
        frames.drift.put(i, joint.drift(velocity))

    switch(tree.kind(i), [partial(place, joint) for joint in JOINTS])
    inherited = frames.angular_velocity.get(tree.parent(i), 3)
    w = frames.joint_velocity.get(i, 6)[:3]
    frames.angular_velocity.put(i + 1, sp.unrotate(frames.R.get(i, 9), inherited, w))


def turn(tree: Tree, q: Any, source: Any, target: Any, back: bool = False) -> None:
    """target = `Joint.turned` of source (or `unturned`: back), joint by joint; vectors over coordinates of v."""
    name = "unturned" if back else "turned"

    def one(joint: type[Joint], i: Any) -> None:
        b = tree.v_start(i)
        qi, x = q.at(tree.q_start(i)).get(0, joint.nq), source.at(b).get(0, joint.nv)
        target.at(b).put(0, getattr(joint, name)(tree.link(i), qi, x))

    copy(tree.nv, source, target)  # as most joints do
    turning = [(k, joint) for k, joint in enumerate(JOINTS) if name in vars(joint)]
    for i in tree.links():
        for k, joint in turning:
            for _ in when(tree.kind(i) == k):
                one(joint, i)
