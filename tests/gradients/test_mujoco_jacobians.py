"""The Jacobians of a step of MuJoCo's physics against its adjoint, row by row, and MuJoCo's own differences."""

import mujoco
import numpy as np
import pytest
import torch
from mujoco_worlds import LINKED, load, mujoco_model, tensors, visited, zoo

import backdrive as bd
from backdrive.runtime import jacobians
from backdrive.runtime.call import Call

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")

STATES = 12


def start(name: str, options: bd.MuJoCo, seed: int):
    """MuJoCo's model, a simulator, and states and controls [STATES, n]."""
    model = mujoco_model(name, options)
    q, v, u = visited(model, STATES, seed)
    return model, bd.Simulator(load(name), physics=options), q, v, 0.5 * u


@pytest.mark.parametrize(
    ("name", "integrator"),
    [(zoo(), "euler"), (zoo(condim=6), "implicitfast"), (LINKED, "euler"), ("ant", "implicitfast")],
    ids=["zoo", "rolling", "linked", "ant"],
)
def test_the_kernel_agrees_with_the_adjoint(name, integrator):
    _, simulator, *arrays = start(name, bd.MuJoCo(integrator=integrator, cone="elliptic"), seed=3)
    q, v, u = tensors(*arrays)
    A, B = simulator.linearize(bd.State(q, v), u)
    call = Call(simulator._program, bd.State(q, v), None)
    at = jacobians.StepPoint(simulator._program, simulator._tangent, call.state, u, None, "")
    expected = jacobians.step_jacobians(at, simulator.step(bd.State(q, v), u).q)
    for found, wanted in zip((A, B), expected, strict=True):
        torch.testing.assert_close(found, wanted, rtol=1e-10, atol=1e-10 * float(wanted.abs().max()))


@pytest.mark.parametrize("name", ["half_cheetah", "ant", "humanoid"])
def test_linearize_agrees_with_mujocos_differences(name):
    model, simulator, q, v, u = start(name, bd.MuJoCo(integrator="euler"), seed=5)
    A, B = simulator.linearize(bd.State(*tensors(q, v)), tensors(u)[0])
    data, found = mujoco.MjData(model), []
    for k in range(STATES):
        mujoco.mj_resetData(model, data)
        data.qpos[:], data.qvel[:], data.ctrl[:] = q[k], v[k], u[k]
        by_state, by_control = np.zeros(A.shape[1:]), np.zeros(B.shape[1:])
        mujoco.mjd_transitionFD(model, data, 1e-6, True, by_state, by_control, None, None)
        wanted = np.concatenate([by_state, by_control], 1)
        error = np.abs(torch.cat([A[k], B[k]], 1).numpy() - wanted).max() / np.abs(wanted).max()
        found.append(error)
    assert np.sort(found)[-2] < 1e-6  # a difference may meet a switch of the contacts
