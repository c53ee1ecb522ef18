"""The rows of a step's constraints, and what they do to each other: W = J A⁻¹ Jᵀ (A = M + h D).

A unit impulse of a row is passed inward along the joints on its way, as `dynamics.reduce` does with any force. What is
left at every joint, y, is all that is needed:  W = Σ y yᵀ / d over the joints, and A⁻¹ Jᵀ λ is the outward half of a
solve (`dynamics.expand`) that starts from Σ λ y / d. Here joints are seen in the axes of the root of their tree, about
its origin: then a force is the same for all joints on its way, and to a loose root (`tables`) forces are what they are.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from ...ir import Scalar, absolute, carry, counters, leave, loop, maximum, memory, select, when
from ..math import spatial as sp
from ..math.arrays import zero
from ..math.linear import TILE
from ..math.spatial import Vec
from ..tree.dynamics import Factors
from ..tree.kinematics import Frames
from ..tree.tree import Tree
from .constraints import ChainSegment, Constraints, Support
from .rows import Row
from .warm_start import WarmStart

INFINITE = 1e30  # a bound that no impulse reaches
NO_MODE = 2.0  # of a row whose B is not that of a mode
COMPONENTS = {2: (2, 3, 4), 3: (0, 1, 2, 3, 4, 5)}  # of spatial vectors, that are not always zero


class Mobility:
    """How joints give way: S and U of every coordinate of v in the axes of their tree's root, about its origin; 1/d.

    S of loose roots are unit vectors: `order` says which component each coordinate is.
    """

    def __init__(self, tree: Tree, frames: Frames, factors: Factors, dim: int) -> None:
        keep = COMPONENTS[dim]
        self.width = len(keep)
        angular = sum(c < 3 for c in keep)
        self.order = (*range(angular, self.width), *range(angular))
        self.S, self.U = memory(tree.nv * self.width), memory(tree.nv * self.width)
        self.inverse = memory(tree.nv)
        turns, arms = tree.over_links(9), tree.over_links(3)
        for i in tree.links():
            self._place(tree, frames, turns, arms, i)
            R, arm, b = turns.get(i + 1, 9), arms.get(i + 1, 3), tree.v_start(i)
            for k in loop(tree.dofs(i)):
                s, u = frames.S.get(b + k, 6), factors.U.get(b + k, 6)
                w, f = sp.rotate(R, s[:3]), sp.rotate(R, u[3:])
                S = (*w, *sp.cross(arm, w, sp.rotate(R, s[3:])))
                U = (*sp.cross(arm, f, sp.rotate(R, u[:3])), *f)
                self.S.put(b + k, [S[c] for c in keep])
                self.U.put(b + k, [U[c] for c in keep])
                self.inverse[b + k] = factors.inverse[b + k]

    def _place(self, tree: Tree, frames: Frames, turns: Any, arms: Any, i: Any) -> None:
        """Rotation and origin of link i in its tree's root."""
        for _ in when(tree.root(i) == i + 1):
            turns.put(i + 1, sp.IDENTITY)
            arms.put(i + 1, sp.ZERO3)
        for _ in when(tree.root(i) != i + 1):
            (R, p), parent = frames.pose(i), tree.parent(i)
            above = turns.get(parent, 9)
            turns.put(i + 1, sp.matmul(above, R))
            arms.put(i + 1, sp.rotate(above, p, arms.get(parent, 3)))


class ContactProblem:
    """0 = W λ + extra λ + b on rows whose λ lies between its bounds low - μ λₙ and high + μ λₙ (n: the row's normal);
    W λ + extra λ + b >= 0 at the lower bound, <= 0 at the upper.

    n rows, padded to whole tiles with rows that do nothing. Y [n, nv]: y of every row; it is only there for the
    coordinates that the row's tile reaches (`reach`). violation: how far the position is from where it should be (m,
    rad; contacts and limits: negative or zero). place: where a row's impulse is kept. hits: 1 if a contact (at its
    normal row) bounces. after: speeds J v⁺ with b's bias, if v⁺ is given; known: 1 where it is not NaN. diagonal: of
    W + extra. factored: the modes that B has the factors of (`complementarity`).
    """

    def __init__(
        self, constraints: Constraints, mobility: Mobility, nv: Any, start: WarmStart, known: bool = False
    ) -> None:
        """start: the impulses from which a solver starts. known: whether v⁺ is given."""
        most = constraints.nimpulse + TILE
        self.constraints, self.mobility, self.nv, self.start = constraints, mobility, nv, start
        self._count = counters(1)
        self._count[0] = 0
        self.Y = memory(most * nv)
        # Of every row: the wrenches on a and b, as seen from the roots of their trees. Of every constraint: its first
        # row, and its support.
        self._wrench_a, self._wrench_b = memory(most * mobility.width), memory(most * mobility.width)
        self._first, self._support, self._constraints, self._filled = (counters(k) for k in (most, most, 1, 1))
        self._constraints[0], self._filled[0] = 0, 0
        # Of every tile: which coordinates it reaches, and lists of them: single ones, and loose roots. They are sorted:
        # sums do not depend on the rows that share a tile.
        self._reached = counters(most * nv)
        self._singles, self._single_count = counters(most * nv), counters(most)
        self._roots, self._root_count = counters(most * nv), counters(most)
        self.W, self.B, self.diagonal = memory(most * most), memory(most * most), memory(most)
        self.b, self.extra, self.low, self.high, self.mu = (memory(most) for _ in range(5))
        self.violation, self.impulse, self.hits, self.factored = (memory(most) for _ in range(4))
        self.after: Any = memory(most) if known else None
        self.known: Any = memory(1) if known else None
        self.unit = memory(1)  # 1 / (1 + the largest |b|)
        self.normal, self.place = counters(most), counters(most)

    @property
    def count(self) -> Any:
        """Rows so far."""
        return self._count[0]

    def add(
        self, poses: Any, width: int, support: Support, rows: Sequence[Row], on: Sequence[Any], place: Any,
        speeds: Sequence[Scalar], extra: Sequence[Scalar], low: Sequence[Scalar], high: Sequence[Scalar],
        mu: Sequence[Scalar], violation: Scalar, after: Sequence[Scalar], hits: Any = False,
    ) -> None:  # fmt: skip
        """Append the rows of a constraint, the first being the normal of the others; `on`: where they count (masks).

        `fill_columns` must follow before others with another number of rows are added.
        """
        first = self.count
        masked = [
            Row(x.point, *([select(mask, c, 0.0) for c in part] for part in (x.couple, x.force)))
            for x, mask in zip(rows, on, strict=True)
        ]
        for k, row in enumerate(masked):
            self._wrench_a.put(first + k, self._seen_from(poses.get(support.root_a, width), row))
        for _ in when(support.b > 0):  # not the world
            for k, row in enumerate(masked):
                self._wrench_b.put(first + k, sp.neg(self._seen_from(poses.get(support.root_b, width), row)))
        for k in range(len(rows)):
            r = first + k
            self.b[r] = select(on[k], speeds[k], 0.0)
            self.extra[r] = select(on[k], extra[k], 1.0)
            self.low[r], self.high[r] = select(on[k], low[k], 0.0), select(on[k], high[k], 0.0)
            self.mu[r] = select(on[k], mu[k], 0.0)
            self.violation[r] = select(on[k], violation, 0.0) if k == 0 else 0.0
            self.impulse[r] = select(on[k], self.start.at(place + k), 0.0)
            self.hits[r] = select(hits, 1.0, 0.0) if k == 0 else 0.0
            if self.after is not None:
                self.after[r] = select(on[k], after[k], 0.0)
            self.normal[r], self.place[r] = first, place + k
        number = self._constraints[0]
        self._first[number], self._support[number] = first, support.at
        self._constraints[0], self._count[0] = number + 1, first + len(rows)

    def close(self) -> None:
        """That was all: fill up the last tile with rows whose impulse is zero."""
        count = self.count
        whole = (count + (TILE - 1)) // TILE * TILE
        for r in loop(whole, start=count):
            self.b[r], self.extra[r], self.low[r], self.high[r], self.mu[r] = 0.0, 1.0, 0.0, 0.0, 0.0
            self.violation[r], self.impulse[r] = 0.0, 0.0
            if self.after is not None:
                self.after[r] = 0.0
            self.normal[r], self.place[r] = r, 0
        self._count[0] = whole
        fastest = carry(1)
        fastest[0] = 1.0
        for r in loop(whole):
            fastest[0] = maximum(fastest[0], 1.0 + absolute(self.b[r]))
        self.unit[0] = 1.0 / fastest[0]

    def fill_columns(self, rows: int, grounded: bool = False) -> None:
        """Y of the constraints since the last call, which have so many rows each, and what their tiles reach.

        grounded: b is the world in all of them.
        """
        size, end = self.mobility.width, self._constraints[0]
        for number in loop(end, start=self._filled[0]):
            support, first = self.constraints.support(self._support[number]), self._first[number]
            if grounded:
                support = support.grounded()
            self._extend_reach(support, first, rows)
            own_a, own_b, common = support.segments()
            for r in loop(first + rows, start=first):
                rest, y = carry(size), self.Y.at(r * self.nv)
                rest.put(0, self._wrench_a.get(r, size))
                self._pass_on(own_a, rest, y)
                for _ in when(support.b > 0):  # not the world
                    kept = carry(size)
                    kept.put(0, rest.get(0, size))
                    rest.put(0, self._wrench_b.get(r, size))
                    self._pass_on(own_b, rest, y)
                    rest.accumulate(0, kept.get(0, size))
                    self._pass_on(common, rest, y)
        self._filled[0] = end

    def _extend_reach(self, support: Support, first: Any, count: int) -> None:
        """The tiles of `count` rows reach what moves with their support: y is zero there until it is set."""
        nv = self.nv
        for tile in loop((first + (count - 1)) // TILE + 1, start=first // TILE):
            reached, rows = self._reached.at(tile * nv), self.Y.at(tile * (TILE * nv))
            singles, roots = (self._singles, self._single_count), (self._roots, self._root_count)

            def append(dof: Any, width: int, lists: Any, counts: Any, tile: Any = tile, reached: Any = reached,
                       rows: Any = rows) -> None:  # fmt: skip
                for _ in when(reached[dof] == 0):
                    end, numbers = counts[tile], lists.at(tile * nv)
                    numbers[end] = dof
                    counts[tile] = end + 1
                    for k in loop(end, reverse=True):  # in falling order, as most ways have it
                        if leave(numbers[k] > dof):
                            break
                        numbers[k + 1] = numbers[k]
                        numbers[k] = dof
                    for k in range(width):
                        reached[dof + k] = 1
                        for r in range(TILE):
                            rows.at(r * nv)[dof + k] = 0.0

            for _ in when(tile * TILE >= first):  # a new one
                zero(nv, reached)
                self._single_count[tile], self._root_count[tile] = 0, 0
            for segment in support.segments():
                for j in loop(segment.count):
                    append(self.constraints.ints.at(segment.start)[j], 1, *singles)
                for _ in when(segment.floating >= 0):
                    append(segment.floating, self.mobility.width, *roots)

    def reach(self, tile: Any, other: Any = None) -> Iterator[Any]:
        """The coordinates of v that the rows of a tile move; with another tile, those that both do."""
        lists = ((self._singles, self._single_count, 1), (self._roots, self._root_count, self.mobility.width))
        for numbers, count, width in lists:
            for k in loop(count[tile]):
                dof = numbers.at(tile * self.nv)[k]
                for _ in when(True if other is None else self._reached.at(other * self.nv)[dof] == 1):
                    for c in range(width):
                        yield dof + c

    def _seen_from(self, root: Vec, row: Row) -> Vec:
        """The wrench of a row in the axes of a root (its pose), about its origin."""
        W, x = root[:9], root[9:12]
        f = sp.unrotate(W, row.force)
        wrench = (*sp.cross(sp.unrotate(W, sp.sub(row.point, x)), f, sp.unrotate(W, row.couple)), *f)
        return tuple(wrench[c] for c in COMPONENTS[self.constraints.dim])

    def _pass_on(self, segment: ChainSegment, rest: Any, y: Any) -> None:
        """y of the joints of a stretch that a wrench meets, and what is left of it (`rest`, in place)."""
        mobility, size = self.mobility, self.mobility.width
        half = size // 2
        for j in loop(segment.count):
            dof = self.constraints.ints.at(segment.start)[j]
            S, U, F = mobility.S.get(dof, size), mobility.U.get(dof, size), rest.get(0, size)
            # Two short chains of additions: the joints wait for each other.
            y[dof] = sp.dot(S[:half], F[:half]) + sp.dot(S[half:], F[half:])
            z = y[dof] * mobility.inverse[dof]
            rest.put(0, [f - z * u for f, u in zip(F, U, strict=True)])
        for _ in when(segment.floating >= 0):
            F = list(rest.get(0, size))
            for k, c in enumerate(mobility.order):
                U = mobility.U.get(segment.floating + k, size)
                y.at(segment.floating)[k] = F[c]
                z = F[c] * mobility.inverse.at(segment.floating)[k]
                for other in mobility.order[k + 1 :]:  # nothing is left of the others
                    F[other] = F[other] - z * U[other]

    def couple(self) -> None:
        """Fill W = Y D⁻¹ Yᵀ, tile by tile; it is symmetric."""
        n = self.count
        for r in loop(n):
            self.factored[r] = NO_MODE
        total = carry(TILE * TILE)
        tiles = [(r, c) for r in range(TILE) for c in range(TILE)]
        for I in loop(n // TILE):
            for J in loop(I + 1):
                for r, c in tiles:
                    total[r * TILE + c] = 0.0
                for dof in self.reach(I, J):
                    inverse = self.mobility.inverse[dof]
                    a, b = self._tile(I, dof), self._tile(J, dof)
                    for r, c in tiles:
                        total[r * TILE + c] = total[r * TILE + c] + (a[r] * inverse) * b[c]
                lower, upper = self.W.at(I * TILE * n + J * TILE), self.W.at(J * TILE * n + I * TILE)
                for r, c in tiles:
                    x = total[r * TILE + c]
                    lower.at(r * n)[c] = x
                    upper.at(c * n)[r] = x
            for r in range(TILE):
                self.diagonal.at(I * TILE)[r] = total[r * TILE + r] + self.extra.at(I * TILE)[r]

    def _tile(self, tile: Any, dof: Any) -> Vec:
        """y of the rows of a tile, of one coordinate."""
        rows = self.Y.at(tile * (TILE * self.nv))
        return tuple(rows.at(r * self.nv)[dof] for r in range(TILE))

    def effect(self, impulse: Any, z: Any) -> None:
        """z [nv] = Σ λ y / d: `expand` makes A⁻¹ Jᵀ λ of it."""
        zero(self.nv, z)
        self.add_effect(impulse, z)

    def add_effect(self, impulse: Any, z: Any) -> None:
        """z [nv] += Σ λ y / d"""
        for I in loop(self.count // TILE):
            x = impulse.get(I, TILE)
            for dof in self.reach(I):
                inverse = self.mobility.inverse[dof]
                z[dof] = sp.dot(x, [y * inverse for y in self._tile(I, dof)], z[dof])  # row by row, whatever the tiles

    def speeds(self, z: Any, result: Any) -> None:
        """result [n] = J A⁻¹ τ, from z, the inward half of a solve with τ."""
        total = carry(TILE)
        for I in loop(self.count // TILE):
            for r in range(TILE):
                total[r] = 0.0
            for dof in self.reach(I):
                for r, y in enumerate(self._tile(I, dof)):
                    total[r] = total[r] + y * z[dof]
            result.put(I, [total[r] for r in range(TILE)])
