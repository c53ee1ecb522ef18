"""Load a model from a MJCF or URDF file, which MuJoCo parses and compiles, or from a scene file."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

from . import checks
from .actuators import Motor
from .model import Model

if TYPE_CHECKING:
    import mujoco


def load(
    source: str | os.PathLike[str],
    *,
    floating: bool | str = False,
    ignore: Iterable[str] = (),
    fuse: bool = False,
    motors: Motor | bool | None = None,
) -> Model:
    """A model from a MJCF or URDF file or XML string, or from a file that `Scene.save` wrote.

    source: path of the file, or the XML itself (a string that starts with ``<``). The path of a scene file ends in
        .json, and takes none of the other arguments.
    floating: True gives a free joint to the root body that has no joint; the body's name if there are several.
    ignore: kinds of elements to leave out although they affect the motion: contact, limit, frictionloss, equality,
        tendon, actuator, mocap, plugin, fluid, gravcomp, flex, spring (non-linear ones). Elements that cannot be
        represented and are not ignored raise one error that lists them all. Ignoring friction takes, in rigid physics,
        the larger coefficient of two shapes even where a pair or a priority overrides it; ignoring inertia accepts
        inertias of URDF links that no rigid body can have.
    fuse: merge bodies that are rigidly attached to each other, which is faster but loses their names.
    motors: the actuator of hinges and sliders that have none in the file; each is named after its joint, and its force
        is limited by the effort that a URDF file gives. None: a torque motor for URDF files (which have no actuators),
        no actuator for MJCF files. False: none. True: a torque motor.

    q and v of the model are MuJoCo's qpos and qvel, element by element.

    Geoms that can collide become shapes with the first of their friction coefficients, without restitution and
    softness; the friction of a pair is the larger one of its two shapes. Contacts, limits and constraints are rigid:
    margin, gap, solref, solimp, torsional and rolling friction, and the torquescale of a weld have no effect. A geom
    with condim 1 is frictionless only if all geoms that it can touch have condim 1, too. Meshes collide as their convex
    hulls, with at most 64 vertices, and ellipsoids as polyhedra. Limits and frictionloss are supported on hinges and
    sliders, and the equalities connect and weld. Fluids, gravcomp, fixed tendons, limits of ball joints, and equalities
    of joints and tendons are for physics="mujoco" only. With ``Simulator(physics="mujoco")`` all of this is as in
    MuJoCo.
    """
    if _is_scene(source):
        if floating is not False or ignore or fuse or motors is not None:
            raise ValueError(f"{source}: floating, ignore, fuse and motors are for XML files, not for scenes")
        from .files.read import load_scene

        return load_scene(source).build()
    # MuJoCo is imported here, so that users of scenes do not wait for it.
    from .convert import convert
    from .meshes import drop_missing, spare_geoms
    from .unsupported import KINDS, refuse_unsupported
    from .urdf import take_inertials

    kinds = (ignore,) if isinstance(ignore, str) else tuple(ignore)
    for kind in kinds:
        if kind not in KINDS:
            raise ValueError(checks.unknown("kind to ignore", kind, KINDS))
    if not (motors is None or isinstance(motors, bool | Motor)):
        raise TypeError(f"motors must be None, a bool or a Motor, got {motors!r}")
    text, path = _read(source)
    name = "the XML text" if path is None else str(path)
    urdf = _root_tag(text) == "robot"
    spec = _parse(text, path, name)
    if urdf or fuse:
        spec.compiler.fusestatic = fuse
    if urdf:
        spec.compiler.discardvisual = False
    if path is not None:
        _resolve_packages(spec, path.parent)
    if floating is not False:
        _float(spec, floating, name)
    spare = spare_geoms(spec, "contact" in kinds)
    drop_missing(spec, spare)
    # MuJoCo computes the inertia of fused bodies, so it needs the real inertias of their parts.
    inertials, impossible = take_inertials(spec) if urdf and not fuse else ({}, [])
    compiled = _compile(spec, name, spare)
    refuse_unsupported(compiled, {"inertia": impossible}, kinds, name)
    added = (Motor() if urdf else None) if motors is None else (Motor() if motors is True else motors or None)
    return convert(compiled, inertials, None if urdf else float(compiled.opt.timestep), added, kinds, urdf=urdf)


def _is_scene(source: object) -> bool:
    if isinstance(source, str) and source.lstrip().startswith("<"):
        return False
    return isinstance(source, str | os.PathLike) and Path(source).suffix.lower() == ".json"


def _read(source: str | os.PathLike[str]) -> tuple[str, Path | None]:
    """The XML, and the path of the file that it came from."""
    if isinstance(source, str) and source.lstrip().startswith("<"):
        return source, None
    if not isinstance(source, str | os.PathLike):
        raise TypeError(f"expected a path or an XML string, got {source!r}")
    path = Path(source)
    if not path.is_file():
        raise FileNotFoundError(f"no such file: {path}")
    return path.read_text(encoding="utf-8", errors="replace"), path


def _root_tag(text: str) -> str:
    """Name of the outermost element; empty if there is none, which the parser will report."""
    parser: Any = ElementTree.XMLPullParser(events=("start",))
    with contextlib.suppress(ElementTree.ParseError):
        parser.feed(text)
        return next((element.tag for _, element in parser.read_events()), "")
    return ""


def _parse(text: str, path: Path | None, name: str) -> mujoco.MjSpec:
    import mujoco

    try:
        return mujoco.MjSpec.from_string(text) if path is None else mujoco.MjSpec.from_file(str(path))
    except ValueError as error:
        raise ValueError(f"{name}: {_one_line(error)}") from None


def _compile(spec: mujoco.MjSpec, name: str, spare: list[mujoco.MjsGeom]) -> mujoco.MjModel:
    """The compiled model; without the spare geoms if MuJoCo cannot read the mesh of one of them."""
    if spare:
        try:
            return spec.compile()
        except ValueError:
            from .meshes import drop_geoms

            drop_geoms(spec, spare)
    try:
        return spec.compile()
    except ValueError as error:
        message = _one_line(error)
        missing = re.search(r"[Ee]rror opening file '([^']*)'", message)
        if missing:
            raise FileNotFoundError(
                f"{name}: cannot open {missing[1]!r}. If only contact needs it, load with ignore=('contact',)"
            ) from None
        hint = ". If only contact needs it, load with ignore=('contact',)" if "mesh file" in message else ""
        raise ValueError(f"{name}: {message}{hint}") from None


def _one_line(error: Exception) -> str:
    return "; ".join(line.strip() for line in str(error).splitlines() if line.strip())


def _resolve_packages(spec: mujoco.MjSpec, directory: Path) -> None:
    """Find ``package://`` meshes in one of the parent directories of the file, as in a ROS workspace."""
    for mesh in spec.meshes:
        if mesh.file.startswith("package://"):
            relative = mesh.file.removeprefix("package://").lstrip("/")
            for folder in directory.resolve().parents:
                if (folder / relative).is_file():
                    mesh.file = str(folder / relative)
                    break


def _float(spec: mujoco.MjSpec, floating: bool | str, name: str) -> None:
    """Give a free joint to a root body."""
    roots = {body.name: body for body in spec.worldbody.bodies if not body.joints}
    if floating is True:
        if len(roots) != 1:
            found = ", ".join(map(repr, roots)) or "none"
            raise ValueError(
                f"{name}: floating=True needs one root body without a joint, found {found}; "
                "name the body: floating='...'"
            )
        floating = next(iter(roots))
    elif floating not in roots:
        raise ValueError(f"{name}: " + checks.unknown("root body without a joint", floating, roots))
    taken = {joint.name for joint in spec.joints}
    joint = "root"
    while joint in taken:
        joint += "_"
    roots[floating].add_freejoint(name=joint)
