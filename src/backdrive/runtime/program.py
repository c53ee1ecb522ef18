"""A model made ready to run: its kernels, and how tensors are handed to them."""

from __future__ import annotations

import functools
import itertools
import os
import weakref
from concurrent.futures import Future
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from ..backends import Executable, Number, Rows, Table, run
from ..backends.llvm_cpu.ahead import ahead
from ..backends.llvm_cpu.launch import float_bits, scratch_memory
from ..backends.llvm_cpu.target import host
from ..physics.constraints.constrain import FORCE
from ..physics.constraints.tables import constraint_tables
from ..physics.kernels import FORMS, Constraining, Variant, make_kernel, rolled_kernel
from ..physics.policy import PolicySignature
from ..physics.rollout import STATUS, status_size
from ..physics.step import Scheme
from ..physics.tree.poses import POSE
from ..physics.tree.tree import Homogeneous, topology_table
from ..schema import layout

if TYPE_CHECKING:
    from ..model import Model

_numbers = itertools.count()
_programs: weakref.WeakValueDictionary[int, Program] = weakref.WeakValueDictionary()

AUTO_LINKS = {2: 120, 3: 40}  # specialize="auto": up to so many links (in the plane, most of a link is zero),
AUTO_CONSTRAINED = 24  # with contact or other constraints up to so many: larger code takes minutes to compile,
AUTO_VARYING = 64  # and so many constants that are given at run time
LEAST_TOLERANCE_32 = 1e-5  # of solvers: what float32 can reach,
REGULARISATION_32 = 1e-5  # with a regularisation that it does not lose
MOST_MEMORY = 16e9  # bytes of address space for the matrices of a thread; only what contacts use is touched
THREAD_WORK = 20_000  # steps of links from which on another thread pays (a hand-over costs tens of µs)


def has_restitution(model: Model) -> bool:
    """Whether a shape bounces."""
    start = layout.shape_start(model.nlink, model.nq, model.nu) + layout.RESTITUTION
    return bool((model.constants[start :: layout.SHAPE][: model.nshape] > 0.0).any())


class Program:
    """The kernels of one model with one step, integrator and dtype. Operators refer to it by its number."""

    def __init__(
        self, model: Model, h: float, scheme: Scheme, directions: int, dtype: torch.dtype, threads: int | None,
        specialize: bool | str, nonfinite: str, sparse: bool = False,
    ) -> None:  # fmt: skip
        self.model, self.h, self.scheme, self.directions, self.dtype = model, h, scheme, directions, dtype
        self.specialize, self.nonfinite = specialize, nonfinite
        self.threads = threads or os.cpu_count() or 1
        self.bits = {torch.float64: 64, torch.float32: 32}[dtype]
        if scheme.contact_model is not None and self.bits == 32:
            solver = scheme.contact_model.solver
            solver = replace(solver, tolerance=max(solver.tolerance, LEAST_TOLERANCE_32))
            contact_model = replace(scheme.contact_model, solver=solver, regularisation=REGULARISATION_32)
            self.scheme = replace(scheme, contact_model=contact_model)
        self.constants = torch.from_numpy(model.constants.copy()).to(dtype)
        self._topology = topology_table(model)
        self._values: dict[str, Any] = {
            "h": h, "topology": self._topology.ctypes.data,
            "nlink": model.nlink, "nq": model.nq, "nv": model.nv, "nu": model.nu, "nconst": len(model.constants),
        }  # fmt: skip
        self.sparse: SparseProgram | None = None
        if sparse:
            from ..piles.rollout import SparseProgram

            self.sparse = SparseProgram(model, h, self.scheme, directions, self.bits, self.threads)
        self.tables = constraint_tables(model) if scheme.contact_model and not sparse else None
        if self.tables is not None:
            self._floats = self.tables.floats.astype(np.float64 if self.bits == 64 else np.float32)
            self._values |= {
                "constraint_ints": self.tables.ints.ctypes.data, "constraint_floats": self._floats.ctypes.data,
                "nshape": model.nshape, "npair": model.npair,
                "nslot": self.tables.nslot, "nsingle": self.tables.nsingle,
            }  # fmt: skip
            self._require_memory()
        gravity = layout.gravity_start(model.nlink, model.nq, model.nu)
        limits = model.constants[layout.motor_start(model.nlink, model.nq) : gravity]
        limits = limits.reshape(model.nu, layout.MOTOR)[:, layout.CTRL_LOW : layout.FORCE_HIGH + 1]
        self.limited = bool(np.isfinite(limits).any())  # some motor is
        self._executables: dict[tuple, Executable] = {}
        self._coming: dict[tuple, Future[Executable]] = {}  # being built
        self._masks: dict[str, np.ndarray] = {}
        self.assembled: tuple[dict[str, Tensor], Tensor] | None = None  # the last parameters, and constants with them
        self.seen: dict[tuple, Any] = {}  # of policies: what they see, by their sensors, and their tables
        self.number = next(_numbers)
        _programs[self.number] = self

    def _require_memory(self) -> None:
        """The matrix of all rows that there can be is dense: raise if it would not fit."""
        assert self.tables is not None
        rows = self.tables.nslot * (2 if self.model.dim == 2 else 1 + self.directions) + self.tables.nsingle
        size = 2 * rows**2 * 8 * host().lanes(self.bits)
        if size > MOST_MEMORY:
            raise ValueError(
                f"{self.model.npair:,} pairs of shapes may touch at {self.tables.nslot:,} places: the solver would "
                f"need {size / 1e9:,.0f} GB (limit {MOST_MEMORY / 1e9:g} GB). Exclude pairs that never meet, "
                "scene.exclude(a, b), or take the form for big worlds of free bodies, "
                "Simulator(sparse=True, impacts=False)"
            )

    @staticmethod
    def of(number: int) -> Program:
        program = _programs.get(number)
        if program is None:
            raise ValueError(
                f"backdrive: there is no program {number} (its Simulator was deleted, or lives in another process)"
            )
        return program

    def mask(self, parameters: str) -> np.ndarray:
        """Which constants the parameters (names, separated by commas) determine: bool [nconst]."""
        if parameters not in self._masks:
            mask = np.zeros(len(self.model.constants), bool)
            for name in filter(None, parameters.split(",")):
                mask[self.model.parameters()[name].target] = True
            self._masks[parameters] = mask
        return self._masks[parameters]

    def executable(
        self, form: str, wrenches: bool, constants_bar: bool, batched: bool, parameters: str,
        watching: PolicySignature | None = None,
    ) -> Executable:  # fmt: skip
        key = (form, wrenches, constants_bar, batched, parameters, watching)
        executable = self._executables.get(key)
        if executable is None:
            coming = self._coming.pop(key, None)
            executable = self._executables[key] = self._build(*key) if coming is None else coming.result()
        return executable

    def prepare(
        self, form: str, wrenches: bool, constants_bar: bool, batched: bool, parameters: str,
        watching: PolicySignature | None = None,
    ) -> None:  # fmt: skip
        """Begin to build a kernel that will be wanted soon."""
        key = (form, wrenches, constants_bar, batched, parameters, watching)
        if self.sparse is not None:
            self.sparse.expect_gradient()
        elif key not in self._executables and key not in self._coming:
            self._coming[key] = ahead(functools.partial(self._build, *key))

    def _build(
        self, form: str, wrenches: bool, constants_bar: bool, batched: bool, parameters: str, watching: PolicySignature | None
    ) -> Executable:
        scheme, constraining = None, None
        if FORMS[form].integrates:
            scheme, constraining = self.scheme, self._constraining(parameters)
        variant = Variant(form, scheme, constraining, wrenches, constants_bar, batched, watching)
        varying = self.mask(parameters)
        if self.specializes(parameters):
            tables = self.tables if constraining else None
            kernel = make_kernel(variant, self.model, varying, tables)
        else:
            kernel = rolled_kernel(replace(variant, homogeneous=Homogeneous.links_of(self.model, varying)))
        return kernel.build(self.bits)

    @property
    def tolerance(self) -> float:
        """The residual at which the solver is done."""
        return self.scheme.contact_model.solver.tolerance if self.scheme.contact_model else 0.0

    @property
    def forces_size(self) -> int:
        """Numbers of a step's forces: of all places for contacts, and of all other rows."""
        if self.sparse is not None:
            raise NotImplementedError("contact forces of one big world are those of path.contacts")
        if self.tables is None:
            raise ValueError("nothing constrains this model: it has no contacts, limits or loops, and so no forces")
        return self.tables.nslot * FORCE + self.tables.nsingle

    @functools.cached_property
    def status_size(self) -> int:
        """Numbers of a step's status."""
        return STATUS[-1] if self.sparse is not None else status_size(self.scheme, self.tables is not None)

    def _constraining(self, parameters: str) -> Constraining | None:
        if self.tables is None:
            return None
        model, bounces = self.model, self._bounces(parameters)
        directions = 1 if model.dim == 2 else self.directions
        return Constraining(model.dim, directions, model.combine, bounces, self.tables.kinds)

    def _bounces(self, parameters: str) -> bool:
        """Whether restitution must be looked at."""
        return has_restitution(self.model) or "restitution" in parameters.split(",")

    def quick(self, batch: int, steps: int = 1) -> bool:
        """Whether so many steps of so many environments are best a `QuickCall`."""
        return 0 < batch * steps * self.model.nlink < THREAD_WORK and self.sparse is None

    @functools.cached_property
    def step_call(self) -> QuickCall:
        return QuickCall(self, "rollout", self._rollout_widths(), {"steps": 1, "every": 1})

    @functools.cached_property
    def rollout_call(self) -> QuickCall:
        return QuickCall(self, "rollout", self._rollout_widths(), {"steps": 1, "every": 1}, over_time=True)

    def _rollout_widths(self) -> dict[str, int]:
        nq, nv = self.model.nq, self.model.nv
        widths = {"q": nq, "v": nv, "last_q": nq, "last_v": nv, "path_q": nq, "path_v": nv}
        return widths | {"controls": self.model.nu, "status": self.status_size}

    @functools.cached_property
    def step_adjoint_call(self) -> QuickCall:
        """The velocity after the step is not known."""
        return QuickCall(self, "rollout_adjoint", self._adjoint_widths() | {"last_v": 0}, {"steps": 1, "truncate": 2})

    @functools.cached_property
    def rollout_adjoint_call(self) -> QuickCall:
        return QuickCall(self, "rollout_adjoint", self._adjoint_widths(), {"steps": 1, "truncate": 2}, over_time=True)

    def _adjoint_widths(self) -> dict[str, int]:
        """What the loss says about the states of a path is one row, of zeros."""
        nq, nv, nu = self.model.nq, self.model.nv, self.model.nu
        widths = {"path_q": nq, "path_v": nv, "controls": nu, "path_q_bar": 0, "path_v_bar": 0, "last_v": nv}
        return widths | {"last_q_bar": nq, "last_v_bar": nv, "q_bar": nq, "v_bar": nv, "controls_bar": nu}

    @functools.cached_property
    def poses_call(self) -> QuickCall:
        return QuickCall(self, "poses", self._pose_widths(""), {"times": 1})

    @functools.cached_property
    def poses_adjoint_call(self) -> QuickCall:
        return QuickCall(self, "poses_adjoint", self._pose_widths("_bar"), {"times": 1})

    def _pose_widths(self, suffix: str) -> dict[str, int]:
        state = {"q": self.model.nq, "v": self.model.nv}
        bars = {f"{name}{suffix}": n for name, n in state.items()}
        return state | bars | {f"out{suffix}": self.model.nlink * sum(POSE)}

    @functools.cached_property
    def zeros(self) -> Tensor:
        return torch.zeros(max(self.model.nq, self.model.nv, 1), dtype=self.dtype)

    @functools.cached_property
    def unknown(self) -> Tensor:
        """A velocity after a step that nobody kept."""
        return torch.full((max(self.model.nv, 1),), torch.nan, dtype=self.dtype)

    def specializes(self, parameters: str) -> bool:
        """Unrolled code pays as long as most of the model is constant and it fits the processor's instruction cache."""
        if self.specialize != "auto":
            return bool(self.specialize)
        most = AUTO_LINKS[self.model.dim] if self.tables is None else AUTO_CONSTRAINED
        return self.model.nlink <= most and int(self.mask(parameters).sum()) <= AUTO_VARYING

    def run(
        self, form: str, batch: int, rows: dict[str, Tensor], integers: dict[str, int],
        constants: Tensor | None, parameters: str, watching: PolicySignature | None = None,
        tables: dict[str, int] | None = None,
    ) -> None:  # fmt: skip
        """Run a kernel. Rows are [B, n] or [T, B, n] tensors of the program's dtype.

        watching, tables: of a policy; the addresses of its tables, and their sizes.
        """
        if self.sparse is not None and FORMS[form].integrates:
            constants = self.constants if constants is None else constants
            self.sparse.run(form, batch, rows, integers, constants, self._bounces(parameters))
            return
        wrenches, constants_bar = "wrenches" in rows, "constants_bar" in rows
        executable = self.executable(
            form, wrenches, constants_bar, constants is not None and constants.ndim == 2, parameters, watching
        )
        values = self._values | integers | (tables or {})
        constants = self.constants if constants is None else with_rows(constants)
        in_use = []  # copies must live until the kernel has run
        for name, kind in executable.layout:
            if kind is Rows:
                tensor = constants if name == "constants" else with_rows(rows[name])
                if not tensor.data_ptr() and tensor.numel():  # zeros that own no memory
                    tensor = tensor.clone(memory_format=torch.contiguous_format)
                in_use.append(tensor)
                strides = tensor.stride()
                values[name] = (tensor.data_ptr(), strides[-2], strides[0] if len(strides) == 3 else 0)
            elif kind is Table and name == "constants":
                constants = constants if constants.data_ptr() else constants.clone()
                values[name] = constants.data_ptr()
        work = batch * max(integers.values(), default=1) * self.model.nlink
        run(executable, batch, min(self.threads, 1 + work // THREAD_WORK), values)


class QuickCall:
    """A kernel on contiguous tensors, with as little work as possible before it starts.

    widths: n of every row [B, n], or [T, B, n] with `over_time`; 0: all environments share it. integers: unless a call
    gives others.
    """

    def __init__(
        self, program: Program, form: str, widths: dict[str, int], integers: dict[str, int], over_time: bool = False
    ) -> None:
        self.executable = program.executable(form, False, False, False, "")
        fixed = program._values | integers | {"constants": program.constants.data_ptr()}
        self.words: list[int] = []
        self.places: dict[str, int] = {}  # where addresses of rows and integers go
        self.strides: list[tuple[int, int]] = []  # where those between times go, and for how many numbers each
        for name, kind in self.executable.layout:
            self.places[name] = len(self.words)
            if kind is Rows:
                self.words += [0, widths[name], 0]
                if over_time:
                    self.strides.append((len(self.words) - 1, widths[name]))
            else:
                self.words.append(float_bits(fixed[name]) if kind is Number else fixed[name])
        self.sizes = [self.places[name] for name in self.executable.integers]

    def __call__(self, batch: int, **given: int) -> None:
        """given: addresses of rows, and integers."""
        words = self.words.copy()
        for name, word in given.items():
            words[self.places[name]] = word
        for place, width in self.strides:
            words[place] = batch * width
        scratch = self.executable.scratch_bytes(tuple([words[place] for place in self.sizes]))
        self.executable.call(self.executable.block(*words), scratch_memory(scratch), 0, batch)


def with_rows(x: Tensor) -> Tensor:
    """Each row contiguous and in memory as it is; the rows may lie anywhere, or be the same one."""
    if x.is_neg():  # a view that torch negates when it is read
        return x.clone(memory_format=torch.contiguous_format)
    return x if x.stride(-1) == 1 or x.shape[-1] <= 1 else x.contiguous()
