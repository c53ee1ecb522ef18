"""The contact problem of a substep: a mixed complementarity problem on the rows of all constraints.

    s = W λ + R λ + b              λ [n]: impulses, N s or N m s;  s [n]: speeds, m/s or rad/s
    low - μ λₙ ≤ λ ≤ high + μ λₙ   λₙ: the impulse of the row's normal
    s ≥ 0 where λ is at its lower bound, s ≤ 0 where it is at its upper bound, s = 0 between

W is the Delassus matrix, R the rows' compliance, b the speeds before the impulses act, with their bias.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ...ir import Index, Mask, Scalar, ScalarArray, absolute, carry, counters, loop, maximum, memory, select
from ..budget import Factorisations, WorkBudget
from ..math.linear import TILE
from ..solvers.active_set import NO_ACTIVE_SET
from ..solvers.complementarity import counts
from .constraints import Constraints, Support
from .delassus import DenseDelassus
from .root_frame import RootFrameFactors
from .rows import Row


class RowData(NamedTuple):
    """The rows of one constraint. Sequences have an element for every row; the first row is the normal of the others.

    support: the links that the rows act on. on: masks, where a row counts. slot: of the first row, a number that no
    other row of the model ever has; the others follow. speeds: b (m/s, rad/s). compliance: R ((m/s) per N s). low,
    high: constant part of the bounds (N s). mu: by which part of the normal's impulse the bounds are wider. violation:
    of the first row, how far positions are from satisfying it (m, rad; of contacts and limits negative, or zero).
    bias: the part of the first row's speed b that is not J v*.
    bounces: mask, whether the constraint is a contact that bounces.
    """

    support: Support
    rows: Sequence[Row]
    on: Sequence[Mask]
    slot: Index
    speeds: Sequence[Scalar]
    compliance: Sequence[Scalar]
    low: Sequence[Scalar]
    high: Sequence[Scalar]
    mu: Sequence[Scalar]
    violation: Scalar
    bias: Scalar = 0.0
    bounces: Mask = False


class ContactProblem:
    """The contact problem of a substep (see above), in every lane. Its n rows are padded to whole tiles.

    Arrays [n], named as in `RowData`: b, bias, compliance, low, high, mu, violation, bounces (1 or 0), slot, and normal
    (the row whose impulse widens the bounds). impulse: λ, zero until the solver replaces it by the solution. unit [1]:
    1 / (1 + the largest |b|). factored: the active set whose factors are in `delassus.B`. work: how many
    factorisations the step allows. tree, other_tree: the roots of the two links of a row (records in
    arrays over links; 0: the world).
    """

    def __init__(
        self, constraints: Constraints, factors: RootFrameFactors, nv: Index, budget: WorkBudget | None = None
    ) -> None:
        """budget: what is left of that of the step; None: all of it."""
        self.constraints = constraints
        self.delassus = DenseDelassus(constraints, factors, nv)
        most = self.capacity
        self.b, self.bias, self.compliance, self.low, self.high, self.mu = (memory(most) for _ in range(6))
        self.violation, self.impulse, self.bounces, self.factored = (memory(most) for _ in range(4))
        self.unit, self.work = memory(1), Factorisations(budget)
        self.normal, self.slot, self.tree, self.other_tree = (counters(most) for _ in range(4))

    @property
    def capacity(self) -> Index:
        """The size of arrays over rows: as many as there can be, and a tile for padding."""
        return self.constraints.nimpulse + TILE

    @property
    def count(self) -> Index:
        """The number of rows n so far."""
        return self.delassus.count

    @property
    def diagonal(self) -> ScalarArray:
        """The diagonal of W + R, [n]."""
        return self.delassus.diagonal

    def add(self, poses: ScalarArray, width: int, data: RowData) -> None:
        """Append the rows of a constraint; poses: over links, `width` numbers each.

        `delassus.fill_columns` must follow before constraints with another number of rows are added.
        """
        first, on = self.count, data.on
        masked = [
            Row(x.point, *([select(mask, c, 0.0) for c in part] for part in (x.couple, x.force)))
            for x, mask in zip(data.rows, on, strict=True)
        ]
        self.delassus.add_wrenches(first, data.support, masked, poses, width)
        for k in range(len(masked)):
            r = first + k
            self.b[r] = select(on[k], data.speeds[k], 0.0)
            self.bias[r] = select(on[k], data.bias, 0.0) if k == 0 else 0.0
            self.compliance[r] = select(on[k], data.compliance[k], 1.0)
            self.low[r], self.high[r] = select(on[k], data.low[k], 0.0), select(on[k], data.high[k], 0.0)
            self.mu[r] = select(on[k], data.mu[k], 0.0)
            self.violation[r] = select(on[k], data.violation, 0.0) if k == 0 else 0.0
            self.impulse[r] = 0.0
            self.bounces[r] = select(data.bounces, 1.0, 0.0) if k == 0 else 0.0
            self.normal[r], self.slot[r] = first, data.slot + k
            self.tree[r], self.other_tree[r] = data.support.root_a, data.support.root_b
        self.delassus.add_constraint(first, data.support, len(masked))

    def close(self) -> None:
        """All rows are there: pad the last tile with rows whose impulse is zero, and assemble the Delassus matrix."""
        count = self.count
        whole = (count + (TILE - 1)) // TILE * TILE
        for r in loop(whole, start=count):
            self.b[r], self.compliance[r], self.low[r], self.high[r], self.mu[r] = 0.0, 1.0, 0.0, 0.0, 0.0
            self.bias[r], self.violation[r], self.impulse[r] = 0.0, 0.0, 0.0
            self.normal[r], self.slot[r], self.tree[r], self.other_tree[r] = r, 0, 0, 0
        self.delassus.pad(whole)
        fastest, rows = carry(1), carry(1)
        fastest[0], rows[0] = 1.0, 0.0
        for r in loop(whole):
            fastest[0] = maximum(fastest[0], 1.0 + absolute(self.b[r]))
            rows[0] = rows[0] + select(counts(self, r), 1.0, 0.0)
        self.unit[0] = 1.0 / fastest[0]
        n = self.count
        self.work.of(rows[0], n)
        for r in loop(n):
            self.factored[r] = NO_ACTIVE_SET
        self.delassus.assemble(n, self.compliance)
