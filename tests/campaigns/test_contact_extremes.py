"""Contacts and constraints at the border of what is possible: defined, reported, and without wild motion."""

import math

import pytest
import torch
from contact_scenes import BOTH, G, at, ground

import backdrive as bd


def settle(scene, steps=100, solver=None, dt=0.01):
    model = scene.build()
    return model, bd.Simulator(model, dt, solver=solver, specialize=False).rollout(model.initial_state(), steps=steps)


# ---------------------------------------------------------------------------------------------- friction


@BOTH
@pytest.mark.parametrize(("friction", "stops"), [(0.0, False), (math.inf, True)])
def test_no_friction_and_infinite_friction(friction, stops, solver):
    scene = ground(2, friction=friction)
    scene.add_body("b", bd.Box(0.4, 0.2), mass=1.0, position=(0.0, 0.1), velocity=(1.0, 0.0), friction=friction)
    _, path = settle(scene, 20, solver)
    assert path.status.converged.all()
    assert path.v[-1, 0].item() == pytest.approx(0.0 if stops else 1.0, abs=1e-7)


@BOTH
def test_infinite_friction_on_a_slope(solver):
    """On a slope of 60° a thin plate holds: it neither slides nor tips over."""
    angle = math.radians(60)
    normal = (-math.sin(angle), math.cos(angle))
    scene = bd.Scene(2, combine="max")
    scene.add_static(bd.HalfSpace(normal), friction=math.inf)
    place = tuple(0.02 * x for x in normal)
    scene.add_body("plate", bd.Box(0.4, 0.04), mass=1.0, position=place, angle=angle, friction=math.inf)
    _, path = settle(scene, 200, solver)
    assert path.status.converged.all()
    assert path.v.abs().max() < 1e-6 and (path.q - path.q[0]).abs().max() < 1e-6


# ---------------------------------------------------------------------------------------------- starts


@BOTH
@pytest.mark.parametrize("depth", [1e-6, 0.05, 0.19])
def test_overlapping_starts(depth, solver):
    """Pushed out, whatever the depth, and then at rest on the ground."""
    scene = ground(2)
    scene.add_body("box", bd.Box(0.4, 0.4), mass=1.0, position=(0.0, 0.2 - depth))
    _, path = settle(scene, 200, solver)
    assert path.status.finite.all()
    assert path.q[-1, 1].item() == pytest.approx(0.2, abs=1e-4)
    assert path.v.abs().max() < 0.05 and path.v[-1].abs().max() < 1e-6


@BOTH
@pytest.mark.parametrize("dim", [2, 3])
def test_overlapping_bodies_part_without_speed(dim, solver):
    """Penetration is resolved in the positions: nothing pops."""
    scene, height = ground(dim), 0.3 if dim == 2 else 0.2
    box = bd.Box(*(0.4, 0.3, 0.2)[:dim])
    scene.add_body("low", box, mass=1.0, position=at(dim, 0.0, 0.5 * height - 0.03))
    scene.add_body("high", box, mass=1.0, position=at(dim, 0.0, 1.5 * height - 0.07))
    _, path = settle(scene, 200, solver)
    assert path.status.depth[0] == pytest.approx(0.04, abs=1e-6)  # reported
    assert path.status.depth[-1] < 1e-4 * 0.4
    assert path.v.abs().max() < 0.02
    assert path.position("low")[-1, -1] == pytest.approx(0.5 * height, abs=1e-4)
    assert path.position("high")[-1, -1] == pytest.approx(1.5 * height, abs=1e-4)


@BOTH
def test_corrections_only_push(solver):
    """Of contacts at nearly one place, as a cylinder that is almost upright has them, one is deeper: it is not turned
    until all are right, which may be far."""
    scene, samples = ground(3), 2000
    scene.add_body("cylinder", bd.Cylinder(0.12, 0.25), mass=1.0, position=(0.0, 0.0, 0.1245))
    model = scene.build()
    tilt, heading = (torch.linspace(0.0, most, samples).double() for most in (0.02, 100.0))
    state = model.initial_state(samples)
    state.q[:, 3] = (0.5 * tilt).cos()
    state.q[:, 4:6] = torch.stack([heading.cos(), heading.sin()], 1) * (0.5 * tilt).sin()[:, None]
    path = bd.Simulator(model, 1 / 60, solver=solver, specialize=False).rollout(state, steps=1)
    assert path.status.depth.max() == pytest.approx(5e-4 + 0.12 * 0.02, rel=0.1)
    assert (path.q[1] - path.q[0]).abs().max() < 0.01


def test_one_inside_the_other():
    """Two bodies at the same place have no direction to part in: still finite."""
    for dim, shape in ((2, bd.Circle(0.2)), (3, bd.Sphere(0.2)), (2, bd.Box(0.3, 0.3)), (3, bd.Box(0.3, 0.3, 0.3))):
        scene = bd.Scene(dim, gravity=(0.0,) * dim)
        for name in "ab":
            scene.add_body(name, shape, mass=1.0)
        _, path = settle(scene, 50)
        assert path.status.finite.all()
        assert path.v.abs().max() < 1.0


def test_many_contacts_at_once():
    """There is no preset number of contacts: all pairs that may touch have their places."""
    scene = bd.Scene(2, gravity=(0, 0))
    for k in range(12):
        scene.add_body(f"b{k}", bd.Circle(0.3), mass=1.0, position=(0.5 * (k % 4), 0.5 * (k // 4)))
    model = scene.build()
    path = bd.Simulator(model, 0.01).rollout(model.initial_state(), steps=100)
    assert path.status.converged.all()
    assert path.status.depth[0] == pytest.approx(0.1)
    assert path.status.depth[-1] < 1e-3
    assert path.v.abs().max() < 0.05


@BOTH
def test_pressed_between_walls(solver):
    """A ball in a gap that is too narrow for it."""
    scene = bd.Scene(2)
    scene.add_static(bd.HalfSpace((1.0, 0.0), -0.19), friction=0.5)
    scene.add_static(bd.HalfSpace((-1.0, 0.0), -0.19), friction=0.5)
    scene.add_body("ball", bd.Circle(0.2), mass=1.0, position=(0.0, 0.0))
    _, path = settle(scene, 100, solver)
    assert path.status.finite.all()
    assert path.q[:, 0].abs().max() < 0.05
    assert path.v.abs().max() < 1.1 * G * 1.0


# ---------------------------------------------------------------------------------------------- masses and joints


@BOTH
@pytest.mark.parametrize("masses", [(1.0, 1e6), (1e6, 1.0), (1e-3, 1e3)])
def test_ratios_of_masses(masses, solver):
    """Of a million: the light one carries the heavy one."""
    scene = ground(2)
    for k, (mass, width) in enumerate(zip(masses, (0.4, 0.3))):
        scene.add_body(f"b{k}", bd.Box(width, 0.2), mass=mass, position=(0.0, 0.1 + 0.2 * k))
    _, path = settle(scene, 200, solver)
    assert path.status.converged.all()
    # 1e6 kg on 1 kg: the regularisation, 1e-8 of the inverse mass of the light one, yields a millimetre per second.
    assert path.v.abs().max() < 2e-3 and path.v[100].abs().max() < 1e-5 and path.v[-1].abs().max() < 1e-6
    assert path.status.depth.max() < 1e-5
    assert (path.q[-1] - path.q[0]).abs().max() < 1e-4


@BOTH
def test_joint_that_cannot_be_moved(solver):
    """A motor against joint friction that is stronger, and a limit without room: low = high."""
    scene = bd.Scene(2)
    scene.add_body("arm", bd.Box(0.4, 0.1), mass=1.0, position=(0.2, 0.0))
    scene.add_joint("hinge", bd.Hinge(limits=(0.0, 1e-9), friction=100.0), child="arm", anchor=(0.0, 0.0))
    scene.add_motor("motor", joint="hinge")
    model = scene.build()
    sim = bd.Simulator(model, 0.01, solver=solver, specialize=False)
    path = sim.rollout(model.initial_state(), 5.0 * torch.ones(50, 1, dtype=torch.float64))
    assert path.status.finite.all()
    assert path.q.abs().max() < 1e-5


# ---------------------------------------------------------------------------------------------- redundant constraints


@BOTH
def test_four_corners(solver):
    """Four contacts for three freedoms: they share the load evenly, by symmetry."""
    scene = ground(3)
    scene.add_body("box", bd.Box(0.4, 0.3, 0.2), mass=2.0, position=(0.0, 0.0, 0.1))
    _, path = settle(scene, 50, solver)
    assert path.status.converged.all() and path.status.contacts[-1] == 4
    assert path.v[-1].abs().max() < 1e-9


@BOTH
@pytest.mark.parametrize("hinged", [False, True], ids=["spinning", "hinged"])
@pytest.mark.parametrize("dim", [2, 3])
def test_doubled_constraints(dim, hinged, solver):
    """Twice the same weld, and a rod beside it: as one."""
    paths = []
    for copies in (1, 2):
        scene = bd.Scene(dim)
        shape = bd.Box(*(0.4, 0.2, 0.3)[:dim])
        start = {} if hinged else {"angular_velocity": 1.0 if dim == 2 else (0.0, 1.0, 0.3)}
        scene.add_body("a", shape, mass=1.0, position=at(dim, 0.5, 0.0), **start)
        scene.add_body("b", shape, mass=0.5, position=at(dim, 1.0, 0.0))
        if hinged:
            axis = {} if dim == 2 else {"axis": (0.0, 1.0, 0.0)}
            scene.add_joint("hinge", bd.Hinge(**axis), child="a", anchor=(0.0,) * dim)
        for k in range(copies):
            scene.add_constraint(f"weld{k}", bd.Weld(), a="b", b="a")
        if copies == 2:
            scene.add_constraint("rod", bd.Distance(), a="b", b="a")
        paths.append(settle(scene, 100, solver)[1])
    assert all(path.status.converged.all() for path in paths)
    torch.testing.assert_close(paths[1].q, paths[0].q, rtol=0, atol=1e-6)


@BOTH
def test_rods_of_two_lengths(solver):
    """1 m and 1.2 m between the same points: no motion satisfies both. It stays bounded."""
    scene = bd.Scene(2)
    scene.add_body("a", bd.Circle(0.1), mass=1.0, position=(1.0, 0.0))
    for k, length in enumerate((1.0, 1.2)):
        scene.add_constraint(f"rod{k}", bd.Distance(length), a="a", anchor_b=(0.0, 0.0))
    _, path = settle(scene, 200, solver)
    assert path.status.finite.all()
    distance = path.position("a").norm(dim=-1)
    assert ((distance > 0.95) & (distance < 1.25)).all()


@BOTH
def test_contradictory_constraints(solver):
    """Two rods in one line that cannot both have their lengths: the bob comes to rest between, without wild motion."""
    scene = bd.Scene(2)
    scene.add_body("bob", bd.Circle(0.1), mass=1.0, position=(0.5, 0.0))
    scene.add_constraint("left", bd.Distance(0.5), a="bob", anchor_b=(0.0, 0.0))
    scene.add_constraint("right", bd.Distance(0.5), a="bob", anchor_b=(2.0, 0.0))
    _, path = settle(scene, 300, solver)
    assert path.status.finite.all()
    assert path.v.abs().max() < 1.0
    assert ((path.q[:, 0] > 0.45) & (path.q[:, 0] < 1.55) & (path.q[:, 1].abs() < 0.1)).all()
    assert (path.q[-1] - path.q[-60]).abs().max() < 1e-3
