"""A cartpole swings up: iLQR plans, and feedback makes the plan work where the world is not quite as planned.

The pole hangs at rest, and the motor may push with 10 N at most. iLQR finds the push for every step. On a cart whose
pole is 15 % heavier than planned, these pushes alone fail; with the feedback gains that iLQR gives along with its plan
the pole stands up, and `MPC`, which plans again at every step, keeps it there.

    python examples/swing_up.py [--iterations 200] [--out results]
"""

from __future__ import annotations

import math
from pathlib import Path

import torch
from helper import arguments, film, plt, save, written
from rich.console import Console

import backdrive as bd
from backdrive.control import ILQR, MPC, Cost, optimize, quadratic

DT, STEPS, HOLD = 0.02, 100, 50  # s; steps of the plan, and after it
HEAVIER = 1.15
HORIZON = 40  # steps that MPC looks ahead


def build(factor: float = 1.0) -> bd.Model:
    """A pole of 0.1 kg (times a factor) and 1 m on a cart of 1 kg."""
    scene = bd.Scene(dim=2)
    cart = scene.add_body("cart", bd.Box(0.4, 0.2), mass=1.0, position=(0.0, 0.0))
    pole = scene.add_body("pole", bd.Box(0.06, 1.0), mass=0.1 * factor, position=(0.0, -0.5))
    rail = scene.add_joint("rail", bd.Slider(axis=(1.0, 0.0)), parent=None, child=cart)
    scene.add_joint("pivot", bd.Hinge(), parent=cart, child=pole, anchor=(0.0, 0.0))
    scene.exclude(cart, pole)
    scene.add_motor("motor", joint=rail, limits=(-10.0, 10.0))
    return scene.build()


def stage(state: bd.State, u: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
    x, angle = state.q
    return 0.01 * (1 + torch.cos(angle)) + 1e-3 * x**2 + 1e-4 * (state.v.square().sum() + u.square().sum())


def final(state: bd.State) -> torch.Tensor:
    x, angle = state.q
    return 20 * (1 + torch.cos(angle)) + 5 * x**2 + state.v.square().sum()


def swing(iterations: int, console: Console) -> dict:
    sim, real = bd.Simulator(build(), DT), bd.Simulator(build(HEAVIER), DT)
    start = sim.model.initial_state()
    guess = torch.ones(STEPS, 1, dtype=torch.float64)  # a push to one side: a pole that hangs still is a saddle point
    plan = optimize(sim, Cost(stage, final), start, guess, method=ILQR(max_iterations=iterations))
    console.print(f"{plan}")

    blind = real.rollout(start, plan.controls)
    origin = bd.State(plan.states.q[:-1], plan.states.v[:-1])
    limits = tuple(torch.tensor(real.model.control_limits).T)
    guided, _ = real.track(start, plan.controls, plan.gains, origin, limits=limits)

    upright = bd.State(torch.tensor([0.0, math.copysign(math.pi, plan.states.q[-1, 1])]).double(), start.v)
    weights = torch.tensor([1.0, 10.0, 0.5, 0.5])
    mpc = MPC(sim, quadratic(sim, upright, weights, torch.tensor([0.01]), final=20 * weights), HORIZON)
    state, held = guided.last, []
    for _ in range(HOLD):
        held.append(mpc.act(state))
        state = real.step(state, held[-1])
    whole = real.rollout(guided.last, torch.stack(held))
    for name, last in (("pushes alone", blind.last), ("with feedback", guided.last), ("held by MPC", whole.last)):
        console.print(f"{name:>14}: {off(last):.2f} rad from upright, at {float(last.v[1]):.2f} rad/s")
    return {"plan": plan, "blind": blind, "guided": guided, "held": whole}


def off(state: bd.State) -> float:
    """How far the pole is from upright, rad."""
    return abs(math.remainder(float(state.q[1]) - math.pi, 2 * math.pi))


def draw(result: dict, picture: Path) -> None:
    figure, (world, angles, costs) = plt.subplots(1, 3, figsize=(14, 4), width_ratios=(0.8, 1, 1), layout="constrained")
    guided, plan = result["guided"], result["plan"]
    for k in range(0, STEPS + 1, 4):
        foot, tip = guided.position("cart")[k], 2 * guided.position("pole")[k] - guided.position("cart")[k]
        shade = plt.cm.viridis(k / STEPS)
        world.plot(*zip(foot.tolist(), tip.tolist()), color=shade, lw=2, alpha=0.8)
        world.plot(*foot.tolist(), "s", color=shade, ms=7)
    world.set(aspect="equal", xlabel="x (m)", title="every fourth step, with feedback (dark: first)")
    world.axhline(0, color="0.8", lw=1, zorder=0)
    for name, label in (("blind", "pushes alone"), ("guided", "with feedback")):
        angles.plot(guided.time, result[name].q[:, 1], label=label)
    angles.plot(guided.time[-1] + result["held"].time, result["held"].q[:, 1], color="C1", ls="--", label="held by MPC")
    angles.plot(guided.time, plan.states.q[:, 1], "k:", label="plan")
    angles.set(xlabel="time (s)", ylabel="angle (rad)", title=f"a pole {HEAVIER - 1:.0%} heavier than planned")
    angles.legend(fontsize=8)
    costs.semilogy(plan.history)
    costs.set(xlabel="iteration", ylabel="cost", title="iLQR")
    save(figure, picture)


def main() -> None:
    options, console = arguments(__doc__, iterations=(200, "of iLQR at most")), Console()
    picture, motion = options.out / "swing_up.png", options.out / "swing_up.mp4"
    result = swing(options.iterations, console)
    draw(result, picture)
    film(result["guided"], motion)
    written(console, picture, motion)


if __name__ == "__main__":
    main()
