"""What surrounds the links: the drag of a fluid, and the compensation of their weight; wrenches at centers of mass.

Drag acts on the box that has the link's mass and inertia: along each axis of the box, and about it, it is
-(c₁ + c₂ |x|) x, with x the velocity relative to the fluid, c₁ from its viscosity and c₂ from its density.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from ...ir import Index, Scalar, ScalarArray, absolute, maximum, select, sqrt, vjp, workspace
from ...schema import layout
from ..math import spatial as sp
from ..math.arrays import accumulate, split, zero
from ..math.spatial import SPATIAL, Vec
from ..state import StateArrays
from ..tree.dynamics_adjoint import Cotangents
from ..tree.poses import Pose, link_poses, link_poses_adjoint, pose_of, pose_size
from ..tree.tree import LinkConstants, Tree

LEAST = 1e-15  # links that are lighter (kg) have no drag; moments of inertia are at least this (kg m²)


class Surroundings(NamedTuple):
    """What the wrench on a link depends on besides its pose: MEDIUM, MEDIUM_LINK and LINK floats, and gravity."""

    medium: Vec
    own: Vec
    link: Vec
    gravity: Vec

    @classmethod
    def of(cls, tree: Tree, start: int, i: Index) -> Surroundings:
        """Of link i; start: of the MEDIUM floats in the constants."""
        own = tree.constants.at(start + layout.MEDIUM).get(i, layout.MEDIUM_LINK)
        return cls(tree.constants.at(start).get(0, layout.MEDIUM), own, tree.link_record(i), tree.gravity())


SIZES = (layout.MEDIUM, layout.MEDIUM_LINK, layout.LINK, layout.GRAVITY)


class Drag(NamedTuple):
    """The box of a link: rotation from its axes to the world's, its center, and c₁ and c₂ of its six motions, angular
    ones first."""

    rotation: Vec
    center: Vec
    linear: Vec
    quadratic: Vec

    def motion(self, pose: Pose, k: int, wind: Vec = sp.ZERO3) -> Vec:
        """The angular velocity, and that of the center relative to the wind, for twist k, along the axes of the box."""
        linear = sp.sub(pose.velocity(self.center, k), wind)
        return (*sp.unrotate(self.rotation, pose.twist(k).angular), *sp.unrotate(self.rotation, linear))

    def force(self, x: Vec) -> Vec:
        """Torque and force, along the axes of the box."""
        return tuple(-((a + b * absolute(y)) * y) for a, b, y in zip(self.linear, self.quadratic, x, strict=True))

    def slope(self, x: Vec) -> Vec:
        """The derivative of every component by its own velocity."""
        return tuple(-(a + 2.0 * b * absolute(y)) for a, b, y in zip(self.linear, self.quadratic, x, strict=True))


def drag(around: Surroundings, pose: Pose) -> Drag:
    link = LinkConstants.of(around.link)
    density, viscosity = around.medium[layout.DENSITY], around.medium[layout.VISCOSITY]
    axes = around.own[layout.PRINCIPAL : layout.PRINCIPAL + 9]
    heavy = link.mass > LEAST
    mass = select(heavy, link.mass, 1.0)
    I = [sp.dot(axes[k::3], sp.sym_mul(link.inertia, axes[k::3])) for k in range(3)]
    twice = [maximum(I[(k + 1) % 3] + I[(k + 2) % 3] - I[k], LEAST) for k in range(3)]
    box = [sqrt(6.0 * x / mass) for x in twice]
    mean = (box[0] + box[1] + box[2]) / 3.0
    spin, slide = math.pi * viscosity * (mean * mean * mean), 3.0 * math.pi * viscosity * mean
    spins, slides = [], []
    for k in range(3):
        a, b, c = box[k], box[(k + 1) % 3], box[(k + 2) % 3]
        spins.append(density * a * (_fourth(b) + _fourth(c)) / 64.0)
        slides.append(0.5 * density * (b * c))
    linear, quadratic = (spin,) * 3 + (slide,) * 3, (*spins, *slides)
    linear, quadratic = (tuple(select(heavy, x, 0.0) for x in part) for part in (linear, quadratic))
    rotation = sp.matmul(pose.rotation, axes)
    return Drag(rotation, sp.rotate(pose.rotation, link.com, pose.origin), linear, quadratic)


def _fourth(x: Scalar) -> Scalar:
    return x * x * x * x


def medium_wrench(around: Surroundings, pose: Pose) -> Vec:
    """(force, torque) at the center of mass, in world axes; the first twist of the pose is that of v."""
    box = drag(around, pose)
    found = box.force(box.motion(pose, 0, around.medium[layout.WIND : layout.WIND + 3]))
    held = around.own[layout.GRAVCOMP] * around.link[layout.MASS]
    force = sp.sub(sp.rotate(box.rotation, found[3:]), sp.scale(held, around.gravity))
    return (*force, *sp.rotate(box.rotation, found[:3]))


def with_medium(tree: Tree, start: int, state: StateArrays, wrenches: ScalarArray | None) -> ScalarArray:
    """The wrenches [nlink, 6] with those of the medium; start: of the MEDIUM floats in the constants."""
    total, width = workspace(tree.nlink * SPATIAL), pose_size(1)
    poses = link_poses(tree, state.q, state.v)
    for i in tree.links():
        found = medium_wrench(Surroundings.of(tree, start, i), Pose.of(pose_of(poses, i + 1, width)))
        total.put(i, found if wrenches is None else sp.add(wrenches.get(i, SPATIAL), found))
    return total


def medium_adjoint(
    tree: Tree, start: int, state: StateArrays, wrenches_bar: ScalarArray, cotangents: Cotangents
) -> None:
    """Add the gradient of wrenches_bar · wrenches of the medium to the cotangents."""
    width = pose_size(1)
    poses, poses_bar = link_poses(tree, state.q, state.v), workspace((tree.nlink + 1) * width)
    zero((tree.nlink + 1) * width, poses_bar)

    def wrench(*x: Scalar) -> Vec:
        *around, pose = split(x, *SIZES, width)
        return medium_wrench(Surroundings(*around), Pose.of(pose))

    for i in tree.links():
        around, pose = Surroundings.of(tree, start, i), pose_of(poses, i + 1, width)
        _, gradient = vjp(wrench, [x for part in (*around, pose) for x in part], wrenches_bar.get(i, SPATIAL))
        *around_bars, pose_bar = split(gradient, *SIZES, width)
        accumulate(poses_bar.at((i + 1) * width), pose_bar)
        accumulate_surroundings(tree, start, i, around_bars, cotangents.constants)
    link_poses_adjoint(tree, poses, poses_bar, state.q, [state.v], cotangents.q, [cotangents.v], cotangents.constants)


def accumulate_surroundings(
    tree: Tree, start: int, i: Index, bars: list[Vec], constants_bar: ScalarArray | None
) -> None:
    """Add the cotangents of `Surroundings`; the axes are those of the model, whatever its inertia."""
    if constants_bar is None:
        return
    medium_bar, own_bar, link_bar, gravity_bar = bars
    accumulate(constants_bar.at(start), medium_bar)
    place = start + layout.MEDIUM + i * layout.MEDIUM_LINK
    accumulate(constants_bar.at(place + layout.GRAVCOMP), own_bar[layout.GRAVCOMP :])
    accumulate(constants_bar.at(i * layout.LINK), link_bar[: layout.INERTIAL])
    accumulate(constants_bar.at(layout.gravity_start(tree.nlink, tree.nq, tree.nu)), gravity_bar)
