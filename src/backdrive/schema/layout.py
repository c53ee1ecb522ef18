"""The record layouts: where every number of a model stands in its flat vector of constants.

``constants`` (float64) holds, in this order:

    nlink records of LINK floats | reference [nq] | nu records of MOTOR floats | gravity [3]
    | nshape records of SHAPE floats | nlimit records of LIMIT floats | nfriction joint frictions
    | nequality records of EQUALITY floats
    | of a model that MuJoCo's physics can step: nlink records of SOFT_LINK floats, nshape of SOFT_SHAPE, nlimit and
      nfriction of SOFT_JOINT, nequality of SOFT_EQUALITY, nexplicit of SOFT_PAIR
    | of one whose links a fluid drags, or whose weight is compensated: MEDIUM floats, nlink records of MEDIUM_LINK
    | records of TENDON floats, of COUPLING floats, of SWING floats, and of ROPE floats

This module is the only place that knows these offsets. It has plain integers and no torch, so that the physics, which
is traced and does not run on tensors, can import it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, TypeAlias

Size: TypeAlias = Any  # an int; a traced integer (`ir.Index`) in kernels that serve all models


@dataclass(frozen=True)
class JointCoordinates:
    """The coordinates of one kind of joint.

    unmoved [nq]: q of the joint before it has moved. nv: number of velocity coordinates (degrees of freedom).
    quaternion: where in q a unit quaternion (w first) starts; its 4 numbers are the last of q, and the angular velocity
    that belongs to it the last 3 of v. limitable: whether the joint may have limits and dry friction, which takes a
    single coordinate. angular: whether that single coordinate is an angle (rad) and not a length (m).
    """

    unmoved: tuple[float, ...]
    nv: int
    quaternion: int | None = None
    limitable: bool = False
    angular: bool = False


class Kind(IntEnum):
    """How a link moves relative to its parent. The codes are part of the tables that kernels read."""

    FIXED = 0
    HINGE = 1
    SLIDER = 2
    BALL = 3
    PLANAR = 4
    FREE = 5

    @property
    def coordinates(self) -> JointCoordinates:
        return COORDINATES[self]

    @property
    def nq(self) -> int:
        """Number of position coordinates."""
        return len(self.coordinates.unmoved)

    @property
    def nv(self) -> int:
        """Number of velocity coordinates."""
        return self.coordinates.nv


COORDINATES = {
    Kind.FIXED: JointCoordinates((), 0),
    Kind.HINGE: JointCoordinates((0.0,), 1, limitable=True, angular=True),
    Kind.SLIDER: JointCoordinates((0.0,), 1, limitable=True),
    Kind.BALL: JointCoordinates((1.0, 0.0, 0.0, 0.0), 3, quaternion=0),
    Kind.PLANAR: JointCoordinates((0.0, 0.0, 0.0), 3),
    Kind.FREE: JointCoordinates((0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0), 6, quaternion=3),
}

FLOATING = {2: Kind.PLANAR, 3: Kind.FREE}
"""The kind of joint of a body that floats, by the dimension of the scene."""

NQ = tuple(kind.nq for kind in Kind)
"""Number of position coordinates, indexed by kind code."""

NV = tuple(kind.nv for kind in Kind)
"""Number of velocity coordinates, indexed by kind code."""

# A LINK record: offsets from its start.
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
LINK = 31  # size of the record
INERTIAL = 10  # size of its first part: mass, center of mass and inertia

# A MOTOR record: force = gear clip(gain clip(control) + bias0 + bias1 length + bias2 velocity), where length (rad or m)
# and velocity are those of the joint times the gear.
GEAR = 0  # 1: force on the joint per force of the motor
GAIN = 1  # 1: N m or N per unit of control
BIAS = 2  # 3: N m or N; per rad or m; per rad/s or m/s
CTRL_LOW = 5  # 1: least control
CTRL_HIGH = 6  # 1: greatest control
FORCE_LOW = 7  # 1: N m or N, least force
FORCE_HIGH = 8  # 1: N m or N, greatest force
MOTOR = 9  # size of the record

GRAVITY = 3  # size of the gravity vector, m/s^2


class ShapeKind(IntEnum):
    """The shapes that collision distinguishes. Boxes, polygons and convex meshes are hulls: vertices times a size."""

    SPHERE = 0  # a sphere, or a circle in 2D
    CAPSULE = 1
    CYLINDER = 2
    HULL = 3
    PLANE = 4  # the half-space below a plane


class GeomKind(IntEnum):
    """The shapes that MuJoCo's collision distinguishes, with its codes."""

    PLANE = 0
    SPHERE = 2
    CAPSULE = 3
    ELLIPSOID = 4
    CYLINDER = 5
    BOX = 6
    MESH = 7


# A SHAPE record: offsets from its start.
PLACE = 0  # 3: m, origin of the shape's frame in the link's; for a plane, its normal (unit vector)
TURN = 3  # 9: row major, shape to link coordinates
SIZE = 12  # 3: m; sphere: radius; capsule, cylinder: radius, length; hull: scale of each axis (1); plane: offset
FRICTION = 15  # 1: Coulomb coefficient
RESTITUTION = 16  # 1: 0 to 1
SOFTNESS = 17  # 1: m/s per N s, the approach speed that a normal impulse leaves
SHAPE = 18  # size of the record

# A LIMIT record: the range of a hinge's or slider's coordinate.
LOW = 0  # 1: rad or m, -inf if there is no lower limit
HIGH = 1  # 1: rad or m, inf if there is no upper limit
LIMIT = 2  # size of the record

FRICTION_LOSS = 1  # size of a joint friction: the torque (N m) or force (N) that it takes to move the joint


class EqualityKind(IntEnum):
    """One scalar equation between two links a and b (-1: the world)."""

    ALONG = 0  # a point of a and one of b stay together along a direction fixed in a
    ABOUT = 1  # a and b do not rotate relative to each other about a direction fixed in a
    DISTANCE = 2  # a point of a and one of b keep their distance


# An EQUALITY record: offsets from its start.
POINT_A = 0  # 3: m, in a's frame
POINT_B = 3  # 3: m, in b's frame
DIRECTION = 6  # 3: unit vector in a's frame
RELATIVE = 9  # 9: row major, b to a coordinates at which the equation holds
DISTANCE = 18  # 1: m
EQUALITY = 19  # size of the record

# The parameters of a soft constraint, at the start of the SOFT_SHAPE, SOFT_JOINT and SOFT_EQUALITY records.
SOLREF = 0  # 2: time constant (s) and damping ratio; or, both negative, -stiffness and -damping
SOLIMP = 2  # 5: least and greatest impedance, width (m or rad), midpoint, power
SOFT = 7  # size of these

# A SOFT_SHAPE record.
MARGIN = 7  # 1: m; contacts act where the gap is less than the sum of both shapes' margins
SOLMIX = 8  # 1: weight of the shape's solref and solimp in a contact
PRIORITY = 9  # 1: the material of a contact is that of the shape of higher priority
CONDIM = 10  # 1: 1 (frictionless), 3 (sliding), 4 (and torsional) or 6 (and rolling friction)
TORSIONAL = 11  # 1: m, coefficient of torsional friction
ROLLING = 12  # 1: m, coefficient of rolling friction
GAP = 13  # 1: m; contacts with adhesion pull where the gap is less than the sum of both shapes' margins and gaps
ADHESION = 14  # 1: N, the force with which a contact pulls
SURFACE = 15  # 6: m/s and rad/s, in the shape's frame: velocity of the surface, at its origin; angular velocity
SOFT_SHAPE = 21  # size of the record

# A SOFT_PAIR record: the material of an explicit pair, in place of that of its shapes. The first numbers are those of a
# SOFT_SHAPE record, up to MARGIN.
PAIR_GAP = 8  # 1: m
PAIR_ADHESION = 9  # 1: N
PAIR_CONDIM = 10  # 1
PAIR_FRICTION = 11  # 5: sliding (twice), torsional (m) and rolling friction (m, twice)
PAIR_SOLREF = 16  # 2: solref of friction, with elliptic cones; zero if it is that of the contact
SOFT_PAIR = 18  # size of the record

# A SOFT_JOINT record, of a limit or of joint friction. MARGIN: rad or m, from which a limit acts.
JOINT_WEIGHT = 8  # 1: inverse inertia of the coordinate in the reference configuration, 1/kg or 1/(kg m^2)
SOFT_JOINT = 9  # size of the record

# A SOFT_EQUALITY record, of every equation.
TORQUE_SCALE = 7  # 1: m, length that a unit of rotation error of a weld counts as
WELDS = 8  # 1: 1 if rotations are constrained, too: the impedance is that of both errors together; else 0
SOFT_EQUALITY = 9  # size of the record

# A SOFT_LINK record: the inverse inertia of a link in the reference configuration.
LINEAR_WEIGHT = 0  # 1: 1/kg
ANGULAR_WEIGHT = 1  # 1: 1/(kg m^2)
SOFT_LINK = 2  # size of the record

# The MEDIUM around the links, and a MEDIUM_LINK record.
DENSITY = 0  # 1: kg/m^3
VISCOSITY = 1  # 1: Pa s
WIND = 2  # 3: m/s, velocity of the fluid in world axes
MEDIUM = 5  # size of the first
PRINCIPAL = 0  # 9: row major, from the principal axes of a link's inertia to the axes of its frame
GRAVCOMP = 9  # 1: the part of its weight that is held up
MEDIUM_LINK = 10  # size of the record

# A TENDON record, of a fixed tendon: a linear combination of coordinates, its length.
TENDON_STIFFNESS = 0  # 1: N/m, if lengths are in m
TENDON_DAMPING = 1  # 1: N s/m
TENDON_SLACK = 2  # 2: m, the lengths between which the spring is slack
TENDON_LOSS = 4  # 1: N, dry friction
TENDON_RANGE = 5  # 2: m, limits of the length
TENDON_LIMIT = 7  # a SOFT_JOINT record, of the limits
TENDON_RUB = TENDON_LIMIT + SOFT_JOINT  # a SOFT_JOINT record, of the friction
TENDON = TENDON_RUB + SOFT_JOINT  # size of the record

# A COUPLING record, of an equation between two combinations of coordinates. Its first numbers are SOFT ones.
COUPLING_WEIGHT = 7  # 1: inverse inertia in the reference configuration
POLYNOMIAL = 8  # 5: coefficients, that of the constant first
COUPLING_ZERO = 13  # 2: the lengths at which the equation holds if the polynomial is zero
COUPLING = 15  # size of the record

# A SWING record, of a ball joint whose angle is limited.
SWING_LIMIT = 0  # a SOFT_JOINT record
SWING_HIGH = SOFT_JOINT  # 1: rad, the greatest angle
SWING = SOFT_JOINT + 1  # size of the record

# A ROPE record, of a spatial tendon whose length is limited. It starts with a SOFT_JOINT record.
ROPE_RANGE = SOFT_JOINT  # 2: m, limits of the length
ROPE = SOFT_JOINT + 2  # size of the record

INERTIA_INDEX = ((0, 0), (1, 1), (2, 2), (0, 1), (0, 2), (1, 2))
"""Row and column, in the 3 x 3 inertia matrix, of each of the six stored entries."""


def link_start(link: Size) -> Size:
    """Offset of the LINK record of a link."""
    return link * LINK


def reference_start(nlink: Size) -> Size:
    """Offset of the spring rest positions [nq]."""
    return nlink * LINK


def motor_start(nlink: Size, nq: Size, motor: int = 0) -> Size:
    """Offset of the MOTOR record of a motor."""
    return nlink * LINK + nq + motor * MOTOR


def gravity_start(nlink: Size, nq: Size, nu: Size) -> Size:
    """Offset of the gravity vector [3]."""
    return nlink * LINK + nq + nu * MOTOR


def shape_start(nlink: Size, nq: Size, nu: Size) -> Size:
    """Offset of the first SHAPE record."""
    return gravity_start(nlink, nq, nu) + GRAVITY


def limit_start(nlink: Size, nq: Size, nu: Size, nshape: Size) -> Size:
    """Offset of the first LIMIT record."""
    return shape_start(nlink, nq, nu) + nshape * SHAPE


def friction_start(nlink: Size, nq: Size, nu: Size, nshape: Size, nlimit: Size) -> Size:
    """Offset of the first joint friction."""
    return limit_start(nlink, nq, nu, nshape) + nlimit * LIMIT


def equality_start(nlink: Size, nq: Size, nu: Size, nshape: Size, nlimit: Size, nfriction: Size) -> Size:
    """Offset of the first EQUALITY record."""
    return friction_start(nlink, nq, nu, nshape, nlimit) + nfriction * FRICTION_LOSS


def constants_size(
    nlink: Size, nq: Size, nu: Size, nshape: Size, nlimit: Size, nfriction: Size, nequality: Size
) -> Size:
    """Length of the vector of constants."""
    return equality_start(nlink, nq, nu, nshape, nlimit, nfriction) + nequality * EQUALITY


def soft_size(
    nlink: Size, nshape: Size, nlimit: Size, nfriction: Size, nequality: Size, nexplicit: Size = 0
) -> Size:  # fmt: skip
    """Length of the parameters of soft constraints, of a model that MuJoCo's physics can step."""
    shapes, joints = nshape * SOFT_SHAPE, (nlimit + nfriction) * SOFT_JOINT
    return nlink * SOFT_LINK + shapes + joints + nequality * SOFT_EQUALITY + nexplicit * SOFT_PAIR


def medium_size(nlink: Size) -> Size:
    """Length of the last part of the constants, of a model in a medium."""
    return MEDIUM + nlink * MEDIUM_LINK


def addresses(kinds: Iterable[int]) -> tuple[list[int], list[int], int, int]:
    """Where the coordinates of each link start in q and in v, and how many there are: (qadr, vadr, nq, nv)."""
    qadr: list[int] = []
    vadr: list[int] = []
    nq = nv = 0
    for kind in kinds:
        qadr.append(nq)
        vadr.append(nv)
        nq += NQ[kind]
        nv += NV[kind]
    return qadr, vadr, nq, nv
