"""PyTorch's autograd on `quadruped`; the legs are one batch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from . import quadruped


class Ops:
    """Of tensors [..., n, m]."""

    sin, cos, sqrt, maximum, minimum, solve = (
        torch.sin,
        torch.cos,
        torch.sqrt,
        torch.maximum,
        torch.minimum,
        torch.linalg.solve,
    )

    @staticmethod
    def eye(n: int) -> Tensor:
        return torch.eye(n, dtype=torch.float64)

    @staticmethod
    def entry(x: Tensor, i: int, j: int = 0, keep: bool = False) -> Tensor:
        return x[..., i : i + 1, j : j + 1] if keep else x[..., i, j]

    @staticmethod
    def rows(x: Tensor, start: int, end: int) -> Tensor:
        return x[..., start:end, :]

    @staticmethod
    def columns(x: Tensor, start: int, end: int) -> Tensor:
        return x[..., start:end]

    @staticmethod
    def T(x: Tensor) -> Tensor:
        return x.mT

    @staticmethod
    def matrix(rows: Sequence[Sequence[Tensor]]) -> Tensor:
        return torch.stack([x for row in rows for x in row], -1).unflatten(-1, (len(rows), -1))

    @staticmethod
    def block(rows: Sequence[Sequence[Tensor]]) -> Tensor:
        return torch.cat([torch.cat(tuple(row), -1) if len(row) > 1 else row[0] for row in rows], -2)

    @staticmethod
    def column(entries: Sequence[Tensor]) -> Tensor:
        return torch.stack(tuple(entries)).unsqueeze(-1)

    @staticmethod
    def legs(function: Callable[..., Any], *batches: Any) -> Any:
        return function(*batches)

    @staticmethod
    def split(x: Tensor) -> Tensor:
        return x.unflatten(0, (quadruped.FEET, -1))

    @staticmethod
    def under(x: Tensor) -> Tensor:
        return x.reshape(-1, 1)

    @staticmethod
    def beside(x: Tensor) -> Tensor:
        return torch.cat(tuple(x), -1)

    @staticmethod
    def total(x: Tensor) -> Tensor:
        return x.sum(0)

    @staticmethod
    def diagonal(x: Tensor) -> Tensor:
        return torch.block_diag(*x)

    @staticmethod
    def spread(x: Tensor) -> Tensor:
        return torch.diag(x[:, 0])

    @staticmethod
    def where_negative(x: Tensor) -> Tensor:
        return (x < 0).to(x.dtype)

    @staticmethod
    def repeat(count: int, function: Callable[..., Any], x: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        for _ in range(count):
            x = function(*x)
        return x

    @staticmethod
    def constant(x: np.ndarray) -> Tensor:
        return torch.from_numpy(x)

    @staticmethod
    def gather(legs: Sequence[dict[str, Any]]) -> dict[str, Any]:
        return {
            name: [torch.from_numpy(np.stack(parts)) for parts in zip(*(leg[name] for leg in legs))] for name in legs[0]
        }


SETTINGS = "eager, one thread, float64; forward without recording"


def version() -> str:
    return f"torch {torch.__version__}"


def prepare(request: dict[str, Any], steps: int) -> tuple[Callable[[], Any], Callable[[], Any]]:
    """Of so many steps: a call that returns q and v at the end, and one that returns the gradients of |q|² + |v|²."""
    torch.set_num_threads(1)
    robot = quadruped.robot_of(Ops, request["robot"])
    q0, v0 = (torch.tensor(request[name], dtype=torch.float64).unsqueeze(-1) for name in ("q", "v"))
    controls = torch.tensor(request["controls"][:steps], dtype=torch.float64).unsqueeze(-1)

    def roll(q: Tensor, v: Tensor, inputs: Tensor) -> tuple[Tensor, Tensor]:
        impulses = torch.zeros(quadruped.FEET * quadruped.ROWS, 1, dtype=torch.float64)
        for control in inputs.unbind():
            q, v, impulses = quadruped.step(Ops, robot, request["dt"], request["sweeps"], q, v, impulses, control)
        return q, v

    def forward() -> tuple[list[float], list[float]]:
        with torch.no_grad():
            q, v = roll(q0, v0, controls)
        return q[:, 0].tolist(), v[:, 0].tolist()

    def gradient() -> tuple[Any, ...]:
        inputs = [x.clone().requires_grad_() for x in (q0, v0, controls)]
        q, v = roll(*inputs)
        bars = torch.autograd.grad(q.square().sum() + v.square().sum(), inputs)
        return tuple(bar[..., 0].tolist() for bar in bars)

    return forward, gradient
