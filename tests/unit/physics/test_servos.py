"""Stiff servos: closed forms of one step, poses that random arms hold, and a planar joint with motors on x and y."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import backdrive as bd

EULER, MIDPOINT = bd.SemiImplicitEuler(), bd.Midpoint()
INTEGRATORS = pytest.mark.parametrize("integrator", [EULER, MIDPOINT], ids=repr)
H = 0.002


def tensor(values):
    return torch.tensor(values, dtype=torch.float64)


def cart(motor, mass=0.1):
    scene = bd.Scene(dim=2, gravity=(0, 0))
    scene.add_body("cart", bd.Box(1, 1), mass=mass)
    scene.add_joint("rail", bd.Slider(axis=(1, 0)), child="cart")
    scene.add_motor("motor", motor, joint="rail")
    return scene.build()


def one_step(model, integrator, q, v, u, dt=H):
    sim = bd.Simulator(model, dt, integrator=integrator, specialize=False)
    state = bd.State(tensor([q]), tensor([v]))
    return [x.item() for x in sim.step(state, tensor([u]))]


@settings(max_examples=25)
@given(
    st.floats(0.0, 1e4), st.floats(0.0, 1e3), st.floats(0.3, 3.0), st.floats(-1.0, 1.0), st.floats(-5.0, 5.0),
    st.booleans(),
)  # fmt: skip
def test_closed_form_of_a_step(kp, kv, gear, q, v, limited):
    """Semi-implicit Euler: m (v⁺ - v)/h = F(q, v⁺). The midpoint rule: F((q + q⁺)/2, (v + v⁺)/2). A force that exceeds
    its limit at v is clipped if this implicit one exceeds it, too."""
    mass, u, limit = 0.1, 0.3, 40.0 if limited else 1e9
    model = cart(bd.PositionServo(kp=kp + 1e-3, kv=kv, gear=gear, force_limits=(-limit, limit)), mass)
    k, d, wanted = gear**2 * (kp + 1e-3), gear**2 * kv, gear * (kp + 1e-3) * u
    for integrator, at, mean in ((EULER, q, H), (MIDPOINT, q + 0.5 * H * v, 0.5 * H)):
        force = wanted - k * at - d * v
        stiff = 0.0 if integrator == EULER else mean**2 * k
        implicit = force * mass / (mass + mean * d + stiff)
        clipped = min(abs(force), abs(implicit)) > gear * limit
        change = H * (np.sign(force) * gear * limit if clipped else implicit) / mass
        if all(abs(abs(x) - gear * limit) > 1e-6 * limit for x in (force, implicit)):
            _, v_next = one_step(model, integrator, q, v, u)
            assert v_next == pytest.approx(v + change, rel=1e-11, abs=1e-11)


def test_a_motor_that_drives_is_explicit():
    """A force that grows with the velocity would take inertia away, if it were implicit."""
    arm = """<mujoco><option gravity="0 0 0"/><worldbody><body><inertial mass="2" pos="0 0 0" diaginertia="1 1 1"/>
        <joint name="rail" type="slide"/></body></worldbody>
        <actuator><general joint="rail" biastype="affine" biasprm="0 0 3"/></actuator></mujoco>"""
    _, v = one_step(bd.load(arm), EULER, 0.0, 1.5, 0.0, dt=0.1)
    assert v == pytest.approx(1.5 + 0.1 * 3.0 * 1.5 / 2.0, rel=1e-13)
    _, v = one_step(bd.load(arm), MIDPOINT, 0.0, 1.5, 0.0, dt=0.1)
    assert v == pytest.approx(1.5 + 0.1 * 3.0 * (1.5 + 0.05 * 3.0 * 1.5 / 2.0) / 2.0, rel=1e-13)


def random_arm(rng, links, kp, kv):
    """Links of 0.02 to 2 kg in a row, each with a servo, under gravity."""
    scene = bd.Scene(dim=3)
    for k in range(links):
        place, axis = (0.2 * k + 0.1, 0.0, 0.0), rng.normal(size=3)
        mass = float(np.exp(rng.uniform(np.log(0.02), np.log(2.0))))
        scene.add_body(f"link{k}", bd.Box(0.2, 0.04, 0.04), mass=mass, position=place)
        parent = f"link{k - 1}" if k else None
        scene.add_joint(f"joint{k}", bd.Hinge(axis=axis), parent=parent, child=f"link{k}", anchor=(0.2 * k, 0.0, 0.0))
        scene.add_motor(f"servo{k}", bd.PositionServo(kp=kp, kv=kv), joint=f"joint{k}")
    return scene.build()


@INTEGRATORS
@settings(max_examples=15)
@given(st.integers(1, 5), st.floats(50.0, 5000.0), st.floats(0.05, 0.3), st.integers(0, 10**6))
def test_random_arms_hold_a_pose(integrator, links, kp, time, seed):
    """Servos of real arms (kp 2000, kv 200 and inertias down to 1e-5 kg m²) come to rest; they sag under gravity."""
    rng = np.random.default_rng(seed)
    model = random_arm(rng, links, kp, time * kp)
    sim, target = bd.Simulator(model, H, integrator=integrator, specialize=False), torch.tensor(rng.normal(size=links))
    start = bd.State(target, torch.zeros(links).double())
    last = sim.rollout(start, target.expand(3000, -1), adjoint=bd.Checkpoint(100)).last
    weight = sim.inverse_dynamics(bd.State(last.q, 0 * last.v), 0 * last.v)
    assert (last.q - target + weight / kp).abs().max() < 1e-3 * (weight.abs().max() / kp) + 1e-6
    assert last.v.abs().max() < 0.01


@INTEGRATORS
@pytest.mark.parametrize("specialize", [False, True])
def test_servos_on_a_planar_joint(integrator, specialize):
    """Stiff servos on x and y act along the world's axes, however the body is turned."""
    scene = bd.Scene(dim=2, gravity=(0, 0))
    scene.add_body("body", bd.Box(0.2, 0.1), mass=0.1)
    scene.add_joint("stage", bd.Planar(), child="body")
    for dof, kv in (("x", 1.0), ("y", 20.0), ("angle", 0.5)):
        scene.add_motor(dof, bd.PositionServo(kp=10.0, kv=kv), joint="stage", dof=dof)
    model = scene.build()
    sim = bd.Simulator(model, H, integrator=integrator, specialize=specialize)
    q, v = tensor([0.01, -0.02, 0.7]), tensor([0.3, 1.0, -0.4])
    inertia = tensor([0.1, 0.1, 0.1 * (0.2**2 + 0.1**2) / 12])
    damping, mean = tensor([1.0, 20.0, 0.5]), H if integrator == EULER else 0.5 * H
    at, stiff = (q, 0.0) if integrator == EULER else (q + 0.5 * H * v, mean**2 * 10.0)
    right = v + H * (-10.0 * at - damping * v) / (inertia + mean * damping + stiff)
    after = sim.step(bd.State(q, v), torch.zeros(3).double())
    torch.testing.assert_close(after.v, right, rtol=1e-12, atol=0)
    torch.testing.assert_close(sim.mass_matrix(bd.State(q, v)), torch.diag(inertia), rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("specialize", [False, True])
def test_a_planar_stage_with_servos_rests_on_the_floor(specialize):
    """A box that is turned by a quarter lies on the floor: y is held by the floor, and x by a stiff servo."""
    scene = bd.Scene(dim=2)
    scene.add_static(bd.HalfSpace((0.0, 1.0)), friction=0.0)
    scene.add_body("body", bd.Box(0.2, 0.1), mass=0.1, position=(0.0, 0.1), angle=np.pi / 2, friction=0.0)
    scene.add_joint("stage", bd.Planar(), child="body")
    scene.add_motor("x", bd.PositionServo(kp=100.0, kv=10.0), joint="stage", dof="x")
    model = scene.build()
    sim = bd.Simulator(model, H, specialize=specialize)
    path = sim.rollout(model.initial_state(), tensor([[0.3]]).expand(1000, -1))
    t = H * 1000
    assert (path.q[-1] - path.q[0] - tensor([0.3 * (1 - np.exp(-10 * t)), 0, 0])).abs().max() < 1e-3
    assert path.v[-1].abs().max() < 1e-3
    assert path.contacts.force[-1].sum(0)[1] == pytest.approx(0.1 * 9.81, rel=1e-6)
