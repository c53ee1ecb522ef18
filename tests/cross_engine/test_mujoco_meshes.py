"""Meshes on planes touch where MuJoCo has it: steps along a fall agree."""

import mujoco
import numpy as np
import pytest
from mujoco_worlds import load, mujoco_model, steps_of_mujoco, tensors

import backdrive as bd


def corners(rng):
    """Of a box with random sides."""
    return np.stack(np.meshgrid(*([-1.0, 1.0],) * 3), -1).reshape(-1, 3) * rng.uniform(0.05, 0.2, 3)


def wedge(rng):
    x, y, z = rng.uniform(0.1, 0.4, 3)
    return np.array([(0, 0, 0), (x, 0, 0), (0, y, 0), (x, y, 0), (0, 0, z), (0, y, z)])


def cloud(rng, count=20):
    return 0.15 * rng.normal(size=(count, 3))


def pebble(rng):
    """With more vertices than hulls have in rigid physics."""
    points = rng.normal(size=(200, 3))
    return 0.2 * points / np.linalg.norm(points, axis=1, keepdims=True)


def world(vertices, rng):
    mesh = " ".join(map(str, vertices.ravel()))
    turn = " ".join(map(str, rng.uniform(-40, 40, 3)))
    return (
        f'<mujoco><asset><mesh name="m" vertex="{mesh}"/></asset><worldbody>'
        '<geom type="plane" size="1 1 1" margin="0.002"/>'
        f'<body pos="0 0 0.35" euler="{turn}"><freejoint/><geom type="mesh" mesh="m"/></body></worldbody></mujoco>'
    )


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize(("shape", "most"), [(corners, 0), (wedge, 0), (cloud, 4), (pebble, 4)])
def test_a_mesh_falls_on_a_plane(shape, most, seed):
    """most: in so many of 100 states, MuJoCo may choose other points of a face."""
    rng = np.random.default_rng(seed)
    text = world(shape(rng), rng)
    model = mujoco_model(text, bd.MuJoCo())
    data, states = mujoco.MjData(model), []
    for t in range(1000):
        if t % 10 == 0:
            states.append((data.qpos.copy(), data.qvel.copy()))
        mujoco.mj_step(model, data)
    q, v = (np.array(x) for x in zip(*states, strict=True))
    q_next, v_next, contacts = steps_of_mujoco(model, q, v, np.zeros((len(q), 0)))
    after = bd.Simulator(load(text), physics="mujoco").step(bd.State(*tensors(q, v)))
    apart = np.maximum(np.abs(after.q.numpy() - q_next).max(1), np.abs(after.v.numpy() - v_next).max(1))
    assert (contacts > 0).sum() > 50
    assert (apart > 1e-9).sum() <= most
