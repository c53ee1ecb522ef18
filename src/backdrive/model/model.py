"""The immutable model of a world: its topology, constants and names."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..schema import layout
from ..schema.layout import NQ, NV, Kind
from . import assemble, checks
from .looks import Looks, looks_of_shapes
from .parameters import ParameterTable, parameter_table
from .shapes import PlacedShape
from .soft import SoftOptions, rigid_differences
from .state import State

Array = np.ndarray


@dataclass(frozen=True, eq=False, repr=False)
class Model:
    """A forest of links with one joint each, made by ``Scene.build`` or ``load``.

    Link i is connected to its parent, link ``parent[i]`` < i (-1: the world), by a joint of kind ``kind[i]``. A body is
    a link with a name; a body with several joints has massless links without names before its own. ``constants`` has
    the layout of ``schema.layout``. Arrays are read-only; q and v are in the order of the links.
    """

    dim: int
    bodies: tuple[str, ...]
    joints: tuple[str, ...]
    motors: tuple[str, ...]
    motor_kinds: tuple[str, ...]
    """torque, position, velocity or general, for each motor."""
    parent: Array
    kind: Array
    body_link: Array
    joint_link: Array
    motor_q: Array
    motor_v: Array
    constants: Array
    q0: Array
    v0: Array
    timestep: float | None
    """The time step (s) that the file recommends."""
    shapes: tuple[tuple[PlacedShape, ...], ...]
    """The shapes of each body, placed in its frame."""
    statics: tuple[PlacedShape, ...]
    """The shapes of the world."""
    excluded: tuple[tuple[str, str], ...]
    """Pairs of bodies, or of a body and a static shape, that never touch."""
    shape_names: tuple[str, ...]
    """Names of all shapes in the order of the tables: those of each body, then the static ones."""
    shape_kind: Array
    """``layout.ShapeKind``, int64 [nshape]."""
    shape_link: Array
    """The link of each shape, int64 [nshape]; -1: the world."""
    shape_hull: Array
    """int64 [nshape, 6]: offset in ``hull_geometry`` and number of vertices, faces, and edges; 0 for other shapes."""
    hull_geometry: Array
    """Vertices, faces and edges of the hulls (see ``hull.HullTables``), float64; equal hulls are stored once."""
    pairs: Array
    """Pairs of shapes that may touch, int64 [npair, 2]; the smaller kind comes first, and pairs are sorted by kinds."""
    limit_link: Array
    """Links (hinges and sliders) whose coordinate has limits, int64 [nlimit]."""
    friction_link: Array
    """Links (hinges and sliders) with joint friction, int64 [nfriction]."""
    equality_names: tuple[str, ...]
    """Name of the joint or constraint that each equation belongs to."""
    equality_kind: Array
    """``layout.EqualityKind``, int64 [nequality]."""
    equality_link: Array
    """Links a and b (-1: the world), int64 [nequality, 2]."""
    combine: str
    """How friction and restitution of a pair follow from those of its shapes: mean, max or min."""
    soft: SoftOptions | None = None
    """The options of a MJCF file for MuJoCo's physics; None: the constants have no parameters of soft constraints."""
    file_looks: Looks | None = None
    """What the file shows; None: the model shows its shapes. See `looks`."""
    file_keyframes: tuple[tuple[str, Array, Array], ...] = ()
    """Name, q and v of each keyframe of the file. See `keyframes`."""

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, np.ndarray):
                value = value.copy()
                value.flags.writeable = False
                object.__setattr__(self, field.name, value)

    # Copies and pickles are rebuilt through the constructor, so their arrays are read-only and caches are left out.
    def __reduce__(self) -> tuple[Any, ...]:
        return Model, tuple(getattr(self, field.name) for field in fields(self))

    @property
    def nlink(self) -> int:
        return len(self.parent)

    @property
    def nbody(self) -> int:
        return len(self.bodies)

    @property
    def njoint(self) -> int:
        return len(self.joints)

    @property
    def nu(self) -> int:
        return len(self.motors)

    @property
    def nshape(self) -> int:
        return len(self.shape_kind)

    @property
    def npair(self) -> int:
        return len(self.pairs)

    @property
    def nlimit(self) -> int:
        return len(self.limit_link)

    @property
    def nfriction(self) -> int:
        return len(self.friction_link)

    @property
    def nequality(self) -> int:
        return len(self.equality_kind)

    @property
    def nq(self) -> int:
        return len(self.q0)

    @property
    def nv(self) -> int:
        return len(self.v0)

    @property
    def nconst(self) -> int:
        """Length of the constants."""
        return len(self.constants)

    @cached_property
    def qadr(self) -> Array:
        """Where the position coordinates of each link start, int64 [nlink]."""
        return _constant(layout.addresses(self.kind.tolist())[0])

    @cached_property
    def vadr(self) -> Array:
        """Where the velocity coordinates of each link start, int64 [nlink]."""
        return _constant(layout.addresses(self.kind.tolist())[1])

    @cached_property
    def constants_tensor(self) -> Tensor:
        """The constants as a shared float64 tensor, which must not be written to; ``assemble()`` returns a copy."""
        return torch.tensor(self.constants)

    @property
    def gravity(self) -> Array:
        """m/s^2, [dim]."""
        start = layout.gravity_start(self.nlink, self.nq, self.nu)
        return self.constants[start : start + self.dim]

    @property
    def control_limits(self) -> Array:
        """The limits that the motors clip their controls to, [nu, 2]; infinite if there are none."""
        start, end = layout.motor_start(self.nlink, self.nq), layout.gravity_start(self.nlink, self.nq, self.nu)
        records = self.constants[start:end].reshape(self.nu, layout.MOTOR)
        return records[:, [layout.CTRL_LOW, layout.CTRL_HIGH]]

    def body_index(self, name: str) -> int:
        """Row of a body in per-body parameters."""
        return _index("body", name, self.bodies)

    def joint_index(self, name: str) -> int:
        """Row of a joint in per-joint parameters."""
        return _index("joint", name, self.joints)

    def motor_index(self, name: str) -> int:
        """Row of a motor in the controls."""
        return _index("motor", name, self.motors)

    def shape_index(self, name: str) -> int:
        """Row of a shape in per-shape parameters."""
        return _index("shape", name, self.shape_names)

    def q_index(self, joint: str) -> slice:
        """The coordinates of a joint in q."""
        link = self.joint_link[self.joint_index(joint)]
        start = int(self.qadr[link])
        return slice(start, start + NQ[self.kind[link]])

    def v_index(self, joint: str) -> slice:
        """The coordinates of a joint in v."""
        link = self.joint_link[self.joint_index(joint)]
        start = int(self.vadr[link])
        return slice(start, start + NV[self.kind[link]])

    def parameters(self) -> ParameterTable:
        """Names, shapes, units and ranges of all parameters that ``parameter`` and ``assemble`` accept."""
        return self._table

    @cached_property
    def _table(self) -> ParameterTable:
        return parameter_table(self)

    def parameter(self, name: str) -> Tensor:
        """The model's values of a parameter: a new float64 tensor of the shape in ``parameters()``."""
        return torch.from_numpy(self._table[name].values(self.constants))

    def assemble(self, parameters: Mapping[str, Tensor] | None = None, *, check: bool = True) -> Tensor:
        """The constants with some parameters replaced, differentiable: [nconst] or [B, nconst], float64.

        Each parameter is [*shape] (shared) or [B, *shape] (one per environment). Axes and quaternions are
        normalised. ``check=False`` skips the checks of values, but not of names and shapes, for use under
        ``torch.vmap``, where values cannot be inspected.
        """
        return assemble.assemble(self, parameters or {}, check)

    def initial_state(self, batch: int | None = None) -> State:
        """The initial state of the model: q [nq], v [nv], or [batch, nq], [batch, nv]; float64."""
        q, v = torch.tensor(self.q0), torch.tensor(self.v0)
        if batch is None:
            return State(q, v)
        batch = checks.integer(batch, "batch")
        with checks.told_if_too_large((batch, len(q) + len(v)), q.element_size()):
            return State(q.repeat(batch, 1), v.repeat(batch, 1))

    @cached_property
    def looks(self) -> Looks:
        """What the model looks like: shapes, meshes, colours, sites and cameras; no part of the motion."""
        return looks_of_shapes(self) if self.file_looks is None else self.file_looks

    @property
    def keyframes(self) -> dict[str, State]:
        """The states that the file has by name, float64; empty for scenes."""
        return {name: State(torch.tensor(q), torch.tensor(v)) for name, q, v in self.file_keyframes}

    @property
    def rigid_differences(self) -> tuple[str, ...]:
        """In what ``Simulator(model, physics="rigid")`` differs from the MJCF file that the model was loaded from, and
        ``physics="mujoco"`` does not; empty for other models."""
        return rigid_differences(self)

    @cached_property
    def fingerprint(self) -> str:
        """A sha256 hash of everything that the dynamics depends on; the same in every process."""
        digest = hashlib.sha256(f"backdrive model 2 {self.dim} {self.combine}".encode())
        tables = [
            self.parent, self.kind, self.motor_q, self.motor_v, self.shape_kind, self.shape_link, self.shape_hull,
            self.pairs, self.limit_link, self.friction_link, self.equality_kind, self.equality_link,
        ]  # fmt: skip
        for table in tables:
            digest.update(np.array([len(table), *table.ravel()], dtype="<i8").tobytes())
        for numbers in (self.constants, self.hull_geometry):
            # Adding zero turns -0.0 into 0.0: they compare equal, so they must hash equal.
            digest.update((numbers + 0.0).astype("<f8").tobytes())
        return digest.hexdigest()

    def __repr__(self) -> str:
        return (
            f"Model(dim={self.dim}, nbody={self.nbody}, njoint={self.njoint}, nq={self.nq}, nv={self.nv}, nu={self.nu})"
        )

    def __str__(self) -> str:
        """The tree: one line per link, indented below its parent, with its joint and mass."""
        bodies = dict(zip(self.body_link.tolist(), self.bodies, strict=True))
        joints = dict(zip(self.joint_link.tolist(), self.joints, strict=True))
        rows: list[tuple[str, str, str]] = []
        todo = [(i, 1) for i in np.flatnonzero(self.parent < 0)[::-1].tolist()]
        while todo:
            i, depth = todo.pop()
            joint = Kind(self.kind[i]).name.lower() + (f" {joints[i]!r}" if i in joints else "")
            mass = f"{self.constants[layout.link_start(i) + layout.MASS]:.4g} kg" if i in bodies else ""
            rows.append(("  " * depth + bodies.get(i, "."), joint, mass))
            todo.extend((j, depth + 1) for j in np.flatnonzero(self.parent == i)[::-1].tolist())
        name, joint_width = (max((len(row[i]) for row in rows), default=0) for i in range(2))
        return "\n".join([repr(self), *(f"{a:{name}}  {b:{joint_width}}  {c}".rstrip() for a, b, c in rows)])


def _constant(values: list[int]) -> Array:
    result = np.array(values, dtype=np.int64)
    result.flags.writeable = False
    return result


def _index(what: str, name: str, names: tuple[str, ...]) -> int:
    if name not in names:
        raise ValueError(checks.unknown(what, name, names))
    return names.index(name)
