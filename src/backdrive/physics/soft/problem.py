"""All rows of a state, and the convex problem on accelerations that they pose.

With the factors of M, accelerations are a = E w, where M = E⁻ᵀ diag(d) E⁻¹ (`dynamics.reduce` and `expand` are the two
halves of a solve), and the rows are J a = Y w (`delassus.ReducedRows`). So the problem is

    minimise over w    1/2 Σ d (w - w₀)² + s(Y w - a_ref),       w₀: that of the unconstrained acceleration

and the Hessian is diag(d) + Yᵀ C Y, with C block-diagonal: the curvature of every constraint's cost.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from ...ir import (
    Index,
    Mask,
    Scalar,
    ScalarArray,
    any_lane,
    carry,
    counters,
    loop,
    maximum,
    memory,
    minimum,
    select,
    traced,
    when,
)
from ..constraints.assemble import LinkMotions
from ..constraints.constraints import Constraints, Support
from ..constraints.delassus import ReducedRows
from ..constraints.root_frame import RootFrameFactors
from ..constraints.rows import Row
from ..math.linear import TILE
from ..tree.tree import Tree
from .hessian import Hessian
from .laws import ContactLaw, SingleLaw
from .rows import SingleRow, SoftContactRows
from .settings import SoftSettings


class SoftProblem:
    """The rows of one state. Single rows come first, padded to whole tiles, then the contacts, of `block` rows each.

    Arrays over rows: reference (a_ref), D, mu (contacts) or low (single rows), high (single rows; for contacts, the
    pull of adhesion), on (1 in the lanes where the row counts, otherwise 0), place (its number among all rows that
    there can be). singles, contacts [1]: how many single rows, whole tiles of them, and how many contacts there are.
    matrix: the Hessian.
    """

    def __init__(self, settings: SoftSettings, constraints: Constraints, factors: RootFrameFactors, tree: Tree) -> None:
        nv = tree.nv
        self.settings, self.constraints, self.nv, self.factors = settings, constraints, nv, factors
        self.capacity = most_places(constraints, settings) + 2 * TILE
        self.rows = ReducedRows(constraints, factors, nv, self.capacity)
        self.reference, self.D, self.mu, self.high, self.on = (memory(self.capacity) for _ in range(5))
        self.place = counters(self.capacity)
        self.singles, self.contacts = counters(1), counters(1)
        self.singles[0], self.contacts[0] = 0, 0
        self._combinations = 0  # rows so far that are no contacts, and not of single joints or links
        self.matrix = Hessian(tree, constraints, factors.width)
        # Whether the coordinates of floating roots are known to come before all others: those of a single tree do.
        self._root_first = not traced(tree.nlink) and all(tree.parent(i) > 0 for i in range(1, cast(int, tree.nlink)))

    @property
    def count(self) -> Index:
        return self.rows.count

    def add_single(
        self, place: Index, support: Support, rows: tuple[Row, Row], on: Mask, found: SingleRow, links: LinkMotions
    ) -> None:
        """A row that counts in the lanes `on`; rows: as it acts on link a, and on link b."""
        r = self.count
        self._add(support, rows[:1], on, links, rows[1:])
        self._put_single(r, place, on, found)

    def add_combination(self, parts: Sequence[tuple[int, Scalar]], on: Mask, found: SingleRow) -> None:
        """A row Σ factor · v[k] of `parts` (k, factor) that counts in the lanes `on`, after all other single rows."""
        r = self.count
        self.rows.fill_columns(1)
        masked_parts = [(k, select(on, factor, 0.0)) for k, factor in parts]
        self.rows.add_coordinate_row(masked_parts, [self.settings.chains[k] for k, _ in parts])
        self._put_single(r, self._next_combination(), on, found)
        self.matrix.add_coordinates([k for k, _ in parts])

    def add_dense(self, y: ScalarArray, factor: Scalar, on: Mask, found: SingleRow) -> None:
        """A row `factor` Y, with y [nv] its columns, that counts in the lanes `on`, after all other single rows."""
        r = self.count
        self.rows.fill_columns(1)
        self.rows.add_dense_row(y, factor)
        self._put_single(r, self._next_combination(), on, found)
        self.matrix.add_coordinates(None)

    def _put_single(self, r: Index, place: Index, on: Mask, found: SingleRow) -> None:
        reference, law = found
        self.reference[r], self.D[r] = select(on, reference, 0.0), select(on, law.D, 0.0)
        self.mu[r], self.high[r] = law.low, law.high
        self.place[r], self.on[r] = place, select(on, 1.0, 0.0)

    def _next_combination(self) -> Index:
        """The place of a row that is added in one place of the source only."""
        self._combinations += 1
        return 2 * self.constraints.nsingle + (self._combinations - 1)

    def close_singles(self) -> None:
        """All single rows are there: pad them to whole tiles."""
        self.rows.fill_columns(1)
        count = self.count
        whole = (count + (TILE - 1)) // TILE * TILE
        for r in loop(whole, start=count):
            self.reference[r], self.D[r], self.mu[r], self.high[r] = 0.0, 0.0, 0.0, 0.0
            self.place[r], self.on[r] = most_places(self.constraints, self.settings), 0.0
        self.rows.pad(whole)
        self.singles[0] = whole

    def add_contact(self, slot: Index, support: Support, on: Mask, found: SoftContactRows, links: LinkMotions) -> None:
        """A contact that counts in the lanes `on`."""
        first, law, block = self.count, found.law, self.settings.block
        place = 2 * self.constraints.nsingle + self.settings.combination_rows + slot * block
        self._add(support, found.rows, on, links)
        for k in range(block):
            self.place[first + k], self.on[first + k] = place + k, select(on, 1.0, 0.0)
            self.reference[first + k] = select(on, found.reference[k], 0.0)
            self.D[first + k], self.mu[first + k] = select(on, law.D[k], 0.0), law.mu[k]
        if self.settings.adheres:
            self.high[first] = select(on, law.pull, 0.0)
        self.contacts[0] = self.contacts[0] + 1

    def close_contacts(self) -> None:
        """All contacts are there."""
        self.rows.fill_columns(self.settings.block, self.constraints.grounded)
        for _ in when(self.count > 0):
            self.matrix.close(self.factors.inverse)

    def _add(
        self, support: Support, rows: Sequence[Row], on: Mask, links: LinkMotions, others: Sequence[Row] | None = None
    ) -> None:
        """others: the rows as they act on link b, if at other points."""
        first = self.count
        parts = [None if some is None else [masked(row, on) for row in some] for some in (rows, others)]
        assert parts[0] is not None
        self.rows.add_wrenches(first, support, parts[0], *links, parts[1])
        self.rows.add_constraint(first, support, len(rows))
        self.matrix.add_support(support)

    # ---------------------------------------------------------------------------------------- forces

    def single_law(self, r: Index) -> SingleLaw:
        return SingleLaw(self.D[r], self.mu[r], self.high[r])

    def contact_law(self, first: Index) -> ContactLaw:
        block = self.settings.block
        D, mu = ([array[first + k] for k in range(block)] for array in (self.D, self.mu))
        return ContactLaw(D, mu, self.high[first] if self.settings.adheres else 0.0)

    def first_row(self, c: Index) -> Index:
        """The normal of contact c."""
        return self.singles[0] + c * self.settings.block

    def residual(self, w: ScalarArray, x: ScalarArray) -> None:
        """x [n] = Y w - a_ref"""
        self.rows.speeds(w, x)
        for r in loop(self.count):
            x[r] = x[r] - self.reference[r]

    def forces(self, x: ScalarArray, f: ScalarArray) -> None:
        """f [n], of the residuals x [n]."""
        settings, block = self.settings, self.settings.block
        for r in loop(self.singles[0]):
            f[r] = self.single_law(r).force(x[r])
        for c in loop(self.contacts[0]):
            first = self.first_row(c)
            force = self.contact_law(first).force(settings.elliptic, [x[first + k] for k in range(block)])
            for k, value in enumerate(force):
                f[first + k] = value

    def linear_forces(self, at: ScalarArray, x: ScalarArray, f: ScalarArray) -> None:
        """f [n], of the residuals x [n], by the laws as they are linear around the residuals `at`."""
        self.forces(at, f)
        for r in loop(self.singles[0]):
            f[r] = f[r] - self.single_law(r).curvature(at[r]) * (x[r] - at[r])
        block = self.settings.block
        for c in loop(self.contacts[0]):
            first = self.first_row(c)
            C = self.contact_law(first).curvature(self.settings.elliptic, [at[first + k] for k in range(block)])
            step = [x[first + k] - at[first + k] for k in range(block)]
            for k, row in enumerate(C):
                f[first + k] = f[first + k] - sum_products(row, step)

    def counts(self) -> Mask:
        """Where any constraint counts."""
        found = carry(1)
        found[0] = 0.0
        for r in loop(self.count):
            found[0] = maximum(found[0], self.on[r])
        return found[0] > 0.0

    def gradient(self, f: ScalarArray, change: ScalarArray, g: ScalarArray) -> None:
        """g [nv] = d (w - w₀) - Yᵀ f; change [nv]: w - w₀."""
        for k in loop(self.nv):
            g[k] = change[k] / self.factors.inverse[k]
        for I in loop(self.count // TILE):
            forces = f.get(I, TILE)
            for dof in self.rows.dofs(I):
                total = g[dof]
                for y, force in zip(self.rows.tile(I, dof), forces, strict=True):
                    total = total - y * force
                g[dof] = total

    def hessian(self, x: ScalarArray, where: Mask = True) -> None:
        """The lower triangle of the matrix H = diag(d) + Yᵀ C Y, in the lanes `where`."""
        self.matrix.clear()
        for I in loop(self.singles[0] // TILE):
            C: list[list[Scalar]] = [[0.0] * TILE for _ in range(TILE)]
            for k in range(TILE):
                r = I * TILE + k
                C[k][k] = self.single_law(r).curvature(x[r])
            self._add_block(I, C, where)
        block = self.settings.block
        for c in loop(self.contacts[0]):
            first = self.first_row(c)
            residual = [x[first + k] for k in range(block)]
            C = self.contact_law(first).curvature(self.settings.elliptic, residual)
            self._add_block(first // TILE, C, where)

    def _add_block(self, I: Index, C: list[list[Scalar]], where: Mask) -> None:
        """H += Yᵀ C Y of the rows from tile I on, which have the same coordinates, unless C is zero in all lanes
        `where`."""
        H, n, lists, size, nv = self.matrix.H, self.matrix.n, self.rows.lists, len(C), self.nv
        Y, singles, roots = self.rows.Y.at(I * (TILE * nv)), lists.singles.at(I * nv), lists.roots.at(I * nv)
        count, root_count, width = lists.single_count[I], lists.root_count[I], self.factors.width

        def column(dof: Index) -> list[Scalar]:
            return [Y.at(k * nv)[dof] for k in range(size)]

        def pulled(dof: Index) -> list[Scalar]:
            y = column(dof)
            return [sum_products([row[m] for row in C], y) for m in range(size)]

        def add(a: Index, b: Index, left: list[Scalar], falling: bool = True) -> None:
            k = b if falling else minimum(a, b)
            at = H.at((a if falling else a + b - k) * n)
            at[k] = sum_products(left, column(b), at[k])

        acts: Mask = False
        for row in C:
            for entry in row:
                acts = acts | (entry != 0.0)
        for _ in when(any_lane(where & acts)):
            for k in loop(count):  # the lists are falling
                a = singles[k]
                left = pulled(a)
                for m in loop(count, start=k):
                    add(a, singles[m], left)
                for m in loop(root_count):
                    for c in range(width):
                        add(a, roots[m] + c, left, falling=self._root_first)
            for k in loop(root_count):
                for c in range(width):
                    a = roots[k] + c
                    left = pulled(a)
                    for d in range(c + 1):
                        add(a, roots[k] + d, left)
                    for m in loop(root_count, start=k + 1):
                        for d in range(width):
                            add(a, roots[m] + d, left)


def most_places(constraints: Constraints, settings: SoftSettings) -> Index:
    """The number of all rows that there can be: two for each of the `nsingle`, combinations, contacts."""
    return 2 * constraints.nsingle + settings.combination_rows + constraints.nslot * settings.block


def masked(row: Row, on: Mask) -> Row:
    """The row in the lanes `on`, and none in others."""
    return Row(row.point, *([select(on, x, 0.0) for x in part] for part in (row.couple, row.force)))


def sum_products(x: Sequence[Scalar], y: Sequence[Scalar], plus: Scalar = 0.0) -> Scalar:
    """plus + x · y"""
    total = plus
    for a, b in zip(x, y, strict=True):
        total = total + a * b
    return total
