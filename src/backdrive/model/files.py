"""Scenes and states as JSON files: readable, versioned, exact, and checked when they are read.

docs/scene_format.md describes the format. Reading executes nothing and opens no other file: a file has nothing but
numbers and names, every one of which is checked, and what is wrong is reported with its place, as ``bodies[3].mass``.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, fields
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ..schema.layout import Kind
from . import checks, joints
from .constraints import Constraint, Distance, Lock, Weld
from .joints import Joint
from .motors import Motor, PositionServo, VelocityServo
from .scene import PLANAR_DOFS, Scene
from .shapes import Box, Capsule, Circle, Convex, Cylinder, HalfSpace, PlacedShape, Polygon, Shape, Sphere
from .state import State
from .tree import BodySpec, ConstraintSpec, JointSpec, Material, MotorSpec

SCENE, STATE, VERSION = "backdrive-scene", "backdrive-state", 1
LARGEST = 1e100
"""Of all numbers in a file, so that their squares and products are numbers, too."""
LARGEST_FILE = 2**28
"""Bytes."""

Entry = dict[str, Any]
Check = Callable[[Any, str], Any]
"""Of a value at a place: the value as the scene takes it; what is wrong raises."""


# ------------------------------------------------------------------------------------------ values


def _number(value: Any, place: str, *, low: float = -math.inf, strict: bool = False, high: float = LARGEST) -> float:
    result = checks.number(value, place, low=low, strict=strict)
    if abs(result) > high:
        raise ValueError(f"{place} must be at most {high:g}, got {result:g}")
    return result


def _friction(value: Any, place: str) -> float:
    return math.inf if value == "infinity" else _not_negative(value, place)


def _vector(value: Any, place: str, sizes: Iterable[int]) -> list[float]:
    """A list of numbers, of one of these lengths."""
    _list(value, place)
    if len(value) not in sizes:
        raise ValueError(f"{place} must have {' or '.join(map(str, sizes))} elements, got {len(value)}")
    return [_number(x, f"{place}[{i}]") for i, x in enumerate(value)]


def _vectors(value: Any, place: str, size: int) -> list[list[float]]:
    _list(value, place)
    return [_vector(row, f"{place}[{i}]", [size]) for i, row in enumerate(value)]


def _coordinates(value: Any, place: str) -> float | list[float]:
    """One number, or those of a joint with several coordinates."""
    return _vector(value, place, (3, 4, 6, 7)) if isinstance(value, list) else _number(value, place)


def _interval(value: Any, place: str) -> tuple[float | None, float | None]:
    """[low, high], where null is no limit."""
    _list(value, place)
    if len(value) != 2:
        raise ValueError(f"{place} must be [low, high], got {len(value)} elements")
    low, high = (None if x is None else _number(x, f"{place}[{i}]") for i, x in enumerate(value))
    return low, high


def _text(value: Any, place: str) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{place} must be a text, got {_shown(value)}")
    return value


def _inertia(value: Any, place: str, dim: int) -> Any:
    return _positive(value, place) if dim == 2 else _vectors(value, place, 3)


def _list(value: Any, place: str) -> list[Any]:
    if not isinstance(value, list):
        raise TypeError(f"{place} must be a list, got {_shown(value)}")
    return value


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


_positive: Check = partial(_number, low=0.0, strict=True)
_not_negative: Check = partial(_number, low=0.0)
_fraction: Check = partial(_number, low=0.0, high=1.0)

# ------------------------------------------------------------------------------------------ keys

SHAPES: dict[type[Shape], dict[str, Check]] = {
    Circle: {"radius": _positive},
    Box: {"sizes": partial(_vector, sizes=(2, 3))},
    Polygon: {"vertices": partial(_vectors, size=2)},
    HalfSpace: {"normal": partial(_vector, sizes=(2, 3)), "offset": _number},
    Sphere: {"radius": _positive},
    Capsule: {"radius": _positive, "length": _positive},
    Cylinder: {"radius": _positive, "length": _positive},
    Convex: {"vertices": partial(_vectors, size=3)},
}
_DRIVE: dict[str, Check] = {
    "damping": _not_negative, "stiffness": _not_negative, "rest": _coordinates, "armature": _not_negative,
}  # fmt: skip
_BOUNDED: dict[str, Check] = {**_DRIVE, "limits": _interval, "friction": _not_negative}
_AXIS: dict[str, Check] = {"axis": partial(_vector, sizes=(2, 3))}
JOINTS: dict[type[Joint], dict[str, Check]] = {
    joint: {
        **(_AXIS if "axis" in joint.__dataclass_fields__ else {}),
        **(_BOUNDED if joint.kind.coordinates.limitable else _DRIVE),
    }
    for joint in joints.JOINTS
}
CONSTRAINTS: dict[type[Constraint], dict[str, Check]] = {
    Distance: {"length": _positive}, Weld: {}, Lock: {"coordinate": _text},
}  # fmt: skip
_MOTOR: dict[str, Check] = {"gear": _number, "limits": _interval, "force_limits": _interval}
MOTORS: dict[type[Motor], dict[str, Check]] = {
    Motor: _MOTOR,
    PositionServo: {**_MOTOR, "kp": _positive, "kv": _not_negative},
    VelocityServo: {**_MOTOR, "kv": _positive},
}
MATERIAL: dict[str, Check] = {"friction": _friction, "restitution": _fraction, "softness": _not_negative}


def _pose_keys(dim: int) -> dict[str, Check]:
    turn: dict[str, Check] = {"angle": _number} if dim == 2 else {"quaternion": partial(_vector, sizes=[4])}
    return {"position": partial(_vector, sizes=[dim]), **turn}


def _body_keys(dim: int) -> dict[str, Check]:
    vector = partial(_vector, sizes=[dim])
    return {
        "name": _text, "mass": _positive, "density": _positive, **_pose_keys(dim), "velocity": vector,
        "angular_velocity": _number if dim == 2 else vector, **MATERIAL, "com": vector,
        "inertia": partial(_inertia, dim=dim), "shapes": _list,
    }  # fmt: skip


# ------------------------------------------------------------------------------------------ reading


def load_scene(path: str | os.PathLike[str]) -> Scene:
    """See `Scene.load`."""
    return _located(path, _scene, SCENE)


def load_state(path: str | os.PathLike[str]) -> State:
    """See `State.load`."""
    return _located(path, _state, STATE)


def _located(path: str | os.PathLike[str], read: Callable[[Entry], Any], format: str) -> Any:
    """Read a file; every error says which file and where in it."""
    file = Path(path)
    if not file.is_file():
        raise FileNotFoundError(f"no such file: {file}")
    if file.stat().st_size > LARGEST_FILE:
        raise ValueError(f"{file}: larger than {LARGEST_FILE // 2**20} MB")
    try:
        with checks.unit_vectors_kept():
            return read(_content(file.read_bytes(), format))
    except (TypeError, ValueError) as error:
        raise ValueError(f"{file}: {error}") from None


def _content(data: bytes, format: str) -> Entry:
    """What the file says, if it is of that format and of a version that is known."""
    what = {SCENE: "scene", STATE: "state"}[format]
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"not a backdrive {what}: byte {error.start} is not UTF-8 text") from None
    try:
        content = json.loads(text, parse_constant=_refuse_constant, parse_int=_integer, object_pairs_hook=_unique)
    except json.JSONDecodeError as error:
        end = "; the file ends there: it is cut off" if error.pos >= len(text.rstrip()) else ""
        raise ValueError(f"line {error.lineno}, column {error.colno}: not valid JSON ({error.msg}{end})") from None
    except RecursionError:
        raise ValueError(f"not a backdrive {what}: lists or objects are nested too deeply") from None
    if not isinstance(content, dict) or content.get("format") != format:
        found = content.get("format") if isinstance(content, dict) else None
        got = "it has no format" if found is None else f"its format is {_shown(found)}"
        raise ValueError(f'not a backdrive {what}: expected an object with "format": "{format}", {got}')
    version = content.get("version")
    if version != VERSION or isinstance(version, bool):
        raise ValueError(f"version: this backdrive reads version {VERSION}, got {_shown(version)}")
    return content


def _refuse_constant(text: str) -> None:
    raise ValueError(f"{text} is no number of JSON")


def _integer(text: str) -> int | float:
    return int(text) if len(text) < 18 else float(text)  # not a million digits


def _unique(pairs: list[tuple[str, Any]]) -> Entry:
    entry: Entry = {}
    for key, value in pairs:
        if key in entry:
            raise ValueError(f"key {_shown(key)} is given twice in one object")
        entry[key] = value
    return entry


def _scene(content: Entry) -> Scene:
    lists = ("statics", "bodies", "joints", "constraints", "motors", "exclude")
    _known_keys(content, "", ["format", "version", "dim", "gravity", "combine", "coordinates", *lists])
    dim = content.get("dim")
    if dim not in (2, 3) or not isinstance(dim, int):
        raise ValueError(f"dim must be 2 or 3, got {_shown(dim)}")
    checks_of: dict[str, Check] = {"gravity": partial(_vector, sizes=[dim]), "combine": _text, "coordinates": _text}
    scene = Scene(dim, **{key: check(content[key], key) for key, check in checks_of.items() if key in content})
    readers = (_add_static, _add_body, _add_joint, _add_constraint, _add_motor, _add_exclusion)
    for key, add in zip(lists, readers, strict=True):
        for i, entry in enumerate(_list(content.get(key, []), key)):
            add(scene, entry, f"{key}[{i}]")
    return scene


def _state(content: Entry) -> State:
    _known_keys(content, "", ["format", "version", "dtype", "q", "v"])
    dtype = content.get("dtype", "float64")
    if dtype not in ("float64", "float32"):
        raise ValueError(f"dtype: expected 'float64' or 'float32', got {_shown(dtype)}")
    q, v = (_rows(content, key) for key in ("q", "v"))
    if q.shape[:-1] != v.shape[:-1]:
        raise ValueError(f"q and v must have the same batch, got shapes {list(q.shape)} and {list(v.shape)}")
    return State(q.to(getattr(torch, dtype)), v.to(getattr(torch, dtype)))


def _rows(content: Entry, key: str) -> torch.Tensor:
    """[n], or [B, n] of a list of lists of the same length."""
    if key not in content:
        raise ValueError(f"{key} is missing")
    value = _list(content[key], key)
    if not any(isinstance(row, list) for row in value):
        return torch.tensor(_vector(value, key, [len(value)]), dtype=torch.float64)
    size = len(_list(value[0], f"{key}[0]"))
    return torch.tensor(_vectors(value, key, size), dtype=torch.float64).reshape(len(value), size)


def _add_static(scene: Scene, entry: Any, place: str) -> None:
    shape, others = _make(entry, place, SHAPES, {"name": _text, **_pose_keys(scene.dim), **MATERIAL})
    _call(place, scene.add_static, shape, **others)


def _add_body(scene: Scene, entry: Any, place: str) -> None:
    values = _checked(entry, place, _body_keys(scene.dim), ["name"])
    name, shapes = values.pop("name"), values.pop("shapes", [])
    _call(place, scene.add_body, name, **values)
    for i, one in enumerate(shapes):
        here = f"{place}.shapes[{i}]"
        shape, others = _make(one, here, SHAPES, {**_pose_keys(scene.dim), **MATERIAL})
        _call(here, scene.add_shape, name, shape, **others)


def _add_joint(scene: Scene, entry: Any, place: str) -> None:
    keys: dict[str, Check] = {
        "name": _text, "parent": _text, "child": _text, "anchor": partial(_vector, sizes=[scene.dim]),
        "position": _coordinates, "velocity": _coordinates,
    }  # fmt: skip
    joint, others = _make(entry, place, JOINTS, keys, ["name", "child"])
    _call(place, scene.add_joint, others.pop("name"), joint, **others)


def _add_constraint(scene: Scene, entry: Any, place: str) -> None:
    anchor = partial(_vector, sizes=[scene.dim])
    keys: dict[str, Check] = {"name": _text, "a": _text, "b": _text, "anchor_a": anchor, "anchor_b": anchor}
    constraint, others = _make(entry, place, CONSTRAINTS, keys, ["name", "a"])
    _call(place, scene.add_constraint, others.pop("name"), constraint, **others)


def _add_motor(scene: Scene, entry: Any, place: str) -> None:
    keys: dict[str, Check] = {"name": _text, "joint": _text, "dof": _text}
    motor, others = _make(entry, place, MOTORS, keys, ["name", "joint"])
    _call(place, scene.add_motor, others.pop("name"), motor, **others)


def _add_exclusion(scene: Scene, entry: Any, place: str) -> None:
    if len(_list(entry, place)) != 2:
        raise ValueError(f"{place} must be a pair of names, got {len(entry)} elements")
    _call(place, scene.exclude, *(_text(name, f"{place}[{i}]") for i, name in enumerate(entry)))


def _make(
    entry: Any, place: str, types: Mapping[Any, Mapping[str, Check]], others: Mapping[str, Check],
    required: Iterable[str] = (),
) -> tuple[Any, Entry]:  # fmt: skip
    """The shape, joint, constraint or motor that an entry describes by its "type", and what else the entry says."""
    _object(entry, place)
    named = {kind.__name__: kind for kind in types}
    if "type" not in entry:
        raise ValueError(f"{place}.type is missing: one of {', '.join(named)}")
    name = _text(entry["type"], f"{place}.type")
    if name not in named:
        raise ValueError(f"{place}.type: " + checks.unknown("type", _shortened(name), named))
    kind = named[name]
    own = types[kind]
    needed = [f.name for f in fields(kind) if f.name in own and f.default is MISSING]
    values = _checked(entry, place, {"type": _text, **own, **others}, [*needed, *required])
    given = {key: values.pop(key) for key in own if key in values}
    del values["type"]
    return (_call(place, Box, *given["sizes"]) if kind is Box else _call(place, kind, **given)), values


def _checked(entry: Any, place: str, keys: Mapping[str, Check], required: Iterable[str]) -> Entry:
    """The values of an entry, each checked."""
    _known_keys(_object(entry, place), f"{place}: ", keys)
    for key in required:
        if key not in entry:
            raise ValueError(f"{place}.{key} is missing")
    return {key: keys[key](value, f"{place}.{key}") for key, value in entry.items()}


def _object(value: Any, place: str) -> Entry:
    if not isinstance(value, dict):
        raise TypeError(f"{place} must be an object {{...}}, got {_shown(value)}")
    return value


def _known_keys(entry: Entry, prefix: str, keys: Iterable[str]) -> None:
    for key in entry:
        if key not in keys:
            raise ValueError(prefix + checks.unknown("key", _shortened(key), keys))


def _shortened(name: str) -> str:
    return name if len(name) <= 60 else name[:57] + "..."


def _call(place: str, function: Callable[..., Any], *args: Any, **values: Any) -> Any:
    """What several values together must satisfy is checked where scenes are made: its errors get their place."""
    try:
        return function(*args, **values)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{place}: {error}") from None


# ------------------------------------------------------------------------------------------ writing


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


def _shape_entry(placed: PlacedShape, material: Material | None = None) -> Entry:
    """On a body, which has a material, poses and materials that are as without saying so are left out."""
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
    """The type of a joint, constraint or motor, and its fields that are not as by default."""
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
    """Numbers, lists and texts, as JSON has them; what is None is left out of objects."""
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
    unfinished = file.with_name(f".{file.name}.part")  # an interrupt leaves the file as it was
    unfinished.write_text("{\n" + ",\n".join(parts) + "\n}\n", "utf-8")
    os.replace(unfinished, file)
