"""The equations are ordinary Python: on plain floats they give the results of the compiled kernels."""

import numpy as np
import pytest
import torch
from differences import weights
from models import all_joints, random_controls, random_state, random_wrenches

import backdrive as bd
from backdrive.ir import Floats, vjp
from backdrive.physics import rollout
from backdrive.physics.control_source import GivenControls
from backdrive.physics.math import spatial as sp
from backdrive.physics.math.spatial import BODY
from backdrive.physics.scheme import Scheme, StepContext
from backdrive.physics.state import StateArrays, StatePath, StepInputs
from backdrive.physics.step import step
from backdrive.physics.step_adjoint import step_adjoint
from backdrive.physics.tree import inverse
from backdrive.physics.tree.bodies import with_bodies
from backdrive.physics.tree.dynamics_adjoint import Cotangents
from backdrive.physics.tree.poses import link_poses
from backdrive.physics.tree.tree import Tree, topology_table

DT, STEPS = 0.01, 4
INTEGRATORS = pytest.mark.parametrize("integrator", [bd.SemiImplicitEuler(), bd.Midpoint()], ids=repr)


@pytest.mark.parametrize("angle", [0.0, 1e-12, 1e-6, 9e-4, 1.1e-3, 1.9e-3, 2.1e-3, 0.02, 0.031, 0.032, 1.0, 3.0])
def test_rotation_vectors(angle):
    """exp and log of quaternions, and their derivatives, are inverse to each other, with and without the series."""
    axis = weights(3).numpy() / np.linalg.norm(weights(3).numpy())
    a, seeds = tuple((angle * axis).tolist()), tuple(weights(3, seed=1).tolist())
    q = sp.quaternion_exp(a)
    assert abs(sum(x * x for x in q) - 1) < 4e-16
    assert q[0] == pytest.approx(np.cos(angle / 2), rel=1e-15)
    np.testing.assert_allclose(q[1:], np.sin(angle / 2) * axis, rtol=2e-15, atol=0)
    np.testing.assert_allclose(sp.quaternion_log(q), a, rtol=2e-15, atol=0)
    np.testing.assert_allclose(sp.quaternion_log(tuple(-x for x in q)), a, rtol=2e-15, atol=0)
    _, back = vjp(lambda *x: sp.quaternion_log(sp.quaternion_exp(x)), a, seeds)
    np.testing.assert_allclose(back, seeds, rtol=1e-12, atol=0)
    R = np.reshape(sp.rotation_of(tuple(3.0 * x for x in q)), (3, 3))
    np.testing.assert_allclose(
        R, np.reshape(sp.rotation_about(tuple(axis.tolist()), angle), (3, 3)), rtol=0, atol=1e-15
    )


@pytest.mark.parametrize("axis", range(3))
def test_turning_a_matrix(axis):
    """R M Rᵀ for rotations about a coordinate axis, which has a formula of its own."""
    R, M = sp.rotation_about(sp.UNIT[axis], 0.7), tuple(weights(9).tolist())
    right = np.reshape(R, (3, 3)) @ np.reshape(M, (3, 3)) @ np.reshape(R, (3, 3)).T
    np.testing.assert_allclose(np.reshape(sp.rotate_matrix(R, M), (3, 3)), right, rtol=0, atol=1e-15)


class Rows(Floats):
    """The tensor [T, n] of one environment, a row for every time."""

    def row(self, t):
        return Floats(self.values.reshape(-1), t * self.values.shape[1])


def tree_of(model):
    topology, constants = Floats(topology_table(model)), Floats(model.constants.tolist())
    return Tree(model.nlink, model.nq, model.nv, model.nu, model.nconst, topology, constants)


def context(model, integrator):
    return StepContext(with_bodies(tree_of(model)), Scheme(integrator), DT)


def example(dim=3):
    """A model, a state, controls [T, nu] and wrenches on its bodies [T, nbody, 6 or 3]."""
    model = all_joints(6, dim)
    state = random_state(model, 1, scale=3.0)
    return model, bd.State(state.q[0], state.v[0]), random_controls(model, STEPS), random_wrenches(model, STEPS)


def on_links(model, wrenches):
    """Wrenches on links [..., nlink * 6]; in a scene, bodies are links."""
    full = np.zeros((*wrenches.shape[:-1], 6))
    full[..., [0, 1, 5] if model.dim == 2 else slice(6)] = wrenches
    return full.reshape(*wrenches.shape[:-2], -1)


def close(mine, right):
    scale = max(1.0, right.abs().max().item()) if right.numel() else 1.0
    assert (torch.as_tensor(np.asarray(mine, dtype=float)) - right).abs().max() <= 1e-12 * scale


@INTEGRATORS
@pytest.mark.parametrize("dim", [2, 3])
def test_step(integrator, dim):
    model, state, controls, wrenches = example(dim)
    q, v = Floats(state.q.tolist()), Floats(state.v.tolist())
    loads = Floats(on_links(model, wrenches.numpy())[0].tolist())
    ctx, inputs = context(model, integrator), StepInputs(Floats(controls[0].tolist()), loads)
    status = step(ctx, StateArrays(q, v), inputs)
    sim = bd.Simulator(model, DT, integrator=integrator, specialize=False)
    right = sim.rollout(state, controls[:1], wrenches=wrenches[:1])
    assert all(type(x) is float for x in (*q.values, *v.values))
    close(q.values, right.q[1])
    close(v.values, right.v[1])
    assert status.clipped == right.status.clipped.item()


@INTEGRATORS
@pytest.mark.parametrize("every", [1, 3])
def test_rollout(integrator, every):
    model, state, controls, _ = example()
    rows = -(-STEPS // every)
    path_q, path_v, status = (
        Rows(np.zeros((n, k))) for n, k in ((rows, model.nq), (rows, model.nv), (STEPS, rollout.STATUS[False]))
    )
    last_q, last_v = Floats([None] * model.nq), Floats([None] * model.nv)
    ctx = context(model, integrator)
    given = rollout.RolloutRows(
        start=StateArrays(Floats(state.q.tolist()), Floats(state.v.tolist())), path=StatePath(path_q, path_v),
        last=StateArrays(last_q, last_v), status=status, steps=STEPS, every=every,
    )  # fmt: skip
    rollout.rollout(ctx, GivenControls(ctx.tree, Rows(controls.numpy())), given)
    sim = bd.Simulator(model, DT, integrator=integrator, specialize=False)
    right = sim.rollout(state, controls, adjoint=bd.Checkpoint(every))
    close(path_q.values, right.q[1:])
    close(path_v.values, right.v[1:])
    close(last_q.values, right.q[-1])
    close(last_v.values, right.v[-1])
    assert status.values[:, 0].all()
    assert status.values[:, 1].tolist() == right.status.clipped.tolist()


@INTEGRATORS
def test_adjoint(integrator):
    """The derivatives that are generated from the equations run on floats too."""
    model, state, controls, wrenches = example()
    sim = bd.Simulator(model, DT, integrator=integrator, specialize=False)
    leaves = [x.clone().requires_grad_() for x in (state.q, state.v, controls[0], wrenches[0])]
    after = sim.step(bd.State(*leaves[:2]), leaves[2], wrench=leaves[3])
    seeds = weights(model.nq, seed=1), weights(model.nv, seed=2)
    right = torch.autograd.grad(after, leaves, seeds)
    q_bar, v_bar = (Floats(x.tolist()) for x in seeds)
    zeros = [Floats([0.0] * n) for n in (model.nu, model.nlink * 6, len(model.constants), (model.nlink + 1) * BODY)]
    start = StateArrays(Floats(state.q.tolist()), Floats(state.v.tolist()))
    loads = Floats(on_links(model, wrenches.numpy())[0].tolist())
    inputs, cotangents = StepInputs(Floats(controls[0].tolist()), loads), Cotangents(q_bar, v_bar, *zeros)
    step_adjoint(context(model, integrator), start, inputs, cotangents)
    for mine, theirs in zip((q_bar, v_bar, *zeros), right):
        close(mine.values, theirs.flatten())


def test_inverse_dynamics_and_poses():
    model, state, _, _ = example()
    tree, sim = tree_of(model), bd.Simulator(model, DT, specialize=False)
    vdot, tau = weights(model.nv), Floats([None] * model.nv)
    q, v = Floats(state.q.tolist()), Floats(state.v.tolist())
    inverse.inverse(tree, q, v, Floats(vdot.tolist()), tau)
    close(tau.values, sim.inverse_dynamics(state, vdot))
    poses, path = link_poses(tree, q, v), sim.rollout(state, steps=1)
    for k, body in enumerate(model.bodies):
        record = poses.get(int(model.body_link[k]) + 1, 18)
        right = (
            path.rotation(body)[0].flatten(),
            path.position(body)[0],
            path.angular_velocity(body)[0],
            path.velocity(body)[0],
        )
        close(record, torch.cat(right))
