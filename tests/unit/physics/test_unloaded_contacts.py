"""A body that rolls on a surface without load moves freely, and so do its derivatives: friction needs a load."""

import pytest
import torch

import backdrive as bd

DT = 0.01


def rolling(dim: int, seed: int) -> tuple[bd.Model, bd.State]:
    """Discs or balls of random size, mass and friction, without gravity, that touch the floor and roll on it."""
    random = torch.Generator().manual_seed(seed)
    scene = bd.Scene(dim, gravity=(0.0,) * dim)
    friction = 0.1 + float(torch.rand((), generator=random))
    scene.add_static(bd.HalfSpace((0.0,) * (dim - 1) + (1.0,)), friction=friction)
    velocities = []
    for k in range(3):
        radius, mass, speed = (0.1 + torch.rand(3, generator=random, dtype=torch.float64)).tolist()
        shape = bd.Circle(radius) if dim == 2 else bd.Sphere(radius)
        position = (4.0 * k,) + (0.0,) * (dim - 2) + (radius,)
        scene.add_body(f"body{k}", shape, mass=mass, friction=friction, position=position)
        turning = (-speed / radius,) if dim == 2 else (0.0, speed / radius, 0.0)
        velocities += [speed, *(0.0,) * (dim - 1), *turning]
    model = scene.build()
    return model, bd.State(model.initial_state().q, torch.tensor(velocities, dtype=torch.float64))


@pytest.mark.parametrize("impacts", [False, True], ids=["plain", "exact"])
@pytest.mark.parametrize("solver", [bd.InteriorPoint(), bd.ProjectedGaussSeidel()], ids=["interior", "sweeps"])
@pytest.mark.parametrize("dim", [2, 3])
def test_rolling_without_load_is_free_motion(dim, solver, impacts):
    for seed in range(4):
        model, start = rolling(dim, seed)
        sim = bd.Simulator(model, DT, solver=solver, impacts=impacts, specialize=False)
        v = start.v.requires_grad_()
        after = sim.step(bd.State(start.q, v))
        torch.testing.assert_close(after.v, v, rtol=0, atol=1e-9)
        found = torch.stack([torch.autograd.grad(x, v, retain_graph=True)[0] for x in after.v])
        level = [k for k in range(model.nv) if k % (model.nv // 3) != dim - 1]  # towards the floor, contacts press
        torch.testing.assert_close(found[level][:, level], torch.eye(len(level), dtype=v.dtype), rtol=0, atol=1e-9)
