"""Learn the masses of a robot arm's links from its motion.

An arm with four links is shaken by known torques, and its joint angles are observed. Starting from wrong masses,
gradient descent through the simulation finds the true ones: the loss is the difference between observed and simulated
motion, and ``loss.backward()`` gives its gradient with respect to the masses.

    python examples/learn_arm_masses.py [--iterations 250] [--out results]
"""

from __future__ import annotations

import itertools
import time
from pathlib import Path

import torch
from helper import arguments, film, plt, save, written
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

import backdrive as bd

LENGTHS = (0.3, 0.5, 0.4, 0.3)
TRUE_MASSES = torch.tensor([4.0, 2.5, 1.5, 0.8], dtype=torch.float64)
BODIES = ("column", "upper arm", "forearm", "hand")
STEPS, DT, BATCH = 100, 0.01, 16


def build_arm() -> bd.Model:
    """A column that turns about the vertical, and three links in its plane; every link has a mass of 1 kg."""
    scene = bd.Scene(dim=3)
    height, parent = 0.0, None
    for i, (name, length) in enumerate(zip(BODIES, LENGTHS, strict=True)):
        body = scene.add_body(
            name, bd.Capsule(radius=0.04, length=length), mass=1.0, position=(0.0, 0.0, height + length / 2)
        )
        axis = (0.0, 0.0, 1.0) if i == 0 else (0.0, 1.0, 0.0)
        hinge = bd.Hinge(axis=axis, damping=1.0)
        joint = scene.add_joint(f"joint {i}", hinge, parent=parent, child=body, anchor=(0.0, 0.0, height))
        scene.add_motor(f"motor {i}", joint=joint, gear=1.0, limits=(-30.0, 30.0))
        height, parent = height + length, body
    for a, b in itertools.combinations(BODIES, 2):  # the links may pass each other
        scene.exclude(a, b)
    return scene.build()


def parameters(model: bd.Model, mass: torch.Tensor) -> dict[str, torch.Tensor]:
    """A link's inertia grows with its mass: its shape is known, its material is not."""
    return {"mass": mass, "inertia": model.parameter("inertia") * mass[:, None]}


def learn(iterations: int, console: Console) -> dict:
    model = build_arm()
    simulator = bd.Simulator(model, DT)
    generator = torch.Generator().manual_seed(0)
    start = model.initial_state(BATCH)
    start = bd.State(start.q + 0.5 * torch.randn(start.q.shape, generator=generator, dtype=torch.float64), start.v)
    # smooth random torques: a few sines per motor
    t = torch.arange(STEPS, dtype=torch.float64)[:, None, None, None] * DT
    amplitude = torch.randn(1, BATCH, model.nu, 3, generator=generator, dtype=torch.float64)
    frequency = 1.0 + 4.0 * torch.rand(1, BATCH, model.nu, 3, generator=generator, dtype=torch.float64)
    controls = (amplitude * torch.sin(frequency * t)).sum(-1) * torch.tensor([2.0, 8.0, 4.0, 1.0])

    with torch.no_grad():
        observed = simulator.rollout(start, controls, parameters=parameters(model, TRUE_MASSES))
        angles = observed.q + 1e-3 * torch.randn(observed.q.shape, generator=generator, dtype=torch.float64)

    log_mass = torch.zeros(4, dtype=torch.float64, requires_grad=True)  # a mass of 1 kg each, and never negative
    optimizer = torch.optim.Adam([log_mass], lr=0.05)
    losses, masses = [], [log_mass.detach().exp()]
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[text]}"), TimeRemainingColumn())
    began = time.perf_counter()
    with Progress(*columns, console=console) as progress:
        task = progress.add_task("learning", total=iterations, text="")
        for _ in range(iterations):
            optimizer.zero_grad()
            path = simulator.rollout(start, controls, parameters=parameters(model, log_mass.exp()))
            loss = (path.q - angles).square().mean()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
            masses.append(log_mass.detach().exp())
            estimate = ", ".join(f"{m:.2f}" for m in masses[-1])
            progress.update(task, advance=1, text=f"loss {loss.item():.1e}  masses {estimate} kg")
    seconds = time.perf_counter() - began
    with torch.no_grad():
        learned = simulator.rollout(start, controls, parameters=parameters(model, masses[-1]))
        guessed = simulator.rollout(start, controls, parameters=parameters(model, masses[0]))
    return {
        "masses": torch.stack(masses), "losses": losses, "seconds": seconds,
        "paths": {"observed": observed, "learned": learned, "first guess": guessed},
    }  # fmt: skip


def draw(result: dict, path: Path) -> None:
    figure = plt.figure(figsize=(13, 4.2), constrained_layout=True)
    arms = figure.add_subplot(1, 3, 1, projection="3d")
    shades = {"observed": "0.2", "learned": "tab:orange"}
    for k, step in enumerate((0, 30, 60, 99)):
        for label, color in shades.items():
            joints = arm_points(result["paths"][label], step)
            width = 5 if label == "observed" else 2
            style = {"color": color, "lw": width, "marker": "o", "ms": width, "alpha": 0.25 + 0.25 * k}
            arms.plot(*joints.T, **style, label=label if k == 3 else None)
    arms.set_title("the arm at four times")
    arms.set(xlim=(-0.8, 0.8), ylim=(-0.8, 0.8), zlim=(-0.2, 1.4), box_aspect=(1, 1, 1))
    arms.legend(loc="upper left")
    hand = figure.add_subplot(1, 3, 2)
    for label, color in (("first guess", "tab:blue"), ("observed", "0.2"), ("learned", "tab:orange")):
        trajectory = result["paths"][label]
        height = trajectory.position("hand")[:, 0, 2]
        hand.plot(trajectory.time, height, color=color, lw=4 if label == "observed" else 1.5, label=label)
    hand.set(xlabel="time (s)", ylabel="height of the hand (m)", title="the motion")
    hand.legend()
    masses = figure.add_subplot(1, 3, 3)
    for i, name in enumerate(BODIES):
        (line,) = masses.plot(result["masses"][:, i], label=name)
        masses.axhline(TRUE_MASSES[i], color=line.get_color(), ls=":", lw=1)
    masses.set(xlabel="gradient step", ylabel="mass (kg)", title="convergence (dotted: the truth)")
    masses.legend()
    save(figure, path)


def arm_points(trajectory: bd.Trajectory, step: int) -> torch.Tensor:
    """Where the ends of the links are in the first environment: [5, 3]."""
    ends = [torch.zeros(3, dtype=torch.float64)]
    for name, length in zip(BODIES, LENGTHS, strict=True):
        up = trajectory.rotation(name)[step, 0, :, 2]
        ends.append(trajectory.position(name)[step, 0] + length / 2 * up)
    return torch.stack(ends)


def main() -> None:
    options, console = arguments(__doc__, iterations=(250, "gradient steps")), Console()
    result = learn(options.iterations, console)
    error = ((result["masses"][-1] - TRUE_MASSES) / TRUE_MASSES).abs().max().item()
    picture, motion = options.out / "learn_arm_masses.png", options.out / "learn_arm_masses.mp4"
    draw(result, picture)
    film(result["paths"]["learned"], motion, trail=BODIES[-1:])
    console.print(
        f"{options.iterations} gradients through {BATCH} arms x {STEPS} steps in {result['seconds']:.2f} s; "
        f"largest error of a mass {100 * error:.2f} %"
    )
    written(console, picture, motion)


if __name__ == "__main__":
    main()
