"""The model as kernels see it: topology and constants, either tables of any model or numbers of one.

In a rolled kernel the sizes are traced integers and every lookup is a load; in a kernel that is specialised to a model
they are Python numbers, loops over links unroll, and what is zero or one vanishes. The physics is the same source.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from ...ir import Index, IndexArray, Scalar, ScalarArray, loop, records, workspace
from ...schema import layout
from ..math.arrays import accumulate
from ..math.spatial import Vec

MANY = 8  # links from which on it pays to compile a kernel for what they have in common
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


@dataclass(frozen=True)
class Homogeneous:
    """What the links of a model have in common, if each is a tree of its own and all have the same kind of joint.

    numbers: those of their records that are 0 in all, or 1 in rotations and axes, (place, number).
    """

    kind: int
    numbers: tuple[tuple[int, float], ...]

    @classmethod
    def links_of(cls, model: Any, varying: np.ndarray) -> Homogeneous | None:
        """varying [nconst]: which constants are given at run time, and not known."""
        kinds = set(model.kind.tolist())
        if model.nlink < MANY or len(kinds) != 1 or (np.asarray(model.parent) >= 0).any():
            return None
        size = model.nlink * layout.LINK
        values, given = (x[:size].reshape(-1, layout.LINK) for x in (model.constants, varying))
        turns = [*range(layout.ROTATION, layout.ANCHOR), *range(layout.AXIS, layout.STIFFNESS)]
        one = (values[0] == 1.0) & np.isin(np.arange(layout.LINK), turns)
        same = (values == values[0]).all(0) & ~given.any(0) & ((values[0] == 0.0) | one)
        return cls(kinds.pop(), tuple((k, float(values[0, k])) for k in np.flatnonzero(same).tolist()))


class LinkSubset(NamedTuple):
    """Some of the links of a world: a list of their numbers (uniform integers), and how many."""

    links: Any
    count: Any


class MassMoments(NamedTuple):
    """Moments of mass (m, h, Σ) of every link about its origin: arrays over links, constant during a rollout.

    Links that are fixed to their parent form one rigid body with it. gathered: the moments of a link and of everything
    that is fixed to it. moved: the moments that the joint of a link accelerates; zero for a link that is itself fixed.
    """

    gathered: ScalarArray
    moved: ScalarArray


@dataclass(frozen=True)
class Tree:
    """A model as a kernel sees it: sizes, topology, constants, constraints, and the moments of mass of its bodies.

    nlink, nq, nv, nu, nconst: numbers of links, of coordinates of q and v, of motors, and of constants. topology: the
    tables of `topology_table`. constants [nconst]: see `schema.layout`. constraints: None if there are neither contacts
    nor limits nor equations. homogeneous: given if the kernel is rolled, and made for models of identical links.
    mass_moments: set by `bodies.with_bodies`.

    Arrays over links start with a record for the world: link i has record i + 1, so a parent of -1 needs no branch.
    """

    nlink: Index
    nq: Index
    nv: Index
    nu: Index
    nconst: Index
    topology: IndexArray
    constants: ScalarArray
    constraints: Any = None  # `physics.constraints.rows.Constraints`, a later stage than this one
    homogeneous: Homogeneous | None = None
    mass_moments: MassMoments | None = None

    @property
    def bodies(self) -> MassMoments:
        """The moments of mass, once `with_bodies` has computed them."""
        assert self.mass_moments is not None, "the tree has no moments of mass: see bodies.with_bodies"
        return self.mass_moments

    def over_links(self, width: int, first: int = 1) -> Any:
        """An uninitialised array of records for all links; first: of link 0, after that of the world."""
        count = (self.nlink + first) * width
        return workspace(count) if self.homogeneous is None else records(count)

    def over_coordinates(self, width: int) -> Any:
        """An uninitialised array of records for all coordinates of v."""
        count = self.nv * width
        return workspace(count) if self.homogeneous is None else records(count, layout.NV[self.homogeneous.kind])

    def links(self, reverse: bool = False) -> Iterator[Any]:
        """All links, parents before their children; or the reverse."""
        return loop(self.nlink, reverse=reverse)

    def links_among(self, some: LinkSubset | None) -> Iterator[Any]:
        """All links, or some of them."""
        if some is None:
            yield from self.links()
        else:
            for k in loop(some.count[0]):
                yield some.links[k]

    def _lookup(self, table: str, i: Any) -> Any:
        return self.topology[self.nlink * TOPOLOGY.index(table) + i]

    def parent(self, i: Any) -> Any:
        """The record of link i's parent in arrays over links (0: the world)."""
        return self._lookup("parent", i) + 1 if self.homogeneous is None else 0

    def kind(self, i: Any) -> Any:
        return self._lookup("kind", i) if self.homogeneous is None else self.homogeneous.kind

    def q_start(self, i: Any) -> Any:
        """Where link i's coordinates start in q."""
        return self._lookup("position", i) if self.homogeneous is None else layout.NQ[self.homogeneous.kind] * i

    def v_start(self, i: Any) -> Any:
        """Where link i's coordinates start in v."""
        return self._lookup("velocity", i) if self.homogeneous is None else layout.NV[self.homogeneous.kind] * i

    def dofs(self, i: Any) -> Any:
        return self._lookup("dofs", i) if self.homogeneous is None else layout.NV[self.homogeneous.kind]

    def root(self, i: Any) -> Any:
        """The record of the link that link i's tree starts with."""
        return self._lookup("root", i) + 1 if self.homogeneous is None else i + 1

    def motor_q_start(self, m: Any) -> Any:
        return self.topology[self.nlink * len(TOPOLOGY) + m]

    def motor_v_start(self, m: Any) -> Any:
        return self.topology[self.nlink * len(TOPOLOGY) + self.nu + m]

    def link_record(self, i: Any) -> Vec:
        record = list(self.constants.get(i, layout.LINK))
        for place, number in () if self.homogeneous is None else self.homogeneous.numbers:
            record[place] = number
        return tuple(record)

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
