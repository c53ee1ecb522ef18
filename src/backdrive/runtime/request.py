"""A call of a kernel's form, without its tensors: from the signature follow the shapes, which are checked here."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ..schema.signatures import DIFFERENTIABLE, Argument, Role, RolloutSettings, Signature
from .program import Program

if TYPE_CHECKING:
    from .closed_loop.network import Network

_OPERATORS = {signature.form: signature for signature in DIFFERENTIABLE}


@dataclass(frozen=True, eq=False)
class Request:
    """A call of a form.

    names: of the tensors that are given, in their order. parameters: names of the model's parameters from which the
    constants were assembled, separated by commas. network: of a policy that the kernel evaluates.
    """

    program: Program
    signature: Signature
    names: tuple[str, ...]
    parameters: str = ""
    settings: RolloutSettings | None = None
    network: Network | None = None

    @staticmethod
    def parse(form: str, names: str, program: int, parameters: str, settings: Sequence[int]) -> Request:
        """From the arguments of a PyTorch operator."""
        signature = _OPERATORS.get(form)
        if signature is None:
            raise ValueError(f"backdrive: there is no form {form!r}; expected one of {list(_OPERATORS)}")
        given = tuple(names.split(","))
        return Request(Program.of(program), signature, given, parameters, signature.parse(settings))

    def adjoint(self) -> Signature:
        """The signature of its derivative."""
        return self.signature.adjoint_signature(self.settings)

    def renamed(self, names: Iterable[str]) -> Request:
        """The same call with other tensors: those that its adjoint reads."""
        return replace(self, names=tuple(names))

    def cotangents(self, names: Collection[str], wanted: Collection[str]) -> list[tuple[Argument, Argument]]:
        """The cotangents that the adjoint writes, each with its input.

        names: of the tensors that are given. wanted: names of optional cotangents.
        """
        return [
            (bar, primal)
            for bar, primal in zip(self.adjoint().writes, self.signature.reads, strict=True)
            if not bar.optional or (primal.name in names if primal.paired else bar.name in wanted)
        ]

    def dimensions(self, signature: Signature, tensors: Mapping[str, Any]) -> dict[str, int]:
        """The lengths of the axes B, T and S; signature: of this form or of its adjoint."""
        first = signature.reads[0]
        x = tensors.get(first.name)
        if not isinstance(x, Tensor) or x.ndim < len(first.axes):
            found = list(x.shape) if isinstance(x, Tensor) else type(x).__name__
            form = self.signature.form
            raise ValueError(f"backdrive {form}: {first.name} must be a tensor with a batch, got {found}")
        lengths = {"B": x.shape[-2]}
        if self.settings is not None:
            lengths["T"], lengths["S"] = self.settings.steps, self.settings.segments
        elif signature.over_time:
            lengths["T"] = x.shape[0]
        return lengths

    def shape(self, argument: Argument, lengths: Mapping[str, int]) -> list[int]:
        """The shape of an argument as the kernel sees it."""
        return [lengths[axis] if axis in lengths else self.size(axis) for axis in argument.axes]

    def result_shapes(self, lengths: Mapping[str, int]) -> dict[str, list[int]]:
        """The shapes of the results: a path has a row more, for its start."""
        shapes = {a.name: self.shape(a, lengths) for a in self.signature.results(self.settings)}
        for name, shape in shapes.items():
            if self.signature.arguments[name].start:
                shape[0] += 1
        return shapes

    def size(self, symbol: str) -> int:
        sizes = None if self.network is None else self.network.sizes
        return sizes[symbol] if sizes is not None and symbol in sizes else self.program.size(symbol)

    def integers(self, signature: Signature, lengths: Mapping[str, int]) -> dict[str, int]:
        """The values of the kernel's integers."""
        values = {"rows": self.program.model.nv}
        if self.settings is not None:
            values |= {"steps": self.settings.steps, "every": self.settings.every, "truncate": self.settings.cut}
        elif signature.over_time:
            values["times"] = lengths["T"]
        return {name: values[name] for name in signature.integers}

    def check(self, signature: Signature, tensors: Mapping[str, Any]) -> dict[str, int]:
        """Compiled code trusts shapes: every tensor that reaches it was checked here. Returns `dimensions`."""
        program, form = self.program, self.signature.form
        self._check_settings(back=signature is not self.signature)
        lengths = self.dimensions(signature, tensors)
        for name in tensors:
            if name not in signature.arguments:
                raise ValueError(f"backdrive {form}: there is no input {name!r}; they are {_names(signature.reads)}")
        for argument in signature.reads:
            x = tensors.get(argument.name)
            if x is None and argument.optional:
                continue
            shape = self.shape(argument, lengths)
            if argument.batchable and isinstance(x, Tensor) and x.ndim == len(shape) + 1:
                shape = [lengths["B"], *shape]
            if not _fits(x, shape, program.dtype):
                got = f"{x.dtype} {list(x.shape)} on {x.device}" if isinstance(x, Tensor) else repr(x)
                raise ValueError(
                    f"backdrive {form}: {argument.name} must be {program.dtype} {shape} on the cpu, got {got}"
                )
        if lengths["B"] < 1:
            raise ValueError(f"backdrive {form}: the batch is empty")
        return lengths

    def _check_settings(self, back: bool) -> None:
        settings = self.settings
        if settings is None:
            return
        steps, every, truncate, path = settings
        if not 1 <= every <= steps or truncate < 0 or (every != steps and not path and not back):
            names = ", ".join(RolloutSettings._fields)
            raise ValueError(f"backdrive {self.signature.form}: settings ({names}) are {list(settings)}")


def _fits(x: Any, shape: list[int], dtype: torch.dtype) -> bool:
    return isinstance(x, Tensor) and list(x.shape) == shape and x.dtype == dtype and x.device.type == "cpu"


def _names(arguments: Sequence[Argument]) -> list[str]:
    return [a.name for a in arguments if a.role is not Role.STATUS]
