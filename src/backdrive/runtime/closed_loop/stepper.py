"""Steps, one at a time, for policies that torch computes between them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from torch import Tensor

from ...schema.signatures import ONE_STEP, ROLLOUT, RolloutSettings
from ...schema.state import NAMES, state_names
from .. import execute, quick
from ..call import request_of
from ..pages import empty
from ..program import Program
from ..report import report_motion
from ..request import Request
from ..residuals import Residuals


class Loop(NamedTuple):
    """A rollout whose controls are those of a policy.

    state: the start, [B, n] for every field. wrenches: [T, B, 6 nlink]. constants: [nconst] or [B, nconst], None for
    the model's own; parameters: names of those in them, separated by commas.
    """

    program: Program
    state: tuple[Tensor, ...]
    wrenches: Tensor | None
    constants: Tensor | None
    parameters: str
    settings: RolloutSettings

    def at(self, t: int, state: Sequence[Tensor], control: Tensor, solution: Tensor | None) -> OneStep:
        """Step t, from a state [B, n]."""
        wrench = None if self.wrenches is None else self.wrenches[t]
        return OneStep(self.program, tuple(state), control, wrench, self.constants, self.parameters, solution)


class OneStep(NamedTuple):
    """A step and its inputs: tensors [B, n]. solution: what its solver found, if its adjoint starts from it."""

    program: Program
    state: tuple[Tensor, ...]
    control: Tensor
    wrench: Tensor | None
    constants: Tensor | None
    parameters: str
    solution: Tensor | None


class InputCotangents(NamedTuple):
    """The cotangents of a step's inputs; None where there is no input, or nobody wants it."""

    state: tuple[Tensor, ...]
    control: Tensor
    wrench: Tensor | None
    constants: Tensor | None


class Stepper:
    """Steps, one at a time, whose states and status are rows of arrays made beforehand.

    path: for every field of the state [T + 1, B, n]; controls [T, B, nu]; status [T, B, nstatus]; solution [T, B, n]:
    what the solvers of the steps found, None if their adjoints do not start from it
    """

    def __init__(self, loop: Loop) -> None:
        program, steps, start = loop.program, loop.settings.steps, loop.state[0]
        self.loop, self.batch = loop, len(start)
        controls = start.new_empty(1).expand(steps, self.batch, program.model.nu)
        given = {"controls": controls, "wrenches": loop.wrenches}
        every_state = RolloutSettings(steps)
        request, tensors = request_of(
            program, ROLLOUT, loop.state, loop.constants, loop.parameters, every_state, **given
        )  # fmt: skip
        shapes = request.result_shapes(request.check(ROLLOUT, tensors))
        names = (*state_names("path_"), *(name for name in ("status", "solution") if name in shapes))
        arrays = {name: empty(shapes[name], program.dtype) for name in names}
        self.path, self.status = tuple(arrays[name] for name in state_names("path_")), arrays["status"]
        self.solution = arrays.get("solution")
        self.controls = empty((steps, self.batch, program.model.nu), program.dtype)
        for path, x in zip(self.path, loop.state):
            path[0] = x.detach()
        plain = loop.wrenches is None and loop.constants is None and program.quick(self.batch)
        self._call = quick.quick_call(program, "step") if plain else None
        written = (self.status,) if self.solution is None else (self.status, self.solution)
        self._rows = [_row_addresses(x) for x in (*self.path, self.controls, *written)]
        self._path_rows = self._rows[: len(self.path)]
        self._request = Request(program, ROLLOUT, (), loop.parameters, ONE_STEP)
        self._integers = self._request.integers(ROLLOUT, {})

    def state(self, t: int) -> tuple[Tensor, ...]:
        """The state before step t, [B, n]."""
        return tuple(path[t] for path in self.path)

    def advance(self, t: int) -> None:
        """Step t, with the controls of its row."""
        if self._call is not None:
            rows, n = [address + t * stride for address, stride in self._rows], len(self.path) + 1
            after = [address + (t + 1) * stride for address, stride in self._path_rows]
            self._call(self.batch, (*rows[:n], *after, *after, *rows[n:]))
            return
        given = dict(zip(NAMES, self.state(t))) | dict(zip(state_names("last_"), self.state(t + 1)))
        given |= {name: path[t + 1 : t + 2] for name, path in zip(state_names("path_"), self.path)}
        given |= {"controls": self.controls[t : t + 1], "status": self.status[t : t + 1]}
        if self.solution is not None:
            given["solution"] = self.solution[t : t + 1]
        if self.loop.wrenches is not None:
            given["wrenches"] = self.loop.wrenches[t : t + 1]
        if self.loop.constants is not None:
            given["constants"] = self.loop.constants
        execute.launch(self._request, ROLLOUT, self.batch, given, self._integers)

    def report(self, **others: Tensor | None) -> None:
        """Numbers that are not finite; others: inputs besides the state."""
        program = self.loop.program
        if program.nonfinite == "raise":
            given: Mapping[str, Tensor | None] = dict(zip(NAMES, self.loop.state)) | others
            inputs = {name: x for name, x in given.items() if x is not None}
            report_motion(inputs, self.controls, self.status, program.limited)


def _row_addresses(x: Tensor) -> tuple[int, int]:
    """The address of the first row, and the bytes from one row to the next."""
    return x.data_ptr(), x.stride(0) * x.element_size()


def step_vjp(step: OneStep, last_bars: Sequence[Tensor], want_constants: bool) -> InputCotangents:
    """The cotangents of a step's inputs, from those of the state after it."""
    if step.wrench is None and step.constants is None:
        found = quick.step_vjp(step.program, step.state, step.control, last_bars, step.solution)
        if found is not None:
            return InputCotangents(found[:-1], found[-1], None, None)
    wrenches = None if step.wrench is None else step.wrench.unsqueeze(0)
    given = {"controls": step.control.unsqueeze(0), "wrenches": wrenches}
    request, inputs = request_of(
        step.program, ROLLOUT, step.state, step.constants, step.parameters, ONE_STEP, **given
    )  # fmt: skip
    wanted = ("constants_bar",) if want_constants else ()
    solution = {} if step.solution is None else {"solution": step.solution.unsqueeze(0)}
    residuals = Residuals.of(request, inputs, solution, None)
    bars = residuals.vjp((*last_bars, None), wanted, execute.vjp)
    wrench = bars["wrenches"].squeeze(0) if "wrenches" in bars else None
    state = tuple(bars[name] for name in NAMES)
    return InputCotangents(state, bars["controls"].squeeze(0), wrench, bars.get("constants"))
