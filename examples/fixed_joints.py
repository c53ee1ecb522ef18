"""A hammer of two bodies, welded together, tumbles onto the ground.

A ``Fixed`` joint makes one rigid body of two: a hammer made of one body with two shapes has the same motion. A
``Weld`` keeps two free bodies together by equations, which hold to first order in dt: half the step, half the
difference.

    python examples/fixed_joints.py [--out results]
"""

from __future__ import annotations

from pathlib import Path

import torch
from helper import arguments, film, plt, save, written
from rich.console import Console

import backdrive as bd

HANDLE, HEAD = bd.Box(0.8, 0.08), bd.Box(0.16, 0.34)
HANDLE_MASS, HEAD_MASS = 0.4, 1.6  # kg
PLACE, OFFSET, THROW, SPIN = (0.0, 1.2), 0.48, (1.5, 2.5), 7.0  # m, m, m/s, rad/s
MATERIAL = {"friction": 0.4, "restitution": 0.0}
DT, STEPS = 1 / 500, 900


def build(how: str) -> bd.Model:
    """how: "fixed", "one body" or "weld"."""
    scene = bd.Scene(dim=2)
    scene.add_static(bd.HalfSpace(normal=(0, 1)), **MATERIAL)
    head_place, head_throw = (PLACE[0] + OFFSET, PLACE[1]), (THROW[0], THROW[1] + SPIN * OFFSET)
    motion = {"velocity": THROW, "angular_velocity": SPIN}
    if how == "one body":
        com = HEAD_MASS * OFFSET / (HANDLE_MASS + HEAD_MASS)
        about = [
            m * (d**2 + s.inertia(1.0)[2, 2])
            for m, d, s in ((HANDLE_MASS, com, HANDLE), (HEAD_MASS, OFFSET - com, HEAD))
        ]
        weight = {"mass": HANDLE_MASS + HEAD_MASS, "com": (com, 0.0), "inertia": sum(about)}
        scene.add_body("handle", HANDLE, position=PLACE, **weight, **motion, **MATERIAL)
        scene.add_shape("handle", HEAD, position=(OFFSET, 0.0))
        return scene.build()
    scene.add_body("handle", HANDLE, mass=HANDLE_MASS, position=PLACE, **motion, **MATERIAL)
    head_motion = {"velocity": head_throw, "angular_velocity": SPIN} if how == "weld" else {}
    scene.add_body("head", HEAD, mass=HEAD_MASS, position=head_place, **head_motion, **MATERIAL)
    if how == "fixed":
        scene.add_joint("grip", bd.Fixed(), parent="handle", child="head", anchor=(PLACE[0] + 0.4, PLACE[1]))
    else:
        scene.add_constraint("grip", bd.Weld(), a="head", b="handle")
    return scene.build()


def tumble(console: Console) -> dict:
    paths = {how: throw(how, 1) for how in ("fixed", "one body", "weld")} | {"weld, half the step": throw("weld", 2)}
    places = {how: torch.cat([p.position("handle"), p.orientation("handle")[:, None]], -1) for how, p in paths.items()}
    landing = int((paths["fixed"].status.contacts > 0).nonzero()[0])
    apart = {}
    for how, x in places.items():
        every = 2 if "half" in how else 1
        apart[how] = float((x[: landing * every : every] - places["fixed"][:landing]).abs().max())
        console.print(f"{how}: differs from the fixed joint by {apart[how]:.1e} (m, rad) in the air")
    return {"paths": paths, "apart": apart, "landing": landing}


def throw(how: str, parts: int) -> bd.Trajectory:
    model = build(how)
    simulator = bd.Simulator(model, DT / parts, integrator=bd.Midpoint(), specialize=False)
    return simulator.rollout(model.initial_state(), steps=STEPS * parts)


def draw(result: dict, picture: Path) -> None:
    path = result["paths"]["fixed"]
    figure, axes = plt.subplots(1, 4, figsize=(13, 3.4), constrained_layout=True)
    for ax, step in zip(axes, (0, 120, result["landing"], STEPS), strict=True):
        bd.view.draw(path.model, path[step], ax, limits=(-0.8, 3.0, -0.2, 2.7))
        ax.set_title(f"{step * DT:.2f} s")
    save(figure, picture)


def main() -> None:
    options, console = arguments(__doc__), Console()
    picture, motion = options.out / "fixed_joints.png", options.out / "fixed_joints.mp4"
    result = tumble(console)
    draw(result, picture)
    film(result["paths"]["fixed"], motion, trail=["head"])
    written(console, picture, motion)


if __name__ == "__main__":
    main()
