"""The rows of a step's constraints, and what they do to each other: W = J A⁻¹ Jᵀ (A = M + h D).

A unit impulse of a row is passed inward along the joints on its way, as `dynamics.reduce` does with any force. What is
left at every joint, y, is all that is needed:  W = Σ y yᵀ / d over the joints, and A⁻¹ Jᵀ λ is the outward half of a
solve (`dynamics.expand`) that starts from Σ λ y / d. Here joints are seen in world axes, about the origin of the root
of their tree: then a force is the same for all joints on its way.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..compiler import Scalar, absolute, carry, counters, loop, maximum, memory, select, traced, when
from . import spatial as sp
from .arrays import zero
from .constraints import Constraints, Row, Support
from .dynamics import Factors
from .kinematics import Frames
from .linear import TILE
from .spatial import Vec
from .world import World

INFINITE = 1e30  # a bound that no impulse reaches
CHUNK = 9  # sums that are kept in registers
COMPONENTS = {2: (2, 3, 4), 3: (0, 1, 2, 3, 4, 5)}  # of spatial vectors, that are not always zero


class Mobility:
    """How joints give way: S and U of every coordinate of v in world axes, about their tree's origin, and 1/d."""

    def __init__(self, world: World, frames: Frames, factors: Factors, poses: Any, width: int, dim: int) -> None:
        keep = COMPONENTS[dim]
        self.width = len(keep)
        self.S, self.U = memory(world.nv * self.width), memory(world.nv * self.width)
        self.inverse = memory(world.nv)
        for i in world.links():
            pose, b = poses.get(i + 1, width), world.velocity(i)
            W, arm = pose[:9], sp.sub(pose[9:12], poses.get(world.root(i), width)[9:12])
            for k in loop(world.dofs(i)):
                s, u = frames.S.get(b + k, 6), factors.U.get(b + k, 6)
                w, f = sp.rotate(W, s[:3]), sp.rotate(W, u[3:])
                S = (*w, *sp.cross(arm, w, sp.rotate(W, s[3:])))
                U = (*sp.cross(arm, f, sp.rotate(W, u[:3])), *f)
                self.S.put(b + k, [S[c] for c in keep])
                self.U.put(b + k, [U[c] for c in keep])
                self.inverse[b + k] = factors.inverse[b + k]


class System:
    """0 = W λ + extra λ + b on rows whose λ lies between its bounds low - μ λₙ and high + μ λₙ (n: the row's normal);
    W λ + extra λ + b >= 0 at the lower bound, <= 0 at the upper.

    n rows, padded to whole tiles with rows that do nothing. Y, Z [n, nv]: y and y / d. violation: how far the position
    is from where it should be (m, rad; contacts and limits: negative or zero). place: where a row's impulse is kept.
    hits: 1 if a contact (at its normal row) bounces.
    """

    def __init__(self, constraints: Constraints, nv: Any) -> None:
        most = constraints.nimpulse + TILE
        self.constraints, self.nv = constraints, nv
        self._count = counters(1)
        self._count[0] = 0
        self.Y, self.Z = memory(most * nv), memory(most * nv)
        self.W, self.B = memory(most * most), memory(most * most)
        self.b, self.extra, self.low, self.high, self.mu = (memory(most) for _ in range(5))
        self.violation, self.impulse, self.hits = memory(most), memory(most), memory(most)
        self.unit = memory(1)  # 1 / (1 + the largest |b|)
        self.normal, self.place = counters(most), counters(most)

    @property
    def count(self) -> Any:
        """Rows so far."""
        return self._count[0]

    def add(
        self, mobility: Mobility, poses: Any, width: int, support: Support, rows: Sequence[Row], on: Sequence[Any],
        place: Any, speeds: Sequence[Scalar], extra: Sequence[Scalar], low: Sequence[Scalar], high: Sequence[Scalar],
        mu: Sequence[Scalar], violation: Scalar, hits: Any = False,
    ) -> None:  # fmt: skip
        """Append the rows of a constraint, the first being the normal of the others; `on`: where they count (masks)."""
        first = self.count
        self._columns(mobility, poses, width, support, rows, on, first)
        for k in range(len(rows)):
            r = first + k
            self.b[r] = select(on[k], speeds[k], 0.0)
            self.extra[r] = select(on[k], extra[k], 1.0)
            self.low[r], self.high[r] = select(on[k], low[k], 0.0), select(on[k], high[k], 0.0)
            self.mu[r] = select(on[k], mu[k], 0.0)
            self.violation[r] = select(on[k], violation, 0.0) if k == 0 else 0.0
            self.hits[r] = select(hits, 1.0, 0.0) if k == 0 else 0.0
            self.normal[r], self.place[r] = first, place + k
        self._count[0] = first + len(rows)

    def recall(self, impulses: Any) -> None:
        """Start from the impulses that are kept at the rows' places, where they still count."""
        for r in loop(self.count):
            off = (self.low[r] == 0.0) & (self.high[r] == 0.0) & (self.mu[r] == 0.0)
            self.impulse[r] = select(off, 0.0, impulses[self.place[r]])

    def close(self) -> None:
        """That was all: fill up the last tile with rows whose impulse is zero."""
        count, nv = self.count, self.nv
        whole = (count + (TILE - 1)) // TILE * TILE
        for r in loop(whole, start=count):
            self.b[r], self.extra[r], self.low[r], self.high[r], self.mu[r] = 0.0, 1.0, 0.0, 0.0, 0.0
            self.violation[r], self.impulse[r] = 0.0, 0.0
            self.normal[r] = r
            zero(nv, self.Y.at(r * nv))
            zero(nv, self.Z.at(r * nv))
        self._count[0] = whole
        fastest = carry(1)
        fastest[0] = 1.0
        for r in loop(whole):
            fastest[0] = maximum(fastest[0], 1.0 + absolute(self.b[r]))
        self.unit[0] = 1.0 / fastest[0]

    def _columns(
        self, mobility: Mobility, poses: Any, width: int, support: Support, rows: Sequence[Row], on: Sequence[Any],
        first: Any,
    ) -> None:  # fmt: skip
        """y of every joint on the way, for a unit impulse of each row (zero where the constraint does not count)."""
        nv, keep, size = self.nv, COMPONENTS[self.constraints.dim], mobility.width
        masked = [
            Row(x.point, *([select(mask, c, 0.0) for c in part] for part in (x.couple, x.force)))
            for x, mask in zip(rows, on, strict=True)
        ]
        ways = [(self.Y.at((first + k) * nv), self.Z.at((first + k) * nv)) for k in range(len(rows))]
        for y, z in ways:
            for j in loop(nv):
                y[j], z[j] = 0.0, 0.0
        force = carry(size * len(rows))

        def about(root: Any, row: Row) -> Vec:
            arm = sp.sub(row.point, poses.get(root, width)[9:12])
            wrench = (*sp.cross(arm, row.force, row.couple), *row.force)
            return tuple(wrench[c] for c in keep)

        def pass_on(way: Any, count: Any) -> None:
            for j in loop(count):
                dof = self.constraints.ints.at(way)[j]
                S, U, inverse = mobility.S.get(dof, size), mobility.U.get(dof, size), mobility.inverse[dof]
                for k, (ys, zs) in enumerate(ways):
                    F = force.get(k, size)
                    half = size // 2  # two short chains of additions: the joints wait for each other
                    y = sp.dot(S[:half], F[:half]) + sp.dot(S[half:], F[half:])
                    z = y * inverse
                    ys[dof], zs[dof] = y, z
                    force.put(k, [f - z * u for f, u in zip(F, U, strict=True)])

        for k, row in enumerate(masked):
            force.put(k, about(support.root_a, row))
        pass_on(support.way_a, support.own_a)
        for _ in when(support.b > 0):  # not the world
            kept = carry(size * len(rows))
            for k, row in enumerate(masked):
                kept.put(k, force.get(k, size))
                force.put(k, sp.neg(about(support.root_b, row)))
            pass_on(support.way_b, support.own_b)
            for k in range(len(rows)):
                force.accumulate(k, kept.get(k, size))
            pass_on(support.way_a + support.own_a, support.common)

    def couple(self) -> None:
        """Fill W = Y Zᵀ, tile by tile; it is symmetric."""
        n, nv = self.count, self.nv
        total = carry(TILE * TILE)
        tiles = [(r, c) for r in range(TILE) for c in range(TILE)]
        for I in loop(n // TILE):
            for J in loop(I + 1):
                for r, c in tiles:
                    total[r * TILE + c] = 0.0
                left = [self.Z.at((I * TILE + r) * nv) for r in range(TILE)]
                right = [self.Y.at((J * TILE + c) * nv) for c in range(TILE)]
                for j in loop(nv):
                    a, b = [x[j] for x in left], [x[j] for x in right]
                    for r, c in tiles:
                        total[r * TILE + c] = total[r * TILE + c] + a[r] * b[c]
                lower, upper = self.W.at(I * TILE * n + J * TILE), self.W.at(J * TILE * n + I * TILE)
                for r, c in tiles:
                    x = total[r * TILE + c]
                    lower.at(r * n)[c] = x
                    upper.at(c * n)[r] = x

    def effect(self, impulse: Any, z: Any) -> None:
        """z [nv] = Σ λ y / d: `expand` makes A⁻¹ Jᵀ λ of it."""
        nv, total = self.nv, carry(CHUNK)

        def sum_up(first: Any, width: int) -> None:
            for j in range(width):
                total[j] = 0.0
            for r in loop(self.count):
                x, row = impulse[r], self.Z.at(r * nv + first)
                for j in range(width):
                    total[j] = total[j] + x * row[j]
            for j in range(width):
                z.at(first)[j] = total[j]

        if traced(nv):
            for j in loop(nv):
                sum_up(j, 1)
        else:
            for j in range(0, nv, CHUNK):
                sum_up(j, min(CHUNK, nv - j))

    def speeds(self, z: Any, result: Any) -> None:
        """result [n] = J A⁻¹ τ, from z, the inward half of a solve with τ."""
        nv, total = self.nv, carry(3)
        for r in loop(self.count):
            for k in range(3):
                total[k] = 0.0
            row = self.Y.at(r * nv)
            for k, j in enumerate(loop(nv)):
                total[k % 3] = total[k % 3] + row[j] * z[j]
            result[r] = total[0] + total[1] + total[2]
