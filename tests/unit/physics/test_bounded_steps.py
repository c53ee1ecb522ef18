"""However hopeless a state is, a step comes back, and its status tells; a NaN ends the work of its environment."""

import functools
import time

import hypothesis.strategies as st
import numpy as np
import pytest
import torch
from contact_scenes import ROCK
from hypothesis import given, settings

import backdrive as bd
from backdrive.physics.budget import WorkBudget, factoring, looking
from backdrive.piles.budget import PileBudget

OVERLAPPING = 6
LONGEST = 10.0  # s of the processor for all steps of a test


@functools.cache
def rocks(count, restitution=0.3):
    """Hulls above a floor, a meter apart."""
    scene = bd.Scene(dim=3)
    scene.add_static(bd.HalfSpace((0.0, 0.0, 1.0)), restitution=restitution)
    for k in range(count):
        scene.add_body(f"rock {k}", bd.Convex(ROCK), mass=1.0, position=(k, 0.0, 0.5), restitution=restitution)
    return scene.build()


def gathered(model, seed=0, spread=0.05):
    """All of them at nearly the same place."""
    state = model.initial_state()
    q = state.q.view(-1, 7).clone()
    noise = torch.randn(q.shape, generator=torch.Generator().manual_seed(seed), dtype=q.dtype)
    q[:, :3] = torch.tensor([0.0, 0.0, 0.3]) + spread * noise[:, :3]
    q[:, 3:] = torch.nn.functional.normalize(q[:, 3:] + noise[:, 3:], dim=-1)
    return bd.State(q.flatten(), state.v)


def timed(sim, state, steps):
    sim.rollout(sim.model.initial_state(), steps=1)  # builds the kernel
    began = time.process_time()
    path = sim.rollout(state, steps=steps)
    return path, time.process_time() - began


@pytest.mark.parametrize("impacts", [True, False])
def test_overlapping_hulls_come_apart(impacts):
    model = rocks(OVERLAPPING)
    sim = bd.Simulator(model, dt=0.01, impacts=impacts, sparse=False)
    path, seconds = timed(sim, gathered(model), 4)
    status = path.status
    assert seconds < LONGEST
    assert status.finite.all()
    assert status.depth[-1] < status.depth[0] < 1.0 and path.v.abs().max() < 100.0


@pytest.mark.parametrize("impacts", [True, False])
@pytest.mark.parametrize("speed", [1e4, 1e8, 1e15])
def test_a_robot_that_has_diverged_comes_back(impacts, speed):
    scene = bd.Scene(dim=3)
    scene.add_static(bd.HalfSpace((0.0, 0.0, 1.0)), restitution=0.2)
    parent = None
    for k in range(5):
        link = scene.add_body(f"link {k}", mass=1.0, position=(0.3 * k, 0.0, 1.0), inertia=(0.01, 0.01, 0.01))
        for j in range(3):
            scene.add_shape(link, bd.Capsule(0.05, 0.2), position=(0.1 * j, 0.0, 0.0))
        axis = (0.0, 1.0, 0.1 * k)
        scene.add_joint(f"joint {k}", bd.Hinge(axis=axis), parent=parent, child=link, anchor=(0.3 * k - 0.1, 0, 1))
        parent = link
    model = scene.build()
    start = model.initial_state()
    v = speed * torch.linspace(-1.0, 1.0, model.nv, dtype=torch.float64)
    sim = bd.Simulator(model, dt=0.002, impacts=impacts, nonfinite="mark")
    path, seconds = timed(sim, bd.State(start.q, v), 6)
    assert seconds < LONGEST
    assert path.status.finite.shape == (6,)


@settings(max_examples=15, deadline=None)
@given(
    st.integers(0, 10**6), st.integers(0, 3), st.sampled_from([float("nan"), float("inf"), 1e200]), st.booleans(),
    st.booleans(),
)  # fmt: skip
def test_others_do_not_depend_on_an_environment_that_is_not_finite(seed, lane, number, speeds, impacts):
    model = rocks(3)
    sim = bd.Simulator(model, dt=0.01, impacts=impacts, sparse=False, nonfinite="mark")
    generator = torch.Generator().manual_seed(seed)
    starts = [gathered(model, seed + k, spread=0.5) for k in range(4)]
    q, v = (torch.stack([getattr(s, name) for s in starts]) for name in "qv")
    alone = [sim.rollout(s, steps=8) for s in starts]
    spoiled = v if speeds else q
    spoiled[lane, torch.randint(spoiled.shape[1], (), generator=generator)] = number
    path = sim.rollout(bd.State(q, v), steps=8)
    for k in range(4):
        if k != lane:
            assert torch.equal(path.q[:, k], alone[k].q) and torch.equal(path.v[:, k], alone[k].v)
            assert torch.equal(path.status.modes[:, k], alone[k].status.modes)
    finite = path.status.finite[:, lane]
    assert not finite[-1] or number == 1e200
    assert (finite[1:] <= finite[:-1]).all()


@pytest.mark.parametrize("impacts", [True, False])
def test_what_uses_its_budget_up_does_so_in_any_company(impacts):
    """The budget of an environment depends on nothing but itself."""
    model = rocks(OVERLAPPING)
    sim = bd.Simulator(model, dt=0.01, impacts=impacts, sparse=False)
    starts = [gathered(model, 1), model.initial_state(), gathered(model, 2)]
    alone = [sim.rollout(s, steps=2) for s in starts]
    path = sim.rollout(bd.State(*(torch.stack([getattr(s, name) for s in starts]) for name in "qv")), steps=2)
    if impacts:
        assert alone[0].status.fallbacks.any()
    for k, own in enumerate(alone):
        assert torch.equal(path.q[:, k], own.q) and torch.equal(path.v[:, k], own.v)
        assert torch.equal(path.status.converged[:, k], own.status.converged)


def test_budget():
    """Thousands of factorisations of small matrices, few of large ones, none of huge ones."""
    assert 4000 < 1 / factoring(6) < 5000 and 5 < 1 / factoring(500) < 10 and factoring(1500) > 1
    assert 1 / looking(3) > 3000 and 200 < 1 / looking(400) < 300
    budget = WorkBudget()
    count = 0
    while budget.allows(factoring(100.0)):
        budget.spend(factoring(100.0), True)
        count += 1
    assert 900 < count <= 1000
    budget.begin()
    assert budget.allows(0.5)
    budget.use_up(True)
    assert not budget.allows()
    pile = PileBudget()
    pile.sweep(300, 10_000)
    assert pile.left and 10_000 < pile.sweeps(10_000) < 20_000
    for _ in range(2000):
        pile.factor(1000)
    assert not pile.left and pile.sweeps(10) == 0


def crowd(seed, count=20):
    """Boxes and circles in a narrow box, so close that they may overlap, with masses over six orders of magnitude; and
    four states in which they are fast."""
    rng = np.random.default_rng(seed)
    scene = bd.Scene(dim=2)
    for normal, offset in (((0, 1), 0), ((1, 0), -1), ((-1, 0), -1), ((0, -1), -2)):
        scene.add_static(bd.HalfSpace(normal=normal, offset=offset), restitution=1.0, friction=1.0)
    for k in range(count):
        shape = bd.Box(0.2, 0.2) if k % 2 else bd.Circle(0.1)
        position = np.array([-0.9 + 0.25 * (k % 8), 0.12 + 0.25 * (k // 8)])
        position += rng.normal(size=2) * rng.choice([0.0, 0.05])
        mass = 10 ** rng.uniform(-3, 3)
        scene.add_body(f"body {k}", shape, mass=mass, position=position, restitution=1.0, friction=1.0)
    model = scene.build()
    fast = rng.normal(size=(4, model.nv)) * 10 ** rng.uniform(0, 3)
    return model, bd.State(model.initial_state(4).q, torch.tensor(fast))


@settings(max_examples=4, deadline=None, derandomize=True)
@given(st.integers(0, 10**6))
def test_a_crowd_of_fast_bodies_comes_back_and_depends_on_no_company(seed):
    model, state = crowd(seed)
    sim = bd.Simulator(model, dt=1 / 60, impacts=True, sparse=False, specialize=False, threads=1)
    path, seconds = timed(sim, state, 1)
    assert seconds < LONGEST
    assert path.status.finite.all() and (path.status.fallbacks > 0).any() and not path.status.converged.all()
    sum_alone = 0.0
    for k in range(4):
        alone, own = timed(sim, bd.State(state.q[k], state.v[k]), 1)
        sum_alone += own
        assert torch.equal(alone.v, path.v[:, k]) and torch.equal(alone.status.modes, path.status.modes[:, k])
    assert seconds < 4.0 * sum_alone + 1.0  # each has contacts of its own: together, they would solve those of all


@settings(max_examples=3, deadline=None, derandomize=True)
@given(st.integers(0, 10**6), st.sampled_from([bd.ProjectedGaussSeidel(), bd.InteriorPoint()]))
def test_a_crowd_in_a_big_world_comes_back(seed, solver):
    model, state = crowd(seed)
    sim = bd.Simulator(model, dt=1 / 60, impacts=False, sparse=True, solver=solver, threads=1)
    path, seconds = timed(sim, bd.State(state.q[0], state.v[0]), 1)
    assert seconds < LONGEST
    assert path.status.finite.all()
