"""Nothing gains energy: worlds without gravity, springs and motors, in which contacts, limits and loops can only take.

All of these worlds have a mass matrix that does not depend on q (`uniform` in `worlds` and `machines`), so that steps
without contact keep the kinetic energy to rounding, whatever the step size, and no step may gain any.
"""

from __future__ import annotations

import torch
from torch import Tensor

import backdrive as bd

from .draw import Draw
from .families import Family
from .motions import Motions, draw_motions

STEPS = 60
GAIN = {torch.float64: 1e-9, torch.float32: 1e-5}  # relative to the energy at the start
AT_REST = 1e-6  # J; a world with less energy at the start counts as one with this much


def kinetic(motions: Motions, path: bd.Trajectory) -> Tensor:
    """J, [T + 1, B]"""
    exact = bd.Simulator(motions.world.model, motions.dt, impacts=False, sparse=False, specialize=False)
    masses = exact.mass_matrix(motions.start, parameters=motions.parameters)
    v = path.v.to(torch.float64)
    return 0.5 * torch.einsum("tbi,bij,tbj->tb", v, masses, v)


def gains(motions: Motions) -> tuple[Tensor, Tensor]:
    """The largest growth of the kinetic energy in a step, relative to that at the start: [B], infinite for NaN; and
    whether the status says that this step was not solved, bool [B]."""
    with torch.no_grad():
        simulator = motions.family.simulator(motions.world.model, motions.dt)
        path = motions.rollout(simulator, motions.vector())
        energy = kinetic(motions, path)
    gain, step = (energy.diff(dim=0) / energy[0].clamp(min=AT_REST)).max(0)
    marked = ~path.status.converged.gather(0, step.unsqueeze(0))[0]
    return torch.where(gain.isfinite(), gain, torch.inf), marked


def draw_worlds(family: Family, count: int, draw: Draw) -> Motions:
    return draw_motions(family, count, draw, STEPS, uniform=True)
