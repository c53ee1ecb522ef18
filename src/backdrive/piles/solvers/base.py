"""The contact problem of a step as the solvers of piles see it, and the protocol of these solvers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import numpy as np

from ..arrangement import Arrangement
from ..budget import PileBudget
from ..contacts import ContactForm
from ..memory import Memory
from ..stages import StageTarget
from .sweep_parts import stride

Array = np.ndarray


@dataclass(frozen=True)
class PileForm:
    """Everything that a solver of piles depends on: the form of the contacts, and the target of its kernels."""

    contact: ContactForm
    target: StageTarget

    @property
    def stride(self) -> int:
        """Numbers of a body's row in tables of y."""
        return stride(self.contact.body.nv, self.target.lanes)


@dataclass(frozen=True)
class PileProblem:
    """The contact problem of a step.

    blocks [register, block, lane]: `ContactBlock` of every cell. impulses [n, register, row, lane]: the first entry
    holds the impulses to start from; n is `PileSolver.kept_sweeps`. cold: the impulses of the step before are unknown.
    keep: the derivative of the step is expected. budget: what is spent of that of the step.
    """

    contacts: Arrangement
    blocks: Array
    impulses: Array
    cold: bool
    keep: bool
    budget: PileBudget = field(default_factory=PileBudget, repr=False)


@dataclass(frozen=True)
class GuardRecord:
    """Where the energy guard acted. kept [register, lane]: κ of every cell's island. number [register, lane]: that of
    the island, if κ is such that its energy does not change, from 0 on; else -1. count: islands with κ < 1."""

    kept: Array
    number: Array
    count: int

    def ratio(self, numerator: Array, denominator: Array) -> Array:
        """Sums over islands of these numbers of all cells [register, lane], divided; 0 where the guard does not act."""
        label = self.number.ravel().astype(np.int64) + 1
        above, below = (np.bincount(label, x.ravel(), minlength=self.count + 1) for x in (numerator, denominator))
        acts = (np.arange(self.count + 1) > 0) & (below != 0.0)
        return np.where(acts, above / np.where(acts, below, 1.0), 0.0)[label].reshape(self.number.shape)


@dataclass(frozen=True)
class PileSolution:
    """The solution of a problem.

    impulses [register, row, lane]. y [row, stride]: the change of whitened velocities, and shift [row, stride]: that of
    the position correction. active_sets [register, lane]: codes of the contacts (`sweep_kernels.active_set_code`).
    residual: relative to 1 + the largest speed. record: intermediate results for the solver's `vjp`. guard: of the
    energy guard; None where it did not act.
    """

    impulses: Array
    y: Array
    shift: Array
    active_sets: Array
    residual: float
    record: Any = field(repr=False)
    guard: GuardRecord | None = None


class SolutionCotangents(NamedTuple):
    """Cotangents of a solution. y: [2, row, stride], of which the second is work space, zero. shift: [row, 2 stride],
    the shift itself and its cotangent. impulses: [register, row, lane]."""

    y: Array
    shift: Array
    impulses: Array


class BlockCotangents(NamedTuple):
    """Cotangents of a problem: of its blocks, in reverse order (of 1/d: times 1/d); and of the impulses that the solver
    started from, [register, row, lane]."""

    blocks: Array
    start: Array


class PileSolver(Protocol):
    """A solver of the contact problems of piles, in a file of its own; registered in `solvers.PILE_SOLVERS`."""

    def __init__(self, form: PileForm, settings: Any) -> None:
        """settings: the solver that the user chose."""

    def kept_sweeps(self, cold: bool, keep: bool) -> int:
        """How many entries `PileProblem.impulses` must have."""

    def solve(self, memory: Memory, problem: PileProblem) -> PileSolution:
        """Solve a problem; arrays of the solution may be in `memory`."""

    def vjp(
        self, memory: Memory, problem: PileProblem, solution: PileSolution, reversed_blocks: Array,
        cotangents: SolutionCotangents,
    ) -> BlockCotangents:  # fmt: skip
        """The vector-Jacobian product of `solve`, of a problem with `keep`. reversed_blocks: its blocks in reverse
        order, so that memory is read forwards."""
