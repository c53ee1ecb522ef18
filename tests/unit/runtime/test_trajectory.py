"""What a rollout returns: states over time, where bodies are and how they move, and how the steps went."""

import math

import pytest
import torch
from scenes import (
    ALL,
    DT,
    arm,
    chain,
    leaves,
    pendulum,
    project,
    puck,
    random_controls,
    random_state,
    simulator,
    top,
)

import backdrive as bd
from backdrive.differences import along
from backdrive.trajectory import quaternion_of

STEPS = 7


# ---------------------------------------------------------------------------------------------- states


def test_length_indexing_and_last():
    sim, state = simulator(arm), random_state(arm(), 2)
    path = sim.rollout(state, random_controls(arm(), STEPS, 2))
    assert len(path) == STEPS + 1
    assert torch.equal(path[0].q, state.q) and torch.equal(path[0].v, state.v)
    for index in (-1, STEPS):
        assert torch.equal(path[index].q, path.last.q) and torch.equal(path[index].v, path.v[-1])
    for t in range(-len(path), len(path)):
        assert torch.equal(path[t].q, path.q[t]) and torch.equal(path[t].v, path.v[t])
    with pytest.raises(IndexError):
        path[STEPS + 1]
    with pytest.raises(IndexError):
        path[-STEPS - 2]
    assert [s.q.shape for s in path] == [state.q.shape] * (STEPS + 1)
    part = path[2:5]
    assert torch.equal(part.q, path.q[2:5])


def test_steps_and_time():
    sim, state = simulator(puck), random_state(puck())
    path = sim.rollout(state, steps=STEPS)
    assert path.steps.tolist() == list(range(STEPS + 1))
    assert path.time.dtype == torch.float64
    assert path.time.tolist() == [t * DT for t in range(STEPS + 1)]


@pytest.mark.parametrize("every", [1, 2, 3, 7, 8, 10**20])
def test_kept_steps(every):
    sim, state = simulator(chain), random_state(chain(), 2)
    full, kept = sim.rollout(state, steps=STEPS), sim.rollout(state, steps=STEPS, adjoint=bd.Checkpoint(every))
    assert kept.steps.tolist() == [*range(0, STEPS, every), STEPS]
    torch.testing.assert_close(kept.time, kept.steps.to(torch.float64) * DT, rtol=0, atol=0)
    assert len(kept) == len(kept.steps)
    assert torch.equal(kept.q, full.q[kept.steps]) and torch.equal(kept[-1].v, full.v[-1])
    assert kept.status.finite.shape == (STEPS, 2)
    for quantity in ("position", "velocity", "orientation", "angular_velocity", "rotation"):
        torch.testing.assert_close(getattr(kept, quantity)("tip"), getattr(full, quantity)("tip")[kept.steps])


def test_repr():
    path = simulator(arm).rollout(random_state(arm(), 3), steps=STEPS)
    assert (
        repr(path) == "Trajectory(7 steps of 0.01 s, batch 3, Status(21 of 21 steps finite, 0 with motors at a limit))"
    )
    path = simulator(arm).rollout(random_state(arm()), steps=1)
    assert repr(path) == "Trajectory(1 steps of 0.01 s, Status(1 of 1 steps finite, 0 with motors at a limit))"


def test_unknown_body():
    path = simulator(arm).rollout(random_state(arm()), steps=2)
    for quantity in ("position", "velocity", "orientation", "angular_velocity", "rotation"):
        with pytest.raises(ValueError, match=r"unknown body 'hnd'; did you mean 'hand'\?"):
            getattr(path, quantity)("hnd")
    with pytest.raises(ValueError, match=r"unknown body 'tpi'; did you mean 'tip'\?"):
        simulator(chain).rollout(random_state(chain()), steps=2).orientation("tpi")


# ---------------------------------------------------------------------------------------------- closed forms


@pytest.mark.parametrize("integrator", [bd.SemiImplicitEuler(), bd.Midpoint()], ids=repr)
def test_a_free_body_in_the_plane(integrator):
    path = simulator(puck, integrator=integrator).rollout(puck().initial_state(), steps=20)
    t = path.time
    torch.testing.assert_close(path.position("puck"), torch.stack([1.0 + 3.0 * t, 2.0 - t], -1))
    torch.testing.assert_close(path.orientation("puck"), 0.5 + 4.0 * t)
    torch.testing.assert_close(path.velocity("puck"), torch.tensor([3.0, -1.0], dtype=t.dtype).expand(21, 2))
    torch.testing.assert_close(path.angular_velocity("puck"), torch.full_like(t, 4.0))
    angle = 0.5 + 4.0 * t
    rows = [torch.stack([angle.cos(), -angle.sin()], -1), torch.stack([angle.sin(), angle.cos()], -1)]
    torch.testing.assert_close(path.rotation("puck"), torch.stack(rows, -2))


@pytest.mark.parametrize("integrator", [bd.SemiImplicitEuler(), bd.Midpoint()], ids=repr)
def test_a_free_body_in_space(integrator):
    """A ball turns about a fixed axis with constant speed."""
    path = simulator(top, integrator=integrator).rollout(top().initial_state(), steps=200)
    t, w = path.time, torch.tensor([1.0, 2.0, -0.5], dtype=torch.float64)
    start, velocity = (torch.tensor(x, dtype=torch.float64) for x in ((1.0, 2.0, 3.0), (0.5, -1.0, 2.0)))
    torch.testing.assert_close(path.position("top"), start + t[:, None] * velocity)
    torch.testing.assert_close(path.velocity("top"), velocity.expand(201, 3))
    torch.testing.assert_close(path.angular_velocity("top"), w.expand(201, 3))
    half = t[:, None] * w.norm() / 2
    quaternion = torch.cat([half.cos(), half.sin() * w / w.norm()], -1)
    assert (quaternion[:, 0] < 0).any()  # so that the sign has to be chosen
    quaternion = torch.where(quaternion[:, :1] < 0, -quaternion, quaternion)
    torch.testing.assert_close(path.orientation("top"), quaternion, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(path.rotation("top") @ w, w.expand(201, 3))


def test_a_hinge_in_the_plane():
    path = simulator(pendulum).rollout(bd.State(*torch.tensor([[0.4], [2.0]], dtype=torch.float64)), steps=3)
    angle, rate = path.q[:, 0], path.v[:, 0]
    torch.testing.assert_close(path.orientation("bob"), angle)
    torch.testing.assert_close(path.position("bob"), torch.stack([angle.sin(), -angle.cos()], -1))
    torch.testing.assert_close(path.velocity("bob"), rate[:, None] * torch.stack([angle.cos(), angle.sin()], -1))
    torch.testing.assert_close(path.angular_velocity("bob"), rate)


def test_angles_add_up_along_a_chain_and_are_not_wrapped():
    q = torch.tensor([0.1, 5.0, 7.0], dtype=torch.float64)
    path = simulator(chain).rollout(bd.State(q, torch.zeros(3, dtype=torch.float64)), steps=1)
    angles = [path.orientation(name)[0].item() for name in ("cart", "pole", "tip")]
    assert angles == pytest.approx([0.3, -0.4 + 5.0, 0.0 + 5.0 + 7.0], abs=1e-12)
    for name in ("cart", "pole", "tip"):
        angle, R = path.orientation(name), path.rotation(name)
        torch.testing.assert_close(angle.cos(), R[..., 0, 0])
        torch.testing.assert_close(angle.sin(), R[..., 1, 0])


@pytest.mark.parametrize("make", [arm, chain, puck, top], ids=lambda make: make.__name__)
def test_velocities_are_rates_of_poses(make):
    """Velocities are how poses change when q moves on by v dt: central differences in time."""
    model = make()
    state, e = random_state(model, 3), 1e-5
    sim = bd.Simulator(model, e, specialize=False)
    still = {"gravity": torch.zeros(model.dim, dtype=torch.float64), "stiffness": 0 * model.parameter("stiffness")}
    still = {k: x for k, x in still.items() if k in model.parameters()}
    forward = sim.rollout(state, steps=1, parameters=still)
    backward = sim.rollout(bd.State(state.q, -state.v), steps=1, parameters=still)
    for name in model.bodies:
        rate = (forward.position(name)[1] - backward.position(name)[1]) / (2 * e)
        torch.testing.assert_close(forward.velocity(name)[0], rate, rtol=1e-4, atol=2e-3)
        turn = (forward.rotation(name)[1] - backward.rotation(name)[1]) / (2 * e)
        spin = turn @ forward.rotation(name)[0].transpose(-1, -2)  # the cross product with the angular velocity
        found = (
            torch.stack([spin[..., 2, 1], spin[..., 0, 2], spin[..., 1, 0]], -1) if model.dim == 3 else spin[..., 1, 0]
        )
        torch.testing.assert_close(forward.angular_velocity(name)[0], found, rtol=1e-4, atol=2e-3)


@pytest.mark.parametrize("make", [arm, chain, puck, top], ids=lambda make: make.__name__)
def test_rotations_and_quaternions_agree(make):
    model = make()
    path = simulator(make).rollout(random_state(model, 20), steps=2)
    for name in model.bodies:
        R = path.rotation(name)
        eye = torch.eye(model.dim, dtype=R.dtype).expand(R.shape)
        torch.testing.assert_close(R @ R.transpose(-1, -2), eye)
        assert (torch.linalg.det(R) > 0).all()
        if model.dim == 3:
            w, x, y, z = path.orientation(name).unbind(-1)
            assert (w >= 0).all()
            torch.testing.assert_close(w * w + x * x + y * y + z * z, torch.ones_like(w))
            torch.testing.assert_close(R[..., 0, 1], 2 * (x * y - w * z))
            torch.testing.assert_close(R[..., 1, 2], 2 * (y * z - w * x))
            torch.testing.assert_close(R[..., 2, 2], 1 - 2 * (x * x + y * y))


def test_quaternions_of_half_turns():
    """Where w is zero, another component is the largest."""
    half_turns = torch.tensor([[1.0, -1, -1], [-1, 1, -1], [-1, -1, 1]], dtype=torch.float64)
    found = quaternion_of(torch.diag_embed(half_turns))
    torch.testing.assert_close(found.abs(), torch.eye(4, dtype=torch.float64)[1:])
    R = torch.diag_embed(half_turns).requires_grad_()
    quaternion_of(R).sum().backward()
    assert torch.isfinite(R.grad).all()


@pytest.mark.parametrize("make", [arm, chain], ids=lambda make: make.__name__)
def test_gradients_of_poses(make):
    """To states and parameters, by central differences."""
    model, sim = make(), simulator(make)
    state, offset = random_state(model, 2), model.parameter("offset")

    def loss(q, v, offset):
        path = sim.rollout(bd.State(q, v), steps=2, parameters={"offset": offset})
        quantities = ("position", "velocity", "orientation", "angular_velocity", "rotation")
        return project(*(getattr(path, quantity)(name) for quantity in quantities for name in model.bodies))

    inputs = leaves(*state, offset)
    gradients = torch.autograd.grad(loss(*inputs), inputs)
    with torch.no_grad():
        for k, gradient in enumerate(gradients):
            direction = torch.randn_like(gradient)
            difference = along(lambda x, k=k: loss(*inputs[:k], x, *inputs[k + 1 :]), inputs[k], direction, 1e-5)
            torch.testing.assert_close((gradient * direction).sum(), difference, rtol=1e-6, atol=1e-6)


# ---------------------------------------------------------------------------------------------- status


def test_status_counts_motors_at_their_limits():
    sim, state = simulator(pendulum), pendulum().initial_state(2)
    controls = torch.tensor([[0.5, 0.5], [2.0, 0.5], [-2.0, 5.0]], dtype=torch.float64)[..., None]
    status = sim.rollout(state, controls).status
    assert status.clipped.tolist() == [[0, 0], [1, 0], [1, 1]]
    assert status.clipped.dtype == torch.int64 and status.finite.dtype == torch.bool
    assert status.finite.all() and status.converged.all()
    assert status.residual.shape == status.contacts.shape == status.impacts.shape == (3, 2)
    assert (status.residual == 0).all() and (status.contacts == 0).all() and (status.impacts == 0).all()
    assert repr(status) == "Status(6 of 6 steps finite, 3 with motors at a limit)"


def test_limited_motors_have_no_gradient_there():
    controls = torch.tensor([[0.5], [2.0], [-2.0]], dtype=torch.float64, requires_grad=True)
    simulator(pendulum).rollout(pendulum().initial_state(), controls).q.sum().backward()
    assert (controls.grad != 0).flatten().tolist() == [True, False, False]


def test_status_has_no_gradient():
    q, v = (x.requires_grad_() for x in random_state(arm(), 2))
    path = simulator(arm).rollout(bd.State(q, v), steps=2)
    assert not path.status.finite.requires_grad and not path.status.residual.requires_grad


@pytest.mark.parametrize("make", ALL, ids=lambda make: make.__name__)
def test_last_has_the_gradient_of_the_last_row(make):
    model, sim = make(), simulator(make)
    state, controls = random_state(model, 2), random_controls(model, 4, 2)
    found = []
    for pick in (lambda path: path.last, lambda path: bd.State(path.q[-1], path.v[-1])):
        inputs = leaves(*state, controls)
        end = pick(sim.rollout(bd.State(*inputs[:2]), inputs[2]))
        project(*end).backward()
        found.append([x.grad for x in inputs])
    for x, y in zip(*found):
        torch.testing.assert_close(x, y, rtol=1e-13, atol=1e-13)


# ---------------------------------------------------------------------------------------------- adjoints


@pytest.mark.parametrize("bad", [0, -1, 1.0, "2", None, True, math.inf])
def test_bad_checkpoints_and_truncations(bad):
    with pytest.raises(ValueError, match=r"Checkpoint\(every=...\) must be an integer >= 1, got"):
        bd.Checkpoint(bad)
    with pytest.raises(ValueError, match=r"Truncated\(steps\) must be an integer >= 1, got"):
        bd.Truncated(bad)


def test_adjoint_objects_are_values():
    assert bd.Checkpoint(3) == bd.Checkpoint(every=3) != bd.Checkpoint(4)
    assert repr(bd.Truncated(5)) == "Truncated(steps=5)"
    assert len({bd.Checkpoint(3), bd.Checkpoint(3), bd.Truncated(3)}) == 2


@pytest.mark.parametrize("bad", ["checkpoint", 3, bd.Checkpoint, True])
def test_unknown_adjoint(bad):
    with pytest.raises(TypeError, match=r"adjoint must be Checkpoint\(every\) or Truncated\(steps\), got"):
        simulator(puck).rollout(random_state(puck()), steps=2, adjoint=bad)


@pytest.mark.parametrize("length", [STEPS, 2**31, 2**63 - 1, 2**63, 2**64, 2**64 * 3, 10**40])
def test_very_long_truncation_is_none(length):
    """Also lengths beyond the integers of the kernels."""
    found = []
    for adjoint in (None, bd.Truncated(length)):
        (controls,) = leaves(random_controls(arm(), STEPS, 2))
        simulator(arm).rollout(random_state(arm(), 2), controls, adjoint=adjoint).q.sum().backward()
        found.append(controls.grad)
    assert torch.equal(*found)


def test_truncation_cuts_the_gradient():
    (controls,) = leaves(random_controls(arm(), 6, 2))
    path = simulator(arm).rollout(random_state(arm(), 2), controls, adjoint=bd.Truncated(2))
    path.last.q.sum().backward()
    assert (controls.grad[:4] == 0).all() and (controls.grad[4:] != 0).any()


@pytest.mark.parametrize("every", [2, 3, 100])
def test_checkpoints_change_no_gradient(every):
    found = []
    for adjoint in (None, bd.Checkpoint(every)):
        inputs = leaves(*random_state(arm(), 2), random_controls(arm(), STEPS, 2), arm().parameter("mass"))
        state, parameters = bd.State(*inputs[:2]), {"mass": inputs[3]}
        path = simulator(arm).rollout(state, inputs[2], parameters=parameters, adjoint=adjoint)
        found.append(torch.autograd.grad(project(*path.last), inputs))
    for x, y in zip(*found):
        torch.testing.assert_close(x, y, rtol=1e-11, atol=1e-12)
