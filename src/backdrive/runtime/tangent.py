"""The tangent space of positions: displacements in the coordinates of v, of which a quaternion has three.

A displacement δ moves q to q ⊕ δ as ``v dt`` does; for a quaternion, q ⊕ δ ≈ q + ½ q (0, δ).
"""

from __future__ import annotations

import torch
from torch import Tensor

from ..model import Model
from ..schema.layout import Kind


class Tangent:
    """Which coordinates of a model's q and v correspond to each other."""

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
        self.segments: list[tuple[slice, slice, bool]] = []  # part of q, part of v, whether it is a quaternion
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
        """q ⊕ δ [..., nq], for δ [..., nv]; infinitely differentiable, also at δ = 0."""
        if not self.quaternions:
            return q + delta
        parts = []
        for at, by, turns in self.segments:
            if turns:
                parts.append(product(normalised(q[..., at]), _exponential(delta[..., by])))
            else:
                parts.append(q[..., at] + delta[..., by])
        return torch.cat(parts, -1)

    def difference(self, q: Tensor, origin: Tensor) -> Tensor:
        """δ [..., nv] with q = origin ⊕ δ, by the shorter of two rotations. Differentiable, also at δ = 0."""
        if not self.quaternions:
            return q - origin
        parts = []
        for at, _, turns in self.segments:
            if turns:
                parts.append(logarithm(product(conjugate(normalised(origin[..., at])), normalised(q[..., at]))))
            else:
                parts.append(q[..., at] - origin[..., at])
        return torch.cat(parts, -1)

    def lift(self, q: Tensor, covector: Tensor) -> Tensor:
        """The cotangent [..., nq] of q that corresponds to a cotangent [..., nv] of displacements of q."""
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
        """The cotangent [..., nv] of displacements of q that corresponds to a cotangent [..., nq] of q."""
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


def normalised(q: Tensor) -> Tensor:
    return q / q.square().sum(-1, keepdim=True).sqrt()


def conjugate(q: Tensor) -> Tensor:
    return torch.cat([q[..., :1], -q[..., 1:]], -1)


def product(a: Tensor, b: Tensor) -> Tensor:
    """The product of quaternions [..., 4]."""
    (aw, ax, ay, az), (bw, bx, by, bz) = a.unbind(-1), b.unbind(-1)
    parts = (
        aw * bw - ax * bx - ay * by - az * bz, aw * bx + ax * bw + ay * bz - az * by,
        aw * by + ay * bw + az * bx - ax * bz, aw * bz + az * bw + ax * by - ay * bx,
    )  # fmt: skip
    return torch.stack(parts, -1)


def _exponential(a: Tensor) -> Tensor:
    """The quaternion [..., 4] of a rotation vector [..., 3]; by the power series for small angles."""
    x = a.square().sum(-1, keepdim=True)
    small = x < 1e-3
    angle = torch.where(small, torch.ones_like(x), x).sqrt()  # no division by zero, also in the derivatives
    w = torch.where(small, 1 - x * (1 / 8 - x * (1 / 384 - x / 46080)), torch.cos(angle / 2))
    factor = torch.where(small, 0.5 - x * (1 / 48 - x * (1 / 3840 - x / 645120)), torch.sin(angle / 2) / angle)
    return torch.cat([w, factor * a], -1)


def logarithm(q: Tensor) -> Tensor:
    """The rotation vector [..., 3], of length at most π, of a unit quaternion [..., 4]."""
    q = torch.where(q[..., :1] < 0, -q, q)
    w, v = q[..., :1], q[..., 1:]
    x = v.square().sum(-1, keepdim=True)
    small = x < 1e-3
    length = torch.where(small, torch.ones_like(x), x).sqrt()
    ratio = torch.where(small, x / (w * w).clamp_min(0.5), torch.zeros_like(x))  # atan(r) / r = 1 - r²/3 + r⁴/5 ...
    series = 2 - ratio * (2 / 3 - ratio * (2 / 5 - ratio * (2 / 7 - ratio * (2 / 9 - ratio * (2 / 11)))))
    return torch.where(small, series / w.clamp_min(0.5), 2 * torch.atan2(length, w) / length) * v
