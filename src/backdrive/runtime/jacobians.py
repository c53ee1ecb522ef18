"""The Jacobians of a step in the tangent space: see `Simulator.linearize`."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from ..schema.signatures import JACOBIANS, ONE_STEP, ROLLOUT
from ..schema.state import NAMES, state_names
from . import autograd, execute
from .program import Program
from .request import Request
from .residuals import zeros
from .tangent import Tangent, conjugate, logarithm, normalised, product


class StepPoint(NamedTuple):
    """Where a step is linearised: states and controls [B, n], constants [nconst] or [B, nconst] (None: the model's).
    solution [B, n]: what the solver of the step found, None if adjoints do not start from it."""

    program: Program
    tangent: Tangent
    state: tuple[Tensor, ...]
    controls: Tensor
    constants: Tensor | None
    parameters: str  # names of those in the constants, separated by commas
    solution: Tensor | None = None


def step_jacobians(at: StepPoint, q_next: Tensor) -> tuple[Tensor, Tensor]:
    """A [B, 2 nv, 2 nv] and B [B, 2 nv, nu] by a backward pass for each of the 2 nv outcomes, all in one batch.

    For steps that have no kernel of their own for it (`euler_jacobians`). q_next: [B, nq] after the step.
    """
    tangent, (q, v) = at.tangent, at.state
    batch, nv = v.shape
    n = 2 * nv
    if n == 0:
        return q.new_zeros(batch, 0, 0), q.new_zeros(batch, 0, at.controls.shape[-1])
    q, v, controls, q_next = (_each(x, n) for x in (q, v, at.controls, q_next))
    seeds = torch.eye(n, dtype=q.dtype).expand(batch, n, n).flatten(0, 1)
    last_bars = (tangent.lift(q_next, seeds[:, :nv]), seeds[:, nv:])
    tensors = {name: x.unsqueeze(0) for name, x in zip((*state_names("path_"), "controls"), (q, v, controls))}
    tensors |= {name: zeros((1, *x.shape), x.dtype) for name, x in zip(state_names("path_", "_bar"), (q, v))}
    tensors |= dict(zip(state_names("last_", "_bar"), last_bars))
    if at.constants is not None:
        tensors["constants"] = at.constants if at.constants.ndim == 1 else _each(at.constants, n)
    if at.solution is not None:
        tensors["solution"] = _each(at.solution, n).unsqueeze(0)
    request = Request(at.program, ROLLOUT, tuple(tensors), at.parameters, ONE_STEP)
    found = autograd.vjp(request, tensors)
    A = torch.cat([tangent.project(q, found["q_bar"]), found["v_bar"]], -1)
    return A.unflatten(0, (batch, n)), found["controls_bar"].squeeze(0).unflatten(0, (batch, n))


def _each(x: Tensor, n: int) -> Tensor:
    """Every row n times, [B n, k] of [B, k]"""
    return x.unsqueeze(-2).expand(*x.shape[:-1], n, x.shape[-1]).flatten(-3, -2)


def euler_jacobians(at: StepPoint, q_next: Tensor) -> tuple[Tensor, Tensor]:
    """As `step_jacobians`, of plain semi-implicit Euler steps, by the kernel `jacobians`."""
    tangent, (q, v) = at.tangent, at.state
    nv = tangent.nv
    tensors = dict(zip(NAMES, at.state)) | {"controls": at.controls}
    if at.constants is not None:
        tensors["constants"] = at.constants
    if at.solution is not None:
        tensors["solution"] = at.solution
    J = execute.jacobians(Request(at.program, JACOBIANS, tuple(tensors), at.parameters), tensors)
    on_q = torch.ones_like(v)
    for a, b in tangent.quaternions:  # q⁺ = q ⊕ step: a step turns all that came before it
        rows = slice(b, b + 3)
        turn = logarithm(product(conjugate(normalised(q[:, a : a + 4])), q_next[:, a : a + 4]))
        before, own = _turn_jacobians(turn)
        J[:, rows] = own @ J[:, rows]
        J[:, rows, rows] += before
        on_q[:, rows] = 0.0
    J.diagonal(dim1=-2, dim2=-1)[:, :nv].add_(on_q)
    return J[..., : 2 * nv], J[..., 2 * nv :]


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
