"""Both solvers on whole steps, of piles and robots: converged, and the same."""

import numpy as np
import pytest
import torch
from contact_scenes import BOTH, SHAPES, SOLVERS, at, ground, near_limits, walker

import backdrive as bd


def pile(dim, seed, friction, walls):
    """Random shapes that fall on each other, on the ground or between walls."""
    rng, scene = np.random.default_rng(seed), ground(dim, friction=friction)
    for side in (-1.0, 1.0) if walls else ():
        scene.add_static(bd.HalfSpace(at(dim, side, 0.0), -0.5), friction=friction)
    names = [name for name in SHAPES[dim] if name != "plane"]
    for k in range(4):
        place = (rng.uniform(-0.1, 0.1), *(0.02 * k,) * (dim - 2), 0.35 + 0.5 * k)
        shape = SHAPES[dim][names[rng.integers(len(names))]]
        scene.add_body(f"body{k}", shape, mass=rng.uniform(0.5, 2.0), position=place, friction=friction)
    return scene.build()


def steps_of_piles(dim, friction, walls):
    """One step of both solvers from every state along the motions of four piles."""
    for seed in range(4):
        model = pile(dim, seed, friction, walls)
        sims = [bd.Simulator(model, 0.01, solver=s, specialize=False) for s in SOLVERS.values()]
        path = sims[0].rollout(model.initial_state(), steps=120)
        yield [sim.rollout(bd.State(path.q[:-1], path.v[:-1]), steps=1) for sim in sims]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("dim", "friction", "walls"), [(2, 0.0, True), (2, 0.2, False), (3, 0.0, False), (3, 0.2, False)]
)
def test_solvers_agree_on_piles(dim, friction, walls):
    """On v⁺ to 1e-9 wherever both converged; without friction (there is one solution only) they always do."""
    most, compared = 0, 0
    for steps in steps_of_piles(dim, friction, walls):
        both = (steps[0].status.converged & steps[1].status.converged)[0]
        assert (steps[0].v[1] - steps[1].v[1])[both].abs().max() <= 1e-9
        most, compared = max(most, steps[0].status.contacts.max().item()), compared + int(both.sum())
    assert most >= 8
    assert compared == 480 if friction == 0.0 else compared >= 0.9 * 480


@pytest.mark.parametrize("which", [0, 1], ids=SOLVERS)
def test_piles_with_friction_converge(which):
    for steps in steps_of_piles(2, 0.5, True):
        assert steps[which].status.converged.all()


def robot_motion(dim, solver):
    """Limits, joint friction and contacts at once: rows that say nearly the same."""
    model = walker(dim)
    q = model.initial_state(batch=64).q.clone()
    q[:, dim - 1] -= torch.linspace(0.0, 0.2, 64, dtype=q.dtype)
    v = torch.randn(64, model.nv, generator=torch.Generator().manual_seed(0), dtype=q.dtype)
    q, v = near_limits(model, q, v)
    return bd.Simulator(model, 0.01, solver=solver, specialize=False).rollout(bd.State(q, v), steps=50)


@BOTH
@pytest.mark.parametrize("dim", [2, 3])
def test_robots_converge(dim, solver):
    status = robot_motion(dim, solver).status
    assert status.finite.all() and status.residual.isfinite().all()
    assert status.converged.all(), f"residual {status.residual.max():.1e}, {int((~status.converged).sum())} steps"
