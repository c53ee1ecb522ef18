"""Newton's cradle, and the cradle whose last ball flies highest.

Five balls hang side by side, a millimetre apart. The first one is let go: a wave of impacts passes through the row, and
the last one swings out. With ``impacts=True`` every step is split at its impacts, so that energy is conserved, and the
gradient passes exactly through all of them.

Then the last ball is made four times lighter than the first, and gradient ascent through the impacts looks for the
masses of the three balls between them that make it fly highest. Huygens knew the answer: a geometric series.

    python examples/newtons_cradle.py [--iterations 100] [--out results]
"""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import torch
from helper import arguments, film, plt, save, written
from matplotlib.patches import Circle
from rich.console import Console
from torch import Tensor

import backdrive as bd

BALLS, RADIUS, STRING, GAP = 5, 0.05, 0.6, 1e-3  # m
START, WEIGHT = -0.7, 9.81  # rad, N/kg
DT, SWINGS, HIT = 0.002, 2500, 250  # s; steps of the cradle; steps until the last ball is on its way
FIRST, LAST = 1.0, 0.25  # kg
HUYGENS = torch.logspace(math.log10(FIRST), math.log10(LAST), BALLS, dtype=torch.float64)
INERTIA = STRING**2 + RADIUS**2 / 2  # of a ball about its hinge, for 1 kg


def build_cradle() -> bd.Model:
    scene = bd.Scene(dim=2, gravity=(0.0, -WEIGHT))
    for i in range(BALLS):
        x = (i - (BALLS - 1) / 2) * (2 * RADIUS + GAP)
        ball = scene.add_body(
            f"ball {i}", bd.Circle(RADIUS), mass=1.0, position=(x, -STRING), restitution=1.0, friction=0.0
        )
        scene.add_joint(ball, bd.Hinge(), child=ball, anchor=(x, 0.0))
    return scene.build()


def swing(simulator: bd.Simulator, angle: Tensor, mass: Tensor, steps: int) -> bd.Trajectory:
    """Let the first ball go at an angle; a ball's inertia grows with its mass."""
    model = simulator.model
    rest = model.initial_state()
    inertia = model.parameter("inertia") * mass
    start = bd.State(torch.cat([angle[None], rest.q[1:]]), rest.v)
    return simulator.rollout(start, steps=steps, parameters={"mass": mass, "inertia": inertia})


def energy(q: Tensor, v: Tensor) -> Tensor:
    """Of every ball, per kg, J/kg: zero where it hangs at rest."""
    return 0.5 * INERTIA * v.square() + WEIGHT * STRING * (1 - q.cos())


def run(iterations: int, console: Console) -> dict:
    # Midpoint is of second order, so that the swings between impacts conserve energy, too.
    simulator = bd.Simulator(build_cradle(), DT, integrator=bd.Midpoint(), impacts=True)
    angle, equal = torch.tensor(START, dtype=torch.float64), torch.ones(BALLS, dtype=torch.float64)
    cradle = swing(simulator, angle, equal, SWINGS)
    total = energy(cradle.q, cradle.v).sum(-1)
    drift = float((total / total[0] - 1).abs().max())
    console.print(f"{cradle}")
    console.print(f"energy: conserved to {drift:.1e}")

    log_mass = torch.tensor([FIRST, *[FIRST] * (BALLS - 2), LAST], dtype=torch.float64).log().requires_grad_()
    free = torch.tensor([0.0, *[1.0] * (BALLS - 2), 0.0], dtype=torch.float64)  # those between the ends

    def height(log_mass: Tensor, angle: Tensor) -> Tensor:
        """To which the last ball will rise, m."""
        last = swing(simulator, angle, log_mass.exp(), HIT).last
        return energy(last.q[-1], last.v[-1]) / WEIGHT

    error = check(height, log_mass, angle)
    console.print(f"gradient of the height against differences: relative error {error:.1e}")
    optimizer = torch.optim.Adam([log_mass], lr=0.05)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, iterations)
    masses, heights = [log_mass.detach().exp()], [height(log_mass, angle).item()]
    for _ in range(iterations):
        optimizer.zero_grad()
        (-height(log_mass, angle)).backward()
        log_mass.grad *= free
        optimizer.step()
        schedule.step()
        masses.append(log_mass.detach().exp())
        heights.append(height(log_mass.detach(), angle).item())
    with torch.no_grad():
        after = swing(simulator, angle, masses[-1], 2 * HIT)
    console.print(
        f"{iterations} gradient steps: the last ball rises to {100 * heights[-1]:.2f} cm instead of "
        f"{100 * heights[0]:.2f} cm; masses {', '.join(f'{m:.3f}' for m in masses[-1])} kg "
        f"(Huygens: {', '.join(f'{m:.3f}' for m in HUYGENS)})"
    )
    return {
        "cradle": cradle, "drift": drift, "error": error, "masses": torch.stack(masses), "heights": heights,
        "after": after,
    }  # fmt: skip


def check(height: Callable[[Tensor, Tensor], Tensor], log_mass: Tensor, angle: Tensor, size: float = 1e-6) -> float:
    """The gradient with respect to all masses and the angle, against central differences: relative error."""
    x = torch.cat([log_mass.detach(), angle[None]]).requires_grad_()
    (gradient,) = torch.autograd.grad(height(x[:-1], x[-1]), x)
    with torch.no_grad():
        steps = size * torch.eye(len(x), dtype=torch.float64)
        plus, minus = ([height((x + s * e)[:-1], (x + s * e)[-1]) for e in steps] for s in (1, -1))
    difference = (torch.stack(plus) - torch.stack(minus)) / (2 * size)
    return float((gradient - difference).norm() / difference.norm())


def draw(result: dict, picture: Path) -> None:
    figure, (still, angles, tuned) = plt.subplots(
        1, 3, figsize=(14, 4.4), width_ratios=(1.35, 1.2, 1), constrained_layout=True
    )
    colors = plt.get_cmap("plasma")(torch.linspace(0.05, 0.85, BALLS).tolist())
    path, cradle = result["after"], result["cradle"]
    flight = int(path.q[:, -1].argmax())
    for step in torch.linspace(0, flight, 9).round().int().tolist():
        last, shade = step == flight, 0.15 + 0.85 * (step / flight) ** 2
        for i in range(BALLS):
            x = (i - (BALLS - 1) / 2) * (2 * RADIUS + GAP)
            at = path.position(f"ball {i}")[step].tolist()
            size = RADIUS * float(result["masses"][-1, i] / FIRST) ** (1 / 3)
            still.plot([x, at[0]], [0, at[1]], color="0.4", lw=0.8, alpha=shade)
            still.add_patch(Circle(at, size, fc=colors[i], ec="white" if last else "none", lw=1, alpha=shade, zorder=3))
    for height, label in ((result["heights"][0], "first guess"), (result["heights"][-1], "learned")):
        still.axhline(height - STRING, color="0.5", ls=":", lw=1)
        still.text(-0.85, height - STRING + 0.008, f"{100 * height:.1f} cm, {label}", fontsize=9, color="0.3")
    still.plot([-0.3, 0.3], [0, 0], color="0.2", lw=5, solid_capstyle="round")
    still.set(xlim=(-0.86, 0.86), ylim=(-0.68, 0.04), aspect="equal", title="the cradle with the learned masses")
    still.axis("off")
    for i in range(BALLS):
        angles.plot(cradle.time, torch.rad2deg(cradle.q[:, i]), color=colors[i], lw=1.8, label=f"ball {i + 1}")
    angles.set(xlabel="time (s)", ylabel="angle (degrees)")
    angles.set_title(f"equal masses: {int(cradle.status.impacts.sum())} impacts, energy within {result['drift']:.0e}")
    angles.legend(fontsize=8, loc="upper right", ncols=BALLS, handlelength=1, columnspacing=0.8)
    angles.set_ylim(-48, 58)
    for i in range(BALLS):
        tuned.plot(result["masses"][:, i], color=colors[i], lw=2)
        tuned.axhline(HUYGENS[i], color=colors[i], ls=":", lw=1)
    tuned.set(xlabel="gradient step", ylabel="mass (kg)", title="masses (dotted: Huygens)")
    save(figure, picture)


def main() -> None:
    options, console = arguments(__doc__, iterations=(100, "gradient steps")), Console()
    picture, motion = options.out / "newtons_cradle.png", options.out / "newtons_cradle.mp4"
    result = run(options.iterations, console)
    draw(result, picture)
    film(result["cradle"], motion)
    written(console, picture, motion)


if __name__ == "__main__":
    main()
