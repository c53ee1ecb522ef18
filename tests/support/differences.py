"""Gradients by central differences of sixth order: all components of all inputs at once, one per environment of a
batch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import torch
from hypothesis import assume, currently_in_test_context
from models import quaternions
from torch import Tensor

from backdrive import Model, Trajectory
from backdrive.differences import along, extrapolate, least_error, offsets, slopes

Inputs = dict[str, Tensor]

OFFSETS = offsets(6)
STEP = 5e-3  # of a component, relative to it (or to a tenth of the largest)

RELATIVE = 1e-6  # of a component,
FLOOR = 1e-9  # or of the largest component: differences have no more digits
ROUNDING = 2e-11  # or of the loss, over that component: what rounding leaves of a gradient that is zero


def central_differences(loss: Callable[[Inputs], Tensor], inputs: Inputs) -> tuple[Inputs, Tensor]:
    """The gradient of loss(inputs), and the loss. `loss` is given inputs [E, ...] and returns E losses."""
    flat = {name: x.detach().flatten() for name, x in inputs.items()}
    steps = {name: _steps(x) for name, x in flat.items()}
    count = sum(x.numel() for x in flat.values()) * len(OFFSETS)
    moved, row = {}, 1  # environment 0 is not moved
    moves = torch.tensor(OFFSETS, dtype=torch.float64)
    for name, x in flat.items():
        everything = x.repeat(count + 1, 1)
        rows = row + torch.arange(x.numel() * len(OFFSETS)).reshape(x.numel(), len(OFFSETS))
        everything[rows, torch.arange(x.numel())[:, None]] += moves * steps[name][:, None]
        moved[name] = everything.reshape(count + 1, *inputs[name].shape)
        row += rows.numel()
    value, losses = loss(moved).split([1, count])
    gradient = extrapolate(slopes(losses.reshape(-1, len(OFFSETS)).unbind(-1), torch.cat(list(steps.values()))))
    parts = gradient.split([x.numel() for x in flat.values()])
    return {name: part.reshape(inputs[name].shape) for name, part in zip(flat, parts)}, value[0]


def _steps(x: Tensor) -> Tensor:
    if not x.numel():
        return x
    largest = x.abs().max().item() or 1.0
    return STEP * x.abs().clamp(min=0.1 * largest)


def compare(gradient: Inputs, reference: Inputs, value: Tensor, inputs: Inputs) -> float:
    """The worst error, in units of what is allowed (RELATIVE of a component); an AssertionError names it."""
    worst = 0.0
    assert gradient.keys() == reference.keys()
    for name, right in reference.items():
        mine = gradient[name]
        assert mine is not None, f"no gradient with respect to {name}"
        assert mine.shape == right.shape
        assert torch.isfinite(mine).all(), f"{name}: not finite"
        if not mine.numel():
            continue
        size = inputs[name].abs().max().clamp(min=1e-3)
        allowed = RELATIVE * right.abs() + FLOOR * right.abs().max() + ROUNDING * value.abs() / size + 1e-300
        error = ((mine - right).abs() / allowed).max().item()
        assert error <= 1.0, f"{name}: {mine} instead of {right}"
        worst = max(worst, error)
    return worst


def check_gradient(loss: Callable[[Inputs], Tensor], inputs: Inputs) -> None:
    """The gradient of one environment, by autograd, is that of central differences."""
    reference, value = central_differences(loss, inputs)
    compare(autograd(loss, inputs), reference, value, inputs)


def autograd(loss: Callable[[Inputs], Tensor], inputs: Inputs) -> Inputs:
    """By backward through a batch of three environments of which the other two are moved a little."""
    batch = {name: torch.stack([x * 1.001, x, x * 0.999]).detach().requires_grad_() for name, x in inputs.items()}
    losses = loss(batch)
    assert losses.shape == (3,)
    gradients = torch.autograd.grad(losses.sum(), list(batch.values()), allow_unused=True)
    return {name: g[1] if g is not None else torch.zeros_like(inputs[name]) for name, g in zip(batch, gradients)}


def require_derivative(
    gradient: Tensor, loss: Callable[[Tensor], float], x: Tensor, directions: Sequence[Tensor], tolerance: float,
    name: str,
) -> None:  # fmt: skip
    """The derivative by a gradient, in one of some random directions, is that of central differences of one of several
    steps.

    A wrong gradient is wrong in all random directions; but in one of them, a switch of contacts may be very near.
    """
    least, steps = max(0.1 * float(gradient.norm()), 1e-3), (1e-5, 1e-6, 1e-7, 3e-8, 1e-8, 1e-9, 3e-5, 3e-6, 3e-7, 1e-4)
    errors = []
    for direction in directions:
        exact, slope = float((gradient * direction).sum()), partial(along, loss, x, direction)
        errors.append(least_error(exact, slope, steps, least, enough=tolerance))
        if errors[-1] < tolerance:
            return
    raise AssertionError(f"{name}: the gradient is off by {errors} in these directions")


def weights(*shape: int, seed: int = 0) -> Tensor:
    """Random weights of outputs, so that none is without influence."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def require_smooth(model: Model, path: Trajectory) -> None:
    """Leave out examples where a difference steps over a kink: the limit of a motor, or half a turn of a spring."""
    clipped, rest = path.status.clipped, model.parameter("reference") if model.nq else None
    smooth = bool((clipped == clipped[:, :1]).all())
    for a in quaternions(model):
        x = torch.nn.functional.normalize(path.q[..., a : a + 4], dim=-1)
        smooth &= bool(((x @ rest[a : a + 4]).abs() > 0.05).all())
    if currently_in_test_context():
        assume(smooth)
    assert smooth, "not differentiable here: the test needs another seed"
