"""linearize over several steps with a held control: the product of the Jacobians of the steps."""

import pytest
import torch
from hoppers import hopping, start
from scenes import arm, chain, randn, random_controls, random_state, simulator

import backdrive as bd

STEPS = 5
WORLDS = {
    "MuJoCo's Euler": (lambda: hopping("Euler"), lambda model: start(3)),
    "RK4": (lambda: hopping("RK4"), lambda model: start(3)),
    "2D chain": (lambda: simulator(chain), lambda model: random_state(model, 3)),
    "3D arm": (lambda: simulator(arm), lambda model: random_state(model, 3)),
}


def moved(sim, state, change):
    """The state ⊕ a change [B, 2 nv]."""
    tangent, nv = sim._tangent, sim.model.nv
    return bd.State(tangent.displace(state.q, change[..., :nv]), state.v + change[..., nv:])


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("seed", range(2))
def test_changes_after_several_steps(world, seed):
    """Against central differences of rollouts, in random directions of state and control."""
    make, begin = WORLDS[world]
    sim = make()
    state, u = begin(sim.model), 0.3 * random_controls(sim.model, 3, seed=seed)
    A, B = sim.linearize(state, u, steps=STEPS)
    direction, push = randn(3, 2 * sim.model.nv, seed=seed), randn(3, sim.model.nu, seed=seed + 1)
    expected = (A @ direction.unsqueeze(-1) + B @ push.unsqueeze(-1)).squeeze(-1)

    def after(size):
        other = moved(sim, state, size * direction)
        return sim.rollout(other, (u + size * push).expand(STEPS, *u.shape)).last

    def slope(size):
        ahead, behind = after(size), after(-size)
        change = sim._tangent.difference(ahead.q, behind.q), ahead.v - behind.v
        return torch.cat(change, -1) / (2.0 * size)

    error = min(float((slope(size) - expected).abs().max()) for size in (1e-4, 1e-5, 1e-6, 1e-7))
    assert error < 1e-6 * float(expected.abs().max())


def test_parameters_one_world_and_one_step():
    sim = simulator(chain)
    state, u = random_state(sim.model, 3), random_controls(sim.model, 3)
    mass = sim.model.parameter("mass")
    shared = sim.linearize(state, u, steps=4, parameters={"mass": mass})
    rows = sim.linearize(state, u, steps=4, parameters={"mass": mass.expand(3, *mass.shape)})
    for x, y, z in zip(shared, rows, sim.linearize(state, u, steps=4), strict=True):
        assert torch.allclose(x, y, atol=1e-12) and torch.allclose(x, z, atol=1e-12)
    one = sim.linearize(bd.State(state.q[1], state.v[1]), u[1], steps=4)
    assert torch.allclose(one[0], shared[0][1], atol=1e-12) and one[1].shape == shared[1].shape[1:]
    for x, y in zip(sim.linearize(state, steps=1), sim.linearize(state), strict=True):
        assert torch.equal(x, y)
    with pytest.raises(ValueError, match="steps"):
        sim.linearize(state, u, steps=0)
