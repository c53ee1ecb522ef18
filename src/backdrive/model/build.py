"""Build the model of a scene: its links, its constraint equations, its tables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from ..schema.layout import Kind
from . import checks
from .constraints import WORLD, Frame, joint_equations
from .links import Equality, WorldParts, pack
from .model import Model
from .pairs import Connection
from .specs import BodySpec, ConstraintSpec, JointSpec
from .tree import build_actuators, build_links

if TYPE_CHECKING:
    from .scene import Scene


def build_model(scene: Scene) -> Model:
    """See `Scene.build`."""
    if not scene._bodies:
        raise ValueError("the scene has no bodies: add one with add_body")
    links = build_links(scene.dim, scene._bodies, scene._joints)
    link_of = {str(link.body): i for i, link in enumerate(links)}
    loops, constraints = scene._loops.values(), scene._constraints.values()
    equalities = [row for loop in loops for row in loop_equations(loop, scene.dim, scene._bodies, link_of)]
    equalities += [row for spec in constraints for row in constraint_equations(spec, scene.dim, scene._bodies, link_of)]
    apart = [(s.parent, s.child, s.joint.kind == Kind.FIXED) for s in loops]
    apart += [(s.b, s.a, True) for s in constraints if s.constraint.rigid]
    gravity = np.zeros(3)
    gravity[: scene.dim] = checks.vector(scene.gravity, scene.dim, "gravity")
    parts = WorldParts(
        dim=scene.dim,
        links=links,
        actuators=build_actuators(links, list(scene._motors.values())),
        gravity=gravity,
        statics=tuple(scene._statics.values()),
        excluded=tuple(scene._excluded),
        separate=tuple(scene._separate),
        equalities=equalities,
        connections=[Connection(-1 if a is None else link_of[a], link_of[b], rigid) for a, b, rigid in apart],
        combine=scene.combine,
    )
    return pack(parts)


def constraint_equations(
    spec: ConstraintSpec, dim: int, bodies: Mapping[str, BodySpec], link_of: Mapping[str, int]
) -> list[Equality]:
    """The equations of a constraint; link_of: the link of each body."""
    a, b = _frame(spec.a, bodies, link_of), _frame(spec.b, bodies, link_of)
    return spec.constraint.equations(spec.name, dim, a, b, spec.anchor_a, spec.anchor_b)


def loop_equations(
    spec: JointSpec, dim: int, bodies: Mapping[str, BodySpec], link_of: Mapping[str, int]
) -> list[Equality]:
    """The equations of a joint that closes a loop; link_of: the link of each body."""
    axis = spec.joint.world_axis(dim, f"joint {spec.name!r}")
    parent, child = _frame(spec.parent, bodies, link_of), _frame(spec.child, bodies, link_of)
    return joint_equations(spec.name, dim, spec.joint, axis, parent, child, spec.anchor)


def _frame(body: str | None, bodies: Mapping[str, BodySpec], link_of: Mapping[str, int]) -> Frame:
    if body is None:
        return WORLD
    return Frame(link_of[body], bodies[body].position, bodies[body].rotation)
