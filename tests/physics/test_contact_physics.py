"""What contact, friction and constraints must do, whatever the solver: conserve, support, stick, slide, hold."""

import math

import mujoco
import numpy as np
import pytest
import torch

import backdrive as bd

SOLVERS = pytest.mark.parametrize(
    "solver", [bd.ProjectedGaussSeidel(), bd.InteriorPoint()], ids=lambda s: type(s).__name__
)
ROCK = (
    (-0.3, -0.2, -0.15),
    (0.3, -0.25, -0.2),
    (0.05, 0.3, -0.1),
    (0.0, -0.05, 0.35),
    (-0.1, 0.25, 0.2),
    (0.2, 0.1, 0.3),
)


def ground(dim, friction=0.5, **options):
    scene = bd.Scene(dim, **options)
    scene.add_static(bd.HalfSpace(normal=(0, 1) if dim == 2 else (0, 0, 1)), friction=friction, name="ground")
    return scene


def stack(dim, count):
    scene = ground(dim)
    shape = bd.Box(0.4, 0.2) if dim == 2 else bd.Box(0.4, 0.3, 0.2)
    for k in range(count):
        scene.add_body(
            f"box{k}", shape, mass=1.0 + 0.1 * k, position=(0.01 * (k % 2), *(0.0,) * (dim - 2), 0.1 + 0.2 * k)
        )
    return scene.build()


def momentum(path, masses, dim):
    """How much the impulses of each step change the linear and angular momentum of free bodies: zero, if right.

    masses: mass and moments of inertia of the bodies. Positions are those before the step.
    """
    linear, angular = 0.0, 0.0
    for name, (mass, inertia) in masses.items():
        x, dv = path.position(name)[:-1], path.velocity(name).diff(dim=0)
        dw = path.angular_velocity(name).diff(dim=0)
        linear = linear + mass * dv
        if dim == 2:
            angular = angular + mass * (x[..., 0] * dv[..., 1] - x[..., 1] * dv[..., 0]) + inertia * dw
        else:  # balls
            angular = angular + mass * torch.linalg.cross(x, dv) + inertia * dw
    return max(linear.abs().max(), angular.abs().max())


@SOLVERS
@pytest.mark.parametrize("shapes", ["circle", "box"])
def test_momentum_in_the_plane(shapes, solver):
    scene = bd.Scene(2, gravity=(0, 0))
    shape = bd.Circle(0.3) if shapes == "circle" else bd.Box(0.5, 0.4)
    masses = {}
    for k, (x, y, vx) in enumerate([(-1.0, 0.05, 2.0), (0.0, 0.0, 0.0), (1.0, 0.12, -1.0)]):
        mass = 1.0 + k
        scene.add_body(f"b{k}", shape, mass=mass, position=(x, y), angle=0.3 * k, velocity=(vx, 0.1), restitution=0.5)
        masses[f"b{k}"] = mass, float(shape.inertia(mass)[2, 2])
    path = bd.Simulator(scene.build(), 0.01, solver=solver).rollout(scene.build().initial_state(), steps=150)
    assert path.status.contacts.max() > 0 and path.status.converged.all()
    assert momentum(path, masses, 2) < 1e-10


@SOLVERS
def test_momentum_in_space(solver):
    scene = bd.Scene(3, gravity=(0, 0, 0))
    ball = bd.Sphere(0.3)
    masses = {}
    for k, (x, y, vx) in enumerate([(-1.0, 0.05, 2.0), (0.0, 0.0, 0.0), (1.0, -0.1, -1.0)]):
        mass = 1.0 + k
        scene.add_body(
            f"b{k}", ball, mass=mass, position=(x, y, 0.1 * k), velocity=(vx, 0.1, 0.0), angular_velocity=(1, 2, 3)
        )
        masses[f"b{k}"] = mass, 0.4 * mass * 0.09
    model = scene.build()
    path = bd.Simulator(model, 0.01, solver=solver).rollout(model.initial_state(), steps=150)
    assert path.status.contacts.max() > 0
    assert momentum(path, masses, 3) < 1e-10


@SOLVERS
@pytest.mark.parametrize("dim", [2, 3])
def test_a_stack_of_ten_boxes_stands(dim, solver):
    if dim == 3 and isinstance(solver, bd.InteriorPoint):
        pytest.skip("takes long: 30 tall systems a step")
    model, seconds = stack(dim, 10), 60
    path = bd.Simulator(model, 0.01, solver=solver).rollout(
        model.initial_state(), steps=100 * seconds, adjoint=bd.Checkpoint(100)
    )
    assert path.status.converged.all()
    assert (path.q - path.q[0]).abs().max() < 1e-6
    assert path.v[1:].abs().max() < 1e-6
    assert path.status.depth.max() < 1e-4 * 0.2


SOLIDS = (bd.Sphere(0.3), bd.Capsule(0.15, 0.5), bd.Cylinder(0.2, 0.5), bd.Box(0.4, 0.5, 0.3), bd.Convex(ROCK))


@pytest.mark.parametrize("shape", SOLIDS, ids=lambda shape: type(shape).__name__)
def test_bodies_come_to_rest_on_the_ground(shape):
    scene = ground(3)
    quaternion = np.array([0.9, 0.3, 0.2, 0.1]) / np.linalg.norm([0.9, 0.3, 0.2, 0.1])
    scene.add_body("x", shape, mass=1.2, position=(0, 0, 0.6), quaternion=quaternion, angular_velocity=(1, 0.5, 0.2))
    model = scene.build()
    path = bd.Simulator(model, 0.005, solver=bd.InteriorPoint()).rollout(model.initial_state(), steps=1200)
    assert path.status.converged.all() and path.status.residual.max() <= 1e-8
    assert path.status.depth[-100:].max() <= 1e-4 * 0.3
    force = path.contacts.force
    assert torch.allclose(force[-200:].sum(1)[:, 2].mean(), torch.tensor(1.2 * 9.81).double(), rtol=1e-2)
    # Two directions of friction, each within its bound.
    normal, tangent = force[..., 2], force[..., :2]
    assert (tangent.abs() <= 0.5 * normal[..., None] * (1 + 1e-9) + 1e-9).all()
    assert (normal >= -1e-9).all()


@pytest.mark.parametrize(("excess", "moves"), [(-0.02, False), (0.02, True)])
@pytest.mark.parametrize("dim", [2, 3])
def test_incline(dim, excess, moves):
    """A block sticks up to the angle whose tangent is μ. Gravity is inclined instead of the ground."""
    angle = math.atan(0.5) + excess
    g = (9.81 * math.sin(angle), *(0.0,) * (dim - 2), -9.81 * math.cos(angle))
    scene = ground(dim, gravity=g)
    scene.add_body(
        "block", bd.Box(*(0.4, 0.3, 0.2)[:dim]), mass=1.0, position=(*(0.0,) * (dim - 1), 0.15 if dim == 2 else 0.1)
    )
    model = scene.build()
    path = bd.Simulator(model, 0.01).rollout(model.initial_state(), steps=100)
    distance = path.position("block")[-1, 0].item()
    if moves:  # s = a t² / 2, with semi-implicit Euler's n (n + 1) steps
        a = 9.81 * (math.sin(angle) - 0.5 * math.cos(angle))
        assert distance == pytest.approx(0.5 * a * 100 * 101 * 0.01**2, rel=1e-6)
    else:
        assert abs(distance) < 1e-9


def test_sliding_distance_is_right_to_first_order():
    """v² / (2 μ g), and half the error at half the step."""
    scene = ground(2, friction=0.3)
    scene.add_body("block", bd.Box(0.4, 0.2), mass=2.0, position=(0, 0.1), velocity=(3.0, 0.0), friction=0.3)
    model = scene.build()
    right = 3.0**2 / (2 * 0.3 * 9.81)
    errors = []
    for dt in (0.01, 0.005, 0.0025):
        path = bd.Simulator(model, dt, specialize=True).rollout(model.initial_state(), steps=round(2.0 / dt))
        assert path.v[-1].abs().max() < 1e-9
        errors.append(abs(path.position("block")[-1, 0].item() - right))
    assert errors[0] < 0.02
    assert errors[1] == pytest.approx(errors[0] / 2, rel=0.05) and errors[2] == pytest.approx(errors[1] / 2, rel=0.05)


def chain(count, coordinates, dim=2):
    scene = bd.Scene(dim, coordinates=coordinates)
    parent = None
    for k in range(count):
        scene.add_body(f"link{k}", bd.Box(0.3, 0.05), mass=1.0, position=(0.15 + 0.3 * k, 0.0))
        scene.add_joint(f"joint{k}", bd.Hinge(), parent=parent, child=f"link{k}", anchor=(0.3 * k, 0.0))
        parent = f"link{k}"
    for a in range(count):
        for b in range(a + 2, count):
            scene.exclude(f"link{a}", f"link{b}")
    return scene.build()


def test_a_chain_in_maximal_coordinates_stays_together():
    model, minutes = chain(10, "maximal"), 60
    path = bd.Simulator(model, 0.005).rollout(model.initial_state(), steps=200 * minutes, adjoint=bd.Checkpoint(20))
    assert path.status.converged.all()
    ends = [torch.zeros(len(path), 2, dtype=torch.float64)]
    for k in range(10):
        along = path.rotation(f"link{k}")[..., :, 0] * 0.15
        center = path.position(f"link{k}")
        drift = (center - along - ends[-1]).norm(dim=-1)
        assert drift[-1] < 1e-4  # after 60 s; while it whips around at first, it is more for moments
        assert drift.max() < 5e-3
        ends.append(center + along)
    height = sum(path.position(f"link{k}")[:, 1] for k in range(10)) * 9.81
    speed = sum(0.5 * path.velocity(f"link{k}").square().sum(-1) for k in range(10))
    spin = sum(0.5 * (0.3**2 + 0.05**2) / 12 * path.angular_velocity(f"link{k}").square() for k in range(10))
    energy = height + speed + spin
    assert (energy - energy[0]).max() < 1e-3 * 9.81 * 10


def test_a_tree_and_its_maximal_twin_move_alike():
    """Different equations of one world: the motions approach each other in proportion to the step."""
    tree, twin = chain(3, "reduced"), chain(3, "maximal")
    differences = []
    for dt in (0.004, 0.002, 0.001):
        paths = [bd.Simulator(m, dt).rollout(m.initial_state(), steps=round(0.5 / dt)) for m in (tree, twin)]
        a, b = (torch.stack([p.position(f"link{k}")[-1] for k in range(3)]) for p in paths)
        differences.append((a - b).abs().max().item())
    assert differences[0] < 0.03
    assert differences[1] < 0.6 * differences[0] and differences[2] < 0.6 * differences[1]


@pytest.mark.parametrize("restitution", [0.0, 0.5, 0.9])
def test_bounces(restitution):
    """A ball rises to e² of its height, to first order in dt."""
    scene = bd.Scene(2)
    scene.add_static(bd.HalfSpace(normal=(0, 1)), restitution=restitution)
    scene.add_body("ball", bd.Circle(0.1), mass=1.0, position=(0, 1.1), restitution=restitution)
    model = scene.build()
    path = bd.Simulator(model, 0.001).rollout(model.initial_state(), steps=1000)
    height = path.position("ball")[:, 1] - 0.1
    landed = int((height < 1e-3).nonzero()[0])
    assert height[landed:].max() == pytest.approx(restitution**2, abs=0.01)


@pytest.mark.parametrize("dim", [2, 3])
def test_overlapping_bodies_part_without_speed(dim):
    """Penetration is resolved in the positions: nothing pops."""
    scene = ground(dim)
    up = (0.0,) * (dim - 1)
    scene.add_body("low", bd.Box(*(0.4, 0.3, 0.2)[:dim]), mass=1.0, position=(*up, 0.12 if dim == 2 else 0.07))
    scene.add_body("high", bd.Box(*(0.4, 0.3, 0.2)[:dim]), mass=1.0, position=(*up, 0.38 if dim == 2 else 0.24))
    model = scene.build()
    path = bd.Simulator(model, 0.01).rollout(model.initial_state(), steps=200)
    assert path.status.depth[0] > 0.02  # reported
    assert path.status.depth[-1] < 1e-4 * 0.4
    assert path.v.abs().max() < 0.02
    size = 0.3 if dim == 2 else 0.2
    assert path.position("low")[-1, -1] == pytest.approx(size / 2, abs=1e-4)
    assert path.position("high")[-1, -1] == pytest.approx(1.5 * size, abs=1e-4)


def test_limits_and_joint_friction_hold():
    scene = bd.Scene(2)
    scene.add_body("arm", bd.Box(1.0, 0.1), mass=1.0, position=(0.5, 0.0))
    scene.add_joint("hinge", bd.Hinge(limits=(-0.5, 0.5)), child="arm", anchor=(0, 0))
    scene.add_body("held", bd.Box(1.0, 0.1), mass=1.0, position=(5.5, 0.0))
    scene.add_joint("stiff", bd.Hinge(friction=6.0), child="held", anchor=(5, 0))  # its weight takes 4.9 N m
    model = scene.build()
    path = bd.Simulator(model, 0.01).rollout(model.initial_state(), steps=300)
    assert path.q[-1, 0].item() == pytest.approx(-0.5, abs=1e-5)
    assert path.q[:, 1].abs().max() < 1e-7  # it creeps, by the regularisation of 1e-8
    torque = path.contacts.of("hinge")[-1, 0].item()
    assert torque == pytest.approx(9.81 * 0.5 * math.cos(0.5), rel=1e-6)
    assert path.contacts.of("stiff")[-1, 0].item() == pytest.approx(9.81 * 0.5, rel=1e-6)


def test_a_robot_that_drops_has_gradients_after_5000_steps():
    model = bd.load(QUADRUPED)
    simulator = bd.Simulator(model, 0.002)
    start = model.initial_state()
    leaves = [start.q.clone().requires_grad_(), torch.zeros(5000, model.nu, dtype=torch.float64, requires_grad=True)]
    path = simulator.rollout(bd.State(leaves[0], start.v), leaves[1])
    assert path.status.converged.all() and path.status.contacts[-1] == 4
    path.last.q.sum().backward()
    assert all(x.grad.isfinite().all() and x.grad.abs().max() > 0 for x in leaves)
    weight = float(model.parameter("mass").sum()) * 9.81
    assert path.contacts.force[-1, :, 2].sum().item() == pytest.approx(weight, rel=1e-3)


def leg(name, x, y):
    return f"""<body name="{name}" pos="{x} {y} 0"><joint name="{name} hip" axis="0 1 0" stiffness="150" damping="4"/>
    <inertial pos="0 0 -.1" mass="1" diaginertia=".004 .004 .001"/>
    <geom type="capsule" size=".02" fromto="0 0 0 0 0 -.2"/>
    <body name="{name} shank" pos="0 0 -.2"><joint name="{name} knee" axis="0 1 0" stiffness="150" damping="4"/>
    <inertial pos="0 0 -.1" mass=".4" diaginertia=".002 .002 .0005"/>
    <geom name="{name} foot" type="sphere" size=".03" pos="0 0 -.2" contype="1" friction="0.8"/></body></body>"""


QUADRUPED = f"""<mujoco><option timestep="0.002"/><default><geom contype="0" conaffinity="0"/></default><worldbody>
<geom type="plane" size="9 9 1" conaffinity="1" friction="0.8"/><body name="trunk" pos="0 0 .6"><freejoint/>
<inertial pos="0 0 0" mass="8" diaginertia=".1 .3 .35"/><geom type="box" size=".25 .1 .05"/>
{leg("a", 0.2, 0.12)}{leg("b", 0.2, -0.12)}{leg("c", -0.2, 0.12)}{leg("d", -0.2, -0.12)}</body></worldbody>
<actuator>{"".join(f'<motor joint="{n} {j}"/>' for n in "abcd" for j in ("hip", "knee"))}</actuator></mujoco>"""


def test_a_resting_robot_as_in_mujoco():
    """Forces on the feet, and the height: MuJoCo's contacts are soft and sink in by about a millimetre."""
    model = bd.load(QUADRUPED)
    path = bd.Simulator(model, 0.002).rollout(model.initial_state(), steps=4000)
    native = mujoco.MjModel.from_xml_string(QUADRUPED)
    data = mujoco.MjData(native)
    for _ in range(4000):
        mujoco.mj_step(native, data)
    forces = np.zeros((data.ncon, 6))
    for k in range(data.ncon):
        mujoco.mj_contactForce(native, data, k, forces[k])
    ours = path.contacts.force[-1, :, 2]
    assert data.ncon == 4 and path.status.contacts[-1] == 4
    assert forces[:, 0].sum() == pytest.approx(ours.sum().item(), rel=2e-3)
    assert np.sort(forces[:, 0]) == pytest.approx(np.sort(ours.numpy()), rel=0.05)
    assert path.q[-1, 2].item() == pytest.approx(data.qpos[2], abs=3e-3)


def test_a_sliding_block_as_in_mujoco():
    """The same distance, up to MuJoCo's soft contact, which lets a block creep."""
    text = """<mujoco><option timestep="0.001" cone="elliptic"/><worldbody>
    <geom type="plane" size="9 9 1" friction="0.3"/>
    <body name="block" pos="0 0 .1"><freejoint/><geom type="box" size=".2 .15 .1" mass="2" friction="0.3"/></body>
    </worldbody></mujoco>"""
    model = bd.load(text)
    start = model.initial_state()
    start.v[0] = 2.0
    path = bd.Simulator(model, 0.001).rollout(start, steps=1500)
    native = mujoco.MjModel.from_xml_string(text)
    data = mujoco.MjData(native)
    data.qvel[0] = 2.0
    for _ in range(1500):
        mujoco.mj_step(native, data)
    right = 2.0**2 / (2 * 0.3 * 9.81)
    assert path.q[-1, 0].item() == pytest.approx(right, rel=2e-3)
    assert data.qpos[0] == pytest.approx(right, rel=2e-2)
