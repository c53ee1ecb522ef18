"""The sparse form behind the simulator: when it is taken, what it refuses, and that its bits are its own affair."""

import copy

import numpy as np
import pytest
import torch
from piles import pile, settled

import backdrive as bd
from backdrive.physics.scheme import RigidContact, Scheme
from backdrive.piles.step import Engine, WorldState
from backdrive.piles.world import PileWorld


def test_auto_takes_it_for_many_free_bodies():
    assert not bd.Simulator(pile(23, dim=2), 0.01).sparse
    assert bd.Simulator(pile(24, dim=2), 0.01).sparse
    assert not bd.Simulator(pile(24, dim=2), 0.01, sparse=False).sparse
    assert bd.Simulator(pile(3, dim=2), 0.01, sparse=True).sparse
    assert not bd.Simulator(pile(3, dim=2), 0.01, sparse=True).impacts


def test_impacts_that_are_asked_for_are_not_dropped():
    """Restitution may come as a parameter, where the model has none."""
    sim = bd.Simulator(pile(24, dim=2), 0.01, impacts=True)
    assert sim.impacts and not sim.sparse
    with pytest.raises(ValueError, match="the sparse form takes plain steps"):
        bd.Simulator(pile(24, dim=2), 0.01, impacts=True, sparse=True)


def with_joint(joint, **motor):
    scene = bd.Scene(dim=2)
    scene.add_static(bd.HalfSpace(normal=(0, 1)))
    scene.add_body("a", bd.Box(0.2, 0.2), mass=1.0, position=(0.0, 1.0))
    scene.add_body("b", bd.Circle(0.2), mass=1.0, position=(0.0, 2.0))
    if joint is not None:
        scene.add_joint("joint", joint, parent=None, child="a", anchor=(0.0, 1.0))
    if motor:
        scene.add_motor("motor", joint="joint", **motor)
    return scene.build()


def test_what_has_no_sparse_form_is_refused():
    with pytest.raises(ValueError, match="joints other than planar"):
        bd.Simulator(with_joint(bd.Hinge()), 0.01, sparse=True)
    with pytest.raises(ValueError, match="motors"):
        bd.Simulator(with_joint(bd.Hinge(), gear=1.0), 0.01, sparse=True)
    with pytest.raises(ValueError, match="sparse must be"):
        bd.Simulator(with_joint(None), 0.01, sparse="yes")


def test_nothing_is_left_of_another_rollout():
    """Memory and neighbours are kept between rollouts; no bit depends on what was rolled out before."""
    model = pile(24, dim=3)
    state, fresh = settled(bd.Simulator(model, 0.01), 25), bd.Simulator(model, 0.01)
    up = model.parameter("shape_position").clone()
    up[0, 2] += 0.05  # the ground: it reaches bodies that were not near it
    cases = ({}, {"shape_position": up})
    alone = [bd.Simulator(model, 0.01).rollout(state, steps=5, parameters=given) for given in cases]
    for k, given in ((0, cases[0]), (1, cases[1]), (0, cases[0])):
        fresh.rollout(model.initial_state(), steps=3)
        path = fresh.rollout(state, steps=5, parameters=given)
        assert torch.equal(path.q, alone[k].q) and torch.equal(path.v, alone[k].v)
    assert not torch.equal(alone[0].q, alone[1].q)


def test_the_rest_of_a_trajectory_is_there():
    model = pile(24, dim=3)
    simulator = bd.Simulator(model, 0.01)
    path = simulator.rollout(model.initial_state(batch=2), steps=3)
    assert path.position("body 3").shape == (4, 2, 3)
    assert path.status.residual.shape == (3, 2)
    assert torch.allclose(path.position("body 0")[:, 0], path.q[:, 0, :3])


def test_a_step_is_a_rollout_of_one():
    model = pile(24, dim=2)
    simulator = bd.Simulator(model, 0.01)
    state = settled(simulator, 20)
    one, path = simulator.step(state), simulator.rollout(state, steps=1)
    assert torch.equal(one.q, path.last.q) and torch.equal(one.v, path.last.v)
    v = state.v.clone().requires_grad_()
    simulator.step(bd.State(state.q, v)).v.square().sum().backward()
    w = state.v.clone().requires_grad_()
    simulator.rollout(bd.State(state.q, w), steps=1).last.v.square().sum().backward()
    assert torch.equal(v.grad, w.grad)


def test_the_same_bits_whatever_the_batch_and_the_threads():
    model = pile(24, dim=3)
    state = settled(bd.Simulator(model, 0.01), 20)
    alone = bd.Simulator(model, 0.01, threads=1).rollout(state, steps=4)
    batch = bd.State(state.q.expand(3, -1), state.v.expand(3, -1))
    for threads in (1, 2):
        path = bd.Simulator(model, 0.01, threads=threads).rollout(batch, steps=4)
        for k in range(3):
            assert torch.equal(path.q[:, k], alone.q) and torch.equal(path.status.residual[:, k], alone.status.residual)


@pytest.mark.parametrize("dim", [2, 3])
def test_the_same_bits_whatever_the_lanes(dim):
    model = pile(30, dim=dim)
    scheme, ends = Scheme(bd.SemiImplicitEuler(), RigidContact(bd.ProjectedGaussSeidel(iterations=10))), []
    for lanes in (1, 4, 8):
        engine = Engine(model, 0.01, scheme, 2, 64, False, False, lanes=lanes)
        world, state = PileWorld(engine, None, model.constants), WorldState(model.q0.copy(), model.v0.copy(), None)
        for _ in range(20):
            step = world.forward({}, 0, state)
            state = step.after
        ends.append((state.q, state.v, step.status))
    assert step.contacts.count > 20
    for q, v, status in ends[1:]:
        assert np.array_equal(q, ends[0][0]) and np.array_equal(v, ends[0][1])
        assert status == ends[0][2]


def test_copies_and_transforms_work():
    model = pile(24, dim=2)
    simulator = copy.deepcopy(bd.Simulator(model, 0.01))
    assert simulator.sparse
    state = settled(simulator, 20)

    def loss(v):
        return simulator.rollout(bd.State(state.q, v), steps=2).last.v.square().sum()

    v = state.v.clone().requires_grad_()
    loss(v).backward()
    assert torch.equal(torch.func.grad(loss)(state.v), v.grad)
    mapped = torch.func.vmap(torch.func.grad(loss))(torch.stack([state.v, 0.5 * state.v]))
    assert torch.equal(mapped[0], v.grad)


def test_what_is_not_finite_is_reported():
    model = pile(24, dim=2)
    simulator = bd.Simulator(model, 0.01)
    state = model.initial_state()
    state.v[5] = float("nan")
    with pytest.raises(ValueError, match="state.v is not finite"):
        simulator.rollout(state, steps=2)
    marked = bd.Simulator(model, 0.01, nonfinite="mark").rollout(state, steps=2)
    assert not marked.status.finite.any()
