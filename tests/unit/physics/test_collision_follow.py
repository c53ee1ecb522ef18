"""Contact points that are followed to other poses: those of the same features, or of places that are found anew."""

import numpy as np
from hypothesis import assume, given, settings
from placed_pairs import SEEDS

import backdrive as bd
from backdrive.ir import Floats
from backdrive.physics.constraints.constraints import ConstraintForm, Constraints
from backdrive.physics.constraints.tables import constraint_tables
from backdrive.physics.geometry.collision import contacts_adjoint, find_contacts, follow_contacts
from backdrive.physics.geometry.solids import ACTIVE, CONTACT_POINT, FAR
from backdrive.physics.math import spatial as sp
from backdrive.physics.tree.poses import pose_size

SLOTS, WIDTH, PLACE = 2, pose_size(2), 12  # of a capsule and a cylinder; numbers of a pose with two twists; without
LONG = 10.0  # s: contact points count whatever their gap


def capsule_and_cylinder():
    scene = bd.Scene(3)
    scene.add_body("capsule", bd.Capsule(0.1, 0.4), mass=1.0)
    scene.add_body("cylinder", bd.Cylinder(0.15, 0.4), mass=1.0)
    model = scene.build()
    tables = constraint_tables(model)
    ints, floats, constants = (Floats(x.tolist()) for x in (tables.ints, tables.floats, model.constants))
    sizes = (model.nshape, model.npair, tables.nslot, tables.nsingle, False)
    return Constraints(ConstraintForm(3, 2, "mean", False, tables.kinds), *sizes, ints, floats, constants)


CONSTRAINTS = capsule_and_cylinder()


def random_poses(rng):
    """Rotations and origins of the world and of two links that nearly touch each other, and their velocities."""
    turns = [np.array([1.0, 0, 0, 0]), *rng.normal(size=(2, 4))]
    places = [np.zeros(3), np.zeros(3), rng.normal(size=3)]
    places[2] *= 0.3 / np.linalg.norm(places[2])
    twists = np.concatenate([np.zeros((1, 12)), rng.normal(size=(2, 12))])
    return np.concatenate(
        [
            np.concatenate([sp.rotation_of(tuple((q / np.linalg.norm(q)).tolist())), x, twist])
            for q, x, twist in zip(turns, places, twists)
        ]
    )


def turned(poses, rng, angle):
    """The poses a little later."""
    later = poses.reshape(3, WIDTH).copy()
    for link in (1, 2):
        R = np.reshape(sp.rotation_of(sp.quaternion_exp(tuple((angle * rng.normal(size=3)).tolist()))), (3, 3))
        later[link, :9] = (R @ later[link, :9].reshape(3, 3)).ravel()
        later[link, 9:12] += 0.1 * angle * rng.normal(size=3)
    return later.ravel()


def points(contacts):
    return np.array([contacts.record(k).get(0, CONTACT_POINT) for k in range(SLOTS)], float)


def active(contacts):
    return np.array([contacts.record(k)[ACTIVE] > 0.5 for k in range(SLOTS)])


def found(poses):
    return find_contacts(CONSTRAINTS, Floats(poses.tolist()), WIDTH, LONG, changing=True)


def followed(contacts, poses):
    return follow_contacts(CONSTRAINTS, contacts, Floats(poses.tolist()), WIDTH)


@settings(max_examples=60, deadline=None)
@given(SEEDS)
def test_a_capsule_touches_a_cylinder_where_it_is_deepest_now(seed):
    """Followed from another pose, contact points and their derivatives are those that are found."""
    rng = np.random.default_rng(seed)
    before = random_poses(rng)
    later = turned(before, rng, 0.1)
    contacts, right = followed(found(before), later), found(later)
    np.testing.assert_allclose(points(contacts), points(right), rtol=0, atol=1e-9)
    both = active(contacts) & active(right)  # a point may be there at one of the poses only
    seeds, gradients = np.where(np.repeat(both, CONTACT_POINT), rng.normal(size=SLOTS * CONTACT_POINT), 0.0), []
    for each in (contacts, right):
        bars = Floats([0.0] * 3 * WIDTH)
        given_seeds = Floats(seeds.tolist())
        contacts_adjoint(CONSTRAINTS, each, Floats(later.tolist()), WIDTH, given_seeds, bars, None)
        gradients.append(np.array(bars.values).reshape(3, WIDTH)[:, :PLACE])
    scale = 1.0 + np.abs(gradients[1]).max()
    np.testing.assert_allclose(gradients[0], gradients[1], rtol=0, atol=1e-6 * scale)


@settings(max_examples=60, deadline=None)
@given(SEEDS)
def test_a_point_that_is_gone_does_not_count(seed):
    """Of two points that have merged since, one is gone: its gap is none, and must not set the scale of speeds."""
    rng = np.random.default_rng(seed)
    before = random_poses(rng)
    poses = before.reshape(3, WIDTH)
    poses[2, :9] = poses[1, :9]  # parallel: two points
    poses[2, 9:12] = poses[1, 9:12] + 0.27 * poses[1, [0, 3, 6]]
    first = found(poses.ravel())
    assume((points(first)[:, 0] < 0.5 * FAR).all())
    contacts = followed(first, turned(poses.ravel(), rng, 0.3))
    gone = points(contacts)[:, 0] > 0.5 * FAR
    assume(gone.any())
    assert not active(contacts)[gone].any()
    assert active(contacts)[~gone].any()
