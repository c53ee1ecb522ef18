"""Friction and restitution, learned from the track of a camera.

A ball bounces past a box that slides to a stop. A camera of 30 frames per second sees both, with the noise of its
pixels, and loses the ball behind a post. ``backdrive.identify.fit`` finds the friction of the box and the
restitution of the ball from that track, with confidence intervals.

    python examples/learn_contact.py [--out results]
"""

from __future__ import annotations

from pathlib import Path

import torch
from helper import arguments, film, plt, save, written
from rich.console import Console

import backdrive as bd
from backdrive.identify import Learn, Observations, fit

FRICTION, RESTITUTION = 0.35, 0.75  # the truth
GUESS = 0.1, 0.4
PIXEL, HIDDEN = 0.005, (1.2, 1.6)  # m; where the camera does not see the ball
DT, STEPS, EVERY = 1 / 240, 480, 8  # a frame of the camera is 8 steps


def build(friction: float, restitution: float) -> bd.Model:
    """The larger one of two materials counts; the ground has no friction and no restitution."""
    scene = bd.Scene(dim=2, combine="max")
    scene.add_static(bd.HalfSpace(normal=(0, 1)), friction=0.0)
    ball = {"position": (0.0, 1.0), "velocity": (1.4, 0.0), "friction": 0.0, "restitution": restitution}
    scene.add_body("ball", bd.Circle(0.1), mass=0.5, **ball)
    box = {"position": (-0.6, 0.1), "velocity": (2.4, 0.0), "friction": friction}
    scene.add_body("box", bd.Box(0.3, 0.2), mass=1.0, **box)
    scene.exclude("ball", "box")
    return scene.build()


def simulator(model: bd.Model) -> bd.Simulator:
    return bd.Simulator(model, DT, integrator=bd.Midpoint(), impacts=True, specialize=False)


def film_of_the_truth() -> tuple[bd.Trajectory, Observations]:
    """The motion, and what the camera saw of it."""
    model = build(FRICTION, RESTITUTION)
    path = simulator(model).rollout(model.initial_state(), steps=STEPS)
    seen = Observations.of(path, every=EVERY, noise=PIXEL, generator=torch.Generator().manual_seed(0))
    ball = seen.position["ball"].clone()
    ball[(ball[:, 0] > HIDDEN[0]) & (ball[:, 0] < HIDDEN[1])] = torch.nan
    return path, Observations(seen.time, {**seen.position, "ball": ball}, noise=PIXEL)


def learn(console: Console) -> dict:
    path, seen = film_of_the_truth()
    guess = simulator(build(*GUESS))
    wanted = [Learn("friction", "box", start=GUESS[0]), Learn("restitution", "ball", start=GUESS[1])]
    found = fit(guess, seen, wanted, windows=4)
    console.print(f"{found}", highlight=False)
    console.print(f"truth: friction {FRICTION}, restitution {RESTITUTION}")
    start = guess.model.initial_state()
    with torch.no_grad():
        first = guess.rollout(start, steps=STEPS)
        learned = guess.rollout(start, steps=STEPS, parameters=found.parameters)
    return {"fit": found, "seen": seen, "path": path, "first": first, "learned": learned}


def draw(result: dict, picture: Path) -> None:
    figure, (world, ways) = plt.subplots(1, 2, figsize=(13, 4), width_ratios=(1.6, 1), constrained_layout=True)
    seen, path = result["seen"], result["path"]
    bd.view.draw(path.model, path[-1], world, limits=(-0.9, 3.1, -0.15, 1.3))
    world.axvspan(*HIDDEN, color="0.85", zorder=0.5)
    world.plot(*seen.position["ball"].T, "+", color="black", ms=6, zorder=8, label="seen")
    for name, color, width in (("first", "tab:blue", 1.2), ("learned", "tab:red", 1.6)):
        world.plot(*result[name].position("ball").T, color=color, lw=width, zorder=4, label=f"{name} motion")
        ways.plot(path.time, result[name].position("box")[:, 0], color=color, lw=width, label=f"{name} motion")
    world.set_title("the ball; grey: hidden from the camera")
    ways.plot(seen.time, seen.position["box"][:, 0], "+", color="black", ms=6, label="seen")
    ways.set(xlabel="time (s)", ylabel="x of the box (m)", title="the box")
    world.legend(fontsize=8, loc="upper right")
    ways.legend(fontsize=8)
    save(figure, picture)


def main() -> None:
    options, console = arguments(__doc__), Console()
    picture, motion = options.out / "learn_contact.png", options.out / "learn_contact.mp4"
    result = learn(console)
    draw(result, picture)
    film(result["learned"], motion, trail=["ball"])
    written(console, picture, motion)


if __name__ == "__main__":
    main()
