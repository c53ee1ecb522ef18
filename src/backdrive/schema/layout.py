"""Where every number of a model stands in its flat vector of constants.

``constants`` (float64) holds, in this order:

    nlink records of LINK floats | reference [nq] | nu records of MOTOR floats | gravity [3]
    | nshape records of SHAPE floats | nlimit records of LIMIT floats | nfriction joint frictions
    | nequality records of EQUALITY floats

This module is the only place that knows these positions. It is plain integers, so that the physics
(which is traced, not run on tensors) can import it without importing torch.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum


class Kind(IntEnum):
    """How a link moves relative to its parent. The codes are part of the tables kernels read."""

    FIXED = 0
    HINGE = 1
    SLIDER = 2
    BALL = 3
    PLANAR = 4
    FREE = 5


NQ = (0, 1, 1, 4, 3, 7)
"""Number of position coordinates, indexed by kind code."""

NV = (0, 1, 1, 3, 3, 6)
"""Number of velocity coordinates, indexed by kind code."""

# One LINK record: positions relative to its start.
MASS = 0  # 1: kg
COM = 1  # 3: m, center of mass in the body frame
INERTIA = 4  # 6: kg m^2, xx yy zz xy xz yz about the center of mass, along the body axes
OFFSET = 10  # 3: m, body origin in the parent frame at q = 0
ROTATION = 13  # 9: row major, child to parent coordinates at q = 0
ANCHOR = 22  # 3: m, joint center in the body frame
AXIS = 25  # 3: unit vector in the body frame
STIFFNESS = 28  # 1: N m/rad or N/m
DAMPING = 29  # 1: N m s/rad or N s/m
ARMATURE = 30  # 1: kg m^2 or kg
LINK = 31

# One MOTOR record: force = clip(gain clip(ctrl) + bias0 + bias1 length + bias2 velocity).
GEAR = 0
GAIN = 1
BIAS = 2  # 3
CTRL_LOW = 5
CTRL_HIGH = 6
FORCE_LOW = 7
FORCE_HIGH = 8
MOTOR = 9

GRAVITY = 3


class ShapeKind(IntEnum):
    """What collision knows of a shape. Boxes, polygons and convex meshes are hulls: vertices times a size."""

    SPHERE = 0  # and the circle
    CAPSULE = 1
    CYLINDER = 2
    HULL = 3
    PLANE = 4  # the half-space below it


# One SHAPE record.
PLACE = 0  # 3: m, origin of the shape's frame in the link's; of a plane: its normal (unit vector)
TURN = 3  # 9: row major, from the shape's axes to the link's
SIZE = 12  # 3: m, sphere: radius; capsule, cylinder: radius, length; hull: factor of each axis; plane: offset
FRICTION = 15  # coefficient
RESTITUTION = 16  # 0 to 1
SOFTNESS = 17  # 1/(N s/m): relative speed that a unit of impulse leaves, m/s per N s
SHAPE = 18

# One LIMIT record: the range of a hinge's or slider's coordinate, rad or m; infinite where there is none.
LOW = 0
HIGH = 1
LIMIT = 2

FRICTION_LOSS = 1  # joint friction: the torque or force it takes to move a joint, N m or N


class EqualityKind(IntEnum):
    """One equation between two links a and b (-1: the world)."""

    ALONG = 0  # the points do not part along a direction of a
    ABOUT = 1  # the axes do not turn about a direction of a
    DISTANCE = 2  # the points keep their distance


# One EQUALITY record.
POINT_A = 0  # 3: m, in a's frame
POINT_B = 3  # 3: m, in b's frame
DIRECTION = 6  # 3: unit vector in a's frame
RELATIVE = 9  # 9: row major, from b's axes to a's where nothing is violated
DISTANCE = 18  # 1: m
EQUALITY = 19

INERTIA_INDEX = ((0, 0), (1, 1), (2, 2), (0, 1), (0, 2), (1, 2))
"""Row and column in the 3 x 3 inertia of each of the six stored entries."""


def link_start(link: int) -> int:
    """Position of the LINK record of a link."""
    return link * LINK


def reference_start(nlink: int) -> int:
    """Position of the spring rest positions [nq]."""
    return nlink * LINK


def motor_start(nlink: int, nq: int, motor: int = 0) -> int:
    """Position of the MOTOR record of a motor."""
    return nlink * LINK + nq + motor * MOTOR


def gravity_start(nlink: int, nq: int, nu: int) -> int:
    """Position of the gravity vector [3]."""
    return nlink * LINK + nq + nu * MOTOR


def shape_start(nlink: int, nq: int, nu: int) -> int:
    """Position of the first SHAPE record."""
    return gravity_start(nlink, nq, nu) + GRAVITY


def limit_start(nlink: int, nq: int, nu: int, nshape: int) -> int:
    """Position of the first LIMIT record."""
    return shape_start(nlink, nq, nu) + nshape * SHAPE


def friction_start(nlink: int, nq: int, nu: int, nshape: int, nlimit: int) -> int:
    """Position of the first joint friction."""
    return limit_start(nlink, nq, nu, nshape) + nlimit * LIMIT


def equality_start(nlink: int, nq: int, nu: int, nshape: int, nlimit: int, nfriction: int) -> int:
    """Position of the first EQUALITY record."""
    return friction_start(nlink, nq, nu, nshape, nlimit) + nfriction * FRICTION_LOSS


def constants_size(nlink: int, nq: int, nu: int, nshape: int, nlimit: int, nfriction: int, nequality: int) -> int:
    """Length of the whole vector."""
    return equality_start(nlink, nq, nu, nshape, nlimit, nfriction) + nequality * EQUALITY


def addresses(kinds: Iterable[int]) -> tuple[list[int], list[int], int, int]:
    """Start of each link's coordinates: (qadr, vadr, nq, nv) of links in order."""
    qadr: list[int] = []
    vadr: list[int] = []
    nq = nv = 0
    for kind in kinds:
        qadr.append(nq)
        vadr.append(nv)
        nq += NQ[kind]
        nv += NV[kind]
    return qadr, vadr, nq, nv
