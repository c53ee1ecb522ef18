"""A break shot, and where every ball would have ended had the cue ball been aimed a little differently.

The cue ball breaks a rack of fifteen balls, which hit each other and the cushions dozens of times. With
``impacts=True`` every step is split at its impacts, so that the gradient of a ball's last position, with respect to the
direction and the speed of the cue ball, passes exactly through all of them. The arrows are that gradient times a small
change of the direction; the dashed rings are where the balls end in a second simulation with that change.

    python examples/billiards.py [--out results]
"""

from __future__ import annotations

import math
from pathlib import Path

import torch
from helper import arguments, film, plt, save, written
from matplotlib.patches import Circle, Rectangle
from rich.console import Console
from torch import Tensor

import backdrive as bd

LENGTH, WIDTH, RADIUS, MASS = 2.54, 1.27, 0.0286, 0.17  # m, kg: a table and its balls
ROWS, GAP = 5, 3e-3  # rows of the rack; gaps between its balls, 1 to 2 times this (m): they never quite touch
DT, STEPS = 0.01, 160
DIRECTION, SPEED = 0.02, 8.0  # rad, m/s
CHANGE = math.radians(0.02)  # of the direction, for the arrows
DIFFERENCE = 2e-7  # rad and m/s, for the check
COLORS = ["#f2f2ec", "#f4c430", "#1f4fa3", "#c8201f", "#5b2a86", "#f07c1e", "#14703c", "#7c1d20", "#111111"]
BALLS = [*COLORS, *COLORS[1:-1]]  # ball 0, 1 to 8, and 9 to 15, which are striped


def build_table() -> bd.Model:
    """Seen from above: no weight and no friction; only the cushions take energy."""
    scene = bd.Scene(dim=2, gravity=(0.0, 0.0))
    for normal, offset in (((1, 0), 0.0), ((-1, 0), -LENGTH), ((0, 1), 0.0), ((0, -1), -WIDTH)):
        scene.add_static(bd.HalfSpace(normal=normal, offset=offset), restitution=0.8, friction=0.0)
    random = torch.Generator().manual_seed(1)
    places = [(0.25 * LENGTH, 0.5 * WIDTH)]
    for row in range(ROWS):
        for k in range(row + 1):
            dx, dy = (0.5 * GAP * torch.rand(2, generator=random)).tolist()
            across = (k - row / 2) * (2 * RADIUS + 1.5 * GAP)
            along = row * (math.sqrt(3) * RADIUS + 1.5 * GAP)
            places.append((0.7 * LENGTH + along + dx, 0.5 * WIDTH + across + dy))
    for i, place in enumerate(places):
        scene.add_body(f"ball {i}", bd.Circle(RADIUS), mass=MASS, position=place, restitution=1.0, friction=0.0)
    return scene.build()


def shoot(simulator: bd.Simulator, direction: Tensor, speed: Tensor) -> bd.Trajectory:
    """The break, for directions and speeds [B] of the cue ball, ball 0."""
    state = simulator.model.initial_state(len(direction))
    cue = torch.stack([speed * direction.cos(), speed * direction.sin()], -1)
    return simulator.rollout(bd.State(state.q, torch.cat([cue, state.v[:, 2:]], -1)), steps=STEPS)


def ends(path: bd.Trajectory) -> Tensor:
    """Where the balls are at the end: [B, balls, 2]."""
    return path.last.q.unflatten(-1, (-1, 3))[..., :2]


def differences(simulator: bd.Simulator, aim: Tensor) -> Tensor:
    """The derivatives of the ends by central differences of two sizes, extrapolated: [balls, 2, 2]."""
    factors, weights = torch.tensor([[1.0, -1.0, 2.0, -2.0], [8.0, -8.0, -1.0, 1.0]], dtype=torch.float64)
    changes = DIFFERENCE * torch.einsum("k,ij->ikj", factors, torch.eye(2, dtype=torch.float64))
    moved = ends(shoot(simulator, *(aim + changes.flatten(0, 1)).unbind(-1))).unflatten(0, (2, 4))
    return torch.einsum("ikbx,k->bxi", moved, weights) / (12 * DIFFERENCE)


def break_rack(console: Console) -> dict:
    simulator = bd.Simulator(build_table(), DT, impacts=True, specialize=False)  # compiles faster, runs slower
    balls = simulator.model.nbody
    # One environment for each coordinate of each ball: one backward pass gives all their gradients.
    aim = torch.tensor([DIRECTION, SPEED], dtype=torch.float64).repeat(2 * balls, 1).requires_grad_()
    path = shoot(simulator, *aim.unbind(-1))
    (gradient,) = torch.autograd.grad(ends(path).flatten(1).diagonal().sum(), aim)
    gradient = gradient.unflatten(0, (balls, 2))  # [balls, 2 (x, y), 2 (direction, speed)]
    console.print(f"{balls} balls, {STEPS} steps, {int(path.status.impacts[:, 0].sum())} impacts")
    unsure = path.status.fallbacks + path.status.simultaneous
    console.print(f"steps whose gradient would not be exact: {int((unsure[:, 0] > 0).sum())}")

    with torch.no_grad():
        difference = differences(simulator, aim[:1])
        sizes = CHANGE * torch.logspace(-3, 0.0, 25, dtype=torch.float64)
        others = shoot(simulator, DIRECTION + sizes, torch.full_like(sizes, SPEED))
    error = (gradient - difference).norm(dim=(1, 2)) / difference.norm(dim=(1, 2))
    farthest = int(gradient[:, :, 0].norm(dim=-1).argmax())
    console.print(f"gradients of all balls against differences: largest relative error {error.max():.1e}")
    console.print(
        f"most sensitive: ball {farthest}, {1e3 * CHANGE * gradient[farthest, :, 0].norm():.0f} mm for "
        f"{math.degrees(CHANGE):g}° of direction, {10 * gradient[farthest, :, 1].norm():.1f} mm for 1 cm/s of speed"
    )
    miss = ends(others) - ends(path)[:1].detach() - sizes[:, None, None] * gradient[:, :, 0]
    return {
        "path": path, "gradient": gradient, "difference": difference, "error": error, "sizes": sizes,
        "miss": miss.norm(dim=-1), "others": others,
    }  # fmt: skip


def draw(result: dict, picture: Path) -> None:
    path, gradient = result["path"], result["gradient"]
    figure, (table, check) = plt.subplots(1, 2, figsize=(14, 4.9), width_ratios=(2.35, 1), constrained_layout=True)
    table.add_patch(Rectangle((-0.06, -0.06), LENGTH + 0.12, WIDTH + 0.12, color="#5a3a22"))
    table.add_patch(Rectangle((0, 0), LENGTH, WIDTH, color="#1d6b48"))
    places = path.q[:, 0].detach().unflatten(-1, (-1, 3))[..., :2]  # [T + 1, balls, 2]
    after = result["others"].last.q[-1].unflatten(-1, (-1, 3))[:, :2]
    for i, (start, end) in enumerate(zip(places[0], places[-1], strict=True)):
        color, striped = BALLS[i], i > 8
        table.plot(*places[:, i].T, color=color, lw=1.1, alpha=0.65)
        table.add_patch(Circle(tuple(start), RADIUS, fill=False, ec="white", lw=0.5, alpha=0.4))
        table.add_patch(Circle(tuple(end), RADIUS, fc="#f2f2ec" if striped else color, ec=color, lw=1, zorder=3))
        if striped:
            table.add_patch(Rectangle(tuple(end - RADIUS * torch.tensor([0.8, 0.45])), 1.6 * RADIUS, 0.9 * RADIUS,
                                      color=color, zorder=3))  # fmt: skip
        table.add_patch(Circle(tuple(after[i]), RADIUS, fill=False, ec="white", lw=1.2, ls="--", zorder=4))
        arrow = CHANGE * gradient[i, :, 0]
        style = {"arrowstyle": "-|>", "color": "white", "lw": 1.6, "shrinkA": 0, "shrinkB": 0}
        if arrow.norm() > RADIUS / 2:
            table.annotate("", tuple(end + arrow), tuple(end), arrowprops=style, zorder=5)
    table.set(xlim=(-0.06, LENGTH + 0.06), ylim=(-0.06, WIDTH + 0.06), aspect="equal", xticks=[], yticks=[])
    table.set_title(
        f"a break; arrows: the gradient, for {math.degrees(CHANGE):g}° of direction; dashed: simulated with that change"
    )
    degrees, order = torch.rad2deg(result["sizes"]), gradient[:, :, 0].norm(dim=-1).argsort(descending=True)
    for i in order[:6].tolist():
        style = {"color": BALLS[i] if i else "0.6", "ls": "--" if i > 8 else "-", "lw": 1.8}
        check.loglog(degrees, result["miss"][:, i], **style, label=f"ball {i}")
    steep = degrees[[0, -1]]
    check.loglog(steep, 1e-2 * (steep / degrees[-1]) ** 2, ":", color="0.3", label="slope 2")
    check.set(xlabel="change of direction (degrees)", ylabel="end of the ball less tip of the arrow (m)")
    check.set_title("the error falls with the change squared")
    check.legend(fontsize=8)
    save(figure, picture)


def main() -> None:
    options, console = arguments(__doc__), Console()
    picture, motion = options.out / "billiards.png", options.out / "billiards.mp4"
    result = break_rack(console)
    draw(result, picture)
    colors = {f"ball {i}": color for i, color in enumerate(BALLS)}
    film(result["path"], motion, trail=True, trail_seconds=0.4, forces=False, speed=0.5, colors=colors)
    written(console, picture, motion)


if __name__ == "__main__":
    main()
