"""The shapes of what goes in and comes out: batched, unbatched, shared, per environment, and empty."""

import pytest
import torch
from scenes import ALL, DT, arm, chain, puck, randn, random_controls, random_state, random_wrenches, simulator, statue

import backdrive as bd

STEPS, BATCH = 4, 3
EVERY_SCENE = pytest.mark.parametrize("make", ALL, ids=lambda make: make.__name__)


@EVERY_SCENE
@pytest.mark.parametrize("batch", [(), (1,), (BATCH,)], ids=str)
def test_shapes(make, batch):
    model, sim = make(), simulator(make)
    nq, nv, nu = model.nq, model.nv, model.nu
    state, control, wrench = random_state(model, *batch), random_controls(model, *batch), random_wrenches(model, *batch)
    for arguments in ({}, {"wrench": wrench}):
        for u in (None, control):
            after = sim.step(state, u, **arguments)
            assert isinstance(after, bd.State)
            assert after.q.shape == (*batch, nq) and after.v.shape == (*batch, nv)
            assert sim.forward_dynamics(state, u, **arguments).shape == (*batch, nv)
    A, B = sim.linearize(state, control)
    assert A.shape == (*batch, 2 * nv, 2 * nv) and B.shape == (*batch, 2 * nv, nu)
    assert sim.inverse_dynamics(state, randn(*batch, nv)).shape == (*batch, nv)
    assert sim.mass_matrix(state).shape == (*batch, nv, nv)
    path = sim.rollout(state, random_controls(model, STEPS, *batch), wrenches=random_wrenches(model, STEPS, *batch))
    assert path.q.shape == (STEPS + 1, *batch, nq) and path.v.shape == (STEPS + 1, *batch, nv)
    assert path.last.q.shape == (*batch, nq) and path.last.v.shape == (*batch, nv)
    assert path.status.finite.shape == path.status.clipped.shape == (STEPS, *batch)
    for name in model.bodies:
        dim, turn = model.dim, () if model.dim == 2 else (4,)
        assert path.position(name).shape == path.velocity(name).shape == (STEPS + 1, *batch, dim)
        assert path.rotation(name).shape == (STEPS + 1, *batch, dim, dim)
        assert path.orientation(name).shape == (STEPS + 1, *batch, *turn)
        assert path.angular_velocity(name).shape == (STEPS + 1, *batch, *(() if dim == 2 else (3,)))


@EVERY_SCENE
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
def test_dtype_of_everything(make, dtype):
    model, sim = make(), simulator(make, dtype=dtype)
    state = random_state(model, 2, dtype=dtype)
    control = random_controls(model, 2, dtype=dtype)
    path = sim.rollout(
        state, random_controls(model, STEPS, 2, dtype=dtype), parameters={"mass": model.parameter("mass")}
    )
    everything = [
        *sim.step(state, control), *sim.linearize(state, control), sim.forward_dynamics(state, control),
        sim.inverse_dynamics(state, state.v), sim.mass_matrix(state), path.q, path.v, path.position(model.bodies[0]),
        path.orientation(model.bodies[0]), path.time,
    ]  # fmt: skip
    assert all(x.dtype == dtype for x in everything)


@EVERY_SCENE
def test_an_environment_of_a_batch_is_a_world_of_its_own(make):
    model, sim = make(), simulator(make)
    state, controls = random_state(model, BATCH), random_controls(model, STEPS, BATCH)
    wrenches = random_wrenches(model, STEPS, BATCH)
    together = sim.rollout(state, controls, wrenches=wrenches)
    M, (A, B) = sim.mass_matrix(state), sim.linearize(state, controls[0])
    for k in range(BATCH):
        one = bd.State(state.q[k], state.v[k])
        alone = sim.rollout(one, controls[:, k], wrenches=wrenches[:, k])
        assert torch.equal(alone.q, together.q[:, k]) and torch.equal(alone.v, together.v[:, k])
        assert torch.equal(alone.status.clipped, together.status.clipped[:, k])
        assert torch.equal(sim.mass_matrix(one), M[k])
        assert all(torch.equal(x, y[k]) for x, y in zip(sim.linearize(one, controls[0, k]), (A, B)))


@EVERY_SCENE
def test_a_step_is_a_rollout_of_one(make):
    model, sim = make(), simulator(make)
    state, control, wrench = random_state(model, BATCH), random_controls(model, BATCH), random_wrenches(model, BATCH)
    after = sim.step(state, control, wrench=wrench)
    path = sim.rollout(state, control[None], wrenches=wrench[None])
    for x, y, z in zip(after, path[-1], (path.q[1], path.v[1])):
        assert torch.equal(x, y) and torch.equal(x, z)
    assert all(torch.equal(x, y) for x, y in zip(sim(state, control, wrench=wrench), after))


def test_controls_and_wrenches_shared_by_the_environments():
    model, sim, state = arm(), simulator(arm), random_state(arm(), BATCH)
    controls, wrenches = random_controls(model, STEPS), random_wrenches(model, STEPS)
    each = controls[:, None].expand(-1, BATCH, -1), wrenches[:, None].expand(-1, BATCH, -1, -1)
    shared, separate = sim.rollout(state, controls, wrenches=wrenches), sim.rollout(state, each[0], wrenches=each[1])
    assert torch.equal(shared.q, separate.q)
    one, many = sim.step(state, controls[0], wrench=wrenches[0]), sim.step(state, each[0][0], wrench=each[1][0])
    assert torch.equal(one.v, many.v)
    vdot = [sim.forward_dynamics(state, u, wrench=w) for u, w in ((controls[0], wrenches[0]), (each[0][0], each[1][0]))]
    assert torch.equal(*vdot)
    assert torch.equal(sim.linearize(state, controls[0])[0], sim.linearize(state, each[0][0])[0])


def test_gradient_of_shared_controls_is_the_sum():
    model, sim, state = arm(), simulator(arm), random_state(arm(), BATCH)
    shared = random_controls(model, STEPS).requires_grad_()
    each = shared.detach()[:, None].repeat(1, BATCH, 1).requires_grad_()
    for u in (shared, each):
        sim.rollout(state, u).q.square().sum().backward()
    torch.testing.assert_close(shared.grad, each.grad.sum(1), rtol=1e-12, atol=1e-14)


def test_without_controls_is_with_zeros():
    model, sim, state = arm(), simulator(arm), random_state(arm(), BATCH)
    zeros = torch.zeros(STEPS, BATCH, model.nu, dtype=torch.float64)
    assert torch.equal(sim.rollout(state, steps=STEPS).q, sim.rollout(state, zeros).q)
    assert torch.equal(sim.step(state).v, sim.step(state, zeros[0]).v)
    wrenches = random_wrenches(model, STEPS, BATCH)
    assert len(sim.rollout(state, wrenches=wrenches)) == STEPS + 1


def test_zero_wrenches_change_nothing():
    model, sim, state = arm(), simulator(arm), random_state(arm(), BATCH)
    wrenches = torch.zeros_like(random_wrenches(model, STEPS, BATCH))
    with_them, without = sim.rollout(state, wrenches=wrenches), sim.rollout(state, steps=STEPS)
    torch.testing.assert_close(with_them.q, without.q, rtol=1e-13, atol=1e-13)


# ---------------------------------------------------------------------------------------------- parameters


def test_parameters_shared_and_per_environment():
    model, sim, state = arm(), simulator(arm), random_state(arm(), BATCH)
    mass = model.parameter("mass") * torch.tensor([[1.0], [1.5], [0.7]], dtype=torch.float64)
    damping = 0.3 + model.parameter("damping")
    together = sim.rollout(state, steps=STEPS, parameters={"mass": mass, "damping": damping})
    for k in range(BATCH):
        alone = sim.rollout(
            bd.State(state.q[k], state.v[k]), steps=STEPS, parameters={"damping": damping, "mass": mass[k]}
        )
        torch.testing.assert_close(alone.q, together.q[:, k], rtol=1e-13, atol=1e-13)
        torch.testing.assert_close(alone.position("hand"), together.position("hand")[:, k], rtol=1e-13, atol=1e-13)


def test_the_models_own_parameters_change_nothing():
    model, sim, state = arm(), simulator(arm), random_state(arm(), BATCH)
    own = {name: model.parameter(name) for name in model.parameters().names}
    for parameters in (own, {}, {name: x.expand(BATCH, *x.shape) for name, x in own.items()}):
        after = sim.step(state, parameters=parameters)
        torch.testing.assert_close(after.v, sim.step(state).v, rtol=1e-12, atol=1e-12)


def test_one_world_with_parameters_per_environment_is_a_batch():
    model, sim, state = arm(), simulator(arm), random_state(arm())
    mass = model.parameter("mass") * torch.tensor([[1.0], [1.5]], dtype=torch.float64)
    given, batch = {"parameters": {"mass": mass}}, bd.State(state.q.expand(2, -1), state.v.expand(2, -1))
    control, wrench = random_controls(model, 2), random_wrenches(model, 2)
    for u, w in ((None, None), (control, wrench), (control[0], wrench[0])):
        after, expected = sim.step(state, u, wrench=w, **given), sim.step(batch, u, wrench=w, **given)
        assert after.q.shape == (2, model.nq) and torch.equal(after.q, expected.q)
    path = sim.rollout(state, random_controls(model, STEPS), **given)
    assert path.q.shape == (STEPS + 1, 2, model.nq) and path.position("hand").shape == (STEPS + 1, 2, 3)
    assert torch.equal(sim.mass_matrix(state, **given), sim.mass_matrix(batch, **given))
    assert torch.equal(sim.forward_dynamics(state, **given), sim.forward_dynamics(batch, **given))
    for x, y in zip(sim.linearize(state, control, **given), sim.linearize(batch, control, **given)):
        assert torch.equal(x, y) and len(x) == 2


def test_gradient_of_one_start_with_parameters_per_environment():
    model, sim = arm(), simulator(arm)
    q, v = (x.requires_grad_() for x in random_state(model))
    mass = (model.parameter("mass") * torch.tensor([[1.0], [1.5]], dtype=torch.float64)).requires_grad_()
    sim.rollout(bd.State(q, v), steps=STEPS, parameters={"mass": mass}).q.square().sum().backward()
    shapes = [x.grad.shape for x in (q, v, mass)]
    assert shapes == [x.shape for x in (q, v, mass)]
    total = torch.zeros_like(q)
    for k in range(2):
        start = bd.State(q.detach().requires_grad_(), v.detach())
        loss = sim.rollout(start, steps=STEPS, parameters={"mass": mass[k].detach()}).q.square().sum()
        total += torch.autograd.grad(loss, start.q)[0]
    torch.testing.assert_close(q.grad, total, rtol=1e-12, atol=1e-12)


# ---------------------------------------------------------------------------------------------- dynamics


def test_dynamics_agree_with_each_other():
    """M v̇ + c(q, v) is what inverse dynamics says, and M v̇ = τ - c what forward dynamics solves."""
    model, sim, state = chain(), simulator(chain), random_state(chain(), BATCH)
    vdot, M = sim.forward_dynamics(state), sim.mass_matrix(state)
    assert torch.allclose(sim.inverse_dynamics(state, vdot), torch.zeros_like(vdot), atol=1e-12)  # nothing drives it
    other = randn(BATCH, model.nv)
    expected = (M @ (other - vdot)[..., None])[..., 0]
    torch.testing.assert_close(sim.inverse_dynamics(state, other), expected, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(M, M.transpose(-1, -2), rtol=1e-13, atol=1e-13)
    assert (torch.linalg.eigvalsh(M) > 0).all()
    torch.testing.assert_close(sim.step(state).v, state.v + DT * vdot, rtol=1e-12, atol=1e-12)


def test_mass_matrix_of_a_free_body():
    M = simulator(puck).mass_matrix(puck().initial_state())
    inertia = puck().parameter("inertia").item()
    torch.testing.assert_close(M, torch.diag(torch.tensor([2.0, 2.0, inertia], dtype=torch.float64)))


def test_mass_matrix_with_parameters_is_differentiable():
    model, sim, state = chain(), simulator(chain), random_state(chain(), 2)
    mass = model.parameter("mass").requires_grad_()
    M = sim.mass_matrix(state, parameters={"mass": mass})
    (gradient,) = torch.autograd.grad(M[0, 0, 0] + M[1, 0, 0], mass)  # the cart carries everything
    torch.testing.assert_close(gradient, torch.full_like(mass, 2.0))


def test_gravity_does_not_enter_the_mass_matrix():
    sim, state = simulator(chain), random_state(chain(), 2)
    M = sim.mass_matrix(state, parameters={"gravity": torch.tensor([3.0, -40.0], dtype=torch.float64)})
    assert torch.equal(M, sim.mass_matrix(state))


# ---------------------------------------------------------------------------------------------- nothing moves


@pytest.mark.parametrize("batch", [(), (2,)], ids=str)
def test_a_world_without_degrees_of_freedom(batch):
    model, sim, state = statue(), simulator(statue), random_state(statue(), *batch)
    mass = model.parameter("mass").requires_grad_()
    path = sim.rollout(state, steps=3, parameters={"mass": mass})
    assert path.status.finite.all()
    assert (path.position("statue") == torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64)).all()
    (path.position("statue").sum() + path.q.sum() + path.v.sum()).backward()
    assert (mass.grad == 0).all()
    A, B = sim.linearize(state)
    assert A.shape == (*batch, 0, 0) and B.shape == (*batch, 0, 0)
    assert sim.mass_matrix(state).shape == (*batch, 0, 0)


def test_gradients_without_motors():
    sim = simulator(puck)
    q, v = (x.requires_grad_() for x in random_state(puck(), 2))
    controls = torch.zeros(3, 2, 0, dtype=torch.float64, requires_grad=True)
    sim.rollout(bd.State(q, v), controls).q.sum().backward()
    assert (q.grad == 4.0).all()
    torch.testing.assert_close(v.grad, torch.full_like(v, 6 * DT))  # 1 + 2 + 3 steps
    assert controls.grad.shape == (3, 2, 0)


# ---------------------------------------------------------------------------------------------- several joints


def test_wrenches_on_bodies_of_several_joints(tmp_path):
    """A body with two joints is two links; its wrench acts on the second."""
    xml = """<mujoco><option gravity="0 0 0"/><worldbody><body name="box"><joint type="slide" axis="1 0 0"/>
    <joint type="slide" axis="0 1 0"/><geom type="sphere" size="0.1" mass="2" contype="0" conaffinity="0"/></body>
    </worldbody></mujoco>"""
    (tmp_path / "box.xml").write_text(xml)
    model = bd.load(tmp_path / "box.xml")
    assert model.nbody == 1 and model.nlink == 2
    sim = bd.Simulator(model, DT, specialize=False)
    wrench = torch.tensor([[[2.0, 4.0, 0, 0, 0, 0]], [[-6.0, 0, 0, 0, 0, 0]]], dtype=torch.float64, requires_grad=True)
    vdot = sim.forward_dynamics(model.initial_state(2), wrench=wrench)
    torch.testing.assert_close(vdot, torch.tensor([[1.0, 2.0], [-3.0, 0.0]], dtype=torch.float64))
    (gradient,) = torch.autograd.grad(vdot.sum(), wrench)
    torch.testing.assert_close(gradient[..., :2], torch.full((2, 1, 2), 0.5, dtype=torch.float64))
    after = sim.rollout(model.initial_state(2), wrenches=wrench.detach()[None].expand(5, -1, -1, -1)).last
    torch.testing.assert_close(after.v, vdot.detach() * 5 * DT)


def test_nothing_in_any_number_of_environments():
    """A batch of no coordinates takes no memory, and no time either."""
    sim, none = simulator(statue), torch.zeros(1, 0, dtype=torch.float64).expand(2**40, 0)
    assert sim.inverse_dynamics((none, none), none).shape == (2**40, 0)
    assert sim.forward_dynamics((none, none), none).shape == (2**40, 0)
    sparse = [torch.zeros(2, 0, dtype=torch.float64).to_sparse()] * 3
    with pytest.raises(ValueError, match="sparse_coo"):
        torch.ops.backdrive.evaluate("inverse", "q,v,vdot", sparse, sim._program.number, "", [])
