"""Vectors, rotations and spatial algebra on tuples of scalars.

Spatial vectors are six numbers, angular part first (Featherstone, "Rigid Body Dynamics Algorithms", 2008), in the
coordinates of a link's frame and about its origin:

    motion  (ω, v)    angular velocity, velocity of the point of the body at the origin
    force   (n, f)    moment about the origin, force

A 3 x 3 matrix is nine numbers, row by row; a symmetric one is six: xx, yy, zz, xy, xz, yz. A pose (R, p) of a child in
its parent: R rotates child coordinates into parent coordinates, p is the child's origin in the parent.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...ir import Scalar, atan2, is_constant, select, sincos, sqrt

Vec = Sequence[Scalar]  # mostly tuples

VECTOR = 3  # size of a vector
SPATIAL = 6  # size of a spatial vector: angular part, linear part
MATRIX = 9  # size of a 3 x 3 matrix
SYMMETRIC_MATRIX = 6  # size of a symmetric 3 x 3 matrix
ZERO3: Vec = (0.0, 0.0, 0.0)
ZERO6: Vec = (0.0,) * 6
IDENTITY: Vec = (1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0)
UNIT: tuple[Vec, ...] = ((1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0))
ENTRIES = ((0, 0), (1, 1), (2, 2), (0, 1), (0, 2), (1, 2))  # row and column of the stored entries of a symmetric matrix
SYMMETRIC = ((0, 3, 4), (3, 1, 5), (4, 5, 2))  # index at which entry (i, j) of a symmetric matrix is stored


def add(a: Vec, b: Vec) -> Vec:
    return tuple(x + y for x, y in zip(a, b, strict=True))


def sub(a: Vec, b: Vec) -> Vec:
    return tuple(x - y for x, y in zip(a, b, strict=True))


def scale(s: Scalar, a: Vec) -> Vec:
    return tuple(s * x for x in a)


def neg(a: Vec) -> Vec:
    return tuple(-x for x in a)


def dot(a: Vec, b: Vec, plus: Scalar = 0.0) -> Scalar:
    """a · b + plus"""
    for x, y in zip(a, b, strict=True):
        plus = plus + x * y
    return plus


def cross(a: Vec, b: Vec, plus: Vec = ZERO3) -> Vec:
    """a × b + plus"""
    return (
        plus[0] + a[1] * b[2] - a[2] * b[1],
        plus[1] + a[2] * b[0] - a[0] * b[2],
        plus[2] + a[0] * b[1] - a[1] * b[0],
    )


# ------------------------------------------------------------------------------------------ 3 x 3 matrices


def rotate(R: Vec, a: Vec, plus: Vec = ZERO3) -> Vec:
    """R a + plus"""
    return tuple(dot(R[3 * i : 3 * i + 3], a, plus[i]) for i in range(3))


def unrotate(R: Vec, a: Vec, plus: Vec = ZERO3) -> Vec:
    """Rᵀ a + plus"""
    return tuple(dot(R[i::3], a, plus[i]) for i in range(3))


def matmul(A: Vec, B: Vec) -> Vec:
    return tuple(dot(A[3 * i : 3 * i + 3], B[j::3]) for i in range(3) for j in range(3))


def transpose(A: Vec) -> Vec:
    return tuple(A[3 * j + i] for i in range(3) for j in range(3))


def full(S: Vec) -> Vec:
    """All nine entries of a symmetric matrix."""
    return tuple(S[SYMMETRIC[i][j]] for i in range(3) for j in range(3))


def symmetric(A: Vec) -> Vec:
    """The six stored entries of a symmetric matrix."""
    return tuple(A[3 * i + j] for i, j in ENTRIES)


def sym_mul(S: Vec, a: Vec, plus: Vec = ZERO3) -> Vec:
    """S a + plus for a symmetric S."""
    return rotate(full(S), a, plus)


def skew(a: Vec) -> Vec:
    """[a], the matrix of a ×."""
    x, y, z = a
    return (0.0, -z, y, z, 0.0, -x, -y, x, 0.0)


def solve(M: Vec, b: Vec) -> Vec:
    """M⁻¹ b, by Cramer's rule."""
    rows = [M[3 * i : 3 * i + 3] for i in range(3)]
    columns = [cross(rows[(i + 1) % 3], rows[(i + 2) % 3]) for i in range(3)]  # of det(M) M⁻¹
    return scale(1.0 / dot(rows[0], columns[0]), tuple(dot([c[i] for c in columns], b) for i in range(3)))


def rotate_matrix(R: Vec, M: Vec) -> Vec:
    """R M Rᵀ"""
    axis = _coordinate_axis(R)
    if axis is None:
        return matmul(matmul(R, M), transpose(R))
    # A rotation by the angle (cos, sin) = (c, s) in the plane (i, j). It leaves the antisymmetric part of M's block in
    # that plane unchanged; by c² + s² = 1 its symmetric part takes one product e. The other entries of row and column
    # `axis` rotate as vectors.
    i, j = (axis + 1) % 3, (axis + 2) % 3
    c, s = R[3 * i + i], R[3 * j + i]
    e = c * (M[4 * i] - M[4 * j]) - s * (M[3 * i + j] + M[3 * j + i])
    out = list(M)
    out[4 * i], out[4 * j] = M[4 * j] + c * e, M[4 * i] - c * e
    out[3 * i + j], out[3 * j + i] = M[3 * i + j] + s * e, M[3 * j + i] + s * e
    for row, column in ((3, 1), (1, 3)):  # M[k, axis] and M[axis, k]
        x, y = M[row * i + column * axis], M[row * j + column * axis]
        out[row * i + column * axis], out[row * j + column * axis] = c * x - s * y, s * x + c * y
    return tuple(out)


def rotate_symmetric(R: Vec, S: Vec) -> Vec:
    """R S Rᵀ of a symmetric S."""
    return symmetric(rotate_matrix(R, full(S)))


def _coordinate_axis(R: Vec) -> int | None:
    """The coordinate axis about which R rotates, if that is known while tracing: its row and column are constants."""
    for k in range(3):
        others = (3 * k + (k + 1) % 3, 3 * k + (k + 2) % 3, 3 * ((k + 1) % 3) + k, 3 * ((k + 2) % 3) + k)
        if is_constant(R[4 * k], 1.0) and all(is_constant(R[o], 0.0) for o in others):
            return k
    return None


def rotation_about(axis: Vec, angle: Scalar) -> Vec:
    """The rotation by `angle` (rad) about a unit `axis` (Rodrigues); for a coordinate axis most entries fold."""
    (x, y, z), (s, c) = axis, sincos(angle)
    xx, yy, zz = x * x, y * y, z * z
    v = 1.0 - c
    xy, xz, yz = x * y * v, x * z * v, y * z * v
    return (
        xx + c * (yy + zz), xy - z * s, xz + y * s,
        xy + z * s, yy + c * (xx + zz), yz - x * s,
        xz - y * s, yz + x * s, zz + c * (xx + yy),
    )  # fmt: skip


# ------------------------------------------------------------------------------------------ quaternions, w first

SMALL_EXP = 1e-3  # rad²; below this squared angle `quaternion_exp` is a series
SMALL_LOG = 1e-6  # squared length of the vector part below which `quaternion_log` is a series


def quaternion_product(a: Vec, b: Vec) -> Vec:
    """a b"""
    (aw, *av), (bw, *bv) = a, b
    return (aw * bw - dot(av, bv), *add(add(scale(aw, bv), scale(bw, av)), cross(av, bv)))


def normalised(q: Vec) -> Vec:
    """q / |q|"""
    return scale(1.0 / sqrt(dot(q, q)), q)


def rotation_of(q: Vec) -> Vec:
    """The rotation matrix of q / |q|."""
    w, x, y, z = q
    s = 2.0 / dot(q, q)
    sx, sy, sz = s * x, s * y, s * z
    wx, wy, wz = w * sx, w * sy, w * sz
    xx, xy, xz = x * sx, x * sy, x * sz
    yy, yz, zz = y * sy, y * sz, z * sz
    return (
        1.0 - (yy + zz), xy - wz, xz + wy,
        xy + wz, 1.0 - (xx + zz), yz - wx,
        xz - wy, yz + wx, 1.0 - (xx + yy),
    )  # fmt: skip


def quaternion_exp(a: Vec) -> Vec:
    """The quaternion of the rotation vector a (rad): (cos |a|/2, sin(|a|/2) a/|a|), by its series if |a| is small."""
    x = dot(a, a)
    small = x < SMALL_EXP
    angle = sqrt(select(small, 1.0, x))  # avoids a division by zero, in the derivative too
    s, c = sincos(0.5 * angle)
    w = select(small, 1.0 - x * (1 / 8 - x * (1 / 384 - x * (1 / 46080))), c)
    factor = select(small, 0.5 - x * (1 / 48 - x * (1 / 3840 - x * (1 / 645120))), s / angle)
    return (w, *scale(factor, a))


def quaternion_log(q: Vec) -> Vec:
    """The rotation vector of the unit quaternion q, of length at most π rad."""
    w, *v = (select(q[0] < 0.0, -x, x) for x in q)
    x = dot(v, v)
    small = x < SMALL_LOG
    length = sqrt(select(small, 1.0, x))
    ratio = x / (w * w)
    series = (2.0 - ratio * (2 / 3 - ratio * (2 / 5 - ratio * (2 / 7)))) / w
    return scale(select(small, series, 2.0 * atan2(length, w) / length), tuple(v))


# ------------------------------------------------------------------------------------------ spatial vectors


def motion_to_child(R: Vec, p: Vec, m: Vec) -> Vec:
    """A motion of the parent's frame in the child's: X m."""
    return (*unrotate(R, m[:3]), *unrotate(R, cross(m[:3], p, m[3:])))


def force_to_parent(R: Vec, p: Vec, f: Vec) -> Vec:
    """A force of the child's frame in the parent's: Xᵀ f."""
    n, f = rotate(R, f[:3]), rotate(R, f[3:])
    return (*cross(p, f, n), *f)


# ------------------------------------------------------------------------------------------ inertia of a rigid body
# A rigid body is given by the moments of its mass about the origin of its frame: m, h = m c and the symmetric matrix
# Σ = ∫ r rᵀ dm. Moments of several bodies add up, and the Newton-Euler equations are short: the acceleration field
# a + A r, with A = [α] + [ω]² in rigid motion, takes the force (n, f) = ∫ (r, 1) × (a + A r) dm.

BODY = 10  # size of the moments (m, h, Σ)


def _moments(body: Vec) -> tuple[Scalar, Vec, Vec]:
    """m (kg), h (kg m) and Σ (kg m²) of a record of moments."""
    return body[0], body[1:4], body[4:]


def body_moments(mass: Scalar, com: Vec, inertia: Vec) -> Vec:
    """(m, h, Σ) from the inertia about the center of mass: Σ = (tr I / 2) 1 - I + m c cᵀ."""
    h = scale(mass, com)
    half = 0.5 * (inertia[0] + inertia[1] + inertia[2])
    sigma = tuple((half - inertia[k] if i == j else -inertia[k]) + h[i] * com[j] for k, (i, j) in enumerate(ENTRIES))
    return (mass, *h, *sigma)


def body_to_parent(R: Vec, p: Vec, body: Vec) -> Vec:
    """The moments about the parent's origin, in its axes: h' = R h + m p, Σ' = R Σ Rᵀ + R h pᵀ + p (R h)ᵀ + m p pᵀ."""
    m, own_h, own_sigma = _moments(body)
    h = rotate(R, own_h)
    moved = add(h, scale(m, p))
    sigma = rotate_symmetric(R, own_sigma)
    sigma = tuple(x + h[i] * p[j] + p[i] * moved[j] for x, (i, j) in zip(sigma, ENTRIES, strict=True))
    return (m, *moved, *sigma)


def center_of_mass(body: Vec) -> Vec:
    """h / m, m; the origin if there is no mass."""
    m, h, _ = _moments(body)
    return scale(1.0 / select(m <= 0.0, 1.0, m), h)


def moments_about(body: Vec, point: Vec) -> Vec:
    """Σ about another point, in the same axes: Σ - h pᵀ - p hᵀ + m p pᵀ."""
    m, h, sigma = _moments(body)
    rest = sub(h, scale(m, point))
    return tuple(x - h[i] * point[j] - point[i] * rest[j] for x, (i, j) in zip(sigma, ENTRIES, strict=True))


def rigid_field(angular_velocity: Vec, angular_acceleration: Vec) -> Vec:
    """A = [α] + [ω]²: the accelerations of a rigid body's points are a + A r."""
    (x, y, z), (ax, ay, az) = angular_velocity, angular_acceleration
    xx, yy, zz, xy, xz, yz = x * x, y * y, z * z, x * y, x * z, y * z
    return (-(yy + zz), xy - az, xz + ay, xy + az, -(xx + zz), yz - ax, xz - ay, yz + ax, -(xx + yy))


def newton_euler(body: Vec, a: Vec, A: Vec) -> Vec:
    """The force (n, f) that gives the points r of a body the accelerations a + A r.

    f = m a + A h, and n = h × a + the axial vector of A Σ - Σ Aᵀ.
    """
    m, h, symmetric_sigma = _moments(body)
    sigma = full(symmetric_sigma)
    f = rotate(A, h, scale(m, a))
    n = cross(h, a)
    rows, columns = [A[3 * i : 3 * i + 3] for i in range(3)], [sigma[3 * i : 3 * i + 3] for i in range(3)]
    n = tuple(
        dot(rows[(k + 2) % 3], columns[(k + 1) % 3], n[k]) - dot(rows[(k + 1) % 3], columns[(k + 2) % 3])
        for k in range(3)
    )
    return (*n, *f)


# ------------------------------------------------------------------------------------------ articulated inertia
# An articulated inertia is (A, B, C) with  n = A α + B a,  f = Bᵀ α + C a:  A and C are symmetric, B is a full matrix.

INERTIA = 21  # size of (A, B, C)


def _blocks(I: Vec) -> tuple[Vec, Vec, Vec]:
    """A (6 entries), B (9) and C (6) of an articulated inertia."""
    return I[:6], I[6:15], I[15:]


def articulated(body: Vec) -> Vec:
    """The inertia of a rigid body: A = tr(Σ) 1 - Σ, B = [h], C = m 1."""
    m, (hx, hy, hz), sigma = _moments(body)
    trace = sigma[0] + sigma[1] + sigma[2]
    A = (trace - sigma[0], trace - sigma[1], trace - sigma[2], -sigma[3], -sigma[4], -sigma[5])
    return (*A, 0.0, -hz, hy, hz, 0.0, -hx, -hy, hx, 0.0, m, m, m, 0.0, 0.0, 0.0)


def inertia_mul(I: Vec, m: Vec) -> Vec:
    """I m"""
    A, B, C = _blocks(I)
    return (*sym_mul(A, m[:3], rotate(B, m[3:])), *sym_mul(C, m[3:], unrotate(B, m[:3])))


def rank_one_update(I: Vec, a: Vec, b: Vec) -> Vec:
    """I - a bᵀ, for parallel a and b (the result is symmetric)."""
    upper = [a[i] * b[j] for i, j in ENTRIES]
    middle = [a[i] * b[3 + j] for i in range(3) for j in range(3)]
    lower = [a[3 + i] * b[3 + j] for i, j in ENTRIES]
    return sub(I, (*upper, *middle, *lower))


def inertia_to_parent(R: Vec, p: Vec, I: Vec) -> Vec:
    """Xᵀ I X: rotated into the parent's axes, then moved to its origin.

    With [p] the matrix of p ×:  B' = B + [p] C  and  A' = A + [p] Bᵀ - B' [p].
    """
    own_A, own_B, own_C = _blocks(I)
    A, B, C = rotate_symmetric(R, own_A), rotate_matrix(R, own_B), rotate_symmetric(R, own_C)
    CC = full(C)
    columns = [cross(p, CC[3 * j : 3 * j + 3], B[j::3]) for j in range(3)]  # columns of B'
    B2 = tuple(columns[j][i] for i in range(3) for j in range(3))
    A2 = []
    for x, (i, j) in zip(A, ENTRIES, strict=True):
        k, l = (i + 1) % 3, (i + 2) % 3
        x = x + p[k] * B[3 * j + l] - p[l] * B[3 * j + k]  # ([p] Bᵀ)ᵢⱼ = (p × row j of B)ᵢ
        k, l = (j + 1) % 3, (j + 2) % 3
        A2.append(x + p[k] * B2[3 * i + l] - p[l] * B2[3 * i + k])  # -(B' [p])ᵢⱼ = (p × row i of B')ⱼ
    return (*A2, *B2, *C)
