"""Looking at motions: how fast they are on the page, how large pages in files are, and how long films take.

python -m benchmarks --only view
ROBOT=go1/scene.xml python -m benchmarks --only view      of a robot of one's own: a MJCF or URDF file
"""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path

import torch

import backdrive as bd
from backdrive.envs import laikago

from .report import Table, Target
from .timing import Run

LIVE_SECONDS, LIVE_RATE = 5.0, 30.0
ROBOTS, STEPS, LOAD_SECONDS = 16, 10_000, 3.0
PAGE_SECONDS, PAGE_MEGABYTES = 10.0, 10.0
FILM_SECONDS = 20.0
QUIET = {"block": False, "open": False}


def measure(run: Run) -> list[Table]:
    name, simulator, state = _robot()
    table = Table(f"Looking at {name}", ["", "measured"])
    run.tell("live")
    rate, share = _live(simulator, state, LIVE_SECONDS / (2 if run.quick else 1))
    table.add("live: pictures sent per second", f"{rate:.1f}", target=Target(rate, LIVE_RATE, "/s", at_least=True))
    table.add("live: simulated time by time", f"{share:.3f}", target=Target(share, 0.95, "×", at_least=True))
    run.tell("a long motion of many robots")
    seconds = _load(simulator, state)
    what = f"{ROBOTS} robots, {STEPS:,} steps: from the trajectory to the served page"
    table.add(what, f"{seconds:.2f} s", target=Target(seconds, LOAD_SECONDS, "s"))
    run.tell("a page in a file, and a film")
    steps = round(PAGE_SECONDS / simulator.dt)
    path = simulator.rollout(state, _controls(simulator, state, steps))
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        bd.view.export(path, Path(folder) / "motion.html")
        seconds, size = time.perf_counter() - start, (Path(folder) / "motion.html").stat().st_size / 1e6
        table.add("a page of 10 s: size", f"{size:.2f} MB", target=Target(size, PAGE_MEGABYTES, "MB"))
        table.add("a page of 10 s: time to write it", f"{seconds:.2f} s")
        start = time.perf_counter()
        bd.view.animate(path, Path(folder) / "film.mp4", fps=30.0)
        seconds = time.perf_counter() - start
        table.add("a film of 10 s, 640 × 480, 30/s", f"{seconds:.1f} s", target=Target(seconds, FILM_SECONDS, "s"))
    return [table]


def _robot() -> tuple[str, bd.Simulator, bd.State]:
    """Laikago, or the robot of the file that $ROBOT names, in its first keyframe."""
    file = os.environ.get("ROBOT")
    if not file:
        model = laikago.laikago_model()
        return "Laikago", bd.Simulator(model, 0.002), model.initial_state()
    model = bd.load(file)
    soft = model.soft is not None
    simulator = bd.Simulator(model, physics="mujoco") if soft else bd.Simulator(model, model.timestep or 0.002)
    return Path(file).parent.name, simulator, next(iter(model.keyframes.values()), model.initial_state())


def _controls(simulator: bd.Simulator, state: bd.State, steps: int) -> torch.Tensor:
    """Those that hold the start, where motors are servos, with some swaying."""
    model = simulator.model
    hold = torch.tensor([state.q[q].item() if 0 <= q < model.nq else 0.0 for q in model.motor_q.tolist()])
    servo = torch.tensor([kind in ("position", "general") for kind in model.motor_kinds])
    sway = 0.1 * torch.sin(6.0 * simulator.dt * torch.arange(steps, dtype=torch.float64))
    return (torch.where(servo, hold.double(), 0.0) + sway[:, None]).to(simulator.dtype)


def _live(simulator: bd.Simulator, state: bd.State, seconds: float) -> tuple[float, float]:
    """Pictures per second, and simulated seconds per second, after a first second to compile."""
    with bd.view.show(simulator, state, **QUIET) as viewer:
        while viewer.driver.time < 1.0:
            time.sleep(0.05)
        start, frames, before = time.perf_counter(), viewer.frames, viewer.driver.time
        time.sleep(seconds)
        passed = time.perf_counter() - start
        return (viewer.frames - frames) / passed, (viewer.driver.time - before) / passed


def _load(simulator: bd.Simulator, state: bd.State) -> float:
    """From the trajectory to a page that can be opened, with its first picture."""
    start = bd.State(*(x.expand(ROBOTS, -1).clone() for x in state))
    path = simulator.rollout(start, _controls(simulator, state, STEPS))
    begin = time.perf_counter()
    with bd.view.show(path, **QUIET):
        return time.perf_counter() - begin
