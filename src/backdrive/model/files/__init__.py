"""Scenes and states as JSON files: readable, versioned, exact, and checked when they are read.

docs/scene_format.md describes the format. `values` checks single values, `keys` says which keys entries may have,
`read` and `write` do the rest.
"""

from __future__ import annotations

from typing import Any, TypeAlias

SCENE = "backdrive-scene"
"""The "format" of a scene file."""

STATE = "backdrive-state"
"""The "format" of a state file."""

VERSION = 1
"""The version of both formats that this package writes and reads."""

LARGEST_FILE = 2**28
"""Size (bytes) of the largest file that is read."""

Entry: TypeAlias = dict[str, Any]
"""An object of a file."""
