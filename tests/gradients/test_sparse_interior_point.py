"""`InteriorPoint` in one big world: the solution of the dense form, to tolerance, and its gradient."""

import numpy as np
import pytest
import torch
from piles import pile, settled, tower
from test_sparse_gradients import PARAMETERS, check

import backdrive as bd
from backdrive.differences import along, least_error
from backdrive.physics.constraints.delassus import Delassus
from backdrive.physics.scheme import RigidContact, Scheme
from backdrive.physics.solvers import SOLVERS
from backdrive.piles.solvers import PILE_SOLVERS, pile_solver
from backdrive.piles.solvers.interior_point import solve
from backdrive.piles.solvers.pivoting import solve_by_pivoting
from backdrive.piles.solvers.sparse_delassus import SparseDelassus
from backdrive.piles.step import Engine, WorldState
from backdrive.piles.world import PileWorld

SOLVER = bd.InteriorPoint()


def simulator_of(model, dt=0.005, **more):
    return bd.Simulator(model, dt, sparse=True, solver=SOLVER, **more)


# ------------------------------------------------------------------------------------------ the solution


@pytest.mark.slow
@pytest.mark.parametrize("integrator", [bd.SemiImplicitEuler(), bd.Midpoint()], ids=["euler", "midpoint"])
@pytest.mark.parametrize(("restitution", "step"), [(0.0, True), (0.4, False)], ids=["step", "bounce"])
@pytest.mark.parametrize(("dim", "seed"), [(2, 2), (2, 5), (3, 3), (3, 6)])
def test_a_step_is_that_of_the_dense_form(dim, seed, restitution, step, integrator):
    """Where both know the modes (the dense form may end at its tolerance), velocities agree to rounding; except of a
    problem with two solutions. Some compliance decides how the points of a face share their load."""
    model = pile(7, seed=seed, dim=dim, spacing=0.95, restitution=restitution, step=step)
    options = {"integrator": integrator, "impacts": False, "solver": bd.InteriorPoint(cfm=1e-3)}
    dense = bd.Simulator(model, 0.01, sparse=False, specialize=False, **options)
    path = dense.rollout(model.initial_state(), steps=60)
    state = bd.State(path.q[:-1:4], path.v[:-1:4])
    a, b = (s.rollout(state, steps=1) for s in (dense, bd.Simulator(model, 0.01, sparse=True, **options)))
    assert int(a.status.contacts.max()) > 5
    assert b.status.converged.all()
    good = (a.status.residual < 1e-13)[0]
    same = ((a.last.v - b.last.v).abs().amax(1) < 1e-9) & ((a.last.q - b.last.q).abs().amax(1) < 1e-11)
    assert (good & same).sum() >= 10
    assert (good & ~same).sum() <= 1
    assert torch.allclose(a.status.depth, b.status.depth, atol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize(("dim", "count", "steps"), [(2, 10, 200), (3, 10, 200), (2, 50, 60), (3, 50, 60)])
@pytest.mark.parametrize("seed", [0, 1])
def test_piles_are_solved_to_tolerance(dim, count, steps, seed):
    model = pile(count, seed=seed, dim=dim)
    status = simulator_of(model).rollout(model.initial_state(), steps=steps).status
    assert status.contacts.max() >= count
    assert status.converged.double().mean() >= 0.99  # (friction that jams may leave one in hundreds)
    assert status.residual.median() < 1e-13


@pytest.mark.slow
@pytest.mark.parametrize(("dim", "steps"), [(2, 90), (3, 60)])
def test_piles_of_two_hundred_are_solved_to_tolerance(dim, steps):
    """While they fall together; of what has come to rest, a few steps stay unsolved, and say so."""
    model = pile(200, dim=dim)
    status = simulator_of(model).rollout(model.initial_state(), steps=steps).status
    assert status.contacts.max() > 100
    assert status.converged.all()


@pytest.mark.parametrize(("dim", "count"), [(2, 40), (3, 60)])
@pytest.mark.parametrize("seed", [0, 1])
def test_piles_at_rest_are_solved_to_tolerance(dim, count, seed):
    """Between walls, where many faces touch: what the interior point does not decide is left to pivoting."""
    model = pile(count, seed=seed, dim=dim, kinds=("box",), spacing=1.1)
    sweeps, exact = bd.Simulator(model, 0.005, sparse=True), simulator_of(model)
    state = settled(sweeps, 300)
    for _ in range(3):
        status = exact.rollout(state, steps=1).status
        assert status.contacts.min() > 1.5 * count
        assert status.converged.all() and status.residual.max() <= SOLVER.tolerance
        state = sweeps.rollout(state, steps=10).last


@pytest.mark.parametrize(("dim", "seed"), [(2, 0), (2, 1), (3, 1), (3, 2)])
def test_sweeps_come_to_the_same_solution(dim, seed):
    """As closely as these converge. With friction there may be several solutions, each of them right."""
    model = pile(12, seed=seed, dim=dim)
    ours = simulator_of(model)
    path = ours.rollout(model.initial_state(), steps=60)
    state = bd.State(path.q[:-1:6], path.v[:-1:6])
    sweeps = bd.ProjectedGaussSeidel(iterations=20_000, tolerance=1e-13)
    a, b = (s.rollout(state, steps=1) for s in (ours, bd.Simulator(model, 0.005, sparse=True, solver=sweeps)))
    good = (a.status.converged & (b.status.residual < 1e-9))[0]
    same = (a.last.v - b.last.v).abs().amax(1) < 1e-6
    assert (same & good).sum() >= 4
    assert (~same & good).sum() <= 1, "contact problems with several solutions are rare"


def test_towers_stand():
    model = tower(10)
    path = simulator_of(model).rollout(model.initial_state(), steps=100)
    assert path.status.converged.all() and path.status.contacts[-1] == 40
    assert path.v[-1].abs().max() < 1e-8


def test_what_has_penetrated_is_moved_out():
    """By a part `erp` in a step, exactly."""
    scene = bd.Scene(dim=2, gravity=(0, 0))
    scene.add_static(bd.HalfSpace(normal=(0, 1)))
    scene.add_body("box", bd.Box(0.2, 0.2), mass=1.0, position=(0.0, 0.09))
    model = scene.build()
    path = bd.Simulator(model, 0.01, sparse=True, solver=bd.InteriorPoint(erp=0.3)).rollout(
        model.initial_state(), steps=1
    )
    depth = 0.01 - 0.2e-4  # what counts as penetration, beyond a slop of 1e-4 of its size
    assert path.status.depth[0] == pytest.approx(0.01)
    assert float(path.q[-1, 1]) == pytest.approx(0.09 + 0.3 * depth, abs=1e-4)
    assert path.v[-1].abs().max() < 3e-3


def random_problem(random, contacts, bodies, directions=2, nv=6):
    ends = np.stack([random.integers(1, bodies + 1, contacts), random.integers(0, bodies + 1, contacts)], axis=1)
    ends[ends[:, 0] == ends[:, 1], 1] = 0
    pushes = random.normal(size=(contacts, 1 + directions, 2 * nv))
    b, mu = random.normal(size=(contacts, 1 + directions)), random.uniform(0.0, 0.8, contacts)
    mu[::5] = 0.0
    return SparseDelassus(pushes, ends, b, np.full(b.shape, 1e-6), mu)


@pytest.mark.parametrize("seed", range(12))
def test_random_problems(seed):
    """From the middle of all bounds; and by pivoting, from impulses that are far from a solution."""
    random = np.random.default_rng(seed)
    problem = random_problem(random, 8 + 2 * seed, 4 + seed)
    found = solve(problem, bd.InteriorPoint(max_iterations=100))
    assert found.residual() < 1e-10
    other = solve_by_pivoting(problem, found.impulses + 0.01 * random.normal(size=problem.b.shape))
    assert other is not None and other.residual() < 1e-10


def test_linear_systems_are_those_of_dense_matrices():
    random = np.random.default_rng(0)
    problem = random_problem(random, 15, 6)
    n, (count, rows) = problem.blocks * problem.nv, problem.b.shape
    eye = np.eye(count * rows).reshape(-1, count, rows)
    P = np.stack([problem.whitened(x)[:-1].ravel() for x in eye])  # [count rows, n]
    E = random.normal(size=(count, rows, rows))
    dense = np.zeros((count, rows, count, rows))
    dense[np.arange(count), :, np.arange(count)] = E
    dense = dense.reshape(count * rows, count * rows)
    r = random.normal(size=(count, rows))
    expected = np.linalg.solve(np.eye(count * rows) + dense @ P @ P.T, dense @ r.ravel())
    factors = problem.factor(E)
    np.testing.assert_allclose(problem.respond(factors, E, r).ravel(), expected, rtol=1e-8, atol=1e-10)
    y = np.vstack([random.normal(size=(problem.blocks, problem.nv)), np.zeros((1, problem.nv))])
    expected = np.linalg.solve((np.eye(n) + P.T @ dense @ P).T, y[:-1].ravel())
    np.testing.assert_allclose(problem.solve(factors, y, transposed=True)[:-1].ravel(), expected, rtol=1e-8, atol=1e-10)


def test_the_delassus_matrix_is_that_of_the_protocol():
    """`apply`, `effect` and `speeds` are W λ, Pᵀ λ and P y; W is symmetric; `diagonal` is that of W + softness."""
    random = np.random.default_rng(1)
    problem: Delassus[np.ndarray] = random_problem(random, 9, 5)
    shape = problem.diagonal.shape
    n = problem.diagonal.size
    W = np.zeros((n, *shape))
    for impulses, column in zip(np.eye(n).reshape(n, *shape), W):
        problem.apply(impulses, column)
    W = W.reshape(n, n)
    np.testing.assert_allclose(W, W.T, atol=1e-12)
    np.testing.assert_allclose(W.diagonal() + 1e-6, problem.diagonal.ravel())
    impulses = random.normal(size=shape)
    y, speeds = np.empty((problem.blocks + 1, problem.nv)), np.empty(shape)
    problem.effect(impulses, y)
    y[-1] = 0.0  # the world does not move
    problem.speeds(y, speeds)
    np.testing.assert_allclose(speeds.ravel(), W @ impulses.ravel(), rtol=1e-9, atol=1e-9)


def test_every_solver_has_a_solver_of_piles():
    """The registries of dense worlds and of piles are of the same solvers; others are refused."""
    assert set(PILE_SOLVERS) == set(SOLVERS)
    with pytest.raises(TypeError, match="the solver of a big world must be"):
        pile_solver(None, "a string")


# ------------------------------------------------------------------------------------------ gradients


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 7))
@pytest.mark.parametrize("dim", [2, 3])
def test_gradients_of_piles(dim, seed):
    model = pile(12, seed=seed, dim=dim, step=seed == 1)
    names = [name for name in PARAMETERS if name != "restitution"]
    check(simulator_of(model, 0.01), steps=3, fall=20 - dim, seed=seed, names=names)


@pytest.mark.parametrize("dim", [2, 3])
def test_gradients_of_bounces(dim):
    check(simulator_of(pile(10, seed=7, dim=dim, restitution=0.5), 0.01), steps=3, fall=15, seed=1)


@pytest.mark.parametrize("dim", [2, 3])
def test_gradients_of_midpoint(dim):
    check(simulator_of(pile(12, seed=4, dim=dim), 0.01, integrator=bd.Midpoint()), steps=3, fall=18, seed=2)


def test_gradients_of_finer_pyramids():
    check(simulator_of(pile(8, seed=2), 0.01, pyramid=8), steps=2, fall=30, seed=3, names=("friction", "mass"))


@pytest.mark.parametrize("dim", [2, 3])
def test_gradients_are_those_of_the_dense_form(dim):
    """Also of what rests. (Friction that sticks has no gradient but what the softness of 1e-8 leaves of it.)"""
    model, found = pile(7, seed=3, dim=dim, spacing=0.95), []
    dense = bd.Simulator(model, 0.01, sparse=False, impacts=False, specialize=False, solver=SOLVER)
    state = settled(dense, 40)
    for simulator in (dense, simulator_of(model, 0.01)):
        q, v = (x.clone().requires_grad_() for x in state)
        given = {name: model.parameter(name).clone().requires_grad_() for name in ("mass", "friction", "size")}
        last = simulator.rollout(bd.State(q, v), steps=1, parameters=given).last
        loss = (last.q * torch.arange(model.nq)).sum() + (last.v * torch.arange(model.nv)).sum()
        found.append(torch.autograd.grad(loss, (q, v, *given.values())))
    for a, b in zip(*found):
        assert (a - b).abs().max() < 1e-6 * max(float(a.abs().max()), 1e-3)


@pytest.mark.parametrize("dim", [2, 3])
def test_gradients_of_forces(dim):
    model, generator = pile(10, seed=2, dim=dim), torch.Generator().manual_seed(2)
    simulator = simulator_of(model, 0.01)
    start = settled(simulator, 20)
    weights = torch.randn(len(model.bodies), 2, dim, generator=generator, dtype=torch.float64)
    mass, direction = model.parameter("mass"), torch.rand(len(model.bodies), generator=generator, dtype=torch.float64)

    def loss_of(mass):
        contacts = simulator.rollout(start, steps=2, parameters={"mass": mass}).contacts
        return sum((w * contacts.on(body)).sum() for w, body in zip(weights, model.bodies))

    leaf = mass.clone().requires_grad_()
    exact = float((torch.autograd.grad(loss_of(leaf), leaf)[0] * direction).sum())
    error = least_error(exact, lambda step: float(along(loss_of, mass, direction, step)), (1e-4, 1e-5, 1e-6))
    assert error < 1e-6


def test_checkpoints_change_no_gradient():
    """Nor does it matter where sweeps started, if the solution is the same."""
    model = pile(12, dim=3)
    simulator = simulator_of(model, 0.01)
    start, gradients = settled(simulator, 30), []
    for adjoint in (None, bd.Checkpoint(3)):
        v = start.v.clone().requires_grad_()
        last = simulator.rollout(bd.State(start.q, v), steps=5, adjoint=adjoint).last
        gradients.append(torch.autograd.grad(last.q.square().sum(), v)[0])
    assert torch.equal(*gradients)


def test_steps_one_by_one_are_a_rollout():
    """Boxes at rest between others have several solutions: which is found follows from the state alone."""
    model = pile(24, dim=3)
    simulator = simulator_of(model, 0.01)
    state = settled(simulator, 40)
    path = simulator.rollout(state, steps=4)
    for t in range(4):
        state = simulator.step(state)
        assert torch.equal(state.q, path.q[t + 1]) and torch.equal(state.v, path.v[t + 1])


# ------------------------------------------------------------------------------------------ bits, and bad input


@pytest.mark.parametrize("dim", [2, 3])
def test_the_same_bits_whatever_the_lanes(dim):
    model, ends = pile(20, dim=dim), []
    for lanes in (1, 4, 4):
        engine = Engine(
            model, 0.01, Scheme(bd.SemiImplicitEuler(), RigidContact(SOLVER)), 2, 64, False, False, lanes=lanes
        )
        world, state = PileWorld(engine, None, model.constants), WorldState(model.q0.copy(), model.v0.copy(), None)
        for _ in range(25):
            step = world.forward({}, 0, state)
            state = step.after
        ends.append((state.q, state.v, step.status))
    assert step.contacts.count > 15
    for q, v, status in ends[1:]:
        assert np.array_equal(q, ends[0][0]) and np.array_equal(v, ends[0][1]) and status == ends[0][2]


def test_the_same_bits_whatever_the_batch_and_the_threads():
    model = pile(24, dim=3)
    state = settled(simulator_of(model), 20)
    alone = simulator_of(model, threads=1).rollout(state, steps=4)
    path = simulator_of(model, threads=2).rollout(bd.State(state.q.expand(3, -1), state.v.expand(3, -1)), steps=4)
    for k in range(3):
        assert torch.equal(path.q[:, k], alone.q) and torch.equal(path.v[:, k], alone.v)


def test_redundant_contacts_share_their_load():
    """The ground twice: the motion is that of one ground."""
    paths = []
    for times in (1, 2):
        scene = bd.Scene(dim=3)
        for _ in range(times):
            scene.add_static(bd.HalfSpace(normal=(0, 0, 1)), friction=0.6)
        for k in range(3):
            scene.add_body(f"{k}", bd.Box(0.2, 0.2, 0.2), mass=1.0, position=(0, 0, 0.1 + 0.2 * k), friction=0.6)
        model = scene.build()
        paths.append(simulator_of(model).rollout(model.initial_state(), steps=20))
        assert paths[-1].status.converged.all()
    assert paths[1].status.contacts[-1] == paths[0].status.contacts[-1] + 4
    assert (paths[0].v - paths[1].v).abs().max() < 1e-7


def test_contradictory_walls_are_reported():
    """A box that closing walls would crush: no solution moves it out of both; nothing is lost, and status tells."""
    scene = bd.Scene(dim=2)
    for sign in (1.0, -1.0):
        scene.add_static(bd.HalfSpace(normal=(sign, 0), offset=-0.08), friction=0.5)
    scene.add_body("box", bd.Box(0.2, 0.2), mass=1.0, position=(0.0, 0.0), friction=0.5)
    model = scene.build()
    path = simulator_of(model).rollout(model.initial_state(), steps=10)
    assert path.status.finite.all()
    assert path.status.depth.min() > 0.01
    assert path.q.abs().max() < 10.0


def test_too_few_iterations_are_reported():
    model = pile(30, dim=2)
    solver = bd.InteriorPoint(max_iterations=1, tolerance=1e-16)
    status = bd.Simulator(model, 0.01, sparse=True, solver=solver).rollout(model.initial_state(), steps=30).status
    assert status.finite.all()
    assert not status.converged[-5:].all()


def test_a_step_without_derivative_has_no_number_for_it(monkeypatch):
    """Rather than an exception in the middle of a backward pass."""
    model = pile(12, dim=2)
    simulator = simulator_of(model)
    start = settled(simulator, 30)
    v = start.v.clone().requires_grad_()
    last = simulator.rollout(bd.State(start.q, v), steps=1).last

    def singular(problem, E):
        raise RuntimeError("Factor is exactly singular")

    monkeypatch.setattr(SparseDelassus, "factor", singular)
    (gradient,) = torch.autograd.grad(last.v.sum(), v)
    assert gradient.isnan().any()


def test_what_is_not_finite_is_reported():
    model = pile(24, dim=2)
    state = model.initial_state()
    state.v[5] = float("nan")
    with pytest.raises(ValueError, match="state.v is not finite"):
        simulator_of(model).rollout(state, steps=2)
    path = simulator_of(model, nonfinite="mark").rollout(state, steps=2)
    assert not path.status.finite.any() and not path.status.converged.any()


def test_float32_is_close():
    model = pile(15)
    state = settled(simulator_of(model), 40)
    double = simulator_of(model).rollout(state, steps=3)
    single = simulator_of(model, dtype=torch.float32).rollout(bd.State(state.q.float(), state.v.float()), steps=3)
    assert single.status.converged.all()
    assert (double.q - single.q).abs().max() < 1e-4
    assert (double.v - single.v).abs().max() < 2e-2


def test_auto_takes_the_sparse_form():
    assert bd.Simulator(pile(24, dim=2), 0.01, solver=SOLVER).sparse
    assert not bd.Simulator(pile(23, dim=2), 0.01, solver=SOLVER).sparse
