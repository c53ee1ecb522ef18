"""The keys that entries of a scene file may have, and the check of each value."""

from __future__ import annotations

from functools import partial

from ..actuators import ACTUATORS, Motor
from ..constraints import Constraint, Distance, Lock, Weld
from ..joints import JOINT_PARAMETERS, Joint
from ..joints import JOINTS as JOINT_CLASSES
from ..ranges import RANGES
from ..shapes import Box, Capsule, Circle, Convex, Cylinder, HalfSpace, Polygon, Shape, Sphere
from . import values
from .values import Check


def _sizes(kind: type[Shape]) -> dict[str, Check]:
    """The sizes of a shape, which are keys of their own."""
    return dict.fromkeys(kind.size_names, values.within(kind.size_range))


SHAPES: dict[type[Shape], dict[str, Check]] = {
    Circle: _sizes(Circle),
    Box: {"sizes": partial(values.vector, sizes=(2, 3))},
    Polygon: {"vertices": partial(values.vectors, size=2)},
    HalfSpace: {"normal": partial(values.vector, sizes=(2, 3)), **_sizes(HalfSpace)},
    **{kind: _sizes(kind) for kind in (Sphere, Capsule, Cylinder)},
    Convex: {"vertices": partial(values.vectors, size=3)},
}
_DRIVE: dict[str, Check] = {
    **{name: values.within(RANGES[parameter]) for name, parameter in JOINT_PARAMETERS.items() if name != "friction"},
    "rest": values.coordinates,
}
_BOUNDED: dict[str, Check] = {
    **_DRIVE, "limits": values.interval, "friction": values.within(RANGES[JOINT_PARAMETERS["friction"]]),
}  # fmt: skip
_AXIS: dict[str, Check] = {"axis": partial(values.vector, sizes=(2, 3))}
JOINTS: dict[type[Joint], dict[str, Check]] = {
    joint: {
        **(_AXIS if "axis" in joint.__dataclass_fields__ else {}),
        **(_BOUNDED if joint.kind.coordinates.limitable else _DRIVE),
    }
    for joint in JOINT_CLASSES
}
CONSTRAINTS: dict[type[Constraint], dict[str, Check]] = {
    Distance: {"length": values.positive}, Weld: {}, Lock: {"coordinate": values.string},
}  # fmt: skip
MOTORS: dict[type[Motor], dict[str, Check]] = {actuator: actuator.file_keys() for actuator in ACTUATORS}
MATERIAL: dict[str, Check] = {name: values.within(RANGES[name]) for name in ("friction", "restitution", "softness")}


def pose_keys(dim: int) -> dict[str, Check]:
    """Keys of a pose."""
    turn: dict[str, Check] = {"angle": values.number} if dim == 2 else {"quaternion": partial(values.vector, sizes=[4])}
    return {"position": partial(values.vector, sizes=[dim]), **turn}


def body_keys(dim: int) -> dict[str, Check]:
    """Keys of an entry of "bodies"."""
    vector = partial(values.vector, sizes=[dim])
    return {
        "name": values.string,
        "mass": values.within(RANGES["mass"]),
        "density": values.positive,
        **pose_keys(dim),
        "velocity": vector,
        "angular_velocity": values.number if dim == 2 else vector,
        **MATERIAL,
        "com": vector,
        "inertia": partial(values.inertia, dim=dim),
        "shapes": values.array,
    }
