"""A model made ready to run: its kernels, and how tensors are handed to them."""

from __future__ import annotations

import itertools
import os
import weakref
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from .compiler import Executable, Rows, Table, run
from .physics.integrate import Integrator
from .physics.kernels import FORMS, Variant, make_kernel, rolled_kernel
from .physics.world import topology_table

if TYPE_CHECKING:
    from .model import Model

_numbers = itertools.count()
_programs: weakref.WeakValueDictionary[int, Program] = weakref.WeakValueDictionary()

_THREAD_WORK = 20_000  # steps of links from which on another thread pays (a hand-over costs tens of µs)


class Program:
    """The kernels of one model with one step, integrator and dtype. Operators refer to it by its number."""

    def __init__(
        self, model: Model, h: float, integrator: Integrator, dtype: torch.dtype, threads: int | None, specialize: bool
    ) -> None:
        self.model, self.h, self.integrator, self.dtype = model, h, integrator, dtype
        self.specialize = specialize
        self.threads = threads or os.cpu_count() or 1
        self.bits = {torch.float64: 64, torch.float32: 32}[dtype]
        self.constants = torch.from_numpy(model.constants.copy()).to(dtype)
        self._topology = topology_table(model)
        self._executables: dict[tuple, Executable] = {}
        self._masks: dict[str, np.ndarray] = {}
        self.number = next(_numbers)
        _programs[self.number] = self

    @staticmethod
    def of(number: int) -> Program:
        return _programs[number]

    def mask(self, parameters: str) -> np.ndarray:
        """Which constants the parameters (names, separated by commas) determine: bool [nconst]."""
        if parameters not in self._masks:
            mask = np.zeros(len(self.model.constants), bool)
            for name in filter(None, parameters.split(",")):
                mask[self.model.parameters()[name].target] = True
            self._masks[parameters] = mask
        return self._masks[parameters]

    def executable(self, variant: Variant, parameters: str) -> Executable:
        key = (variant, parameters)
        if key not in self._executables:
            if self.specialize:
                kernel = make_kernel(variant, self.model, self.mask(parameters))
            else:
                kernel = rolled_kernel(variant)
            self._executables[key] = kernel.build(self.bits)
        return self._executables[key]

    def run(
        self, form: str, batch: int, rows: dict[str, Tensor | None], integers: dict[str, int],
        constants: Tensor | None, parameters: str,
    ) -> None:  # fmt: skip
        """Run a kernel. Rows are [B, n] or [T, B, n] tensors of the program's dtype; an absent one is None."""
        variant = Variant(
            form,
            self.integrator if FORMS[form].integrates else None,
            rows.get("wrenches") is not None,
            rows.get("constants_bar") is not None,
            constants is not None and constants.ndim == 2,
        )
        executable = self.executable(variant, parameters)
        constants = self.constants if constants is None else _with_rows(constants)
        model = self.model
        values: dict[str, object] = {
            **integers, "h": self.h, "topology": self._topology.ctypes.data,
            "nlink": model.nlink, "nq": model.nq, "nv": model.nv, "nu": model.nu,
        }  # fmt: skip
        for argument in executable.arguments:
            name = argument.name
            if name == "constants":
                is_table = isinstance(argument, Table)
                values[name] = constants.data_ptr() if is_table else (constants.data_ptr(), constants.stride(0), 0)
            elif isinstance(argument, Rows):
                tensor = rows[name]
                assert tensor is not None and tensor.dtype == self.dtype
                assert tensor.stride(-1) == 1 or tensor.shape[-1] <= 1, name
                values[name] = (tensor.data_ptr(), tensor.stride(-2), tensor.stride(0) if tensor.ndim == 3 else 0)
        work = batch * max(1, *integers.values(), 1) * model.nlink
        run(executable, batch, min(self.threads, 1 + work // _THREAD_WORK), values)


def _with_rows(x: Tensor) -> Tensor:
    """Each row contiguous; the rows may lie anywhere, or be the same one."""
    return x if x.stride(-1) == 1 or x.shape[-1] <= 1 else x.contiguous()
