"""Impacts keep, or take, energy; what rests has none; nothing passes through anything."""

import pytest
import torch
from contact_scenes import G, ground
from impact_scenes import INTEGRATORS, simulator

import backdrive as bd

BOTH = pytest.mark.parametrize("integrator", INTEGRATORS)


def energy(model, path, g=G):
    """Of free bodies in the plane: [T + 1, ...]"""
    q, v = (x.unflatten(-1, (-1, 3)) for x in (path.q, path.v))
    m, inertia = model.parameter("mass"), model.parameter("inertia")
    kinetic = 0.5 * m * v[..., :2].square().sum(-1) + 0.5 * inertia * v[..., 2] ** 2
    return (kinetic + m * g * q[..., 1]).sum(-1)


@pytest.mark.parametrize(("integrator", "g"), [("euler", 0.0), ("midpoint", 0.0), ("midpoint", G)])
def test_elastic_gas(integrator, g):
    """30 discs in a box for a minute."""
    scene = bd.Scene(2, gravity=(0.0, -g))
    for normal, offset in (((1, 0), 0.0), ((-1, 0), -2.0), ((0, 1), 0.0), ((0, -1), -2.0)):
        scene.add_static(bd.HalfSpace(normal, offset), restitution=1.0, friction=0.0)
    generator = torch.Generator().manual_seed(0)
    for k in range(30):
        vx, vy = torch.randn(2, generator=generator).tolist()
        scene.add_body(f"disc{k}", bd.Circle(0.06 + 0.02 * (k % 3)), mass=1.0 + 0.5 * (k % 3), friction=0.0,
                       restitution=1.0, position=(0.2 + 0.3 * (k // 5), 0.2 + 0.3 * (k % 5)),
                       velocity=(vx, vy))  # fmt: skip
    model = scene.build()
    path = simulator(model, 1 / 60, integrator).rollout(model.initial_state(), steps=3600)
    assert path.status.impacts.sum() > 5000 and not path.status.fallbacks.any()
    total = energy(model, path, g)
    assert (total / total[0] - 1.0).abs().max() < 1e-9
    centers = path.q.unflatten(-1, (30, 3))[..., :2]
    assert centers.min() > 0.05 and centers.max() < 1.95


def test_eccentric_impacts_take_energy():
    """Restitution and friction at a corner could give some: thin rods at all angles and speeds."""
    scene = ground(2, gravity=(0.0, 0.0), restitution=0.95, friction=1.0)
    scene.add_body("rod", bd.Box(1.0, 0.04), mass=1.0, restitution=0.95, friction=1.0)
    model = scene.build()
    angles, speeds = torch.meshgrid(
        torch.linspace(-1.55, 1.55, 63).double(), torch.linspace(-4.0, 4.0, 17).double(), indexing="ij"
    )
    angle, speed = angles.flatten(), speeds.flatten()
    height = 0.5 * angle.sin().abs() + 0.02 * angle.cos() + 0.013
    q = torch.stack([torch.zeros_like(angle), height, angle], 1)
    v = torch.stack([speed, torch.full_like(speed, -2.0), torch.zeros_like(speed)], 1)
    for integrator in INTEGRATORS:
        path = simulator(model, 1 / 60, integrator).rollout(bd.State(q, v), steps=2)
        assert (path.status.impacts.sum(0) >= 1).all()
        total = energy(model, path, 0.0)
        assert (total[-1] <= total[0] * (1.0 + 1e-12)).all()


def stack(n, restitution, gap=0.0):
    scene = ground(2, restitution=restitution)
    for k in range(n):
        scene.add_body(f"box{k}", bd.Box(0.5, 0.3), mass=1.0, restitution=restitution,
                       position=(0.02 * (-1) ** k, 0.15 + 0.3 * k + gap * (k + 1)))  # fmt: skip
    return scene.build()


@BOTH
@pytest.mark.parametrize("restitution", [0.0, 0.5])
def test_a_stack_stands_without_impacts(integrator, restitution):
    model = stack(10, restitution)
    path = simulator(model, 1 / 60, integrator).rollout(model.initial_state(), steps=3600)
    assert not path.status.impacts.any() and path.status.converged.all()
    assert (path.q - path.q[0]).abs().max() < 1e-8 and path.v[-1].abs().max() < 1e-8


@BOTH
@pytest.mark.parametrize("restitution", [0.0, 0.3])
def test_a_dropped_stack_settles(integrator, restitution):
    model = stack(5, restitution, gap=0.05)
    path = simulator(model, 1 / 60, integrator).rollout(model.initial_state(), steps=240)
    assert 5 <= path.status.impacts.sum() < 200 and not path.status.impacts[-60:].any()
    rest = stack(5, restitution).initial_state().q
    assert (path.last.q - rest)[1::3].abs().max() < 1e-8 and path.v[-1].abs().max() < 1e-8


@BOTH
def test_boxes_do_not_sink_into_each_other(integrator):
    """Tilted boxes dropped on each other land on one corner, then on the next."""
    model = stack(2, 0.0, gap=0.05)
    q = model.initial_state(64).q
    q = q + 0.01 * (2.0 * torch.rand(q.shape, generator=torch.Generator().manual_seed(0), dtype=q.dtype) - 1.0)
    path = simulator(model, 1 / 60, integrator).rollout(bd.State(q, torch.zeros_like(q)), steps=40)
    a, b = path.q.split(3, -1)
    floor = torch.tensor([0.0, -0.15, 0.0]).double() + a * torch.tensor([1.0, 0.0, 0.0]).double()  # a box below each
    assert max(corner_depth(*pair) for pair in ((a, b), (b, a), (a, floor))) < 1e-4


def corner_depth(a, b):
    """How deep corners of boxes a are in boxes b, at most."""

    def turned(x, y, angle):
        return angle.cos() * x - angle.sin() * y, angle.sin() * x + angle.cos() * y

    deepest = 0.0
    for x, y in ((0.25, 0.15), (-0.25, 0.15), (-0.25, -0.15), (0.25, -0.15)):
        dx, dy = turned(torch.tensor(x).double(), torch.tensor(y).double(), a[..., 2])
        u, w = turned(a[..., 0] + dx - b[..., 0], a[..., 1] + dy - b[..., 1], -b[..., 2])
        deepest = max(deepest, torch.minimum(0.25 - u.abs(), 0.15 - w.abs()).max().item())
    return deepest


@pytest.mark.slow
@BOTH
def test_boxes_in_space_do_not_sink(integrator):
    """They tumble over corners and edges, which change their places in the list of contacts."""
    scene = ground(3)
    scene.add_body("box", bd.Box(0.3, 0.2, 0.15), mass=1.0, position=(0.0, 0.0, 0.3))
    model = scene.build()
    generator = torch.Generator().manual_seed(1)
    state = model.initial_state(32)
    turn = torch.nn.functional.normalize(
        torch.tensor([3.0, 0.0, 0.0, 0.0]) + torch.randn(32, 4, generator=generator), dim=1
    )
    q = torch.cat([state.q[:, :3], turn.double()], 1)
    v = 0.5 * torch.randn(32, 6, generator=generator).double()
    path = simulator(model, 1 / 60, integrator).rollout(bd.State(q, v), steps=180)
    assert not path.status.fallbacks.any() and not path.status.impacts[-60:].any()
    w, x, y, z = path.q[..., 3:].unbind(-1)
    down = torch.stack([2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)], -1)
    lowest = path.q[..., 2] - down.abs() @ torch.tensor([0.15, 0.1, 0.075]).double()
    assert lowest.min() > -1e-4 * 0.3 and path.v[-1].abs().max() < 1e-8


@pytest.mark.parametrize("e", [0.9, 1.0])
def test_slow_rebounds_of_elastic_bodies(e):
    """They come back within the step: what hits again does not rest."""
    scene = ground(2, restitution=e, friction=0.0)
    scene.add_body("ball", bd.Circle(0.1), mass=1.0, position=(0.0, 0.1), restitution=e, friction=0.0)
    model = scene.build()
    q = model.initial_state(8).q
    q[:, 1] += torch.linspace(4e-5, 4e-4, 8).double()
    path = simulator(model, 1 / 60, "midpoint").rollout(bd.State(q, torch.zeros_like(q)), steps=12)
    assert path.status.impacts.amax(0)[0] >= 2 and not path.status.fallbacks.any()
    if e == 1.0:
        total = energy(model, path)
        assert (total / total[0] - 1.0).abs().max() < 1e-9
    assert path.q[..., 1].min() > 0.1 - 1e-5


@BOTH
def test_a_ball_comes_to_rest(integrator):
    """In the limit of infinitely many bounces (e = 0.5, from h = 0.5 m) x is 6.289438, dx/dh 0.1."""
    scene = ground(2, restitution=0.5, friction=0.1)
    scene.add_body("ball", bd.Circle(0.1), mass=1.0, velocity=(4.0, 0.0), position=(0.0, 0.6), restitution=0.5,
                   friction=0.1)  # fmt: skip
    model = scene.build()
    q = model.initial_state().q.requires_grad_()
    dt = 1 / 240
    path = simulator(model, dt, integrator).rollout(bd.State(q, model.initial_state().v), steps=480)
    assert 4 <= path.status.impacts.sum() <= 10 and not path.status.impacts[-120:].any()
    assert abs(path.last.q[1].item() - 0.1) < 1e-8 and abs(path.last.v[1].item()) < 1e-8
    assert abs(path.last.q[0].item() - 6.289438) < dt
    assert abs(torch.autograd.grad(path.last.q[0], q)[0][1].item() - 0.1) < 2 * dt


@pytest.mark.parametrize("speed", [50.0, 400.0, 3000.0])
def test_a_bullet_does_not_pass_a_thin_wall(speed):
    scene = bd.Scene(2, gravity=(0.0, 0.0))
    scene.add_static(bd.Box(0.002, 2.0), restitution=0.5)
    scene.add_body("bullet", bd.Circle(0.003), mass=0.01, position=(-1.0, 0.1), velocity=(speed, 0.0), restitution=0.5)
    model = scene.build()
    path = simulator(model, 1 / 30).rollout(model.initial_state(), steps=3)
    assert path.status.impacts.sum() == 1 and path.q[..., 0].max() <= -0.004
    assert path.last.v[0].item() == pytest.approx(-0.5 * speed)


@BOTH
@pytest.mark.parametrize("turn", [0.1, 0.3, 0.49, 1.0, 3.0, 12.0])
def test_a_blade_does_not_pass_a_ball(integrator, turn):
    """It turns by so much (rad) in a step, about its end, and must hit in the step in which it gets there."""
    scene = bd.Scene(2, gravity=(0.0, 0.0))
    scene.add_body("blade", bd.Box(1.0, 0.02), mass=5.0, position=(0.5, 0.0), restitution=0.5, friction=0.0)
    scene.add_joint("pin", bd.Hinge(), child="blade", anchor=(0.0, 0.0))
    scene.add_body("ball", bd.Circle(0.03), mass=0.1, position=(0.0, 0.7), restitution=0.5, friction=0.0)
    model = scene.build()
    generator = torch.Generator().manual_seed(0)
    angle, place, sign = torch.rand(3, 64, generator=generator).double()
    angle, place, sign = 0.3 + 5.6 * angle, 0.3 + 0.6 * place, 2.0 * (sign < 0.5) - 1.0
    q = torch.stack([0 * angle, place * angle.cos(), place * angle.sin(), 0 * angle], 1)
    v = torch.stack([turn * 60 * sign, 0 * angle, 0 * angle, 0 * angle], 1)
    steps = 3 if turn > 1.0 else 24
    path = simulator(model, 1 / 60, integrator).rollout(bd.State(q, v), steps=steps)
    way = torch.where(sign > 0, angle, 2 * torch.pi - angle) - torch.asin(0.04 / place)
    first = path.status.impacts.cumsum(0).eq(0).sum(0)
    assert (first == (way / turn).floor().clamp(max=steps)).all() and (first < steps).any()


@BOTH
@pytest.mark.parametrize("turn", [0.1, 0.3, 0.49, 1.0, 3.0, 12.0])
@pytest.mark.parametrize("kind", ["joint at a distance", "joint", "free"])
def test_a_bob_does_not_pass_a_ball(integrator, turn, kind):
    """Likewise a round one, on a circle of 0.6 m about a joint, at its body's origin or away from it; or free."""
    scene, round_shape = bd.Scene(2, gravity=(0.0, 0.0)), {"restitution": 0.5, "friction": 0.0}
    at = 0.6 if kind == "joint at a distance" else 0.0
    bob = scene.add_body("bob", mass=5.0, inertia=1.0, com=(0.0, 0.0), position=(at, 0.0))
    scene.add_shape(bob, bd.Circle(0.03), position=(0.6 - at, 0.0), **round_shape)
    if kind != "free":
        scene.add_joint("pin", bd.Hinge(), child="bob", anchor=(0.0, 0.0))
    scene.add_body("ball", bd.Circle(0.03), mass=0.1, position=(0.0, 0.7), **round_shape)
    model, generator = scene.build(), torch.Generator().manual_seed(0)
    angle, place, sign = torch.rand(3, 64, generator=generator).double()
    angle, place, sign = 0.3 + 5.6 * angle, 0.57 + 0.06 * place, 2.0 * (sign < 0.5) - 1.0
    zeros = [0 * angle] * (model.nv - 4)
    q = torch.stack([*zeros, 0 * angle, place * angle.cos(), place * angle.sin(), 0 * angle], 1)
    v = torch.stack([*zeros, turn * 60 * sign, 0 * angle, 0 * angle, 0 * angle], 1)
    steps = 3 if turn >= 1.0 else 24
    path = simulator(model, 1 / 60, integrator).rollout(bd.State(q, v), steps=steps)
    near = torch.acos((0.6**2 + place**2 - 0.06**2) / (1.2 * place))
    way = torch.where(sign > 0, angle, 2 * torch.pi - angle) - near
    first = path.status.impacts.cumsum(0).eq(0).sum(0)
    assert (first == (way / turn).floor().clamp(max=steps)).all() and (first < steps).any()
