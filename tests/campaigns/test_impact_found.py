"""No impact is passed over or late, whatever turns, slows down, or hits twice: without forces, and for `Midpoint` with
gravity, the motion and its gradient do not depend on the step size."""

import pytest
import torch
from contact_scenes import SHAPES, G
from impact_scenes import INTEGRATORS, Random, simulator

import backdrive as bd

BOTH = pytest.mark.parametrize("integrator", INTEGRATORS)
FINE, COARSE = 1 / 480, (1 / 30, 1 / 60)
SMALL, ROD, BOX = bd.Circle(0.02), bd.Box(1.0, 0.02), bd.Box(0.4, 0.3)


def meeting(dim, a, b, restitution, friction):
    """Two bodies that turn and approach each other. Without moments of inertia that differ: they turn evenly."""
    up = (0.0,) * (dim - 1)
    scene = bd.Scene(dim, gravity=(0.0,) * dim)
    for name, shape, x in (("a", a, -1.0), ("b", b, 1.0)):
        inertia = 0.01 if dim == 2 else torch.eye(3).mul(0.01).tolist()
        scene.add_body(name, shape, mass=0.6 + 0.2 * x, inertia=inertia, com=(0.0,) * dim, position=(x, *up),
                       restitution=restitution, friction=friction)  # fmt: skip
    return scene.build()


def approaching(model, samples, spin, seed):
    random, (q, v) = Random(seed, samples), model.initial_state(samples)
    size, rate = model.nq // 2, model.nv // 2
    for k, (x, speed) in enumerate(((-0.75, 2.0), (0.75, -1.0))):
        q[:, k * size], v[:, k * rate] = x, speed * random(0.5, 1.5)
        q[:, k * size + 1] = random(-0.2, 0.2)
        v[:, k * rate + 1] = random(-0.3, 0.3)
        if model.dim == 2:
            q[:, k * size + 2] = random(-3.0, 3.0)
            v[:, k * rate + 2] = random(-spin, spin)
        else:
            q[:, k * size + 3 : (k + 1) * size] = torch.nn.functional.normalize(random(-1.0, 1.0, 4), dim=1)
            v[:, k * rate + 3 : (k + 1) * rate] = random(-spin, spin, 3)
    return q, v


def motion(model, dt, integrator, q, v, duration):
    """Where it ends, the gradient of places and velocities, in which environments both are exact, and impacts."""
    q, v = q.clone().requires_grad_(), v.clone().requires_grad_()
    path = simulator(model, dt, integrator).rollout(bd.State(q, v), steps=round(duration / dt))
    status = path.status
    exact = status.converged & (status.fallbacks + status.simultaneous == 0)
    places = path.last.q.unflatten(1, (model.nbody, -1))[..., : model.dim]
    gradient = torch.autograd.grad(places.sum() + path.last.v.sum(), v)[0]
    return torch.cat([path.last.q, path.last.v], 1).detach(), gradient, exact.all(0), status.impacts.sum(0)


def check(model, integrator, q, v, duration=0.9, least=20):
    """The same for all step sizes, of motions with a few impacts; returns how many each has."""
    end, gradient, exact, hits = motion(model, FINE, integrator, q, v, duration)
    for dt in COARSE:
        other_end, other_gradient, also_exact, _ = motion(model, dt, integrator, q, v, duration)
        use = exact & also_exact & (hits > 0) & (hits < 4)
        assert use.sum() >= least
        size = gradient.abs().amax(1, keepdim=True).clamp(min=1.0)
        assert ((other_end - end).abs() / size)[use].max() < 1e-8
        assert ((other_gradient - gradient).abs() / size)[use].max() < 1e-6
    return hits


@BOTH
@pytest.mark.parametrize(("a", "b"), [(BOX, SMALL), (ROD, SMALL), (BOX, bd.Box(0.3, 0.3)), (ROD, ROD)])
@pytest.mark.parametrize("spin", [2.0, 8.0])
def test_what_turns_in_the_plane(a, b, spin, integrator):
    model = meeting(2, a, b, restitution=0.9, friction=0.2)
    check(model, integrator, *approaching(model, 400, spin, seed=int(spin)))


@BOTH
@pytest.mark.parametrize(("a", "b"), [("box", "sphere"), ("capsule", "cylinder"), ("box", "convex")])
def test_what_turns_in_space(a, b, integrator):
    shapes = SHAPES[3]
    model = meeting(3, shapes[a], shapes[b], restitution=0.9, friction=0.2)
    check(model, integrator, *approaching(model, 64, 6.0, seed=1), duration=0.5)


@BOTH
def test_a_rod_slaps_the_floor(integrator):
    """One end, then the other, and then the first again, in one step."""
    scene = bd.Scene(2, gravity=(0.0, 0.0))
    scene.add_static(bd.HalfSpace((0.0, 1.0)), restitution=0.8, friction=0.2)
    scene.add_body("rod", bd.Box(0.8, 0.02), mass=1.0, restitution=0.8, friction=0.2)
    model, random = scene.build(), Random(4, 200)
    q = torch.stack([random(-0.3, 0.3), random(0.7, 1.3), random(-3.0, 3.0)], 1)
    v = torch.stack([random(-1.0, 1.0), random(-3.0, -1.0), random(-3.0, 3.0)], 1)
    assert (check(model, integrator, q, v, least=100) > 2).any()


@pytest.mark.parametrize("dt", [1 / 30, 1 / 60, 1 / 240])
@pytest.mark.parametrize("radius", [0.02, 0.1])
def test_a_ball_that_slows_down_reaches_the_ceiling(radius, dt):
    """When it gets there it is slow, and at the end of the step it would fall again."""
    e, samples, duration = 0.8, 300, 0.5
    scene = bd.Scene(2)
    scene.add_static(bd.HalfSpace((0.0, -1.0), -1.0), restitution=e, friction=0.0)
    scene.add_body("ball", bd.Circle(radius), mass=1.0, restitution=e, friction=0.0)
    model = scene.build()
    height = torch.full((samples,), 0.5, dtype=torch.float64, requires_grad=True)
    way, arriving = 0.5 - radius, torch.linspace(0.02, 2.0, samples).double()
    speed = (arriving**2 + 2.0 * G * way).sqrt().requires_grad_()
    zero = torch.zeros(samples, dtype=torch.float64)
    state = bd.State(torch.stack([zero, height, zero], 1), torch.stack([zero, speed, zero], 1))
    last = simulator(model, dt, "midpoint").rollout(state, steps=round(duration / dt)).last
    hit = (speed**2 - 2.0 * G * (1.0 - radius - height)).sqrt()
    left = duration - (speed - hit) / G
    y, rate = 1.0 - radius - e * hit * left - 0.5 * G * left**2, -e * hit - G * left
    assert (last.q[:, 1] - y).abs().max() < 1e-9 and (last.v[:, 1] - rate).abs().max() < 1e-9
    mine, right = (torch.autograd.grad(x.sum(), (height, speed), retain_graph=True) for x in (last.v[:, 1], rate))
    for a, b in zip(mine, right):
        assert ((a - b).abs() / b.abs().clamp(min=1.0)).max() < 1e-8


@BOTH
@pytest.mark.parametrize("push", [0.0, -120.0])
def test_what_is_braked_does_not_pass_a_wall(push, integrator):
    """A fast ball, and a force against it."""
    scene = bd.Scene(2, gravity=(0.0, 0.0))
    scene.add_static(bd.Box(0.02, 1.0), position=(0.11, 0.0), restitution=0.5, friction=0.0)
    scene.add_body("ball", bd.Circle(0.01), mass=1.0, velocity=(10.0, 0.0), restitution=0.5, friction=0.0)
    model = scene.build()
    wrenches = torch.tensor([push, 0.0, 0.0], dtype=torch.float64).expand(3, 1, 3)
    path = simulator(model, 1 / 30, integrator).rollout(model.initial_state(), wrenches=wrenches)
    assert path.status.impacts[0] == 1 and path.q[:, 0].max() <= 0.09 + 1e-12


@BOTH
@pytest.mark.parametrize(("radius", "speed", "dt"), [(0.1, 1e-3, 1e-3), (1.0, 0.01, 1e-3), (0.1, 1e-4, 1 / 240)])
def test_slow_hits_have_a_time(radius, speed, dt, integrator):
    """A cradle without gaps, in which the first disc is as slow as that: the last one's place follows its."""
    scene = bd.Scene(2, gravity=(0.0, 0.0))
    for k in range(3):
        scene.add_body(f"disc{k}", bd.Circle(radius), mass=1.0, restitution=1.0, friction=0.0,
                       position=(2.0 * radius * k - (3.5 * dt * speed if k == 0 else 0.0), 0.0),
                       velocity=(speed if k == 0 else 0.0, 0.0))  # fmt: skip
    model = scene.build()
    q, v = model.initial_state()
    q.requires_grad_()
    path = simulator(model, dt, integrator).rollout(bd.State(q, v), steps=10)
    (gradient,) = torch.autograd.grad(path.last.q[6], q)
    assert path.last.v[6].item() == pytest.approx(speed)
    assert (gradient[::3] - torch.tensor([1.0, 0.0, 0.0]).double()).abs().max() < 1e-8
