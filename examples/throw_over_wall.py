"""Throw a ball over a wall so that, after a bounce, it is at a target.

Newton's method on the simulation: the position of the ball after a second and a half, and its derivative with respect
to the velocity of the throw, through the flight and the bounce. The first throw clears the wall, but ends far from
the target.

    python examples/throw_over_wall.py [--iterations 12] [--out results]
"""

from __future__ import annotations

from pathlib import Path

import torch
from helper import arguments, film, plt, save, written
from rich.console import Console
from torch import Tensor

import backdrive as bd

RADIUS, WALL = 0.1, (2.0, 1.2)  # m; where the wall is, and how high
TARGET = torch.tensor([4.0, 0.6], dtype=torch.float64)
FIRST = torch.tensor([3.4, 5.6], dtype=torch.float64)  # m/s
DT, STEPS = 0.01, 150


def build() -> bd.Model:
    scene = bd.Scene(dim=2)
    scene.add_static(bd.HalfSpace(normal=(0, 1)), restitution=0.8, friction=0.3)
    scene.add_static(bd.Box(0.1, WALL[1]), position=(WALL[0], WALL[1] / 2), restitution=0.8, friction=0.3)
    scene.add_body("ball", bd.Circle(RADIUS), mass=0.5, position=(0.0, 0.5), restitution=0.8, friction=0.3)
    return scene.build()


def throw(simulator: bd.Simulator, velocity: Tensor) -> bd.Trajectory:
    """With velocities [B, 2]."""
    start = simulator.model.initial_state(len(velocity))
    return simulator.rollout(bd.State(start.q, torch.cat([velocity, start.v[:, 2:]], -1)), steps=STEPS)


def aim(iterations: int, console: Console) -> dict:
    simulator = bd.Simulator(build(), DT, integrator=bd.Midpoint(), impacts=True, specialize=False)
    velocity, paths, misses, error = FIRST, [], [], 0.0
    for i in range(iterations):
        # Two worlds, one for each coordinate of the end: one backward pass gives both rows of the Jacobian.
        both = velocity.repeat(2, 1).requires_grad_()
        path = throw(simulator, both)
        end = path.position("ball")[-1]
        (jacobian,) = torch.autograd.grad(end.diagonal().sum(), both)
        if i == 0:
            error = check(simulator, velocity, jacobian)
        miss = end[0].detach() - TARGET
        paths.append(path.position("ball")[:, 0].detach())
        misses.append(float(miss.norm()))
        console.print(f"throw {i + 1}: {velocity[0]:.3f}, {velocity[1]:.3f} m/s, misses by {misses[-1]:.1e} m")
        if misses[-1] < 1e-9:
            break
        step = torch.linalg.solve(jacobian, miss)
        velocity = velocity - step * min(1.0, 0.5 / float(step.norm()))  # at most half a m/s at once
    console.print(f"Jacobian of the first throw against differences: relative error {error:.1e}")
    with torch.no_grad():
        last = throw(simulator, velocity[None])
    return {"paths": paths, "misses": misses, "error": error, "last": last}


def check(simulator: bd.Simulator, velocity: Tensor, jacobian: Tensor, size: float = 1e-6) -> float:
    steps = size * torch.cat([torch.eye(2, dtype=torch.float64), -torch.eye(2, dtype=torch.float64)])
    with torch.no_grad():
        ends = throw(simulator, velocity + steps).position("ball")[-1]
    difference = (ends[:2] - ends[2:]).T / (2 * size)
    return float((jacobian - difference).norm() / difference.norm())


def draw(result: dict, picture: Path) -> None:
    figure, (world, curve) = plt.subplots(1, 2, figsize=(12, 4), width_ratios=(2.2, 1), constrained_layout=True)
    path = result["last"]
    bd.view.draw(path.model, path[-1], world, limits=(-0.4, 5.2, -0.2, 3.0))
    for i, track in enumerate(result["paths"]):
        last = i == len(result["paths"]) - 1
        world.plot(*track.T, color="tab:red" if last else "0.6", lw=2 if last else 0.9, zorder=2)
    world.plot(*TARGET, "x", color="black", ms=12, mew=2.5, zorder=9)
    world.set_title("every throw; red: the last one; cross: the target")
    curve.semilogy(range(1, len(result["misses"]) + 1), result["misses"], "o-")
    curve.set(xlabel="throw", ylabel="misses by (m)")
    save(figure, picture)


def main() -> None:
    options, console = arguments(__doc__, iterations=(12, "throws at most")), Console()
    picture, motion = options.out / "throw_over_wall.png", options.out / "throw_over_wall.mp4"
    result = aim(options.iterations, console)
    draw(result, picture)
    film(result["last"], motion, trail=["ball"], trail_seconds=2.0)
    written(console, picture, motion)


if __name__ == "__main__":
    main()
