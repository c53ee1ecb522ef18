"""MuJoCo's physics in its form for big worlds: heaps of free bodies against ``mj_step``, and against the form for small
worlds."""

import numpy as np
import pytest
import torch
from mujoco_worlds import GEOMS, LINKED, MEDIUM, heap, load, materials, mujoco_model, steps_of_mujoco, tensors, visited

import backdrive as bd

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")
TOLERANCE = 1e-9  # m/s and m


def check_against_mujoco(name: str, options: bd.MuJoCo, count: int, seed: int) -> None:
    reference, model = mujoco_model(name, options), load(name)
    quick = mujoco_model(name, options)
    quick.opt.tolerance, reference.opt.iterations = 1e-6, 100
    q, v, u = visited(quick, 40, seed)
    q, v, u = (x[:: 40 // count] for x in (q, v, u))
    after_q, after_v, contacts = steps_of_mujoco(reference, q, v, u)
    simulator = bd.Simulator(model, physics=options)
    assert simulator.sparse
    with torch.no_grad():
        path = simulator.rollout(bd.State(*tensors(q, v)), steps=1)
    assert contacts.max() > model.nbody // 2
    assert bool(path.status.converged.all())
    assert np.abs(path.q[-1].numpy() - after_q).max() < TOLERANCE
    assert np.abs(path.v[-1].numpy() - after_v).max() < TOLERANCE


@pytest.mark.parametrize("integrator", ["euler", "implicitfast"])
@pytest.mark.parametrize("cone", ["pyramidal", "elliptic"])
def test_a_heap_moves_as_in_mujoco(cone, integrator):
    for seed in range(2):
        name = heap(25, seed=seed, geom=f'condim="{(3, 4)[seed]}"')
        check_against_mujoco(name, bd.MuJoCo(cone=cone, integrator=integrator), 8, seed)


@pytest.mark.slow
@pytest.mark.parametrize("cone", ["pyramidal", "elliptic"])
def test_a_heap_of_a_hundred_moves_as_in_mujoco(cone):
    check_against_mujoco(heap(100, geom='margin="0.004"'), bd.MuJoCo(cone=cone), 4, seed=0)


MIXED = [
    ("elliptic", "implicitfast", heap(8, GEOMS, geom='condim="6" margin="0.01"')),
    ("pyramidal", "euler", heap(8, GEOMS, 1, 'adhesion="0.3" gap="0.02" surfacevel="0 0.1 0.2 0.3 0 0"')),
    ("pyramidal", "implicit", heap(8, GEOMS[:2], 2).replace("<freejoint/>", '<joint type="free" damping="0.3"/>')),
    ("elliptic", "euler", heap(8, GEOMS[:2], 3, 'condim="1"').replace('"plane"', '"plane" margin="0.03"')),
]


@pytest.mark.parametrize(("cone", "integrator", "name"), MIXED)
def test_both_forms_are_the_same(cone, integrator, name):
    options = bd.MuJoCo(cone=cone, integrator=integrator)
    q, v, _ = visited(mujoco_model(name, options), 30, seed=3)
    state, model = bd.State(*tensors(q[::2], v[::2])), load(name)
    with torch.no_grad():
        big, small = (
            bd.Simulator(model, physics=options, sparse=sparse, specialize=False).rollout(state, steps=2)
            for sparse in (True, False)
        )
    assert bool((small.status.contacts > 0).any())
    for which in ("q", "v"):
        assert float((getattr(big, which) - getattr(small, which)).abs().max()) < 1e-11
    for which in ("contacts", "depth"):
        assert torch.allclose(getattr(big.status, which), getattr(small.status, which), rtol=0.0, atol=1e-12)
    assert torch.allclose(*(path.contacts.force.sum(2) for path in (big, small)), rtol=1e-9, atol=1e-9)


def test_single_precision_is_close():
    name, options = heap(25), bd.MuJoCo()
    q, v, _ = visited(mujoco_model(name, options), 3, seed=0)
    paths = []
    for dtype in (torch.float64, torch.float32):
        state = bd.State(*(x.to(dtype) for x in tensors(q, v)))
        with torch.no_grad():
            paths.append(bd.Simulator(load(name), physics=options, dtype=dtype).rollout(state, steps=1))
    assert float((paths[0].v[-1] - paths[1].v[-1]).abs().max()) < 2e-3


def test_a_world_that_is_not_finite_is_marked_and_others_are_not():
    model = load(heap(25))
    simulator = bd.Simulator(model, physics="mujoco", nonfinite="mark")
    q, v = (x.expand(2, -1).clone() for x in model.initial_state())
    v[1, 3] = torch.nan
    path = simulator.rollout(bd.State(q, v), steps=2)
    assert path.status.finite.tolist() == [[True, False]] * 2
    assert bool(path.q[:, 0].isfinite().all())


def test_big_worlds_are_chosen_where_they_can_be():
    assert bd.Simulator(load(heap(25)), physics="mujoco").sparse
    assert not bd.Simulator(load(heap(24)), physics="mujoco").sparse
    assert not bd.Simulator(load(heap(25)), physics=bd.MuJoCo(integrator="rk4")).sparse
    assert not bd.Simulator(load(heap(25)), physics="mujoco", sparse=False).sparse


@pytest.mark.parametrize(
    ("name", "integrator", "reason"),
    [
        (heap(3), "rk4", "integrator is 'rk4'"),
        (LINKED, None, "motors"),
        (MEDIUM.replace("<actuator>", "<!--").replace("</actuator>", "-->"), None, "joints other than free"),
        (materials().replace('<joint axis="0 0 1"/>', "<freejoint/>"), None, "material of their own"),
    ],
)
def test_what_big_worlds_do_not_support_is_refused(name, integrator, reason):
    with pytest.raises(NotImplementedError, match=f"big worlds.*{reason}"):
        bd.Simulator(load(name), physics=bd.MuJoCo(integrator=integrator), sparse=True)
