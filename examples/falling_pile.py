"""A pile of boxes and capsules falls into a pit, and the gradient says which of them moved the last one.

A hundred bodies in one world. The loss is the final distance of the topmost body from the middle; its gradient with
respect to the initial velocities of all bodies goes back through every contact of the fall.

    python examples/falling_pile.py [--out results]
"""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import torch
from helper import arguments, film, plt, save, written
from mpl_toolkits.mplot3d.art3d import Poly3DCollection
from rich.console import Console

import backdrive as bd

DT, STEPS, SHORT = 0.005, 240, 40
COUNT, SIDE, HALF = 100, 4, 0.5  # bodies; in a layer: SIDE²; half the width of the pit, m
FACES = [(0, 1, 3, 2), (4, 5, 7, 6), (0, 1, 5, 4), (2, 3, 7, 6), (0, 2, 6, 4), (1, 3, 7, 5)]


def build_pile() -> bd.Model:
    random, scene = np.random.default_rng(3), bd.Scene(dim=3)
    scene.add_static(bd.HalfSpace(normal=(0, 0, 1)), friction=0.5, name="floor")
    for x, y in ((1, 0), (-1, 0), (0, 1), (0, -1)):
        scene.add_static(bd.HalfSpace(normal=(x, y, 0), offset=-HALF), friction=0.3, name=f"wall {x} {y}")
    for i in range(COUNT):
        cell = np.array([i % SIDE - (SIDE - 1) / 2, i // SIDE % SIDE - (SIDE - 1) / 2, i // SIDE**2 + 1.0])
        place = 0.23 * cell + 0.01 * random.normal(size=3)
        shape = bd.Box(*random.uniform(0.1, 0.2, size=3)) if i % 2 else bd.Capsule(0.06, 0.12)
        quaternion = random.normal(size=4)
        scene.add_body(
            f"body {i}", shape, density=400.0, friction=0.5, position=tuple(place),
            quaternion=tuple(quaternion / np.linalg.norm(quaternion)),
        )  # fmt: skip
    return scene.build()


def fall(console: Console) -> dict:
    model = build_pile()
    simulator = bd.Simulator(model, DT)
    with torch.no_grad():
        path = simulator.rollout(model.initial_state(), steps=STEPS)
    console.print(f"{path}, at most {int(path.status.contacts.max())} contacts at once")
    start = path[STEPS - SHORT]
    v = start.v.clone().requires_grad_()
    end = simulator.rollout(bd.State(start.q, v), steps=SHORT)
    places = torch.stack([end.position(name)[-1] for name in model.bodies])
    top = int(places[:, 2].argmax())
    loss = places[top, :2].norm()
    loss.backward()
    influence = v.grad.reshape(-1, 6).norm(dim=1)
    felt = int((influence > 1e-6 * influence.max()).sum())
    console.print(f"body {top} ends {loss:.3f} m from the middle; {felt} of {COUNT} bodies have an influence on it")
    return {"model": model, "path": path, "influence": influence, "top": top}


def outline(model: bd.Model, path: bd.Trajectory, body: int, frame: int) -> list[np.ndarray]:
    """The faces of a box, or a few rings of a capsule, in the world."""
    name, shape = model.bodies[body], model.shapes[body][0].shape
    W, x = path.rotation(name)[frame].numpy(), path.position(name)[frame].numpy()
    if isinstance(shape, bd.Box):
        corners = np.array([(a, b, c) for a in (-1, 1) for b in (-1, 1) for c in (-1, 1)]) * np.array(shape.sizes) / 2
        corners = corners @ W.T + x
        return [corners[list(face)] for face in FACES]
    angles, steps = np.linspace(0, 2 * np.pi, 13), np.linspace(-np.pi / 2, np.pi / 2, 8)
    height = np.sin(steps) * shape.radius + np.where(steps > 0, 0.5, -0.5) * shape.length
    rings = [
        np.stack([r * np.cos(angles), r * np.sin(angles), np.full(13, z)], 1) @ W.T + x
        for r, z in zip(np.cos(steps) * shape.radius, height, strict=True)
    ]
    sides = [(a, b, k) for a, b in itertools.pairwise(rings) for k in range(12)]
    return [np.array([a[k], a[k + 1], b[k + 1], b[k]]) for a, b, k in sides]


def draw(result: dict, picture: Path) -> None:
    model, path, influence = result["model"], result["path"], result["influence"]
    figure = plt.figure(figsize=(13, 5), constrained_layout=True)
    color = plt.get_cmap("viridis")
    strength = (influence / influence.max()).clamp_min(1e-6).log10().div(6).add(1).numpy()
    for k, frame in enumerate((0, STEPS // 4, STEPS)):
        title = f"after {frame * DT:g} s" if frame else "start"
        axes = figure.add_subplot(1, 3, k + 1, projection="3d")
        for body in range(model.nbody):
            face = color(strength[body]) if frame == STEPS else ("tab:orange" if body % 2 else "tab:blue")
            edge = "red" if frame == STEPS and body == result["top"] else "0.3"
            patches = Poly3DCollection(outline(model, path, body, frame), facecolor=face, edgecolor=edge, lw=0.2)
            axes.add_collection3d(patches)
        axes.set(xlim=(-HALF, HALF), ylim=(-HALF, HALF), zlim=(0, 3 * HALF), box_aspect=(1, 1, 1.5), title=title)
        axes.view_init(elev=15, azim=-60)
        axes.set_axis_off()
    note = "bright: bodies whose velocity 0.2 s before\nmoves the top one (red edges) most"
    figure.text(0.7, 0.04, note, fontsize=9)
    save(figure, picture)


def main() -> None:
    options, console = arguments(__doc__), Console()
    picture, motion = options.out / "falling_pile.png", options.out / "falling_pile.mp4"
    result = fall(console)
    draw(result, picture)
    film(result["path"], motion, forces=False)
    written(console, picture, motion)


if __name__ == "__main__":
    main()
