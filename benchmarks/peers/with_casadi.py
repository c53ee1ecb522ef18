"""CasADi on `quadruped`: a graph of scalars for one step, a map that accumulates it, and its reverse mode."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import casadi as ca
import numpy as np

from . import quadruped

STATE = 19 + 18 + quadruped.FEET * quadruped.ROWS  # q, v and impulses


class Ops:
    """Of scalar graphs in matrices; the legs are a list."""

    sin, cos, sqrt, maximum, minimum = ca.sin, ca.cos, ca.sqrt, ca.fmax, ca.fmin
    eye = ca.SX.eye

    @staticmethod
    def solve(A: ca.SX, B: ca.SX) -> ca.SX:
        """By Cholesky factors, as all matrices here are positive definite."""
        L = ca.chol(A).T
        n = A.shape[0]
        rows: list[Any] = []
        for i in range(n):
            rows.append((B[i, :] - sum((L[i, k] * rows[k] for k in range(i)), 0 * B[i, :])) / L[i, i])
        for i in reversed(range(n)):
            rows[i] = (rows[i] - sum((L[k, i] * rows[k] for k in range(i + 1, n)), 0 * B[i, :])) / L[i, i]
        return ca.vertcat(*rows)

    @staticmethod
    def entry(x: ca.SX, i: int, j: int = 0, keep: bool = False) -> ca.SX:
        return x[i, j]

    @staticmethod
    def rows(x: ca.SX, start: int, end: int) -> ca.SX:
        return x[start:end, :]

    @staticmethod
    def columns(x: ca.SX, start: int, end: int) -> ca.SX:
        return x[:, start:end]

    @staticmethod
    def T(x: ca.SX) -> ca.SX:
        return x.T

    @staticmethod
    def matrix(rows: Sequence[Sequence[ca.SX]]) -> ca.SX:
        return ca.vertcat(*(ca.horzcat(*row) for row in rows))

    block = matrix

    @staticmethod
    def legs(function: Callable[..., Any], *lists: Any) -> list[Any]:
        return [function(*each) for each in zip(*lists)]

    @staticmethod
    def split(x: ca.SX) -> list[ca.SX]:
        return ca.vertsplit(x, x.shape[0] // quadruped.FEET)

    @staticmethod
    def under(parts: Sequence[ca.SX]) -> ca.SX:
        return ca.vertcat(*parts)

    @staticmethod
    def beside(parts: Sequence[ca.SX]) -> ca.SX:
        return ca.horzcat(*parts)

    @staticmethod
    def total(parts: Sequence[ca.SX]) -> ca.SX:
        return sum(parts[1:], parts[0])

    @staticmethod
    def diagonal(parts: Sequence[ca.SX]) -> ca.SX:
        return ca.diagcat(*parts)

    spread = ca.diag

    @staticmethod
    def where_negative(x: ca.SX) -> ca.SX:
        return ca.if_else(x < 0, 1.0, 0.0)

    @staticmethod
    def repeat(count: int, function: Callable[..., Any], x: tuple[ca.SX, ...]) -> tuple[ca.SX, ...]:
        for _ in range(count):
            x = function(*x)
        return x

    @staticmethod
    def constant(x: np.ndarray) -> ca.DM:
        return ca.DM(x)

    @staticmethod
    def gather(legs: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        return [{name: [ca.DM(part) for part in parts] for name, parts in leg.items()} for leg in legs]


SETTINGS = "SX function of a step, interpreted; mapaccum over the steps, reverse mode"


def version() -> str:
    return f"casadi {ca.__version__}"


def step_function(request: dict[str, Any], **options: Any) -> ca.Function:
    """(x, u) to x⁺, x: q, v and impulses in a column."""
    robot = quadruped.robot_of(Ops, request["robot"])
    x, u = ca.SX.sym("x", STATE), ca.SX.sym("u", 12)
    after = quadruped.step(Ops, robot, request["dt"], request["sweeps"], x[:19], x[19:37], x[37:], u)
    return ca.Function("one_step", [x, u], [ca.vertcat(*after)], ["x", "u"], ["after"], options)


def prepare(request: dict[str, Any], steps: int) -> tuple[Callable[[], Any], Callable[[], Any]]:
    """As `with_torch.prepare`."""
    roll = step_function(request).mapaccum("roll", steps)
    start = np.concatenate([request["q"], request["v"], np.zeros(STATE - 37)])
    controls = np.array(request["controls"][:steps]).T
    inputs = ca.MX.sym("inputs", STATE + 12 * steps)
    last = roll(inputs[:STATE], ca.reshape(inputs[STATE:], 12, steps))[:37, -1]
    bars = ca.Function("bars", [inputs], [ca.gradient(ca.sumsqr(last), inputs)])
    flat = np.concatenate([start, controls.T.ravel()])

    def forward() -> tuple[Any, Any]:
        end = np.array(roll(start, controls)[:, -1]).ravel()
        return end[:19], end[19:37]

    def gradient() -> tuple[Any, ...]:
        bar = np.array(bars(flat)).ravel()
        return bar[:19], bar[19:37], bar[STATE:].reshape(steps, 12)

    return forward, gradient
