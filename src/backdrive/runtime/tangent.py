"""The tangent space of states: displacements in the coordinates of v, where quaternions have three.

A displacement δ moves q to q ⊕ δ as ``v dt`` does; for a quaternion, q ⊕ δ ≈ q + ½ q (0, δ).
"""

from __future__ import annotations

import torch
from torch import Tensor

from ..model import Model
from ..schema.layout import Kind
from . import autograd as operators
from . import execute as evaluation


class Tangent:
    """Where the coordinates of a model's q and v correspond."""

    def __init__(self, model: Model) -> None:
        plain_q: list[int] = []
        plain_v: list[int] = []
        quaternions: list[tuple[int, int]] = []
        for kind, a, b in zip(model.kind.tolist(), model.qadr.tolist(), model.vadr.tolist(), strict=True):
            quaternion = Kind(kind).coordinates.quaternion
            plain = Kind(kind).nv if quaternion is None else quaternion
            plain_q += range(a, a + plain)
            plain_v += range(b, b + plain)
            if quaternion is not None:
                quaternions.append((a + plain, b + plain))
        self.segments: list[tuple[slice, slice, bool]] = []  # in q and in v, and whether it is a quaternion
        turns = {a: (slice(a, a + 4), slice(b, b + 3), True) for a, b in quaternions}
        for a, b in sorted([*zip(plain_q, plain_v, strict=True), *quaternions]):
            if a in turns:
                self.segments.append(turns[a])
            elif self.segments and not self.segments[-1][2]:
                x, y, _ = self.segments[-1]
                self.segments[-1] = (slice(x.start, a + 1), slice(y.start, b + 1), False)
            else:
                self.segments.append((slice(a, a + 1), slice(b, b + 1), False))
        self.nq, self.nv = model.nq, model.nv
        self.plain_q, self.plain_v, self.quaternions = plain_q, plain_v, quaternions

    def displace(self, q: Tensor, delta: Tensor) -> Tensor:
        """q ⊕ δ [..., nq], for δ [..., nv]; differentiable as often as one likes, also at δ = 0."""
        if not self.quaternions:
            return q + delta
        parts = []
        for at, by, turns in self.segments:
            if turns:
                parts.append(_product(_normalised(q[..., at]), _exponential(delta[..., by])))
            else:
                parts.append(q[..., at] + delta[..., by])
        return torch.cat(parts, -1)

    def difference(self, q: Tensor, origin: Tensor) -> Tensor:
        """δ [..., nv] with q = origin ⊕ δ; rotations take the shorter way. Differentiable, also at δ = 0."""
        if not self.quaternions:
            return q - origin
        parts = []
        for at, _, turns in self.segments:
            if turns:
                parts.append(_logarithm(_product(_conjugate(_normalised(origin[..., at])), _normalised(q[..., at]))))
            else:
                parts.append(q[..., at] - origin[..., at])
        return torch.cat(parts, -1)

    def lift(self, q: Tensor, covector: Tensor) -> Tensor:
        """The gradient [..., nq] with respect to q that a gradient [..., nv] with respect to displacements of q is."""
        if not self.quaternions:
            return covector
        out = q.new_zeros(*covector.shape[:-1], self.nq)
        out[..., self.plain_q] = covector[..., self.plain_v]
        for a, b in self.quaternions:
            basis = _quaternion_basis(q[..., a : a + 4])
            squared_length = q[..., a : a + 4].square().sum(-1, keepdim=True)
            out[..., a : a + 4] = 2.0 * (basis * covector[..., b : b + 3, None]).sum(-2) / squared_length
        return out

    def project(self, q: Tensor, gradient: Tensor) -> Tensor:
        """The gradient [..., nv] with respect to displacements of q, of one [..., nq] with respect to q."""
        if not self.quaternions:
            return gradient
        out = gradient.new_zeros(*gradient.shape[:-1], self.nv)
        out[..., self.plain_v] = gradient[..., self.plain_q]
        for a, b in self.quaternions:
            basis = _quaternion_basis(q[..., a : a + 4])
            out[..., b : b + 3] = 0.5 * (basis * gradient[..., None, a : a + 4]).sum(-1)
        return out


def _quaternion_basis(q: Tensor) -> Tensor:
    """q i, q j, q k of quaternions q [..., 4] of any length: [..., 3, 4]."""
    w, x, y, z = q.unbind(-1)
    rows = [torch.stack(row, -1) for row in ((-x, w, z, -y), (-y, -z, w, x), (-z, y, -x, w))]
    return torch.stack(rows, -2)


def _normalised(q: Tensor) -> Tensor:
    return q / q.square().sum(-1, keepdim=True).sqrt()


def _conjugate(q: Tensor) -> Tensor:
    return torch.cat([q[..., :1], -q[..., 1:]], -1)


def _product(a: Tensor, b: Tensor) -> Tensor:
    """Of quaternions [..., 4]."""
    (aw, ax, ay, az), (bw, bx, by, bz) = a.unbind(-1), b.unbind(-1)
    parts = (
        aw * bw - ax * bx - ay * by - az * bz, aw * bx + ax * bw + ay * bz - az * by,
        aw * by + ay * bw + az * bx - ax * bz, aw * bz + az * bw + ax * by - ay * bx,
    )  # fmt: skip
    return torch.stack(parts, -1)


def _exponential(a: Tensor) -> Tensor:
    """The quaternion [..., 4] of a rotation vector [..., 3]; by its series where that is short."""
    x = a.square().sum(-1, keepdim=True)
    small = x < 1e-3
    angle = torch.where(small, torch.ones_like(x), x).sqrt()  # no division by zero, also in the derivatives
    w = torch.where(small, 1 - x * (1 / 8 - x * (1 / 384 - x / 46080)), torch.cos(angle / 2))
    factor = torch.where(small, 0.5 - x * (1 / 48 - x * (1 / 3840 - x / 645120)), torch.sin(angle / 2) / angle)
    return torch.cat([w, factor * a], -1)


def _logarithm(q: Tensor) -> Tensor:
    """The rotation vector [..., 3], of length at most π, of a unit quaternion [..., 4]."""
    q = torch.where(q[..., :1] < 0, -q, q)
    w, v = q[..., :1], q[..., 1:]
    x = v.square().sum(-1, keepdim=True)
    small = x < 1e-3
    length = torch.where(small, torch.ones_like(x), x).sqrt()
    ratio = torch.where(small, x / (w * w).clamp_min(0.5), torch.zeros_like(x))  # atan(r) / r = 1 - r²/3 + r⁴/5 ...
    series = 2 - ratio * (2 / 3 - ratio * (2 / 5 - ratio * (2 / 7 - ratio * (2 / 9 - ratio * (2 / 11)))))
    return torch.where(small, series / w.clamp_min(0.5), 2 * torch.atan2(length, w) / length) * v


def _turn_jacobians(a: Tensor) -> tuple[Tensor, Tensor]:
    """exp(-[a]), and ∫ exp(-s [a]) ds over s from 0 to 1, of rotation vectors [..., 3]: [..., 3, 3] each."""
    x, y, z = a.unbind(-1)
    zero = torch.zeros_like(x)
    cross = torch.stack([zero, -z, y, z, zero, -x, -y, x, zero], -1).unflatten(-1, (3, 3))
    s = a.square().sum(-1)[..., None, None]
    small = s < 1e-3
    angle = torch.where(small, torch.ones_like(s), s).sqrt()
    sine = torch.where(small, 1 - s * (1 / 6 - s * (1 / 120 - s / 5040)), torch.sin(angle) / angle)
    cosine = torch.where(small, 0.5 - s * (1 / 24 - s * (1 / 720 - s / 40320)), (1 - torch.cos(angle)) / angle**2)
    rest = (angle - torch.sin(angle)) / angle**3
    third = torch.where(small, 1 / 6 - s * (1 / 120 - s * (1 / 5040 - s / 362880)), rest)
    eye, square = torch.eye(3, dtype=a.dtype), cross @ cross
    return eye - sine * cross + cosine * square, eye - cosine * cross + third * square


def step_jacobians(
    program: int, tangent: Tangent, q: Tensor, v: Tensor, controls: Tensor, after: Tensor, constants: Tensor | None,
    names: str,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """See `Simulator.linearize`: a backward pass for each of the 2 nv outcomes, all in one batch.

    For steps that have no kernel of their own for it (`euler_jacobians`). q, v: [B, n] before the step, after: q after
    it; controls [1, B, nu]; constants and the names of the parameters in them: as `operators` has them.
    """
    batch, nv = v.shape
    n = 2 * nv
    if n == 0:
        return q.new_zeros(batch, 0, 0), q.new_zeros(batch, 0, controls.shape[-1])
    q, v, u, after = (_each(x, n) for x in (q, v, controls, after))
    if constants is not None and constants.ndim == 2:
        constants = _each(constants, n)
    seeds = torch.eye(n, dtype=q.dtype).expand(batch, n, n).flatten(0, 1)
    nothing = [torch.zeros(x.shape[-1], dtype=x.dtype).expand(1, *x.shape) for x in (q, v)]  # of the path; its end has
    bars = [*nothing, tangent.lift(after, seeds[:, :nv]), seeds[:, nv:], operators.unknown(v)]
    step = ("rollout", q.unsqueeze(0), v.unsqueeze(0), u, None, constants, program, names, [1, 1, 0, 0])
    q_bar, v_bar, u_bar = operators.pull_back(*step, False, *bars)
    A = torch.cat([tangent.project(q, q_bar), v_bar], -1)
    return A.unflatten(0, (batch, n)), u_bar.squeeze(0).unflatten(0, (batch, n))


def _each(x: Tensor, n: int) -> Tensor:
    """Every row n times, [..., B n, k] of [..., B, k]"""
    return x.unsqueeze(-2).expand(*x.shape[:-1], n, x.shape[-1]).flatten(-3, -2)


def euler_jacobians(
    program: int, tangent: Tangent, q: Tensor, v: Tensor, controls: Tensor, after: Tensor, constants: Tensor | None,
    names: str,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """As `step_jacobians`, of plain semi-implicit Euler steps, by the kernel `jacobian`."""
    nv = tangent.nv
    J = evaluation.jacobians(program, q, v, controls.squeeze(0), constants, names)
    on_q = torch.ones_like(v)
    for a, b in tangent.quaternions:  # q⁺ = q ⊕ step: a step turns what came before it
        rows = slice(b, b + 3)
        turn = _logarithm(_product(_conjugate(_normalised(q[:, a : a + 4])), after[:, a : a + 4]))
        before, own = _turn_jacobians(turn)
        J[:, rows] = own @ J[:, rows]
        J[:, rows, rows] += before
        on_q[:, rows] = 0.0
    J.diagonal(dim1=-2, dim2=-1)[:, :nv].add_(on_q)
    return J[..., : 2 * nv], J[..., 2 * nv :]
