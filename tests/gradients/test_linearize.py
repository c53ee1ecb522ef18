"""linearize is the Jacobian of a step in the tangent space: by repeated backward, and by finite displacements."""

import pytest
import torch
from scenes import ALL, arm, chain, leaves, random_controls, random_state, simulator

import backdrive as bd
from backdrive.differences import central
from backdrive.runtime.jacobians import StepPoint, step_jacobians
from backdrive.schema.layout import NQ, NV, Kind

EVERY_SCENE = pytest.mark.parametrize("make", ALL, ids=lambda make: make.__name__)
INTEGRATORS = pytest.mark.parametrize("integrator", [bd.SemiImplicitEuler(), bd.Midpoint()], ids=repr)


def product(a, b):
    """Of quaternions [..., 4]."""
    (a0, a1, a2, a3), (b0, b1, b2, b3) = a.unbind(-1), b.unbind(-1)
    parts = [
        a0 * b0 - a1 * b1 - a2 * b2 - a3 * b3, a0 * b1 + a1 * b0 + a2 * b3 - a3 * b2,
        a0 * b2 - a1 * b3 + a2 * b0 + a3 * b1, a0 * b3 + a1 * b2 - a2 * b1 + a3 * b0,
    ]  # fmt: skip
    return torch.stack(parts, -1)


def links(model):
    """(kind, coordinates in q, coordinates in v) of every link, those of quaternions apart."""
    for kind, a, b in zip(model.kind.tolist(), model.qadr.tolist(), model.vadr.tolist()):
        plain = {Kind.BALL: 0, Kind.FREE: 3}.get(kind, NV[kind])
        yield slice(a, a + plain), slice(b, b + plain), slice(a + plain, a + NQ[kind]), slice(b + plain, b + NV[kind])


def displaced(model, q, d):
    """q ⊕ d, to second order."""
    out = q.clone()
    for plain_q, plain_v, turn_q, turn_v in links(model):
        out[..., plain_q] += d[..., plain_v]
        if turn_q.stop > turn_q.start:
            half = torch.cat([torch.ones_like(d[..., :1]), d[..., turn_v] / 2], -1)
            out[..., turn_q] = product(q[..., turn_q], half)
    return out


def difference(model, a, b):
    """d such that a = b ⊕ d, for a close to b."""
    out = a.new_zeros(*a.shape[:-1], model.nv)
    for plain_q, plain_v, turn_q, turn_v in links(model):
        out[..., plain_v] = a[..., plain_q] - b[..., plain_q]
        if turn_q.stop > turn_q.start:
            x, y = (torch.nn.functional.normalize(z[..., turn_q], dim=-1) for z in (a, b))
            conjugate = y * torch.tensor([1.0, -1.0, -1.0, -1.0], dtype=y.dtype)
            relative = product(conjugate, x)
            out[..., turn_v] = 2.0 * relative[..., 1:] * relative[..., :1].sign()
    return out


@EVERY_SCENE
@INTEGRATORS
def test_finite_displacements(make, integrator):
    model, sim = make(), simulator(make, integrator=integrator)
    state, control = random_state(model, 2), random_controls(model, 2)
    A, B = sim.linearize(state, control)
    after = sim.step(state, control)
    nv = model.nv
    for k in range(2 * nv + model.nu):

        def end(e, k=k):
            d = torch.zeros(2, 2 * nv + model.nu, dtype=torch.float64)
            d[:, k] = e
            moved = bd.State(displaced(model, state.q, d[:, :nv]), state.v + d[:, nv : 2 * nv])
            last = sim.step(moved, control + d[:, 2 * nv :])
            return torch.cat([difference(model, last.q, after.q), last.v], -1)

        column = A[..., k] if k < 2 * nv else B[..., k - 2 * nv]
        torch.testing.assert_close(central(end, 1e-6), column, rtol=1e-6, atol=1e-7)


@EVERY_SCENE
@INTEGRATORS
def test_repeated_backward(make, integrator):
    """A displacement of q, pulled back through the map from displacements to q: one backward per row."""
    model, sim = make(), simulator(make, integrator=integrator)
    state, control = random_state(model), random_controls(model)
    A, B = sim.linearize(state, control)
    base = sim.step(state, control)
    d, v, u = leaves(torch.zeros(model.nv, dtype=torch.float64), state.v, control)
    end = sim.step(bd.State(displaced(model, state.q, d), v), u)
    outcome = torch.cat([difference(model, end.q, base.q), end.v])
    rows = [torch.autograd.grad(x, [d, v, u], retain_graph=True) for x in outcome]
    for k, (dq, dv, du) in enumerate(rows):
        torch.testing.assert_close(A[k], torch.cat([dq, dv]), rtol=1e-12, atol=1e-12)
        torch.testing.assert_close(B[k], du, rtol=1e-12, atol=1e-12)


def test_parameters():
    """Shared or per environment, they are those of the step."""
    sim, state, control = simulator(chain), random_state(chain(), 3), random_controls(chain(), 3)
    mass = chain().parameter("mass") * torch.tensor([[1.0], [2.0], [0.5]], dtype=torch.float64)
    A, B = sim.linearize(state, control, parameters={"mass": mass})
    for k in range(3):
        one = bd.State(state.q[k], state.v[k])
        for x, y in zip((A, B), sim.linearize(one, control[k], parameters={"mass": mass[k]})):
            torch.testing.assert_close(x[k], y, rtol=1e-12, atol=1e-12)
    assert not torch.allclose(A, sim.linearize(state, control)[0])


def test_modes():
    """Whatever autograd is told, the Jacobians are the same, and carry no graph."""
    sim, control = simulator(arm), random_controls(arm(), 2)
    q, v = leaves(*random_state(arm(), 2))
    expected = sim.linearize(bd.State(q.detach(), v.detach()), control)
    with torch.no_grad():
        without = sim.linearize(bd.State(q, v), control)
    with torch.inference_mode():
        inference = sim.linearize(random_state(arm(), 2), control)
    graph = sim.linearize(sim.step(bd.State(q, v)), control)
    assert not any(x.requires_grad for x in (*without, *graph))
    for found in (sim.linearize(bd.State(q, v), control), without, inference):
        assert all(torch.equal(x, y) for x, y in zip(found, expected))
    assert torch.equal(sim.linearize((q, v), control)[0], expected[0])  # a plain pair is a state


def test_bad_input():
    sim, state = simulator(arm), random_state(arm(), 2)
    with pytest.raises(ValueError, match=r"control must be \[2, 2\], got \[3\]"):
        sim.linearize(state, torch.zeros(3, dtype=torch.float64))
    with pytest.raises(TypeError, match=r"control must have the simulator's dtype torch.float64, got torch.float32"):
        sim.linearize(state, torch.zeros(2, 2))
    with pytest.raises(TypeError, match="control must be a torch tensor, got list"):
        sim.linearize(state, [0.0, 0.0])
    with pytest.raises(TypeError, match=r"state must be State\(q, v\), got NoneType"):
        sim.linearize(None)
    bad = state.v.clone()
    bad[1, 3] = float("nan")
    with pytest.raises(ValueError, match=r"state.v is not finite: nan at \[1, 3\] of its shape \[2, 11\]"):
        sim.linearize(bd.State(state.q, bad))


def test_single_precision():
    state, control = random_state(arm(), 2), random_controls(arm(), 2)
    single = simulator(arm, dtype=torch.float32).linearize(state.to(torch.float32), control.to(torch.float32))
    for x, y in zip(single, simulator(arm).linearize(state, control)):
        torch.testing.assert_close(x.to(torch.float64), y, rtol=1e-3, atol=1e-4)


def heap(dim, depth):
    """Bodies at rest on a floor and on each other, sunk in by `depth`; a motor pulls at one of them."""
    scene = bd.Scene(dim=dim)
    scene.add_static(bd.HalfSpace(normal=(0, 1) if dim == 2 else (0, 0, 1)), friction=0.6)
    size, at = ((0.4, 0.2), (0.0,)) if dim == 2 else ((0.4, 0.3, 0.2), (0.0, 0.0))
    scene.add_body("box", bd.Box(*size), mass=1.0, position=(*at, 0.1 - depth), friction=0.5)
    ball = bd.Circle(0.1) if dim == 2 else bd.Sphere(0.1)
    scene.add_body("ball", ball, mass=0.5, position=(*at, 0.3 - 2 * depth), friction=0.5)
    moment = 0.01 if dim == 2 else (0.01, 0.01, 0.01)
    scene.add_body("arm", mass=0.2, inertia=moment, position=(*at, 0.1), com=(0.1, *at))
    hinge = bd.Hinge(limits=(-0.1, 1.0)) if dim == 2 else bd.Hinge(axis=(0, 1, 0), limits=(-0.1, 1.0))
    scene.add_motor("motor", joint=scene.add_joint("hinge", hinge, parent="box", child="arm"))
    return scene.build()


@pytest.mark.slow
@pytest.mark.parametrize("solver", [bd.ProjectedGaussSeidel(), bd.InteriorPoint()], ids=lambda s: type(s).__name__)
@pytest.mark.parametrize("depth", [0.0, 0.004])
@pytest.mark.parametrize("dim", [2, 3])
def test_the_kernel_of_jacobians_in_contact_is_the_adjoint_row_by_row(dim, depth, solver):
    """Resting, sliding, at a limit, and with positions that are corrected."""
    model = heap(dim, depth)
    sim = bd.Simulator(model, 1 / 100, solver=solver)
    random = torch.Generator().manual_seed(dim)
    q, v = model.initial_state(8)
    v = v + torch.randn(v.shape, generator=random, dtype=v.dtype) * torch.linspace(0, 0.3, 8).double().unsqueeze(-1)
    u = torch.randn(8, 1, generator=random, dtype=v.dtype)
    path = sim.rollout(bd.State(q, v), u.expand(3, 8, 1))
    assert (path.status.contacts > 0).any() and path.status.converged.all()
    assert bool((path.status.depth > 1e-3).any()) == (depth > 0)
    for t in range(3):
        state = path[t]
        at = StepPoint(sim._program, sim._tangent, tuple(state), u, None, "")
        for found, expected in zip(sim.linearize(state, u), step_jacobians(at, path[t + 1].q)):
            torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9 * float(expected.abs().max()))
