"""Rolled kernels for homogeneous links give the motions and gradients of the rolled kernels for all models."""

import numpy as np
import pytest
import torch
from contact_scenes import INTEGRATORS, parameters
from impact_scenes import gradients_of

import backdrive as bd
from backdrive.physics.tree.tree import MANY, Homogeneous
from backdrive.schema.layout import ARMATURE, COM, LINK, MASS

BATCH, STEPS, DT = 3, 6, 1 / 60  # later the motion is chaotic


def crowd(dim, com=0.0, coordinates="reduced"):
    """Bodies of two shapes that fall on the ground and on each other; in maximal coordinates also with a hinge."""
    scene = bd.Scene(dim, coordinates=coordinates)
    up = (0.0, 1.0) if dim == 2 else (0.0, 0.0, 1.0)
    scene.add_static(bd.HalfSpace(up), friction=0.5, restitution=0.3)
    shapes = (bd.Circle(0.1), bd.Box(0.2, 0.15)) if dim == 2 else (bd.Sphere(0.1), bd.Capsule(0.07, 0.1))
    for k in range(MANY):
        height, x = 0.13 + 0.19 * (k % 4 // 2), 0.25 * (k % 2) + 1.5 * (k // 4)
        place = (x, height) if dim == 2 else (x, 0.02 * (k % 4), height)
        velocity = (0.3 - 0.2 * (k % 4), -0.5) if dim == 2 else (0.3 - 0.2 * (k % 4), 0.1, -0.5)
        scene.add_body(f"body{k}", shapes[k % 2], mass=1.0 + 0.3 * k, position=place, velocity=velocity,
                       com=(com,) * dim, friction=0.4, restitution=0.2)  # fmt: skip
    if coordinates == "maximal":
        scene.add_joint("hinge", bd.Hinge(), parent="body0", child="body1", anchor=(0.12, 0.13))
    return scene.build()


def results(model, inputs, integrator, wrenches, **options):
    sim = bd.Simulator(model, DT, integrator=integrator, sparse=False, specialize=False, **options)
    state = model.initial_state(BATCH)
    leaves = {"q": state.q.clone(), "v": state.v.clone(), **{k: x.clone() for k, x in inputs.items()}}
    generator = torch.Generator().manual_seed(0)
    leaves["v"] += 0.1 * torch.randn(leaves["v"].shape, generator=generator, dtype=torch.float64)
    if wrenches:
        shape = (STEPS, BATCH, model.nbody, 3 if model.dim == 2 else 6)
        leaves["wrenches"] = torch.randn(shape, generator=generator, dtype=torch.float64)
    leaves = {k: x.requires_grad_() for k, x in leaves.items()}
    given = {k: x for k, x in leaves.items() if k in inputs}
    start = bd.State(leaves["q"], leaves["v"])
    path = sim.rollout(start, steps=STEPS, wrenches=leaves.get("wrenches"), parameters=given or None)
    loss = path.q.sin().sum() + 0.1 * path.v.cos().sum()
    return path.q.detach(), path.v.detach(), gradients_of(loss, leaves)


def check(monkeypatch, model, inputs, integrator, wrenches=False, **options):
    mine = results(model, inputs, integrator, wrenches, **options)
    monkeypatch.setattr(Homogeneous, "links_of", classmethod(lambda *_: None))
    theirs = results(model, inputs, integrator, wrenches, **options)
    for a, b in zip(mine[:2], theirs[:2]):
        assert (a - b).abs().max() < 1e-11
    for name, b in theirs[2].items():
        assert (mine[2][name] - b).abs().max() <= 1e-9 * (1.0 + b.abs().max()), name


@pytest.mark.slow
@pytest.mark.parametrize("integrator", INTEGRATORS.values(), ids=INTEGRATORS)
@pytest.mark.parametrize("impacts", [False, True])
@pytest.mark.parametrize("dim", [2, 3])
def test_motion_and_gradients(monkeypatch, dim, impacts, integrator):
    check(monkeypatch, crowd(dim), {}, integrator, impacts=impacts)


@pytest.mark.parametrize("dim", [2, 3])
@pytest.mark.parametrize("impacts", [False, True])
def test_gradients_to_parameters_and_wrenches(monkeypatch, impacts, dim):
    """Parameters that are given at run time are not folded, even if they are 0 or 1 in the model."""
    model = crowd(dim)
    inputs = parameters(model, BATCH, spread=0.02)
    check(monkeypatch, model, inputs, bd.SemiImplicitEuler(), wrenches=True, impacts=impacts)


def test_centers_of_mass_and_loops(monkeypatch):
    check(monkeypatch, crowd(2, com=0.02), {}, bd.Midpoint(), impacts=True)
    check(monkeypatch, crowd(2, coordinates="maximal"), {}, bd.SemiImplicitEuler(), impacts=False)


def test_few_links_get_no_kernel_of_their_own():
    scene = bd.Scene(2)
    for k in range(MANY - 1):
        scene.add_body(f"disc{k}", bd.Circle(0.1), mass=1.0, position=(float(k), 0.0))
    model = scene.build()
    assert Homogeneous.links_of(model, np.zeros(len(model.constants), bool)) is None


def test_shared_constants():
    model = crowd(2)
    none = np.zeros(len(model.constants), bool)
    numbers = dict(Homogeneous.links_of(model, none).numbers)
    assert numbers[COM] == 0.0 and numbers[ARMATURE] == 0.0 and MASS not in numbers
    given = none.copy()
    given[LINK + COM] = True  # the second body's
    assert COM not in dict(Homogeneous.links_of(model, given).numbers)
    moved = crowd(2, com=0.02)
    assert COM not in dict(Homogeneous.links_of(moved, none).numbers)


def test_trees_are_not_homogeneous():
    scene = bd.Scene(2)
    scene.add_body("a", bd.Circle(0.1), mass=1.0)
    scene.add_body("b", bd.Circle(0.1), mass=1.0, position=(1.0, 0.0))
    scene.add_joint("hinge", bd.Hinge(), parent="a", child="b", anchor=(0.5, 0.0))
    for k in range(MANY):
        scene.add_body(f"alone{k}", bd.Circle(0.1), mass=1.0, position=(2.0 + k, 0.0))
    model = scene.build()
    assert Homogeneous.links_of(model, np.zeros(len(model.constants), bool)) is None
