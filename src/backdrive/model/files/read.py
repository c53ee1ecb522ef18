"""Read scenes and states from files.

Reading executes nothing and opens no other file: a file has nothing but numbers and names, every one of which is
checked, and errors name the place, such as ``bodies[3].mass``.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, fields
from functools import partial
from pathlib import Path
from typing import Any

import torch

from .. import checks
from ..scene import Scene
from ..shapes import Box
from ..state import State
from . import LARGEST_FILE, SCENE, STATE, VERSION, Entry
from .keys import CONSTRAINTS, JOINTS, MATERIAL, MOTORS, SHAPES, body_keys, pose_keys
from .values import Check, array, coordinates, shown, string, vector, vectors


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
    """The content of a file, if it has the given format and a known version."""
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
        got = "it has no format" if found is None else f"its format is {shown(found)}"
        raise ValueError(f'not a backdrive {what}: expected an object with "format": "{format}", {got}')
    version = content.get("version")
    if version != VERSION or isinstance(version, bool):
        raise ValueError(f"version: this backdrive reads version {VERSION}, got {shown(version)}")
    return content


def _refuse_constant(text: str) -> None:
    """Called for NaN and Infinity, which Python's parser would accept."""
    raise ValueError(f"{text} is no number of JSON")


def _integer(text: str) -> int | float:
    return int(text) if len(text) < 18 else float(text)  # int() of millions of digits would take forever


def _unique(pairs: list[tuple[str, Any]]) -> Entry:
    """An object of the file, whose keys must be unique."""
    entry: Entry = {}
    for key, value in pairs:
        if key in entry:
            raise ValueError(f"key {shown(key)} is given twice in one object")
        entry[key] = value
    return entry


def _scene(content: Entry) -> Scene:
    lists = ("statics", "bodies", "joints", "constraints", "motors", "exclude")
    _known_keys(content, "", ["format", "version", "dim", "gravity", "combine", "coordinates", *lists])
    dim = content.get("dim")
    if dim not in (2, 3) or not isinstance(dim, int):
        raise ValueError(f"dim must be 2 or 3, got {shown(dim)}")
    checks_of: dict[str, Check] = {"gravity": partial(vector, sizes=[dim]), "combine": string, "coordinates": string}
    scene = Scene(dim, **{key: check(content[key], key) for key, check in checks_of.items() if key in content})
    readers = (_add_static, _add_body, _add_joint, _add_constraint, _add_motor, _add_exclusion)
    for key, add in zip(lists, readers, strict=True):
        for i, entry in enumerate(array(content.get(key, []), key)):
            add(scene, entry, f"{key}[{i}]")
    return scene


def _state(content: Entry) -> State:
    _known_keys(content, "", ["format", "version", "dtype", "q", "v"])
    dtype = content.get("dtype", "float64")
    if dtype not in ("float64", "float32"):
        raise ValueError(f"dtype: expected 'float64' or 'float32', got {shown(dtype)}")
    q, v = (_rows(content, key) for key in ("q", "v"))
    if q.shape[:-1] != v.shape[:-1]:
        raise ValueError(f"q and v must have the same batch, got shapes {list(q.shape)} and {list(v.shape)}")
    return State(q.to(getattr(torch, dtype)), v.to(getattr(torch, dtype)))


def _rows(content: Entry, key: str) -> torch.Tensor:
    """A list of numbers as a tensor [n], or a list of lists of the same length as [B, n]."""
    if key not in content:
        raise ValueError(f"{key} is missing")
    value = array(content[key], key)
    if not any(isinstance(row, list) for row in value):
        return torch.tensor(vector(value, key, [len(value)]), dtype=torch.float64)
    size = len(array(value[0], f"{key}[0]"))
    return torch.tensor(vectors(value, key, size), dtype=torch.float64).reshape(len(value), size)


def _add_static(scene: Scene, entry: Any, place: str) -> None:
    shape, others = _make(entry, place, SHAPES, {"name": string, **pose_keys(scene.dim), **MATERIAL})
    _call(place, scene.add_static, shape, **others)


def _add_body(scene: Scene, entry: Any, place: str) -> None:
    values = _checked(entry, place, body_keys(scene.dim), ["name"])
    name, shapes = values.pop("name"), values.pop("shapes", [])
    _call(place, scene.add_body, name, **values)
    for i, one in enumerate(shapes):
        here = f"{place}.shapes[{i}]"
        shape, others = _make(one, here, SHAPES, {**pose_keys(scene.dim), **MATERIAL})
        _call(here, scene.add_shape, name, shape, **others)


def _add_joint(scene: Scene, entry: Any, place: str) -> None:
    keys: dict[str, Check] = {
        "name": string, "parent": string, "child": string, "anchor": partial(vector, sizes=[scene.dim]),
        "position": coordinates, "velocity": coordinates,
    }  # fmt: skip
    joint, others = _make(entry, place, JOINTS, keys, ["name", "child"])
    _call(place, scene.add_joint, others.pop("name"), joint, **others)


def _add_constraint(scene: Scene, entry: Any, place: str) -> None:
    anchor = partial(vector, sizes=[scene.dim])
    keys: dict[str, Check] = {"name": string, "a": string, "b": string, "anchor_a": anchor, "anchor_b": anchor}
    constraint, others = _make(entry, place, CONSTRAINTS, keys, ["name", "a"])
    _call(place, scene.add_constraint, others.pop("name"), constraint, **others)


def _add_motor(scene: Scene, entry: Any, place: str) -> None:
    keys: dict[str, Check] = {"name": string, "joint": string, "dof": string}
    motor, others = _make(entry, place, MOTORS, keys, ["name", "joint"])
    _call(place, scene.add_motor, others.pop("name"), motor, **others)


def _add_exclusion(scene: Scene, entry: Any, place: str) -> None:
    if len(array(entry, place)) != 2:
        raise ValueError(f"{place} must be a pair of names, got {len(entry)} elements")
    _call(place, scene.exclude, *(string(name, f"{place}[{i}]") for i, name in enumerate(entry)))


def _make(
    entry: Any, place: str, types: Mapping[Any, Mapping[str, Check]], others: Mapping[str, Check],
    required: Iterable[str] = (),
) -> tuple[Any, Entry]:  # fmt: skip
    """The shape, joint, constraint or actuator that an entry describes by its "type", and the entry's other values.

    types: the keys of each type; others: further keys; required: keys that must be given besides fields without a
    default.
    """
    _object(entry, place)
    named = {kind.__name__: kind for kind in types}
    if "type" not in entry:
        raise ValueError(f"{place}.type is missing: one of {', '.join(named)}")
    name = string(entry["type"], f"{place}.type")
    if name not in named:
        raise ValueError(f"{place}.type: " + checks.unknown("type", _shortened(name), named))
    kind = named[name]
    own = types[kind]
    needed = [f.name for f in fields(kind) if f.name in own and f.default is MISSING]
    values = _checked(entry, place, {"type": string, **own, **others}, [*needed, *required])
    given = {key: values.pop(key) for key in own if key in values}
    del values["type"]
    return (_call(place, Box, *given["sizes"]) if kind is Box else _call(place, kind, **given)), values


def _checked(entry: Any, place: str, keys: Mapping[str, Check], required: Iterable[str]) -> Entry:
    """The checked values of an entry."""
    _known_keys(_object(entry, place), f"{place}: ", keys)
    for key in required:
        if key not in entry:
            raise ValueError(f"{place}.{key} is missing")
    return {key: keys[key](value, f"{place}.{key}") for key, value in entry.items()}


def _object(value: Any, place: str) -> Entry:
    if not isinstance(value, dict):
        raise TypeError(f"{place} must be an object {{...}}, got {shown(value)}")
    return value


def _known_keys(entry: Entry, prefix: str, keys: Iterable[str]) -> None:
    for key in entry:
        if key not in keys:
            raise ValueError(prefix + checks.unknown("key", _shortened(key), keys))


def _shortened(name: str) -> str:
    return name if len(name) <= 60 else name[:57] + "..."


def _call(place: str, function: Callable[..., Any], *args: Any, **values: Any) -> Any:
    """Call a constructor or a method of Scene. Errors about combinations of values come from there; add their place."""
    try:
        return function(*args, **values)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{place}: {error}") from None
