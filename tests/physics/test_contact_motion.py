"""What contacts must do, in more detail than `test_contact_physics`: every pair of shapes, both integrators, cones."""

import math

import numpy as np
import pytest
import torch
from contact_scenes import SHAPES, chain, pair_model, pairs, parameters, touching_states, walker

import backdrive as bd

SOLVERS = {"gauss-seidel": bd.ProjectedGaussSeidel(), "interior-point": bd.InteriorPoint()}
G = 9.81


def up(dim):
    return (0.0,) * (dim - 1) + (1.0,)


def at(dim, x, height):
    return (x, height) if dim == 2 else (x, 0.0, height)


def ground(dim, **material):
    scene = bd.Scene(dim)
    scene.add_static(bd.HalfSpace(up(dim)), **material)
    return scene


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


@pytest.mark.parametrize(
    ("dim", "a", "b"), [(dim, *pair) for dim in (2, 3) for pair in pairs(dim) if "plane" not in pair]
)
def test_momentum(dim, a, b):
    """What a contact changes of the velocities of two bodies has no momentum, neither linear nor angular."""
    model = pair_model(dim, a, b, gravity=False)
    sim = bd.Simulator(model, 0.01, specialize=False)
    material = parameters(model, 8, "restitution")
    q, v = touching_states(model, 8, depth=(-0.002, 0.005))
    apart = q.clone()
    apart[:, :dim] += 10.0
    met, free = (sim.rollout(bd.State(x, v), steps=1, parameters=material) for x in (q, apart))
    assert (met.status.contacts > 0).sum() >= 5 and not free.status.contacts.any()
    assert (met.v[1] - free.v[1]).abs().max() > 0.5
    before, after = momenta(sim, q, free.v[1]), momenta(sim, q, met.v[1])
    torch.testing.assert_close(after, before, rtol=0, atol=1e-10)


# ---------------------------------------------------------------------------------------------- rest


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("dim", [2, 3])
def test_shapes_come_to_rest(dim, solver):
    """Dropped on the ground, every shape ends still, and not in the ground."""
    scene, sizes = ground(dim), []
    for k, (name, shape) in enumerate(SHAPES[dim].items()):
        if name != "plane":
            scene.add_body(name, shape, mass=1.0 + k, position=at(dim, 1.0 * k, 0.6))
            sizes.append(0.25)
    model = scene.build()
    path = bd.Simulator(model, 0.01, solver=SOLVERS[solver], specialize=False).rollout(
        model.initial_state(), steps=1000
    )
    assert path.status.converged.all()
    assert path.status.depth[-1] <= 1e-4 * min(sizes)
    assert path.v[-1].abs().max() < 1e-6
    assert torch.equal(path.status.contacts[-1], path.status.contacts[-100])


def stack(dim, sides):
    """Boxes of height 1 m on each other on the ground; `sides`: their widths."""
    scene = ground(dim, friction=0.5)
    for k, side in enumerate(sides):
        scene.add_body(f"box{k}", bd.Box(*[side] * (dim - 1), 1.0), mass=1.0, position=at(dim, 0.0, k + 0.5))
    return scene.build()


@pytest.mark.parametrize(("dim", "narrow"), [(2, 1.0), (2, 0.9), (3, 1.0), (3, 0.9)])
def test_stack_stands(dim, narrow):
    """Ten boxes for a minute; all of one width, or every other one narrower."""
    model = stack(dim, [1.0, narrow] * 5)
    path = bd.Simulator(model, 1 / 60, specialize=False).rollout(model.initial_state(), steps=3600)
    assert path.status.converged.all()
    assert path.v[60:].abs().max() < 1e-6
    assert (path.q - path.q[0]).abs().max() < 1e-6


@pytest.mark.parametrize("dim", [2, 3])
def test_stack_stands_by_interior_point(dim):
    model = stack(dim, [1.0, 0.9] * 5)
    sim = bd.Simulator(model, 1 / 60, solver=bd.InteriorPoint(), specialize=False)
    path = sim.rollout(model.initial_state(), steps=300)
    assert path.status.residual.max() <= 1e-8
    assert path.v.abs().max() < 1e-6 and (path.q - path.q[0]).abs().max() < 1e-6


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


def slid(model, dt, time, solver="gauss-seidel", integrator=None):
    sim = bd.Simulator(model, dt, solver=SOLVERS[solver], integrator=integrator, specialize=False)
    path = sim.rollout(model.initial_state(), steps=round(time / dt))
    assert path.status.converged.all()
    place = path.position("block")
    return (place[-1] - place[0]).norm().item()


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("dim", [2, 3])
def test_critical_angle(dim, solver):
    critical = math.atan(0.5)
    assert slid(block_on_incline(dim, 0.99 * critical, 0.5), 0.01, 2.0, solver) < 1e-8
    assert slid(block_on_incline(dim, 1.01 * critical, 0.5), 0.01, 2.0, solver) > 0.05


@pytest.mark.parametrize("integrator", [bd.SemiImplicitEuler(), bd.Midpoint()], ids=repr)
@pytest.mark.parametrize("dim", [2, 3])
def test_sliding_distance(dim, integrator):
    """s = a t² / 2 with a = g (sin - μ cos): to first order in dt, or exactly."""
    angle = math.radians(40)
    acceleration = G * (math.sin(angle) - 0.5 * math.cos(angle))
    model = block_on_incline(dim, angle, 0.5)
    errors = [slid(model, dt, 1.0, integrator=integrator) - acceleration / 2 for dt in (0.01, 0.005)]
    if isinstance(integrator, bd.Midpoint):
        assert max(map(abs, errors)) < 1e-6
    else:
        assert errors[0] / errors[1] == pytest.approx(2.0, rel=1e-3)


def test_friction_decelerates_and_stops():
    """v² / (2 μ g), to first order in dt; and then the block rests, without a last jerk backwards."""
    model = block_on_incline(2, 0.0, 0.3, speed=2.0)
    exact = 4.0 / (2 * 0.3 * G)
    errors = []
    for dt in (0.008, 0.004, 0.002):
        path = bd.Simulator(model, dt, specialize=False).rollout(model.initial_state(), steps=round(1.0 / dt))
        x = path.position("block")[:, 0]
        assert (x[1:] - x[:-1]).min() > -1e-9
        errors.append(abs(x[-1].item() - exact))
        assert errors[-1] <= 2.0 * dt
    assert errors[2] < 0.5 * errors[0]


def impulses_of(path, model, dt):
    """Forces of the ground on a single body, from its change of momentum, N: [T, B, dim]."""
    v = path.v[..., : model.dim]
    weight = torch.tensor((0.0,) * (model.dim - 1) + (G,), dtype=v.dtype)
    return model.parameter("mass")[0] * ((v[1:] - v[:-1]) / dt + weight)


@pytest.mark.parametrize("pyramid", [4, 8, 12])
def test_friction_cone(pyramid):
    """A thrown ball: |ft| <= μ fn up to what the pyramid is wider than the cone, and where it slides also at least."""
    scene = ground(3, friction=0.4)
    scene.add_body("ball", bd.Sphere(0.2), mass=2.0, position=(0, 0, 0.2), friction=0.4)
    model = scene.build()
    sim = bd.Simulator(model, 0.005, solver=bd.InteriorPoint(), pyramid=pyramid)
    angle = torch.linspace(0, 6, 16, dtype=torch.float64)
    q = model.initial_state(batch=16).q
    v = torch.zeros(16, 6, dtype=torch.float64)
    v[:, 0], v[:, 1] = 2.0 * angle.cos(), 2.0 * angle.sin()
    path = sim.rollout(bd.State(q, v), steps=100)
    assert path.status.residual.max() <= 1e-8
    force = impulses_of(path, model, sim.dt)
    normal, tangential = force[..., 2], force[..., :2].norm(dim=-1)
    assert normal.min() > 0.99 * 2.0 * G
    widest = 1.0 / math.cos(math.pi / pyramid)
    assert (tangential <= 0.4 * widest * normal * (1 + 1e-9)).all()
    assert (tangential[:20] >= 0.4 * normal[:20] * (1 - 1e-9)).all()
    # In the end it rolls: v = ω r, and nothing rubs any more.
    assert tangential[-1].max() < 1e-8
    spin = path.angular_velocity("ball")[-1]
    torch.testing.assert_close(path.v[-1, :, 0], 0.2 * spin[:, 1], rtol=0, atol=1e-9)


@pytest.mark.parametrize("dim", [2, 3])
def test_complementarity(dim):
    """Contacts of a robot either press or open: the residual says so, and nothing sinks in."""
    model = walker(dim)
    sim = bd.Simulator(model, 0.005, solver=bd.InteriorPoint(), specialize=False)
    path = sim.rollout(model.initial_state(batch=4), steps=200)
    assert path.status.residual.max() <= 1e-8
    assert (path.status.contacts[-1] > 0).all()
    assert path.status.depth.max() < 1e-4


# ---------------------------------------------------------------------------------------------- restitution


def test_slow_contacts_do_not_bounce():
    scene = ground(2, restitution=0.9)
    scene.add_body("ball", bd.Circle(0.1), mass=1.0, position=(0.0, 0.1), velocity=(0.0, -0.04), restitution=0.9)
    model = scene.build()
    quiet, eager = (bd.Simulator(model, 0.01, bounce_threshold=x).step(model.initial_state()) for x in (0.05, 0.03))
    assert abs(quiet.v[1]) < 1e-6
    assert eager.v[1].item() == pytest.approx(0.036, rel=1e-6)


# ---------------------------------------------------------------------------------------------- maximal coordinates


def hanging(model, angle):
    """The chain straight, so far from hanging down."""
    down, q = angle - math.pi / 2, []
    for k in range(model.nbody):
        r = 0.2 * k + 0.1
        turned = [down] if model.dim == 2 else [math.cos(down / 2), 0.0, -math.sin(down / 2), 0.0]
        q += [*at(model.dim, r * math.cos(down), r * math.sin(down)), *turned]
    return bd.State(torch.tensor(q, dtype=torch.float64), torch.zeros(model.nv, dtype=torch.float64))


def joint_gaps(model, path):
    """How far the ends of neighbouring links are apart, [T + 1]."""
    end = torch.zeros(model.dim, dtype=torch.float64)
    end[0] = 0.1
    ends = [
        (path.position(b) - path.rotation(b) @ end, path.position(b) + path.rotation(b) @ end) for b in model.bodies
    ]
    before = [torch.zeros_like(ends[0][0]), *(e[1] for e in ends[:-1])]
    return torch.stack([(e[0] - x).norm(dim=-1) for e, x in zip(ends, before)]).amax(0)


def energy(model, path):
    total, mass, inertia = 0.0, model.parameter("mass"), model.parameter("inertia")
    for k, body in enumerate(model.bodies):
        w = path.angular_velocity(body)
        if model.dim == 2:
            spin = inertia[k] * w.square()
        else:
            spin = (inertia[k][:3] * (path.rotation(body).mT @ w[..., None])[..., 0].square()).sum(-1)
        total = total + 0.5 * (mass[k] * path.velocity(body).square().sum(-1) + spin)
        total = total + G * mass[k] * path.position(body)[..., -1]
    return total


@pytest.mark.parametrize("integrator", [bd.SemiImplicitEuler(), bd.Midpoint()], ids=repr)
@pytest.mark.parametrize("dim", [2, 3])
def test_chain_of_constraints_holds(dim, integrator):
    """Ten links that swing for a minute stay together, and gain no energy."""
    model = chain(dim, 10, "maximal")
    path = bd.Simulator(model, 0.005, integrator=integrator, specialize=False).rollout(hanging(model, 0.3), steps=12000)
    assert path.status.converged.all()
    gaps, total = joint_gaps(model, path), energy(model, path)
    assert gaps[-1] <= 1e-4 and gaps.max() <= 3e-4
    lowest = -G * 0.5 * sum(0.2 * k + 0.1 for k in range(10))
    assert total.max() - total[0] <= 0.005 * (total[0] - lowest)
    assert total[-2000:].mean() <= total[:2000].mean()
    assert total[-1] - lowest > 0.8 * (total[0] - lowest)  # nor loses it
