"""Random worlds with joints: trees of all joints and motors, closed loops, and trees in maximal coordinates."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import torch

import backdrive as bd
from backdrive.runtime.tangent import Tangent

from .draw import Draw, material, shape
from .worlds import World, add_free, gravity, inertia, pose, up

SIZE = 0.12  # m, of the shapes of links
LINK = 0.35  # m, between the places of a link and of its parent


def tree(kinds: tuple[str, ...], dim: int, draw: Draw, uniform: bool = False) -> World:
    """Three to six links of the first kind on random joints, a floor below, and a free body of that kind thrown at it.

    uniform: sliders without springs and motors alone, from the world on, so that the mass matrix does not depend on q.
    See `worlds.pair`.
    """
    scene = bd.Scene(dim, gravity=(0.0,) * dim if uniform else gravity(dim, draw))
    floats, count = draw.chance(0.5) and not uniform, int(draw.rng.integers(3, 6))
    places = _links(scene, kinds[0], count, draw, uniform)
    for k in range(count):
        parent = None if k == 0 else draw.choice(range(k))
        if parent is None and floats:
            continue  # the root moves freely
        joint = _joint(dim, draw, uniform, root=parent is None)
        anchor = None if parent is None else tuple((0.5 * (places[k] + places[parent])).tolist())
        name = scene.add_joint(f"j{k}", joint, parent=None if parent is None else f"link{parent}", child=f"link{k}",
                               anchor=anchor)  # fmt: skip
        if not uniform and type(joint) in (bd.Hinge, bd.Slider) and draw.chance(0.6):
            scene.add_motor(f"m{k}", _motor(draw), joint=name)
        if not uniform and isinstance(joint, bd.Planar) and draw.chance(0.6):
            scene.add_motor(f"m{k}", _motor(draw), joint=name, dof=draw.choice(("x", "y", "angle")))
    if floats and dim == 2 and not uniform and draw.chance(0.3):
        scene.add_motor("push", _motor(draw), joint="link0", dof="x")
    return _finished(scene, kinds[0], places, draw, uniform, spread=0.0 if uniform else 0.1)


def loops(kinds: tuple[str, ...], dim: int, draw: Draw, uniform: bool = False) -> World:
    """A four-bar linkage that a joint closes, a body on a rod (Distance) that hangs from it, and a Lock or a Weld."""
    pull = (0.0,) * dim if uniform else gravity(dim, draw)
    scene = bd.Scene(dim, gravity=pull, coordinates="maximal" if uniform else "reduced")
    axis: dict[str, Any] = {} if dim == 2 else {"axis": (0.0, 1.0, 0.0)}

    def at(x: float, z: float) -> np.ndarray:
        return np.array([x, z] if dim == 2 else [x, 0.0, z])

    lean = draw.between(-0.1, 0.1)
    pivots = [at(-0.3, 0.5), at(-0.3 + lean, 0.85), at(0.3 + lean, 0.85 + draw.between(-0.1, 0.1)), at(0.3, 0.5)]
    places = [0.5 * (a + b) for a, b in pairwise(pivots)]
    for k, place in enumerate(places):
        _link(scene, f"link{k}", kinds[0], place, draw, uniform)
        options = {} if uniform else _options(draw, limits=draw.chance(0.3))
        scene.add_joint(f"j{k}", bd.Hinge(**axis, **options), parent=f"link{k - 1}" if k else None, child=f"link{k}",
                        anchor=tuple(pivots[k].tolist()))  # fmt: skip
    if not uniform and draw.chance(0.7):
        scene.add_motor("m0", _motor(draw), joint="j0")
    closing = bd.Ball() if dim == 3 and draw.chance(0.5) else bd.Hinge(**axis)
    scene.add_joint("closing", closing, parent=None, child="link2", anchor=tuple(pivots[3].tolist()))
    hung = places[1] + at(0.1, -0.45)
    _link(scene, "hung", kinds[0], hung, draw, uniform)
    scene.add_constraint("rod", bd.Distance(), a="hung", b="link1", anchor_a=tuple(hung.tolist()),
                         anchor_b=tuple(places[1].tolist()))  # fmt: skip
    _link(scene, "held", kinds[0], at(0.9, 0.3), draw, uniform)
    if draw.chance(0.5):
        _link(scene, "welded", kinds[0], at(1.15, 0.35), draw, uniform)
        scene.add_constraint("weld", bd.Weld(), a="welded", b="held")
        places = [*places, at(1.15, 0.35)]
    scene.add_constraint("lock", bd.Lock(draw.choice(("x", "angle") if dim == 2 else ("x", "y"))), a="held")
    return _finished(scene, kinds[0], [*places, hung, at(0.9, 0.3)], draw, uniform, spread=0.0)


def _link(scene: bd.Scene, name: str, kind: str, place: np.ndarray, draw: Draw, uniform: bool) -> None:
    solid, mass = shape(kind, draw, SIZE), draw.spread(0.2, 3.0)
    options: dict[str, Any] = {}
    if uniform:
        moment = 0.004 * mass
        options = {"com": (0.0,) * scene.dim, "inertia": moment if scene.dim == 2 else (moment,) * 3}
    elif draw.chance(0.3):
        options = {"com": tuple((0.02 * draw.normal(scene.dim)).tolist())}
        options["inertia"] = inertia(scene.dim, solid, mass, draw)
    scene.add_body(name, solid, mass=mass, position=tuple(place.tolist()), **material(draw, uniform), **options)


def _links(scene: bd.Scene, kind: str, count: int, draw: Draw, uniform: bool) -> list[np.ndarray]:
    """Links in a row with bends, at distances at which they do not touch; their places."""
    places: list[np.ndarray] = []
    for k in range(count):
        step = 0.3 * draw.normal(scene.dim) + np.array([1.0] + [0.0] * (scene.dim - 1))
        places.append(np.zeros(scene.dim) if k == 0 else places[-1] + LINK * step / np.linalg.norm(step))
        _link(scene, f"link{k}", kind, places[k], draw, uniform)
    return places


def _options(draw: Draw, limits: bool) -> dict[str, Any]:
    """Of a hinge or slider: each of damping, spring, armature, friction and limits in some."""
    options: dict[str, Any] = {}
    if draw.chance(0.5):
        options["damping"] = draw.spread(0.01, 1.0)
    if draw.chance(0.3):
        options |= {"stiffness": draw.spread(0.5, 50.0), "rest": draw.between(-0.3, 0.3)}
    if draw.chance(0.3):
        options["armature"] = draw.spread(1e-3, 0.1)
    if draw.chance(0.3):
        options["friction"] = draw.spread(0.01, 1.0)
    if limits:
        low, high = draw.between(-0.4, -0.02), draw.between(0.02, 0.4)
        options["limits"] = draw.choice(((low, high), (low, None), (None, high), (low, high)))
    return options


def _joint(dim: int, draw: Draw, uniform: bool, root: bool) -> bd.Joint:
    options = _options(draw, limits=draw.chance(0.3))
    if uniform:
        kept = {name: x for name, x in options.items() if name not in ("stiffness", "rest")}
        return bd.Slider(axis=tuple(draw.unit(dim)), **kept)
    few = {name: x for name, x in options.items() if name in ("damping", "stiffness", "armature")}
    if root and draw.chance(0.3):
        return bd.Planar(**few) if dim == 2 else bd.Free(**few)
    if draw.chance(0.25):
        return bd.Slider(axis=tuple(draw.unit(dim)), **options)
    if draw.chance(0.1):
        return bd.Fixed()
    if draw.chance(0.15):
        return bd.Planar(**few)
    if dim == 2:
        return bd.Hinge(**options)
    return bd.Ball(**few) if draw.chance(0.3) else bd.Hinge(axis=tuple(draw.unit(3)), **options)


def _motor(draw: Draw) -> bd.Motor:
    common: dict[str, Any] = {"gear": draw.choice((1.0, -1.0, 2.0))}
    if draw.chance(0.3):
        common["limits"] = (-1.0, 1.0)
    if draw.chance(0.3):
        common["force_limits"] = (-3.0, 2.0)
    kind = draw.choice((bd.Motor, bd.PositionServo, bd.VelocityServo))
    if kind is bd.PositionServo:
        return bd.PositionServo(kp=draw.spread(0.5, 20.0), kv=draw.spread(0.01, 0.5), **common)
    return bd.Motor(**common) if kind is bd.Motor else bd.VelocityServo(kv=draw.spread(0.05, 1.0), **common)


def _finished(scene: bd.Scene, kind: str, places: list[np.ndarray], draw: Draw, uniform: bool, spread: float) -> World:
    """With a floor just below, and a body that is thrown at the machine. spread: of the joint coordinates at the start,
    rad or m."""
    dim = scene.dim
    lowest = min(float(place[-1]) for place in places)
    scene.add_static(bd.HalfSpace(up(dim), lowest - draw.between(0.15, 0.4)), **material(draw, uniform), name="floor")
    add_free(scene, "thrown", kind, draw, uniform, SIZE)
    model = scene.build()
    tangent, thrown = Tangent(model), model.q_index("thrown")

    def start(draw: Draw) -> tuple[np.ndarray, np.ndarray]:
        state = model.initial_state()
        q = tangent.displace(state.q, spread * torch.from_numpy(draw.normal(model.nv))).numpy()
        aim = draw.choice(places) + np.zeros(dim)
        away = draw.unit(dim)
        away[-1] = abs(away[-1]) + 0.3
        away *= draw.between(0.3, 0.5) / np.linalg.norm(away)
        q[thrown] = pose(dim, aim + away, draw)
        v = draw.choice((0.3, 1.0, 2.0)) * draw.normal(model.nv)
        at = model.v_index("thrown")
        v[at][:dim] = -draw.between(1.0, 4.0) * away / np.linalg.norm(away)
        return q, v

    return World(scene, model, start)
