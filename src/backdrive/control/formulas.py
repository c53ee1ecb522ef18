"""Costs that are formulas, as kernels: their sums over motions, and their derivatives to second order, in one call.

Most of the time of a small plan would go to torch, whose operators take microseconds for a few numbers, and
differentiating twice calls hundreds of them. A kernel is made for a formula, whatever the numbers in it: the user's
function is called anew for every plan, so that what it refers to may change.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable
from typing import Any, NamedTuple

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
    is_constant,
    is_finite,
    loop,
    replay,
    select,
    to_float,
    vjp,
)  # fmt: skip
from .symbols import Formula

MOST_WORK = 40_000  # nodes times derivatives: beyond, compilation takes seconds


class CostKernels:
    """The kernels of a stage's and a final cost, and the numbers in them.

    stage: of the changes (δu, δx), the state, the control, and the number of the step; final: of δx and the state.
    """

    def __init__(self, stage: Formula, final: Formula, sizes: tuple[int, int, int]) -> None:
        self.stage, self.final, self.sizes, dtype = stage, final, sizes, stage.dtype
        self.constants = torch.tensor([*stage.constants, *final.constants, 0.0], dtype=dtype)
        self.bits = 64 if dtype == torch.float64 else 32
        self.key = (stage.key, len(stage.constants), final.key, self.bits)

    def total(self, states: Tensor, controls: Tensor, start: int) -> Tensor:
        """[B]; infinite where a motion is not finite."""
        out = states.new_empty(states.shape[1], 1)
        self._run("total", states, controls, start, out=out)
        return out.squeeze(-1)

    def expand(self, states: Tensor, controls: Tensor, start: int) -> tuple[Tensor, Tensor]:
        """See `Bill.expand`."""
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
        body = functools.partial(add_up if name == "total" else differentiate, self)
        key = hashlib.sha256(repr(self.key).encode()).hexdigest()
        arguments += [Table("constants"), Number("begin"), Integer("steps")]
        return Kernel(f"cost_{name}", arguments, body, key=key).build(self.bits)


_built: dict[tuple, Executable] = {}


def cost_kernels(
    stage: Callable[..., Any], final: Callable[..., Any], n: int, nu: int, d: int, dtype: torch.dtype
) -> CostKernels | None:
    """None where a cost is no formula of those functions that there are symbols for, or too long a one."""
    try:
        of_stage, of_final = Formula(stage, (nu + d, n, nu, 0), dtype), Formula(final, (d, n), dtype)
    except Exception:  # whatever a user's function says to symbols: torch gives it tensors
        return None
    if (len(of_stage.tape.nodes) + len(of_final.tape.nodes)) * (nu + d) > MOST_WORK:
        return None
    return CostKernels(of_stage, of_final, (n, nu, d))


class CostedMotion(NamedTuple):
    """The motion that a cost is of, as a kernel sees it: states [T + 1], controls [T], the constants of the formulas,
    and the number of its first step."""

    states: TimedArray
    controls: TimedArray
    constants: ScalarArray
    begin: Scalar
    steps: Index


def add_up(costs: CostKernels, out: ScalarArray, **motion: Any) -> None:
    """Kernel: the cost of a motion."""
    of_motion, (_, nu, d) = _MotionCost(costs, CostedMotion(**motion)), costs.sizes
    total = carry(1)
    total[0] = 0.0
    for t in loop(of_motion.steps):
        stage = of_motion.stage(t)
        total[0] = total[0] + stage(*[0.0] * (nu + d))[0]
    total[0] = total[0] + of_motion.final()(*[0.0] * d)[0]
    out[0] = select(is_finite(total[0]), total[0], float("inf"))


def differentiate(costs: CostKernels, H: TimedArray, end: ScalarArray, **motion: Any) -> None:
    """Kernel: forms of (δu, δx, 1) for every step, and of (δx, 1) at the end."""
    of_motion, (_, nu, d) = _MotionCost(costs, CostedMotion(**motion)), costs.sizes
    for t in loop(of_motion.steps):
        _write_form(H.row(t), of_motion.stage(t), nu + d)
    _write_form(end, of_motion.final(), d)


Function = Callable[..., list[Scalar]]


class _MotionCost:
    """The costs of the steps of a motion, and of its end, as functions of changes."""

    def __init__(self, costs: CostKernels, motion: CostedMotion) -> None:
        self._costs, self._motion, self.steps = costs, motion, motion.steps

    def stage(self, t: Index) -> Function:
        """The cost of step t as a function of (δu, δx)."""
        (n, nu, _), stage, motion = self._costs.sizes, self._costs.stage, self._motion
        x, u = motion.states.row(t), motion.controls.row(t)
        given = [*(x[k] for k in range(n)), *(u[k] for k in range(nu)), to_float(t) + motion.begin]
        given += [motion.constants[k] for k in range(len(stage.constants))]
        return lambda *change: replay(stage.tape, [*change, *given], [stage.value])

    def final(self) -> Function:
        """The cost of the last state as a function of δx."""
        (n, _, _), final, motion = self._costs.sizes, self._costs.final, self._motion
        x, first = motion.states.row(motion.steps), len(self._costs.stage.constants)
        given = [x[k] for k in range(n)] + [motion.constants[first + k] for k in range(len(final.constants))]
        return lambda *change: replay(final.tape, [*change, *given], [final.value])


def _write_form(out: ScalarArray, function: Function, size: int) -> None:
    """½ zᵀ H z of z = (change, 1): second derivatives, first ones in the last row and column; zero is there already."""
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
