"""A step of MuJoCo's physics is the step of MuJoCo: from states of motions under random controls, with contacts, to
rounding; with every integrator, both friction cones, and every kind of friction."""

import warnings

import mujoco
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from mujoco_worlds import (
    BALLS,
    LINKED,
    MEDIUM,
    ROPES,
    SERVOS,
    THROWN,
    load,
    materials,
    mujoco_model,
    steps_of_mujoco,
    tendons,
    tensors,
    uneven,
    visited,
    zoo,
)

import backdrive as bd

TOLERANCE = 1e-9  # of q and v, relative to the largest velocity, or to 1 if that is larger
COUNT = 60

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


def differences(name: str, options: bd.MuJoCo, seed: int) -> tuple[np.ndarray, np.ndarray, bd.Status]:
    """The differences after a step, in v relative to the largest; numbers of contacts; status."""
    model = mujoco_model(name, options)
    q, v, u = visited(model, COUNT, seed)
    simulator = bd.Simulator(load(name), physics=options)
    path = simulator.rollout(bd.State(*tensors(q, v)), tensors(u)[0].unsqueeze(0))
    q_next, v_next, contacts = steps_of_mujoco(model, q, v, u)
    scale = np.maximum(np.abs(v_next).max(1), 1.0)
    by_q, by_v = np.abs(path.q[-1].numpy() - q_next).max(1), np.abs(path.v[-1].numpy() - v_next).max(1)
    return np.maximum(by_q, by_v) / scale, contacts, path.status


def check(name: str, options: bd.MuJoCo, seed: int, touching: bool = True) -> None:
    found, contacts, status = differences(name, options, seed)
    assert found.max() < TOLERANCE
    assert status.converged.all()
    assert (contacts > 0).any() or not touching


@pytest.mark.parametrize("name", ["hopper", "half_cheetah", "walker2d", "ant", "humanoid", "pusher"])
def test_step_with_the_options_of_the_file(name):
    check(name, bd.MuJoCo(), seed=1)


@pytest.mark.parametrize("name", ["reacher", "inverted_pendulum", "inverted_double_pendulum"])
def test_step_without_contact(name):
    check(name, bd.MuJoCo(), seed=1, touching=False)


@pytest.mark.parametrize("cone", ["pyramidal", "elliptic"])
@pytest.mark.parametrize("integrator", ["euler", "rk4", "implicit", "implicitfast"])
@settings(max_examples=3, deadline=None)
@given(seed=st.integers(0, 2**31))
def test_integrators_and_cones(integrator, cone, seed):
    check(zoo(), bd.MuJoCo(integrator=integrator, cone=cone), seed)


@pytest.mark.parametrize("cone", ["pyramidal", "elliptic"])
@pytest.mark.parametrize(("condim", "impratio", "power"), [(1, 1.0, 1), (4, 2.5, 3), (6, 0.5, 2)])
def test_frictions_and_impedances(condim, impratio, power, cone):
    check(zoo(condim, impratio, power), bd.MuJoCo(integrator="euler", cone=cone), seed=condim)


@pytest.mark.parametrize("cone", ["pyramidal", "elliptic"])
@settings(max_examples=3, deadline=None)
@given(seed=st.integers(0, 2**31))
def test_powers_that_differ_and_overridden_contacts(cone, seed):
    check(uneven(), bd.MuJoCo(integrator="euler", cone=cone), seed)
    numbers = 'o_margin="0.03" o_solref="0.03 0.9" o_solimp="0.8 0.9 0.01 0.5 2" o_friction="0.6 0.6 0.02 0.001 0.001"'
    override = f'impratio="1.0" {numbers}><flag override="enable"/></option>'
    check(zoo(4).replace('impratio="1.0"/>', override), bd.MuJoCo(integrator="euler", cone=cone), seed)


@pytest.mark.parametrize("integrator", ["euler", "rk4"])
def test_connect_and_weld(integrator):
    check(LINKED, bd.MuJoCo(integrator=integrator), seed=5)


@pytest.mark.parametrize("integrator", ["euler", "rk4", "implicit", "implicitfast"])
@settings(max_examples=3, deadline=None)
@given(seed=st.integers(0, 2**31))
def test_fluid_and_compensated_weight(integrator, seed):
    check(MEDIUM, bd.MuJoCo(integrator=integrator), seed)
    check("swimmer", bd.MuJoCo(integrator=integrator), seed, touching=False)


@pytest.mark.parametrize("integrator", ["euler", "implicit", "implicitfast"])
def test_bodies_that_spin(integrator):
    check(THROWN, bd.MuJoCo(integrator=integrator), seed=3)


@pytest.mark.parametrize("solref", ["0.02 -0.5", "-100 10", "0.03 0", "0 1", "0 0", "-300 0", "0 -5", "-300 -5"])
def test_solrefs_of_no_format(solref):
    """One that is neither positive nor negative as a whole is the default, of contacts and of limits."""
    leg = f"""<mujoco><option timestep="0.005" integrator="implicitfast"/>
     <default><geom solref="{solref}"/><joint solreflimit="{solref}"/></default>
     <worldbody><geom type="plane" size="5 5 1"/>
     <body pos="0 0 0.4"><joint type="slide" axis="0 0 1"/><joint type="slide" axis="1 0 0"/>
      <joint axis="0 1 0" limited="true" range="-20 20"/><geom type="capsule" size="0.1 0.3"/></body>
     </worldbody></mujoco>"""
    check(leg, bd.MuJoCo(), 0)


def test_files_that_ask_for_few_iterations_are_solved_all_the_same():
    few = zoo().replace("impratio=", 'iterations="1" impratio=', 1)
    simulator = bd.Simulator(load(few), physics="mujoco")
    q, v, u = visited(mujoco_model(few, bd.MuJoCo()), COUNT, seed=2)
    assert simulator.rollout(bd.State(*tensors(q, v)), tensors(u)[0].unsqueeze(0)).status.converged.all()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"integrator": "RK4"}, "unknown integrator 'RK4'; expected one of"),
        ({"iterations": True}, "iterations must be an integer"),
        ({"iterations": 0}, "iterations must be an integer"),
        ({"tolerance": "x"}, "tolerance must be between 0 and 1"),
        ({"impratio": "a"}, "impratio must be a number"),
    ],
)
def test_options_out_of_their_range(options, message):
    with pytest.raises(ValueError, match=message):
        bd.Simulator(load(LINKED), physics=bd.MuJoCo(**options))
    assert bd.MuJoCo(iterations=np.int64(5)).settings(load(LINKED)).iterations == 5


@pytest.mark.parametrize("flag", ["eulerdamp", "actuation", "damper", "clampctrl", "gravity"])
@pytest.mark.parametrize("integrator", ["euler", "rk4", "implicit", "implicitfast"])
def test_servos_and_flags(integrator, flag):
    check(SERVOS, bd.MuJoCo(integrator=integrator), seed=1, touching=False)
    without = SERVOS.replace('"0.01"/>', f'"0.01"><flag {flag}="disable"/></option>', 1)
    check(without, bd.MuJoCo(integrator=integrator), seed=2, touching=False)


@pytest.mark.parametrize("integrator", ["euler", "rk4", "implicit", "implicitfast"])
@settings(max_examples=3, deadline=None)
@given(seed=st.integers(0, 2**31))
def test_fixed_tendons_and_couplings(integrator, seed):
    check(tendons(), bd.MuJoCo(integrator=integrator), seed)


@pytest.mark.parametrize("cone", ["pyramidal", "elliptic"])
@pytest.mark.parametrize("pairs", [False, True])
def test_explicit_pairs_moving_surfaces_and_adhesion(cone, pairs):
    check(materials(pairs), bd.MuJoCo(cone=cone), seed=3)


BALL_AND_BOX = """<mujoco><option timestep="0.004" cone="elliptic" {option}>{flag}</option><worldbody>
 <geom name="ground" type="plane" size="5 5 1" {ground}/>
 <body pos="0 0 0.1"><freejoint/><geom name="ball" size="0.1" condim="4" {ball}/></body>
 <body pos="0.05 0 0.29"><freejoint/><geom type="box" size="0.1 0.1 0.1" condim="4"/></body></worldbody>
 <contact>{pairs}</contact></mujoco>"""


@pytest.mark.parametrize("priority", [-1, 0, 1])
def test_only_the_adhesion_of_the_geom_with_the_higher_priority_pulls_across_the_gap(priority):
    sticky = BALL_AND_BOX.format(
        option="", flag="", ground='adhesion="3" gap="0.02"', ball=f'priority="{priority}" gap="0.03"', pairs=""
    )
    check(sticky, bd.MuJoCo(), seed=1)


def test_override_also_replaces_the_solref_of_friction_of_explicit_pairs():
    option = 'o_solref="0.02 0.8" o_solimp="0.8 0.9 0.01 0.5 2" o_friction="0.6 0.6 0.02 0.001 0.001"'
    pair = '<pair geom1="ground" geom2="ball" condim="4" solreffriction="0.1 0.5"/>'
    name = BALL_AND_BOX.format(option=option, flag='<flag override="enable"/>', ground="", ball="", pairs=pair)
    check(name, bd.MuJoCo(), seed=1)


@pytest.mark.parametrize("specialize", [True, False])
def test_two_explicit_pairs_of_the_same_geoms_both_have_contacts(specialize):
    pairs = """<pair geom1="ground" geom2="ball" condim="4" solref="0.03 1" friction="0.5 0.9 0.02 0.003 0.004"/>
     <pair geom1="ball" geom2="ground" condim="1" solref="0.05 0.8"/>"""
    name = BALL_AND_BOX.format(option="", flag="", ground="", ball="", pairs=pairs)
    reference = mujoco_model(name, bd.MuJoCo())
    q, v, u = visited(reference, COUNT, seed=1)
    q_next, v_next, contacts = steps_of_mujoco(reference, q, v, u)
    simulator = bd.Simulator(load(name), physics="mujoco", specialize=specialize)
    path = simulator.rollout(bd.State(*tensors(q, v)), tensors(u)[0].unsqueeze(0))
    assert np.abs(path.v[-1].numpy() - v_next).max() < TOLERANCE
    assert np.abs(path.q[-1].numpy() - q_next).max() < TOLERANCE
    assert contacts.max() > 2


@pytest.mark.parametrize("cone", ["pyramidal", "elliptic"])
def test_forces_are_those_of_mujoco(cone):
    """Of contacts, summed over bodies, and of limits and friction."""
    options = bd.MuJoCo(integrator="implicitfast", cone=cone)
    reference, model = mujoco_model(zoo(4), options), load(zoo(4))
    q, v, u = visited(reference, COUNT, seed=4)
    path = bd.Simulator(model, physics=options).rollout(bd.State(*tensors(q, v)), tensors(u)[0].unsqueeze(0))
    contacts, data, friction = path.contacts, mujoco.MjData(reference), mujoco.mjtConstraint.mjCNSTR_FRICTION_DOF
    found = np.stack([contacts.on(body)[0].numpy() for body in model.bodies], 1)
    pressed = 0
    for k in range(COUNT):
        data.qpos[:], data.qvel[:], data.ctrl[:] = q[k], v[k], u[k]
        mujoco.mj_forward(reference, data)
        total, force = np.zeros((reference.nbody, 3)), np.zeros(6)
        for i, contact in enumerate(data.contact):
            mujoco.mj_contactForce(reference, data, i, force)
            world = contact.frame.reshape(3, 3).T @ force[:3]
            for geom, sign in zip(contact.geom, (-1.0, 1.0), strict=True):
                total[reference.geom_bodyid[geom]] += sign * world
            pressed += force[0] > 0.0
        np.testing.assert_allclose(found[k], total[1:], atol=1e-8)
        kinds = data.efc_type[: data.nefc]
        limit = data.efc_force[: data.nefc][kinds == mujoco.mjtConstraint.mjCNSTR_LIMIT_JOINT].sum()
        rubbing = data.efc_force[: data.nefc][kinds == friction]
        np.testing.assert_allclose(contacts.of("h")[0, k], [*rubbing, limit], atol=1e-8)
    assert pressed > 10


@pytest.mark.parametrize("integrator", ["euler", "rk4", "implicit"])
@settings(max_examples=3, deadline=None)
@given(seed=st.integers(0, 2**31))
def test_limits_of_ball_joints_and_ropes(integrator, seed):
    check(BALLS, bd.MuJoCo(integrator=integrator), seed, touching=False)
    check(ROPES, bd.MuJoCo(integrator=integrator), seed, touching=False)


def test_masses_as_parameters_are_those_of_a_compiled_model():
    """Other masses change the motion as they do in a compiled model of MuJoCo, whose inverse inertias stay."""
    reference, model = mujoco_model("half_cheetah", bd.MuJoCo()), load("half_cheetah")
    q, v, u = visited(reference, COUNT, seed=6)
    mass = model.parameter("mass") * torch.linspace(0.5, 2.0, model.nbody, dtype=torch.float64)
    state, controls = bd.State(*tensors(q, v)), tensors(u)[0].unsqueeze(0)
    path = bd.Simulator(model, physics="mujoco").rollout(state, controls, parameters={"mass": mass})
    reference.body_mass[1:] = mass
    q_next, v_next, _ = steps_of_mujoco(reference, q, v, u)
    np.testing.assert_allclose(path.q[-1], q_next, atol=1e-9)
    np.testing.assert_allclose(path.v[-1], v_next, atol=1e-9 * np.abs(v_next).max())


def test_a_rollout_stays_with_mujoco():
    """Until chaos parts them: errors of rounding grow with time."""
    model = mujoco_model("half_cheetah", bd.MuJoCo())
    q, v, _ = visited(model, 1, seed=0)
    rng, data, steps = np.random.default_rng(0), mujoco.MjData(model), 60
    controls = rng.uniform(-1.0, 1.0, (steps, model.nu))
    data.qpos[:], data.qvel[:] = q[0], v[0]
    for control in controls:
        data.ctrl[:] = control
        mujoco.mj_step(model, data)
    path = bd.Simulator(load("half_cheetah"), physics="mujoco").rollout(
        bd.State(*tensors(q[0], v[0])), tensors(controls)[0]
    )
    assert np.abs(path.q[-1].numpy() - data.qpos).max() < 1e-7


@pytest.mark.parametrize("name", ["half_cheetah", "humanoid"])  # limbs of the latter touch each other in some states
def test_the_batch_changes_no_bit(name):
    model = mujoco_model(name, bd.MuJoCo())
    q, v, u = tensors(*visited(model, 21, seed=3))
    simulator = bd.Simulator(load(name), physics="mujoco")
    together = simulator.step(bd.State(q, v), u)
    for i in range(len(q)):
        alone = simulator.step(bd.State(q[i], v[i]), u[i])
        assert torch.equal(alone.q, together.q[i])
        assert torch.equal(alone.v, together.v[i])


def test_takes_the_step_size_of_the_file():
    assert bd.Simulator(load("half_cheetah"), physics="mujoco").dt == 0.01


def test_refuses_what_it_does_not_know():
    scene = bd.Scene(dim=3)
    scene.add_body("ball", bd.Sphere(0.1), mass=1.0)
    with pytest.raises(ValueError, match="MJCF"):
        bd.Simulator(scene.build(), 0.01, physics="mujoco")
    model = load("half_cheetah")
    with pytest.raises(ValueError, match="physics must be"):
        bd.Simulator(model, physics="soft")
    with pytest.raises(ValueError, match="setting of rigid physics"):
        bd.Simulator(model, physics="mujoco", solver=bd.InteriorPoint())
    with pytest.raises(ValueError, match="dt must be a positive number of seconds, got None"):
        bd.Simulator(model)
    state = model.initial_state()
    for physics, name in (("mujoco", "restitution"), ("rigid", "solref")):
        simulator = bd.Simulator(model, 0.01, physics=physics)
        with pytest.raises(ValueError, match=repr(name)):
            simulator.step(state, parameters={name: model.parameter(name)})


@pytest.mark.parametrize(
    ("option", "words"),
    [('noslip_iterations="3"', "noslip_iterations=3"), ('density="1"', "fluidshape of egg")],
)
def test_names_what_is_not_there_yet(option, words):
    text = f"""<mujoco><option {option}/><worldbody><geom type="plane" size="1 1 1"/><body pos="0 0 1"><freejoint/>
     <geom name="egg" type="sphere" size="0.1" fluidshape="ellipsoid"/></body></worldbody></mujoco>"""
    with pytest.raises(NotImplementedError, match=words):
        bd.Simulator(bd.load(text), physics="mujoco")


@pytest.mark.parametrize(
    ("name", "at", "value", "words"),
    [("solref", 0, -0.02, "both negative"), ("solref", 1, 0.0, "both negative"), ("limit_solref", 0, 0.0, "both"),
     ("solimp", 1, 1.5, "below 1"), ("solimp", 2, -1.0, ">= 0"), ("margin", None, float("nan"), "'margin'")],
)  # fmt: skip
def test_refuses_impossible_parameters(name, at, value, words):
    model = load("half_cheetah")
    x = model.parameter(name).clone()
    x[(-1,) if at is None else (-1, at)] = value
    with pytest.raises(ValueError, match=words):
        bd.Simulator(model, physics="mujoco").step(model.initial_state(), parameters={name: x})


def test_tells_where_rigid_physics_is_not_that_of_the_file():
    """Only where nothing says which physics is meant, and only of MJCF files that move otherwise in MuJoCo."""
    ball = '<body pos="0 0 1"><freejoint/><geom size="0.1" condim="6"/></body>'
    floor = '<geom type="plane" size="5 5 1"/>'
    model = bd.load(f'<mujoco><option integrator="RK4"/><worldbody>{floor}{ball}</worldbody></mujoco>')
    differences = model.rigid_differences
    assert len(differences) == 3 and "contacts are rigid" in differences[0] and "rk4" in differences[2]
    with pytest.warns(UserWarning, match="moves otherwise here than in MuJoCo: contacts are rigid.*physics='mujoco'"):
        simulator = bd.Simulator(model, 0.01)
    assert simulator.physics == "rigid" and "physics='rigid'" in repr(simulator)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        bd.Simulator(model, 0.01, physics="rigid")
        bd.Simulator(model, physics="mujoco")
        bd.Simulator(model, 0.01, solver=bd.InteriorPoint())
        free = bd.load(f"<mujoco><worldbody>{ball}</worldbody></mujoco>")
        assert free.rigid_differences == ()
        assert "physics" not in repr(bd.Simulator(free, 0.01))
