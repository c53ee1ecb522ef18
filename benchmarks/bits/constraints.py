"""Equations between bodies: joints that close loops, Distance, Lock, Weld, and maximal coordinates; both solvers."""

from __future__ import annotations

from functools import partial
from typing import Any

import backdrive as bd

from .measure import merged, motion, parameters_of, rolled, start
from .registry import Arrays, add, scene

SOLVERS: dict[str, Any] = {"sweeps": bd.ProjectedGaussSeidel(), "interior": bd.InteriorPoint()}
MASSES = ("mass", "inertia", "com", "gravity")


def solved(model: bd.Model, names: tuple[str, ...] = (), **options: Any) -> Arrays:
    """The motion by both solvers, and for sweeps by both integrators; forces of the named constraints as well."""
    found = {}
    settings = {name: {"solver": solver} for name, solver in SOLVERS.items()}
    settings["midpoint"] = {"integrator": bd.Midpoint()}
    for name, setting in settings.items():
        sim = rolled(model, **setting, **options)
        given = parameters_of(model, MASSES, 3)
        found[name] = motion(sim, start(model, 3, speed=0.2), steps=20, wrenches=0.3, parameters=given)
        state = start(model, 3, speed=0.2).detach()
        contacts = sim.rollout(state, steps=5).contacts
        found[name] |= {f"force.{joint}": contacts.of(joint).numpy() for joint in names}
    return merged(**found)


def four_bar(closing: bd.Hinge, coordinates: str = "reduced") -> bd.Model:
    """Three links in the plane between two points of the world; the last joint closes the loop."""
    scene = bd.Scene(dim=2, coordinates=coordinates)
    scene.add_body("crank", bd.Box(0.1, 0.5), mass=1.0, position=(0.0, 0.25))
    scene.add_body("rod", bd.Box(1.0, 0.1), mass=1.0, position=(0.5, 0.5))
    scene.add_body("rocker", bd.Box(0.1, 0.7), mass=1.0, position=(1.0, 0.15))
    scene.add_joint("a", bd.Hinge(), child="crank", anchor=(0.0, 0.0))
    scene.add_joint("b", bd.Hinge(), parent="crank", child="rod", anchor=(0.0, 0.5))
    scene.add_joint("c", bd.Hinge(), parent="rod", child="rocker", anchor=(1.0, 0.5))
    scene.add_joint("d", closing, child="rocker", anchor=(1.0, -0.2))
    return scene.build()


@scene
def loop_hinge_2d() -> Arrays:
    """a four-bar linkage in 2D, closed by a hinge"""
    return solved(four_bar(bd.Hinge()), ("d",))


@scene
def loop_slider_2d() -> Arrays:
    """the same linkage, closed by a slider"""
    return solved(four_bar(bd.Slider(axis=(0.6, 0.8))), ("d",))


@scene
def loop_hinge_2d_specialized() -> Arrays:
    """the four-bar linkage on specialised kernels"""
    return solved(four_bar(bd.Hinge()), specialize=True)


def frame(closing: Any) -> bd.Model:
    """Three links in space, hung on ball joints; the last joint closes the loop."""
    scene = bd.Scene(dim=3)
    scene.add_body("left", bd.Capsule(0.05, 0.4), mass=1.0, position=(0.0, 0.0, -0.25))
    scene.add_body("beam", bd.Box(1.0, 0.1, 0.1), mass=1.0, position=(0.5, 0.0, -0.5))
    scene.add_body("right", bd.Capsule(0.05, 0.4), mass=1.0, position=(1.0, 0.0, -0.25))
    scene.add_joint("a", bd.Ball(damping=0.05), child="left", anchor=(0.0, 0.0, 0.0))
    scene.add_joint("b", bd.Ball(), parent="left", child="beam", anchor=(0.0, 0.0, -0.5))
    scene.add_joint("c", bd.Hinge(axis=(0, 1, 0)), parent="beam", child="right", anchor=(1.0, 0.0, -0.5))
    scene.add_joint("d", closing, child="right", anchor=(1.0, 0.0, 0.0))
    return scene.build()


for _name, _closing in {
    "ball": bd.Ball(), "hinge": bd.Hinge(axis=(0, 0.6, 0.8)), "slider": bd.Slider(axis=(0, 0, 1)), "fixed": bd.Fixed(),
}.items():  # fmt: skip
    _function = partial(lambda closing: solved(frame(closing), ("d",)), _closing)
    add(f"loop-{_name}-3d", f"a frame in 3D, closed by a {_name} joint", _function)


def held(dim: int, constraint: Any, other: bool, anchored: bool) -> bd.Model:
    """Two bodies; the constraint keeps the first one in the world, or with the second, which hangs on a hinge."""
    scene = bd.Scene(dim=dim)
    flat = dim == 2
    shape = bd.Box(0.3, 0.2) if flat else bd.Box(0.3, 0.2, 0.2)
    scene.add_body("a", shape, mass=1.0, position=(0.5, 0.0) if flat else (0.5, 0.1, 0.0))
    scene.add_body("b", shape, mass=2.0, position=(-0.5, 0.2) if flat else (-0.5, 0.0, 0.2))
    hinge = bd.Hinge() if flat else bd.Hinge(axis=(0, 1, 0))
    scene.add_joint("hinge", hinge, child="b", anchor=(-0.5, 0.6) if flat else (-0.5, 0.0, 0.6))
    anchors: dict[str, Any] = {"anchor_b": (0.0, 0.5) if flat else (0.0, 0.0, 0.5)} if anchored else {}
    if isinstance(constraint, bd.Lock):
        anchors = {"anchor_a": (0.6, 0.05) if flat else (0.6, 0.1, 0.05)}
    scene.add_constraint("hold", constraint, a="a", b="b" if other else None, **anchors)
    return scene.build()


def held_scene(dim: int, constraint: Any) -> Arrays:
    """The constraint with the world, and with another body."""
    rod = isinstance(constraint, bd.Distance)
    world = solved(held(dim, constraint, other=False, anchored=rod), ("hold",))
    return merged(world=world, body=solved(held(dim, constraint, other=True, anchored=False), ("hold",)))


for _dim, _locks in ((2, ("x", "y", "angle")), (3, ("x", "y", "z"))):
    _all = {f"lock-{_c}": bd.Lock(_c) for _c in _locks} | {"distance": bd.Distance(), "weld": bd.Weld()}
    for _name, _constraint in _all.items():
        add(
            f"{_name}-{_dim}d",
            f"{_constraint!r} in {_dim}D, in the world and between bodies",
            partial(held_scene, _dim, _constraint),
        )


def chain(dim: int) -> bd.Model:
    """Hinge, slider and (in 3D) ball joint one after the other, and a fixed one, all of them equations."""
    scene = bd.Scene(dim=dim, coordinates="maximal")
    shape = bd.Box(0.1, 0.4) if dim == 2 else bd.Box(0.1, 0.15, 0.4)
    middle = () if dim == 2 else (0.0,)
    for k in range(4):
        scene.add_body(f"b{k}", shape, mass=1.0, position=(0.0, *middle, -0.2 - 0.4 * k))
    kinds = [bd.Hinge(), bd.Slider(axis=(1, 0)), bd.Hinge(), bd.Fixed()]
    if dim == 3:
        kinds = [bd.Hinge(axis=(0, 1, 0)), bd.Slider(axis=(1, 0, 0)), bd.Ball(), bd.Fixed()]
    for k, joint in enumerate(kinds):
        above = f"b{k - 1}" if k else None
        scene.add_joint(f"j{k}", joint, parent=above, child=f"b{k}", anchor=(0.0, *middle, -0.4 * k))
    floor = bd.HalfSpace(normal=(0, 1), offset=-1.62) if dim == 2 else bd.HalfSpace(normal=(0, 0, 1), offset=-1.62)
    scene.add_static(floor)
    return scene.build()


@scene
def maximal_2d() -> Arrays:
    """a chain in maximal coordinates in 2D that swings just above the floor"""
    return solved(chain(2), ("j0", "j1", "j2", "j3"))


@scene
def maximal_3d() -> Arrays:
    """a chain in maximal coordinates in 3D that swings just above the floor"""
    return solved(chain(3), ("j0", "j1", "j2", "j3"))


@scene
def maximal_four_bar() -> Arrays:
    """the four-bar linkage in maximal coordinates"""
    return solved(four_bar(bd.Hinge(), "maximal"), ("a", "d"))


@scene
def loop_by_sweeps_alone() -> Arrays:
    """the four-bar linkage by sweeps without exact solution, and with cfm"""
    model = four_bar(bd.Hinge())
    found = {}
    for name, solver in {
        "sweeps": bd.ProjectedGaussSeidel(exact=False, iterations=20),
        "soft": bd.ProjectedGaussSeidel(cfm=0.01),
        "soft_interior": bd.InteriorPoint(cfm=0.01),
    }.items():
        given = parameters_of(model, MASSES)
        found[name] = motion(rolled(model, solver=solver), start(model, 3, speed=0.2), parameters=given)
    return merged(**found)
