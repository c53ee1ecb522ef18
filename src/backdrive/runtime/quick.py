"""Short calls: steps and rollouts of small batches of plain tensors, whose kernels take only microseconds.

Everything about a call that does not change is derived from its signature once per program (`QuickCall`). Functions
return None where the tensors are not plain or something is to be reported: then `execute` must do the call.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from ..backends import Number, Rows
from ..backends.llvm_cpu.launch import call, float_bits
from ..physics.kernels import KernelKey
from ..schema.signatures import POSES, ROLLOUT, SIGNATURES, RolloutSettings, Signature
from ..schema.state import state_names
from .program import Program
from .report import nothing_to_report


class Shortcut(NamedTuple):
    """A form for quick calls. over_time: rows are [T, B, n], else T = 1. shared: rows that all environments share."""

    signature: Signature
    over_time: bool = False
    shared: tuple[str, ...] = ()


_ADJOINT = SIGNATURES[ROLLOUT.adjoint]
_NO_LOSS = state_names("path_", "_bar")  # cotangents of the states along the way: one row of zeros
SHORTCUTS = {
    "step": Shortcut(ROLLOUT),
    "rollout": Shortcut(ROLLOUT, over_time=True),
    "step_adjoint": Shortcut(_ADJOINT, shared=_NO_LOSS),
    "rollout_adjoint": Shortcut(_ADJOINT, over_time=True, shared=_NO_LOSS),
    "poses": Shortcut(POSES),
    "poses_adjoint": Shortcut(SIGNATURES[POSES.adjoint]),
}
MOST_TEMPLATES = 256  # batches and numbers of steps whose calls are kept prepared
_address = Tensor.data_ptr
_ONE = RolloutSettings(1)
_INTEGERS = {"steps": 1, "every": 1, "truncate": _ONE.cut, "times": 1}  # unless a call gives others


class QuickCall:
    """A kernel on contiguous tensors, with as little work as possible before it starts."""

    def __init__(self, program: Program, shortcut: Shortcut) -> None:
        signature = shortcut.signature
        solves = program.solution_size > 0 and "solution" in signature.arguments
        self.executable = program.kernels.get(KernelKey(signature.form, solution=solves))
        fixed = program.values | _INTEGERS | {"constants": program.constants.data_ptr()}
        self.words: list[int] = []
        self.rows: list[int] = []  # positions of the rows' addresses, in the order of the signature
        self.strides: list[tuple[int, int]] = []  # positions of strides between times, and the numbers of a row
        self.positions: dict[str, int] = {}
        for name, kind in self.executable.layout:
            self.positions[name] = len(self.words)
            if kind is Rows and name in signature.arguments:
                width = 0 if name in shortcut.shared else program.size(signature.arguments[name].size)
                self.rows.append(len(self.words))
                self.words += [0, width, 0]
                if shortcut.over_time:
                    self.strides.append((len(self.words) - 1, width))
            elif kind is Rows:
                self.words += fixed[name]
            else:
                self.words.append(float_bits(fixed[name]) if kind is Number else fixed[name])
        self._templates: dict[tuple[int, ...], tuple[list[int], int]] = {}

    def __call__(self, batch: int, addresses: Iterable[int], **integers: int) -> None:
        """addresses: of all rows, in the order of the signature. integers: always the same ones."""
        template = self._templates.get((batch, *integers.values()))
        if template is None:
            template = self._template(batch, integers)
        words, scratch = template[0].copy(), template[1]
        for position, address in zip(self.rows, addresses, strict=True):
            words[position] = address
        call(self.executable, self.executable.block(*words), scratch, 0, batch)

    def _template(self, batch: int, integers: dict[str, int]) -> tuple[list[int], int]:
        """The words of a call without its addresses, and the bytes of scratch memory that it needs."""
        words = self.words.copy()
        for name, value in integers.items():
            words[self.positions[name]] = value
        for position, width in self.strides:
            words[position] = batch * width
        sizes = tuple(words[self.positions[name]] for name in self.executable.integers)
        if len(self._templates) >= MOST_TEMPLATES:
            self._templates.clear()
        template = words, self.executable.scratch_bytes(sizes)
        self._templates[(batch, *integers.values())] = template
        return template


def quick_call(program: Program, name: str) -> QuickCall:
    """One of the `SHORTCUTS`."""
    call = program.quick_calls.get(name)
    if call is None:
        call = program.quick_calls[name] = QuickCall(program, SHORTCUTS[name])
    return call


class QuickResult(NamedTuple):
    """As `RolloutResult`; a single step has no path. solution [T, B, n], or [B, n] of a step: what the solvers of the
    steps found, None if adjoints do not start from it, or it was not kept."""

    path: tuple[Tensor, ...]
    last: tuple[Tensor, ...]
    status: Tensor
    solution: Tensor | None


def step(program: Program, state: Sequence[Tensor], u: Tensor) -> QuickResult | None:
    """The state after one step from tensors [B, n] or [n], with controls u alike."""
    shape = state[0].shape[:-1]
    batch = math.prod(shape)
    if len(shape) > 1 or not program.quick(batch) or not _plain(program, shape, (*state, u), program.step_sizes):
        return None
    last = tuple(map(torch.empty_like, state))
    status = u.new_empty((batch, program.status_size))
    ends = tuple(map(_address, last))
    solution = u.new_empty((batch, program.solution_size)) if program.solution_size else None
    addresses = (*map(_address, (*state, u)), *ends, *ends, status.data_ptr(), *_addresses(solution))
    quick_call(program, "step")(batch, addresses)
    if program.nonfinite == "raise" and not nothing_to_report(status, u, program.limited):
        return None
    return QuickResult((), last, status, solution)


def rollout(program: Program, state: Sequence[Tensor], u: Tensor, keep: bool) -> QuickResult | None:
    """A short rollout with controls u [T, B, nu], or [T, nu] without a batch, and then all results are without.

    keep: the adjoint will be wanted, too.
    """
    shape = state[0].shape[:-1]
    steps, batch = len(u) if u.ndim else 0, math.prod(shape)
    if len(shape) > 1 or not program.quick(batch, steps) or not _plain(program, shape, state, program.state_sizes):
        return None
    if not _plain(program, (steps, *shape), (u,), program.step_sizes[-1:]):
        return None
    status = u.new_empty((*u.shape[:-1], program.status_size))
    path, rows, row = [], [], batch * (program.bits // 8)
    for x, n in zip(state, program.state_sizes):
        y = x.new_empty((steps + 1, *x.shape))
        address, size = y.data_ptr(), n * row
        ctypes.memmove(address, x.data_ptr(), size)
        path.append(y)
        rows.append(address + size)
    last = tuple(map(torch.empty_like, state))
    solution = u.new_empty((steps, batch, program.solution_size)) if program.solution_size else None
    addresses = (*map(_address, (*state, u)), *rows, *map(_address, (*last, status)), *_addresses(solution))
    quick_call(program, "rollout")(batch, addresses, steps=steps)
    if program.nonfinite == "raise" and not nothing_to_report(status, u, program.limited):
        return None
    return QuickResult(tuple(path), last, status, solution if keep else None)


def step_vjp(
    program: Program, state: Sequence[Tensor], u: Tensor, last_bars: Sequence[Tensor | None], solution: Tensor | None
) -> tuple[Tensor, ...] | None:
    """The cotangents of the state and of u, from those of the state after a `step` (None: zero)."""
    bars = [_whole(bar, x.shape, x.dtype) for bar, x in zip(last_bars, state)]
    shape = state[0].shape[:-1]
    batch = math.prod(shape)
    if len(shape) > 1 or not program.quick(batch) or not _plain(program, shape, (*state, u), program.step_sizes):
        return None
    if not _plain(program, shape, bars, program.state_sizes):
        return None
    results = tuple(map(torch.empty_like, (*state, u)))
    zeros = (program.zeros.data_ptr(),) * len(state)
    after = map(_address, (*bars, *results))
    addresses = (*map(_address, (*state, u)), *_addresses(solution), *zeros, *after)
    quick_call(program, "step_adjoint")(batch, addresses)
    return results


def rollout_vjp(
    program: Program, path: Sequence[Tensor], u: Tensor, last_bars: Sequence[Tensor | None], solution: Tensor | None
) -> tuple[Tensor, ...] | None:
    """The cotangents of the start and of u, from those of the last state of a `rollout` (None: zero)."""
    shape, steps = path[0].shape[1:-1], len(u)
    bars = [_whole(bar, x.shape[1:], x.dtype) for bar, x in zip(last_bars, path)]
    if not _plain(program, shape, bars, program.state_sizes):
        return None
    results = tuple(map(torch.empty_like, (*bars, u)))
    zeros = (program.zeros.data_ptr(),) * len(path)
    given, given_bars = map(_address, (*path, u)), map(_address, bars)
    addresses = (*given, *_addresses(solution), *zeros, *given_bars, *map(_address, results))
    quick_call(program, "rollout_adjoint")(math.prod(shape), addresses, steps=steps, truncate=steps + 1)
    return results


def poses(program: Program, state: Sequence[Tensor]) -> Tensor | None:
    """POSE numbers of every link, [B, npose], of a state [B, n]."""
    batch = len(state[0])
    quick = program.quick(batch, integrates=False)
    if not quick or not _plain(program, state[0].shape[:1], state, program.state_sizes):
        return None
    out = torch.empty(batch, program.size("npose"), dtype=program.dtype)
    quick_call(program, "poses")(batch, [x.data_ptr() for x in (*state, out)])
    return out


def poses_vjp(program: Program, state: Sequence[Tensor], bar: Tensor) -> list[Tensor]:
    """The cotangents of the state, from those of its `poses`."""
    bar = bar.contiguous()
    results = [torch.empty(x.shape, dtype=x.dtype) for x in state]
    quick_call(program, "poses_adjoint")(len(bar), [x.data_ptr() for x in (*state, bar, *results)])
    return results


def _addresses(solution: Tensor | None) -> tuple[int, ...]:
    return () if solution is None else (solution.data_ptr(),)


def _plain(program: Program, shape: Sequence[int], tensors: Sequence[Tensor], sizes: Sequence[int]) -> bool:
    """Whether tensors [*shape, n] are contiguous numbers in memory."""
    for x, n in zip(tensors, sizes):
        plain = x.dtype is program.dtype and x.is_cpu and x.is_contiguous() and type(x) in (Tensor, torch.nn.Parameter)
        if not plain or x.shape != (*shape, n) or x.is_neg() or x._is_zerotensor():
            return False
    return True


def _whole(bar: Tensor | None, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
    return torch.zeros(shape, dtype=dtype) if bar is None else bar.contiguous()
