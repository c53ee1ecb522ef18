"""Checks of the throws that were found: the balls stay at rest, and the gradients are right."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ...differences import along
from ..run import Run
from .searches import Search
from .world import STEPS, ThrowWorld

MOVE = 1e-6  # Step of the differences, m/s.


def check_throws(run: Run, world: ThrowWorld, starts: Tensor, searches: Sequence[Search]) -> None:
    """Check the throws found: their sensitivities, that the balls stay at rest, and that the gradients are right."""
    ends = [one.throws[-1] for one in searches if one.found]
    if not ends:
        return
    found = torch.stack(ends).requires_grad_()
    path = world.throw(found)
    status = path.status
    exact = status.converged & (status.fallbacks + status.simultaneous + status.guarded == 0)
    with torch.no_grad():
        later = world.throw(found, 2 * STEPS).position("ball")
        creep = (later[-1] - later[STEPS]).norm(dim=-1)
    influence = [torch.autograd.grad(path.last.q[:, k].sum(), found, retain_graph=True)[0] for k in range(2)]
    norms = torch.stack(influence).norm(dim=0).median(0).values
    throws = torch.cat([starts, found.detach()])
    errors, switched = gradient_errors(world, throws)
    worst = float(errors[~switched].max())
    run.record(
        throws_found={
            "m_per_s": found, "impacts": status.impacts.sum(0), "steps_without_exact_gradient": int((~exact).sum()),
            "creep_in_another_10_s_m": creep.max(),
            "influence_on_the_place_m_per_m_per_s": dict(zip(("vx", "vy", "vz", "wx", "wy", "wz"), norms, strict=True)),
        },
        gradient_check={
            "throws": len(throws), "with_mode_switch": int(switched.sum()), "largest_relative_error": worst,
            "largest_relative_error_with_mode_switch": errors[switched].max() if switched.any() else None,
        },
    )  # fmt: skip
    run.say(f"in another 10 s the balls found move by {1e3 * float(creep.max()):.3f} mm at most")
    run.say(
        f"gradients of {len(throws)} throws agree with differences to {worst:.1e}, "
        f"but for {int(switched.sum())} with a change of contact modes within the difference"
    )


def gradient_errors(world: ThrowWorld, throws: Tensor) -> tuple[Tensor, Tensor]:
    """Errors [B] of the loss's gradients against central differences, relative to the gradients' norms; and whether a
    contact changes its mode within a difference, so that the derivative jumps, bool [B]."""
    at = throws.clone().requires_grad_()
    path = world.throw(at)
    (gradient,) = torch.autograd.grad(world.landing(path).loss.sum(), at)
    switched = torch.zeros(len(throws), dtype=torch.bool)

    def loss(throws: Tensor) -> Tensor:
        nonlocal switched
        moved = world.throw(throws)
        switched |= (moved.status.modes != path.status.modes).any(0)
        return world.landing(moved).loss

    slopes = torch.stack([along(loss, throws, axis, MOVE) for axis in torch.eye(6, dtype=torch.float64)], -1)
    return (slopes - gradient).norm(dim=-1) / gradient.norm(dim=-1), switched
