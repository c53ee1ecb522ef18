"""The value recursion of iLQR: backwards in time, the cost still to come as a quadratic form of the state's change.

With y = (δu, δx), a step δx⁺ = F y, its cost ½ yᵀ H y + hᵀ y, and ½ δxᵀ V δx + vᵀ δx to come after it,

    Q = H + Fᵀ V⁺ F,  q = h + Fᵀ v⁺        δu = K δx + k minimises ½ yᵀ Q y + qᵀ y, within its bounds at δx = 0
    V = Qxx + Kᵀ Quu K + Kᵀ Qux + Quxᵀ K       v = qx + Kᵀ (Quu k + qu) + Quxᵀ k

Regularisation adds to the diagonals of V⁺ and Quu where K and k are found; V and v are then those of the true Q.

It is a kernel like those of the physics, whose lanes are environments: a step takes a microsecond where a dozen torch
operators on small matrices take a hundred.
"""

from __future__ import annotations

import functools
import os
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..compiler import Executable, Integer, Kernel, Rows, is_finite, loop, memory, run, select
from .boxqp import factor, inner, solve_box, substitute

THREAD_WORK = 200_000  # multiplications from which on another thread pays


@dataclass
class Policy:
    """δu = K δx + k: gains K [T, B, nu, d], feedforward k [T, B, nu].

    expected: [B], by how much the cost changes with it to second order. slope: [B], the part of that to first order.
    sound: [B], bool: the form was convex in all controls; else the policy is of no use.
    """

    gains: Tensor
    feedforward: Tensor
    expected: Tensor
    slope: Tensor
    sound: Tensor


def recursion(
    limited: bool, F: Any, H: Any, end: Any, low: Any, high: Any, regularization: Any, gains: Any, feedforward: Any,
    numbers: Any, steps: Any, d: Any, nu: Any,
) -> None:  # fmt: skip
    """Kernel; H and end have the gradients in their last column. numbers: expected, slope, sound (1 or 0)."""
    w = nu + d
    V, v, expected, slope, sound = memory(d * d), memory(d), memory(1), memory(1), memory(1)
    step, cost = memory(d * w), memory((w + 1) * (w + 1))
    VF, Q, q, Guu, G = memory(d * w), memory(w * w), memory(w), memory(nu * nu), memory(nu * w)
    L, k, K, held, M, m = memory(nu * nu), memory(nu), memory(nu * d), memory(nu), memory(nu * d), memory(nu)
    least, most = memory(nu), memory(nu)
    for i in loop(d):
        for j in loop(d):
            V[i * d + j] = end[i * (d + 1) + j]
        v[i] = end[i * (d + 1) + d]
    expected[0], slope[0], sound[0] = 0.0, 0.0, 1.0
    on_state, on_control = regularization[0], regularization[1]
    for t in loop(steps, reverse=True):
        for i in loop(d * w):
            step[i] = F.row(t)[i]
        for i in loop((w + 1) * (w + 1)):
            cost[i] = H.row(t)[i]
        for i in loop(d):
            for j in loop(w):
                VF[i * w + j] = inner(d, V.at(i * d), 1, step.at(j), w)
        for i in loop(w):
            q[i] = inner(d, step.at(i), w, v, 1, cost[i * (w + 1) + w])
            for j in loop(i + 1):
                entry = inner(d, step.at(i), w, VF.at(j), w, cost[i * (w + 1) + j])
                Q[i * w + j] = entry
                Q[j * w + i] = entry
        for i in loop(nu):
            for j in loop(w):
                G[i * w + j] = Q[i * w + j] + on_state * inner(d, step.at(i), w, step.at(j), w)
            G[i * w + i] = G[i * w + i] + on_control
            k[i], held[i] = -q[i], 0.0
            for j in loop(nu):
                Guu[i * nu + j] = G[i * w + j]
                L[i * nu + j] = G[i * w + j]
            if limited:
                least[i], most[i] = low.row(t)[i], high.row(t)[i]
        factor(nu, L, sound)
        substitute(nu, L, k, 1)
        if limited:
            solve_box(nu, Guu, q, least, most, k, held, L)
        for i in loop(nu):
            for j in loop(d):
                K[i * d + j] = select(held[i] > 0.0, 0.0, -G[i * w + nu + j])
        for j in loop(d):
            substitute(nu, L, K.at(j), d)
        for i in loop(nu):
            m[i] = inner(nu, Q.at(i * w), 1, k, 1, q[i])
            slope[0] = slope[0] + k[i] * q[i]
            expected[0] = expected[0] + 0.5 * k[i] * (m[i] + q[i])
            for j in loop(d):
                M[i * d + j] = inner(nu, Q.at(i * w), 1, K.at(j), d, Q[i * w + nu + j])
        for i in loop(d):
            v[i] = inner(nu, Q.at(nu + i), w, k, 1, inner(nu, K.at(i), d, m, 1, q[nu + i]))
            for j in loop(i + 1):
                entry = inner(nu, K.at(i), d, M.at(j), d, Q[(nu + i) * w + nu + j])
                entry = inner(nu, Q.at(nu + i), w, K.at(j), d, entry)
                V[i * d + j] = entry
                V[j * d + i] = entry
        for i in loop(nu * d):
            gains.row(t)[i] = K[i]
        for i in loop(nu):
            feedforward.row(t)[i] = k[i]
    numbers[0], numbers[1] = expected[0], slope[0]
    numbers[2] = select(is_finite(expected[0]), sound[0], 0.0)


@functools.cache
def _executable(limited: bool, bits: int) -> Executable:
    reads, writes = ["F", "H", "end", "low", "high", "regularization"], ["gains", "feedforward", "numbers"]
    rows = [Rows(name) for name in reads] + [Rows(name, writable=True) for name in writes]
    integers = [Integer(name) for name in ("steps", "d", "nu")]
    body = functools.partial(recursion, limited)
    return Kernel("riccati", [*rows, *integers], body, unroll=False, key=f"limited={limited}").build(bits)


def backward(
    F: Tensor, H: Tensor, end: Tensor, low: Tensor | None, high: Tensor | None, regularization: Tensor
) -> Policy:
    """The best policy for steps F [T, B, d, w], costs H [T, B, w + 1, w + 1] and end [B, d + 1, d + 1]; w = nu + d.

    low, high: [T, B, nu], bounds of δu; None: there are none. regularization: [B, 2], on the state and on the control.
    """
    steps, batch, d, w = F.shape
    nu = w - d
    gains, feedforward = F.new_empty(steps, batch, nu * d), F.new_empty(steps, batch, nu)
    numbers = F.new_empty(batch, 3)
    limited = low is not None and high is not None
    bounds = {"low": low, "high": high} if limited else dict.fromkeys(("low", "high"), feedforward)
    rows: dict[str, Any] = {
        "F": F.flatten(-2), "H": H.flatten(-2), "end": end.flatten(-2), **bounds,
        "regularization": regularization, "gains": gains, "feedforward": feedforward, "numbers": numbers,
    }  # fmt: skip
    rows = {name: x.contiguous() for name, x in rows.items()}
    values: dict[str, Any] = {"steps": steps, "d": d, "nu": nu}
    for name, x in rows.items():
        values[name] = (x.data_ptr(), x.stride(-2), x.stride(0) if x.ndim == 3 else 0)
    threads = min(os.cpu_count() or 1, 1 + steps * batch * w**3 // THREAD_WORK)
    run(_executable(limited, 64 if F.dtype == torch.float64 else 32), batch, threads, values)
    expected, slope, sound = numbers.unbind(-1)
    return Policy(gains.unflatten(-1, (nu, d)), feedforward, expected, slope, sound > 0.5)
