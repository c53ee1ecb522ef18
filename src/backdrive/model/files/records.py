"""Records (dataclasses and named tuples) as JSON, with their arrays beside it: for files of trajectories.

A record is ``{"record": name, "fields": {...}}``, an array ``{"array": key}``, a number that JSON has not
``{"number": "inf"}``; tuples are lists. Only records that the reader lists can be read: a file makes nothing else.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

Array = np.ndarray


class Writer:
    """Turns values into JSON; `arrays` has those that came along, by their keys. Equal objects share one."""

    def __init__(self, known: Mapping[str, type]) -> None:
        self._known = {cls: name for name, cls in known.items()}
        self.arrays: dict[str, Array] = {}
        self._keys: dict[int, str] = {}
        self._kept: list[Any] = []  # so that no id is used twice

    def value(self, given: Any, place: str) -> Any:
        """The JSON of a value; place: what it is called in errors, and the key of arrays."""
        if given is None or isinstance(given, bool | str | int):
            return given
        if isinstance(given, float | np.floating | np.integer | np.bool_):
            number = given.item() if isinstance(given, np.generic) else given
            if isinstance(number, float) and not math.isfinite(number):
                return {"number": repr(number)}
            return number
        if isinstance(given, np.ndarray):
            return self._array(given, place)
        if type(given) in self._known:
            fields = {name: self.value(getattr(given, name), f"{place}.{name}") for name in _fields(type(given))}
            return {"record": self._known[type(given)], "fields": fields}
        if isinstance(given, list | tuple) and type(given) in (list, tuple):
            return [self.value(each, f"{place}.{i}") for i, each in enumerate(given)]
        raise TypeError(f"{place} cannot be saved: it is a {type(given).__name__}")

    def _array(self, given: Array, place: str) -> dict[str, str]:
        if id(given) not in self._keys:
            self._keys[id(given)] = place
            self._kept.append(given)
            self.arrays[place] = given
        return {"array": self._keys[id(given)]}


class Reader:
    """Turns JSON into values again; array: reads one by its key."""

    def __init__(self, known: Mapping[str, type], array: Callable[[str], Array]) -> None:
        self._known, self._array = known, array

    def value(self, given: Any, place: str) -> Any:
        if given is None or isinstance(given, bool | str | int | float):
            return given
        if isinstance(given, list):
            return tuple(self.value(each, f"{place}.{i}") for i, each in enumerate(given))
        if isinstance(given, dict) and set(given) == {"number"} and given["number"] in ("inf", "-inf", "nan"):
            return float(given["number"])
        if isinstance(given, dict) and set(given) == {"array"} and isinstance(given["array"], str):
            return self._array(given["array"])
        if isinstance(given, dict) and set(given) == {"record", "fields"} and isinstance(given["fields"], dict):
            return self._record(given["record"], given["fields"], place)
        raise ValueError(f"{place} is not a value: {str(given)[:60]!r}")

    def _record(self, name: Any, given: Mapping[str, Any], place: str) -> Any:
        if not isinstance(name, str) or name not in self._known:
            raise ValueError(f"{place} is of the unknown kind {name!r}")
        cls = self._known[name]
        fields = _fields(cls)
        if wrong := [field for field in given if field not in fields]:
            raise ValueError(f"{place} has the unknown field {wrong[0]!r}")
        values = {field: self.value(value, f"{place}.{field}") for field, value in given.items()}
        if missing := [field for field, default in fields.items() if not default and field not in values]:
            raise ValueError(f"{place} has no field {missing[0]!r}")
        if not dataclasses.is_dataclass(cls):
            return cls(**values)
        made = object.__new__(cls)  # as it was: constructors may take other arguments than the fields
        for field in dataclasses.fields(cls):
            if field.name not in values:
                factory = field.default_factory
                values[field.name] = field.default if factory is dataclasses.MISSING else factory()
            object.__setattr__(made, field.name, values[field.name])
        return made


def _fields(cls: type) -> dict[str, bool]:
    """The fields of a record, and whether each has a default."""
    if not dataclasses.is_dataclass(cls):
        defaults = cls._field_defaults  # type: ignore[attr-defined]  # a named tuple
        return {name: name in defaults for name in cls._fields}  # type: ignore[attr-defined]
    missing = dataclasses.MISSING
    return {
        field.name: field.default is not missing or field.default_factory is not missing
        for field in dataclasses.fields(cls)
    }
