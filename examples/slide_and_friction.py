"""Boxes on a slope: which of them slide, and how far.

A box slides if its friction is below the slope's tangent, with the acceleration g (sin α - μ cos α); the others stay
where they are. The derivative of a box's displacement with respect to its friction is zero while it sticks, and
-g cos α t²/2 while it slides.

    python examples/slide_and_friction.py [--out results]
"""

from __future__ import annotations

import math
from pathlib import Path

import torch
from helper import arguments, film, plt, save, written
from rich.console import Console
from torch import Tensor

import backdrive as bd

SLOPE, WEIGHT = math.radians(20), 9.81
FRICTION = torch.tensor([0.02, 0.1, 0.2, 0.3, 0.36, 0.37, 0.5], dtype=torch.float64)  # the slope's tangent: 0.364
BOX, DT, STEPS = 0.3, 0.005, 240


def build() -> bd.Model:
    """One box per environment slides on a slope whose own friction is zero: the larger one counts."""
    scene = bd.Scene(dim=2, gravity=(0.0, -WEIGHT), combine="max")
    up = (math.sin(SLOPE), math.cos(SLOPE))
    scene.add_static(bd.HalfSpace(normal=up), friction=0.0)
    place = (BOX / 2 * up[0], BOX / 2 * up[1])
    scene.add_body("box", bd.Box(BOX, BOX), mass=1.0, position=place, angle=-SLOPE, friction=0.0)
    return scene.build()


def slide(console: Console) -> dict:
    model = build()
    simulator = bd.Simulator(model, DT, integrator=bd.Midpoint(), impacts=True, specialize=False)
    box = model.shape_index("box")
    own = FRICTION.clone().requires_grad_()
    friction = torch.nn.functional.one_hot(torch.tensor(box), model.nshape).double() * own[:, None]
    path = simulator.rollout(model.initial_state(len(FRICTION)), steps=STEPS, parameters={"friction": friction})
    down = torch.tensor([math.cos(SLOPE), -math.sin(SLOPE)], dtype=torch.float64)
    way = (path.position("box") - path.position("box")[0]) @ down  # [T + 1, B]
    (gradient,) = torch.autograd.grad(way[-1].sum(), own)
    wanted, slope = formulas(FRICTION, STEPS * DT)
    for mu, x, g, truth in zip(FRICTION, way[-1], gradient, wanted, strict=True):
        console.print(
            f"friction {mu:.2f}: {x:6.3f} m down the slope (formula {truth:.3f}), derivative by friction {g:7.3f}"
        )
    return {"path": path, "way": way.detach(), "gradient": gradient, "wanted": wanted, "slope": slope}


def formulas(friction: Tensor, time: float) -> tuple[Tensor, Tensor]:
    """Ways down the slope, and their derivatives with respect to friction."""
    pull = WEIGHT * (math.sin(SLOPE) - friction * math.cos(SLOPE))
    way = pull.clamp_min(0.0) * time**2 / 2
    return way, -WEIGHT * math.cos(SLOPE) * time**2 / 2 * (pull > 0).to(way)


def draw(result: dict, picture: Path) -> None:
    path = result["path"]
    figure, (world, curves) = plt.subplots(1, 2, figsize=(12, 4.2), constrained_layout=True)
    bd.view.draw(path.model, path[STEPS], world, environment=3, limits=(-0.5, 3.0, -1.4, 0.6))
    world.set_title(f"friction {FRICTION[3]:g}, after {STEPS * DT:g} s")
    fine = torch.linspace(0, 0.5, 200, dtype=torch.float64)
    curves.plot(fine, formulas(fine, STEPS * DT)[0], color="0.6", label="formula")
    curves.plot(FRICTION, result["way"][-1], "o", label="simulated")
    for mu, x, g in zip(FRICTION.tolist(), result["way"][-1].tolist(), result["gradient"].tolist(), strict=True):
        curves.plot([mu - 0.02, mu + 0.02], [x - 0.02 * g, x + 0.02 * g], color="tab:red", lw=2.5)
    curves.plot([], [], color="tab:red", lw=2.5, label="gradient")
    curves.set(xlabel="friction", ylabel="way (m)", title=f"how far boxes slide in {STEPS * DT:g} s")
    curves.legend()
    save(figure, picture)


def main() -> None:
    options, console = arguments(__doc__), Console()
    picture, motion = options.out / "slide_and_friction.png", options.out / "slide_and_friction.mp4"
    result = slide(console)
    draw(result, picture)
    film(result["path"], motion, environment=2, limits=(-0.5, 3.0, -1.4, 0.6))
    written(console, picture, motion)


if __name__ == "__main__":
    main()
