"""The model as kernels see it: topology and constants, either read from tables or known while tracing.

In a rolled kernel the sizes are traced integers and every lookup is a load. In a kernel that is specialised to a model
they are Python numbers: loops over links unroll, and constants that are zero or one fold. The physics is the same
source for both.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ...ir import Index, IndexArray, Scalar, ScalarArray, loop, records, when, workspace
from ...schema import layout
from ..math.arrays import accumulate
from ..math.spatial import MATRIX, SYMMETRIC_MATRIX, VECTOR, Vec

if TYPE_CHECKING:
    from ...model import Model

MANY = 8  # least number of homogeneous links for which a kernel of their own is worth its compilation
TOPOLOGY = ("parent", "kind", "position", "velocity", "dofs", "root", "turned")  # tables of nlink integers, in order


class LinkConstants(NamedTuple):
    """The constants of one link and its joint; units as in `schema.layout`."""

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
    def of(cls, record: Vec) -> LinkConstants:
        """From the LINK floats of a record."""
        return cls(
            mass=record[layout.MASS],
            com=record[layout.COM : layout.COM + VECTOR],
            inertia=record[layout.INERTIA : layout.INERTIA + SYMMETRIC_MATRIX],
            offset=record[layout.OFFSET : layout.OFFSET + VECTOR],
            rotation=record[layout.ROTATION : layout.ROTATION + MATRIX],
            anchor=record[layout.ANCHOR : layout.ANCHOR + VECTOR],
            axis=record[layout.AXIS : layout.AXIS + VECTOR],
            stiffness=record[layout.STIFFNESS],
            damping=record[layout.DAMPING],
            armature=record[layout.ARMATURE],
        )


@dataclass(frozen=True)
class Homogeneous:
    """The constants that the links of a model share, if all are roots with the same kind of joint.

    kind: the code of the joint. numbers: (offset in the LINK record, number) of the constants that are 0 in every link,
    or, in rotations and axes, 1; a kernel for such models folds them.
    """

    kind: int
    numbers: tuple[tuple[int, float], ...]

    @classmethod
    def links_of(cls, model: Model, varying: np.ndarray) -> Homogeneous | None:
        """For a model; None if its links differ or are few. varying [nconst]: which constants are given at run time."""
        kinds = set(model.kind.tolist())
        one_tree = (np.asarray(model.parent) >= 0).any()
        if model.nlink < MANY or len(kinds) != 1 or one_tree or not turned_links(model).all():
            return None
        size = model.nlink * layout.LINK
        values, given = (x[:size].reshape(-1, layout.LINK) for x in (model.constants, varying))
        turns = [*range(layout.ROTATION, layout.ANCHOR), *range(layout.AXIS, layout.STIFFNESS)]
        one = (values[0] == 1.0) & np.isin(np.arange(layout.LINK), turns)
        same = (values == values[0]).all(0) & ~given.any(0) & ((values[0] == 0.0) | one)
        return cls(kinds.pop(), tuple((k, float(values[0, k])) for k in np.flatnonzero(same).tolist()))


@dataclass(frozen=True)
class LinkSubset:
    """Some of the links: the first count[0] of `links` are their numbers (integers that all lanes share)."""

    links: IndexArray
    count: IndexArray


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
    nor limits nor equations. homogeneous: for a rolled kernel of models whose links share constants.
    saturating: whether motors have force limits that are to be decided implicitly (`saturation`).
    branching: whether the equations may branch on values; not in a function that is differentiated as a whole.
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
    constraints: Any = None  # `physics.constraints.constraints.Constraints`, a later stage than this one
    homogeneous: Homogeneous | None = None
    saturating: bool = False
    branching: bool = True
    mass_moments: MassMoments | None = None

    @property
    def bodies(self) -> MassMoments:
        """The moments of mass, once `with_bodies` has computed them."""
        assert self.mass_moments is not None, "the tree has no moments of mass: see bodies.with_bodies"
        return self.mass_moments

    def over_links(self, width: int, first: int = 1) -> ScalarArray:
        """An uninitialised array of records for all links. first: the record of link 0; 0 leaves out the world's."""
        count = (self.nlink + first) * width
        return workspace(count) if self.homogeneous is None else records(count)

    def over_coordinates(self, width: int) -> ScalarArray:
        """An uninitialised array of records for all coordinates of v."""
        count = self.nv * width
        return workspace(count) if self.homogeneous is None else records(count, layout.NV[self.homogeneous.kind])

    def links(self, reverse: bool = False) -> Iterator[Index]:
        """All links, parents before their children; or the reverse."""
        return loop(self.nlink, reverse=reverse)

    def links_among(self, some: LinkSubset | None) -> Iterator[Index]:
        """All links, or those of a subset."""
        if some is None:
            yield from self.links()
        else:
            for k in loop(some.count[0]):
                yield some.links[k]

    def _lookup(self, table: str, i: Index) -> Any:
        return self.topology[self.nlink * TOPOLOGY.index(table) + i]

    def parent(self, i: Index) -> Index:
        """The record of link i's parent in arrays over links (0: the world)."""
        return self._lookup("parent", i) + 1 if self.homogeneous is None else 0

    def kind(self, i: Index) -> Index:
        """The code of the joint that link i moves on."""
        return self._lookup("kind", i) if self.homogeneous is None else self.homogeneous.kind

    def q_start(self, i: Index) -> Index:
        """The index of link i's first coordinate in q."""
        return self._lookup("position", i) if self.homogeneous is None else layout.NQ[self.homogeneous.kind] * i

    def v_start(self, i: Index) -> Index:
        """The index of link i's first coordinate in v."""
        return self._lookup("velocity", i) if self.homogeneous is None else layout.NV[self.homogeneous.kind] * i

    def dofs(self, i: Index) -> Index:
        """The number of coordinates of v of link i."""
        return self._lookup("dofs", i) if self.homogeneous is None else layout.NV[self.homogeneous.kind]

    def root(self, i: Index) -> Index:
        """The record of the root of link i's tree, in arrays over links."""
        return self._lookup("root", i) + 1 if self.homogeneous is None else i + 1

    def turned(self, i: Index) -> Index:
        """1 if link i's coordinates are eliminated in its own axes, 0 if in those of v (see `turned_links`)."""
        return self._lookup("turned", i) if self.homogeneous is None else 1

    def joint_motors(self) -> Iterator[Index]:
        """All motors that drive a coordinate; others pull tendons."""
        for m in loop(self.nu):
            for _ in when(self.motor_v_start(m) >= 0):
                yield m

    def motor_q_start(self, m: Index) -> Index:
        """The index in q of the coordinate that motor m drives."""
        return self.topology[self.nlink * len(TOPOLOGY) + m]

    def motor_v_start(self, m: Index) -> Index:
        """The index in v of the coordinate that motor m drives."""
        return self.topology[self.nlink * len(TOPOLOGY) + self.nu + m]

    def link_record(self, i: Index) -> tuple[Scalar, ...]:
        """The LINK floats of link i."""
        record = list(self.constants.get(i, layout.LINK))
        for place, number in () if self.homogeneous is None else self.homogeneous.numbers:
            record[place] = number
        return tuple(record)

    def link(self, i: Index) -> LinkConstants:
        """The constants of link i."""
        return LinkConstants.of(self.link_record(i))

    def reference(self) -> ScalarArray:
        """Rest positions of the springs, [nq]."""
        return self.constants.at(layout.reference_start(self.nlink))

    def motors(self) -> ScalarArray:
        """Records of MOTOR floats, [nu]."""
        return self.constants.at(layout.motor_start(self.nlink, self.nq))

    def gravity(self) -> Vec:
        """The gravity vector [3], m/s²."""
        return self.constants.at(layout.gravity_start(self.nlink, self.nq, self.nu)).get(0, layout.GRAVITY)


def accumulate_link(constants_bar: ScalarArray, i: Index, gradient: Sequence[Scalar]) -> None:
    """Add the gradient with respect to the record of link i; the rotation of its frame is not a parameter."""
    record = list(gradient[: layout.LINK])
    record[layout.ROTATION : layout.ROTATION + MATRIX] = [0.0] * MATRIX
    accumulate(constants_bar.at(i * layout.LINK), record)


def turned_links(model: Model) -> np.ndarray:
    """Whether the coordinates of each link are eliminated in its own axes, in which S is constant: [nlink].

    Not those of a planar joint of which a motor drives x or y: its damping is diagonal in the parent's axes only.
    """
    driven = np.isin(model.vadr, model.motor_v) | np.isin(np.asarray(model.vadr) + 1, model.motor_v)
    return ~(driven & (np.asarray(model.kind) == layout.Kind.PLANAR))


def topology_table(model: Model) -> np.ndarray:
    """The topology of a model as one vector of int64: the tables of TOPOLOGY, then the coordinates of the motors."""
    dofs = np.asarray(layout.NV)[model.kind]
    root = np.arange(model.nlink)
    for i, parent in enumerate(model.parent):
        root[i] = root[parent] if parent >= 0 else i
    tables = [model.parent, model.kind, model.qadr, model.vadr, dofs, root, turned_links(model)]
    return np.concatenate([*tables, model.motor_q, model.motor_v]).astype(np.int64)
