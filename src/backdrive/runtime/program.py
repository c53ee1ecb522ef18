"""A model made ready to run: its kernels, the tables they read, and the sizes of their arguments."""

from __future__ import annotations

import functools
import itertools
import weakref
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from ..backends import available_cores
from ..backends.llvm_cpu.target import host
from ..model.parameters import RIGID_PARAMETERS, SOFT_PARAMETERS
from ..physics.clipping import NORMS
from ..physics.constraints.forces import FORCE
from ..physics.constraints.tables import constraint_tables
from ..physics.kernels import KernelOptions, KernelStore
from ..physics.rollout import STATUS, status_size
from ..physics.scheme import Scheme
from ..physics.soft.contacts import geom_pairs
from ..physics.tree.poses import POSE
from ..physics.tree.tree import topology_table
from ..schema import layout
from ..schema.state import STATE

if TYPE_CHECKING:
    from ..model import Model
    from ..piles.rollout import SparseProgram
    from .quick import QuickCall
    from .request import CallPlan

_numbers = itertools.count()
_programs: weakref.WeakValueDictionary[int, Program] = weakref.WeakValueDictionary()

LEAST_TOLERANCE_32 = 1e-5  # the smallest tolerance of a solver that float32 reaches, m/s
REGULARISATION_32 = 1e-5  # relative regularisation of the Delassus matrix that float32 does not round away
MOST_MEMORY = 16e9  # bytes of address space for the matrices of a thread; pages without contacts are never touched
THREAD_WORK = 20_000  # steps times links that are worth another thread (a hand-over costs tens of µs)
SOFT_WORK = 5  # one evaluation of MuJoCo's physics takes as long as this many steps without constraints


@dataclass(frozen=True)
class ProgramSettings:
    """What distinguishes the programs of a model. h: s; the others are those of `Simulator`."""

    h: float
    scheme: Scheme
    directions: int
    dtype: torch.dtype
    threads: int | None
    specialize: bool | str
    nonfinite: str
    sparse: bool


class Program:
    """One model with one step, scheme and dtype. PyTorch's operators refer to it by its number."""

    def __init__(self, model: Model, settings: ProgramSettings) -> None:
        self.model, self.dtype, self.nonfinite = model, settings.dtype, settings.nonfinite
        self.threads = settings.threads or available_cores()
        self.bits = {torch.float64: 64, torch.float32: 32}[settings.dtype]
        self.scheme = settings.scheme if self.bits == 64 else _in_float32(settings.scheme)
        self.constants = torch.from_numpy(model.constants.copy()).to(settings.dtype)
        self.limited = _has_limited_motors(model)
        self.sparse: SparseProgram | None = None
        if settings.sparse:
            from ..piles.rollout import SparseProgram

            make = (model, settings.h, self.scheme, settings.directions, self.bits, self.threads)
            self.sparse = SparseProgram(*make)
        pairs = None if self.scheme.soft is None else geom_pairs(model)
        tables = constraint_tables(model, pairs) if self.scheme.constrains and not settings.sparse else None
        options = KernelOptions(self.scheme, settings.directions, self.bits, settings.specialize)
        self.kernels = KernelStore(model, options, tables)
        if tables is not None:
            self._require_memory()
        self.values = self._kernel_values(settings.h)
        self._sizes = self._argument_sizes()
        self.state_sizes = tuple(self._sizes[field.size] for field in STATE)
        self.step_sizes = (*self.state_sizes, model.nu)  # of the state, and of the controls
        self.status_size, self._lanes = self._sizes["nstatus"], host().lanes(self.bits)
        soft = self.scheme.soft if tables is not None else None
        self._work = model.nlink, model.nlink * (1 if soft is None else SOFT_WORK * soft.evaluations)
        self.likeness = np.empty(0)  # of the environments of the last call that regrouped them
        self.solution_size = self._sizes["nsolution"]  # 0: adjoints of steps start from nothing
        self.quick_calls: dict[str, QuickCall] = {}
        self.plans: dict[Any, CallPlan] = {}  # of signatures
        self.assembled: tuple[dict[str, Tensor], Tensor] | None = None  # the last parameters, and constants with them
        self.seen: dict[tuple, Any] = {}  # of policies: observations by their sensors, and tables of networks
        self.number = next(_numbers)
        _programs[self.number] = self

    @staticmethod
    def of(number: int) -> Program:
        program = _programs.get(number)
        if program is None:
            raise ValueError(
                f"backdrive: there is no program {number} (its Simulator was deleted, or lives in another process)"
            )
        return program

    def _kernel_values(self, h: float) -> dict[str, Any]:
        """The arguments that all calls of kernels share, by their names; tables by their addresses."""
        model, tables = self.model, self.kernels.tables
        self._arrays = [topology_table(model)]  # kept alive for the addresses
        values: dict[str, Any] = {
            "h": h, "topology": self._arrays[0].ctypes.data,
            "nlink": model.nlink, "nq": model.nq, "nv": model.nv, "nu": model.nu, "nconst": len(model.constants),
        }  # fmt: skip
        if tables is not None:
            floats = tables.floats.astype(np.float64 if self.bits == 64 else np.float32)
            self._arrays += [tables.ints, floats, np.zeros(1)]  # the last one takes what nobody asks for
            values |= {
                "constraint_ints": tables.ints.ctypes.data, "constraint_floats": floats.ctypes.data,
                "order": 0, "likeness": (self._arrays[-1].ctypes.data, 0, 0),
                "nshape": model.nshape, "npair": tables.npair, "nslot": tables.nslot, "nsingle": tables.nsingle,
            }  # fmt: skip
        return values

    def _argument_sizes(self) -> dict[str, int]:
        """By their symbols in `schema.signatures`; nforce only where there are constraints."""
        model, tables = self.model, self.kernels.tables
        sizes = {field.size: int(getattr(model, field.size)) for field in STATE} | {
            "nv": model.nv, "nu": model.nu, "nwrench": 6 * model.nlink, "nconst": len(model.constants),
            "npose": model.nlink * sum(POSE), "ngain": model.nu * 2 * model.nv, "njacobian": 2 * model.nv + model.nu,
            "nstatus": STATUS[-1] if self.sparse is not None else status_size(self.scheme, tables is not None),
            "nnorm": NORMS,
            "nsolution": 0 if tables is None else self.scheme.solutions * model.nv,
        }  # fmt: skip
        if tables is not None:  # every slot for a contact, and every other row
            sizes["nforce"] = tables.nslot * FORCE + tables.nsingle
        return sizes

    def size(self, symbol: str) -> int:
        """The size of the model that a symbol of `schema.signatures` stands for."""
        size = self._sizes.get(symbol)
        if size is not None:
            return size
        if self.sparse is not None:
            raise NotImplementedError("contact forces of one big world are those of path.contacts")
        raise ValueError("nothing constrains this model: it has no contacts, limits or loops, and so no forces")

    def _require_memory(self) -> None:
        """The Delassus matrix of all rows that there can be is dense: raise if it would not fit. (MuJoCo's physics has
        none, but the Jacobian of all rows.)"""
        tables, directions = self.kernels.tables, self.kernels.options.directions
        assert tables is not None
        rows = tables.nslot * (2 if self.model.dim == 2 else 1 + directions) + tables.nsingle
        soft = self.scheme.soft is not None
        size = 2 * rows * (self.model.nv if soft else rows) * 8 * host().lanes(self.bits)
        if size > MOST_MEMORY:
            advice = "by <exclude> or contype (big worlds: see Simulator(sparse=True))" if soft else (
                "scene.exclude(a, b), or take the form for big worlds of free bodies, "
                "Simulator(sparse=True, impacts=False)"
            )  # fmt: skip
            raise ValueError(
                f"{tables.npair:,} pairs of shapes may touch at {tables.nslot:,} places: the solver would "
                f"need {size / 1e9:,.0f} GB (limit {MOST_MEMORY / 1e9:g} GB). Exclude pairs that never meet, {advice}"
            )

    @property
    def tolerance(self) -> float:
        """The residual below which the solver has converged, m/s."""
        return self.scheme.tolerance

    @property
    def ignored(self) -> tuple[str, ...]:
        """The parameters of the model that this physics does not read."""
        return SOFT_PARAMETERS if self.scheme.soft is None else RIGID_PARAMETERS

    def threads_for(self, batch: int, steps: int = 1, integrates: bool = True) -> int:
        """How many threads pay for steps of this many environments; integrates: as in `Signature`."""
        work = batch * steps * self._work[integrates]
        return min(self.threads, 1 + work // THREAD_WORK, -(-batch // self._lanes))

    def quick(self, batch: int, steps: int = 1, integrates: bool = True) -> bool:
        """Whether steps of this many environments are short enough for a `QuickCall`, on this thread alone."""
        short = 0 < batch * steps * self._work[False] < THREAD_WORK and self.sparse is None
        return short and self.threads_for(batch, steps, integrates) == 1

    @functools.cached_property
    def zeros(self) -> Tensor:
        """Cotangents of zero, for one row of any field of the state."""
        return torch.zeros(max(*self.state_sizes, 1), dtype=self.dtype)


def _in_float32(scheme: Scheme) -> Scheme:
    """With a tolerance and a regularisation that float32 can represent."""
    contact_model = scheme.contact_model
    if scheme.soft is not None:
        return replace(scheme, soft=scheme.soft.in_float32())
    if contact_model is None:
        return scheme
    solver = replace(contact_model.solver, tolerance=max(contact_model.solver.tolerance, LEAST_TOLERANCE_32))
    return replace(scheme, contact_model=replace(contact_model, solver=solver, regularisation=REGULARISATION_32))


def _has_limited_motors(model: Model) -> bool:
    end = layout.gravity_start(model.nlink, model.nq, model.nu)
    motors = model.constants[layout.motor_start(model.nlink, model.nq) : end].reshape(model.nu, layout.MOTOR)
    return bool(np.isfinite(motors[:, layout.CTRL_LOW : layout.FORCE_HIGH + 1]).any())
