"""Balls of different restitution, dropped from the same height.

With ``impacts=True`` and ``Midpoint()`` flights and bounces are exact, and so are their gradients: heights after the
first bounce, and how they change with the height of the drop, are compared with their formulas.

    python examples/bouncing_balls.py [--out results]
"""

from __future__ import annotations

from pathlib import Path

import torch
from helper import arguments, film, plt, save, written
from rich.console import Console

import backdrive as bd

RESTITUTION = (0.5, 0.65, 0.8, 0.9, 1.0)
RADIUS, HEIGHT, WEIGHT = 0.15, 1.5, 9.81  # m, m, N/kg
DT, STEPS, SHOWN = 0.005, 900, 180  # s; steps; the step that is compared: all balls have bounced once


def build() -> bd.Model:
    scene = bd.Scene(dim=2, gravity=(0.0, -WEIGHT), combine="max")  # the restitution of a pair is the larger one
    scene.add_static(bd.HalfSpace(normal=(0, 1)), friction=0.0)
    for i, e in enumerate(RESTITUTION):
        place = (0.5 * i, HEIGHT + RADIUS)
        scene.add_body(f"ball {e}", bd.Circle(RADIUS), mass=1.0, position=place, restitution=e, friction=0.0)
    return scene.build()


def formulas(e: float, time: float) -> tuple[float, float]:
    """Height above the ground after the first bounce, and its derivative with respect to the height of the drop."""
    fall = (2 * HEIGHT / WEIGHT) ** 0.5
    rest = time - fall
    height = e * WEIGHT * fall * rest - WEIGHT * rest**2 / 2
    return height, (e * (rest - fall) + rest) / fall


def drop(console: Console) -> dict:
    model = build()
    simulator = bd.Simulator(model, DT, integrator=bd.Midpoint(), impacts=True, specialize=False)
    start = model.initial_state()
    start.q.requires_grad_()
    path = simulator.rollout(start, steps=STEPS)
    heights = path.q.unflatten(-1, (-1, 3))[..., 1] - RADIUS  # [T + 1, balls]
    console.print(f"{path}")
    errors = []
    for i, e in enumerate(RESTITUTION):
        (gradient,) = torch.autograd.grad(heights[SHOWN, i], start.q, retain_graph=True)
        height, slope = formulas(e, SHOWN * DT)
        errors.append((heights[SHOWN, i].item() - height, gradient[3 * i + 1].item() - slope))
        console.print(
            f"restitution {e}: height {height:.4f} m, error {errors[-1][0]:.0e}; "
            f"by the height of the drop {slope:+.4f}, error {errors[-1][1]:.0e}"
        )
    return {"path": path, "heights": heights.detach(), "errors": torch.tensor(errors)}


def draw(result: dict, picture: Path) -> None:
    path = result["path"]
    figure, (world, curves) = plt.subplots(1, 2, figsize=(12, 4.2), constrained_layout=True)
    bd.view.draw(path.model, path[SHOWN], world, limits=(-0.4, 2.4, -0.2, 1.8))
    world.set_title(f"after {SHOWN * DT:g} s")
    for i, e in enumerate(RESTITUTION):
        curves.plot(path.time, result["heights"][:, i], label=f"{e}", lw=1.6)
        curves.plot(SHOWN * DT, formulas(e, SHOWN * DT)[0], "o", color="0.2", ms=4)
    curves.set(xlabel="time (s)", ylabel="height (m)", title="dots: the formula")
    curves.legend(title="restitution", fontsize=8, loc="upper right")
    save(figure, picture)


def main() -> None:
    options, console = arguments(__doc__), Console()
    picture, motion = options.out / "bouncing_balls.png", options.out / "bouncing_balls.mp4"
    result = drop(console)
    draw(result, picture)
    film(result["path"], motion)
    written(console, picture, motion)


if __name__ == "__main__":
    main()
