"""Motions with impacts whose values and gradients are known: every step size gives them to rounding.

Without forces for both integrators; under gravity for the midpoint, which integrates constant forces exactly.
"""

import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from impact_scenes import (
    DTS,
    INTEGRATORS,
    STILL,
    G,
    Random,
    ball_between_walls,
    bead_and_disc,
    bead_meets_disc,
    between_walls,
    bounce_of_pendulum,
    bounces_between_walls,
    bounces_on_floor,
    box_over_floor,
    check_closed_form,
    collisions_in_a_row,
    corner_impact,
    cradle,
    disc_and_box,
    disc_impact,
    disc_meets_box,
    disc_over_floor,
    end_of_capsule,
    gradients_of,
    hit_of_bead,
    hit_of_box,
    hit_of_rod,
    in_a_plane,
    into_space,
    meeting_in_space,
    meeting_of_pairs,
    meeting_spheres,
    over_floor,
    over_ground,
    pendulum,
    pushed_bead,
    pushed_to_wall,
    rod_and_ball,
    rod_meets_ball,
    row_of_discs,
    run,
    simulator,
    swinging,
    tumbling_box,
    two_discs,
    two_spheres,
)

import backdrive as bd

STEPS = pytest.mark.parametrize("dt", DTS)
BOTH = pytest.mark.parametrize("integrator", INTEGRATORS)
SEEDS = given(seed=st.integers(0, 10**6))
FEW = settings(max_examples=3)
ALONG = (slice(0, None, 3), slice(0, None, 3))  # x of discs, and its rate


@pytest.fixture(autouse=True)
def double():
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


@BOTH
@STEPS
@FEW
@SEEDS
def test_spinning_disc_bounces_off_the_floor(dt, integrator, seed):
    """With friction, to positions, velocities, masses, inertias, restitution, friction, radius and floor."""
    inputs = disc_over_floor(seed)
    del inputs["gravity"]
    path = check_closed_form(simulator(over_floor(), dt, integrator), inputs, without_gravity(bounces_on_floor), 1.0)
    assert (path.status.impacts.sum(0) == 1).all()


def test_discs_stick_and_slide():
    """Both are among the samples of the test above."""
    inputs = disc_over_floor(0, 64)
    up = torch.tensor([0.0, 1.0]).expand(64, 2)
    _, sticks = disc_impact(inputs, inputs["v"], up, 0, None)
    assert 8 < sticks.sum() < 56


def without_gravity(reference):
    return lambda x, duration: reference({**x, "gravity": torch.zeros(len(x["q"]), 2)}, duration)


@STEPS
@FEW
@SEEDS
def test_disc_bounces_under_gravity(dt, seed):
    """Several times, with friction; with respect to gravity, too."""
    sim = simulator(over_floor(G), dt, "midpoint")
    path = check_closed_form(sim, disc_over_floor(seed, e=(0.5, 1.0), gravity=G), bounces_on_floor, 1.0)
    assert path.status.impacts.sum(0).max() >= 2


@BOTH
@STEPS
@FEW
@SEEDS
def test_inelastic_impact(dt, integrator, seed):
    """What lies on the floor then has no weight: a gap of 1e-17 may be open or closed. The derivative with respect to
    the restitution is one-sided."""
    inputs = disc_over_floor(seed, e=(0.0, 0.0))
    del inputs["gravity"]
    sim = simulator(over_floor(), dt, integrator)
    check_closed_form(sim, inputs, without_gravity(bounces_on_floor), 1.0, without=("restitution",))


@BOTH
@STEPS
@FEW
@SEEDS
def test_discs_meet_obliquely(dt, integrator, seed):
    """Two pairs at a time, apart from each other; unequal masses, with friction."""
    check_closed_form(
        simulator(row_of_discs(4), dt, integrator), two_discs(seed, pairs=2), meeting_of_pairs, 1.0, least=0.2
    )


@BOTH
def test_pairs_that_meet_at_the_same_time(integrator):
    """Bodies that have nothing to do with each other do not see each other's impacts."""
    inputs = two_discs(2, pairs=1)
    twice = {name: torch.cat([x, x], 1) for name, x in inputs.items()}
    twice["q"][:, [7, 10]] += 4.0
    path = check_closed_form(simulator(row_of_discs(4), 1 / 30, integrator), twice, meeting_of_pairs, 1.0)
    assert path.status.impacts.max() == 2 and not path.status.simultaneous.any()


@BOTH
@pytest.mark.parametrize("dt", DTS[:3])
@FEW
@SEEDS
def test_several_bounces_in_a_step(dt, integrator, seed):
    sim = simulator(between_walls(), dt, integrator)
    path = check_closed_form(sim, ball_between_walls(seed), bounces_between_walls, 0.4)
    assert dt < 1 / 30 or path.status.impacts.max() >= 2


@BOTH
@STEPS
@pytest.mark.parametrize("n", [3, 5])
@FEW
@SEEDS
def test_cradle_with_gaps(n, dt, integrator, seed):
    check_closed_form(
        simulator(row_of_discs(n), dt, integrator), cradle(seed, n, 0.03), collisions_in_a_row, 1.0, outputs=ALONG
    )


def one_by_one(seed, n):
    """A cradle without gaps whose discs are heavier and heavier: every one flies back, and none is hit again."""
    inputs = cradle(seed, n, 0.0, e=(0.7, 1.0))
    inputs["mass"] = inputs["mass"][:, :1] * torch.cumprod(torch.full_like(inputs["mass"], 2.0), 1)
    return inputs


@BOTH
@STEPS
@pytest.mark.parametrize("n", [3, 5])
def test_cradle_without_gaps(n, dt, integrator):
    """One disc after the other. Derivatives with respect to where they are are one-sided: a gap, or an overlap."""
    check_closed_form(
        simulator(row_of_discs(n), dt, integrator), one_by_one(n, n), collisions_in_a_row, 1.0, outputs=ALONG,
        without=("q", "v", "size", "inertia"),
    )  # fmt: skip


@BOTH
@STEPS
@pytest.mark.parametrize("n", [3, 5])
def test_newtons_cradle(n, dt, integrator):
    """Elastic and of equal masses: the last one flies off with all of the speed."""
    inputs = cradle(n, n, 0.0, alike=True)
    sim = simulator(row_of_discs(n), dt, integrator)
    with torch.no_grad():
        path = run(sim, inputs, 1.0)
        q, v, _ = collisions_in_a_row(inputs, 1.0)
    assert (path.last.q - q).abs().max() < 1e-9 and (path.last.v - v).abs().max() < 1e-9


@BOTH
@STEPS
@FEW
@SEEDS
def test_corner_of_a_box_hits_the_floor(dt, integrator, seed):
    """An eccentric impact with friction, at a time that no formula gives."""
    check_closed_form(simulator(box_over_floor(), dt, integrator), tumbling_box(seed), corner_impact, 0.4, least=0.2)


@BOTH
@STEPS
@FEW
@SEEDS
def test_pendulum_hits_the_floor(dt, integrator, seed):
    check_closed_form(simulator(pendulum(), dt, integrator), swinging(seed), bounce_of_pendulum, 1.0)


TWO_BODIES = {
    "disc and box": (disc_and_box, disc_meets_box, hit_of_box),
    "rod and ball": (rod_and_ball, rod_meets_ball, hit_of_rod),
    "bead and disc": (bead_and_disc, bead_meets_disc, hit_of_bead),
}


@BOTH
@STEPS
@pytest.mark.parametrize("bodies", TWO_BODIES)
@settings(max_examples=2)
@SEEDS
def test_two_bodies_that_turn_or_have_joints(bodies, dt, integrator, seed):
    """With friction: a corner or a side of a box that turns; a rod about its end; a bead on an oblique rail."""
    model, inputs, reference = TWO_BODIES[bodies]
    check_closed_form(simulator(model(), dt, integrator), inputs(seed), reference, 0.5, least=0.2)


@STEPS
@FEW
@SEEDS
def test_discs_meet_while_they_fall(dt, seed):
    """In any direction, and with respect to it."""
    inputs = two_discs(seed)
    inputs["gravity"] = Random(seed, 16)(-9, 9, 2)

    def reference(x, duration):
        q, v, use = meeting_of_pairs(x, duration)
        g = torch.nn.functional.pad(x["gravity"], (0, 1)).repeat(1, 2)
        return q + 0.5 * duration**2 * g, v + duration * g, use

    check_closed_form(simulator(row_of_discs(2), dt, "midpoint"), inputs, reference, 1.0, least=0.2)


@STEPS
def test_a_motor_pushes_into_a_wall(dt):
    """With respect to the force of every single step, before and after the impact."""
    random = Random(3, 8)
    inputs = {"q": random(-0.2, 0.2, 1), "v": random(1.5, 2.5, 1), "mass": random(0.5, 2.0, 1),
              "restitution": random(0.3, 1.0, 2), "friction": torch.zeros(8, 2),
              "size": torch.cat([random(0.05, 0.15, 1), random(-1.05, -0.95, 1)], 1)}  # fmt: skip
    leaves = {name: x.requires_grad_() for name, x in inputs.items()}
    controls = random(-2.0, 4.0, round(0.8 / dt), 1).transpose(0, 1).contiguous().requires_grad_()
    rest = {name: x for name, x in leaves.items() if name not in ("q", "v")}
    path = simulator(pushed_bead(), dt, "midpoint").rollout(
        bd.State(leaves["q"], leaves["v"]), controls, parameters=rest
    )
    assert (path.status.impacts.sum(0) == 1).all()
    place, speed = pushed_to_wall(leaves, controls, dt)
    assert (path.last.q[:, 0] - place).abs().max() < 1e-9 and (path.last.v[:, 0] - speed).abs().max() < 1e-9
    leaves["controls"] = controls
    mine, right = (gradients_of(q.sin() + 0.3 * v, leaves) for q, v in ((path.last.q, path.last.v), (place, speed)))
    for name, x in right.items():
        assert (mine[name] - x).abs().max() < 1e-9, name


@BOTH
@STEPS
@pytest.mark.parametrize("shape", ["sphere", "capsule"])
def test_body_that_turns_hits_the_ground(shape, dt, integrator):
    """A sphere with spin slides or sticks; a capsule turns end over end."""
    sim = simulator(over_ground(shape), dt, integrator)
    check_closed_form(
        sim, in_a_plane(1, shape), end_of_capsule, 0.4, outputs=(slice(0, 3), slice(None)), least=0.3, embed=into_space
    )


@BOTH
@STEPS
@FEW
@SEEDS
def test_spheres_meet_in_space(dt, integrator, seed):
    places = [0, 1, 2, 7, 8, 9]  # gradients with respect to quaternions are along the sphere
    check_closed_form(
        simulator(two_spheres(), dt, integrator),
        meeting_spheres(seed), meeting_in_space, 1.0, outputs=(places, slice(None)), least=0.3,
    )  # fmt: skip


@BOTH
@pytest.mark.parametrize("steps_before", [0, 1, 3])
def test_impact_on_the_boundary_of_a_step(steps_before, integrator):
    """All numbers are exact in binary: the disc touches the floor when a step begins."""
    scene = bd.Scene(2, gravity=STILL)
    scene.add_static(bd.HalfSpace((0.0, 1.0)), restitution=0.5, friction=0.1)
    height = 0.25 + steps_before * 2.0 / 64
    scene.add_body("disc", bd.Circle(0.25), mass=1.0, position=(0.0, height), velocity=(0.5, -2.0), restitution=0.5,
                   friction=0.1)  # fmt: skip
    model = scene.build()
    inputs = dict(zip("qv", model.initial_state(1)))
    inputs |= {name: model.parameter(name)[None] for name in ("mass", "inertia", "restitution", "friction", "size")}
    path = check_closed_form(simulator(model, 1 / 64, integrator), inputs, without_gravity(bounces_on_floor), 0.25)
    assert path.status.impacts.sum() == 1


def test_what_is_of_first_order_converges():
    """Semi-implicit Euler under gravity: errors of values and gradients are in proportion to the step size."""
    inputs = disc_over_floor(3, e=(0.7, 1.0), gravity=G)
    duration, errors = 0.64, []
    q, v, use = bounces_on_floor(leaves := {k: x.clone().requires_grad_() for k, x in inputs.items()}, duration)
    right = gradients_of((q + v)[use], leaves)
    for dt in (0.01, 0.005, 0.0025):
        path = run(simulator(over_floor(G), dt, "euler"), leaves, duration)
        mine = gradients_of((path.last.q + path.last.v)[use], leaves)
        values = (path.last.q - q).detach()[use].abs().mean()
        errors.append(torch.stack([values, *((mine[k] - right[k])[use].abs().mean() for k in ("q", "v", "size"))]))
    for coarse, fine in itertools.pairwise(errors):
        assert ((fine < 0.65 * coarse) & (fine > 0.35 * coarse)).all(), errors


@pytest.mark.slow
@pytest.mark.parametrize("gradient", [False, True])
def test_slide_to_a_stop_converges(gradient):
    """A block on a rough floor: x = v² / (2 μ g), which is of first order in the step size."""
    scene = bd.Scene(2)
    scene.add_static(bd.HalfSpace((0.0, 1.0)), friction=0.3)
    scene.add_body("block", bd.Box(0.4, 0.2), mass=1.0, position=(0.0, 0.1), friction=0.3)
    model = scene.build()
    for dt in (1 / 60, 1 / 240, 1 / 960):
        v = torch.tensor([2.013, 0.0, 0.0], requires_grad=True)
        path = simulator(model, dt).rollout(bd.State(model.initial_state().q, v), steps=round(1 / dt))
        assert not path.status.impacts.any()
        x = path.last.q[0]
        if gradient:
            assert abs(torch.autograd.grad(x, v)[0][0].item() - 2.013 / (0.3 * G)) < dt
        else:
            assert abs(x.item() - 2.013**2 / (0.6 * G)) < 2.013 * dt


def test_what_is_grazed_before_another_hits():
    """In the part of a step in which a disc falls to the floor, another grazes a third, and is off it again."""
    scene = bd.Scene(2, gravity=(0.0, 0.0))
    smooth = {"friction": 0.0, "restitution": 1.0}
    scene.add_static(bd.Circle(0.1), **smooth)
    scene.add_static(bd.HalfSpace((0.0, 1.0), -3.0), **smooth)
    scene.add_body("grazes", bd.Circle(0.1), mass=1.0, position=(-0.08, 0.199), velocity=(10.0, 0.0), **smooth)
    scene.add_body("falls", bd.Circle(0.1), mass=1.0, position=(5.0, -2.88), velocity=(0.0, -1.0), **smooth)
    model = scene.build()
    path = bd.Simulator(model, 0.1, impacts=True, sparse=False).rollout(model.initial_state(), steps=1)
    y = 0.199 / 0.2
    x = -((1.0 - y * y) ** 0.5)
    expected = torch.tensor([10.0 * (1.0 - 2.0 * x * x), -20.0 * x * y, 0.0, 0.0, 1.0, 0.0], dtype=torch.float64)
    assert path.status.impacts[0] == 2
    torch.testing.assert_close(path.last.v, expected, rtol=0.0, atol=1e-12)


def test_what_hits_says_nothing_of_others():
    """Discs that fall together, touch, and approach at 1 µm/s: when they hit changes nothing for a third."""
    scene = bd.Scene(2)
    for name, x, vx in (("a", 0.0, 1e-6), ("b", 0.2 - 1e-12, 0.0), ("c", 3.0, 0.0)):
        scene.add_body(name, bd.Circle(0.1), mass=1.0, position=(x, 1.0), velocity=(vx, 0.0), restitution=0.5)
    model = scene.build()
    simulator, (q, v) = bd.Simulator(model, 0.01, impacts=True, sparse=False), model.initial_state()
    q.requires_grad_()
    path = simulator.rollout(bd.State(q, v), steps=1)
    assert path.status.impacts[0] == 1
    (gradient,) = torch.autograd.grad(path.last.q[7], q)
    expected = torch.zeros(9, dtype=torch.float64)
    expected[7] = 1.0
    torch.testing.assert_close(gradient, expected, rtol=0.0, atol=1e-12)
