"""The value recursion of iLQR: backwards in time, the cost-to-go as a quadratic form of the change of state.

With y = (δu, δx), a step δx⁺ = F y, its cost ½ yᵀ H y + hᵀ y, and the cost-to-go ½ δxᵀ V δx + vᵀ δx,

    Q = H + Fᵀ V⁺ F,  q = h + Fᵀ v⁺        δu = K δx + k minimises ½ yᵀ Q y + qᵀ y, within its bounds at δx = 0
    V = Qxx + Kᵀ Quu K + Kᵀ Qux + Quxᵀ K       v = qx + Kᵀ (Quu k + qu) + Quxᵀ k

Regularisation adds to the diagonals of V⁺ and Quu for finding K and k; V and v are computed with the true Q.

The recursion is a kernel like those of the physics, whose lanes are environments: a step takes a microsecond, where a
dozen torch operators on small matrices take a hundred.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from ..backends import Executable, Integer, Kernel, Rows, available_cores, run
from ..ir import Index, ScalarArray, TimedArray, interruptible, is_finite, loop, memory, select
from .boxqp import factor, inner, solve_box, substitute

Array = np.ndarray

THREAD_WORK = 200_000  # Multiplications per thread below which another thread does not pay.


@dataclass
class Policy:
    """δu = K δx + k: gains K [T, B, nu, d], feedforward k [T, B, nu].

    expected: [B], the predicted change of the cost, to second order. slope: [B], its first-order part.
    sound: [B], bool: every Quu was positive definite; otherwise the policy is meaningless.
    """

    gains: Array
    feedforward: Array
    expected: Array
    slope: Array
    sound: Array

    def of(self, which: Array) -> Policy:
        """The policies of some environments; which: bool [B]."""
        if which.all():
            return self
        return Policy(
            self.gains[:, which], self.feedforward[:, which], self.expected[which], self.slope[which], self.sound[which]
        )


class RecursionArrays(NamedTuple):
    """The arguments of the kernel, for one environment; matrices row by row, w = nu + d.

    H, end: with the gradients in their last row and column. summary [3]: expected, slope, sound (1 or 0) of `Policy`.
    """

    F: TimedArray
    H: TimedArray
    end: ScalarArray
    low: TimedArray
    high: TimedArray
    regularization: ScalarArray
    gains: TimedArray
    feedforward: TimedArray
    summary: ScalarArray


def recursion(limited: bool, arrays: RecursionArrays, steps: Index, d: Index, nu: Index) -> None:
    """Kernel: the value recursion over all steps, backwards. limited: the controls have bounds."""
    F, H, end, low, high, regularization, gains, feedforward, summary = arrays
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
    for t in interruptible(loop(steps, reverse=True)):
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
    summary[0], summary[1] = expected[0], slope[0]
    summary[2] = select(is_finite(expected[0]), sound[0], 0.0)


@functools.cache
def _executable(limited: bool, bits: int) -> Executable:
    reads, writes = ["F", "H", "end", "low", "high", "regularization"], ["gains", "feedforward", "summary"]
    rows = [Rows(name) for name in reads] + [Rows(name, writable=True) for name in writes]
    integers = [Integer(name) for name in ("steps", "d", "nu")]

    def body(steps: Index, d: Index, nu: Index, **arrays: Any) -> None:
        recursion(limited, RecursionArrays(**arrays), steps, d, nu)

    return Kernel("riccati", [*rows, *integers], body, unroll=False, key=f"limited={limited}").build(bits)


def backward(F: Array, H: Array, end: Array, low: Array | None, high: Array | None, regularization: Array) -> Policy:
    """The optimal policy for steps F [T, B, d, w], costs H [T, B, w + 1, w + 1] and end [B, d + 1, d + 1]; w = nu + d.

    low, high: [T, B, nu], bounds of δu, or None. regularization: [B, 2], of the state and of the control.
    """
    steps, batch, d, w = F.shape
    nu, dtype = w - d, F.dtype
    gains, feedforward = np.empty((steps, batch, nu, d), dtype), np.empty((steps, batch, nu), dtype)
    summary = np.empty((batch, 3), dtype)
    limited = low is not None and high is not None
    bounds = {"low": low, "high": high} if limited else dict.fromkeys(("low", "high"), feedforward)
    over_time = {"F": F, "H": H, **bounds, "gains": gains, "feedforward": feedforward}
    once = {"end": end, "regularization": regularization, "summary": summary}
    values: dict[str, Any] = {"steps": steps, "d": d, "nu": nu}
    in_use = []  # Keeps copies alive until the kernel has run.
    for name, x in (*over_time.items(), *once.items()):
        x = np.ascontiguousarray(x, dtype)
        in_use.append(x)
        size = x.size // batch if name in once else x.size // (batch * steps)
        values[name] = (x.ctypes.data, size, 0 if name in once else batch * size)
    threads = min(available_cores(), 1 + steps * batch * w**3 // THREAD_WORK)
    run(_executable(limited, 8 * dtype.itemsize), batch, threads, values)
    return Policy(gains, feedforward, summary[:, 0], summary[:, 1], summary[:, 2] > 0.5)
