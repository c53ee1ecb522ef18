"""Rates of rotation vectors, for Runge-Kutta methods on rotations (Munthe-Kaas 1998).

A stage at q₀ ⊕ δ moves with v. The rate of its displacement is v for coordinates that are numbers; for a rotation
vector θ it is  dexp⁻¹(ω) = ω + θ × ω / 2 + c θ × (θ × ω),  c = (1 - θ/2 cot(θ/2)) / θ².
"""

from __future__ import annotations

from collections.abc import Iterator

from ...ir import Index, Scalar, ScalarArray, loop, select, sincos, sqrt, vjp, when
from ..math import spatial as sp
from ..math.arrays import accumulate, copy
from ..math.spatial import VECTOR, Vec
from ..tree.joints import JOINTS
from ..tree.tree import Tree

SMALL = 0.01  # rad²; below, c is its series


def rotation_rate(theta: Vec, w: Vec) -> Vec:
    """The rate of a rotation vector (rad/s) whose rotation has the angular velocity w (rad/s), in its own axes."""
    square = sp.dot(theta, theta)
    near = square < SMALL
    angle = sqrt(select(near, 1.0, square))
    sine, cosine = sincos(0.5 * angle)
    series = 1.0 / 12.0 + square * (1.0 / 720.0 + square * (1.0 / 30240.0 + square * (1.0 / 1209600.0)))
    c = select(near, series, (1.0 - 0.5 * angle * cosine / sine) / (angle * angle))
    turned = sp.cross(theta, w)
    return sp.add(w, sp.add(sp.scale(0.5, turned), sp.scale(c, sp.cross(theta, turned))))


def displacement_rates(tree: Tree, displacement: ScalarArray, v: ScalarArray, target: ScalarArray) -> None:
    """target [nv] = the rate of a displacement [nv] from the start, at the velocity v [nv]."""
    copy(tree.nv, v, target)
    for start in _rotations(tree):
        target.at(start).put(0, rotation_rate(displacement.at(start).get(0, VECTOR), v.at(start).get(0, VECTOR)))


def displacement_rates_adjoint(
    tree: Tree, displacement: ScalarArray, v: ScalarArray, rate_bar: ScalarArray, displacement_bar: ScalarArray,
    v_bar: ScalarArray,
) -> None:  # fmt: skip
    """Set the cotangents of the displacement and of v, [nv] each."""
    copy(tree.nv, rate_bar, v_bar)
    for k in loop(tree.nv):
        displacement_bar[k] = 0.0
    for start in _rotations(tree):
        inputs = (*displacement.at(start).get(0, VECTOR), *v.at(start).get(0, VECTOR))

        def rate(*x: Scalar) -> Vec:
            return rotation_rate(x[:VECTOR], x[VECTOR:])

        _, gradient = vjp(rate, inputs, rate_bar.at(start).get(0, VECTOR))
        v_bar.at(start).put(0, tuple(gradient[VECTOR:]))
        accumulate(displacement_bar.at(start), tuple(gradient[:VECTOR]))


def _rotations(tree: Tree) -> Iterator[Index]:
    """Where the rotations start in v, which are the last coordinates of their links."""
    for i in tree.links():
        for joint in JOINTS:
            if joint.spins:
                for _ in when(tree.kind(i) == int(joint.kind)):
                    yield tree.v_start(i) + (joint.nv - VECTOR)
