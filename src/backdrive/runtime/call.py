"""A user's arguments to a method of `Simulator`, checked: errors name the argument, and what was expected."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from ..model import State
from ..schema.signatures import RolloutSettings, Signature
from ..schema.state import NAMES, state_names
from .parameters import assemble
from .program import Program
from .report import require_finite
from .request import Request
from .transforms import values_visible

_FIELDS = state_names("state.")


class Call:
    """The arguments of one call: checked, batched, on the CPU.

    state: a tensor [B, n] for every field. constants: with the parameters in their places, None without any;
    parameters: their names, separated by commas.
    """

    def __init__(
        self, program: Program, state: State, parameters: Mapping[str, Tensor] | None, check_parameters: bool = True
    ) -> None:
        self.program, self.model = program, program.model
        fields = self._check_state(state)
        first = fields[0]
        self.device = first.device
        self.given: dict[str, Tensor] = dict(zip(_FIELDS, fields))
        self.constants: Tensor | None = None
        self.parameters = ""
        if parameters is not None and not isinstance(parameters, Mapping):
            raise TypeError(f"parameters must be a mapping {{name: tensor}}, got {type(parameters).__name__}")
        if parameters:
            for name in program.ignored:
                if name in parameters:
                    other = "rigid" if program.scheme.soft else "mujoco"
                    raise ValueError(f"parameter {name!r} is one of physics={other!r}: this Simulator does not read it")
            values = {name: x.cpu() if isinstance(x, Tensor) else x for name, x in parameters.items()}
            self.constants = assemble(program, values, check_parameters)
            self.parameters = ",".join(sorted(parameters))
        rows = None if self.constants is None or self.constants.ndim == 1 else len(self.constants)
        self.unbatched = first.ndim == 1 and rows is None
        fields = [x.cpu() for x in fields]
        if first.ndim == 1:
            fields = [x.unsqueeze(0) for x in fields]
            if rows is not None:  # one world per row of parameters
                fields = [x.expand(rows, -1) for x in fields]
        elif rows is not None and rows != len(first):
            raise ValueError(f"parameters are for {rows} environments, but the state has {len(first)}")
        self.state, self.batch = tuple(fields), len(fields[0])

    def _check_state(self, state: Any) -> list[Tensor]:
        try:
            fields = list(state)
        except TypeError:
            fields = []
        if len(fields) != len(NAMES):
            raise TypeError(f"state must be State({', '.join(NAMES)}), got {type(state).__name__}")
        for name, x, n in zip(_FIELDS, fields, self.program.state_sizes):
            self._check_type(name, x)
            if x.ndim not in (1, 2) or x.shape[-1] != n:
                raise ValueError(f"{name} must be [{n}] or [B, {n}], got {list(x.shape)}")
        first = fields[0]
        for name, x in zip(_FIELDS[1:], fields[1:]):
            if x.shape[:-1] != first.shape[:-1]:
                shapes = f"{list(first.shape)} and {list(x.shape)}"
                raise ValueError(f"{_FIELDS[0]} and {name} must have the same batch, got {shapes}")
        if first.ndim == 2 and len(first) == 0:
            raise ValueError(f"the batch is empty: {_FIELDS[0]} has shape {list(first.shape)}")
        return fields

    def _check_type(self, name: str, x: object) -> None:
        if not isinstance(x, Tensor):
            raise TypeError(f"{name} must be a torch tensor, got {type(x).__name__}")
        if x.dtype != self.program.dtype:
            raise TypeError(f"{name} must have the simulator's dtype {self.program.dtype}, got {x.dtype}")
        if x.layout is not torch.strided:
            raise TypeError(f"{name} must be a dense tensor, got {x.layout}")

    def length(self, name: str, x: Tensor) -> int:
        """The number of steps that controls or wrenches are for."""
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

    def request(
        self, signature: Signature, settings: RolloutSettings | None = None, **inputs: Tensor | None
    ) -> tuple[Request, dict[str, Tensor]]:
        """A call of a form from this state, and its tensors; inputs by their names in the signature."""
        return request_of(self.program, signature, self.state, self.constants, self.parameters, settings, **inputs)

    def report(self) -> None:
        """Raise if something that the user gave is not finite, by the names and places that the user knows."""
        if values_visible(self.given.values()):
            require_finite(self.given)

    def finished(self, *tensors: Tensor, dim: int) -> list[Tensor]:
        """As the user's tensors are: without the batch dimension `dim` if there was none, on their device."""
        if self.unbatched:
            tensors = tuple(x.squeeze(dim) for x in tensors)
        return [x.to(self.device) for x in tensors]


def request_of(
    program: Program, signature: Signature, state: tuple[Tensor, ...], constants: Tensor | None, parameters: str,
    settings: RolloutSettings | None = None, **inputs: Tensor | None,
) -> tuple[Request, dict[str, Tensor]]:  # fmt: skip
    """A call of a form, and its tensors by their names; None: absent."""
    tensors = dict(zip(NAMES, state))
    for name, x in inputs.items():
        if x is not None:
            tensors[name] = x
    if constants is not None:
        tensors["constants"] = constants
    return Request(program, signature, tuple(tensors), parameters, settings), tensors
