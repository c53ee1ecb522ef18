"""Gradients through impacts, under gravity and with friction, are those of central differences, to every input."""

import pytest
import torch
from contact_differences import check_gradients
from contact_scenes import SHAPES, pair_model, parameters, touching_states
from differences import weights
from hypothesis import given, settings
from hypothesis import strategies as st
from impact_scenes import INTEGRATORS, Random, run, simulator

import backdrive as bd
from backdrive.gradcheck import Verdict

DT, SAMPLES = 1 / 60, 4
BOTH = pytest.mark.parametrize(
    "integrator", [pytest.param(name, marks=pytest.mark.slow if name == "euler" else ()) for name in INTEGRATORS]
)
SOLID_PAIRS = [("sphere", "plane"), ("sphere", "capsule"), ("capsule", "plane"), ("capsule", "box"), ("box", "plane"),
               ("box", "box")]  # fmt: skip


def materials(model, seed, spread=0.02):
    inputs, random = parameters(model, SAMPLES, spread=spread, seed=seed), Random(seed, SAMPLES)
    inputs["restitution"] = random(0.2, 0.9, *inputs["restitution"].shape[1:])
    inputs["friction"] = random(0.1, 0.9, *inputs["friction"].shape[1:])
    return inputs


def check_pair(dim, a, b, integrator, seed):
    """Two bodies with shapes and centers of mass off their origins fly into each other."""
    model = pair_model(dim, a, b)
    q, v = touching_states(model, SAMPLES, seed, depth=(-0.05, -0.01))
    inputs = {"q": q, "v": v} | materials(model, seed)
    sim = simulator(model, DT, integrator)
    assert run(sim, inputs, 10 * DT).status.impacts.sum() >= SAMPLES // 2
    check_gradients(sim, inputs, 10).require("q", "v", "restitution", "size", "gravity", least=0.8)


@BOTH
@settings(max_examples=6)
@given(a=st.sampled_from(list(SHAPES[2])[:-1]), b=st.sampled_from(list(SHAPES[2])), seed=st.integers(0, 10**6))
def test_planar_pairs(integrator, a, b, seed):
    check_pair(2, a, b, integrator, seed)


@pytest.mark.slow
@BOTH
@pytest.mark.parametrize("pair", SOLID_PAIRS, ids=" ".join)
def test_solid_pairs(integrator, pair):
    check_pair(3, *pair, integrator, 3)


def floor(scene, restitution=0.0, friction=0.5):
    scene.add_static(bd.HalfSpace((0.0, 1.0)), restitution=restitution, friction=friction)
    return scene


def discs_in_a_box():
    scene = floor(bd.Scene(2), 0.8, 0.2)
    for side in (1.0, -1.0):
        scene.add_static(bd.HalfSpace((side, 0.0), -0.6), restitution=0.8)
    for k, (x, y, r) in enumerate(((-0.3, 0.5, 0.1), (0.1, 0.3, 0.15), (0.05, 0.9, 0.08))):
        scene.add_body(f"disc{k}", bd.Circle(r), mass=1.0 + k, position=(x, y), velocity=(1.0 - k, 0.0), friction=0.2,
                       restitution=0.8)  # fmt: skip
    return scene.build()


def legs():
    """A body on two legs falls to the ground, and a ball falls on it."""
    scene = floor(bd.Scene(2), 0.3, 0.6)
    scene.add_body("trunk", bd.Box(0.5, 0.2), mass=2.0, position=(0.0, 0.75), velocity=(0.5, -1.0), restitution=0.3)
    for k, x in enumerate((-0.2, 0.2)):
        scene.add_body(f"leg{k}", bd.Circle(0.1), mass=0.5, position=(x, 0.4), friction=0.7, restitution=0.3)
        hip = bd.Hinge(damping=0.2, stiffness=2.0)
        scene.add_joint(f"hip{k}", hip, parent="trunk", child=f"leg{k}", anchor=(x, 0.65))
    scene.add_body("ball", bd.Circle(0.12), mass=0.4, position=(0.05, 1.4), velocity=(0.0, -2.0), restitution=0.6)
    return scene.build()


def colliding_pendulums():
    scene = bd.Scene(2)
    for k, x in enumerate((-0.25, 0.25)):
        scene.add_body(f"upper{k}", bd.Box(0.1, 0.5), mass=1.0, position=(x, 0.75), restitution=0.5)
        scene.add_body(f"lower{k}", bd.Circle(0.2), mass=1.0, position=(x, 0.25), restitution=0.5)
        scene.add_joint(f"top{k}", bd.Hinge(), child=f"upper{k}", anchor=(x, 1.0), velocity=3.0 - 6.0 * k)
        scene.add_joint(f"elbow{k}", bd.Hinge(damping=0.1), parent=f"upper{k}", child=f"lower{k}", anchor=(x, 0.5))
        scene.exclude(f"upper{k}", f"lower{k}")
    return scene.build()


@BOTH
@pytest.mark.parametrize("scene", [discs_in_a_box, legs, colliding_pendulums])
@settings(max_examples=2)
@given(seed=st.integers(0, 10**6))
def test_scenes(integrator, scene, seed):
    model, random = scene(), Random(seed, SAMPLES)
    state = model.initial_state(SAMPLES)
    inputs = {"q": state.q + random(-0.01, 0.01, model.nq), "v": state.v + random(-0.1, 0.1, model.nv)}
    inputs |= parameters(model, SAMPLES, spread=0.02, seed=seed)
    sim = simulator(model, DT, integrator)
    assert run(sim, inputs, 20 * DT).status.impacts.sum() >= SAMPLES
    check_gradients(sim, inputs, 20, step=1e-4).require("q", "v", "restitution", "mass", "size", least=0.7)


def on_a_block(bounce):
    """A ball, or a tilted box, falls on a block that rests."""
    scene = floor(bd.Scene(2))
    scene.add_body("block", bd.Box(0.6, 0.2), mass=1.0, position=(0.0, 0.1), friction=0.4)
    shape, angle = (bd.Circle(0.1), 0.0) if bounce == "ball" else (bd.Box(0.3, 0.2), 0.3)
    scene.add_body("thing", shape, mass=0.5, position=(-0.05, 0.6), angle=angle, velocity=(0.3, -1.0), friction=0.4,
                   restitution=0.8)  # fmt: skip
    return scene.build()


@BOTH
@pytest.mark.parametrize("thing", ["ball", "box"])
def test_hits_on_a_supported_body(integrator, thing):
    """With respect to what falls: the block's own place is on an edge, between lying and flying."""
    model, random = on_a_block(thing), Random(1, SAMPLES)
    state, sim = model.initial_state(SAMPLES), simulator(model, DT, integrator)
    offsets = random(-0.02, 0.02, 2, 3)

    def motion(x):
        q, v = (torch.cat([y[:, :3], y[:, 3:] + dy], 1) for y, dy in zip(state, x.unbind(1)))
        path = sim.rollout(bd.State(q, v), steps=14)
        return path.last.q.sin().sum(1) + 0.1 * path.last.v.sin().sum(1), path.status

    x = offsets.clone().requires_grad_()
    loss, status = motion(x)
    assert (status.impacts.sum(0) >= 1).all() and not status.fallbacks.any()
    mine = torch.autograd.grad(loss.sum(), x)[0]
    for k in range(6):
        e = 1e-6 * torch.eye(6)[k].reshape(2, 3).double()
        (plus, s), (minus, r) = motion(offsets + e), motion(offsets - e)
        same = ((s.modes == status.modes) & (r.modes == status.modes)).all(0)
        error = (mine.flatten(1)[:, k] - (plus - minus).detach() / 2e-6)[same].abs()
        assert same.sum() >= 1 and error.max() <= 1e-6 * mine.abs().max()


def test_impact_of_a_damped_body_that_is_too_deep():
    """One step of a box that lies 2 mm deep on one corner and comes down on the other."""
    scene = floor(bd.Scene(2))
    scene.add_body("box", bd.Box(0.4, 0.2), mass=1.0, position=(0.0, 0.1), angle=0.01)
    model = scene.build()
    sim, damping = simulator(model, DT), {"damping": torch.full((1,), 0.5).double()}

    def step(x):
        return torch.cat(sim.step(bd.State(x[:, :3], x[:, 3:]), parameters=damping), 1)

    x = torch.tensor([[0.0, 0.1, 0.01, 0.0, 0.0, -0.8]]).double()
    mine = torch.autograd.functional.jacobian(lambda x: step(x).sum(0), x)[:, 0]
    e = 1e-6 * torch.eye(6).double()
    assert (mine - (step(x + e) - step(x - e)).T / 2e-6).abs().max() < 1e-6


@BOTH
@pytest.mark.parametrize("steps_before", [0, 2])
def test_gradcheck_of_an_impact_on_the_boundary_of_a_step(integrator, steps_before):
    """States there have no derivative, and the check says so; all others agree."""
    scene = floor(bd.Scene(2, gravity=(0.0, 0.0)), 0.5, 0.1)
    scene.add_body("disc", bd.Circle(0.25), mass=1.0, position=(0.0, 0.25 + steps_before / 32), velocity=(0.5, -2.0),
                   restitution=0.5, friction=0.1)  # fmt: skip
    model = scene.build()
    report = bd.gradcheck(simulator(model, 1 / 64, integrator), model.initial_state(), steps=6)
    assert report.verdict is Verdict.INCONCLUSIVE, report
    unclear = {t for those in report.step_verdicts.values() for t, x in enumerate(those) if x is not Verdict.AGREES}
    assert unclear <= set(report.switched)
    assert {steps_before} <= set(report.switched) <= {steps_before - 1, steps_before}


@BOTH
@pytest.mark.parametrize("dt", [1 / 30, 1 / 240])
def test_a_limit_stops_a_slider(integrator, dt):
    """Limits are not split at, but the stop has the right effect: b slides on a, and takes it along at the limit."""
    scene = bd.Scene(2, gravity=(0.0, 0.0))
    for name in "ab":
        scene.add_body(name, bd.Circle(0.1), mass=1.0, position=(float(name == "b"), 0.0))
    scene.add_joint("rail", bd.Slider(axis=(1.0, 0.0)), child="a")
    scene.add_joint("slide", bd.Slider(axis=(1.0, 0.0), limits=(-0.5, 0.5)), parent="a", child="b")
    scene.exclude("a", "b")
    scene.add_static(bd.HalfSpace((1.0, 0.0), -9.0), restitution=0.5)
    model, random = scene.build(), Random(0, 8)
    leaves = {"q": torch.cat([random(-1, 1, 1), random(-0.2, 0.2, 1)], 1), "mass": random(0.5, 2.0, 2)}
    leaves["v"] = torch.cat([random(-1, 1, 1), random(1, 2, 1)], 1)
    q, mass, v = (x.requires_grad_() for x in leaves.values())
    last = run(simulator(model, dt, integrator), leaves, 1.0).last
    t, after = (0.5 - q[:, 1]) / v[:, 1], v[:, 0] + mass[:, 1] / mass.sum(1) * v[:, 1]
    place = q[:, 0] + t * v[:, 0] + (1.0 - t) * after
    assert (last.q[:, 0] - place).abs().max() < 1e-7 and (last.q[:, 1] - 0.5).abs().max() < 1e-7
    mine, right = (torch.autograd.grad((x.sin() + 0.3 * y).sum(), (q, v, mass)) for x, y in
                   ((last.q[:, 0], last.v[:, 0]), (place, after)))  # fmt: skip
    assert all((x - y).abs().max() < 1e-5 for x, y in zip(mine, right))


@pytest.mark.parametrize("integrator", INTEGRATORS)
@settings(max_examples=10)
@given(
    time=st.floats(0.1, 0.9),
    side=st.floats(0.1, 0.5),
    restitution=st.sampled_from([0.0, 0.5]),
    friction=st.floats(0, 1),
)
def test_an_impact_elsewhere_leaves_what_rests_alone(integrator, time, side, restitution, friction):
    """A box at rest that is tilted, by much more than the depth at which it rests (1e-10 m), lies down in a step; in
    the middle of the step a ball hits the floor. The derivative at rest must be that of the visible motion."""
    scene = bd.Scene(2)
    scene.add_static(bd.HalfSpace((0.0, 1.0)), friction=friction, restitution=restitution)
    options = {"mass": 1.0, "friction": friction, "restitution": restitution}
    scene.add_body("box", bd.Box(0.3, side), position=(0.0, side / 2), **options)
    scene.add_body("ball", bd.Circle(0.1), position=(5.0, 50.0), **(options | {"restitution": 0.5}))
    model = scene.build()
    sim = simulator(model, 1 / 30, integrator)
    q, v = sim.rollout(model.initial_state(1), steps=30).last
    q, v = q.clone(), v.clone()
    q[0, 4], v[0, 3:] = 0.1 + 3.0 * time * sim.dt, torch.tensor([0.0, -3.0, 0.0])
    tilted = q + 1e-6 * torch.tensor([0.0, 1.0, -1.0])[:, None] * torch.eye(6, dtype=torch.float64)[2]
    turning = sim.rollout(bd.State(tilted, v.repeat(3, 1)), steps=1).last.v[:, 2]
    q.requires_grad_()
    path = sim.rollout(bd.State(q, v), steps=1)
    assert path.status.impacts.sum() == 1
    (gradient,) = torch.autograd.grad(path.last.v[0, 2], q)
    assert gradient[0, 2] < -0.1 / sim.dt
    for slope in ((turning[1] - turning[0]) / 1e-6, (turning[0] - turning[2]) / 1e-6):
        assert gradient[0, 2].item() == pytest.approx(slope.item(), rel=1e-4)


@pytest.mark.parametrize("integrator", INTEGRATORS)
@settings(max_examples=20)
@given(
    gap=st.floats(-8e-11, 8e-11),
    speed=st.floats(0.05, 3.0),
    spin=st.floats(-5.0, 5.0),
    restitution=st.floats(0.1, 1.0),
    friction=st.floats(0.0, 1.0),
)
def test_the_sign_of_a_gap_that_rounding_left_does_not_matter(integrator, gap, speed, spin, restitution, friction):
    """A disc touches a wall at the start of a step, a little too early or too late. The state after the step is a
    smooth function of the gap: it hits at the time at which the gap closes, on either side of the start."""
    scene = bd.Scene(2, gravity=(0.0, -9.81))
    scene.add_static(bd.HalfSpace((1.0, 0.0)), friction=friction, restitution=restitution)
    scene.add_body("disc", bd.Circle(0.1), mass=1.0, friction=friction, restitution=restitution)
    sim = simulator(scene.build(), 1 / 60, integrator)
    v = torch.tensor([[-speed, 0.3, spin]], dtype=torch.float64)

    def step(q):
        path = sim.rollout(bd.State(q, v.expand_as(q)), steps=1)
        assert (path.status.impacts == 1).all()
        return path.last.q

    q = torch.tensor([[0.1 + gap, 0.0, 0.0]], dtype=torch.float64, requires_grad=True)
    for k in (0, 1):
        (gradient,) = torch.autograd.grad(step(q)[0, k], q)
        moved = step(q.detach() + torch.tensor([[1e-11, 0.0, 0.0], [-1e-11, 0.0, 0.0]], dtype=torch.float64))
        slope = (moved[0, k] - moved[1, k]) / 2e-11
        assert gradient[0, 0].item() == pytest.approx(slope.item(), abs=2e-5)


def test_a_corner_between_the_floor_and_a_face():
    """A corner that slides on the floor is hit by the foot of a face that slides, too. The normals of both contacts
    determine how the corner moves, so that its slip along the face is zero whatever friction does there: rounding must
    not decide whether the adjoint takes that friction as sliding or sticking."""
    scene = floor(bd.Scene(2))
    scene.add_body("block", bd.Polygon([(-0.1, 0.0), (0.5, 0.0), (0.5, 0.3), (0.0, 0.3)]), mass=4.0)
    scene.add_body("dart", bd.Polygon([(0.0, 0.0), (0.05, 0.2), (-0.2, 0.2)]), mass=0.3)
    sim = simulator(scene.build(), DT, "midpoint")
    friction = torch.tensor([0.147019392711363, 0.8556820581277048, 0.7948396314202523], dtype=torch.float64)
    q = [0.0, -1e-6, 0.0, -0.10674911085533428, -1e-6, -0.10237252628091094]
    v = [-1.6440032347186517, 0.0, 0.0, -0.08030606104107996, 0.0, 0.0]

    def loss(x):
        inputs = {"q": x[:, :6], "v": x[:, 6:], "friction": friction.expand(len(x), -1)}
        path = run(sim, inputs, DT)
        assert path.status.converged.all() and (path.status.impacts == 4).all() and not path.status.simultaneous.any()
        return torch.cat(path.last, 1) @ weights(12, seed=5)

    x = torch.tensor([q + v], dtype=torch.float64, requires_grad=True)
    (gradient,) = torch.autograd.grad(loss(x).sum(), x)
    moved = 1e-8 * torch.eye(12, dtype=torch.float64)
    slopes = (loss(x.detach() + moved) - loss(x.detach() - moved)) / 2e-8
    assert (gradient[0] - slopes).abs().max() <= 1e-6 * slopes.abs().max()
