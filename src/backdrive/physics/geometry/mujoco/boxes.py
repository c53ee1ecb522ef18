"""Two boxes: up to eight contacts of two faces, or one contact of two edges.

The axis of least penetration (or greatest separation) is the normal of a face or the cross product of two edges. Edges
that give nearly the same axis as a face are passed over. The contacts of two faces are the corners of their overlap,
seen along the normal of the reference face. The search finds the axis and the corners; `box_box` computes the contacts.
"""

from __future__ import annotations

from collections.abc import Sequence

from ....ir import Mask, Scalar, absolute, clip, select
from ...math.arrays import split
from ...math.spatial import Vec, add, cross, dot, matmul, neg, rotate, scale, sub, transpose, unrotate
from ..pairs.boxes import CORNERS, BoxFaceContact, edge_separation, face_separation, pick
from ..pairs.common import along, choose, guarded, times, unit
from ..solids import Solid
from .contacts import GeomContact, GeomPair, choose_contact, contact, keep

SLOTS = 8
"""Corners of the overlap of two rectangles, at most."""

NEAR = 0.99
"""Cosine of the angle between the axes of edges and of a face above which the face is preferred, ..."""

WORSE = 0.05
"""... unless its separation is less by this part."""


SAME = 1e-12
"""Corners that are closer, relative to the faces, are one: equal boxes on each other have four contacts."""


class _Faces:
    """The faces of two boxes at each other, in the axes of the reference face.

    of_second: whether the second box has the reference face; k: its axis.
    """

    def __init__(self, a: Solid, b: Solid, of_second: Mask, k: Scalar) -> None:
        half_a, half_b = scale(0.5, a.size), scale(0.5, b.size)
        C, d = matmul(transpose(a.axes), b.axes), sub(b.center, a.center)
        self.face = BoxFaceContact(
            choose(of_second, half_b, half_a),
            choose(of_second, half_a, half_b),
            choose(of_second, transpose(C), C),
            choose(of_second, neg(unrotate(b.axes, d)), unrotate(a.axes, d)),
            k,
        )

    def corners(self) -> list[tuple[Mask, Vec]]:
        """Twelve candidates for corners of the overlap, and which of them exist: coordinates (m) along the reference
        face, and height over it. 0 to 3: where an edge of the incident face enters the reference face. 4 to 7: where it
        leaves. 8 to 11: the corners of the reference face. Of corners at the same place, only the first exists."""
        face, enters, leaves, below = self.face, [], [], []
        for e in range(4):
            x, y = face.corner(e), face.corner(e + 1)
            cut = face.clip_edge(x, y)
            edge = sub(y, x)
            enters.append((cut.cut0 + cut.cut1 <= 1.0, along(x, edge, cut.cut0)))
            leaves.append(((cut.cut0 + cut.cut1 < 1.0 - SAME) & (cut.cut1 > SAME), along(y, edge, -cut.cut1)))
        (pu, pv, pn), (ru, rv, rn) = face.p, face.r
        area = pu * rv - pv * ru
        inverse = 1.0 / guarded(area)
        for signs in CORNERS:
            u, v = signs[0] * face.half[0], signs[1] * face.half[1]
            du, dv = u - face.middle[0], v - face.middle[1]
            s, t = (du * rv - dv * ru) * inverse, (dv * pu - du * pv) * inverse
            under = (absolute(area) > 1e-30) & (absolute(s) <= 1.0) & (absolute(t) <= 1.0)
            near = SAME * (face.half[0] + face.half[1])
            for exists, place in (*enters, *leaves):
                under = under & ~(exists & (absolute(place[0] - u) < near) & (absolute(place[1] - v) < near))
            below.append((under, (u, v, face.middle[2] + s * pn + t * rn)))
        found = [*enters, *leaves, *below]
        return [(exists, (u, v, n - face.level)) for exists, (u, v, n) in found]


# ------------------------------------------------------------------------------------------ search


def search(a: Solid, b: Solid, margin: Scalar) -> Vec:
    """Whether edges touch (1 or 0) and the local ends of b's and of a's edge; else, whether the second box has the
    reference face (1 or 0), the axis of that face, and the numbers of the corners (-1 in an empty slot)."""
    half_a, half_b = scale(0.5, a.size), scale(0.5, b.size)
    C, d = matmul(transpose(a.axes), b.axes), sub(b.center, a.center)
    d_a, d_b = unrotate(a.axes, d), unrotate(b.axes, d)
    (in_a, k_a), (in_b, k_b) = (
        face_separation(half_a, half_b, C, d_a),
        face_separation(half_b, half_a, transpose(C), d_b),
    )
    of_second = in_b > in_a
    separation, k = select(of_second, in_b, in_a), select(of_second, k_b, k_a)
    edges = edge_separation(half_a, half_b, C, d_a)
    normal = choose(of_second, _column(b, k_b), _column(a, k_a))
    different = absolute(dot(_edge_normal(a, b, edges.ends_a, edges.ends_b), normal)) <= NEAR
    much_better = edges.separation - separation >= WORSE * absolute(separation)
    by_edges = (edges.separation > separation) & (different | much_better)
    numbers = _numbered([exists for exists, _ in _Faces(a, b, of_second, k).corners()])
    return (select(by_edges, 1.0, 0.0), *edges.ends_b, *edges.ends_a, select(of_second, 1.0, 0.0), k, *numbers)


def _numbered(exist: Sequence[Mask]) -> list[Scalar]:
    """The numbers of those that exist, in SLOTS places; -1 in those that are left."""
    numbers: list[Scalar] = [-1.0] * SLOTS
    count: Scalar = 0.0
    for number, exists in enumerate(exist):
        for slot in range(min(number + 1, SLOTS)):
            here = exists & (absolute(count - slot) < 0.5)
            numbers[slot] = select(here, float(number), numbers[slot])
        count = count + select(exists, 1.0, 0.0)
    return numbers


def _column(box: Solid, k: Scalar) -> Vec:
    """Axis k of a box in the world."""
    return tuple(pick(k, box.axes[3 * row : 3 * row + 3]) for row in range(3))


def _placed(box: Solid, point: Vec) -> Vec:
    """A local point, in units of the sides, in the world."""
    return rotate(box.axes, times(box.size, point), box.center)


def _edge_normal(a: Solid, b: Solid, ends_a: Vec, ends_b: Vec) -> Vec:
    """The unit vector from a to b that is orthogonal to both edges."""
    u = rotate(a.axes, times(a.size, sub(ends_a[3:], ends_a[:3])))
    w = rotate(b.axes, times(b.size, sub(ends_b[3:], ends_b[:3])))
    return unit(cross(unit(u), unit(w)))


# ------------------------------------------------------------------------------------------ contacts


def _edge_contact(a: Solid, b: Solid, ends_a: Vec, ends_b: Vec) -> GeomContact:
    """The closest points of two edges; their distance is that along the common normal."""
    x, y = _placed(a, ends_a[:3]), _placed(b, ends_b[:3])
    u, w, r = sub(_placed(a, ends_a[3:]), x), sub(_placed(b, ends_b[3:]), y), sub(x, y)
    uu, ww, uw, ru, rw = dot(u, u), dot(w, w), dot(u, w), dot(r, u), dot(r, w)
    # Places on the edges, from 0 to 1: that of the lines, clamped to a's edge, then b's, then a's again.
    s = clip((uw * rw - ww * ru) / guarded(uu * ww - uw * uw), 0.0, 1.0)
    t = clip((rw + uw * s) / guarded(ww), 0.0, 1.0)
    s = clip((uw * t - ru) / guarded(uu), 0.0, 1.0)
    normal = _edge_normal(a, b, ends_a, ends_b)
    return contact(-dot(r, normal), scale(0.5, add(along(x, u, s), along(y, w, t))), normal)


def _face_contacts(a: Solid, b: Solid, second: Mask, k: Scalar, numbers: Vec) -> list[GeomContact]:
    """The contacts at the corners with these numbers."""
    faces = _Faces(a, b, second, k)
    sign, level = faces.face.sign, faces.face.level
    candidates = [point for _, point in faces.corners()]
    center, axes = choose(second, b.center, a.center), choose(second, b.axes, a.axes)
    outward = scale(sign, tuple(pick(k, axes[3 * row : 3 * row + 3]) for row in range(3)))
    normal = choose(second, neg(outward), outward)
    points = []
    for number in numbers:
        u, v, height = (pick(number, [c[m] for c in candidates]) for m in range(3))
        n = sign * (level + 0.5 * height)
        local = (pick(k, (n, v, u)), pick(k, (u, n, v)), pick(k, (v, u, n)))
        points.append(contact(height, rotate(axes, local, center), normal))
    return points


def box_box(a: Solid, b: Solid, margin: Scalar, features: Vec) -> list[GeomContact]:
    (by_edges,), ends_b, ends_a, (second, k), numbers = split(features, 1, 6, 6, 2, SLOTS)
    of_edges = by_edges > 0.5
    edge = _edge_contact(a, b, ends_a, ends_b)
    result = []
    for slot, point in enumerate(_face_contacts(a, b, second > 0.5, k, numbers)):
        exists = (numbers[slot] > -0.5) & (by_edges < 0.5)
        if slot == 0:
            point = choose_contact(of_edges, edge, point)
            exists = exists | of_edges
        result.append(keep(exists & (point.dist <= margin), point))
    return result


BOX_BOX = GeomPair(SLOTS, box_box, search)
