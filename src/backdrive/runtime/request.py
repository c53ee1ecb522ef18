"""A call of a kernel's form, without its tensors: from the signature follow the shapes, which are checked here."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from ..schema.signatures import DIFFERENTIABLE, Argument, Role, RolloutSettings, Signature
from .program import Program

if TYPE_CHECKING:
    from .closed_loop.network import Network

Leads = dict[str, tuple[int, ...]]
"""The lengths of the axes before the last, by their symbols in one word: "", "B", "TB", "SB"."""

_OPERATORS = {signature.form: signature for signature in DIFFERENTIABLE}


class Shaped(NamedTuple):
    """An argument with the numbers of a program. lead: its axes before the last, in one word ("TB"). size: of the last.

    rows: 1 for a path, of which a caller's tensor has one more row than the kernel fills.
    """

    name: str
    lead: str
    size: int
    optional: bool
    batchable: bool
    rows: int


class CallPlan:
    """A signature with the sizes of a program, which calls need again and again."""

    def __init__(self, signature: Signature, size: Callable[[str], int]) -> None:
        def shaped(a: Argument) -> Shaped:
            return Shaped(a.name, "".join(a.axes[:-1]), size(a.size), a.optional, a.batchable, int(bool(a.start)))

        self.reads = [shaped(a) for a in signature.reads]
        self.writes = {a.name: shaped(a) for a in signature.writes}
        self.names = frozenset(a.name for a in signature.reads)


@dataclass(eq=False)
class Request:
    """A call of a form; it is not changed.

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

    @property
    def keeps_solution(self) -> bool:
        """Whether its adjoint starts from what the solvers of its steps found."""
        return self.program.solution_size > 0 and self.settings is not None and self.settings.every == 1

    def results(self) -> tuple[Argument, ...]:
        """What it returns: the results of its signature, and the solution if the adjoint wants it."""
        found = self.signature.results(self.settings)
        return found if self.keeps_solution else tuple(a for a in found if a.role is not Role.SOLUTION)

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

    def plan(self, signature: Signature) -> CallPlan:
        """signature: of this form or of its adjoint."""
        network, plans = self.network, self.program.plans
        key = signature.form if network is None else (signature.form, *network.sizes.values())
        plan = plans.get(key)
        if plan is None:
            plan = plans[key] = CallPlan(signature, self._size)
        return plan

    def _size(self, symbol: str) -> int:
        sizes = {} if self.network is None else self.network.sizes
        return sizes[symbol] if symbol in sizes else self.program.size(symbol)

    def leads(self, signature: Signature, tensors: Mapping[str, Any]) -> Leads:
        """The lengths of the axes before the last; signature: of this form or of its adjoint."""
        first = signature.reads[0]
        x = tensors.get(first.name)
        if not isinstance(x, Tensor) or x.ndim < len(first.axes):
            found = list(x.shape) if isinstance(x, Tensor) else type(x).__name__
            form = self.signature.form
            raise ValueError(f"backdrive {form}: {first.name} must be a tensor with a batch, got {found}")
        batch, settings = x.shape[-2], self.settings
        if settings is not None:
            return {"": (), "B": (batch,), "TB": (settings.steps, batch), "SB": (settings.segments, batch)}
        return {"": (), "B": (batch,), "TB": (x.shape[0], batch)}

    def result_shapes(self, leads: Leads) -> dict[str, tuple[int, ...]]:
        """The shapes of the results: a path has a row more, for its start."""
        writes, shapes = self.plan(self.signature).writes, {}
        for argument in self.results():
            name, lead, size, _, _, rows = writes[argument.name]
            first, *others = leads[lead]
            shapes[name] = (first + rows, *others, size)
        return shapes

    def integers(self, signature: Signature, leads: Leads) -> dict[str, int]:
        """The values of the kernel's integers."""
        settings, values = self.settings, {}
        for name in signature.integers:
            if name == "rows":
                values[name] = self.program.model.nv
            elif settings is None:
                values[name] = leads["TB"][0]
            else:
                values[name] = settings.cut if name == "truncate" else getattr(settings, name)
        return values

    def check(self, signature: Signature, tensors: Mapping[str, Any]) -> Leads:
        """Compiled code trusts shapes: every tensor that reaches it was checked here. Returns `leads`."""
        plan, dtype = self.plan(signature), self.program.dtype
        if self.settings is not None:
            self._check_settings(self.settings, back=signature is not self.signature)
        leads = self.leads(signature, tensors)
        if not plan.names.issuperset(tensors):
            unknown = next(name for name in tensors if name not in plan.names)
            known = [a.name for a in signature.reads]
            raise ValueError(f"backdrive {self.signature.form}: there is no input {unknown!r}; they are {known}")
        for name, lead, size, optional, batchable, _ in plan.reads:
            x = tensors.get(name)
            if x is None and optional:
                continue
            shape = (*leads[lead], size)
            if batchable and isinstance(x, Tensor) and x.ndim == len(shape) + 1:
                shape = (*leads["B"], *shape)
            if not isinstance(x, Tensor) or x.shape != shape or not _plain(x, dtype):
                got = f"{x.dtype} {x.layout} {list(x.shape)} on {x.device}" if isinstance(x, Tensor) else repr(x)
                must = f"{dtype} {torch.strided} {list(shape)} on the cpu"
                raise ValueError(f"backdrive {self.signature.form}: {name} must be {must}, got {got}")
        if leads["B"][0] < 1:
            raise ValueError(f"backdrive {self.signature.form}: the batch is empty")
        return leads

    def _check_settings(self, settings: RolloutSettings, back: bool) -> None:
        steps, every, truncate, path = settings
        if not 1 <= every <= steps or truncate < 0 or (every != steps and not path and not back):
            names = ", ".join(RolloutSettings._fields)
            raise ValueError(f"backdrive {self.signature.form}: settings ({names}) are {list(settings)}")


def _plain(x: Tensor, dtype: torch.dtype) -> bool:
    return x.dtype is dtype and x.device.type == "cpu" and x.layout is torch.strided
