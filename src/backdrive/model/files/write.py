"""Write scenes and states to files."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ...schema.layout import Kind
from ..checks import LARGEST
from ..scene import PLANAR_DOFS, Scene
from ..shapes import PlacedShape
from ..specs import BodySpec, ConstraintSpec, JointSpec, MotorSpec, ShapeMaterial
from ..state import State
from . import SCENE, STATE, VERSION, Entry
from .keys import MATERIAL, SHAPES


def save_scene(scene: Scene, path: str | os.PathLike[str]) -> None:
    """See `Scene.save`."""
    for _, static in scene._separate:
        if static in scene._bodies:
            raise ValueError(f"exclude: {static!r} is the name of a body and of a static shape: rename one of them")
    sections: dict[str, list[Any]] = {
        "statics": [_plain({"name": name, **_shape_entry(placed)}) for name, placed in scene._statics.items()],
        "bodies": [_body_entry(body, scene.dim) for body in scene._bodies.values()],
        "joints": [_joint_entry(spec, scene.dim) for spec in (*scene._joints.values(), *scene._loops.values())],
        "constraints": [_constraint_entry(spec, scene.dim) for spec in scene._constraints.values()],
        "motors": [_motor_entry(spec, scene) for spec in scene._motors.values()],
        "exclude": [list(pair) for pair in (*scene._excluded, *scene._separate)],
    }
    header = {
        "format": SCENE, "version": VERSION, "dim": scene.dim, "gravity": _plain(scene.gravity),
        "combine": scene.combine, "coordinates": scene.coordinates,
    }  # fmt: skip
    _write(path, header, {key: entries for key, entries in sections.items() if entries})


def save_state(state: State, path: str | os.PathLike[str]) -> None:
    """See `State.save`."""
    for name, x in zip(("q", "v"), state, strict=True):
        if x.dtype not in (torch.float64, torch.float32):
            raise TypeError(f"state.{name} must be of dtype float64 or float32 to be saved, got {x.dtype}")
        if not bool(torch.isfinite(x).all()):
            raise ValueError(f"state.{name} has NaN or infinite numbers, which a file cannot have")
        if bool((x.abs() > LARGEST).any()):
            raise ValueError(f"state.{name} has numbers above {LARGEST:g}, which a file cannot have")
    header = {"format": STATE, "version": VERSION, "dtype": str(state.q.dtype).removeprefix("torch.")}
    q, v = (x.detach().cpu().double().tolist() for x in state)
    if state.q.ndim == 1:
        _write(path, {**header, "q": q, "v": v}, {})
    else:
        _write(path, header, {"q": q, "v": v})


def _body_entry(body: BodySpec, dim: int) -> Entry:
    entry: Entry = {"name": body.name, "mass": body.mass, "density": body.density}
    entry |= {"position": body.position[:dim], **_orientation(body.orientation)}
    if body.moving:
        spin = body.angular_velocity[2] if dim == 2 else body.angular_velocity
        entry |= {"velocity": body.velocity[:dim], "angular_velocity": spin}
    entry |= dict(zip(MATERIAL, body.material, strict=True))
    if body.com is not None:
        entry["com"] = body.com[:dim]
    if body.inertia is not None:
        entry["inertia"] = body.inertia[2, 2] if dim == 2 else body.inertia
    entry["shapes"] = [_shape_entry(placed, body.material) for placed in body.shapes]
    return _plain(entry)


def _shape_entry(placed: PlacedShape, material: ShapeMaterial | None = None) -> Entry:
    """The entry of a shape. On a body (which has a material), the default pose and the body's material are left out."""
    shape = placed.shape
    entry = {"type": type(shape).__name__, **{key: getattr(shape, key) for key in SHAPES[type(shape)]}}
    pose = {"position": placed.position[: shape.dim], **_orientation(placed.orientation)}
    own = placed.friction, placed.restitution, placed.softness
    unmoved = {"position": (0.0,) * shape.dim, **_orientation([0.0] if shape.dim == 2 else [1.0, 0.0, 0.0, 0.0])}
    if material is None or repr(pose) != repr(unmoved):
        entry |= pose
    if material is None or own != material:
        entry |= dict(zip(MATERIAL, own, strict=True))
    return entry


def _joint_entry(spec: JointSpec, dim: int) -> Entry:
    entry = {"name": spec.name, **_attributes(spec.joint), "parent": spec.parent, "child": spec.child}
    return _plain({**entry, "anchor": spec.anchor[:dim], "position": spec.position, "velocity": spec.velocity})


def _constraint_entry(spec: ConstraintSpec, dim: int) -> Entry:
    anchors = {"anchor_a": spec.anchor_a[:dim], "anchor_b": spec.anchor_b[:dim]}
    used = dict(list(anchors.items())[: spec.constraint.anchors])
    return _plain({"name": spec.name, **_attributes(spec.constraint), "a": spec.a, "b": spec.b, **used})


def _motor_entry(spec: MotorSpec, scene: Scene) -> Entry:
    planar = scene._joint_kind(spec.joint, f"motor {spec.name!r}") == Kind.PLANAR
    dof = next(name for name, k in PLANAR_DOFS.items() if k == spec.dof) if planar else None
    return _plain({"name": spec.name, **_attributes(spec.motor), "joint": spec.joint, "dof": dof})


def _attributes(thing: Any) -> Entry:
    """The type of a joint, constraint or actuator, and those of its fields that differ from their defaults."""
    entry: Entry = {"type": type(thing).__name__}
    for f in fields(thing):
        value = getattr(thing, f.name)
        if f.name in ("limits", "force_limits"):
            value = [None if x is None or math.isinf(x) else x for x in value or (None, None)]
            if value == [None, None]:
                continue
        if repr(value) != repr(f.default):
            entry[f.name] = value
    return entry


def _orientation(orientation: Iterable[float]) -> Entry:
    values = list(orientation)
    return {"angle": values[0]} if len(values) == 1 else {"quaternion": values}


def _plain(value: Any) -> Any:
    """A value in JSON's types: numbers, lists, strings, objects. Keys whose value is None are left out."""
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items() if item is not None}
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, np.ndarray | torch.Tensor) and value.ndim > 0:
        return [_plain(item) for item in value.tolist()]
    number = float(value)
    if number == math.inf:
        return "infinity"
    if abs(number) > LARGEST:
        raise ValueError(f"a file cannot have numbers above {LARGEST:g}, got {number:g}")
    return number


def _write(path: str | os.PathLike[str], header: Entry, sections: Mapping[str, list[Any]]) -> None:
    """One line for each value of the header and each entry of the sections."""
    parts = [f"  {json.dumps(key)}: {json.dumps(value)}" for key, value in header.items()]
    for key, entries in sections.items():
        rows = ",\n".join(f"    {json.dumps(entry, allow_nan=False)}" for entry in entries)
        parts.append(f"  {json.dumps(key)}: [\n{rows}\n  ]")
    file = Path(path)
    unfinished = file.with_name(f".{file.name}.part")  # an interruption leaves the file unchanged
    unfinished.write_text("{\n" + ",\n".join(parts) + "\n}\n", "utf-8")
    os.replace(unfinished, file)
