"""Contact forces and motions beside MuJoCo's, whose contacts are soft."""

import mujoco
import numpy as np
import pytest
from contact_scenes import QUADRUPED, G

import backdrive as bd


def native_motion(text, steps, speed=0.0):
    """MuJoCo's model and data after so many of its steps, with an initial speed of the first coordinate."""
    model = mujoco.MjModel.from_xml_string(text)
    data = mujoco.MjData(model)
    data.qvel[0] = speed
    for _ in range(steps):
        mujoco.mj_step(model, data)
    return model, data


def test_a_resting_robot():
    """Forces on the feet, and the height: MuJoCo's sink in by about a millimetre."""
    model = bd.load(QUADRUPED)
    path = bd.Simulator(model, 0.002).rollout(model.initial_state(), steps=4000)
    native, data = native_motion(QUADRUPED, 4000)
    forces = np.zeros((data.ncon, 6))
    for k in range(data.ncon):
        mujoco.mj_contactForce(native, data, k, forces[k])
    ours = path.contacts.force[-1, :, 2]
    assert data.ncon == 4 and path.status.contacts[-1] == 4
    assert forces[:, 0].sum() == pytest.approx(ours.sum().item(), rel=2e-3)
    assert np.sort(forces[:, 0]) == pytest.approx(np.sort(ours.numpy()), rel=0.05)
    assert path.q[-1, 2].item() == pytest.approx(data.qpos[2], abs=3e-3)


def test_a_sliding_block():
    """The same distance, up to MuJoCo's soft contact, which lets a block creep."""
    text = """<mujoco><option timestep="0.001" cone="elliptic"/><worldbody>
    <geom type="plane" size="9 9 1" friction="0.3"/>
    <body name="block" pos="0 0 .1"><freejoint/><geom type="box" size=".2 .15 .1" mass="2" friction="0.3"/></body>
    </worldbody></mujoco>"""
    model = bd.load(text)
    start = model.initial_state()
    start.v[0] = 2.0
    path = bd.Simulator(model, 0.001).rollout(start, steps=1500)
    _, data = native_motion(text, 1500, speed=2.0)
    right = 2.0**2 / (2 * 0.3 * G)
    assert path.q[-1, 0].item() == pytest.approx(right, rel=2e-3)
    assert data.qpos[0] == pytest.approx(right, rel=2e-2)
