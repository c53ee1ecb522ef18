"""Gradients of cylinders that slide flat: four contacts in one plane, whose loads rounding must not decide."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import backdrive as bd

SIZE, MOVES = 1e-6, torch.tensor([1.0, -1.0, 2.0, -2.0], dtype=torch.float64)


def standing(rng):
    """A cylinder that stands on a slope in any direction, and slides along it."""
    scene, slope = bd.Scene(3), np.array([*rng.uniform(-0.5, 0.5, 2), 1.0])
    up = slope / np.linalg.norm(slope)
    turn = np.array([1.0 + up[2], -up[1], up[0], 0.0])
    along = np.cross(up, rng.normal(size=3))
    radius, length = rng.uniform(0.1, 0.3, 2)
    scene.add_static(bd.HalfSpace(tuple(up)), friction=0.3)
    scene.add_body(
        "cylinder", bd.Cylinder(radius, length), density=500.0, friction=rng.uniform(0.1, 0.5),
        position=tuple(0.5 * length * up), quaternion=tuple(turn / np.linalg.norm(turn)),
        velocity=tuple(rng.uniform(1.0, 2.0) * along / np.linalg.norm(along)),
    )  # fmt: skip
    return scene.build()


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "big"])
@settings(max_examples=5)
@given(seed=st.integers(0, 2**16))
def test_cylinders_that_slide_flat(sparse, seed):
    """Along random directions of the state, that tilt and turn the cylinder at once."""
    rng = np.random.default_rng(seed)
    model = standing(rng)
    solver = bd.InteriorPoint() if sparse else bd.ProjectedGaussSeidel()  # sweeps alone do not resolve the loads
    sim = bd.Simulator(model, 1 / 240, sparse=sparse, specialize=False, solver=solver)
    start = torch.cat(model.initial_state())

    def last(x):
        path = sim.rollout(bd.State(x[..., : model.nq], x[..., model.nq :]), steps=5)
        return torch.cat(path.last, -1), path.status

    x, weight = start.clone().requires_grad_(), torch.tensor(rng.normal(size=len(start)))
    after, status = last(x)
    assert (status.contacts == 4).all()
    (gradient,) = torch.autograd.grad((weight * after).sum(), x)
    directions = torch.tensor(rng.normal(size=(4, len(start))))
    for d in directions:
        p, m, p2, m2 = last(start + SIZE * MOVES[:, None] * d)[0] @ weight
        difference = (8.0 * (p - m) - (p2 - m2)) / (12.0 * SIZE)
        assert abs(gradient @ d - difference) < 1e-6 * gradient.norm() * d.norm()
