"""The joints, one module each: everything that distinguishes a kind of joint in the dynamics.

A joint moves its link relative to the parent by the pose (R, p)(q), with the joint velocity (w, u) = S y: the angular
velocity of the link and the velocity of its origin, relative to the parent and in the link's axes. The motion subspace
S is constant in those axes. y is the generalised velocity v; for the joints whose v has a linear part in the parent's
axes (planar, free), that part is rotated into the link's axes:

    joint velocity       (w, u) = S y
    its rate             S z + (0, drift),   z = v̇ in the link's axes

To add a joint: its code and coordinates in `schema.layout` (`Kind`, `COORDINATES`), its description for users in
`model.joints`, and a module of this package, named like the kind in lower case, whose `JOINT` is a `JointModel`.
"""

from __future__ import annotations

from importlib import import_module

from ....ir import Index
from ....schema.layout import Kind
from .base import JointModel, JointMotion

__all__ = ["FIXED", "JOINTS", "JointModel", "JointMotion", "is_angular"]


def _joint(kind: Kind) -> JointModel:
    """The joint that is defined in the module of its kind."""
    joint: JointModel = import_module(f"{__name__}.{kind.name.lower()}").JOINT
    if joint.kind != kind:
        raise TypeError(f"{type(joint).__name__} has the kind {joint.kind.name}, not that of its module, {kind.name}")
    return joint


JOINTS: tuple[JointModel, ...] = tuple(_joint(kind) for kind in Kind)
"""All joints, in the order of their codes: the cases of a `switch` over the kinds of links."""

FIXED = JOINTS[Kind.FIXED]


_LIMITABLE = {kind: kind.coordinates.angular for kind in Kind if kind.coordinates.limitable}
if _LIMITABLE != {Kind.HINGE: True, Kind.SLIDER: False}:
    raise NotImplementedError(
        "limits and dry friction have rows for hinges and sliders only: extend is_angular and joint_row"
    )


def is_angular(kind: Index) -> Index:
    """1 if the coordinate of a joint that may have limits is an angle (hinge), 0 if it is a length (slider).

    `kind` may be traced; the difference of the codes takes no branch.
    """
    return int(Kind.SLIDER) - kind
