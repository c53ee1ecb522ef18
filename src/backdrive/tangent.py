"""The tangent space of states: displacements in the coordinates of v, where quaternions have three.

A displacement δ moves q to q ⊕ δ as ``v dt`` does; for a quaternion, q ⊕ δ ≈ q + ½ q (0, δ).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from .model import Model, State
from .model.layout import NV, Kind

if TYPE_CHECKING:
    from .simulator import Simulator


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
        out = covector.new_zeros(*covector.shape[:-1], self.nq)
        out[..., self.plain_q] = covector[..., self.plain_v]
        for a, b in self.quaternions:
            basis = _quaternion_basis(q[..., a : a + 4])
            out[..., a : a + 4] = 2.0 * (basis * covector[..., b : b + 3, None]).sum(-2)
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
    """q i, q j, q k of the unit quaternions along q: [..., 3, 4]."""
    w, x, y, z = (q / torch.linalg.vector_norm(q, dim=-1, keepdim=True)).unbind(-1)
    rows = [torch.stack(row, -1) for row in ((-x, w, z, -y), (-y, -z, w, x), (-z, y, -x, w))]
    return torch.stack(rows, -2)


def step_jacobians(
    simulator: Simulator, state: State, control: Tensor | None, parameters: Mapping[str, Tensor] | None
) -> tuple[Tensor, Tensor]:
    """See `Simulator.linearize`: a backward pass for each of the 2 nv outcomes, all in one batch."""
    model = simulator.model
    unbatched = state.q.ndim == 1
    q, v = (x.detach().reshape(-1, x.shape[-1]) for x in state)
    batch, n = len(q), 2 * model.nv
    if control is None:
        control = q.new_zeros(batch, model.nu)
    u = control.detach().expand(batch, model.nu)
    if parameters is not None:
        parameters = {
            name: x.detach().repeat_interleave(n, 0) if x.ndim > len(model.parameters()[name].shape) else x.detach()
            for name, x in parameters.items()
        }
    q, v, u = (x.repeat_interleave(n, 0).requires_grad_() for x in (q, v, u))
    with torch.enable_grad():
        after = simulator.step(State(q, v), u, parameters=parameters)
    seeds = torch.eye(n, dtype=q.dtype, device=q.device).repeat(batch, 1)
    tangent = Tangent(model)
    outcome = [tangent.lift(after.q.detach(), seeds[:, : model.nv]), seeds[:, model.nv :]]
    q_bar, v_bar, u_bar = torch.autograd.grad([after.q, after.v], [q, v, u], outcome)
    A = torch.cat([tangent.project(q.detach(), q_bar), v_bar], -1).unflatten(0, (batch, n))
    B = u_bar.unflatten(0, (batch, n))
    return (A[0], B[0]) if unbatched else (A, B)
