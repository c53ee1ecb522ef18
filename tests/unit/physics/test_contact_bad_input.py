"""What contact cannot do, and what is asked wrongly, is said."""

import math

import pytest
import torch
from contact_scenes import ground

import backdrive as bd


def block_on_the_ground():
    scene = ground(2)
    scene.add_body("block", bd.Box(0.4, 0.2), mass=1.0, position=(0.0, 0.1))
    return scene.build()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"solver": "newton"}, "solver must be InteriorPoint"),
        ({"pyramid": 5}, "pyramid must be an even number"),
        ({"pyramid": 2}, "pyramid must be an even number"),
        ({"bounce_threshold": -1.0}, "bounce_threshold must be a speed"),
        ({"bounce_threshold": math.nan}, "bounce_threshold must be a speed"),
        ({"impacts": "some"}, "impacts must be True, False or 'auto', got 'some'"),
        ({"impacts": True, "dtype": torch.float32}, "impacts=True needs dtype=torch.float64"),
    ],
)
def test_wrong_settings(options, message):
    with pytest.raises((TypeError, ValueError), match=message):
        bd.Simulator(block_on_the_ground(), 0.01, **options)


def test_bad_solver_numbers():
    for bad in ({"iterations": 0}, {"tolerance": 0.0}, {"erp": 2.0}, {"cfm": -1.0}, {"iterations": 2.5}):
        with pytest.raises(ValueError, match=next(iter(bad))):
            bd.ProjectedGaussSeidel(**bad)
    with pytest.raises(ValueError, match="max_iterations"):
        bd.InteriorPoint(max_iterations=0)


@pytest.mark.parametrize(
    ("name", "value"), [("friction", -0.1), ("restitution", 1.5), ("softness", -1.0), ("size", 0.0)]
)
def test_parameters_out_of_range(name, value):
    model = block_on_the_ground()
    sim = bd.Simulator(model, 0.01)
    with pytest.raises(ValueError, match=name):
        sim.step(model.initial_state(), parameters={name: torch.full_like(model.parameter(name), value)})


def test_more_contacts_than_memory():
    scene = bd.Scene(2)
    for k in range(400):
        scene.add_body(f"b{k}", bd.Circle(0.1), mass=1.0, position=(float(k), 0.0))
    with pytest.raises(ValueError, match=r"79,800 pairs of shapes may touch .* Exclude pairs that never meet"):
        bd.Simulator(scene.build(), 0.01, sparse=False)


def test_forces_that_there_are_not():
    scene = bd.Scene(2)
    scene.add_body("ball", bd.Circle(0.1), mass=1.0)
    model = scene.build()
    path = bd.Simulator(model, 0.01).rollout(model.initial_state(), steps=3)
    with pytest.raises(ValueError, match="nothing constrains this model"):
        path.contacts  # noqa: B018
    model = block_on_the_ground()
    sim = bd.Simulator(model, 0.01)
    path = sim.rollout(model.initial_state(), steps=4, adjoint=bd.Checkpoint(2))
    with pytest.raises(ValueError, match="contact forces need all states"):
        path.contacts  # noqa: B018
    path = sim.rollout(model.initial_state(), steps=3)
    with pytest.raises(ValueError, match="unknown body"):
        path.contacts.on("b7")
    with pytest.raises(ValueError, match="unknown constraint"):
        path.contacts.of("b7")
