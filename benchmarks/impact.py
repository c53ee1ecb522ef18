"""Steps split at their impacts: what that costs where nothing hits, and thirty balls in a box."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

import backdrive as bd
from backdrive.differences import central, relative_error

from .contact import first, forward
from .report import Table, Target, microseconds
from .robots import standing_laikago
from .timing import Case, Run

BATCH, FEW = 1024, 128  # environments; few of them in a quick run
SETTLE, STEPS, ALONE = 0.5, 50, 200  # s before the measured steps; how many; of a single environment
BALLS, SIDE = 30, 2.0  # m
TIME, BOX_DT, EARLY = 5.0, 1 / 60, 0.5  # s; of the check of the gradient
LCP_PHYSICS = 8.9e-3  # s per step of thirty balls, the project's own figure, from another machine
SPEEDUP = 100


def measure(run: Run) -> list[Table]:
    return [_standing(run), _balls(run)]


# ------------------------------------------------------------------------------------------ standing


def _standing(run: Run) -> Table:
    run.tell("Laikago settles")
    robot, batch = standing_laikago(), FEW if run.quick else BATCH
    simulators = {impacts: robot.simulator(impacts=impacts) for impacts in (False, True)}
    before = round(SETTLE / robot.dt)
    start, controls = robot.stance(batch, before + ALONE)
    with torch.no_grad():
        state = simulators[True].rollout(start, controls[:before], adjoint=bd.Checkpoint(before)).last
    many, one = (state, controls[before : before + STEPS]), first(1, state, controls[before:])
    cases: dict[str, Case] = {}
    for impacts, simulator in simulators.items():
        cases[f"many {impacts}"] = forward(simulator, *many), batch * STEPS
        cases[f"one {impacts}"] = forward(simulator, *one), ALONE
    time = run.interleave(cases, seconds=30)
    table = Table(
        "Impacts: Laikago standing, its steps watched for impacts",
        ["", "µs per env-step", "impacts=False", "ratio"],
    )
    for name, label in (("many", f"batch {batch:,}"), ("one", "one environment")):
        split, plain = time[f"{name} True"], time[f"{name} False"]
        target = Target(split / plain, 1.3, "× impacts=False")
        table.add(label, microseconds(split), microseconds(plain), f"{split / plain:.2f} ×", target=target)
    paths = {impacts: cases[f"many {impacts}"][0]() for impacts in simulators}
    for impacts, path in paths.items():
        lost = float((~path.status.converged).double().mean())
        table.check(f"impacts={impacts}: part of the steps that did not converge", lost, 0)
    hits = paths[True].status.impacts
    table.check("impacts per env-step", hits.double().mean(), 1e-3)
    apart = (paths[True].last.q - paths[False].last.q).abs().amax(-1)
    what = "q after the measured steps where nothing hit, impacts=True - impacts=False"
    table.check(what, apart[hits.sum(0) == 0].max(), 1e-9)
    table.notes.append(
        f"The robot of the contact table, on its four feet, {SETTLE:g} s after it was put down. Resting contacts "
        "cause no impacts: the time is that of watching for them."
    )
    return table


# ------------------------------------------------------------------------------------------ balls


def balls_in_a_box() -> bd.Model:
    """Elastic discs of three sizes between four walls, without weight and friction, with random velocities, 1 m/s."""
    scene = bd.Scene(dim=2, gravity=(0.0, 0.0))
    for normal, offset in (((1, 0), 0.0), ((-1, 0), -SIDE), ((0, 1), 0.0), ((0, -1), -SIDE)):
        scene.add_static(bd.HalfSpace(normal=normal, offset=offset), restitution=1.0, friction=0.0)
    random = torch.Generator().manual_seed(0)
    for k in range(BALLS):
        kind, velocity = k % 3, torch.randn(2, generator=random, dtype=torch.float64).tolist()
        scene.add_body(
            f"ball {k}", bd.Circle(0.06 + 0.02 * kind), mass=1.0 + 0.5 * kind, velocity=velocity,
            position=(0.2 + 0.3 * (k // 5), 0.2 + 0.3 * (k % 5)), restitution=1.0, friction=0.0,
        )  # fmt: skip
    return scene.build()


def _balls(run: Run) -> Table:
    model, steps = balls_in_a_box(), round(TIME / BOX_DT)
    kinds: dict[str, bool | str] = {"rolled kernel (default)": "auto"}
    if not run.quick:
        kinds["specialised kernel"] = True
    simulators = {
        name: bd.Simulator(model, BOX_DT, impacts=True, specialize=special, threads=1)
        for name, special in kinds.items()
    }
    start, cases = model.initial_state(), {}
    for name, simulator in simulators.items():
        run.tell(f"{name} compiles")
        cases[f"{name} forward"] = _rollout(simulator, start, steps), steps
        cases[f"{name} gradient"] = _gradient(simulator, start, steps), steps
    time = run.interleave(cases, seconds=60)
    table = Table(
        f"Impacts: {BALLS} elastic balls in a box, 2D, one world, {TIME:g} s in steps of 1/{round(1 / BOX_DT)} s",
        ["", "µs per step", "ratio"],
    )
    table.add("lcp-physics, plain time stepping", f"{LCP_PHYSICS * 1e6:,.0f}", "1")
    for name in simulators:
        t, bound = time[f"{name} forward"], LCP_PHYSICS / SPEEDUP
        target = Target(t * 1e6, bound * 1e6, "µs")
        table.add(f"backdrive, exact impacts, {name}", microseconds(t), f"{LCP_PHYSICS / t:.0f} ×", target=target)
    for name in simulators:
        total, alone = time[f"{name} gradient"], time[f"{name} forward"]
        table.add(f"backdrive, forward and gradient, {name}", microseconds(total), f"{total / alone:.2f} × forward")
    for name, simulator in simulators.items():
        path = _rollout(simulator, start, steps)()
        energy = (0.5 * model.parameter("mass").repeat_interleave(3) * path.v.square()).sum(-1)
        table.check(f"{name}: energy, relative error", (energy / energy[0] - 1).abs().max(), 1e-10)
        unsure = path.status.fallbacks + path.status.simultaneous
        table.check(f"{name}: steps with too many or several impacts at once", unsure.count_nonzero(), 0)
        what = f"{name}: derivative after {EARLY:g} s along a random change of the start - central difference, relative"
        table.check(what, _difference(simulator, start, round(EARLY / BOX_DT)), 1e-5)
        hits = int(path.status.impacts.sum())
        table.notes.append(
            f"{name}: {hits:,} impacts, {hits / steps:.2f} per step, at most {path.status.impacts.max()}."
        )
    table.notes += [
        "lcp-physics was not run here: its time is the project's figure, from another machine and its own scene.",
        f"The motion is chaotic: over {TIME:g} s the gradient is exact and of no use, so that it is checked earlier.",
    ]
    return table


def _rollout(simulator: bd.Simulator, start: bd.State, steps: int) -> Callable[[], bd.Trajectory]:
    def call() -> bd.Trajectory:
        with torch.no_grad():
            return simulator.rollout(start, steps=steps)

    return call


def _gradient(simulator: bd.Simulator, start: bd.State, steps: int) -> Callable[[], tuple[Tensor, ...]]:
    """Of |q|² at the end, with respect to the start."""
    q, v = (x.clone().requires_grad_() for x in start)

    def call() -> tuple[Tensor, ...]:
        last = simulator.rollout(bd.State(q, v), steps=steps).last
        return torch.autograd.grad(last.q.square().sum(), (q, v))

    return call


def _difference(simulator: bd.Simulator, start: bd.State, steps: int, size: float = 1e-8) -> float:
    """Relative error of the derivative along one direction in the space of start states."""
    random = torch.Generator().manual_seed(1)
    along = [torch.randn(x.shape, generator=random, dtype=x.dtype) for x in start]

    def loss(by: float) -> float:
        moved = bd.State(*(x + by * d for x, d in zip(start, along)))
        return float(_rollout(simulator, moved, steps)().last.q.square().sum())

    exact = sum(float((g * d).sum()) for g, d in zip(_gradient(simulator, start, steps)(), along))
    return relative_error(exact, central(loss, size))
