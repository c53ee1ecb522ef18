"""The broad phase finds every pair that is near, and what it finds does not depend on its history."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from piles import pile

import backdrive as bd
from backdrive.physics.scheme import RigidContact, Scheme
from backdrive.piles.broad_phase import overlapping
from backdrive.piles.memory import Memory
from backdrive.piles.step import Engine
from backdrive.piles.tables import PileConstants


def pairs_of(boxes):
    low, high = boxes[:, :3] - boxes[:, 3:], boxes[:, :3] + boxes[:, 3:]
    near = ((low[:, None] <= high[None]) & (low[None] <= high[:, None])).all(-1)
    return {frozenset(pair) for pair in np.argwhere(np.triu(near, 1)).tolist()}


@given(st.integers(0, 60), st.integers(0, 2**32), st.sampled_from([0.0, 0.5, 2.0]), st.sampled_from([1.0, 1e6]))
@settings(max_examples=60)
def test_all_overlapping_boxes_are_found(count, seed, variety, apart):
    """Boxes of all sizes, some of them far away."""
    random = np.random.default_rng(seed)
    places = random.uniform(-1, 1, size=(count, 3)) * apart ** random.integers(0, 2, size=(count, 1))
    boxes = np.concatenate([places, 0.2 * np.exp(variety * random.normal(size=(count, 3)))], axis=1)
    found = list(zip(*(x.tolist() for x in overlapping(boxes))))
    assert {frozenset(pair) for pair in found} == pairs_of(boxes)
    assert len(found) == len({frozenset(pair) for pair in found})


def engine_of(model, **settings):
    contact_model = RigidContact(bd.ProjectedGaussSeidel(iterations=20))
    return Engine(model, 0.01, Scheme(bd.SemiImplicitEuler(), contact_model), 2, 64, False, False, **settings)


@pytest.mark.parametrize("dim", [2, 3])
def test_every_contact_of_all_pairs_is_found(dim):
    """Those that the dense form finds among all pairs."""
    model = pile(25, seed=3, dim=dim, step=True)
    dense = bd.Simulator(model, 0.01, sparse=False, impacts=False, specialize=False)
    sparse = bd.Simulator(model, 0.01, sparse=True, solver=bd.ProjectedGaussSeidel(iterations=20_000, tolerance=1e-11))
    path = sparse.rollout(model.initial_state(), steps=40)
    a, b = (simulator.rollout(path[25], steps=1) for simulator in (dense, sparse))
    assert a.status.contacts[0] > 20
    assert a.status.contacts[0] == b.status.contacts[0]
    assert abs(float(a.status.depth[0] - b.status.depth[0])) < 1e-12


def test_pairs_do_not_depend_on_the_steps_before():
    model = pile(40, seed=5)
    engine = engine_of(model)
    constants, memory = PileConstants(engine.tables, engine.body, model.constants.copy()), Memory(np.float64)
    old = engine.broad_phase()
    q, v, random = model.q0.copy(), model.v0.copy(), np.random.default_rng(0)
    searches = 0
    for _ in range(30):
        q[: 7 * 40] += 0.005 * random.normal(size=len(q))
        free = engine.free_motion(memory, constants, q, v, None)
        found = []
        for near in (old, engine.broad_phase()):
            before = near.boxes
            found.append(near.find(memory, *engine.place_shapes(memory, constants, free, near.boxes)))
            searches += near is old and near.boxes is not before
        a, b = found
        for name in ("a", "b", "key", "slots", "body_a", "body_b", "first_slot", "pair_of_slot"):
            assert np.array_equal(getattr(a, name), getattr(b, name))
        assert [some[:5] for some in a.by_class] == [some[:5] for some in b.by_class]
    assert 1 < searches < 30
