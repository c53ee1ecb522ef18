"""A ball hits a hanging chain, as in the experiment of the 2018 paper.

The chain is a tree of hinges, so that its links cannot come apart; with maximal coordinates, as the paper has it, each
hinge is a pair of equations instead. Both give the same motion.

    python examples/chain.py [--links 10] [--out results]
"""

from __future__ import annotations

from pathlib import Path

from helper import arguments, film, plt, save, written
from rich.console import Console

import backdrive as bd

LENGTH, WIDTH, MASS = 0.3, 0.06, 0.4  # of a link: m, kg
DT, STEPS = 1 / 240, 960


def build(links: int, coordinates: str = "reduced") -> bd.Model:
    scene = bd.Scene(dim=2, coordinates=coordinates)
    above = None
    for i in range(links):
        top = -LENGTH * i
        link = scene.add_body(f"link {i}", bd.Box(WIDTH, LENGTH), mass=MASS, position=(0.0, top - LENGTH / 2))
        scene.add_joint(f"hinge {i}", bd.Hinge(), parent=above, child=link, anchor=(0.0, top))
        above = link
    low = -LENGTH * (links - 0.5)
    ball = scene.add_body("ball", bd.Circle(0.15), mass=2.0, position=(-1.5, low + 0.35), velocity=(4.0, 0.0))
    for i in range(links - 2):  # the ball reaches the last two links only; fewer pairs are faster
        scene.exclude(ball, f"link {i}")
    return scene.build()


def swing(links: int, console: Console) -> dict:
    paths = {}
    for coordinates in ("reduced", "maximal"):
        model = build(links, coordinates)
        simulator = bd.Simulator(model, DT, integrator=bd.Midpoint(), specialize=False)
        paths[coordinates] = simulator.rollout(model.initial_state(), steps=STEPS)
        console.print(f"{coordinates} coordinates, {model.nv} of them: {paths[coordinates]}")
    tips = {name: path.position(f"link {links - 1}") for name, path in paths.items()}
    apart = (tips["reduced"] - tips["maximal"]).norm(dim=-1)
    first = int((paths["reduced"].status.contacts > 0).nonzero()[0])
    console.print(f"the ball hits at {first * DT:.2f} s; 0.2 s later the two differ by {apart[first + 48]:.1e} m")
    return {"paths": paths, "tips": tips, "apart": apart, "hit": first}


def draw(result: dict, picture: Path) -> None:
    path = result["paths"]["reduced"]
    figure, axes = plt.subplots(1, 4, figsize=(13, 4.6), constrained_layout=True, width_ratios=(1, 1, 1, 1.3))
    for ax, step in zip(axes[:3], (0, result["hit"] + 60, result["hit"] + 200), strict=True):
        bd.view.draw(path.model, path[step], ax, limits=(-1.8, 2.2, -3.6, 0.3))
        ax.set_title(f"{step * DT:.2f} s")
    for name, tip in result["tips"].items():
        axes[3].plot(path.time, tip[:, 0], label=f"{name} coordinates", lw=3 if name == "reduced" else 1.2)
    axes[3].set(xlabel="time (s)", ylabel="last link, x (m)")
    axes[3].legend()
    save(figure, picture)


def main() -> None:
    options, console = arguments(__doc__, links=(10, "of the chain")), Console()
    picture, motion = options.out / "chain.png", options.out / "chain.mp4"
    result = swing(options.links, console)
    draw(result, picture)
    film(result["paths"]["reduced"], motion, trail=["ball", f"link {options.links - 1}"])
    written(console, picture, motion)


if __name__ == "__main__":
    main()
