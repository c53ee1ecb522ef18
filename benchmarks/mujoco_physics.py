"""MuJoCo's own physics against MuJoCo itself: speed, gradients, Jacobians of steps, first use. One core, float64.

Both engines step the same states with the same options: the file's integrator and cones, Newton's method.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import mujoco
import mujoco.rollout
import numpy as np
import torch
from torch import Tensor

import backdrive as bd

from . import laikago
from .contact import first, forward
from .control import differences
from .engines import Array, MuJoCo
from .gradient import gradient
from .report import Table, Target, microseconds
from .timing import Case, Run

BATCH, FEW = 1024, 128  # environments; few of them in a quick run
STEPS = 20
ALONE = 200  # steps of a single environment in one call
SLICE = 16  # environments per call of MuJoCo, whose time per step does not depend on it
BEFORE = 0.5  # s of motion before the measured steps
STATES, FEW_STATES = 256, 4  # to linearise at; by MuJoCo, whose time per state does not depend on their number


def gymnasium_model(name: str) -> str:
    """One of Gymnasium's files, as it is."""
    found = importlib.util.find_spec("gymnasium")
    if found is None or found.origin is None:
        raise RuntimeError(f"{name}.xml comes with gymnasium: pip install 'gymnasium[mujoco]'")
    return Path(found.origin).parent.joinpath(f"envs/mujoco/assets/{name}.xml").read_text("utf-8")


@dataclass
class Robot:
    """A world in both engines, on its way: states, and the controls [T, B, nu] of the steps that follow.

    hold [nu]: the mean of the controls; noise: their standard deviation, as a part of the range of the motors (of
    servos without a range: rad).
    """

    mjcf: str
    noise: float
    hold: Tensor | float = 0.0
    lift: float | None = None  # m: height at the start, if the file does not say it
    euler: bool = False  # instead of the file's integrator

    def __post_init__(self) -> None:
        self.model = bd.load(self.mjcf)
        self.engine = MuJoCo(self.mjcf, contact=True, dt=mujoco.MjModel.from_xml_string(self.mjcf).opt.timestep)
        self.engine.model.opt.solver = mujoco.mjtSolver.mjSOL_NEWTON
        physics = bd.MuJoCo(integrator="euler" if self.euler else None)
        if self.euler:
            self.engine.model.opt.integrator = mujoco.mjtIntegrator.mjINT_EULER
        self.simulator = bd.Simulator(self.model, physics=physics, threads=1)

    def moving(self, batch: int, steps: int) -> tuple[bd.State, Tensor]:
        random = torch.Generator().manual_seed(0)

        def normal(*shape: int) -> Tensor:
            return torch.randn(*shape, generator=random, dtype=torch.float64)

        m, before = self.engine.model, round(BEFORE / self.engine.model.opt.timestep)
        reach = torch.from_numpy(np.where(m.actuator_ctrllimited, m.actuator_ctrlrange[:, 1], 1.0))
        controls = self.hold + self.noise * reach * normal(before + steps, batch, m.nu)
        q, v = self.model.initial_state(batch)
        if self.lift is not None:
            q[:, 2], q[:, 7:] = self.lift, self.hold
        v = v + 0.1 * normal(batch, m.nv)
        with torch.no_grad():
            state = self.simulator.rollout(bd.State(q, v), controls[:before], adjoint=bd.Checkpoint(before)).last
        return state, controls[before:]


def robots(euler: bool = False) -> dict[str, Callable[[], Robot]]:
    standing, pose = laikago.on_floor(), laikago.pose()
    return {
        "Ant": lambda: Robot(gymnasium_model("ant"), 0.5, euler=euler),
        "Humanoid": lambda: Robot(gymnasium_model("humanoid"), 0.5, euler=euler),
        "Laikago standing": lambda: Robot(standing, laikago.NOISE, pose, laikago.HEIGHT, euler),
        "Laikago stumbling": lambda: Robot(standing, 0.3, pose, laikago.HEIGHT, euler),
    }


def measure(run: Run) -> list[Table]:
    return [*(_speed(run, name, make()) for name, make in robots().items()), _linearize(run), _first_use(run)]


def _speed(run: Run, name: str, robot: Robot) -> Table:
    run.tell(f"{name} gets moving")
    batch, simulator = FEW if run.quick else BATCH, robot.simulator
    state, controls = robot.moving(batch, ALONE)
    many, one = (state, controls[:STEPS]), first(1, state, controls)
    cases: dict[str, Case] = {
        "MuJoCo": (_theirs(robot, state, controls[:STEPS, :SLICE]), SLICE * STEPS),
        "MuJoCo, one": (_theirs(robot, state, controls[:, :1]), ALONE),
        "batch": (forward(simulator, *many), batch * STEPS),
        "one": (forward(simulator, *one), ALONE),
        "batch gradient": (lambda: gradient(simulator, *many), batch * STEPS),
        "one gradient": (lambda: gradient(simulator, *one), ALONE),
    }
    time = run.interleave(cases, seconds=20)
    table = Table(f"MuJoCo's physics: {name}", ["", "µs per env-step", "ratio"])
    for label, ours, theirs, bound in (
        (f"batch {batch:,}", "batch", "MuJoCo", 10.0),
        ("one environment", "one", "MuJoCo, one", 2.5),
    ):
        speed, cost = time[theirs] / time[ours], time[f"{ours} gradient"] / time[ours]
        table.add("MuJoCo" if ours == "batch" else theirs, microseconds(time[theirs]), "")
        target = Target(speed, bound, "×", at_least=True)
        table.add(f"backdrive, {label}", microseconds(time[ours]), f"{speed:.2f} × MuJoCo", target=target)
        target = Target(cost, 3.0, "× forward")
        total = microseconds(time[f"{ours} gradient"])
        table.add(f"backdrive, {label}, gradient with forward", total, f"{cost:.2f} × forward", target=target)
    path = forward(simulator, *many)()
    table.check("part of the steps that did not converge", float((~path.status.converged).double().mean()), 0)
    touching = float(path.status.contacts.double().mean())
    table.notes.append(f"{robot.engine.model.nv} freedoms, {touching:.1f} contacts that press on average.")
    return table


def _theirs(robot: Robot, state: bd.State, controls: Tensor) -> Callable[[], tuple[Array, Array]]:
    batch = controls.shape[1]
    given = controls.transpose(0, 1).contiguous().numpy()
    return robot.engine.roller(state.q[:batch].numpy(), state.v[:batch].numpy(), given)


def _linearize(run: Run) -> Table:
    table = Table(f"MuJoCo's physics: linearize, {STATES} states", ["", "µs per state", "ratio"])
    for name, make in robots(euler=True).items():
        run.tell(f"{name} gets moving")
        robot = make()
        state, controls = robot.moving(STATES, 1)
        u, nq = controls[0].contiguous(), robot.model.nq
        few = np.concatenate([x[:FEW_STATES].numpy() for x in state], 1), u[:FEW_STATES].numpy()
        cases: dict[str, Case] = {
            "MuJoCo": (_differences(robot, *few, nq), FEW_STATES),
            "backdrive": (_jacobians(robot, state, u), STATES),
        }
        time = run.interleave(cases, seconds=8)
        ratio = time["MuJoCo"] / time["backdrive"]
        table.add(f"{name}: MuJoCo, mjd_transitionFD", microseconds(time["MuJoCo"]), "")
        target = Target(ratio, 10.0, "×", at_least=True)
        table.add(f"{name}: backdrive", microseconds(time["backdrive"]), f"{ratio:.1f} × MuJoCo", target=target)
    table.notes.append("mjd_transitionFD by forward differences; by Euler's method, since it does not know RK4.")
    return table


def _differences(robot: Robot, x: Array, u: Array, nq: int) -> Callable[[], tuple[Array, Array]]:
    return lambda: differences(robot.engine, x, u, nq)


def _jacobians(robot: Robot, state: bd.State, u: Tensor) -> Callable[[], tuple[Tensor, Tensor]]:
    return lambda: robot.simulator.linearize(state, u)


def _first_use(run: Run) -> Table:
    table = Table("MuJoCo's physics: first rollout and gradient of the Humanoid, s", ["", "forward", "adjoint", "both"])
    with run.empty_cache() as cache:
        for label, bound in (("nothing cached", 8.0), ("from the disk cache", 0.3)):
            found = run.fresh("first_use_of_mujoco", gymnasium_model("humanoid"), cache=cache)
            both = found["forward"] + found["adjoint"]
            cells = f"{found['forward']:.2f}", f"{found['adjoint']:.2f}", f"{both:.2f}"
            table.add(label, *cells, target=Target(both, bound, "s"))
    table.notes.append("In fresh processes, after import and load, one step each way.")
    return table
