"""Where a gradient is wrong, or energy is gained: python -m benchmarks.campaign.look FOLDER [FOLDER ...]

FOLDER is a reproduction. Every step of its motion is judged by itself, from the state that the rollout came to.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch

import backdrive as bd

from . import energy, gradients, reproductions
from .draw import Draw
from .gradients import Functional, judge
from .motions import Motions

TRIES = 4  # directions and cotangents


def main() -> None:
    torch.set_num_threads(1)
    for folder in sys.argv[1:]:
        how, functional = reproductions.load(Path(folder))
        motions, family = functional.motions, functional.motions.family
        print(f"{folder}: {family.name}, {motions.steps} steps of {motions.dt:.4g} s")
        with torch.no_grad():
            path = motions.rollout(family.simulator(motions.world.model, motions.dt), motions.vector())
        if how["part"] == "energy":
            _energy(motions, path)
        else:
            _gradients(functional, path)


def _energy(motions: Motions, path: bd.Trajectory) -> None:
    """Tell the steps in which energy is gained."""
    total = energy.kinetic(motions, path)[:, 0]
    for t in range(motions.steps):
        if total[t + 1] - total[t] > energy.GAIN[motions.family.dtype] * total[0]:
            print(f"  step {t}: {float(total[t]):.6g} to {float(total[t + 1]):.6g} J; {_told(path, t)}")


def _gradients(functional: Functional, path: bd.Trajectory) -> None:
    """Tell the steps whose gradients by themselves are not right, in some direction."""
    again = judge(functional, gradients.MORE_SIZES)
    print(f"  whole motion: {again.outcomes()[0]}, error {float(again.error):.1e}")
    for t in range(functional.motions.steps):
        step = functional.motions.some([0] * TRIES, t, 1)
        state = bd.State(*(x.to(torch.float64).repeat(TRIES, 1) for x in (path.q[t, :1], path.v[t, :1])))
        step = Motions(step.family, step.world, step.dt, state, step.controls, step.wrenches, step.parameters)
        found = judge(Functional.random(step, Draw(t)), gradients.MORE_SIZES)
        if outcomes := set(found.outcomes()) - {gradients.RIGHT}:
            print(f"  step {t}: {', '.join(sorted(outcomes))}, error {float(found.error.max()):.1e}; {_told(path, t)}")


def _told(path: bd.Trajectory, t: int) -> str:
    s = path.status
    return (f"{int(s.impacts[t, 0])} impacts, {int(s.contacts[t, 0])} contacts, {int(s.guarded[t, 0])} guarded, "
            f"depth {float(s.depth[t, 0]):.0e} m: {_touching(path, t)}")  # fmt: skip


def _touching(path: bd.Trajectory, t: int) -> str:
    """Names of the shapes that press on each other at the end of a step."""
    contacts = path.contacts
    force = contacts.force[t, 0].norm(dim=-1)
    return ", ".join(sorted({" - ".join(contacts.pairs[k]) for k in force.nonzero()[:, 0].tolist()}))


if __name__ == "__main__":
    main()
