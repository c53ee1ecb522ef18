"""Elements of a compiled MuJoCo model that affect the motion and cannot be represented here."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial

import mujoco
import numpy as np

Array = np.ndarray

_OBJECT = mujoco.mjtObj
_SINGLE = (mujoco.mjtJoint.mjJNT_HINGE, mujoco.mjtJoint.mjJNT_SLIDE)
_SHAPES = ("PLANE", "SPHERE", "CAPSULE", "ELLIPSOID", "CYLINDER", "BOX", "MESH")


def name_of(model: mujoco.MjModel, kind: mujoco.mjtObj, index: int, fallback: str) -> str:
    """The name of an element, or the fallback followed by its number if it has none."""
    return mujoco.mj_id2name(model, kind, index) or f"{fallback}{index}"


def disabled(model: mujoco.MjModel, *flags: str) -> bool:
    """Whether the model disables any of these features (such as "LIMIT"). Older MuJoCo versions lack some flags."""
    bits = (getattr(mujoco.mjtDisableBit, f"mjDSBL_{flag}", None) for flag in flags)
    return any(bit is not None and model.opt.disableflags & int(bit) for bit in bits)


def nonzero(model: mujoco.MjModel, field: str, index: int) -> bool:
    """Whether a field is set for an element; not if this version of MuJoCo lacks the field."""
    return bool(np.any(getattr(model, field)[index])) if hasattr(model, field) else False


def actuator_count(model: mujoco.MjModel) -> int:
    """Number of actuators. Since MuJoCo 4 an actuator may have several controls, which nu counts."""
    return getattr(model, "nactuator", model.nu)


def actuator_fault(model: mujoco.MjModel, i: int) -> str | None:
    """The reason why an actuator is not affine, or not on a hinge or slider; None if it can be represented."""
    joint = model.actuator_trnid[i, 0]
    transmission = mujoco.mjtTrn(model.actuator_trntype[i])
    joints = [joint]
    if transmission == mujoco.mjtTrn.mjTRN_TENDON and fixed_tendon(model, joint):
        joints = tendon_joints(model, joint)
        if nonzero(model, "tendon_actfrclimited", joint):
            return "its tendon limits the total actuator force"
    elif transmission not in (mujoco.mjtTrn.mjTRN_JOINT, mujoco.mjtTrn.mjTRN_JOINTINPARENT):
        return "not on a joint"
    if any(mujoco.mjtJoint(model.jnt_type[joint]) not in _SINGLE for joint in joints):
        return "on a ball or free joint"
    if any(model.jnt_actfrclimited[joint] for joint in joints):
        return "its joint limits the total actuator force"
    if model.actuator_dyntype[i] != mujoco.mjtDyn.mjDYN_NONE:
        return "has dynamics of its own"
    if model.actuator_gaintype[i] != mujoco.mjtGain.mjGAIN_FIXED:
        return "gain is not constant"
    if mujoco.mjtBias(model.actuator_biastype[i]) not in (
        mujoco.mjtBias.mjBIAS_NONE,
        mujoco.mjtBias.mjBIAS_AFFINE,
    ):
        return "bias is not affine"
    if model.actuator_plugin[i] >= 0:
        return "is a plugin"
    for field in ("actuator_damping", "actuator_dampingpoly", "actuator_armature", "actuator_delay"):
        if nonzero(model, field, i):
            return f"has {field.removeprefix('actuator_')}"
    return None


def pulls_tendon(model: mujoco.MjModel, i: int) -> bool:
    """Whether an actuator acts on a tendon."""
    return bool(model.actuator_trntype[i] == mujoco.mjtTrn.mjTRN_TENDON)


def fixed_tendon(model: mujoco.MjModel, i: int) -> bool:
    """Whether a tendon is a linear combination of coordinates, and not a path in space."""
    return bool(model.wrap_type[model.tendon_adr[i]] == mujoco.mjtWrap.mjWRAP_JOINT)


def is_rope(model: mujoco.MjModel, i: int) -> bool:
    """Whether a tendon is a path from site to site, in straight lines, that has limits and no other forces."""
    start = model.tendon_adr[i]
    straight = np.all(model.wrap_type[start : start + model.tendon_num[i]] == mujoco.mjtWrap.mjWRAP_SITE)
    others = ("stiffness", "stiffnesspoly", "damping", "dampingpoly", "frictionloss", "armature")
    forces = any(nonzero(model, f"tendon_{field}", i) for field in others)
    return bool(straight and model.tendon_limited[i] and not forces)


def tendon_joints(model: mujoco.MjModel, i: int) -> list[int]:
    """The joints of a fixed tendon."""
    start = model.tendon_adr[i]
    return [int(x) for x in model.wrap_objid[start : start + model.tendon_num[i]]]


def geom_name(model: mujoco.MjModel, geom: int) -> str:
    """The name of a geom, or a description with its body."""
    name = mujoco.mj_id2name(model, _OBJECT.mjOBJ_GEOM, geom)
    return name or f"geom {geom} of {name_of(model, _OBJECT.mjOBJ_BODY, model.geom_bodyid[geom], 'body')}"


def representable(model: mujoco.MjModel, geom: int) -> bool:
    """Whether a geom has a type that shapes here can have: not a height or signed distance field."""
    return mujoco.mjtGeom(model.geom_type[geom]).name.removeprefix("mjGEOM_") in _SHAPES


def colliding_geoms(model: mujoco.MjModel) -> Array:
    """The pairs of geoms that MuJoCo tests for collision: a symmetric mask [ngeom, ngeom]."""
    body = model.geom_bodyid
    weld = model.body_weldid[body]
    above = model.body_weldid[model.body_parentid[weld]]
    kind, affinity = model.geom_contype, model.geom_conaffinity
    touch = (kind[:, None] & affinity) | (affinity[:, None] & kind) != 0
    touch &= weld[:, None] != weld
    if not disabled(model, "FILTERPARENT"):
        related = (above[:, None] == weld) | (weld[:, None] == above)
        touch &= ~(related & (weld[:, None] != 0) & (weld != 0))
    for signature in model.exclude_signature:
        first, second = signature >> 16, signature & 0xFFFF
        touch &= ~((body[:, None] == first) & (body == second))
        touch &= ~((body[:, None] == second) & (body == first))
    touch[model.pair_geom1, model.pair_geom2] = True
    touch[model.pair_geom2, model.pair_geom1] = True
    return touch


def shape_friction(model: mujoco.MjModel) -> Array:
    """Friction coefficient of each geom, [ngeom]; 0 if it and all geoms that it can touch have condim 1."""
    slippery = model.geom_condim == 1
    alone = slippery & ~(colliding_geoms(model) & ~slippery).any(1)
    return np.where(alone, 0.0, model.geom_friction[:, 0])


def _contact(model: mujoco.MjModel) -> Iterator[str]:
    if not disabled(model, "CONTACT", "CONSTRAINT"):
        for i in np.flatnonzero(colliding_geoms(model).any(1)).tolist():
            if not representable(model, i):
                kind = mujoco.mjtGeom(model.geom_type[i]).name.removeprefix("mjGEOM_").lower()
                yield f"{geom_name(model, i)} (is of type {kind})"


def _friction(model: mujoco.MjModel) -> Iterator[str]:
    """Pairs whose friction is not the larger one of the two geoms'."""
    if disabled(model, "CONTACT", "CONSTRAINT"):
        return
    own = model.geom_friction[:, 0]
    for first, second, friction in zip(model.pair_geom1, model.pair_geom2, model.pair_friction, strict=True):
        if friction[0] != max(own[first], own[second]):
            yield f"pair {geom_name(model, first)}, {geom_name(model, second)}"
    rank = model.geom_priority
    overruled = colliding_geoms(model) & (rank[:, None] > rank) & (own[:, None] < own)
    for i in np.flatnonzero(overruled.any(1)).tolist():
        yield f"{geom_name(model, i)} (its priority)"


def limited_balls(model: mujoco.MjModel) -> Array:
    """The ball joints whose angle is limited: a mask [njnt]."""
    limited: Array = (model.jnt_limited != 0) & (model.jnt_type == int(mujoco.mjtJoint.mjJNT_BALL))
    return limited


def _limit(model: mujoco.MjModel) -> Iterator[str]:
    if not disabled(model, "LIMIT", "CONSTRAINT"):
        for i in np.flatnonzero(limited_balls(model)).tolist():
            yield f"{name_of(model, _OBJECT.mjOBJ_JOINT, i, 'joint')} (is not a hinge or slide)"


def _frictionloss(model: mujoco.MjModel) -> Iterator[str]:
    if not disabled(model, "FRICTIONLOSS", "CONSTRAINT"):
        for i in np.unique(model.dof_jntid[model.dof_frictionloss > 0.0]).tolist():
            if mujoco.mjtJoint(model.jnt_type[i]) not in _SINGLE:
                yield f"{name_of(model, _OBJECT.mjOBJ_JOINT, i, 'joint')} (is not a hinge or slide)"


def is_coupling(model: mujoco.MjModel, i: int) -> bool:
    """Whether an equality is one of joints or of fixed tendons."""
    if model.eq_type[i] == mujoco.mjtEq.mjEQ_JOINT:
        return True
    if model.eq_type[i] != mujoco.mjtEq.mjEQ_TENDON:
        return False
    tendons = [int(x) for x in (model.eq_obj1id[i], model.eq_obj2id[i]) if x >= 0]
    return all(fixed_tendon(model, tendon) for tendon in tendons)


def _equality(model: mujoco.MjModel, couplings: bool = False) -> Iterator[str]:
    """Equalities that are neither connects nor welds: those of joints and fixed tendons, or others."""
    if not disabled(model, "EQUALITY", "CONSTRAINT"):
        for i in np.flatnonzero(model.eq_active0).tolist():
            if mujoco.mjtEq(model.eq_type[i]) in (mujoco.mjtEq.mjEQ_CONNECT, mujoco.mjtEq.mjEQ_WELD):
                continue
            if is_coupling(model, i) != couplings:
                continue
            name = mujoco.mj_id2name(model, _OBJECT.mjOBJ_EQUALITY, i)
            joint = model.eq_type[i] == mujoco.mjtEq.mjEQ_JOINT
            kind = _OBJECT.mjOBJ_JOINT if joint else _OBJECT(model.eq_objtype[i])
            first = mujoco.mj_id2name(model, kind, model.eq_obj1id[i])
            yield name or f"equality{i}" + (f" of {first}" if first else "")


def _tendon(model: mujoco.MjModel, fixed: bool = False) -> Iterator[str]:
    """Tendons with forces: fixed ones, whose forces are linear, and ropes; or others. Those without only measure.

    Actuators on tendons are listed as actuators.
    """
    linear = ("stiffness", "damping", "limited", "frictionloss")
    other = ("stiffnesspoly", "dampingpoly", "armature")
    for i in range(model.ntendon):
        plastic = hasattr(model, "tendon_plasticadr") and model.tendon_plasticadr[i] >= 0
        odd = plastic or any(nonzero(model, f"tendon_{field}", i) for field in other)
        forces = odd or any(nonzero(model, f"tendon_{field}", i) for field in linear)
        known = (fixed_tendon(model, i) and not odd) or is_rope(model, i)
        if forces and known == fixed:
            yield name_of(model, _OBJECT.mjOBJ_TENDON, i, "tendon")


def _actuator(model: mujoco.MjModel) -> Iterator[str]:
    for i in range(actuator_count(model)):
        fault = actuator_fault(model, i)
        if fault:
            yield f"{name_of(model, _OBJECT.mjOBJ_ACTUATOR, i, 'actuator')} ({fault})"


def _tendon_actuator(model: mujoco.MjModel) -> Iterator[str]:
    for i in range(actuator_count(model)):
        if pulls_tendon(model, i) and actuator_fault(model, i) is None:
            yield f"{name_of(model, _OBJECT.mjOBJ_ACTUATOR, i, 'actuator')} (not on a joint)"


def _mocap(model: mujoco.MjModel) -> Iterator[str]:
    for i in np.flatnonzero(model.body_mocapid >= 0).tolist():
        yield name_of(model, _OBJECT.mjOBJ_BODY, i, "body")


def _plugin(model: mujoco.MjModel) -> Iterator[str]:
    for i in np.flatnonzero(model.body_plugin >= 0).tolist():
        yield f"on {name_of(model, _OBJECT.mjOBJ_BODY, i, 'body')}"


def _fluid(model: mujoco.MjModel) -> Iterator[str]:
    for field in ("density", "viscosity"):
        value = getattr(model.opt, field)
        if value != 0.0:
            yield f"option {field}={value:g}"


def _gravcomp(model: mujoco.MjModel) -> Iterator[str]:
    for i in np.flatnonzero(model.body_gravcomp).tolist():
        yield name_of(model, _OBJECT.mjOBJ_BODY, i, "body")


def _flex(model: mujoco.MjModel) -> Iterator[str]:
    for i in range(model.nflex):
        yield name_of(model, _OBJECT.mjOBJ_FLEX, i, "flex")


def _spring(model: mujoco.MjModel) -> Iterator[str]:
    """Springs and dampers that are not linear, or plastic."""
    for i in range(model.njnt):
        dof = model.jnt_dofadr[i]
        plastic = hasattr(model, "jnt_plasticadr") and model.jnt_plasticadr[i] >= 0
        if nonzero(model, "jnt_stiffnesspoly", i) or nonzero(model, "dof_dampingpoly", dof) or plastic:
            yield name_of(model, _OBJECT.mjOBJ_JOINT, i, "joint")


_FINDERS: dict[str, Callable[[mujoco.MjModel], Iterable[str]]] = {
    "contact": _contact,
    "frictionloss": _frictionloss,
    "equality": _equality,
    "tendon": _tendon,
    "actuator": _actuator,
    "mocap": _mocap,
    "plugin": _plugin,
    "flex": _flex,
    "spring": _spring,
}

_SOFT_FINDERS: dict[str, Callable[[mujoco.MjModel], Iterable[str]]] = {
    "limit": _limit,
    "friction": _friction,
    "equality": partial(_equality, couplings=True),
    "tendon": partial(_tendon, fixed=True),
    "actuator": _tendon_actuator,
    "fluid": _fluid,
    "gravcomp": _gravcomp,
}
"""Elements that MuJoCo's physics represents, and rigid physics does not."""

KINDS = tuple(dict.fromkeys((*_FINDERS, *_SOFT_FINDERS, "inertia")))
"""Kinds of elements that ``load(ignore=...)`` accepts."""


def only_soft(model: mujoco.MjModel, ignore: Collection[str]) -> dict[str, list[str]]:
    """The elements of every kind that is not ignored which only MuJoCo's physics represents."""
    found = {kind: list(find(model)) for kind, find in _SOFT_FINDERS.items() if kind not in ignore}
    return {kind: names for kind, names in found.items() if names}


def refuse_unsupported(
    model: mujoco.MjModel, others: Mapping[str, Iterable[str]], ignore: Sequence[str], name: str
) -> None:
    """Raise one error that lists every element of every kind that is neither supported nor ignored.

    others: elements of further kinds, found by the caller.
    """
    found = {kind: list(find(model)) for kind, find in _FINDERS.items()}
    found |= {kind: list(names) for kind, names in others.items()}
    found = {kind: names for kind, names in found.items() if names and kind not in ignore}
    if found:
        lines = "\n".join(f"  {kind}: {', '.join(names)}" for kind, names in found.items())
        raise ValueError(
            f"{name} has elements that are not supported:\n{lines}\n"
            f"To load it without them: load(..., ignore={(*ignore, *found)!r})"
        )
