"""From a user's parameters to the vector of constants that kernels read, differentiable; also as an operator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from .program import Program
from .transforms import mapped, plain_call, traced


def assemble(program: Program, parameters: Mapping[str, Tensor], check: bool = True) -> Tensor:
    """The constants of a program with these parameters, [nconst] or [B, nconst], of its dtype. See `Model.assemble`.

    check: refuse values that are impossible, as a negative mass is. Without gradients, the constants of the last call
    are returned if the values are the same: comparing them is ten times faster.
    """
    if traced():
        names = list(parameters)
        return torch.ops.backdrive.assemble(program.number, ",".join(names), [parameters[name] for name in names])
    check = check and not any(mapped(x) for x in parameters.values())
    plain = check and plain_call() and not torch.is_inference_mode_enabled()  # whose tensors autograd refuses
    plain = plain and not any(isinstance(x, Tensor) and x.requires_grad for x in parameters.values())
    if plain and program.assembled is not None:
        before, constants = program.assembled
        if before.keys() == parameters.keys() and all(_same(x, parameters[name]) for name, x in before.items()):
            return constants
    constants = program.model.assemble(parameters, check=check).to(program.dtype)
    if plain:
        program.assembled = {name: x.clone() for name, x in parameters.items()}, constants
    return constants


def _same(a: Tensor, b: object) -> bool:
    return type(b) is Tensor and a.dtype == b.dtype and torch.equal(a, b)


# ---------------------------------------------------------------------------------------------- for torch.compile


@torch.library.custom_op("backdrive::assemble", mutates_args=())
def _assemble(program: int, names: str, values: Sequence[Tensor]) -> Tensor:
    owner = Program.of(program)
    return owner.model.assemble(dict(zip(names.split(","), values, strict=True))).to(owner.dtype)


@torch.library.custom_op("backdrive::assemble_vjp", mutates_args=())
def _assemble_vjp(program: int, names: str, values: Sequence[Tensor], bar: Tensor) -> list[Tensor]:
    owner = Program.of(program)

    def constants(*values: Tensor) -> Tensor:
        return owner.model.assemble(dict(zip(names.split(","), values, strict=True)), check=False).to(owner.dtype)

    return [gradient.clone() for gradient in torch.func.vjp(constants, *values)[1](bar)]


@_assemble.register_fake
def _(program: int, names: str, values: Sequence[Tensor]) -> Tensor:
    owner = Program.of(program)
    table = owner.model.parameters()
    batch = [x.shape[:1] for name, x in zip(names.split(","), values, strict=True) if x.ndim > len(table[name].shape)]
    return values[0].new_empty((*(batch[0] if batch else ()), len(owner.model.constants)), dtype=owner.dtype)


@_assemble_vjp.register_fake
def _(program: int, names: str, values: Sequence[Tensor], bar: Tensor) -> list[Tensor]:
    return [torch.empty_like(x) for x in values]


def _keep_parameters(ctx: Any, inputs: tuple, output: Tensor) -> None:
    ctx.program, ctx.names, values = inputs
    ctx.owner = Program.of(ctx.program)  # the graph may live longer than its Simulator
    ctx.save_for_backward(*values)


def _assemble_backward(ctx: Any, bar: Tensor) -> tuple:
    return None, None, torch.ops.backdrive.assemble_vjp(ctx.program, ctx.names, list(ctx.saved_tensors), bar)


_assemble.register_autograd(_assemble_backward, setup_context=_keep_parameters)
