"""The model as kernels see it: topology and constants, either tables of any model or numbers of one.

In a rolled kernel the sizes are traced integers and every lookup is a load; in a kernel that is specialised to a model
they are Python numbers, loops over links unroll, and what is zero or one vanishes. The physics is the same source.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from ..compiler import Scalar, loop
from ..model import layout
from .arrays import accumulate
from .spatial import Vec

TOPOLOGY = ("parent", "kind", "position", "velocity", "dofs", "root")  # a table of nlink integers each


class Link(NamedTuple):
    """The constants of one link and its joint."""

    mass: Scalar
    com: Vec
    inertia: Vec
    offset: Vec
    rotation: Vec
    anchor: Vec
    axis: Vec
    stiffness: Scalar
    damping: Scalar
    armature: Scalar

    @classmethod
    def of(cls, record: Vec) -> Link:
        """From the LINK floats of a record."""
        field = {
            "mass": record[layout.MASS],
            "com": record[layout.COM : layout.COM + 3],
            "inertia": record[layout.INERTIA : layout.INERTIA + 6],
            "offset": record[layout.OFFSET : layout.OFFSET + 3],
            "rotation": record[layout.ROTATION : layout.ROTATION + 9],
            "anchor": record[layout.ANCHOR : layout.ANCHOR + 3],
            "axis": record[layout.AXIS : layout.AXIS + 3],
            "stiffness": record[layout.STIFFNESS],
            "damping": record[layout.DAMPING],
            "armature": record[layout.ARMATURE],
        }
        return cls(**field)


class World:
    """Sizes (ints or traced), the topology table, the vector of constants, and what constrains the motion.

    Arrays over links have a first record for the world itself: link i stands at i + 1, so a parent of -1 is no case.
    """

    def __init__(
        self, nlink: Any, nq: Any, nv: Any, nu: Any, nconst: Any, topology: Any, constants: Any, constraints: Any = None
    ) -> None:
        self.nlink, self.nq, self.nv, self.nu, self.nconst = nlink, nq, nv, nu, nconst
        self.topology, self.constants = topology, constants
        self.constraints = constraints  # `constraints.Constraints`, or None: nothing touches, nothing is limited

    def links(self, reverse: bool = False) -> Iterator[Any]:
        """All links, parents before their children; or the reverse."""
        return loop(self.nlink, reverse=reverse)

    def _lookup(self, table: str, i: Any) -> Any:
        return self.topology[self.nlink * TOPOLOGY.index(table) + i]

    def parent(self, i: Any) -> Any:
        """The record of link i's parent in arrays over links (0: the world)."""
        return self._lookup("parent", i) + 1

    def kind(self, i: Any) -> Any:
        return self._lookup("kind", i)

    def position(self, i: Any) -> Any:
        """Where link i's coordinates start in q."""
        return self._lookup("position", i)

    def velocity(self, i: Any) -> Any:
        """Where link i's coordinates start in v."""
        return self._lookup("velocity", i)

    def dofs(self, i: Any) -> Any:
        return self._lookup("dofs", i)

    def root(self, i: Any) -> Any:
        """The record of the link that link i's tree starts with."""
        return self._lookup("root", i) + 1

    def motor_position(self, m: Any) -> Any:
        return self.topology[self.nlink * len(TOPOLOGY) + m]

    def motor_velocity(self, m: Any) -> Any:
        return self.topology[self.nlink * len(TOPOLOGY) + self.nu + m]

    def link_record(self, i: Any) -> Vec:
        return self.constants.get(i, layout.LINK)

    def link(self, i: Any) -> Link:
        return Link.of(self.link_record(i))

    def reference(self) -> Any:
        """Rest positions of the springs, [nq]."""
        return self.constants.at(layout.reference_start(self.nlink))

    def motors(self) -> Any:
        """Records of MOTOR floats, [nu]."""
        return self.constants.at(layout.motor_start(self.nlink, self.nq))

    def gravity(self) -> Vec:
        return self.constants.at(layout.gravity_start(self.nlink, self.nq, self.nu)).get(0, 3)


def accumulate_link(constants_bar: Any, i: Any, gradient: Sequence[Scalar]) -> None:
    """Add the gradient with respect to a link's record; the rotation of its frame is no parameter."""
    record = list(gradient[: layout.LINK])
    record[layout.ROTATION : layout.ROTATION + 9] = [0.0] * 9
    accumulate(constants_bar.at(i * layout.LINK), record)


def topology_table(model: Any) -> np.ndarray:
    """The topology of a model as one vector of int64."""
    dofs = np.asarray(layout.NV)[model.kind]
    root = np.arange(model.nlink)
    for i, parent in enumerate(model.parent):
        root[i] = root[parent] if parent >= 0 else i
    tables = [model.parent, model.kind, model.qadr, model.vadr, dofs, root, model.motor_q, model.motor_v]
    return np.concatenate(tables).astype(np.int64)
