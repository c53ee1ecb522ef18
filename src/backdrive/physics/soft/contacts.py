"""Contact points within their margins, and their frames.

This is where the contacts of MuJoCo's physics come from: `find_points` asks every pair of shapes for its points, and
`contact_frame` for the directions of friction, on which the result depends where cones are pyramidal.
"""

from __future__ import annotations

from ...ir import Index, Mask, Scalar, absolute, any_lane, loop, select, sqrt, when
from ...model.shapes import SHAPE_KINDS
from ...schema import layout
from ...schema.layout import ShapeKind
from ..constraints.assemble import LinkMotions
from ..constraints.constraints import Constraints
from ..geometry.contact_points import ContactPoints
from ..geometry.narrow_phase import NarrowPhase, PairGroup, place_solid, sorted_pairs
from ..math import spatial as sp
from ..math.spatial import Vec
from ..tree.poses import Pose
from .broad_phase import RoundedBounds
from .constants import SoftConstants

LEAST_LENGTH = 1e-15  # a projected axis that is shorter has no direction


def find_points(constraints: Constraints, soft: SoftConstants, links: LinkMotions, reach: float) -> ContactPoints:
    """All contact points whose gap is less than the margin of their pair.

    reach: the greatest margin of a pair, relative to its smaller shape.
    """
    contacts, (poses, width) = ContactPoints(constraints), links
    pairs = sorted_pairs(constraints.dim)
    prefilter = any(pairs[number][1].prefilter for number in constraints.kinds)
    bounds = RoundedBounds(constraints, poses, width, 0.0, reach, False) if prefilter else None
    for number in constraints.kinds:
        group = PairGroup.of(constraints, number)
        for p in loop(group.end, start=group.first):
            if bounds is None:
                _add(contacts, soft, NarrowPhase(constraints, group, p, poses, width), True)
                continue
            half_space = None
            if not SHAPE_KINDS[group.kinds[1]].bounded:
                half_space = place_solid(group.kinds[1], constraints.shape_record(constraints.pair_shapes(p)[1]), ())
            near = bounds.spheres_near(p, half_space)
            for _ in when(any_lane(near)):
                _add(contacts, soft, NarrowPhase(constraints, group, p, poses, width), near)
    return contacts


def _add(contacts: ContactPoints, soft: SoftConstants, narrow: NarrowPhase, near: Mask) -> None:
    """Add the points of a pair that are within its margin, in the lanes `near`."""
    features, slot, p = narrow.search(), narrow.group.first_slot(narrow.p), narrow.p
    if features:
        contacts.put_features(narrow.group.number, p, features)
    margin = soft.shape(narrow.a)[layout.MARGIN] + soft.shape(narrow.b)[layout.MARGIN]
    points = narrow.points(features)
    active = [near & (point.gap < margin) for point in points]
    contacts.put_pair(p, slot, points, active)


def follows_axis(constraints: Constraints, p: Index) -> Scalar:
    """1 if the frame of pair p's contacts is aligned with the axis of its first shape: a capsule on a plane; else 0."""
    pairs = sorted_pairs(constraints.dim)
    result: Scalar = 0.0
    for number in constraints.kinds:
        if pairs[number][0] == (ShapeKind.CAPSULE, ShapeKind.PLANE):
            group = PairGroup.of(constraints, number)
            result = select((p >= group.first) & (p < group.end), 1.0, 0.0)
    return result


def contact_frame(normal: Vec, follows: Scalar, a: Pose, shape: Vec) -> tuple[Vec, Vec]:
    """The two tangents of a contact.

    The first is the projection of an axis into the tangent plane: of the y axis, or of the z axis where the normal is
    close to y; or, with `follows` 1, of the axis of the first shape. a, shape: its link's pose and its SHAPE record.
    """
    steep = absolute(normal[1]) >= 0.5
    usual = _projected(normal, (0.0, select(steep, 0.0, 1.0), select(steep, 1.0, 0.0)))
    axis = sp.rotate(a.rotation, shape[layout.TURN + 2 : layout.TURN + 9 : 3])
    along = _projected(normal, axis)
    aligned = (follows > 0.5) & (sp.dot(along, along) > LEAST_LENGTH * LEAST_LENGTH)
    first = [select(aligned, x, y) for x, y in zip(along, usual, strict=True)]
    tangent = sp.scale(1.0 / sqrt(sp.dot(first, first)), first)
    return tangent, sp.cross(normal, tangent)


def _projected(normal: Vec, x: Vec) -> Vec:
    return sp.sub(x, sp.scale(sp.dot(normal, x), normal))
