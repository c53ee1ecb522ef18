"""The tangent space of states: displacements in the coordinates of v, where quaternions have three.

A displacement δ moves q to q ⊕ δ as ``v dt`` does; for a quaternion, q ⊕ δ ≈ q + ½ q (0, δ).
"""

from __future__ import annotations

import torch
from torch import Tensor

from . import operators
from .model import Model
from .model.layout import NV, Kind


class Tangent:
    """Where the coordinates of a model's q and v correspond."""

    def __init__(self, model: Model) -> None:
        plain_q: list[int] = []
        plain_v: list[int] = []
        quaternions: list[tuple[int, int]] = []
        for kind, a, b in zip(model.kind.tolist(), model.qadr.tolist(), model.vadr.tolist(), strict=True):
            plain = {Kind.BALL: 0, Kind.FREE: 3}.get(kind, NV[kind])
            plain_q += range(a, a + plain)
            plain_v += range(b, b + plain)
            if kind in (Kind.BALL, Kind.FREE):
                quaternions.append((a + plain, b + plain))
        self.nq, self.nv = model.nq, model.nv
        self.plain_q, self.plain_v, self.quaternions = plain_q, plain_v, quaternions

    def lift(self, q: Tensor, covector: Tensor) -> Tensor:
        """The gradient [..., nq] with respect to q that a gradient [..., nv] with respect to displacements of q is."""
        out = q.new_zeros(*covector.shape[:-1], self.nq)
        out[..., self.plain_q] = covector[..., self.plain_v]
        for a, b in self.quaternions:
            basis = _quaternion_basis(q[..., a : a + 4])
            squared_length = q[..., a : a + 4].square().sum(-1, keepdim=True)
            out[..., a : a + 4] = 2.0 * (basis * covector[..., b : b + 3, None]).sum(-2) / squared_length
        return out

    def project(self, q: Tensor, gradient: Tensor) -> Tensor:
        """The gradient [..., nv] with respect to displacements of q, of one [..., nq] with respect to q."""
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


def step_jacobians(
    program: int, tangent: Tangent, q: Tensor, v: Tensor, controls: Tensor, after: Tensor, constants: Tensor | None,
    names: str,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """See `Simulator.linearize`: a backward pass for each of the 2 nv outcomes, all in one batch.

    q, v: [B, n] before the step, after: q after it; controls [1, B, nu]; constants and the names of the parameters in
    them: as `operators` has them.
    """
    batch, nv = v.shape
    n = 2 * nv
    if n == 0:
        return q.new_zeros(batch, 0, 0), q.new_zeros(batch, 0, controls.shape[-1])
    q, v, u, after = (x.repeat_interleave(n, -2) for x in (q, v, controls, after))
    if constants is not None and constants.ndim == 2:
        constants = constants.repeat_interleave(n, 0)
    seeds = torch.eye(n, dtype=q.dtype).repeat(batch, 1)
    nothing = [torch.zeros_like(x).unsqueeze(0) for x in (q, v)]  # the path has no gradient, its end has
    bars = [*nothing, tangent.lift(after, seeds[:, :nv]), seeds[:, nv:]]
    step = ("rollout", q.unsqueeze(0), v.unsqueeze(0), u, None, constants, program, names, [1, 1, 0, 0])
    q_bar, v_bar, u_bar = operators.pull_back(*step, False, *bars)
    A = torch.cat([tangent.project(q, q_bar), v_bar], -1)
    return A.unflatten(0, (batch, n)), u_bar.squeeze(0).unflatten(0, (batch, n))
