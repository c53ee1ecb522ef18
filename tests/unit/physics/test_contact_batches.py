"""Environments of a batch, whose contacts come and go at different times, do not see each other."""

import math

import pytest
import torch
from contact_scenes import BOTH, ground, near_limits, walker

import backdrive as bd


def fallen(count, dim):
    """Robots that hit the ground at different times."""
    model = walker(dim)
    q = model.initial_state(batch=count).q.clone()
    q[:, dim - 1] -= torch.linspace(0.0, 0.25, count, dtype=q.dtype)
    v = torch.randn(count, model.nv, generator=torch.Generator().manual_seed(1), dtype=q.dtype)
    q, v = near_limits(model, q, v)
    controls = torch.randn(100, count, model.nu, generator=torch.Generator().manual_seed(2), dtype=q.dtype)
    return model, bd.State(q, v), controls


@BOTH
@pytest.mark.parametrize(("dim", "specialize"), [(2, False), (2, True), (3, False)])
def test_batches_change_no_bit(dim, specialize, solver):
    """Alone, among others with other contacts, in another order, by one thread or two: the same bits."""
    model, state, controls = fallen(19, dim)
    options = {"solver": solver, "specialize": specialize}
    sim = bd.Simulator(model, 0.01, threads=1, **options)
    path = sim.rollout(state, controls)
    assert len(path.status.contacts.unique()) > 2
    two = bd.Simulator(model, 0.01, threads=2, **options).rollout(state, controls)
    assert torch.equal(two.q, path.q) and torch.equal(two.v, path.v)
    order = torch.randperm(19, generator=torch.Generator().manual_seed(3))
    mixed = sim.rollout(bd.State(state.q[order], state.v[order]), controls[:, order])
    assert torch.equal(mixed.q, path.q[:, order])
    for k in range(0, 19, 3):
        alone = sim.rollout(bd.State(state.q[k], state.v[k]), controls[:, k])
        assert torch.equal(alone.q, path.q[:, k]) and torch.equal(alone.v, path.v[:, k])
        assert torch.equal(alone.status.residual, path.status.residual[:, k])


def test_nan_stays_in_its_environment():
    """Bit for bit."""
    scene = ground(2)
    scene.add_body("cart", bd.Box(0.4, 0.2), mass=1.0, position=(0.0, 0.1))
    scene.add_motor("push", joint="cart", dof="x")
    model = scene.build()
    simulator = bd.Simulator(model, 0.01, nonfinite="mark")
    generator = torch.Generator().manual_seed(0)
    controls = 20 * torch.randn(50, 6, 1, generator=generator, dtype=torch.float64)
    right = simulator.rollout(model.initial_state(6), controls)
    broken = controls.clone()
    broken[20, 2] = math.nan
    path = simulator.rollout(model.initial_state(6), broken)
    others = [0, 1, 3, 4, 5]
    assert torch.equal(path.q[:, others], right.q[:, others]) and torch.equal(path.v[:, others], right.v[:, others])
    assert path.status.finite[:, others].all() and path.status.converged[:, others].all()
    assert not path.status.finite[20:, 2].any() and not path.status.converged[20:, 2].any()
    leaf = broken.clone().requires_grad_()
    simulator.rollout(model.initial_state(6), leaf).last.q[others].sum().backward()
    fine = controls.clone().requires_grad_()
    simulator.rollout(model.initial_state(6), fine).last.q[others].sum().backward()
    assert torch.equal(leaf.grad[:, others], fine.grad[:, others])
