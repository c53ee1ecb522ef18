"""What a user gives to a call of a `Simulator`, checked: errors name what was wrong, and what was expected."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from ..model import State
from . import autograd as operators
from . import execute as evaluation
from .program import Program


class Call:
    """The arguments of one call: checked, batched, on the CPU."""

    def __init__(self, program: Program, state: State, parameters: Mapping[str, Tensor] | None) -> None:
        self.program, self.model = program, program.model
        try:
            q, v = state
        except (TypeError, ValueError):
            raise TypeError(f"state must be State(q, v), got {type(state).__name__}") from None
        for name, x, n in (("state.q", q, self.model.nq), ("state.v", v, self.model.nv)):
            self._check_type(name, x)
            if x.ndim not in (1, 2) or x.shape[-1] != n:
                raise ValueError(f"{name} must be [{n}] or [B, {n}], got {list(x.shape)}")
        if q.shape[:-1] != v.shape[:-1]:
            raise ValueError(f"state.q and state.v must have the same batch, got {list(q.shape)} and {list(v.shape)}")
        if q.ndim == 2 and len(q) == 0:
            raise ValueError("the batch is empty: state.q has shape " + str(list(q.shape)))
        self.device = q.device
        self.given: dict[str, Tensor] = {"state.q": q, "state.v": v}
        self.constants: Tensor | None = None
        self.names = ""
        if parameters is not None and not isinstance(parameters, Mapping):
            raise TypeError(f"parameters must be a mapping {{name: tensor}}, got {type(parameters).__name__}")
        if parameters:
            values = {name: x.cpu() if isinstance(x, Tensor) else x for name, x in parameters.items()}
            self.constants = operators.assemble(program, values)
            self.names = ",".join(sorted(parameters))
        rows = None if self.constants is None or self.constants.ndim == 1 else len(self.constants)
        self.unbatched = q.ndim == 1 and rows is None
        q, v = q.cpu(), v.cpu()
        if q.ndim == 1:
            q, v = q.unsqueeze(0), v.unsqueeze(0)
            if rows is not None:  # one world per row of parameters
                q, v = q.expand(rows, -1), v.expand(rows, -1)
        elif rows is not None and rows != len(q):
            raise ValueError(f"parameters are for {rows} environments, but the state has {len(q)}")
        self.q, self.v, self.batch = q, v, len(q)

    def _check_type(self, name: str, x: object) -> None:
        if not isinstance(x, Tensor):
            raise TypeError(f"{name} must be a torch tensor, got {type(x).__name__}")
        if x.dtype != self.program.dtype:
            raise TypeError(f"{name} must have the simulator's dtype {self.program.dtype}, got {x.dtype}")
        if x.layout is not torch.strided:
            raise TypeError(f"{name} must be a dense tensor, got {x.layout}")

    def length(self, name: str, x: Tensor) -> int:
        """For how many steps controls or wrenches are."""
        self._check_type(name, x)
        if x.ndim == 0:
            raise ValueError(f"{name} must be [T, ...], one row for every step, got a single number")
        return len(x)

    def tensor(self, name: str, x: Tensor, shape: tuple[int, ...], steps: int | None = None) -> Tensor:
        """x as [B, *shape], or [T, B, *shape] with steps; environments may share it."""
        self._check_type(name, x)
        self.given[name] = x
        time = [] if steps is None else [steps]
        if list(x.shape) == [*time, *shape]:
            x = x.unsqueeze(len(time)).expand(*time, self.batch, *shape)
        elif list(x.shape) != [*time, self.batch, *shape] or self.unbatched:
            wanted = ", ".join(str(n) for n in [*time, *([] if self.unbatched else [self.batch]), *shape])
            raise ValueError(f"{name} must be [{wanted}], got {list(x.shape)}")
        return x.cpu()

    def controls(self, controls: Tensor | None, steps: int | None = None) -> Tensor:
        """[T, B, nu], or [B, nu] without steps"""
        nu = self.model.nu
        if controls is None:
            shape = (self.batch, nu) if steps is None else (steps, self.batch, nu)
            return torch.zeros(nu, dtype=self.program.dtype).expand(shape)
        return self.tensor("control" if steps is None else "controls", controls, (nu,), steps)

    def wrenches(self, wrenches: Tensor | None, steps: int | None = None) -> Tensor | None:
        """[T, B, nlink * 6] of [T, B, nbody, k], or without steps and T: on links, in three dimensions."""
        if wrenches is None:
            return None
        model = self.model
        size = 6 if model.dim == 3 else 3
        x = self.tensor("wrench" if steps is None else "wrenches", wrenches, (model.nbody, size), steps)
        if model.dim == 2:  # fx, fy, torque about z
            fx, fy, torque = x.unbind(-1)
            zero = torch.zeros_like(fx)
            x = torch.stack([fx, fy, zero, zero, zero, torque], -1)
        if model.nlink != model.nbody:
            padded = x.new_zeros(*x.shape[:-2], model.nlink, 6)
            x = padded.index_copy(-2, torch.tensor(model.body_link.tolist()), x)
        return x.flatten(-2)

    def evaluate(
        self, form: str, x: Tensor | None, wrenches: Tensor | None = None, settings: Sequence[int] = ()
    ) -> Sequence[Tensor]:
        number = self.program.number
        return self.run(form, self.q, self.v, x, wrenches, self.constants, number, self.names, list(settings))

    def run(self, *args: Any) -> Sequence[Tensor]:
        """Evaluate; what is not finite is reported by the names and places the caller knows."""
        try:
            return operators.evaluate(*args)
        except evaluation.NotFiniteError:
            if operators.values_visible(self.given.values()):
                evaluation.require_finite(self.given)
            raise

    def finished(self, *tensors: Tensor, dim: int) -> list[Tensor]:
        """As the caller has his tensors: without the batch dimension `dim` if there was none, on his device."""
        if self.unbatched:
            tensors = tuple(x.squeeze(dim) for x in tensors)
        return [x.to(self.device) for x in tensors]
