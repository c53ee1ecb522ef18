"""Spatial tendons: paths from site to site in straight lines, whose length has limits."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from functools import partial
from typing import NamedTuple

from ...ir import Mask, Scalar, ScalarArray, loop, maximum, memory, select, sqrt, vjp, workspace
from ...model.soft import Rope
from ...schema import layout
from ..math import spatial as sp
from ..math.arrays import accumulate, split, zero
from ..math.spatial import SPATIAL, Vec
from ..tree.dynamics import Dynamics, reduce
from ..tree.poses import Pose, link_poses, link_poses_adjoint, pose_of, pose_size
from ..tree.tree import Tree
from .problem import SoftProblem
from .rows import SingleRow, limit_gaps, limit_row
from .settings import SoftSettings

LEAST_LENGTH = 1e-15  # m; a shorter part of a path has no direction


class RopePath(NamedTuple):
    """The sites in the world (m), the directions of the parts between them, and the length (m)."""

    points: list[Vec]
    directions: list[Vec]
    length: Scalar

    @classmethod
    def of(cls, rope: Rope, poses: Sequence[Pose]) -> RopePath:
        """poses: of the link of every site."""
        points = [sp.rotate(pose.rotation, site, pose.origin) for pose, site in zip(poses, rope.sites, strict=True)]
        directions, length = [], 0.0
        for a, b in itertools.pairwise(points):
            apart = sp.sub(b, a)
            size = sqrt(maximum(sp.dot(apart, apart), LEAST_LENGTH * LEAST_LENGTH))
            directions.append(sp.scale(1.0 / size, apart))
            length = length + size
        return cls(points, directions, length)

    def rate(self, poses: Sequence[Pose], k: int) -> Scalar:
        """The rate of the length for twist k of the poses."""
        speeds = [pose.velocity(point, k) for pose, point in zip(poses, self.points, strict=True)]
        total: Scalar = 0.0
        for u, a, b in zip(self.directions, speeds[:-1], speeds[1:], strict=True):
            total = sp.dot(u, sp.sub(b, a), total)
        return total

    def pulls(self) -> list[Vec]:
        """The gradient of the length with respect to every point."""
        result = [sp.ZERO3] * len(self.points)
        for i, u in enumerate(self.directions):
            result[i], result[i + 1] = sp.sub(result[i], u), sp.add(result[i + 1], u)
        return result


def rope_rows(
    settings: SoftSettings, h: Scalar, record: Vec, length: Scalar, speed: Scalar
) -> Iterator[tuple[float, Mask, SingleRow]]:
    """The rows of both limits, with their signs, and where they are near; record: ROPE."""
    for sign, gap in limit_gaps(record[layout.ROPE_RANGE : layout.ROPE_RANGE + 2], length):
        on = gap < record[layout.MARGIN]
        yield sign, on, limit_row(settings, h, record, select(on, gap, 0.0), sign * speed)


class RopeRows:
    """The rows of all spatial tendons, and the gradient of their power."""

    def __init__(self, tree: Tree, settings: SoftSettings, h: Scalar) -> None:
        self.tree, self.settings, self.h = tree, settings, h

    def _record(self, i: int) -> Vec:
        return self.tree.constants.at(self.settings.rope_place(i)).get(0, layout.ROPE)

    def add(self, problem: SoftProblem, q: ScalarArray, v: ScalarArray, dynamics: Dynamics) -> None:
        """Put the rows into the problem. Other single rows must be there, with their columns."""
        width, poses = pose_size(1), link_poses(self.tree, q, v)
        for i, rope in enumerate(self.settings.ropes):
            own = [Pose.of(pose_of(poses, link, width)) for link in rope.links]
            path = RopePath.of(rope, own)
            y = self._columns(rope, own, path, dynamics)
            for sign, on, row in rope_rows(self.settings, self.h, self._record(i), path.length, path.rate(own, 0)):
                problem.add_dense(y, select(on, sign, 0.0), on, row)

    def _columns(self, rope: Rope, poses: Sequence[Pose], path: RopePath, dynamics: Dynamics) -> ScalarArray:
        """Y [nv] of the rate of the length: d times the inward half of a solve with the forces of a unit tension."""
        tree = self.tree
        forces, tau, z, y = tree.over_links(SPATIAL), workspace(tree.nv), workspace(tree.nv), memory(tree.nv)
        zero((tree.nlink + 1) * SPATIAL, forces)
        zero(tree.nv, tau)
        for link, pose, site, pull in zip(rope.links, poses, rope.sites, path.pulls(), strict=True):
            f = sp.unrotate(pose.rotation, pull)
            forces.accumulate(link, sp.neg((*sp.cross(site, f), *f)))
        reduce(tree, dynamics.frames, dynamics.factors, tau, z, forces)
        for k in loop(tree.nv):
            y[k] = z[k] / dynamics.factors.inverse[k]
        return y

    def adjoint(
        self, q: ScalarArray, motions: Sequence[ScalarArray], q_bar: ScalarArray, v_bar: ScalarArray,
        constants_bar: ScalarArray | None,
    ) -> None:  # fmt: skip
        """Add the gradient of f · J λ of all rows; motions: v, a and λ [nv]."""
        tree, width = self.tree, pose_size(3)
        poses, bars = link_poses(tree, q, *motions), workspace((tree.nlink + 1) * width)
        zero((tree.nlink + 1) * width, bars)
        for i, rope in enumerate(self.settings.ropes):
            own = [pose_of(poses, link, width) for link in rope.links]
            _, gradient = vjp(partial(self._power, rope), (*self._record(i), *(x for one in own for x in one)), [1.0])
            record_bar, *pose_bars = split(gradient, layout.ROPE, *(width,) * len(own))
            for link, pose_bar in zip(rope.links, pose_bars, strict=True):
                accumulate(bars.at(link * width), pose_bar)
            if constants_bar is not None:
                accumulate(constants_bar.at(self.settings.rope_place(i)), record_bar)
        link_poses_adjoint(tree, poses, bars, q, motions, q_bar, [v_bar, None, None], constants_bar)

    def _power(self, rope: Rope, *x: Scalar) -> list[Scalar]:
        record, *own = split(x, layout.ROPE, *(pose_size(3),) * len(rope.links))
        poses = [Pose.of(one) for one in own]
        path = RopePath.of(rope, poses)
        speed, found, virtual = (path.rate(poses, k) for k in range(3))
        total: Scalar = 0.0
        for sign, on, (reference, law) in rope_rows(self.settings, self.h, record, path.length, speed):
            total = total + select(on, law.force(sign * found - reference) * sign * virtual, 0.0)
        return [total]
