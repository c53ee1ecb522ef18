"""Random trees of every kind of joint, random states, and real robots."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from importlib import metadata, util
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import strategies as st

import backdrive as bd
from backdrive.schema.layout import NQ, NV, Kind

KINDS_3D = ("hinge", "slider", "ball", "planar", "free", "fixed")
KINDS_2D = ("hinge", "slider", "planar", "fixed")

# Everything that is not rigid-body dynamics; what a file has of it is left out.
IGNORE = ("contact", "limit", "frictionloss", "equality", "fluid", "tendon", "gravcomp", "inertia")

FLOATING = ("laikago.urdf", "a1.urdf", "go2.urdf", "solo12.urdf", "talos_reduced.urdf", "human.urdf", "icub.urdf")
FIXED_BASE = ("panda.urdf", "ur5_robot.urdf")
URDF = (*FLOATING[:-1], *FIXED_BASE)  # without the badly conditioned iCub
MJCF = (
    "ant.xml", "humanoid.xml", "half_cheetah.xml", "hopper.xml", "walker2d.xml", "swimmer.xml", "reacher.xml",
    "inverted_double_pendulum.xml",
)  # fmt: skip


# ---------------------------------------------------------------------------------------------- random trees


def random_tree(kinds: Sequence[str], seed: int = 0, dim: int = 3, passive: bool = True) -> bd.Model:
    """A tree (or forest) with these joints in this order: random poses, masses, anchors, axes, springs and motors.

    passive: with springs and dampers. Nearly half of the hinges and sliders have a motor, of one of the three kinds
    and with limits.
    """
    rng = np.random.default_rng([seed, len(kinds), dim])
    scene = bd.Scene(dim=dim, gravity=rng.normal(size=dim) * 5.0)
    places: list[np.ndarray] = []
    for i, kind in enumerate(kinds):
        parent = None if i == 0 or kind == "free" or rng.random() < 0.15 else int(rng.integers(max(0, i - 3), i))
        place = (np.zeros(dim) if parent is None else places[parent]) + 0.4 * rng.normal(size=dim)
        places.append(place)
        mass = rng.uniform(0.5, 3.0)
        turned = {"angle": rng.uniform(-3, 3)} if dim == 2 else {"quaternion": random_quaternion(rng)}
        inertia = mass * rng.uniform(0.02, 0.1) if dim == 2 else random_inertia(rng, mass)
        com = 0.15 * rng.normal(size=dim)
        body = scene.add_body(f"body{i}", mass=mass, com=com, inertia=inertia, position=place, **turned)
        scene.add_joint(
            f"joint{i}", random_joint(kind, rng, dim, passive), parent=None if parent is None else f"body{parent}",
            child=body, anchor=place + 0.2 * rng.normal(size=dim),
        )  # fmt: skip
        for dof in {"hinge": [None], "slider": [None], "planar": ["x", "angle"]}.get(kind, []):
            if rng.random() < 0.5:
                scene.add_motor(f"motor{i}{dof or ''}", random_motor(rng), joint=f"joint{i}", dof=dof)
    return scene.build()


def random_joint(kind: str, rng: np.random.Generator, dim: int, passive: bool) -> bd.model.Joint:
    options = {"armature": rng.uniform(0.02, 0.2)}
    if passive and kind != "fixed":
        options |= {"damping": rng.uniform(0.05, 0.5), "stiffness": rng.uniform(0.5, 5.0)}
        rest = rng.normal(size=NQ[Kind[kind.upper()]])
        if kind in ("ball", "free"):
            rest[-4:] = random_quaternion(rng)
        options["rest"] = rest.item() if len(rest) == 1 else rest
    if kind in ("hinge", "slider") and (dim, kind) != (2, "hinge"):
        options["axis"] = rng.normal(size=dim)
    joints = {"hinge": bd.Hinge, "slider": bd.Slider, "ball": bd.Ball, "planar": bd.Planar, "free": bd.Free}
    joints["fixed"] = bd.Fixed
    return joints[kind](**options)


def random_motor(rng: np.random.Generator) -> bd.Motor:
    """With limits of the control or of the force: not of both, or `status.clipped` would not tell all changes."""
    limits = [{}, {"limits": (-1.0, 1.5)}, {"force_limits": (-4.0, 3.0)}][rng.integers(3)]
    options = {"gear": rng.uniform(0.5, 2.0), **limits}
    kind = rng.integers(3)
    if kind == 0:
        return bd.Motor(**options)
    if kind == 1:
        return bd.PositionServo(kp=rng.uniform(1, 5), kv=rng.uniform(0.1, 0.5), **options)
    return bd.VelocityServo(kv=rng.uniform(0.5, 2), **options)


def random_quaternion(rng: np.random.Generator) -> np.ndarray:
    q = rng.normal(size=4)
    return q / np.linalg.norm(q)


def random_inertia(rng: np.random.Generator, mass: float) -> np.ndarray:
    """[3, 3], well inside the triangle inequality."""
    x, y, z = rng.uniform(0.02, 0.1, 3)
    frame, _ = np.linalg.qr(rng.normal(size=(3, 3)))
    return mass * frame @ np.diag([y + z, x + z, x + y]) @ frame.T


def trees(dim: int = 3, max_links: int = 7, passive: bool = True) -> st.SearchStrategy[bd.Model]:
    """For hypothesis: a list of joints and a seed for all their numbers."""
    kinds = st.lists(st.sampled_from(KINDS_3D if dim == 3 else KINDS_2D), min_size=1, max_size=max_links)
    return st.builds(functools.partial(random_tree, dim=dim, passive=passive), kinds, st.integers(0, 2**16))


def all_joints(seed: int = 0, dim: int = 3, passive: bool = True) -> bd.Model:
    """A tree with every kind of joint, in random order, and every kind of motor."""
    kinds = KINDS_3D if dim == 3 else KINDS_2D
    order = np.random.default_rng(seed).permutation([*kinds, "hinge", "slider"]).tolist()
    return random_tree(order, seed, dim, passive)


# ---------------------------------------------------------------------------------------------- states


def random_state(model: bd.Model, batch: int, seed: int = 0, scale: float = 1.0) -> bd.State:
    """States about zero; a scale of 3 is far from it: any orientation, several turns. Quaternions have any length."""
    rng = np.random.default_rng([seed, 1])
    q, v = scale * rng.normal(size=(batch, model.nq)), scale * rng.normal(size=(batch, model.nv))
    for a in quaternions(model):
        q[:, a] = 1.0 + 0.1 * rng.normal(size=batch)
        if scale > 2.0:
            q[:, a : a + 4] = rng.normal(size=(batch, 4))
            q[:, a : a + 4] *= rng.uniform(0.8, 1.2, (batch, 1)) / np.linalg.norm(
                q[:, a : a + 4], axis=1, keepdims=True
            )
    return bd.State(torch.from_numpy(q), torch.from_numpy(v))


def quaternions(model: bd.Model) -> list[int]:
    """Where quaternions start in q."""
    starts = {Kind.BALL: 0, Kind.FREE: 3}
    return [int(a) + starts[kind] for a, kind in zip(model.qadr, model.kind) if kind in starts]


def random_controls(model: bd.Model, *shape: int, seed: int = 0) -> torch.Tensor:
    return torch.from_numpy(2.0 * np.random.default_rng([seed, 2]).normal(size=(*shape, model.nu)))


def random_wrenches(model: bd.Model, *shape: int, seed: int = 0) -> torch.Tensor:
    size = 6 if model.dim == 3 else 3
    return torch.from_numpy(2.0 * np.random.default_rng([seed, 3]).normal(size=(*shape, model.nbody, size)))


def coordinates(model: bd.Model, i: int) -> tuple[slice, slice]:
    """Those of link i in q and in v."""
    a, b, kind = int(model.qadr[i]), int(model.vadr[i]), model.kind[i]
    return slice(a, a + NQ[kind]), slice(b, b + NV[kind])


# ---------------------------------------------------------------------------------------------- real robots


def robot_path(name: str) -> Path:
    """Of a URDF in example-robot-data or a MJCF file in gymnasium; without the package the test is skipped."""
    folder = None
    if name.endswith(".xml"):
        found = util.find_spec("gymnasium")
        folder = Path(str(found.origin)).parent / "envs/mujoco/assets" if found else None
    else:
        try:
            package = metadata.distribution("example-robot-data")
            folder = Path(str(package.locate_file("cmeel.prefix/share/example-robot-data/robots")))
        except metadata.PackageNotFoundError:
            pass
    paths = sorted(folder.rglob(name)) if folder is not None else []
    if not paths:
        pytest.skip(f"{name} is not installed")
    return paths[0]


@functools.cache
def robot(name: str) -> bd.Model:
    return bd.load(robot_path(name), floating=name in FLOATING, ignore=IGNORE)
