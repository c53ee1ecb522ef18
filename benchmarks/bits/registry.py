"""The list of scenes: each is a function without arguments that returns arrays by name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

Arrays = dict[str, np.ndarray]
Function = Callable[[], Arrays]


class Skipped(Exception):
    """A scene cannot run here, for example because an optional package is not installed."""


@dataclass(frozen=True)
class Entry:
    """A scene: its function, and a description in one line."""

    function: Function
    description: str


SCENES: dict[str, Entry] = {}


def add(name: str, description: str, function: Function) -> None:
    """Put a scene on the list."""
    if name in SCENES:
        raise ValueError(f"there are two scenes named {name!r}")
    SCENES[name] = Entry(function, description)


def scene(function: Function) -> Function:
    """A decorator that lists a function under its own name; its docstring is the description."""
    name = getattr(function, "__name__", "").replace("_", "-")
    text = (function.__doc__ or "").strip().splitlines()
    add(name, text[0] if text else "", function)
    return function
