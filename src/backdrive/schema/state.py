"""The fields of a state, declared once: whatever handles states loops over `STATE`.

A further field (for example the activation of an actuator) is one more line here, a size of that name on the model, and
a field of `backdrive.State`; the kernels' signatures and the runtime follow.
"""

from __future__ import annotations

from typing import NamedTuple


class StateField(NamedTuple):
    """One field of the state of a world; a tensor [B, size]."""

    name: str
    size: str  # the attribute of a model with the number of coordinates
    tangent: str  # the same for the tangent space, where a quaternion has three coordinates
    unit: str
    meaning: str


STATE = (
    StateField("q", "nq", "nv", "m or rad", "positions of the joints; quaternions have unit length, w first"),
    StateField("v", "nv", "nv", "m/s or rad/s", "velocities of the joints"),
)

NAMES = tuple(field.name for field in STATE)


def state_names(prefix: str = "", suffix: str = "") -> tuple[str, ...]:
    """The names of arguments that there are for every field, for example ("path_q_bar", "path_v_bar")."""
    return tuple(f"{prefix}{name}{suffix}" for name in NAMES)
