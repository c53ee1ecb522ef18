"""Contact: solvers and their settings, friction pyramids, softness, combination rules, all parameters."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch

import backdrive as bd

from .measure import merged, motion, parameters_of, rolled, start
from .registry import Arrays, add, scene


def flat_world(**options: Any) -> bd.Model:
    """In the plane: a box, a disc and a polygon that fall on the ground and against a wall."""
    scene = bd.Scene(dim=2, **options)
    scene.add_static(bd.HalfSpace(normal=(0, 1)), friction=0.7, name="ground")
    scene.add_static(bd.Box(0.2, 1.0), position=(0.8, 0.5), friction=0.2, name="wall")
    scene.add_body("box", bd.Box(0.4, 0.3), mass=1.0, position=(0.0, 0.152), velocity=(1.5, 0.0), friction=0.3)
    scene.add_body("disc", bd.Circle(0.15), mass=0.5, position=(0.5, 0.16), velocity=(1.0, -0.5), softness=0.01)
    corners = [(-0.15, -0.1), (0.2, -0.1), (0.05, 0.15)]
    scene.add_body("wedge", bd.Polygon(corners), mass=0.4, position=(0.05, 0.41), angle=0.05, friction=0.9)
    return scene.build()


def solid_world(**options: Any) -> bd.Model:
    """In space: a box that slides, a ball on top of it, a capsule beside them."""
    scene = bd.Scene(dim=3, **options)
    scene.add_static(bd.HalfSpace(normal=(0, 0, 1)), friction=0.7, name="ground")
    velocity = (1.2, 0.5, 0.0)
    scene.add_body("box", bd.Box(0.4, 0.4, 0.3), mass=1.0, position=(0, 0, 0.151), velocity=velocity, friction=0.3)
    scene.add_body("ball", bd.Sphere(0.1), mass=0.3, position=(0.03, 0.02, 0.405), softness=0.02)
    turned = (0.8, 0.6, 0.0, 0.0)
    scene.add_body("rod", bd.Capsule(0.1, 0.3), mass=0.6, position=(0.35, 0.1, 0.2), quaternion=turned, friction=0.9)
    return scene.build()


WORLDS = {2: flat_world, 3: solid_world}
SETTINGS: dict[str, dict[str, Any]] = {
    "sweeps": {},
    "sweeps-alone": {"solver": bd.ProjectedGaussSeidel(exact=False, iterations=25)},
    "sweeps-soft": {"solver": bd.ProjectedGaussSeidel(cfm=0.01)},
    "sweeps-erp": {"solver": bd.ProjectedGaussSeidel(erp=0.6, iterations=5, tolerance=1e-8)},
    "interior": {"solver": bd.InteriorPoint()},
    "interior-soft": {"solver": bd.InteriorPoint(cfm=0.01, erp=0.5)},
    "midpoint": {"integrator": bd.Midpoint()},
    "midpoint-interior": {"integrator": bd.Midpoint(), "solver": bd.InteriorPoint()},
    "split": {"impacts": True},
    "split-midpoint": {"impacts": True, "integrator": bd.Midpoint()},
    "specialized": {"specialize": True},
    "specialized-interior": {"specialize": True, "solver": bd.InteriorPoint()},
    "specialized-split": {"specialize": True, "impacts": True},
    "float32": {"dtype": torch.float32},
}
WITH_FORCES = ("interior", "midpoint", "split", "specialized", "float32")


def setting_scene(dim: int, setting: str) -> Arrays:
    """One setting of the simulator, with wrenches and some parameters; with forces for some."""
    model, options = WORLDS[dim](), SETTINGS[setting]
    sim = rolled(model, **options)
    given = parameters_of(model, ("mass", "friction", "size", "gravity"), dtype=sim.dtype)
    state = start(model, 3, speed=0.1, dtype=sim.dtype)
    return motion(sim, state, steps=30, wrenches=0.2, parameters=given, forces=setting in WITH_FORCES)


for _dim in WORLDS:
    for _setting in SETTINGS:
        add(
            f"contact-{_dim}d-{_setting}",
            f"a world of contacts in {_dim}D: {_setting}",
            partial(setting_scene, _dim, _setting),
        )


def all_parameters(dim: int, solver: Any) -> Arrays:
    """Gradients with respect to every parameter that the model has: shared, and of each environment."""
    model = WORLDS[dim]()
    found = {}
    for name, batch in (("shared", None), ("own", 3)):
        given = parameters_of(model, "all", batch)
        sim = rolled(model, solver=solver)
        found[name] = motion(sim, start(model, 3, speed=0.1), steps=25, parameters=given, bodies=("box",), forces=True)
    return merged(**found)


for _dim in WORLDS:
    add(
        f"parameters-{_dim}d-sweeps",
        f"every parameter of contacts in {_dim}D, shared and per environment",
        partial(all_parameters, _dim, None),
    )
    add(
        f"parameters-{_dim}d-interior",
        f"the same in {_dim}D by the interior point method",
        partial(all_parameters, _dim, bd.InteriorPoint()),
    )


@scene
def combine_rules() -> Arrays:
    """friction and restitution of a pair as the mean, the larger and the smaller of its shapes'"""
    found = {}
    for rule in ("mean", "max", "min"):
        model = flat_world(combine=rule)
        given = parameters_of(model, ("friction", "restitution"))
        found[rule] = motion(rolled(model), start(model, 3, speed=0.1), steps=25, parameters=given)
        model = solid_world(combine=rule)
        given = parameters_of(model, ("friction", "restitution"))
        found[f"{rule}3d"] = motion(rolled(model), start(model, 3, speed=0.1), steps=25, parameters=given)
    return merged(**found)


@scene
def friction_pyramids() -> Arrays:
    """friction pyramids of 4, 6 and 8 sides, that of 8 by both solvers"""
    model = solid_world()
    found = {}
    for name, sides, solver in (
        ("sweeps4", 4, None),
        ("sweeps6", 6, None),
        ("sweeps8", 8, None),
        ("interior8", 8, bd.InteriorPoint()),
    ):
        sim = rolled(model, pyramid=sides, solver=solver)
        given = parameters_of(model, ("friction",))
        found[name] = motion(sim, start(model, 3, speed=0.2), steps=25, parameters=given)
    return merged(**found)


@scene
def friction_extremes() -> Arrays:
    """no friction at all, and friction without bound"""
    found = {}
    for name, friction in (("none", 0.0), ("infinite", float("inf"))):
        scene = bd.Scene(dim=2)
        scene.add_static(bd.HalfSpace(normal=(0, 1)), friction=friction)
        velocity = (1.0, -0.5)
        scene.add_body("box", bd.Box(0.4, 0.3), mass=1.0, position=(0, 0.16), velocity=velocity, friction=friction)
        model = scene.build()
        found[name] = motion(rolled(model), start(model, 3, speed=0.1), steps=25, forces=True)
    return merged(**found)


@scene
def compound_bodies() -> Arrays:
    """bodies of several shapes with materials of their own, and pairs that are excluded"""
    scene = bd.Scene(dim=3)
    scene.add_static(bd.HalfSpace(normal=(0, 0, 1)), name="ground")
    scene.add_body("dumbbell", bd.Capsule(0.05, 0.4), density=800.0, position=(0, 0, 0.3), quaternion=(0.8, 0.6, 0, 0))
    scene.add_shape("dumbbell", bd.Sphere(0.12), position=(0, 0, 0.2), friction=0.9)
    scene.add_shape("dumbbell", bd.Box(0.2, 0.2, 0.2), position=(0, 0, -0.2), softness=0.01)
    scene.add_body("ghost", bd.Sphere(0.2), mass=1.0, position=(0.0, 0.1, 0.6))
    scene.add_body("brick", bd.Box(0.2, 0.3, 0.2), mass=1.0, position=(0.3, 0.0, 0.12))
    scene.exclude("ghost", "dumbbell")
    scene.exclude("brick", "ground")
    model = scene.build()
    given = parameters_of(model, ("mass", "size", "shape_position", "friction"))
    return motion(rolled(model), start(model, 3, speed=0.3), steps=35, parameters=given, forces=True)
