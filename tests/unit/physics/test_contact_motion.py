"""What contacts must do, whatever the solver: conserve momentum, support, stick, slide, bounce, stay in the cone."""

import math

import numpy as np
import pytest
import torch
from contact_scenes import (
    BOTH,
    INTEGRATORS,
    SHAPES,
    G,
    at,
    ground,
    pair_model,
    pairs,
    parameters,
    rolled,
    touching_states,
    walker,
)

import backdrive as bd

DIMENSIONS = pytest.mark.parametrize("dim", [2, 3])

# ---------------------------------------------------------------------------------------------- momentum


def momenta(sim, q, v):
    """Linear momentum, and angular momentum about the world's origin, of free bodies: [B, 6]."""
    model, total = sim.model, 0.0
    path = sim.rollout(bd.State(q, v), steps=1, parameters=parameters(model, len(q), "restitution"))
    mass, com, inertia = (model.parameter(name) for name in ("mass", "com", "inertia"))
    pad = torch.nn.functional.pad
    for k, body in enumerate(model.bodies):
        motion = path.rotation(body), path.position(body), path.velocity(body), path.angular_velocity(body)
        R, x, u, w = (each[0] for each in motion)
        if model.dim == 2:
            R, x, u, w = pad(R, (0, 1, 0, 1)), pad(x, (0, 1)), pad(u, (0, 1)), pad(w[:, None], (2, 0))
            R[..., 2, 2] = 1.0
            I = torch.diag(pad(inertia[k : k + 1], (2, 0)))
        else:
            xx, yy, zz, xy, xz, yz = inertia[k]
            I = torch.stack([xx, xy, xz, xy, yy, yz, xz, yz, zz]).reshape(3, 3)
        arm = R @ pad(com[k], (0, 3 - model.dim))
        p = mass[k] * (u + torch.linalg.cross(w, arm))
        spin = (R @ I @ R.mT @ w[..., None])[..., 0]
        total = total + torch.cat([p, spin + torch.linalg.cross(x + arm, p)], -1)
    return total


@BOTH
@pytest.mark.parametrize(
    ("dim", "a", "b"), [(dim, *pair) for dim in (2, 3) for pair in pairs(dim) if "plane" not in pair]
)
def test_momentum(dim, a, b, solver):
    """What a contact changes of the velocities of two bodies has no momentum, neither linear nor angular."""
    model = pair_model(dim, a, b, gravity=False)
    sim = rolled(model, 0.01, solver=solver)
    material = parameters(model, 8, "restitution")
    q, v = touching_states(model, 8, depth=(-0.002, 0.005))
    apart = q.clone()
    apart[:, :dim] += 10.0
    met, free = (sim.rollout(bd.State(x, v), steps=1, parameters=material) for x in (q, apart))
    assert (met.status.contacts > 0).sum() >= 5 and not free.status.contacts.any()
    assert (met.v[1] - free.v[1]).abs().max() > 0.5
    before, after = momenta(sim, q, free.v[1]), momenta(sim, q, met.v[1])
    torch.testing.assert_close(after, before, rtol=0, atol=1e-10)


@pytest.mark.slow
@BOTH
@pytest.mark.parametrize("impacts", [False, True])
@pytest.mark.parametrize(("dim", "shape"), [(2, bd.Circle(0.3)), (2, bd.Box(0.5, 0.4)), (3, bd.Sphere(0.3))], ids=str)
def test_momentum_of_three(dim, shape, solver, impacts):
    """Bodies whose velocities only contacts change, which meet, bounce and rub on each other."""
    scene = bd.Scene(dim, gravity=(0.0,) * dim)
    for k, (x, y, speed) in enumerate([(-1.0, 0.05, 2.0), (0.0, 0.0, 0.0), (1.0, 0.12, -1.0)]):
        place, turning = ((x, y), 0.5 * k) if dim == 2 else ((x, y, 0.1 * k), (1.0, 2.0, 3.0))
        scene.add_body(f"b{k}", shape, mass=1.0 + k, position=place, velocity=(speed, 0.1, 0.0)[:dim],
                       angular_velocity=turning, restitution=0.5)  # fmt: skip
    model = scene.build()
    sim = rolled(model, 0.01, solver=solver, impacts=impacts)
    one = model.initial_state(batch=1)
    path = sim.rollout(one, steps=150, parameters=parameters(model, 1, "restitution"))
    assert (path.status.contacts > 0).sum() >= 2 and path.status.converged.all()
    q, v = path.q[:, 0], path.v[:, 0]
    # In plain steps velocities change where a step begins; else bodies meet within it.
    change = momenta(sim, q[1:] if impacts else q[:-1], v[1:]) - momenta(sim, q[:-1], v[:-1])
    assert change.abs().max() < 1e-10


# ---------------------------------------------------------------------------------------------- rest


@pytest.mark.slow
@BOTH
@pytest.mark.parametrize("tumbling", [False, True])
@DIMENSIONS
def test_shapes_come_to_rest(dim, tumbling, solver):
    """Dropped on the ground, every shape ends still (unless it rolls), not in the ground, which carries its weight."""
    scene = ground(dim)
    for k, (name, shape) in enumerate(SHAPES[dim].items()):
        if name != "plane":
            start = {}
            if tumbling and dim == 2:
                start = {"angle": 0.3, "angular_velocity": 1.0}
            elif tumbling:
                q = np.array([0.9, 0.3, 0.2, 0.1])
                start = {"quaternion": q / np.linalg.norm(q), "angular_velocity": (1.0, 0.5, 0.2)}
            scene.add_body(name, shape, mass=1.0 + k, position=(2.0 * k, *(4.0 * k,) * (dim - 2), 0.6), **start)
    model = scene.build()
    path = bd.Simulator(model, 0.005, solver=solver, specialize=False).rollout(model.initial_state(), steps=2000)
    status, forces = path.status, path.contacts
    assert status.converged.all() and status.residual.max() <= 1e-8
    assert status.depth[-100:].max() <= 1e-4 * 0.25
    rolls = ("circle", "sphere", "capsule", "cylinder") if tumbling else ()
    for k, body in enumerate(model.bodies):
        if body not in rolls:
            assert path.velocity(body)[-1].abs().max() < 1e-6 and path.angular_velocity(body)[-1].abs().max() < 1e-6
        weight = forces.on(body)[-200:, -1].mean().item()
        assert weight == pytest.approx(G * float(model.parameter("mass")[k]), rel=1e-2)
    if not tumbling:
        assert torch.equal(status.contacts[-1], status.contacts[-100])
    # Each direction of friction is within its bound.
    normal, tangent = forces.force[..., -1], forces.force[..., :-1]
    corner = 2**0.5 if dim == 3 else 1.0  # of the pyramid, whose sides follow the slip
    assert (tangent.norm(dim=-1) <= 0.5 * corner * normal * (1 + 1e-9) + 1e-9).all()
    assert (normal >= -1e-9).all()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("integrator", "impacts"), [("euler", False), ("euler", True), ("midpoint", True)], ids=lambda x: str(x)
)
@pytest.mark.parametrize("shapes", [("cylinder",), ("box", "box"), ("cylinder", "box")], ids="+".join)
def test_tumbling_shapes_do_not_sink(shapes, integrator, impacts):
    """On the ground and on each other: what turns by an angle ωh in a step comes down at most (ωh)² r from where its
    speed leads; and a margin, as rims turn faster than what they belong to."""
    dt, samples, scene, generator = 1 / 60, 32, ground(3), torch.Generator().manual_seed(1)
    for k, name in enumerate(shapes):
        shape = bd.Cylinder(0.12, 0.25) if name == "cylinder" else bd.Box(0.3, 0.2, 0.15)
        scene.add_body(f"{name}{k}", shape, mass=1.0, position=(0.03 * k, 0.02 * k, 0.3 + 0.4 * k))
    state = scene.build().initial_state(samples)
    turn = state.q.unflatten(1, (-1, 7))[..., 3:]
    turn += torch.randn(turn.shape, generator=generator, dtype=turn.dtype) / 3
    turn /= turn.norm(dim=-1, keepdim=True)
    v = 0.5 * torch.randn(state.v.shape, generator=generator, dtype=turn.dtype)
    sim = rolled(scene.build(), dt, impacts=impacts, integrator=INTEGRATORS[integrator])
    path = sim.rollout(bd.State(state.q, v), steps=150)
    fastest, radius = path.v.unflatten(-1, (-1, 6))[..., 3:].norm(dim=-1).max(), 0.19
    assert path.status.converged.all()
    assert path.status.depth.max() < (fastest * dt) ** 2 * radius + 0.03 * radius


STACKS = {
    "even": [(1.0, 0.0, 1.0)] * 10,
    "every other narrower": [(1.0, 0.0, 1.0), (0.9, 0.0, 1.0)] * 5,
    "shifted and ever heavier": [(1.0, 0.025 * (k % 2), 1.0 + 0.1 * k) for k in range(10)],
}


@pytest.mark.slow
@pytest.mark.parametrize("boxes", STACKS.values(), ids=STACKS)
@BOTH
@DIMENSIONS
def test_a_stack_of_ten_boxes_stands(dim, solver, boxes):
    """For a minute. boxes: width, place, mass; heights are 1 m in space, 0.5 m in the plane."""
    slow = dim == 3 and isinstance(solver, bd.InteriorPoint)  # 120 rows: five seconds will do
    scene, height = ground(dim, friction=0.5), 1.0 if dim == 3 else 0.5
    for k, (width, x, mass) in enumerate(boxes):
        shape = bd.Box(*[width] * (dim - 1), height)
        scene.add_body(f"box{k}", shape, mass=mass, position=at(dim, x, (k + 0.5) * height))
    model = scene.build()
    sim = bd.Simulator(model, 1 / 60, solver=solver, specialize=False)
    path = sim.rollout(model.initial_state(), steps=300 if slow else 3600)
    assert path.status.converged.all() and path.status.residual.max() <= 1e-8
    assert path.v.abs().max() < 1e-6 and (path.q - path.q[0]).abs().max() < 1e-6
    assert path.status.depth.max() < 2e-5


@BOTH
@DIMENSIONS
def test_robots_do_not_sink_in(dim, solver):
    model = walker(dim)
    sim = bd.Simulator(model, 0.005, solver=solver, specialize=False)
    path = sim.rollout(model.initial_state(batch=4), steps=200)
    assert path.status.residual.max() <= 1e-8
    assert (path.status.contacts[-1] > 0).all()
    assert path.status.depth.max() < 1e-4


# ---------------------------------------------------------------------------------------------- friction


def block_on_incline(dim, angle, friction, speed=0.0):
    """A flat block at rest, or moving up at this speed."""
    normal = at(dim, -math.sin(angle), math.cos(angle))
    along = np.array(at(dim, math.cos(angle), math.sin(angle)))
    scene = bd.Scene(dim)
    scene.add_static(bd.HalfSpace(normal), friction=friction)
    turned = {"angle": angle} if dim == 2 else {"quaternion": (math.cos(angle / 2), 0.0, -math.sin(angle / 2), 0.0)}
    sizes = (1.0, 0.4) if dim == 2 else (1.0, 0.8, 0.4)
    place = tuple(0.2 * x for x in normal)
    scene.add_body(
        "block", bd.Box(*sizes), mass=2.0, position=place, velocity=speed * along, friction=friction, **turned
    )
    return scene.build()


def slid(model, dt, time, solver=None, integrator=None):
    sim = bd.Simulator(model, dt, solver=solver, integrator=integrator, specialize=False)
    path = sim.rollout(model.initial_state(), steps=round(time / dt))
    assert path.status.converged.all()
    place = path.position("block")
    return (place[-1] - place[0]).norm().item()


@BOTH
@pytest.mark.parametrize("integrator", INTEGRATORS.values(), ids=INTEGRATORS)
@pytest.mark.parametrize(("angle", "moves"), [(0.99, False), (1.01, True), (1.5, True)])
@DIMENSIONS
def test_incline(dim, angle, moves, integrator, solver):
    """A block sticks up to the angle whose tangent is μ (1 here), and then slides by a t² / 2, a = g (sin - μ cos)."""
    angle *= math.atan(0.5)
    distance = slid(block_on_incline(dim, angle, 0.5), 0.01, 2.0, solver, integrator)
    if not moves:
        assert distance < 1e-9
        return
    steps = 200 * (200 if isinstance(integrator, bd.Midpoint) else 201)  # n (n + 1) by semi-implicit Euler
    a = G * (math.sin(angle) - 0.5 * math.cos(angle))
    assert distance == pytest.approx(0.5 * a * steps * 0.01**2, rel=1e-6)


@BOTH
@DIMENSIONS
def test_friction_decelerates_and_stops(dim, solver):
    """v² / (2 μ g), to first order in dt; and then the block rests, without a last jerk backwards."""
    model = block_on_incline(dim, 0.0, 0.3, speed=3.0)
    exact, errors = 3.0**2 / (2 * 0.3 * G), []
    for dt in (0.01, 0.005, 0.0025):
        sim = bd.Simulator(model, dt, solver=solver, specialize=False)
        path = sim.rollout(model.initial_state(), steps=round(2.0 / dt))
        assert path.v[-1].abs().max() < 1e-9
        x = path.position("block")[:, 0]
        assert x.diff().min() > -1e-9
        errors.append(abs(x[-1].item() - exact))
    assert errors[0] < 0.02
    assert errors[1] == pytest.approx(errors[0] / 2, rel=0.05) and errors[2] == pytest.approx(errors[1] / 2, rel=0.05)


def ball_in_all_directions(pyramid, solver, **body):
    """A ball thrown over the ground in 16 directions at 2 m/s, for a second; dt 5 ms."""
    scene = ground(3, friction=0.4)
    scene.add_body("ball", bd.Sphere(0.2), mass=2.0, position=(0, 0, 0.2), friction=0.4, **body)
    model = scene.build()
    sim = bd.Simulator(model, 0.005, solver=solver, pyramid=pyramid, specialize=False)
    start = model.initial_state(batch=16)
    angle = torch.linspace(0, 6, 16, dtype=torch.float64)
    start.v[:, 0], start.v[:, 1] = 2.0 * angle.cos(), 2.0 * angle.sin()
    path = sim.rollout(start, steps=200)
    assert path.status.converged.all() and path.status.residual.max() <= 1e-8
    return path


PYRAMIDS = pytest.mark.parametrize("pyramid", [4, 6, 8, 12])


@BOTH
@PYRAMIDS
def test_friction_cone(pyramid, solver):
    """|ft| <= μ fn up to what the pyramid is wider than the cone, and where it slides also at least."""
    path = ball_in_all_directions(pyramid, solver)
    force = 2.0 * (path.v[..., :3].diff(dim=0) / 0.005 + torch.tensor([0.0, 0.0, G], dtype=path.v.dtype))
    torch.testing.assert_close(path.contacts.on("ball"), force, rtol=1e-9, atol=1e-9)
    normal, tangential = force[..., 2], force[..., :2].norm(dim=-1)
    assert normal.min() > 0.99 * 2.0 * G
    widest = 1.0 / math.cos(math.pi / pyramid)
    assert (tangential <= 0.4 * widest * normal * (1 + 1e-9)).all()
    assert (tangential[:20] >= 0.4 * normal[:20] * (1 - 1e-9)).all()
    # In the end it rolls: v = ω r, and nothing rubs any more.
    assert tangential[-1].max() < 1e-8
    spin = path.angular_velocity("ball")[-1]
    torch.testing.assert_close(path.v[-1, :, 0], 0.2 * spin[:, 1], rtol=0, atol=1e-9)


@BOTH
@PYRAMIDS
def test_friction_pyramids_stop_a_sliding_ball(pyramid, solver):
    """One that cannot turn, as far as the pyramid (which touches the cone from outside) allows."""
    path = ball_in_all_directions(pyramid, solver, inertia=(1e6, 1e6, 1e6))
    distance = path.last.q[:, :2].norm(dim=1)
    cone, corner = 2.0**2 / (2 * 0.4 * G), 1.0 / math.cos(math.pi / pyramid)
    assert path.v[-1].abs().max() < 1e-6
    assert (distance < cone * 1.01).all() and (distance > cone / corner * 0.98).all()


# ---------------------------------------------------------------------------------------------- restitution


@BOTH
@DIMENSIONS
@pytest.mark.parametrize("restitution", [0.0, 0.5, 0.9])
def test_bounces(dim, restitution, solver):
    """A ball rises to e² of its height, to first order in dt."""
    scene = ground(dim, restitution=restitution)
    ball = bd.Circle(0.1) if dim == 2 else bd.Sphere(0.1)
    scene.add_body("ball", ball, mass=1.0, position=at(dim, 0.0, 1.1), restitution=restitution)
    model = scene.build()
    path = bd.Simulator(model, 0.001, solver=solver, specialize=False).rollout(model.initial_state(), steps=1000)
    height = path.position("ball")[:, -1] - 0.1
    landed = int((height < 1e-3).nonzero()[0])
    assert height[landed:].max() == pytest.approx(restitution**2, abs=0.01)


def test_slow_contacts_do_not_bounce():
    scene = ground(2, restitution=0.9)
    scene.add_body("ball", bd.Circle(0.1), mass=1.0, position=(0.0, 0.1), velocity=(0.0, -0.04), restitution=0.9)
    model = scene.build()
    plain = [bd.Simulator(model, 0.01, bounce_threshold=x, impacts=False) for x in (0.05, 0.03)]
    quiet, eager = (sim.step(model.initial_state()) for sim in plain)
    assert abs(quiet.v[1]) < 1e-6
    assert eager.v[1].item() == pytest.approx(0.036, rel=1e-6)


@pytest.mark.parametrize("batch", [None, 3])
def test_forces_of_one_step_are_those_of_a_rollout(batch):
    scene = bd.Scene(dim=3)
    scene.add_static(bd.HalfSpace(normal=(0, 0, 1)), friction=0.8)
    scene.add_body("box", bd.Box(0.4, 0.3, 0.2), mass=2.0, position=(0, 0, 0.1), velocity=(0.5, 0, 0))
    model = scene.build()
    simulator, state = bd.Simulator(model, 0.01), model.initial_state(batch)
    found, expected = simulator.contacts(state), simulator.rollout(state, steps=1).contacts
    assert torch.equal(found.force, expected.force) and torch.equal(found.point, expected.point)
    assert found.on("box")[0, ..., 2].flatten()[0] == pytest.approx(2.0 * 9.81)
    mass = model.parameter("mass").requires_grad_()
    heavier = simulator.contacts(state, parameters={"mass": mass}).on("box")[..., 2].sum()
    assert torch.autograd.grad(heavier, mass)[0].item() == pytest.approx(9.81 * (batch or 1))
