"""What a user waits for before the first result, and what a call costs besides the physics."""

from __future__ import annotations

import os
from collections.abc import Callable

import torch

import backdrive as bd

from .report import Table, Target
from .robots import pendulum
from .timing import Case, Run


def measure(run: Run) -> list[Table]:
    free = _first_use(run, "First rollout and gradient of Laikago, s", "laikago", (1.5, 3.0, 0.2))
    contact = _first_use(
        run,
        "First rollout and gradient of Laikago with contact, s",
        "standing_laikago",
        (3.0, 6.0, 0.3),
        "standing_ant",
    )
    return [free, contact, _imports(run), _calls(run)]


def _first_use(run: Run, title: str, robot: str, bounds: tuple[float, float, float], other: str | None = None) -> Table:
    """Of a robot; then of another one, which should find the rolled kernels in the cache.

    bounds: s; rolled, specialised, cached.
    """
    table = Table(title, ["", "forward", "adjoint", "both"])
    rolled, specialised, cached = bounds
    repetitions = 1 if run.quick else 3
    targets: dict[str, float] = {}
    results: dict[str, list[dict[str, float]]] = {}
    compiled_again, compiled_for_other = 0, 0

    def use(name: str, bound: float, specialize: bool, which: str, cache: str) -> int:
        """How many kernels this added to the cache."""
        before = set(os.listdir(cache))
        results.setdefault(name, []).append(run.fresh("first_use", specialize, which, cache=cache))
        targets[name] = bound
        return len(set(os.listdir(cache)) - before)

    for _ in range(repetitions):
        for kind, specialize, bound in (("rolled", False, rolled), ("specialised", True, specialised)):
            with run.empty_cache() as cache:
                use(f"{kind}, nothing cached", bound, specialize, robot, cache)
                compiled_again += use(f"{kind}, from the disk cache", cached, specialize, robot, cache)
                if other and not specialize:
                    compiled_for_other += use(f"{kind}, then {other}", cached, specialize, other, cache)
    for name, runs in results.items():
        best = min(runs, key=lambda r: r["forward"] + r["adjoint"])
        both = best["forward"] + best["adjoint"]
        target = Target(both, targets[name], "s")
        table.add(name, f"{best['forward']:.2f}", f"{best['adjoint']:.2f}", f"{both:.2f}", target=target)
    table.check("kernels compiled although cached (was the source edited meanwhile?)", compiled_again, 0)
    table.notes.append(f"In fresh processes, after import and load, one step each way; the best of {repetitions}.")
    if other:
        table.notes.append(
            f"Rolled kernels are to serve every model: {other} compiled {compiled_for_other / repetitions:g} more."
        )
    return table


def _imports(run: Run) -> Table:
    table = Table("Import, s", ["", "time"])
    runs = [run.fresh("import_time") for _ in range(2 if run.quick else 8)]
    added = min(r["backdrive"] for r in runs)
    table.add("import torch", f"{min(r['torch'] for r in runs):.2f}")
    table.add("import backdrive, after torch", f"{added:.3f}", target=Target(added, 0.3, "s"))
    return table


def _calls(run: Run) -> Table:
    """A pendulum of one link, whose step takes the kernel next to no time."""
    robot = pendulum(1)
    simulator = robot.simulator()
    batched, controls = robot.motion(1, 1000)
    single = bd.State(batched.q[0], batched.v[0])

    def step(state: bd.State, control: torch.Tensor, back: bool = False) -> Callable[[], None]:
        def call() -> None:
            after = simulator.step(state, control)
            if back:
                torch.autograd.grad(after.v.sum(), control)

        return call

    def roll(steps: int) -> Case:
        return _no_grad(lambda: simulator.rollout(single, controls[:steps, 0])), 1

    cases: dict[str, Case] = {"1 step": roll(1), "1,000 steps": roll(1000)}
    shapes = (("one world", single, controls[0, 0]), ("batch of 1", batched, controls[0]))
    for shape, state, control in shapes:
        wanted = control.clone().requires_grad_()
        cases |= {
            f"{shape}, no_grad": (_no_grad(step(state, control)), 1),
            f"{shape}, recording": (step(state, wanted), 1),
            f"{shape}, step + backward": (step(state, wanted, back=True), 1),
        }
    time = run.interleave(cases, seconds=20)
    kernel = (time.pop("1,000 steps") - time.pop("1 step")) / 999
    table = Table("Overhead of a step call, µs (a pendulum of one link)", ["", "overhead"])
    for name, seconds in time.items():
        overhead = (seconds - kernel) * 1e6
        target = None if "backward" in name else Target(overhead, 60, "µs")
        table.add(name, f"{overhead:.1f}", target=target)
    table.notes.append(
        f"The kernel's own {kernel * 1e6:.3f} µs, the slope of rollouts of 1 and 1,000 steps, are subtracted."
    )
    return table


def _no_grad(call: Callable[[], object]) -> Callable[[], object]:
    def quiet() -> object:
        with torch.no_grad():
            return call()

    return quiet
