"""Trajectories without contact agree with MuJoCo over 100 steps, with springs, dampers, motors and applied forces.

MuJoCo gets the implicit gyroscopic torques of free and ball joints from `mujoco_spin`; everything else is its own.
"""

from xml.etree import ElementTree

import mujoco
import numpy as np
import pytest
import torch
from models import FLOATING, IGNORE, MJCF, quaternions, random_inertia, random_quaternion, robot, robot_path
from mujoco_spin import implicit_spin

import backdrive as bd
from backdrive.schema import layout

STEPS = 100
TOLERANCE = 1e-10  # relative to the largest coordinate, or to 1 if that is larger
RIGID = ("CONTACT", "LIMIT", "FRICTIONLOSS", "EQUALITY")


def simplified(model: mujoco.MjModel, dt: float) -> mujoco.MjModel:
    """The model with nothing but the tree, its springs, dampers and motors.

    The dampers and the motors that brake are implicit, and nothing else is: MuJoCo's "implicitfast".
    """
    for flag in RIGID:
        model.opt.disableflags |= int(getattr(mujoco.mjtDisableBit, f"mjDSBL_{flag}"))
    model.opt.integrator = mujoco.mjtIntegrator.mjINT_IMPLICITFAST
    model.opt.timestep = dt
    model.opt.density = model.opt.viscosity = 0.0
    return model


def tree_of_urdf(name: str) -> mujoco.MjModel:
    """The model that MuJoCo reads from a URDF, with links that are fixed to each other merged."""
    spec = mujoco.MjSpec.from_file(str(robot_path(name)))
    for element in [*spec.geoms, *spec.meshes]:
        spec.delete(element)
    spec.compiler.fusestatic = True
    spec.compiler.inertiafromgeom = mujoco.mjtInertiaFromGeom.mjINERTIAFROMGEOM_FALSE
    if name in FLOATING:
        spec.worldbody.bodies[0].add_freejoint()
    return spec.compile()


def start(model: bd.Model, seed: int, scale: float) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    q, v = model.q0 + scale * rng.normal(size=model.nq), scale * rng.normal(size=model.nv)
    for a in quaternions(model):
        q[a : a + 4] = random_quaternion(rng)
    return q, v


def torques(model: bd.Model, controls: np.ndarray) -> np.ndarray:
    """The torques of the motors of a URDF: the controls, clipped to the effort limits of the joints."""
    assert set(model.motor_kinds) <= {"torque"}
    records = model.constants[layout.motor_start(model.nlink, model.nq) :][: model.nu * layout.MOTOR].reshape(
        model.nu, -1
    )
    return np.clip(controls, records[:, layout.FORCE_LOW], records[:, layout.FORCE_HIGH])


def check(
    model: bd.Model, theirs: mujoco.MjModel, dt: float, seed: int = 0, scale: float = 0.3, specialize: bool = False,
    wrenches: bool = True, strength: float = 1.0,
) -> None:  # fmt: skip
    rng = np.random.default_rng(seed)
    assert (theirs.nq, theirs.nv) == (model.nq, model.nv)
    controls = 1.2 * rng.normal(size=(STEPS, model.nu))
    loads = np.zeros((STEPS, model.nbody, 6))
    if wrenches:
        loads = strength * rng.normal(size=loads.shape)
        assert all(theirs.body(k + 1).name in ("", name) for k, name in enumerate(model.bodies))
    q, v = start(model, seed, scale)
    sim = bd.Simulator(model, dt, specialize=specialize)
    path = sim.rollout(
        bd.State(torch.tensor(q), torch.tensor(v)), torch.tensor(controls),
        wrenches=torch.tensor(loads) if wrenches else None,
    )  # fmt: skip
    data = mujoco.MjData(theirs)
    data.qpos[:], data.qvel[:] = q, v
    with implicit_spin():
        compare(model, theirs, data, path, controls, loads if wrenches else None)
    assert np.abs(path.q[-1].numpy() - q).max() > 1e-3  # it moved


def compare(
    model: bd.Model, theirs: mujoco.MjModel, data: mujoco.MjData, path: bd.Trajectory, controls: np.ndarray,
    loads: np.ndarray | None,
) -> None:  # fmt: skip
    for t in range(STEPS):
        if theirs.nu == model.nu:
            data.ctrl[:] = controls[t]
        else:  # MuJoCo has no motors in URDFs
            data.qfrc_applied[model.motor_v] = torques(model, controls[t])
        if loads is not None:
            data.xfrc_applied[1:] = loads[t]
        mujoco.mj_step(theirs, data)
        for mine, their in ((path.q[t + 1], data.qpos), (path.v[t + 1], data.qvel)):
            error = np.abs(mine.numpy() - their).max() / max(1.0, np.abs(their).max())
            assert error <= TOLERANCE, f"{error:.1e} after {t + 1} steps"


@pytest.mark.parametrize("name", MJCF)
def test_gymnasium(name):
    model = robot(name)
    theirs = simplified(mujoco.MjModel.from_xml_path(str(robot_path(name))), model.timestep)
    for seed in range(2):
        check(model, theirs, model.timestep, seed, strength=0.1)


@pytest.mark.parametrize("name", ["laikago.urdf", "solo12.urdf", "panda.urdf", "ur5_robot.urdf"])
def test_urdf(name):
    check(robot(name), simplified(tree_of_urdf(name), 1e-3), 1e-3, wrenches=False)


@pytest.mark.parametrize("name", ["ant.xml", "half_cheetah.xml"])
def test_specialised(name):
    model = robot(name)
    theirs = simplified(mujoco.MjModel.from_xml_path(str(robot_path(name))), model.timestep)
    check(model, theirs, model.timestep, specialize=True, strength=0.1)


# ---------------------------------------------------------------------------------------------- random trees


def random_mjcf(seed: int) -> str:
    """A tree of all of MuJoCo's joints, several on some bodies, with springs, dampers, armature and four kinds of
    actuators."""
    rng = np.random.default_rng(seed)

    def words(*x: float) -> str:
        return " ".join(f"{y:.17g}" for y in np.ravel(x))

    root = ElementTree.Element("mujoco")
    ElementTree.SubElement(root, "compiler", angle="radian", autolimits="true")
    ElementTree.SubElement(root, "option", gravity=words(*rng.normal(size=3)))
    world, actuators = ElementTree.SubElement(root, "worldbody"), ElementTree.SubElement(root, "actuator")
    bodies = [world]
    for i in range(6):
        parent = world if i == 0 else bodies[rng.integers(len(bodies))]
        pose = {"pos": words(*0.3 * rng.normal(size=3)), "quat": words(*random_quaternion(rng))}
        body = ElementTree.SubElement(parent, "body", name=f"body{i}", **pose)
        bodies.append(body)
        mass = rng.uniform(0.5, 2.0)
        xx, xy, xz, _, yy, yz, _, _, zz = random_inertia(rng, mass).ravel()
        com = words(*0.1 * rng.normal(size=3))
        ElementTree.SubElement(body, "inertial", pos=com, mass=words(mass), fullinertia=words(xx, yy, zz, xy, xz, yz))
        kinds = [["free"], ["ball"], ["hinge"], ["slide", "hinge"], ["hinge", "slide", "hinge"], []]
        chosen = kinds[rng.integers(len(kinds))] if i else ["hinge"]
        if chosen == ["free"] and parent is not world:
            chosen = ["slide", "ball"]
        for k, kind in enumerate(chosen):
            name, passive = f"joint{i}{k}", {}
            if kind != "free":
                passive = {"pos": words(*0.1 * rng.normal(size=3))}
            if kind in ("hinge", "slide"):
                passive |= {"axis": words(*rng.normal(size=3)), "springref": words(rng.normal())}
                add_actuator(actuators, name, rng, words)
            coefficients = {key: words(rng.uniform(0, 2)) for key in ("stiffness", "damping", "armature")}
            ElementTree.SubElement(body, "joint", name=name, type=kind, **passive, **coefficients)
            if kind == "free":  # MuJoCo has a rule of its own for the rotation of free bodies without children
                wing = ElementTree.SubElement(body, "body", name=f"wing{i}", pos="0.1 0.2 0")
                ElementTree.SubElement(wing, "inertial", pos="0 0.1 0", mass="0.3", diaginertia="0.02 0.03 0.04")
                ElementTree.SubElement(wing, "joint", type="hinge", axis="1 0 0")
    return ElementTree.tostring(root, encoding="unicode")


def add_actuator(actuators: ElementTree.Element, joint: str, rng: np.random.Generator, words) -> None:
    kind = ["motor", "position", "velocity", "general", None][rng.integers(5)]
    if kind is None:
        return
    options = {"gear": words(rng.uniform(0.5, 2)), "ctrlrange": "-1 0.8"}
    own = {
        "motor": {"forcerange": "-0.8 0.6"},  # those of servos are decided by their implicit forces here
        "position": {"kp": words(rng.uniform(1, 3)), "kv": words(rng.uniform(0, 0.5))},
        "velocity": {"kv": words(rng.uniform(0.2, 1))},
        "general": {"gainprm": words(rng.uniform(1, 2)), "biastype": "affine", "biasprm": words(*general_bias(rng))},
    }
    ElementTree.SubElement(actuators, kind, name=f"{kind}_{joint}", joint=joint, **options, **own[kind])


def general_bias(rng: np.random.Generator) -> list[float]:
    """The coefficient of the velocity brakes: one that drives is explicit here, and implicit in MuJoCo."""
    constant, length, velocity = rng.normal(size=3)
    return [constant, length, -abs(velocity)]


@pytest.mark.parametrize("seed", range(24))
def test_random_trees(seed):
    text = random_mjcf(seed)
    model = bd.load(text, ignore=IGNORE)
    theirs = simplified(mujoco.MjModel.from_xml_string(text), 2e-3)
    check(model, theirs, 2e-3, seed, scale=1.0)


def test_random_trees_have_every_joint():
    kinds = {int(k) for seed in range(24) for k in bd.load(random_mjcf(seed), ignore=IGNORE).kind}
    assert kinds == {0, 1, 2, 3, 5}
    actuators = {k for seed in range(24) for k in bd.load(random_mjcf(seed), ignore=IGNORE).motor_kinds}
    assert actuators == {"torque", "position", "velocity", "general"}
