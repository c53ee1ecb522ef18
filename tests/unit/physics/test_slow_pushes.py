"""Slow pushes: a heavy block pushes a box over the floor, so slowly that friction could stop it in a step."""

import math

import numpy as np
import pytest
import torch
from contact_scenes import G
from hypothesis import given, settings
from hypothesis import strategies as st

import backdrive as bd

DT, FRICTION, HEAVY = 0.01, 0.5, 1e6
FASTEST = FRICTION * G * DT  # m/s; friction stops what is slower within a step
WORLDS = pytest.mark.parametrize("sparse", [False, True], ids=["dense", "big"])


def pushed(azimuth, speed):
    """A box of 1 kg, moving at this speed (m/s) with the block behind it."""
    along, turn = np.array([math.cos(azimuth), math.sin(azimuth), 0.0]), (math.cos(azimuth / 2), math.sin(azimuth / 2))
    scene, same = bd.Scene(3, combine="min"), {"quaternion": (turn[0], 0, 0, turn[1]), "velocity": tuple(speed * along)}
    scene.add_static(bd.HalfSpace((0, 0, 1)), friction=FRICTION)
    scene.add_body("box", bd.Box(0.2, 0.2, 0.02), mass=1.0, position=(0, 0, 0.01), friction=FRICTION, **same)
    behind = tuple(-0.2 * along + np.array([0.0, 0.0, 0.01]))
    scene.add_body("block", bd.Box(0.2, 0.2, 0.02), mass=HEAVY, position=behind, friction=0.0, **same)
    return scene.build(), along


def simulator(model, sparse):
    solver = bd.ProjectedGaussSeidel(3000, 1e-13) if sparse else bd.ProjectedGaussSeidel()
    return bd.Simulator(model, DT, sparse=sparse, specialize=False, solver=solver)


@WORLDS
@settings(max_examples=4)
@given(azimuth=st.floats(0.0, 2.0 * math.pi), part=st.floats(0.05, 0.9))
def test_slow_pushes_need_the_same_force_all_around(sparse, azimuth, part):
    """μ m g, by what the block loses of its momentum; and the box goes where it is pushed."""
    model, along = pushed(azimuth, part * FASTEST)
    path = simulator(model, sparse).rollout(model.initial_state(), steps=20)
    force = -HEAVY * (path.velocity("block")[1:] - path.velocity("block")[:-1]) / DT @ torch.tensor(along)
    torch.testing.assert_close(force[5:], torch.full_like(force[5:], FRICTION * G), rtol=1e-4, atol=0)
    torch.testing.assert_close(path.velocity("box"), path.velocity("block"), rtol=0, atol=1e-4 * FASTEST)


@settings(max_examples=3)
@given(azimuth=st.floats(0.0, 2.0 * math.pi), aside=st.floats(-1.0, 1.0))
def test_slides_turn_into_the_direction_of_the_push(azimuth, aside):
    """What slides at an angle to a push, up to 45°, is held back in its slip, and not kept on a rail: it loses its
    velocity across the push within two centimetres."""
    speed = 0.2 * FASTEST
    model, along = pushed(azimuth, speed)
    across = np.array([-along[1], along[0], 0.0])
    q, v = model.initial_state()
    v = v + torch.tensor([*(aside * speed * across), *[0.0] * 9])
    path = simulator(model, False).rollout(bd.State(q, v), steps=200)
    torch.testing.assert_close(path.velocity("box")[-1], path.velocity("block")[-1], rtol=0, atol=1e-2 * speed)
