"""Forward dynamics, inverse dynamics, mass matrix and poses agree with Pinocchio."""

import numpy as np
import pinocchio as pin
import pytest
import torch
from hypothesis import given, settings
from models import (
    FLOATING,
    URDF,
    all_joints,
    random_controls,
    random_state,
    random_wrenches,
    robot,
    robot_path,
    trees,
)
from pinocchio_reference import Reference

import backdrive as bd

RELATIVE = 1e-11  # relative tolerance; rounding alone makes two algorithms differ by about 1e-13
BATCH = 4
ROBOTS = (*URDF, "ant.xml", "humanoid.xml", "half_cheetah.xml")


def agrees(mine: torch.Tensor, reference: list[np.ndarray], scale: torch.Tensor | None = None) -> None:
    """Every row agrees to RELATIVE times its largest entry, or the largest entry of `scale`."""
    mine, reference = mine.numpy().reshape(len(mine), -1), np.stack(reference).reshape(len(mine), -1)
    assert np.isfinite(mine).all(), "not finite"
    if mine.size:
        size = np.abs(reference if scale is None else scale.numpy()).max(axis=1) + 1e-12
        worst = (np.abs(mine - reference).max(axis=1) / size).max()
        assert worst <= RELATIVE, f"relative error {worst:.2e}"


def check(model: bd.Model, scale: float, specialize: bool = False, seed: int = 0) -> None:
    sim, reference = bd.Simulator(model, 0.01, specialize=specialize), Reference(model)
    state = random_state(model, BATCH, seed, scale)
    controls = random_controls(model, BATCH, seed=seed)
    wrenches = random_wrenches(model, BATCH, seed=seed)
    vdot = random_state(model, BATCH, seed + 1, 5.0).v
    q, v, u = state.q.numpy(), state.v.numpy(), controls.numpy()
    on_links = np.zeros((BATCH, model.nlink, 6))
    on_links[:, model.body_link] = in_space(wrenches.numpy())

    mine = sim.inverse_dynamics(state, vdot)
    agrees(mine, [reference.inverse_dynamics(*x) for x in zip(q, v, vdot.numpy())])
    agrees(sim.mass_matrix(state), [reference.mass_matrix(x) for x in q])
    tau = [reference.joint_forces(*x) for x in zip(q, v, u)]
    mine = sim.forward_dynamics(state, controls)
    agrees(mine, [reference.forward_dynamics(*x, 0 * on_links[0]) for x in zip(q, v, tau)])
    mine = sim.forward_dynamics(state, controls, wrench=wrenches)
    agrees(mine, [reference.forward_dynamics(*x) for x in zip(q, v, tau, on_links)])
    # Forward and inverse dynamics are inverse to each other.
    given = sim.inverse_dynamics(state, sim.forward_dynamics(state, controls))
    agrees(given, tau, scale=sim.inverse_dynamics(state, torch.zeros_like(vdot)))


def in_space(wrenches: np.ndarray) -> np.ndarray:
    """Spatial wrenches [..., 6] from planar ones [..., 3]."""
    if wrenches.shape[-1] == 6:
        return wrenches
    out = np.zeros((*wrenches.shape[:-1], 6))
    out[..., [0, 1, 5]] = wrenches
    return out


@settings(max_examples=60, deadline=None, derandomize=True)
@given(trees())
def test_random_trees(model):
    check(model, 1.0)


@settings(max_examples=30, deadline=None, derandomize=True)
@given(trees(max_links=12))
def test_random_trees_far_from_zero(model):
    check(model, 4.0)


@settings(max_examples=30, deadline=None, derandomize=True)
@given(trees(dim=2))
def test_random_trees_in_the_plane(model):
    check(model, 2.0)


@pytest.mark.parametrize("seed", range(50))
def test_trees_of_every_joint(seed):
    check(all_joints(seed), 1.0, seed=seed)


@pytest.mark.parametrize("name", ROBOTS)
def test_robots(name):
    check(robot(name), 1.0)


def test_badly_conditioned_robot():
    """The mass matrix of iCub has condition 1e9: v̇ is less accurate (in Pinocchio too), but solves its equation."""
    model = robot("icub.urdf")
    sim, reference, state = bd.Simulator(model, 0.01, specialize=False), Reference(model), random_state(model, BATCH)
    vdot, nothing = sim.forward_dynamics(state), np.zeros((model.nlink, 6))
    for q, v, mine in zip(state.q.numpy(), state.v.numpy(), vdot.numpy()):
        tau = reference.joint_forces(q, v, np.zeros(model.nu))
        theirs, M = reference.forward_dynamics(q, v, tau, nothing), reference.mass_matrix(q)
        assert np.abs(mine - theirs).max() <= 1e-9 * np.abs(theirs).max()
        assert np.abs(M @ (mine - theirs)).max() <= 1e-12 * (np.abs(M) @ np.abs(theirs)).max()


@pytest.mark.parametrize("name", URDF)
def test_robots_as_pinocchio_reads_them(name):
    """Pinocchio reads the URDF itself, so this tests the loader too."""
    model, root = robot(name), pin.JointModelFreeFlyer() if name in FLOATING else None
    theirs = pin.buildModelFromUrdf(str(robot_path(name)), *([root] if root else []))
    theirs.armature = np.zeros(theirs.nv)
    data, reference = theirs.createData(), Reference(model)
    state, vdot = random_state(model, BATCH), random_state(model, BATCH, 1).v
    sim = bd.Simulator(model, 0.01, specialize=False)
    zero = {"armature": 0 * model.parameter("armature")}
    tau = []
    for q, v, a in zip(state.q.numpy(), state.v.numpy(), vdot.numpy()):
        turn, order = reference.turn(q)[np.argsort(reference.v_order)], np.zeros((theirs.nv, model.nv))
        w_last, x = reference.w_last(q), np.zeros(theirs.nq)
        for joint, title in zip(theirs.joints[1:], theirs.names[1:]):
            mine = model.joints[0] if title == "root_joint" else title
            angles = w_last[model.q_index(mine)]
            if joint.nq == 2:  # a joint without limits: cosine and sine
                angles = [np.cos(angles[0]), np.sin(angles[0])]
            x[joint.idx_q : joint.idx_q + joint.nq] = angles
            order[joint.idx_v : joint.idx_v + joint.nv, model.v_index(mine)] = np.eye(joint.nv)
        drift = np.zeros(model.nv)
        drift[reference.v_order] = reference.drift(q, v)
        force = pin.rnea(theirs, data, x, order @ turn @ v, order @ (turn @ a - drift))
        tau.append(turn.T @ order.T @ force)
    agrees(sim.inverse_dynamics(state, vdot, parameters=zero), tau)


@pytest.mark.parametrize("name", ["laikago.urdf", "panda.urdf", "half_cheetah.xml"])
def test_robots_specialised(name):
    check(robot(name), 1.0, specialize=True)


@pytest.mark.parametrize("dim", [2, 3])
def test_trees_of_every_joint_specialised(dim):
    check(all_joints(1, dim), 2.0, specialize=True)


def test_without_forces():
    """Without springs, dampers and motors τ = 0, and only gravity acts."""
    model = all_joints(3, passive=False)
    sim, reference = bd.Simulator(model, 0.01, specialize=False), Reference(model)
    state, zero = random_state(model, BATCH), np.zeros(model.nv)
    # Gears this small transmit nothing that float64 can tell from zero; zero itself is out of their range.
    mine = sim.forward_dynamics(state, parameters={"gear": 1e-60 * model.parameter("gear")})
    nothing = np.zeros((model.nlink, 6))
    agrees(mine, [reference.forward_dynamics(q, v, zero, nothing) for q, v in zip(state.q.numpy(), state.v.numpy())])


@pytest.mark.parametrize("specialize", [False, True])
@pytest.mark.parametrize("name", ["every joint", "laikago.urdf"])
def test_poses(name, specialize):
    """Position, orientation and velocities of all bodies, in world axes."""
    model = robot(name) if name in FLOATING else all_joints(4)
    sim, reference = bd.Simulator(model, 1e-3, specialize=specialize), Reference(model)
    path = sim.rollout(random_state(model, 2, scale=3.0), steps=1)
    for t in range(2):
        for e in range(2):
            q, v = path.q[t, e].numpy(), path.v[t, e].numpy()
            pin.forwardKinematics(reference.pin, reference.data, reference.q(q), reference.turn(q) @ v)
            for body in model.bodies:
                link = int(model.body_link[model.body_index(body)])
                joint, place = reference.joint[link], reference.place[link]
                frame, motion = reference.data.oMi[joint] * place, place.actInv(reference.data.v[joint])
                pairs = [
                    (path.position(body), frame.translation),
                    (path.rotation(body), frame.rotation),
                    (path.velocity(body), frame.rotation @ motion.linear),
                    (path.angular_velocity(body), frame.rotation @ motion.angular),
                ]
                for mine, theirs in pairs:
                    np.testing.assert_allclose(mine[t, e].numpy(), theirs, rtol=0, atol=1e-12)
                w, x, y, z = path.orientation(body)[t, e].numpy()
                assert w >= 0
                np.testing.assert_allclose(pin.Quaternion(w, x, y, z).matrix(), frame.rotation, rtol=0, atol=1e-12)
