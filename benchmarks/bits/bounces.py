"""What bounces: impacts found within a step, plain steps, and what "auto" chooses; restitution and its gradients."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch

import backdrive as bd

from .measure import merged, motion, parameters_of, rolled, start
from .registry import Arrays, add, scene

BOUNCING = ("mass", "inertia", "size", "friction", "restitution", "gravity")


def flat_table(gravity: Any = None) -> bd.Model:
    """Discs, a box and a polygon that bounce between walls, in the plane."""
    scene = bd.Scene(dim=2, gravity=gravity)
    for k, (normal, offset) in enumerate((((0, 1), 0.0), ((1, 0), -1.0), ((-1, 0), -1.0))):
        scene.add_static(bd.HalfSpace(normal=normal, offset=offset), restitution=0.7, friction=0.2, name=f"wall{k}")
    scene.add_body("a", bd.Circle(0.1), mass=1.0, position=(-0.5, 0.3), velocity=(3.0, -1.0), restitution=0.9)
    scene.add_body("b", bd.Circle(0.12), mass=0.6, position=(0.0, 0.25), velocity=(-1.0, -2.0), restitution=0.8)
    scene.add_body(
        "c", bd.Box(0.2, 0.15), mass=0.5, position=(0.5, 0.35), velocity=(1.0, -3.0), angular_velocity=3.0,
        restitution=0.5,
    )  # fmt: skip
    corners = [(-0.1, -0.1), (0.12, -0.08), (0.0, 0.1)]
    scene.add_body("d", bd.Polygon(corners), mass=0.4, position=(-0.4, 0.7), velocity=(1.0, -3.0), restitution=0.4)
    return scene.build()


def solid_table(gravity: Any = None) -> bd.Model:
    """A ball and a box that bounce on the ground and off each other, in space."""
    scene = bd.Scene(dim=3, gravity=gravity)
    scene.add_static(bd.HalfSpace(normal=(0, 0, 1)), restitution=0.7, friction=0.2)
    scene.add_body("a", bd.Sphere(0.1), mass=1.0, position=(-0.4, 0, 0.3), velocity=(3, 0.2, -1), restitution=0.9)
    scene.add_body(
        "b", bd.Box(0.2, 0.2, 0.15), mass=0.5, position=(0.1, 0.05, 0.3), velocity=(-1.0, 0.0, -2.0),
        angular_velocity=(1.0, 2.0, 0.5), restitution=0.5,
    )  # fmt: skip
    return scene.build()


def rods() -> bd.Model:
    """A capsule and a cylinder that bounce on the ground and off each other, in space."""
    scene = bd.Scene(dim=3)
    scene.add_static(bd.HalfSpace(normal=(0, 0, 1)), restitution=0.7, friction=0.2)
    turned = (0.8, 0.6, 0.0, 0.0)
    scene.add_body(
        "c", bd.Capsule(0.08, 0.2), mass=0.7, position=(0.2, 0, 0.3), quaternion=turned, velocity=(-1, 0, -2),
        restitution=0.6,
    )  # fmt: skip
    scene.add_body(
        "d", bd.Cylinder(0.1, 0.1), mass=0.7, position=(-0.2, 0.05, 0.3), quaternion=turned, velocity=(0.5, 0, -2),
        restitution=0.6,
    )  # fmt: skip
    return scene.build()


def bouncing(make: Any, ways: tuple[Any, ...], forces: bool = False, **options: Any) -> Arrays:
    """Some of the three ways to treat impacts."""
    model = make()
    found = {}
    for impacts in ways:
        sim = rolled(model, impacts=impacts, **options)
        given = parameters_of(model, BOUNCING, 3)
        state = start(model, 3, speed=0.1)
        found[f"impacts_{impacts}"] = motion(
            sim, state, steps=35, wrenches=0.2, parameters=given, forces=forces and bool(impacts)
        )
    return merged(**found)


for _name, _make in (("2d", flat_table), ("3d", solid_table)):
    _all = partial(bouncing, _make, (True, False, "auto"), forces=True)
    add(f"bounces-{_name}", f"bouncing bodies in {_name}, with impacts, without, and auto", _all)
    _midpoint = partial(bouncing, _make, (True,), integrator=bd.Midpoint())
    add(f"bounces-{_name}-midpoint", f"the same in {_name} by Midpoint", _midpoint)
    _interior = partial(bouncing, _make, (True,), solver=bd.InteriorPoint())
    add(f"bounces-{_name}-interior", f"the same in {_name} by the interior point method", _interior)
_special = partial(bouncing, flat_table, (True,), specialize=True)
add("bounces-3d-rods", "a capsule and a cylinder that bounce", partial(bouncing, rods, (True,)))
add("bounces-2d-specialized", "the same in 2d on specialised kernels", _special)


@scene
def bounces_batches() -> Arrays:
    """impacts in batches of 1, 9 and 17 environments, and unbatched"""
    model = flat_table()
    found = {}
    for batch in (None, 1, 9, 17):
        state = start(model, batch, speed=0.3)
        given = parameters_of(model, ("mass", "restitution"))
        found[f"batch{batch}"] = motion(rolled(model), state, steps=30, parameters=given)
    return merged(**found)


@scene
def bounces_threshold() -> Arrays:
    """plain steps in which nothing bounces that approaches more slowly than 2.5 m/s"""
    model = flat_table()
    return motion(rolled(model, impacts=False, bounce_threshold=2.5), start(model, 3, speed=0.1), steps=30)


@scene
def bounces_float32() -> Arrays:
    """bouncing bodies in float32, where auto takes plain steps"""
    model = flat_table()
    sim = rolled(model, dtype=torch.float32)
    given = parameters_of(model, BOUNCING, dtype=torch.float32)
    return motion(sim, start(model, 3, speed=0.1, dtype=torch.float32), steps=30, parameters=given)


@scene
def billiards() -> Arrays:
    """eight elastic discs without gravity, hit by a ninth, with exact impacts"""
    scene = bd.Scene(dim=2, gravity=(0, 0))
    for k, normal in enumerate(((0, 1), (0, -1), (1, 0), (-1, 0))):
        scene.add_static(bd.HalfSpace(normal=normal, offset=-1.0), restitution=1.0, friction=0.0, name=f"rail{k}")
    for k in range(8):
        place = (0.2 + 0.12 * (k % 3), -0.2 + 0.13 * (k // 3) + 0.05 * (k % 3))
        scene.add_body(f"ball{k}", bd.Circle(0.05), mass=0.2, position=place, restitution=1.0, friction=0.0)
    scene.add_body("cue", bd.Circle(0.05), mass=0.2, position=(-0.3, 0.0), velocity=(8, 0.1), restitution=1.0)
    model = scene.build()
    given = parameters_of(model, ("mass", "restitution", "size"))
    return motion(rolled(model), start(model, 3, speed=0.02), steps=20, parameters=given)


@scene
def bouncing_arm() -> Arrays:
    """a driven arm in 2D with limits and joint friction that hits a bouncing ball and the ground"""
    scene = bd.Scene(dim=2)
    scene.add_static(bd.HalfSpace(normal=(0, 1)), restitution=0.5)
    scene.add_body("upper", bd.Box(0.1, 0.5), mass=1.0, position=(0.0, 0.75))
    scene.add_body("lower", bd.Box(0.1, 0.5), mass=0.5, position=(0.0, 0.3), restitution=0.5)
    scene.add_body("ball", bd.Circle(0.1), mass=0.3, position=(0.3, 0.2), velocity=(-2.0, 0.5), restitution=0.8)
    scene.add_joint("shoulder", bd.Hinge(damping=0.1, limits=(-0.4, 0.4)), child="upper", anchor=(0.0, 1.0))
    elbow = bd.Hinge(damping=0.1, friction=0.05)
    scene.add_joint("elbow", elbow, parent="upper", child="lower", anchor=(0.0, 0.525))
    scene.add_motor("bend", bd.PositionServo(kp=10.0, kv=0.5), joint="elbow")
    model = scene.build()
    given = parameters_of(model, "all")
    state = start(model, 3, speed=0.2)
    return motion(rolled(model), state, steps=35, controls=0.5, parameters=given, forces=True)


@scene
def bounces_extreme() -> Arrays:
    """impacts of two corners at once, those whose restitution is reduced, and too many for a step"""
    flat = bd.Scene(dim=2)
    flat.add_static(bd.HalfSpace(normal=(0, 1)), restitution=0.8, friction=0.2)
    flat.add_body("flat", bd.Box(0.4, 0.2), mass=1.0, position=(0.0, 0.15), velocity=(0.0, -2.0), restitution=0.8)
    flat.add_body("far", bd.Circle(0.1), mass=1.0, position=(3.0, 2.0))
    squeezed = bd.Scene(dim=2)
    squeezed.add_static(bd.HalfSpace(normal=(0, 1)), restitution=1.0, friction=0.9)
    squeezed.add_body(
        "rod", bd.Box(1.0, 0.04), mass=1.0, position=(2.0, 0.45), angle=0.9, velocity=(-6.0, -2.0),
        angular_velocity=-4.0, friction=0.9, restitution=1.0,
    )  # fmt: skip
    squeezed.add_body("low", bd.Circle(0.1), mass=0.01, position=(4.0, 0.12), friction=0.0, restitution=1.0)
    heavy = {"mass": 50.0, "position": (4.0, 0.43), "velocity": (0.0, -3.0)}
    squeezed.add_body("high", bd.Box(0.4, 0.4), friction=0.0, restitution=1.0, **heavy)
    found = {}
    for name, world in (("flat", flat), ("squeezed", squeezed)):
        model = world.build()
        found[name] = motion(
            rolled(model), start(model, 3, speed=0.0), steps=40, parameters=parameters_of(model, BOUNCING)
        )
    return merged(**found)
