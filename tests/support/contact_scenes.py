"""Scenes with contact, and states in which shapes just touch."""

from __future__ import annotations

import functools

import numpy as np
import pytest
import torch
from models import random_inertia, random_quaternion
from torch import Tensor

import backdrive as bd
from backdrive.physics.geometry.pairs import PAIRS

SOLVERS = {"gauss-seidel": bd.ProjectedGaussSeidel(), "interior-point": bd.InteriorPoint()}
INTEGRATORS = {"euler": bd.SemiImplicitEuler(), "midpoint": bd.Midpoint()}
BOTH = pytest.mark.parametrize("solver", SOLVERS.values(), ids=SOLVERS)
G = 9.81  # m/s², as scenes have it

TRIANGLE = ((-0.23, -0.17), (0.3, -0.2), (0.05, 0.3))
PENTAGON = tuple((0.3 * np.cos(t) + 0.02, 0.25 * np.sin(t)) for t in 2 * np.pi * (np.arange(5) + 0.2) / 5)
ROCK = (
    (-0.3, -0.2, -0.15),
    (0.3, -0.25, -0.2),
    (0.05, 0.3, -0.1),
    (0.0, -0.05, 0.35),
    (-0.1, 0.25, 0.2),
    (0.2, 0.1, 0.3),
)

SHAPES: dict[int, dict[str, bd.model.Shape]] = {
    2: {
        "circle": bd.Circle(0.25),
        "box": bd.Box(0.5, 0.3),
        "triangle": bd.Polygon(TRIANGLE),
        "pentagon": bd.Polygon(PENTAGON),
        "plane": bd.HalfSpace((0.2, 1.0), 0.1),
    },
    3: {
        "sphere": bd.Sphere(0.25),
        "capsule": bd.Capsule(0.12, 0.4),
        "box": bd.Box(0.5, 0.3, 0.4),
        "cylinder": bd.Cylinder(0.22, 0.35),
        "convex": bd.Convex(ROCK),
        "plane": bd.HalfSpace((0.2, -0.1, 1.0), 0.1),
    },
}  # fmt: skip

NOT_NEGATIVE = ("stiffness", "damping", "armature", "friction", "restitution", "softness", "joint_friction")
LEAST = 0.05


def at(dim: int, x: float, height: float) -> tuple[float, ...]:
    """A place (or direction) in the vertical plane."""
    return (x, height) if dim == 2 else (x, 0.0, height)


def ground(dim: int, gravity: tuple[float, ...] | None = None, **material: float) -> bd.Scene:
    """A scene with a level floor at height 0."""
    scene = bd.Scene(dim, gravity=gravity)
    scene.add_static(bd.HalfSpace(at(dim, 0.0, 1.0)), **material)
    return scene


def rolled(model: bd.Model, dt: float, **options) -> bd.Simulator:
    """Kernels that know all kinds of pairs of shapes, also those that the model has not: all models share them."""
    sim = bd.Simulator(model, dt, specialize=False, **options)
    kernels = sim._program.kernels
    kernels.tables = kernels.tables._replace(kinds=tuple(range(len(PAIRS[model.dim]))))
    return sim


def pairs(dim: int) -> list[tuple[str, str]]:
    """All pairs of shapes of which not both are planes."""
    names = list(SHAPES[dim])
    return [(a, b) for i, a in enumerate(names) for b in names[i:] if a != "plane"]


@functools.cache
def pair_model(dim: int, a: str, b: str, gravity: bool = True, static: bool = False) -> bd.Model:
    """Two bodies of these shapes that move freely (a plane, or with `static` the second, is fixed in the world)."""
    scene = bd.Scene(dim, gravity=None if gravity else (0.0,) * dim)
    for k, name in enumerate((a, b)):
        material = {"friction": 0.1 + 0.2 * k, "restitution": 0.0, "softness": 0.0}
        if name == "plane" or (static and k == 1):
            scene.add_static(SHAPES[dim][name], name="static", **material)
            continue
        com = (0.03, -0.02, 0.01)[:dim]
        inertia = 0.05 if dim == 2 else random_inertia(np.random.default_rng(k), 1.0)
        body = scene.add_body(f"body{k}", mass=1.0 + 0.7 * k, com=com, inertia=inertia, **material)
        turned = {"angle": 0.2} if dim == 2 else {"quaternion": (0.8, 0.2, 0.4, -0.4)}
        scene.add_shape(body, SHAPES[dim][name], position=(0.02, 0.01, -0.03)[:dim], **turned)
    return scene.build()


def poses(rng: np.random.Generator, dim: int, samples: int) -> np.ndarray:
    """Random poses about the origin: [samples, 3 or 7]."""
    if dim == 2:
        return np.column_stack([np.zeros((samples, 2)), rng.uniform(-3, 3, samples)])
    return np.array([[0.0, 0.0, 0.0, *random_quaternion(rng)] for _ in range(samples)])


def touching_states(
    model: bd.Model, samples: int, seed: int = 0, depth: tuple[float, float] = (-0.01, 0.01), speed: float = 1.0
) -> tuple[Tensor, Tensor]:
    """States of a `pair_model` in which the two approach each other; q [S, nq], v [S, nv].

    depth: the range of penetrations (negative: gaps), m, along the direction in which the first is moved.
    """
    dim, rng, free = model.dim, np.random.default_rng([seed, samples]), model.nbody
    probe = rolled(model, 1e-6)
    unit = parameters(model, 65 * samples, "restitution")  # not that they matter: the gradients' kernel is ready
    q = np.concatenate([poses(rng, dim, samples) for _ in range(free)], 1)
    away = rng.normal(size=(samples, dim))
    away /= np.linalg.norm(away, axis=1, keepdims=True)
    if free == 1:  # away from a plane
        normal = np.array(model_normal(model))
        away = np.where((away @ normal)[:, None] < 0.3, away + 2.0 * normal, away)
        away /= np.linalg.norm(away, axis=1, keepdims=True)
    near, far = np.full(samples, 0.0), np.full(samples, 2.0)
    for _ in range(3):
        trial = np.linspace(near, far, 65)  # [65, S]
        moved = np.repeat(q[None], 65, 0)
        moved[:, :, :dim] += trial[..., None] * away
        flat = torch.tensor(moved.reshape(-1, model.nq))
        start = bd.State(flat, torch.zeros(len(flat), model.nv, dtype=flat.dtype))
        status = probe.rollout(start, steps=1, parameters=unit).status
        inside = (status.depth.reshape(65, samples) > 0.0).numpy()
        last = np.where(inside.any(0), 64 - inside[::-1].argmax(0), 0)
        each = np.arange(samples)
        near, far = trial[last, each], trial[np.minimum(last + 1, 64), each]
    q[:, :dim] += (0.5 * (near + far) - rng.uniform(*depth, samples))[:, None] * away
    v = speed * rng.normal(size=(samples, model.nv))
    v[:, :dim] -= 3.0 * speed * away
    return torch.tensor(q), torch.tensor(v)


def model_normal(model: bd.Model) -> tuple[float, ...]:
    shape = SHAPES[model.dim]["plane"]
    n = np.array(shape.normal, float)
    return tuple(n / np.linalg.norm(n))


def parameters(model: bd.Model, samples: int, *names: str, spread: float = 0.0, seed: int = 0) -> dict[str, Tensor]:
    """The model's parameters (all but softness, or those named), for every sample; changed at random by the factor
    1 ± spread.

    What is zero and cannot be negative is set to LEAST: differences go to both sides.
    """
    generator = torch.Generator().manual_seed(seed)
    result = {}
    for name in names or [name for name in model.parameters().names if name != "softness"]:
        x = model.parameter(name).repeat(samples, *[1] * len(model.parameters()[name].shape))
        if name in NOT_NEGATIVE:
            x = torch.where(x == 0.0, LEAST, x)
        # One factor for all of an inertia: its moments must satisfy the triangle inequality.
        shape = (samples, *[1] * (x.ndim - 1)) if name == "inertia" else x.shape
        result[name] = x * (1.0 + spread * (2.0 * torch.rand(shape, generator=generator, dtype=x.dtype) - 1.0))
    return result


def near_limits(
    model: bd.Model, q: Tensor, v: Tensor, seed: int = 0, given: dict[str, Tensor] | None = None
) -> tuple[Tensor, Tensor]:
    """States in which about half of the joints with limits (those given, or the model's) are about to reach one."""
    rng, q, v = np.random.default_rng(seed), q.clone(), v.clone()
    given = parameters(model, len(q), "limit_low", "limit_high") if given is None else given
    low, high = given["limit_low"], given["limit_high"]
    for k, link in enumerate(model.limit_link.tolist()):
        at, dof = int(model.qadr[link]), int(model.vadr[link])
        for s in range(len(q)):
            side = rng.integers(4)
            if side < 2:
                gap, speed = rng.uniform(-0.005, 0.01), rng.uniform(0.5, 2.0)
                q[s, at] = low[s, k] + gap if side == 0 else high[s, k] - gap
                v[s, dof] = -speed if side == 0 else speed
    return q, v


# ---------------------------------------------------------------------------------------------- robots and linkages


@functools.cache
def walker(dim: int, ground: bool = True) -> bd.Model:
    """A body on two legs with many shapes, limits, joint friction, springs and motors, over the ground."""
    scene = bd.Scene(dim)
    if ground:
        scene.add_static(SHAPES[dim]["plane"], friction=0.7)
    scene.add_static(bd.Box(*(0.6, 0.5, 0.4)[:dim]), position=(1.0, 0.2, 0.4)[:dim], friction=0.3)

    def at(x: float, y: float, z: float) -> tuple[float, ...]:
        return (x, z) if dim == 2 else (x, y, z)

    def along(x: float, y: float, z: float) -> dict:
        """Hinges of the plane have no axis."""
        return {} if dim == 2 else {"axis": (x, y, z)}

    scene.add_body("trunk", bd.Box(*at(0.5, 0.3, 0.2)), mass=2.0, position=at(0, 0, 0.9), friction=0.4)
    foot = bd.Circle(0.08) if dim == 2 else bd.Sphere(0.08)
    limb = bd.Box(0.1, 0.35) if dim == 2 else bd.Capsule(0.05, 0.25)
    for k, x in enumerate((-0.2, 0.2)):
        y, passive = 0.1 - 0.2 * k, {"stiffness": 2.0, "damping": 0.1, "armature": 0.02}
        scene.add_body(f"thigh{k}", limb, mass=0.7, position=at(x, y, 0.65), friction=0.5)
        hip = bd.Hinge(limits=(-0.4, 0.5), friction=0.3, **passive, **along(0.1, 1.0, 0.0))
        scene.add_joint(f"hip{k}", hip, parent="trunk", child=f"thigh{k}", anchor=at(x, y, 0.8))
        scene.add_motor(f"hip{k}", joint=f"hip{k}", gear=2.0)
        scene.add_body(f"shin{k}", foot, mass=0.4, position=at(x, y, 0.3), friction=0.9)
        knee = bd.Slider(axis=at(0.1, 0.0, 1.0), limits=(-0.1, 0.15), friction=0.5, **passive)
        scene.add_joint(f"knee{k}", knee, parent=f"thigh{k}", child=f"shin{k}", anchor=at(x, y, 0.5))
        scene.add_motor(f"knee{k}", bd.PositionServo(kp=20.0, kv=0.5), joint=f"knee{k}")
    tail = bd.Polygon(TRIANGLE) if dim == 2 else bd.Convex(ROCK)
    scene.add_body("tail", tail, mass=0.3, position=at(-0.6, 0.0, 0.9), friction=0.6)
    joint = bd.Hinge(damping=0.05) if dim == 2 else bd.Ball(damping=0.05)
    scene.add_joint("tail", joint, parent="trunk", child="tail", anchor=at(-0.3, 0.0, 0.9))
    return scene.build()


@functools.cache
def linkage(dim: int) -> bd.Model:
    """A four-bar loop that carries a body on a rod, another one welded to it, and one that is locked in a direction."""
    scene = bd.Scene(dim)
    passive = {"stiffness": 0.5, "damping": 0.1, "armature": 0.02}
    axis = {} if dim == 2 else {"axis": (0.0, 1.0, 0.0)}

    def at(x: float, z: float) -> tuple[float, ...]:
        return (x, z) if dim == 2 else (x, 0.0, z)

    bar = bd.Box(*((0.5, 0.1) if dim == 2 else (0.5, 0.1, 0.1)))
    scene.add_body("left", bar, mass=1.0, position=at(-0.5, 0.7))
    scene.add_body("top", bar, mass=0.8, position=at(0.0, 1.2))
    scene.add_body("right", bar, mass=1.2, position=at(0.55, 0.7))
    scene.add_joint("a", bd.Hinge(friction=0.2, **passive, **axis), child="left", anchor=at(-0.5, 0.3))
    scene.add_joint("b", bd.Hinge(**passive, **axis), parent="left", child="top", anchor=at(-0.4, 1.2))
    scene.add_joint("c", bd.Hinge(**passive, **axis), child="right", anchor=at(0.5, 0.3))
    scene.add_motor("a", joint="a")
    # In space one hinge of a planar loop is a ball: three would be redundant.
    closing = bd.Hinge() if dim == 2 else bd.Ball()
    scene.add_joint("d", closing, parent="top", child="right", anchor=at(0.5, 1.2))
    small = bd.Circle(0.1) if dim == 2 else bd.Sphere(0.1)
    scene.add_body("bob", small, mass=0.5, position=at(0.0, 2.0))
    scene.add_constraint("rod", bd.Distance(), a="bob", b="top", anchor_a=at(0.05, 2.02), anchor_b=at(0.1, 1.25))
    scene.add_body("stuck", small, mass=0.3, position=at(-0.8, 0.9))
    scene.add_constraint("weld", bd.Weld(), a="stuck", b="left")
    scene.add_body("rail", small, mass=0.6, position=at(2.0, 1.0))
    scene.add_constraint("lock", bd.Lock("x"), a="rail", anchor_a=at(2.05, 1.03))
    scene.add_constraint("upright", bd.Lock("angle" if dim == 2 else "y"), a="rail", b="right")
    for name in ("stuck", "bob"):
        scene.exclude(name, "left")
    return scene.build()


@functools.cache
def random_robot(dim: int, seed: int) -> bd.Model:
    """A floating tree of random joints and shapes (some joints with limits, friction and motors), half of the time with
    a rod or a joint that closes a loop, and a loose body beside it, over the ground."""
    rng = np.random.default_rng([dim, seed])
    scene = ground(dim, friction=rng.uniform(0.2, 0.8))
    names = [name for name in SHAPES[dim] if name != "plane"]
    places: list[np.ndarray] = []

    def add_body(name: str, place: np.ndarray) -> None:
        turned = {"angle": rng.uniform(-3, 3)} if dim == 2 else {"quaternion": random_quaternion(rng)}
        body = scene.add_body(name, mass=rng.uniform(0.5, 2.0), com=0.02 * rng.normal(size=dim), position=place,
                              inertia=0.05 if dim == 2 else random_inertia(rng, 1.0), **turned)  # fmt: skip
        shape = SHAPES[dim][names[rng.integers(len(names))]]
        scene.add_shape(body, shape, position=0.02 * rng.normal(size=dim), friction=rng.uniform(0.2, 0.8))

    def joint() -> bd.model.Joint:
        kind = rng.integers(3)
        passive = {"stiffness": rng.uniform(0.5, 2.0), "damping": 0.1, "armature": 0.02}
        if kind == 2 and dim == 3:
            return bd.Ball(**passive)
        options = {"limits": (-0.3, 0.4)} if rng.random() < 0.6 else {}
        options |= {"friction": rng.uniform(0.1, 0.5)} if rng.random() < 0.5 else {}
        if kind == 0 or dim == 3:
            options |= {"axis": rng.normal(size=dim)}
        return (bd.Slider if kind == 0 else bd.Hinge)(**options, **passive)

    for k in range(4):
        parent = int(rng.integers(k)) if k else None
        start = np.zeros(dim) if parent is None else places[parent]
        step = rng.normal(size=dim)
        places.append(start + 0.5 * step / np.linalg.norm(step))
        add_body(f"link{k}", places[k])
        if parent is not None:
            moves = joint()
            anchor = 0.5 * (start + places[k]) + 0.05 * rng.normal(size=dim)
            scene.add_joint(f"joint{k}", moves, parent=f"link{parent}", child=f"link{k}", anchor=anchor)
            if not isinstance(moves, bd.Ball):
                scene.add_motor(f"motor{k}", joint=f"joint{k}", gear=rng.uniform(0.5, 2.0))
        for j in range(k):
            scene.exclude(f"link{j}", f"link{k}")
    if rng.random() < 0.5:
        ends = {"a": "link3", "b": f"link{rng.integers(3)}"}
        scene.add_constraint("rod", bd.Distance(), **ends, anchor_a=places[3] + 0.1 * rng.normal(size=dim))
    add_body("loose", places[0] + 3.0)
    return scene.build()


def on_the_ground(model: bd.Model, samples: int, seed: int, given: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
    """States of a `random_robot` with given parameters in which the tree and the loose body hit the ground, and some
    joints their limits."""
    rng, up = np.random.default_rng([3, seed]), model.dim - 1
    probe, roots = rolled(model, 1e-6), np.flatnonzero(model.parent < 0).tolist()
    v = torch.tensor(rng.normal(size=(samples, model.nv)))
    q = model.initial_state(batch=samples).q
    if model.nlimit:
        q, v = near_limits(model, q, v, seed, given)
    heights = torch.linspace(0.0, 3.0, 1001, dtype=q.dtype)
    low = q.clone()
    for root in roots:
        trial = q.clone()
        for other in roots:
            trial[:, model.qadr[other] + up] = 0.0 if other == root else 50.0
        trial = trial.repeat_interleave(len(heights), 0)
        trial[:, model.qadr[root] + up] += heights.repeat(samples)
        still = bd.State(trial, torch.zeros(len(trial), model.nv, dtype=q.dtype))
        everywhere = {name: x.repeat_interleave(len(heights), 0) for name, x in given.items()}
        depth = probe.rollout(still, steps=1, parameters=everywhere).status.depth
        inside = (depth[0].reshape(samples, -1) > 0.0).sum(1)
        low[:, model.qadr[root] + up] = heights[inside] + torch.tensor(rng.uniform(-0.005, 0.005, samples))
        v[:, model.vadr[root] + up] -= 1.5
    return low, v


@functools.cache
def chain(
    dim: int, links: int, coordinates: str, ground: float | None = None, length: float = 0.2, bar: float = 0.16,
    tangles: bool = True,
) -> bd.Model:  # fmt: skip
    """Bars on hinges (3D: alternating with balls), that hang from the world at the origin along x.

    ground: its height; length: from joint to joint; tangles: whether links that are no neighbours touch.
    """
    scene = bd.Scene(dim, coordinates=coordinates)
    if ground is not None:
        scene.add_static(bd.HalfSpace(at(dim, 0.0, 1.0), ground), friction=0.4)
    for k in range(links):
        shape = bd.Box(bar, 0.05) if dim == 2 else bd.Box(bar, 0.05, 0.06)
        scene.add_body(f"link{k}", shape, mass=0.5, position=at(dim, length * (k + 0.5), 0.0), friction=0.3)
        hinge = bd.Hinge() if dim == 2 else (bd.Hinge(axis=(0.0, 1.0, 0.0)) if k % 2 == 0 else bd.Ball())
        parent = f"link{k - 1}" if k else None
        scene.add_joint(f"joint{k}", hinge, parent=parent, child=f"link{k}", anchor=at(dim, length * k, 0.0))
        for j in range(0 if tangles else k - 1):
            scene.exclude(f"link{j}", f"link{k}")
    return scene.build()


def _leg(name: str, x: float, y: float) -> str:
    return f"""<body name="{name}" pos="{x} {y} 0"><joint name="{name} hip" axis="0 1 0" stiffness="150" damping="4"/>
    <inertial pos="0 0 -.1" mass="1" diaginertia=".004 .004 .001"/>
    <geom type="capsule" size=".02" fromto="0 0 0 0 0 -.2"/>
    <body name="{name} shank" pos="0 0 -.2"><joint name="{name} knee" axis="0 1 0" stiffness="150" damping="4"/>
    <inertial pos="0 0 -.1" mass=".4" diaginertia=".002 .002 .0005"/>
    <geom name="{name} foot" type="sphere" size=".03" pos="0 0 -.2" contype="1" friction="0.8"/></body></body>"""


QUADRUPED = f"""<mujoco><option timestep="0.002"/><default><geom contype="0" conaffinity="0"/></default><worldbody>
<geom type="plane" size="9 9 1" conaffinity="1" friction="0.8"/><body name="trunk" pos="0 0 .6"><freejoint/>
<inertial pos="0 0 0" mass="8" diaginertia=".1 .3 .35"/><geom type="box" size=".25 .1 .05"/>
{_leg("a", 0.2, 0.12)}{_leg("b", 0.2, -0.12)}{_leg("c", -0.2, 0.12)}{_leg("d", -0.2, -0.12)}</body></worldbody>
<actuator>{"".join(f'<motor joint="{n} {j}"/>' for n in "abcd" for j in ("hip", "knee"))}</actuator></mujoco>"""
