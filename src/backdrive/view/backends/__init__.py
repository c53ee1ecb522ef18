"""Where a `Staging` is shown. Each backend is one module of this package, and adding a file adds a backend.

A backend has one function, ``show(stage, **options)``, that shows a stage and returns what the user keeps: a film, a
server, something that a notebook displays. It takes all that it needs from the stage, which is plain numpy, and imports
its own optional packages when it is imported; if one is missing, it says what to install.
"""

from __future__ import annotations

import importlib
import pkgutil
from typing import Any, Protocol, cast

from ...model import checks
from ..stage import Staging


class ViewBackend(Protocol):
    """A module that shows stages."""

    def show(self, stage: Staging, *film: Any, **options: Any) -> Any:
        """Show a stage. film: `FilmOptions`, of those that make films; the options are the backend's own."""


def names() -> tuple[str, ...]:
    """The names of all backends."""
    return tuple(module.name for module in pkgutil.iter_modules(__path__))


def find(name: str) -> ViewBackend:
    """The backend of a name."""
    if name not in names():
        raise ValueError(checks.unknown("backend", name, names()))
    return cast(ViewBackend, importlib.import_module(f".{name}", __name__))
