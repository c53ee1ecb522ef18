"""Steps, one at a time, for what torch computes between them."""

from __future__ import annotations

from torch import Tensor

from .. import autograd as operators
from .. import execute as evaluation
from ..pages import empty
from ..program import Program


class Stepper:
    """Steps, one at a time, whose states and status are rows of arrays made beforehand.

    path_q [T + 1, B, nq], path_v [T + 1, B, nv], controls [T, B, nu], status [T, B, n]
    """

    def __init__(
        self, program: Program, q: Tensor, v: Tensor, steps: int, wrenches: Tensor | None, constants: Tensor | None,
        names: str,
    ) -> None:  # fmt: skip
        model, batch = program.model, len(q)
        controls = q.new_empty(1).expand(steps, batch, model.nu)
        evaluation.check("rollout", program.number, [steps, 1, 0, 1], q, v, controls, wrenches, constants)
        self.program, self.steps, self.batch, self.names = program, steps, batch, names
        self.wrenches, self.constants = wrenches, constants
        sizes = {"path_q": (steps + 1, model.nq), "path_v": (steps + 1, model.nv), "controls": (steps, model.nu)}
        sizes["status"] = (steps, program.status_size)
        arrays = {name: empty((time, batch, n), q.dtype) for name, (time, n) in sizes.items()}
        self.path_q, self.path_v, self.controls, self.status = arrays.values()
        self.path_q[0], self.path_v[0] = q.detach(), v.detach()
        self.quick = wrenches is None and constants is None and program.quick(batch)
        self.addresses = {name: x.data_ptr() for name, x in arrays.items()}
        self.strides = {name: x.stride(0) * x.element_size() for name, x in arrays.items()}

    def advance(self, t: int) -> None:
        """Step t, with the controls of its row."""
        if self.quick:
            at = {name: address + t * self.strides[name] for name, address in self.addresses.items()}
            last_q, last_v = at["path_q"] + self.strides["path_q"], at["path_v"] + self.strides["path_v"]
            self.program.step_call(
                self.batch, q=at["path_q"], v=at["path_v"], controls=at["controls"], status=at["status"],
                last_q=last_q, last_v=last_v, path_q=last_q, path_v=last_v,
            )  # fmt: skip
            return
        after = {"path_q": self.path_q[t + 1 : t + 2], "path_v": self.path_v[t + 1 : t + 2]}
        rows = {"q": self.path_q[t], "v": self.path_v[t], "controls": self.controls[t : t + 1]} | after
        rows |= {"last_q": self.path_q[t + 1], "last_v": self.path_v[t + 1], "status": self.status[t : t + 1]}
        if self.wrenches is not None:
            rows["wrenches"] = self.wrenches[t : t + 1]
        self.program.run("rollout", self.batch, rows, {"steps": 1, "every": 1}, self.constants, self.names)

    def report(self, **inputs: Tensor | None) -> None:
        if self.program.nonfinite == "raise":
            given = {name: x for name, x in inputs.items() if x is not None}
            evaluation.report_motion(given, self.controls, self.status, self.program.limited)


def step_back(
    program: Program, names: str, q: Tensor, v: Tensor, u: Tensor, wrench: Tensor | None, constants: Tensor | None,
    q_bar: Tensor, v_bar: Tensor, want_constants: bool,
) -> list[Tensor]:  # fmt: skip
    """From the gradients after a step from (q, v): those with respect to q, v, u, wrench, constants (if wanted)."""
    if wrench is None and constants is None:
        quick = evaluation.quick_step_back(program, q, v, u, q_bar, v_bar)
        if quick is not None:
            return list(quick)
    last_v = operators.unknown(v)
    q, v, u = q.unsqueeze(0), v.unsqueeze(0), u.unsqueeze(0)
    wrenches = None if wrench is None else wrench.unsqueeze(0)
    bars = (operators._zeros(q.shape, q), operators._zeros(v.shape, v), q_bar, v_bar, last_v)
    args = (constants, program.number, names, operators.ONE_STEP, want_constants, *bars)
    q_bar, v_bar, u_bar, *others = evaluation.pull_back("rollout", q, v, u, wrenches, *args)
    if wrenches is not None:
        others[0] = others[0].squeeze(0)
    return [q_bar, v_bar, u_bar.squeeze(0), *others]
