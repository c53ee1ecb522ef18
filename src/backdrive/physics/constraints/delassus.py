"""The Delassus matrix W = J A⁻¹ Jᵀ of the rows of a substep (A = M + h D): how a unit impulse of one row changes the
speeds of all rows.

The wrench of a unit impulse is passed inward along the chains of joints from its links to their roots, as
`dynamics.reduce` does with any force. At every joint it leaves a component y. These are all that is needed:
W = Σ y yᵀ / d over the joints, and A⁻¹ Jᵀ λ is the outward half of a solve (`dynamics.expand`) that starts from
Σ λ y / d. Joints are expressed in the axes of the root of their tree, about its origin: then a wrench has the same
components at all joints of its chain, and the coordinates of a floating root are the components themselves.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol, TypeVar

from ...ir import Index, IndexArray, Scalar, ScalarArray, carry, counters, leave, loop, memory, when
from ..math import spatial as sp
from ..math.arrays import zero
from ..math.linear import TILE, multiply
from ..math.spatial import Vec
from ..tree.poses import Pose
from .constraints import ChainSegment, Constraints, Support
from .root_frame import COMPONENTS, RootFrameFactors
from .rows import Row

AT_ONCE = 3  # rows of a constraint that are passed inward together: as many as registers have room for

ArrayT = TypeVar("ArrayT")


class Delassus(Protocol[ArrayT]):
    """The Delassus matrix of a contact problem, dense or block-sparse. Results are written to the last array.

    `reduced` is a velocity in the factored coordinates of the mass matrix, between the inward and the outward half of a
    solve with A.
    """

    @property
    def diagonal(self) -> ArrayT:
        """The diagonal of W + R, R the rows' compliance [n], (m/s) per N s."""

    def apply(self, impulse: ArrayT, speed: ArrayT) -> None:
        """speed [n] += W λ"""

    def speeds(self, reduced: ArrayT, result: ArrayT) -> None:
        """result [n] = J A⁻¹ τ, with `reduced` the inward half of a solve with τ."""

    def effect(self, impulse: ArrayT, reduced: ArrayT) -> None:
        """reduced = Σ λ y / d, of which the outward half of a solve makes A⁻¹ Jᵀ λ."""


class DofLists:
    """For every tile of rows, the coordinates of v that its impulses move.

    A tile has a list of single coordinates and a list of floating roots (the first coordinate of each). The lists are
    sorted, so that sums over them do not depend on which rows share a tile.
    """

    def __init__(self, tiles: Index, nv: Index) -> None:
        """tiles: at most this many."""
        self.nv = nv
        self.reached = counters(tiles * nv)  # [tile, nv] 1 where a coordinate is in a list of the tile
        self.singles, self.single_count = counters(tiles * nv), counters(tiles)
        self.roots, self.root_count = counters(tiles * nv), counters(tiles)

    def dofs(self, tile: Index, other: Index | None, root_width: int) -> Iterator[Index]:
        """The coordinates of v that a tile moves; with another tile, those that both move."""
        for numbers, count, width in ((self.singles, self.single_count, 1), (self.roots, self.root_count, root_width)):
            for k in loop(count[tile]):
                dof = numbers.at(tile * self.nv)[k]
                for _ in when(True if other is None else self.reached.at(other * self.nv)[dof] == 1):
                    for c in range(width):
                        yield dof + c


class Tile(NamedTuple):
    """TILE rows: their number, the coordinates that they reach ([nv], 1 or 0), and their components Y [TILE, nv]."""

    number: Index
    reached: IndexArray
    Y: ScalarArray


class ReducedRows:
    """The components y of every row at every joint.

    Y [n, nv]: components y of the rows, defined where the row's tile reaches a coordinate (`dofs`).
    """

    def __init__(self, constraints: Constraints, factors: RootFrameFactors, nv: Index, most: Index) -> None:
        """most: the number of rows that there can be."""
        self.constraints, self.factors, self.nv = constraints, factors, nv
        self._count = counters(1)
        self._count[0] = 0
        self.Y = memory(most * nv)
        # The wrench of every row on its links a and b, in the frames of their roots, [n, width].
        self._wrench_a, self._wrench_b = memory(most * factors.width), memory(most * factors.width)
        # The first row and the support of every constraint; how many there are, and how many have their Y.
        self._first, self._support, self._constraints, self._filled = (counters(k) for k in (most, most, 1, 1))
        self._constraints[0], self._filled[0] = 0, 0
        self.lists = DofLists(most, nv)

    @property
    def count(self) -> Index:
        """The number of rows added so far."""
        return self._count[0]

    # ---------------------------------------------------------------------------------------- rows

    def add_wrenches(
        self, first: Index, support: Support, rows: Sequence[Row], poses: ScalarArray, width: int,
        others: Sequence[Row] | None = None,
    ) -> None:  # fmt: skip
        """Keep the wrenches of a constraint's rows, from row `first` on. poses: over links, `width` numbers each.

        others: the rows as they act on link b, if at other points.
        """
        for k, row in enumerate(rows):
            self._wrench_a.put(first + k, self._seen_from(poses.get(support.root_a, width), row))
        for _ in when(support.b > 0):  # link b is not the world
            for k, row in enumerate(others or rows):
                self._wrench_b.put(first + k, sp.neg(self._seen_from(poses.get(support.root_b, width), row)))

    def add_constraint(self, first: Index, support: Support, rows: int) -> None:
        """Append a constraint whose `rows` rows start at row `first`."""
        number = self._constraints[0]
        self._first[number], self._support[number] = first, support.at
        self._constraints[0], self._count[0] = number + 1, first + rows

    def pad(self, count: Index) -> None:
        """Let there be `count` rows; those after the last constraint do nothing."""
        self._count[0] = count

    def _seen_from(self, root: Vec, row: Row) -> Vec:
        """The wrench of a row in the axes of a root (given by its pose), about its origin."""
        W, x, _ = Pose.of(root)
        f = sp.unrotate(W, row.force)
        wrench = (*sp.cross(sp.unrotate(W, sp.sub(row.point, x)), f, sp.unrotate(W, row.couple)), *f)
        return tuple(wrench[c] for c in COMPONENTS[self.constraints.dim])

    def fill_columns(self, rows: int, grounded: bool = False) -> None:
        """Compute Y of the constraints since the last call, which have `rows` rows each, and the lists of their tiles.

        Must be called before constraints with another number of rows are added. grounded: link b of all these
        constraints is the world.
        """
        size, end = self.factors.width, self._constraints[0]
        for number in loop(end, start=self._filled[0]):
            support, first = self.constraints.support(self._support[number]), self._first[number]
            if grounded:
                support = support.grounded()
            self._extend_lists(support, first, rows)
            own_a, own_b, common = support.segments()
            for start in range(0, rows, AT_ONCE):
                some = [first + r for r in range(start, min(start + AT_ONCE, rows))]
                rest, ys = carry(size * len(some)), [self.Y.at(r * self.nv) for r in some]
                for k, r in enumerate(some):
                    rest.put(k, self._wrench_a.get(r, size))
                self._pass_inward(own_a, rest, ys)
                for _ in when(support.b > 0):  # link b is not the world
                    kept = carry(size * len(some))
                    for k, r in enumerate(some):
                        kept.put(k, rest.get(k, size))
                        rest.put(k, self._wrench_b.get(r, size))
                    self._pass_inward(own_b, rest, ys)
                    for k in range(len(some)):
                        rest.accumulate(k, kept.get(k, size))
                    self._pass_inward(common, rest, ys)
        self._filled[0] = end

    def add_coordinate_row(self, parts: Sequence[tuple[int, Scalar]], chains: Sequence[Sequence[int]]) -> None:
        """Append the row Σ factor · v[k] of `parts` (k, factor), after the columns of all others are filled.

        chains: for every part, the coordinates that are eliminated after it, in this order.
        """
        r, factors, size, tile = self.count, self.factors, self.factors.width, self._tile_of_next()
        for (k, _), chain in zip(parts, chains, strict=True):
            for dof in (k, *chain):
                self._append(tile, dof, 1, self.lists.singles, self.lists.single_count)
        y = self.Y.at(r * self.nv)
        for (k, factor), chain in zip(parts, chains, strict=True):
            y[k] = y[k] + factor
            rest: Vec = sp.scale(-(factor * factors.inverse[k]), factors.U.get(k, size))
            for dof in chain:
                push = sp.dot(factors.S.get(dof, size), rest)
                y[dof] = y[dof] + push
                rest = sp.sub(rest, sp.scale(push * factors.inverse[dof], factors.U.get(dof, size)))
        self._count[0] = r + 1

    def add_dense_row(self, columns: ScalarArray, factor: Scalar) -> None:
        """Append a row whose y are `factor` times the columns [nv], after the columns of all others are filled."""
        r, tile = self.count, self._tile_of_next()
        for dof in loop(self.nv):
            self._append(tile, dof, 1, self.lists.singles, self.lists.single_count)
        for dof in loop(self.nv):
            self.Y.at(r * self.nv)[dof] = factor * columns[dof]
        self._count[0] = r + 1

    def _tile_of_next(self) -> Tile:
        """The tile of the next row, with empty lists if it is the first one there."""
        r = self.count
        number = r // TILE
        tile = Tile(number, self.lists.reached.at(number * self.nv), self.Y.at(number * (TILE * self.nv)))
        for _ in when(number * TILE == r):
            zero(self.nv, tile.reached)
            self.lists.single_count[number], self.lists.root_count[number] = 0, 0
        return tile

    def _extend_lists(self, support: Support, first: Index, count: int) -> None:
        """Add the coordinates on a support's chains to the lists of the tiles that its `count` rows are in. Y is zero
        there until `_pass_inward` sets it."""
        nv, lists = self.nv, self.lists
        for number in loop((first + (count - 1)) // TILE + 1, start=first // TILE):
            tile = Tile(number, lists.reached.at(number * nv), self.Y.at(number * (TILE * nv)))
            for _ in when(number * TILE >= first):  # the tile has no other constraint yet
                zero(nv, tile.reached)
                lists.single_count[number], lists.root_count[number] = 0, 0
            for segment in support.segments():
                for j in loop(segment.count):
                    self._append(tile, self.constraints.ints.at(segment.start)[j], 1, lists.singles, lists.single_count)
                for _ in when(segment.floating >= 0):
                    self._append(tile, segment.floating, self.factors.width, lists.roots, lists.root_count)

    def _append(self, tile: Tile, dof: Index, width: int, numbers: IndexArray, counts: IndexArray) -> None:
        """Insert coordinates dof, ..., dof + width - 1 into a list of a tile, unless they are there; its entry is dof.

        The list is kept in falling order, in which most chains have their coordinates already.
        """
        for _ in when(tile.reached[dof] == 0):
            end, entries = counts[tile.number], numbers.at(tile.number * self.nv)
            entries[end] = dof
            counts[tile.number] = end + 1
            for k in loop(end, reverse=True):
                if leave(entries[k] > dof):
                    break
                entries[k + 1] = entries[k]
                entries[k] = dof
            for k in range(width):
                tile.reached[dof + k] = 1
                for r in range(TILE):
                    tile.Y.at(r * self.nv)[dof + k] = 0.0

    def _pass_inward(self, segment: ChainSegment, rest: ScalarArray, ys: Sequence[ScalarArray]) -> None:
        """Write y of the joints of a segment, of some rows at once, and subtract from their wrenches `rest` the parts
        that each joint takes up."""
        factors, size = self.factors, self.factors.width
        half = size // 2
        for j in loop(segment.count):
            dof = self.constraints.ints.at(segment.start)[j]
            S, U, inverse = factors.S.get(dof, size), factors.U.get(dof, size), factors.inverse[dof]
            for k, y in enumerate(ys):
                F = rest.get(k, size)
                # Two short chains of additions instead of a long one: a joint waits for the result of the one before.
                y[dof] = sp.dot(S[:half], F[:half]) + sp.dot(S[half:], F[half:])
                z = y[dof] * inverse
                rest.put(k, [f - z * u for f, u in zip(F, U, strict=True)])
        for _ in when(segment.floating >= 0):
            for r, y in enumerate(ys):
                wrench: list[Scalar] = list(rest.get(r, size))
                for k, c in enumerate(factors.order):
                    U = factors.U.get(segment.floating + k, size)
                    y.at(segment.floating)[k] = wrench[c]
                    z = wrench[c] * factors.inverse.at(segment.floating)[k]
                    for other in factors.order[k + 1 :]:  # nothing is left of the components before
                        wrench[other] = wrench[other] - z * U[other]

    # ---------------------------------------------------------------------------------------- products

    def dofs(self, tile: Index, other: Index | None = None) -> Iterator[Index]:
        """The coordinates of v that the rows of a tile move; with another tile, those that both move."""
        return self.lists.dofs(tile, other, self.factors.width)

    def tile(self, tile: Index, dof: Index) -> Vec:
        """y of the rows of a tile, at one coordinate."""
        rows = self.Y.at(tile * (TILE * self.nv))
        return tuple(rows.at(r * self.nv)[dof] for r in range(TILE))

    def effect(self, impulse: ScalarArray, reduced: ScalarArray) -> None:
        """reduced [nv] = Σ λ y / d, of which `dynamics.expand` makes A⁻¹ Jᵀ λ."""
        zero(self.nv, reduced)
        self.add_effect(impulse, reduced)

    def add_effect(self, impulse: ScalarArray, reduced: ScalarArray) -> None:
        """reduced [nv] += Σ λ y / d"""
        for I in loop(self.count // TILE):
            x = impulse.get(I, TILE)
            for dof in self.dofs(I):
                inverse = self.factors.inverse[dof]
                # Row by row: the sum does not depend on which rows share a tile.
                reduced[dof] = sp.dot(x, [y * inverse for y in self.tile(I, dof)], reduced[dof])

    def speeds(self, reduced: ScalarArray, result: ScalarArray) -> None:
        """result [n] = J A⁻¹ τ, with `reduced` [nv] the inward half of a solve with τ (`dynamics.reduce`)."""
        total = carry(TILE)
        for I in loop(self.count // TILE):
            for r in range(TILE):
                total[r] = 0.0
            for dof in self.dofs(I):
                for r, y in enumerate(self.tile(I, dof)):
                    total[r] = total[r] + y * reduced[dof]
            result.put(I, [total[r] for r in range(TILE)])


class DenseDelassus(ReducedRows):
    """The Delassus matrix as a dense array, from the components y of every row at every joint.

    W, B [n, n]: row by row; n is a multiple of TILE. B is memory for a matrix of the same size, which is factored in
    place (`complementarity.factor_active_set`, `correction.factor_correction`). diagonal [n]: of W + R.
    """

    def __init__(self, constraints: Constraints, factors: RootFrameFactors, nv: Index) -> None:
        most = constraints.nimpulse + TILE
        super().__init__(constraints, factors, nv, most)
        self.W, self.B, self._diagonal = memory(most * most), memory(most * most), memory(most)

    @property
    def diagonal(self) -> ScalarArray:
        return self._diagonal

    def assemble(self, n: Index, compliance: ScalarArray) -> None:
        """Fill W = Y D⁻¹ Yᵀ [n, n], tile by tile (it is symmetric), and the diagonal of W + R; compliance: R [n]."""
        total = carry(TILE * TILE)
        tiles = [(r, c) for r in range(TILE) for c in range(TILE)]
        for I in loop(n // TILE):
            for J in loop(I + 1):
                for r, c in tiles:
                    total[r * TILE + c] = 0.0
                for dof in self.dofs(I, J):
                    inverse = self.factors.inverse[dof]
                    a, b = self.tile(I, dof), self.tile(J, dof)
                    for r, c in tiles:
                        total[r * TILE + c] = total[r * TILE + c] + (a[r] * inverse) * b[c]
                lower, upper = self.W.at(I * TILE * n + J * TILE), self.W.at(J * TILE * n + I * TILE)
                for r, c in tiles:
                    x = total[r * TILE + c]
                    lower.at(r * n)[c] = x
                    upper.at(c * n)[r] = x
            for r in range(TILE):
                self._diagonal.at(I * TILE)[r] = total[r * TILE + r] + compliance.at(I * TILE)[r]

    def turn(self, support: Support, across: Index, along: Index, turn: tuple[Scalar, Scalar]) -> None:
        """Let row `along` become c · along + s · across, and row `across` c · across - s · along; turn: c and s, with
        c² + s² = 1. support: of both rows. `set_diagonal` must follow."""
        n, (c, s) = self.count, turn
        a, b = self.W.at(across * n), self.W.at(along * n)
        y, z = self.Y.at(across * self.nv), self.Y.at(along * self.nv)

        def turn_elements(first: ScalarArray, second: ScalarArray, at: Index) -> None:
            x, y = first[at], second[at]
            first[at], second[at] = c * x - s * y, c * y + s * x

        for k in loop(n):
            turn_elements(a, b, k)
        for k in loop(n):
            turn_elements(self.W.at(across), self.W.at(along), k * n)
        for segment in support.segments():
            for k in loop(segment.count):
                turn_elements(y, z, self.constraints.ints.at(segment.start)[k])
            for _ in when(segment.floating >= 0):
                for k in range(self.factors.width):
                    turn_elements(y, z, segment.floating + k)

    def set_diagonal(self, r: Index, compliance: ScalarArray) -> None:
        """Set the diagonal of W + R at row r; compliance: R [n]."""
        self._diagonal[r] = self.W.at(r * self.count)[r] + compliance[r]

    def apply(self, impulse: ScalarArray, speed: ScalarArray, n: Index | None = None) -> None:
        """speed [n] += W λ; n: the number of rows, if the caller has read it already."""
        multiply(self.W, self.count if n is None else n, impulse, speed)
