"""Contact forces of one big world: those of the dense form, in balance at rest, and differentiable."""

import pytest
import torch
from differences import require_derivative
from piles import pile, settled, tower

import backdrive as bd

EXACT = bd.ProjectedGaussSeidel(iterations=20_000, tolerance=1e-12)


@pytest.mark.parametrize("dim", [2, 3])
def test_forces_are_those_of_the_dense_form(dim):
    model = pile(7, seed=dim, dim=dim, spacing=0.95, step=True)
    dense = bd.Simulator(model, 0.01, sparse=False, impacts=False, specialize=False)
    sparse = bd.Simulator(model, 0.01, sparse=True, solver=EXACT)
    state = settled(dense, 30)
    a, b = (simulator.rollout(state, steps=1).contacts for simulator in (dense, sparse))
    assert (a.force != 0.0).any(-1).sum() > 5
    for body in model.bodies:  # (how a load is shared by the corners of a face is not unique, their sum is)
        assert (a.on(body) - b.on(body)).abs().max() < 1e-4 * a.force.abs().max()


def test_forces_carry_the_weight():
    """Of every box of a tower, and that on the ground; unbatched and of a batch."""
    model = tower(4)
    simulator = bd.Simulator(model, 0.005, sparse=True)
    state = settled(simulator, 300)
    weight = 9.81 * model.parameter("mass")
    contacts = simulator.rollout(state, steps=8).contacts
    total = torch.stack([contacts.on(body) for body in model.bodies])
    assert (total[..., 2] - weight[:, None]).abs().max() < 0.02 * weight[0]
    ground = [k for k, pair in enumerate(contacts.pairs) if not all(name.startswith("box") for name in pair)]
    assert len(ground) == 4
    assert torch.allclose(contacts.force[:, ground].sum(1)[:, 2], weight.sum().expand(8), rtol=0.02)
    assert (contacts.point[:, ground, 2].abs() < 1e-5).all()
    batch = simulator.rollout(bd.State(state.q.expand(2, -1), state.v.expand(2, -1)), steps=8).contacts
    for k in range(2):
        assert torch.equal(batch.force[:, k], contacts.force)


def test_nothing_touches():
    model = pile(3, dim=3, spacing=5.0)
    simulator = bd.Simulator(model, 0.01, sparse=True)
    contacts = simulator.rollout(model.initial_state(), steps=2).contacts
    assert contacts.pairs == []
    assert torch.equal(contacts.on("body 0"), torch.zeros(2, 3, dtype=torch.float64))


@pytest.mark.parametrize("seed", [0, 1, 2, 3, 4, 5])
@pytest.mark.parametrize("dim", [2, 3])
def test_gradients_of_forces(dim, seed):
    """Also through the impulses of the steps before, from which a step starts."""
    model, generator = pile(10, seed=seed, dim=dim), torch.Generator().manual_seed(seed)
    simulator = bd.Simulator(model, 0.01, sparse=True, solver=bd.ProjectedGaussSeidel(iterations=8))
    start, random = settled(simulator, 20), lambda *n: torch.randn(*n, generator=generator, dtype=torch.float64)
    weights = random(len(model.bodies), 3, dim)
    values = {"q": start.q, "v": start.v, "wrenches": 0.1 * random(3, model.nbody, 3 if dim == 2 else 6)}
    values |= {name: model.parameter(name).clone() for name in ("mass", "friction", "size", "gravity")}

    def loss_of(q, v, wrenches, **parameters):
        path = simulator.rollout(bd.State(q, v), wrenches=wrenches, parameters=parameters)
        contacts = path.contacts
        forces = sum((w * contacts.on(body)).sum() for w, body in zip(weights, model.bodies))
        return forces + (contacts.force * contacts.point).sum()

    leaves = {name: x.clone().requires_grad_() for name, x in values.items()}
    gradient = dict(zip(leaves, torch.autograd.grad(loss_of(**leaves), list(leaves.values()))))
    for name, x in values.items():

        def loss(x, name=name):
            return float(loss_of(**values | {name: x}))

        require_derivative(gradient[name], loss, x, [random(*x.shape), random(*x.shape)], 1e-6, name)
