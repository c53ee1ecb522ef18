"""Every joint is consistent with its declaration, and its derivatives with each other."""

import numpy as np
import pytest
from models import random_quaternion

from backdrive.model import joints as public
from backdrive.physics.math import spatial as sp
from backdrive.physics.tree.joints import JOINTS, is_angular
from backdrive.physics.tree.tree import LinkConstants
from backdrive.schema import layout
from backdrive.schema.layout import Kind

EVERY = pytest.mark.parametrize("joint", JOINTS, ids=lambda joint: joint.kind.name.lower())


def random_link(rng) -> LinkConstants:
    record = rng.normal(size=layout.LINK)
    axis, rotation = record[layout.AXIS : layout.AXIS + 3], sp.rotation_of(tuple(random_quaternion(rng)))
    record[layout.AXIS : layout.AXIS + 3] = axis / np.linalg.norm(axis)
    record[layout.ROTATION : layout.ROTATION + 9] = rotation
    return LinkConstants.of(tuple(record.tolist()))


def random_q(joint, rng) -> tuple[float, ...]:
    q = rng.normal(size=joint.nq)
    if joint.kind.coordinates.quaternion is not None:
        q[joint.kind.coordinates.quaternion :] = random_quaternion(rng)
    return tuple(q.tolist())


def test_registry():
    """The joints stand in the order of their codes, and each has its description for users."""
    assert [joint.kind for joint in JOINTS] == list(Kind)
    assert {joint.kind for joint in public.JOINTS} == set(Kind)


def test_angular_coordinates():
    for kind in Kind:
        if kind.coordinates.limitable:
            assert is_angular(kind) == kind.coordinates.angular


@EVERY
def test_sizes(joint):
    rng = np.random.default_rng(0)
    link, q = random_link(rng), random_q(joint, rng)
    v = tuple(rng.normal(size=joint.nv).tolist())
    assert len(joint.columns(link)) == joint.nv
    assert len(joint.integrate(q, v)) == joint.nq
    assert len(joint.displacement(q, q)) == len(joint.covector(q, q)) == joint.nv
    assert len(joint.passive_force(link, q, q, v)) == joint.nv


@EVERY
def test_displacement_is_the_inverse_of_integrate(joint):
    rng = np.random.default_rng(1)
    q, step = random_q(joint, rng), 0.3 * rng.normal(size=joint.nv)
    np.testing.assert_allclose(joint.displacement(joint.integrate(q, tuple(step)), q), step, atol=1e-14)
    np.testing.assert_allclose(joint.displacement(joint.kind.coordinates.unmoved, joint.kind.coordinates.unmoved), 0.0)


@EVERY
def test_link_axes(joint):
    """The rotation of v into the link's axes keeps its length, and `from_link_axes` is its inverse."""
    rng = np.random.default_rng(2)
    link, q, v = random_link(rng), random_q(joint, rng), rng.normal(size=joint.nv)
    y = joint.to_link_axes(link, q, tuple(v))
    np.testing.assert_allclose(np.linalg.norm(y), np.linalg.norm(v))
    np.testing.assert_allclose(joint.from_link_axes(link, q, y), v, atol=1e-14)
    assert joint.in_parent_axes or y == tuple(v)


@EVERY
def test_motion_is_the_rate_of_the_pose(joint):
    """(w, u) = S y and its rate are the derivatives of the pose along q ⊕ t v + t²/2 v̇."""
    rng = np.random.default_rng(3)
    link, q = random_link(rng), random_q(joint, rng)
    v, vdot = rng.normal(size=joint.nv), rng.normal(size=joint.nv)
    t = 1e-4

    def pose(time):
        R, p = joint.pose(link, joint.integrate(q, tuple(time * v + 0.5 * time**2 * vdot)))
        return np.reshape(R, (3, 3)), np.array(p)

    motion = joint.motion(link, q, tuple(v), tuple(vdot), tuple(v))
    (before, left), (R, p), (after, right) = pose(-t), pose(0.0), pose(t)
    spin = R.T @ (after - before) / (2 * t)
    w, u = motion.velocity[:3], motion.velocity[3:]
    np.testing.assert_allclose((spin[2, 1], spin[0, 2], spin[1, 0]), w, atol=1e-6)
    np.testing.assert_allclose(R.T @ (right - left) / (2 * t), u, atol=1e-6)
    np.testing.assert_allclose(R.T @ (right - 2 * p + left) / t**2, motion.acceleration[3:], atol=1e-5)
    np.testing.assert_allclose(motion.virtual, motion.velocity)
