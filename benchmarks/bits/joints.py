"""Trees: every kind of joint, with springs, dampers, armature, limits and friction; both integrators."""

from __future__ import annotations

from functools import partial
from typing import Any

import backdrive as bd

from .measure import merged, motion, parameters_of, rolled, start
from .registry import Arrays, add, scene

BARE: dict[str, Any] = {}
SPRUNG = {"damping": 0.3, "stiffness": 4.0, "armature": 0.05}  # N m s/rad, N m/rad, kg m^2 (N s/m, N/m, kg)
STOPPED = {"damping": 0.1, "limits": (-0.05, 0.08), "friction": 0.2}  # rad | m, N m | N
FEATURES = {"bare": BARE, "sprung": SPRUNG, "stopped": STOPPED}
REST: dict[type, Any] = {
    bd.Hinge: 0.3,
    bd.Slider: 0.1,
    bd.Planar: (0.1, 0.2, 0.3),
    bd.Ball: (0.8, 0.6, 0.0, 0.0),
    bd.Free: (0.1, 0.2, 0.3, 0.8, 0.0, 0.6, 0.0),
}


def pair_on(dim: int, kind: type[bd.Hinge], feature: str) -> bd.Model:
    """A body on a joint of this kind, and a second one on a hinge below it, so that the joint feels what it carries."""
    scene = bd.Scene(dim=dim)
    shape = bd.Box(0.2, 0.5) if dim == 2 else bd.Box(0.2, 0.3, 0.5)
    place = (0.1, -0.2) if dim == 2 else (0.1, 0.05, -0.2)
    low = (0.15, -0.7) if dim == 2 else (0.15, 0.1, -0.7)
    at = (0.0, 0.1) if dim == 2 else (0.0, 0.05, 0.1)
    knee = (0.12, -0.45) if dim == 2 else (0.12, 0.05, -0.45)
    scene.add_body("upper", shape, mass=1.5, position=place)
    scene.add_body("lower", shape, mass=0.7, position=low)
    given = dict(FEATURES[feature])
    if feature == "sprung" and kind in REST:
        given["rest"] = REST[kind]
    if kind is bd.Slider:
        given["axis"] = (0.6, 0.8) if dim == 2 else (0.6, 0.0, 0.8)
    elif kind is bd.Hinge and dim == 3:
        given["axis"] = (0.0, 0.6, 0.8)
    scene.add_joint("first", kind(**given), child="upper", anchor=at)
    second = bd.Hinge(damping=0.05) if dim == 2 else bd.Hinge(axis=(0.0, 1.0, 0.0), damping=0.05)
    scene.add_joint("second", second, parent="upper", child="lower", anchor=knee)
    return scene.build()


def joint_scene(dim: int, kind: type[bd.Hinge], feature: str) -> Arrays:
    """Both integrators; parameters shared by all environments, and one row for each."""
    model = pair_on(dim, kind, feature)
    found = {}
    for name, integrator in (("euler", bd.SemiImplicitEuler()), ("midpoint", bd.Midpoint())):
        sim = rolled(model, integrator=integrator)
        bodies = ("lower",)
        shared = parameters_of(model, "all")
        found[name] = motion(sim, start(model, 3), steps=25, wrenches=0.5, parameters=shared, bodies=bodies)
        own = parameters_of(model, "all", 3)
        found[f"{name}_own"] = motion(sim, start(model, 3), steps=25, wrenches=0.5, parameters=own, bodies=bodies)
    return merged(**found)


for _dim, _kinds in (
    (2, (bd.Hinge, bd.Slider, bd.Planar, bd.Fixed)),
    (3, (bd.Hinge, bd.Slider, bd.Ball, bd.Planar, bd.Free, bd.Fixed)),
):
    for _kind in _kinds:
        for _feature in FEATURES:
            if _feature == "stopped" and _kind not in (bd.Hinge, bd.Slider):
                continue  # only these have limits and friction
            if _feature == "sprung" and _kind is bd.Fixed:
                continue  # which does not move
            _name = _kind.__name__.lower()
            _function = partial(joint_scene, _dim, _kind, _feature)
            add(f"joint-{_dim}d-{_name}-{_feature}", f"a {_name} joint in {_dim}D, {_feature}", _function)


def tree() -> bd.Scene:
    """A tree in space that has every kind of joint, its bodies so far apart that they do not touch."""
    scene = bd.Scene(dim=3)
    box = bd.Box(0.2, 0.2, 0.2)
    for k, x in enumerate((0.0, 0.3, 0.6, 0.3, 0.6, -0.3)):
        scene.add_body(f"b{k}", box, mass=1.0 + 0.2 * k, position=(x, 0.3 * k, 0.5 - 0.05 * k))
    scene.add_joint("hip", bd.Hinge(axis=(0, 1, 0), damping=0.1, stiffness=2.0), parent="b0", child="b1")
    scene.add_joint("rail", bd.Slider(axis=(1, 0, 0), damping=0.4, armature=0.1), parent="b1", child="b2")
    scene.add_joint("ball", bd.Ball(damping=0.05, stiffness=0.5), parent="b0", child="b3")
    scene.add_joint("glue", bd.Fixed(), parent="b3", child="b4")
    scene.add_joint("tail", bd.Hinge(axis=(0, 0.6, 0.8), limits=(-0.1, 0.2), friction=0.1), parent="b0", child="b5")
    return scene


@scene
def tree_of_all_joints() -> Arrays:
    """a floating tree in 3D with hinge, slider, ball, fixed joint, and a limited one"""
    model = tree().build()
    bodies = ("b2", "b4", "b5")
    sim = rolled(model)
    given = parameters_of(model, "all", 3)
    return motion(sim, start(model, 3), steps=30, wrenches=0.5, parameters=given, bodies=bodies, forces=True)


@scene
def tree_specialized() -> Arrays:
    """the same tree on kernels that were compiled for it, with the same parameters, by both integrators"""
    model = tree().build()
    found = {}
    for name, integrator in (("euler", bd.SemiImplicitEuler()), ("midpoint", bd.Midpoint())):
        sim = bd.Simulator(model, 0.01, specialize=True, integrator=integrator)
        given = parameters_of(model, ("mass", "damping"))
        found[name] = motion(sim, start(model, 9), steps=20, wrenches=0.5, parameters=given)
    return merged(**found)


@scene
def pendulum_chain() -> Arrays:
    """a pendulum of 12 links in 2D, rolled and specialised, without contact"""
    scene = bd.Scene(dim=2)
    above = None
    for k in range(12):
        scene.add_body(f"link{k}", mass=0.3, inertia=0.01, com=(0.0, -0.1), position=(0.0, -0.2 * k))
        scene.add_joint(f"hinge{k}", bd.Hinge(damping=0.01), parent=above, child=f"link{k}")
        above = f"link{k}"
    model = scene.build()
    found = {}
    for specialize in (False, True):
        sim = bd.Simulator(model, 0.01, specialize=specialize)
        found["special" if specialize else "rolled"] = motion(
            sim, start(model, 17), steps=30, parameters=parameters_of(model, ("mass", "anchor", "gravity")),
            bodies=("link11",),
        )  # fmt: skip
    return merged(**found)
