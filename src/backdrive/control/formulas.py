"""Kernels for costs that are formulas: sums over motions, and derivatives to second order, in one call.

Without kernels, a small plan would spend most of its time in torch, whose operators take microseconds for a few
numbers; differentiating twice calls hundreds of operators. A kernel serves a formula with any constants in it: the
user's function is traced again for every plan, so the values it refers to may change.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..backends import Argument, Executable, Integer, Kernel, Number, Rows, Table, run
from ..ir import (
    Graph,
    Index,
    Scalar,
    ScalarArray,
    TimedArray,
    carry,
    interruptible,
    is_constant,
    is_finite,
    loop,
    replay,
    select,
    to_float,
    vjp,
)
from .symbols import Formula

MOST_WORK = 40_000  # Nodes times derivatives. Formulas with more would take seconds to compile, and are left to torch.
Function = Callable[..., list[Scalar]]


class CostKernels:
    """The kernels of a stage cost and a final cost, and the constants in their formulas.

    stage: a function of the changes (δu, δx), the state, the control and the step number. final: of δx and the state.
    """

    def __init__(self, stage: Formula, final: Formula, sizes: tuple[int, int, int]) -> None:
        self.stage, self.final, self.sizes, dtype = stage, final, sizes, stage.dtype
        self.constants = torch.tensor([*stage.constants, *final.constants, 0.0], dtype=dtype)
        self.bits = 64 if dtype == torch.float64 else 32
        self.key = (stage.key, len(stage.constants), final.key, self.bits)

    def total(self, states: Tensor, controls: Tensor, start: int) -> Tensor:
        """Total costs [B]; infinite where a motion is not finite."""
        out = states.new_empty(states.shape[1], 1)
        self._run("total", states, controls, start, out=out)
        return out.squeeze(-1)

    def expand(self, states: Tensor, controls: Tensor, start: int) -> tuple[Tensor, Tensor]:
        """See `TrajectoryCost.expand`."""
        (steps, batch, nu), d = controls.shape, self.sizes[2]
        H, end = states.new_zeros(steps, batch, (nu + d + 1) ** 2), states.new_zeros(batch, (d + 1) ** 2)
        self._run("expand", states, controls, start, H=H, end=end)
        return H.unflatten(-1, (nu + d + 1, nu + d + 1)), end.unflatten(-1, (d + 1, d + 1))

    def _run(self, name: str, states: Tensor, controls: Tensor, start: int, **out: Tensor) -> None:
        executable = _built.get((name, self.key))
        if executable is None:
            executable = _built[name, self.key] = self._build(name)
        rows = {"states": states.contiguous(), "controls": controls.contiguous(), **out}
        values: dict[str, Any] = {"constants": self.constants.data_ptr(), "begin": start, "steps": len(controls)}
        for row, x in rows.items():
            values[row] = (x.data_ptr(), x.stride(-2), x.stride(0) if x.ndim == 3 else 0)
        run(executable, states.shape[1], 1, values)

    def _build(self, name: str) -> Executable:
        outputs = ("out",) if name == "total" else ("H", "end")
        arguments: list[Argument] = [Rows("states"), Rows("controls"), *(Rows(x, writable=True) for x in outputs)]
        kernel = add_up if name == "total" else differentiate

        def body(**given: Any) -> None:
            written = [given.pop(output) for output in outputs]
            kernel(CostInputs(self.stage, self.final, self.sizes, **given), *written)

        key = hashlib.sha256(repr(self.key).encode()).hexdigest()
        arguments += [Table("constants"), Number("begin"), Integer("steps")]
        return Kernel(f"cost_{name}", arguments, body, key=key).build(self.bits)


_built: dict[tuple, Executable] = {}


def cost_kernels(
    stage: Callable[..., Any], final: Callable[..., Any], n: int, nu: int, d: int, dtype: torch.dtype
) -> CostKernels | None:
    """The kernels of a cost; None if it uses functions that `symbols` does not have, or if its formula is too long."""
    try:
        of_stage, of_final = Formula(stage, (nu + d, n, nu, 0), dtype), Formula(final, (d, n), dtype)
    except Exception:  # Any error of a user's function called with symbols: torch evaluates it on tensors instead.
        return None
    if (len(of_stage.tape.nodes) + len(of_final.tape.nodes)) * (nu + d) > MOST_WORK:
        return None
    return CostKernels(of_stage, of_final, (n, nu, d))


@dataclass(frozen=True)
class CostInputs:
    """The inputs of a cost kernel: the formulas of the cost, and the motion of one environment.

    sizes: n, nu and d. constants: those of `stage`, then those of `final`. begin: the first step's number.
    """

    stage: Formula
    final: Formula
    sizes: tuple[int, int, int]
    states: TimedArray
    controls: TimedArray
    constants: ScalarArray
    begin: Scalar
    steps: Index

    def stage_cost(self, t: Index) -> Function:
        """The cost of step t as a function of (δu, δx)."""
        (n, nu, _), stage = self.sizes, self.stage
        x, u = self.states.row(t), self.controls.row(t)
        given = [*(x[k] for k in range(n)), *(u[k] for k in range(nu)), to_float(t) + self.begin]
        given += [self.constants[k] for k in range(len(stage.constants))]
        return lambda *change: replay(stage.tape, [*change, *given], [stage.value])

    def final_cost(self) -> Function:
        """The cost of the last state as a function of δx."""
        final, x, first = self.final, self.states.row(self.steps), len(self.stage.constants)
        given = [x[k] for k in range(self.sizes[0])] + [self.constants[first + k] for k in range(len(final.constants))]
        return lambda *change: replay(final.tape, [*change, *given], [final.value])


def add_up(inputs: CostInputs, out: ScalarArray) -> None:
    """Kernel: the cost of a motion; infinite where it is not finite."""
    _, nu, d = inputs.sizes
    total = carry(1)
    total[0] = 0.0
    for t in interruptible(loop(inputs.steps)):
        stage_cost = inputs.stage_cost(t)
        total[0] = total[0] + stage_cost(*[0.0] * (nu + d))[0]
    total[0] = total[0] + inputs.final_cost()(*[0.0] * d)[0]
    out[0] = select(is_finite(total[0]), total[0], float("inf"))


def differentiate(inputs: CostInputs, H: TimedArray, end: ScalarArray) -> None:
    """Kernel: quadratic forms of (δu, δx, 1) for every step, and of (δx, 1) for the last state."""
    _, nu, d = inputs.sizes
    for t in interruptible(loop(inputs.steps)):
        _write_form(H.row(t), inputs.stage_cost(t), nu + d)
    _write_form(end, inputs.final_cost(), d)


def _write_form(out: ScalarArray, function: Function, size: int) -> None:
    """Write H of the form ½ zᵀ H z, z = (change, 1): the Hessian, with the gradient in the last row and column.

    `out` is initialised to zero, so entries that are zero for all motions are skipped.
    """
    origin, row = [0.0] * size, size + 1
    tape = Graph(scratch=True)
    with tape:
        slopes = vjp(function, [tape.add("leaf", (k,), "f") for k in range(size)], [1.0])[1]
    g = replay(tape, origin, slopes)
    for i in range(size):
        (_, second) = vjp(lambda *change, i=i: replay(tape, change, [slopes[i]]), origin, [1.0])
        for j, value in (*enumerate(second[: i + 1]), (size, g[i])):
            if not is_constant(value, 0.0):
                out[i * row + j] = value
                out[j * row + i] = value
