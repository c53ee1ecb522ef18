"""The tangent space, feedback in a kernel, and dynamics that are not a simulator."""

import pytest
import torch
from worlds import arm, craft, random, random_state, simulator, sled

import backdrive as bd
from backdrive.control import ILQR, Cost, Dynamics, SimulatedDynamics, TorchDynamics, optimize
from backdrive.differences import along
from backdrive.runtime.tangent import Tangent


def test_displacements_of_states_with_quaternions():
    model, draw = craft(), random(0)
    tangent = Tangent(model)
    q = model.initial_state(50).q
    q = tangent.displace(q, 0.5 * draw(50, model.nv))
    for scale in (0.5, 1e-2, 1e-5, 0.0):
        delta = scale * draw(50, model.nv)
        moved = tangent.displace(q, delta)
        torch.testing.assert_close(tangent.difference(moved, q), delta, rtol=1e-12, atol=1e-14)
        assert (moved[:, 3:7].square().sum(-1) - 1).abs().max() < 1e-13


def test_displacements_agree_with_the_engine():
    """q ⊕ h v is where a step without forces goes."""
    scene = bd.Scene(dim=3, gravity=(0, 0, 0))
    scene.add_body("ball", bd.Sphere(0.1), mass=1.0)
    model = scene.build()
    state = random_state(model, 20, 1, spread=2.0)
    after = bd.Simulator(model, 0.3).step(state, torch.zeros(20, 0).double())
    moved = Tangent(model).displace(state.q, 0.3 * after.v)
    torch.testing.assert_close(moved, after.q, rtol=1e-13, atol=1e-13)


def test_second_derivatives_of_displacements_are_right_at_zero():
    model = craft()
    tangent, q = Tangent(model), random_state(model, 1, 3).q[0]
    goal = random_state(model, 1, 4).q[0]

    def distance(delta):
        return tangent.difference(tangent.displace(q, delta), goal).square().sum()

    zero = torch.zeros(model.nv, dtype=torch.float64)
    assert torch.autograd.gradcheck(distance, zero.clone().requires_grad_())
    assert torch.autograd.gradgradcheck(distance, zero.clone().requires_grad_())

    def bent(delta):
        return tangent.difference(tangent.displace(q, delta), q).pow(3).sum()

    assert torch.autograd.gradgradcheck(bent, (zero + 1e-3).requires_grad_())
    H = torch.func.jacrev(torch.func.grad(lambda d: tangent.difference(tangent.displace(q, d), q).square().sum()))(zero)
    torch.testing.assert_close(H, 2 * torch.eye(model.nv, dtype=torch.float64), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("specialize", [True, False])
@pytest.mark.parametrize("make", [arm, craft, sled])
def test_feedback_in_the_kernel_is_that_of_single_steps(make, specialize):
    model, draw = make(), random(5)
    dynamics = SimulatedDynamics(simulator(make, specialize=specialize))
    x = dynamics.pack(random_state(model, 3, 6))
    origin = dynamics.rollout(dynamics.pack(random_state(model, 3, 7)), draw(12, 3, model.nu))
    gains, controls = 0.3 * draw(12, 3, model.nu, 2 * model.nv), draw(12, 3, model.nu)
    limits = -0.5 * torch.ones(model.nu).double(), 0.8 * torch.ones(model.nu).double()
    states, used = dynamics.track(x, controls, gains, origin, *limits)
    expected, wanted = Dynamics.track(dynamics, x, controls, gains, origin, *limits)
    torch.testing.assert_close(used, wanted, rtol=1e-10, atol=1e-11)
    torch.testing.assert_close(states, expected, rtol=1e-10, atol=1e-11)
    assert (used == 0.8).any() and (used == -0.5).any() and ((used > -0.5) & (used < 0.8)).any()


def test_track_without_batch_and_bad_input():
    sim, model = simulator(arm), arm()
    start, draw = model.initial_state(), random(0)
    K, u = draw(5, 2, 4), draw(5, 2)
    origin = bd.State(draw(5, 2), draw(5, 2))
    path, used = sim.track(start, u, K, origin)
    assert path.q.shape == (6, 2) and used.shape == (5, 2) and bool(path.status.finite.all())
    again = sim.rollout(start, used)
    torch.testing.assert_close(again.q, path.q, rtol=1e-13, atol=1e-13)
    with pytest.raises(ValueError, match=r"gains must be \[5, 2, 4\], got \[5, 4, 2\]"):
        sim.track(start, u, K.mT, origin)
    with pytest.raises(ValueError, match="gains is not finite"):
        sim.track(start, u, K * torch.nan, origin)
    with pytest.raises(ValueError, match=r"origin.q must be \[5, 2\]"):
        sim.track(start, u, K, bd.State(origin.q[:-1], origin.v))


def test_parameters_of_a_simulator():
    """A plan for a heavier arm needs more effort."""
    sim, state = simulator(arm), arm().initial_state()
    goal = torch.tensor([0.5, 0.0], dtype=torch.float64)
    cost = Cost(lambda s, u, t: 1e-3 * u.square().sum(), lambda s: 50 * (s.q - goal).square().sum())
    efforts = []
    for factor in (1.0, 1.3):
        dynamics = SimulatedDynamics(sim, {"mass": factor * arm().parameter("mass")})
        plan = optimize(dynamics, cost, state, torch.zeros(30, 2).double(), method=ILQR(tolerance=1e-10))
        path = sim.rollout(state, plan.controls, parameters=dynamics.parameters)
        torch.testing.assert_close(path.q, plan.states.q)
        efforts.append(float(plan.cost))
    assert efforts[1] > 1.1 * efforts[0]


def test_a_neural_network_is_dynamics_too():
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(4, 16), torch.nn.Tanh(), torch.nn.Linear(16, 3)).double()

    def f(x, u):
        return x + 0.1 * net(torch.cat([x, u], -1))

    dynamics, draw = TorchDynamics(f, nu=1), random(0)
    x, u = draw(6, 3), draw(6, 1)
    A, B = dynamics.linearize(x, u)
    inputs = torch.cat([x, u], -1)
    for k, axis in enumerate(torch.eye(4, dtype=torch.float64)):
        difference = along(lambda y: f(y[:, :3], y[:, 3:]), inputs, axis, 1e-6)
        torch.testing.assert_close(torch.cat([A, B], -1)[..., k], difference, rtol=1e-6, atol=1e-8)
    cost = Cost(lambda x, u, t: 0.1 * x.square().sum() + 0.01 * u.square().sum(), lambda x: x.square().sum())
    plan = optimize(f, cost, x, torch.zeros(15, 6, 1).double())
    assert plan.converged.all() and (plan.cost < plan.history[0]).all()
    assert not plan.controls.requires_grad and all(p.grad is None for p in net.parameters())


def test_parameters_that_change_in_place_are_seen():
    """The constants of the last call are kept, but only for the same values."""
    sim, state = simulator(arm), random_state(arm(), 2, 0)
    mass = arm().parameter("mass").clone()
    dynamics = SimulatedDynamics(sim, {"mass": mass})
    x, u = dynamics.pack(state), torch.ones(2, 2).double()
    before = dynamics.step(x, u)
    assert torch.equal(dynamics.step(x, u), before)
    mass *= 2.0
    heavier = sim.step(state, u, parameters={"mass": 2.0 * arm().parameter("mass")})
    assert torch.equal(dynamics.step(x, u), torch.cat(heavier, -1)) and not torch.equal(dynamics.step(x, u), before)
