"""Gradients of motions with contact against central differences, away from where contacts change.

A motion with contact is smooth piece by piece. Differences of two step sizes that disagree, or second differences that
do not fall with the square of the step, show an edge of a piece nearby, or that rounding hides the slope: such
components are left out, and counted; likewise samples for which the solver does not converge. An edge may hide from
both: so a gradient is wrong only if it also disagrees with differences of another size (`OTHER`).
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from differences import weights
from torch import Tensor

import backdrive as bd
from backdrive.differences import extrapolate, slopes

Inputs = dict[str, Tensor]  # [S, ...]: S samples

OFFSETS = torch.tensor([0.0, 0.5, -0.5, 1.0, -1.0, 2.0, -2.0], dtype=torch.float64)
STEP = 2e-4  # of a component, relative to it (or to a tenth of the largest)
OTHER = 0.5  # of the step: a component that disagrees is compared again with differences of this size
RELATIVE = 1e-6  # allowed error of a component,
FLOOR = 1e-8  # of the largest component of an input,
ROUNDING = 1e-14  # and of the loss, over the step


@dataclass
class Tally:
    """How many components there were, how many could be compared, and the largest gradient of each input."""

    total: int = 0
    counted: int = 0
    worst: float = 0.0  # error, of what is allowed
    largest: dict[str, float] = field(default_factory=dict)

    def require(self, *names: str, least: float = 0.5) -> None:
        """At least so many components counted, and these inputs had an influence (without names: all)."""
        assert self.counted >= least * self.total, f"only {self.counted} of {self.total} components are smooth"
        without = [name for name in names or self.largest if not self.largest[name] > 0.0]
        assert not without, f"no gradient to compare: {without}"


def motion_loss(
    sim: bd.Simulator, inputs: Inputs, steps: int, adjoint=None, forces: tuple[str, ...] | None = None
) -> tuple[Tensor, Tensor]:
    """A random linear function of all states of a rollout, [S], and the contacts at every step, [S, T]; -1 where the
    solver did not converge. Or of its forces, if `forces` names the joints and constraints whose forces count besides
    those of contacts (and the points where these act).

    inputs: q, v, and controls [S, T, nu], wrenches [S, T, nbody, k] if they are given; all else are parameters.
    """
    x = dict(inputs)
    state = bd.State(x.pop("q"), x.pop("v"))
    over_time = {name: x.pop(name).transpose(0, 1) for name in ("controls", "wrenches") if name in x}
    path = sim.rollout(state, steps=steps, parameters=x or None, adjoint=adjoint, **over_time)
    of_q, of_v = weights(steps + 1, sim.model.nq, seed=1), weights(steps + 1, sim.model.nv, seed=2)
    kept = path.steps
    loss = (path.q * of_q[kept, None]).sum((0, 2)) + (path.v * of_v[kept, None]).sum((0, 2))
    if forces is not None:
        found = path.contacts
        outputs = [found.force.flatten(2), found.point.flatten(2), *(found.of(name) for name in forces)]
        loss = sum((x * weights(steps, 1, x.shape[2], seed=3 + k)).sum((0, 2)) for k, x in enumerate(outputs))
    return loss, torch.where(path.status.converged, path.status.contacts, -1).T


def gradients(
    sim: bd.Simulator, inputs: Inputs, steps: int, adjoint=None, forces: tuple[str, ...] | None = None
) -> Inputs:
    leaves = {name: x.detach().clone().requires_grad_() for name, x in inputs.items()}
    loss, _ = motion_loss(sim, leaves, steps, adjoint, forces)
    found = torch.autograd.grad(loss.sum(), list(leaves.values()), allow_unused=True)
    return {name: torch.zeros_like(x) if g is None else g for (name, x), g in zip(leaves.items(), found)}


def check_gradients(
    sim: bd.Simulator, inputs: Inputs, steps: int, tally: Tally | None = None, step: float = STEP,
    forces: tuple[str, ...] | None = None,
) -> Tally:  # fmt: skip
    """Compare the gradients of `motion_loss` of all samples with differences."""
    tally = Tally() if tally is None else tally
    mine = gradients(sim, inputs, steps, forces=forces)
    samples = len(inputs["q"])
    for name, x in inputs.items():
        if not x.numel():
            continue
        right, allowed, smooth = _differences(sim, inputs, name, steps, step, forces)
        found = mine[name].reshape(samples, -1)
        assert not smooth.any() or torch.isfinite(found[smooth]).all(), f"{name}: the gradient is not finite"
        error = (found - right).abs() / allowed
        tally.total += x.numel()
        tally.counted += int(smooth.sum())
        if smooth.any():
            tally.largest[name] = max(tally.largest.get(name, 0.0), right[smooth].abs().max().item())
            tally.worst = max(tally.worst, error[smooth].max().item())
        else:
            tally.largest.setdefault(name, 0.0)
        wrong = smooth & (error > 1.0)
        if wrong.any():
            again, allowed, smooth = _differences(sim, inputs, name, steps, OTHER * step, forces)
            wrong &= smooth & ((found - again).abs() > allowed)
        if wrong.any():
            s, k = wrong.nonzero()[0].tolist()
            raise AssertionError(
                f"{name}: sample {s}, component {k}: {found[s, k]:.12g} instead of {right[s, k]:.12g} "
                f"({int(wrong.sum())} of {x.numel()} components are wrong)"
            )
    return tally


def _differences(
    sim: bd.Simulator, inputs: Inputs, name: str, steps: int, step: float, forces: tuple[str, ...] | None
) -> tuple[Tensor, Tensor, Tensor]:
    """Derivatives with respect to the components of an input, their allowed errors, and whether all is smooth there:
    [S, n] each."""
    samples = len(inputs["q"])
    flat = inputs[name].detach().reshape(samples, -1)
    n, count = flat.shape[1], len(OFFSETS)
    largest = flat.abs().amax(1, keepdim=True)
    largest = torch.where(largest > 0.0, largest, 1.0)
    h = step * torch.maximum(flat.abs(), 0.1 * largest)  # [S, n]
    moved = flat[:, None, None] + OFFSETS[:, None] * torch.diag_embed(h)[:, :, None]  # [S, n, offsets, n]
    everything = {
        key: (
            moved.reshape(-1, *x.shape[1:])
            if key == name
            else x.detach().repeat_interleave(n * count, 0)
        )
        for key, x in inputs.items()
    }  # fmt: skip
    loss, contacts = motion_loss(sim, everything, steps, forces=forces)
    loss, contacts = loss.reshape(samples, n, count), contacts.reshape(samples, n, count, -1)
    f0, f_half, b_half, f1, b1, f2, b2 = loss.unbind(-1)
    coarse = extrapolate(slopes((f1, b1, f2, b2), h))
    fine = extrapolate(slopes((f_half, b_half, f1, b1), 0.5 * h))
    curve_half, curve, curve_double = (
        y / h for y in (f_half - 2.0 * f0 + b_half, f1 - 2.0 * f0 + b1, f2 - 2.0 * f0 + b2)
    )
    scale = fine.abs().amax(1, keepdim=True)
    rounding = ROUNDING * loss.abs().amax(-1) / h
    allowed = RELATIVE * fine.abs() + FLOOR * scale + rounding + 1e-300
    smooth = ((contacts == contacts[:, :, :1]) & (contacts >= 0)).all(-1).all(-1)
    smooth &= (coarse - fine).abs() <= 0.1 * allowed
    # A kink at the very point gives both differences the mean of its slopes, and noise may give both the same error;
    # but then second differences do not grow with the square of the step.
    smooth &= (curve - 4.0 * curve_half).abs() <= allowed
    smooth &= (curve_double - 4.0 * curve).abs() <= allowed
    return fine, allowed, smooth
