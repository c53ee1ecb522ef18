"""From the arrays of a compiled MuJoCo model to links, actuators, shapes and constraints."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace

import mujoco
import numpy as np

from ..schema.layout import EqualityKind, Kind
from .actuators import Bias, Motor, kind_of, motor_record
from .links import Equality, Inertial, LinkActuator, LinkSpec, WorldParts, pack
from .model import Model
from .read_looks import read_keyframes, read_looks
from .read_soft import SoftSources, apply_override, read_soft
from .rotations import about_axis, from_quaternion
from .shapes import Box, Capsule, Convex, Cylinder, Ellipsoid, HalfSpace, PlacedShape, Shape, Sphere
from .unsupported import (
    actuator_count,
    actuator_fault,
    disabled,
    geom_name,
    limited_balls,
    pulls_tendon,
    representable,
    shape_friction,
)

Array = np.ndarray

_KINDS = {
    mujoco.mjtJoint.mjJNT_FREE: Kind.FREE,
    mujoco.mjtJoint.mjJNT_BALL: Kind.BALL,
    mujoco.mjtJoint.mjJNT_SLIDE: Kind.SLIDER,
    mujoco.mjtJoint.mjJNT_HINGE: Kind.HINGE,
}


def convert(
    model: mujoco.MjModel,
    inertials: Mapping[str, Inertial],
    timestep: float | None,
    motors: Motor | None,
    ignore: Collection[str],
    *,
    urdf: bool = False,
) -> Model:
    """A Model with MuJoCo's coordinates. Elements that it cannot represent must have been refused before.

    inertials: by body name, replace those of the MuJoCo model. motors: drive the joints that have no motor.
    ignore: kinds of elements to leave out, of contact, limit, frictionloss, equality. urdf: whether the file is a URDF.
    """
    apply_override(model)
    if model.nbody == 1:
        raise ValueError("there are no bodies in this file")
    links, joint_links, body_links = _links(model, inertials)
    if "limit" not in ignore and not disabled(model, "LIMIT", "CONSTRAINT"):
        for joint in np.flatnonzero((model.jnt_limited != 0) & ~limited_balls(model)).tolist():
            links[joint_links[joint]].limits = tuple(model.jnt_range[joint].tolist())
    if "frictionloss" not in ignore and not disabled(model, "FRICTIONLOSS", "CONSTRAINT"):
        for joint, link in enumerate(joint_links):
            if links[link].kind.coordinates.limitable:
                links[link].friction = float(model.dof_frictionloss[model.jnt_dofadr[joint]])
    statics: tuple[PlacedShape, ...] = ()
    touching: list[tuple[int, int]] = []
    rows: dict[int, int] = {}
    if "contact" not in ignore and not disabled(model, "CONTACT", "CONSTRAINT"):
        rows = {geom: i for i, geom in enumerate(shape_geoms(model))}
        statics, touching = _add_shapes(model, links, body_links)
    actuators = [
        i
        for i in range(actuator_count(model))
        if actuator_fault(model, i) is None and not (pulls_tendon(model, i) and "actuator" in ignore)
    ]
    equalities: list[Equality] = []
    if "equality" not in ignore and not disabled(model, "EQUALITY", "CONSTRAINT"):
        equalities = _equalities(model, body_links)
    parts = WorldParts(
        dim=3,
        links=links,
        actuators=_actuators(model, joint_links, actuators, motors),
        gravity=np.zeros(3) if disabled(model, "GRAVITY") else model.opt.gravity.copy(),
        timestep=timestep,
        statics=statics,
        excluded=_excluded(model),
        equalities=equalities,
        touching=touching,
        parents_touch=disabled(model, "FILTERPARENT"),
        combine="max",
        soft=read_soft(
            model,
            SoftSources(links, joint_links, body_links, shape_geoms(model), equalities, actuators, ignore),
        ),
        looks=read_looks(model, body_links, rows, urdf),
        keyframes=read_keyframes(model),
    )
    return pack(parts)


def _links(model: mujoco.MjModel, inertials: Mapping[str, Inertial]) -> tuple[list[LinkSpec], list[int], list[int]]:
    """All links, the link of each joint, and that of each body. Body 0 is the world, its link -1."""
    bodies = _names(model, mujoco.mjtObj.mjOBJ_BODY, model.nbody, "body")
    joints = _names(model, mujoco.mjtObj.mjOBJ_JOINT, model.njnt, "joint")
    links: list[LinkSpec] = []
    joint_links: list[int] = []
    link_of_body = [-1]
    for body in range(1, model.nbody):
        parent = link_of_body[model.body_parentid[body]]
        offset, rotation = model.body_pos[body].copy(), from_quaternion(model.body_quat[body])
        start, count = model.body_jntadr[body], model.body_jntnum[body]
        if count == 0:
            links.append(LinkSpec(parent, Kind.FIXED, offset=offset, rotation=rotation))
        for joint in range(start, start + count):
            link = _joint_link(model, joint, parent, offset, rotation)
            link.joint = joints[joint]
            parent = len(links)
            joint_links.append(parent)
            links.append(link)
            # Only the first joint starts from the body's pose in its parent.
            offset, rotation = np.zeros(3), np.eye(3)
        last = links[-1]
        last.body = bodies[body]
        inertial = inertials.get(bodies[body]) or _inertial(model, body)
        last.mass, last.com, last.inertia = inertial.mass, inertial.com, inertial.inertia
        link_of_body.append(len(links) - 1)
    return links, joint_links, link_of_body


def _joint_link(model: mujoco.MjModel, joint: int, parent: int, offset: Array, rotation: Array) -> LinkSpec:
    """A massless link that moves on one of MuJoCo's joints."""
    kind = _KINDS[mujoco.mjtJoint(model.jnt_type[joint])]
    q, v = model.jnt_qposadr[joint], model.jnt_dofadr[joint]
    positions = slice(q, q + kind.nq)
    dofs = slice(v, v + kind.nv)
    link = LinkSpec(parent, kind)
    link.q0 = model.qpos0[positions].copy()
    link.reference = model.qpos_spring[positions].copy()
    link.stiffness = 0.0 if disabled(model, "SPRING", "PASSIVE") else float(model.jnt_stiffness[joint])
    link.damping = 0.0 if disabled(model, "DAMPER", "PASSIVE") else _uniform(model.dof_damping[dofs])
    link.armature = _uniform(model.dof_armature[dofs])
    if kind == Kind.FREE:
        return link
    axis, anchor, zero = model.jnt_axis[joint].copy(), model.jnt_pos[joint].copy(), link.q0[0]
    link.offset, link.rotation = offset, rotation
    if kind == Kind.SLIDER:
        link.axis = axis
        # In MuJoCo, the body has its modelled pose at q = qpos0, here at q = 0: move the link back by qpos0.
        link.offset = offset - rotation @ axis * zero
        return link
    link.anchor = anchor
    if kind == Kind.HINGE:
        link.axis = axis
        link.rotation = rotation @ about_axis(axis, -zero)
        link.offset = offset + (rotation - link.rotation) @ anchor
    return link


def _inertial(model: mujoco.MjModel, body: int) -> Inertial:
    axes = from_quaternion(model.body_iquat[body])
    inertia = axes @ np.diag(model.body_inertia[body]) @ axes.T
    return Inertial(float(model.body_mass[body]), model.body_ipos[body].copy(), inertia)


def _uniform(values: Array) -> float:
    if np.ptp(values) != 0.0:
        raise ValueError(f"damping and armature must be the same along all axes of a joint, got {values}")
    return float(values[0])


def _actuators(
    model: mujoco.MjModel, joint_links: list[int], chosen: list[int], motors: Motor | None
) -> list[LinkActuator]:
    """The chosen actuators, in MuJoCo's order; then `motors`."""
    count = actuator_count(model)
    names = _names(model, mujoco.mjtObj.mjOBJ_ACTUATOR, count, "motor")
    links = [-1 if pulls_tendon(model, i) else joint_links[model.actuator_trnid[i, 0]] for i in chosen]
    result = [_actuator(model, i, names[i], link) for i, link in zip(chosen, links, strict=True)]
    if motors is None:
        return result
    joints = _names(model, mujoco.mjtObj.mjOBJ_JOINT, model.njnt, "joint")
    driven = {actuator.link for actuator in result}
    for joint, link in enumerate(joint_links):
        if link not in driven and _KINDS[mujoco.mjtJoint(model.jnt_type[joint])] in (Kind.HINGE, Kind.SLIDER):
            motor = motors
            if motors.force_limits == (-np.inf, np.inf) and model.jnt_actfrclimited[joint]:  # a URDF's effort
                motor = replace(motors, force_limits=tuple(model.jnt_actfrcrange[joint].tolist()))
            result.append(LinkActuator(joints[joint], link, 0, motor.kind, motor.record()))
    return result


def _actuator(model: mujoco.MjModel, i: int, name: str, link: int) -> LinkActuator:
    control = model.actuator_ctrladr[i] if hasattr(model, "actuator_ctrladr") else i
    output = model.actuator_outadr[i] if hasattr(model, "actuator_outadr") else i
    gain = float(model.actuator_gainprm[i, 0])
    affine = model.actuator_biastype[i] == mujoco.mjtBias.mjBIAS_AFFINE
    bias: Bias = tuple(model.actuator_biasprm[i, :3].tolist()) if affine else (0.0, 0.0, 0.0)
    limits = force_limits = (-np.inf, np.inf)
    if model.actuator_ctrllimited[control] and not disabled(model, "CLAMPCTRL"):
        limits = tuple(model.actuator_ctrlrange[control].tolist())
    if model.actuator_forcelimited[i]:
        force_limits = tuple(model.actuator_forcerange[i].tolist())
    group = model.actuator_group[i]
    if disabled(model, "ACTUATION") or (0 <= group < 31 and model.opt.disableactuator >> group & 1):
        force_limits = (0.0, 0.0)  # the control exists, but has no effect
    record = motor_record(float(model.actuator_gear[output, 0]), gain, bias, limits, force_limits)
    return LinkActuator(name, link, 0, kind_of(gain, bias), record)


def _add_shapes(
    model: mujoco.MjModel, links: list[LinkSpec], body_links: list[int]
) -> tuple[tuple[PlacedShape, ...], list[tuple[int, int]]]:
    """Give the links their shapes. Returns the shapes of the world, and the explicit pairs (numbers of shapes)."""
    friction, chosen = shape_friction(model), shape_geoms(model)
    placed: dict[int, list[PlacedShape]] = {}
    for geom in chosen:
        placed.setdefault(int(model.geom_bodyid[geom]), []).append(_placed(model, geom, float(friction[geom])))
    for body, shapes in placed.items():
        if body > 0:
            links[body_links[body]].shapes = tuple(shapes)
    number = {geom: i for i, geom in enumerate(chosen)}
    explicit = zip(model.pair_geom1.tolist(), model.pair_geom2.tolist(), strict=True)
    return tuple(placed.get(0, ())), [(number[a], number[b]) for a, b in explicit if a in number and b in number]


def shape_geoms(model: mujoco.MjModel) -> list[int]:
    """The geoms that become shapes, in the order of a Model: the shapes of the world come last."""
    may_touch = (model.geom_contype != 0) | (model.geom_conaffinity != 0)
    may_touch[[*model.pair_geom1, *model.pair_geom2]] = True
    chosen = [g for g in np.flatnonzero(may_touch).tolist() if representable(model, g)]
    return sorted(chosen, key=lambda g: (model.geom_bodyid[g] == 0, g))


def _placed(model: mujoco.MjModel, geom: int, friction: float) -> PlacedShape:
    name = mujoco.mj_id2name(model, mujoco.mjtObj.mjOBJ_GEOM, geom)
    try:
        shape = _shape(model, geom)
    except ValueError as error:
        raise ValueError(f"{geom_name(model, geom)}: {error}; ignore=('contact',) leaves all shapes out") from None
    return PlacedShape(
        shape,
        tuple(model.geom_pos[geom].tolist()),
        tuple(map(tuple, from_quaternion(model.geom_quat[geom]).tolist())),
        friction,
        name=name,
        contype=int(model.geom_contype[geom]),
        conaffinity=int(model.geom_conaffinity[geom]),
    )


def _shape(model: mujoco.MjModel, geom: int) -> Shape:
    a, b, c = model.geom_size[geom].tolist()
    makers: dict[mujoco.mjtGeom, Callable[[], Shape]] = {
        mujoco.mjtGeom.mjGEOM_PLANE: lambda: HalfSpace((0.0, 0.0, 1.0)),
        mujoco.mjtGeom.mjGEOM_SPHERE: lambda: Sphere(a),
        mujoco.mjtGeom.mjGEOM_CAPSULE: lambda: Capsule(a, 2.0 * b),
        mujoco.mjtGeom.mjGEOM_ELLIPSOID: lambda: Ellipsoid(a, b, c),
        mujoco.mjtGeom.mjGEOM_CYLINDER: lambda: Cylinder(a, 2.0 * b),
        mujoco.mjtGeom.mjGEOM_BOX: lambda: Box(2.0 * a, 2.0 * b, 2.0 * c),
        mujoco.mjtGeom.mjGEOM_MESH: lambda: Convex(_hull_vertices(model, model.geom_dataid[geom])),
    }
    return makers[mujoco.mjtGeom(model.geom_type[geom])]()


def _hull_vertices(model: mujoco.MjModel, mesh: int) -> Array:
    """Vertices of a mesh [n, 3]: only those of its hull, if MuJoCo computed it."""
    start = model.mesh_vertadr[mesh]
    vertices = model.mesh_vert[start : start + model.mesh_vertnum[mesh]].astype(np.float64)
    graph = model.mesh_graphadr[mesh]
    if graph < 0:
        return vertices
    # A graph has the numbers of vertices and of faces, one integer per vertex, the vertices' indices in the mesh, ...
    count = model.mesh_graph[graph]
    return vertices[model.mesh_graph[graph + 2 + count : graph + 2 + 2 * count]]


def _equalities(model: mujoco.MjModel, body_links: list[int]) -> list[Equality]:
    """The equations of active connects (3 of kind ALONG) and welds (3 ALONG, 3 ABOUT)."""
    names = _names(model, mujoco.mjtObj.mjOBJ_EQUALITY, model.neq, "equality")
    result = []
    for i in np.flatnonzero(model.eq_active0).tolist():
        weld = model.eq_type[i] == mujoco.mjtEq.mjEQ_WELD
        if not weld and model.eq_type[i] != mujoco.mjtEq.mjEQ_CONNECT:
            continue
        first, second, data = model.eq_obj1id[i], model.eq_obj2id[i], model.eq_data[i]
        if model.eq_objtype[i] == mujoco.mjtObj.mjOBJ_SITE:
            axes = [from_quaternion(model.site_quat[site]) for site in (first, second)]
            relative = axes[0] @ axes[1].T
            points = model.site_pos[first].copy(), model.site_pos[second].copy()
            first, second = model.site_bodyid[first], model.site_bodyid[second]
        elif weld:  # in the data of a weld, the point of the second body comes first
            points, relative = (data[3:6].copy(), data[:3].copy()), from_quaternion(data[6:10])
        else:
            points, relative = (data[:3].copy(), data[3:6].copy()), np.eye(3)
        for kind in (EqualityKind.ALONG, EqualityKind.ABOUT) if weld else (EqualityKind.ALONG,):
            for direction in np.eye(3):
                a, b = body_links[first], body_links[second]
                result.append(Equality(names[i], kind, a, b, *points, direction, relative))
    return result


def _excluded(model: mujoco.MjModel) -> tuple[tuple[str, str], ...]:
    bodies = _names(model, mujoco.mjtObj.mjOBJ_BODY, model.nbody, "body")
    return tuple((bodies[s >> 16], bodies[s & 0xFFFF]) for s in model.exclude_signature.tolist())


def _names(model: mujoco.MjModel, kind: mujoco.mjtObj, count: int, prefix: str) -> list[str]:
    """Names of all elements of a kind. Elements without a name get one from their number."""
    given = [mujoco.mj_id2name(model, kind, i) for i in range(count)]
    while any(f"{prefix}{i}" in given for i in range(count)):
        prefix += "_"
    return [name or f"{prefix}{i}" for i, name in enumerate(given)]
