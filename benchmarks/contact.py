"""Robots that stand on their feet, the gradient of standing, and a chain hit by a ball: one core, float64."""

from __future__ import annotations

import math
from collections.abc import Callable

import mujoco
import numpy as np
import torch
from torch import Tensor

import backdrive as bd
from backdrive.differences import central, relative_error

from .engines import Array, MuJoCo
from .gradient import gradient
from .report import Table, Target, microseconds, per_second
from .robots import Standing, standing_ant, standing_laikago, struck_chain
from .timing import Case, Run

BATCH, FEW = 1024, 128  # environments; few of them in a quick run
STEPS = 50
SLICE = 8  # environments per call of MuJoCo, whose time per step does not depend on it
ALONE = 200  # steps of a single environment in one call
SETTLE = 1.0  # s before the measured steps, in which each engine comes to rest
FLIGHT = 10  # steps in the air, in which no joint reaches a limit
LONG = 1000  # steps of the gradient
LINKS, CHAIN_STEPS, CHAIN_DT = 10, 40, 0.01
LCP_PHYSICS = {"forward": 3150e-6, "gradient": 11300e-6}  # s per step of such a chain, measured on another machine
DEFAULT = "Gauss-Seidel"
SOLVERS: dict[str, bd.ProjectedGaussSeidel | bd.InteriorPoint] = {
    DEFAULT: bd.ProjectedGaussSeidel(),
    "interior point": bd.InteriorPoint(),
}
SOFT = 0.01  # 1/kg: softness of the Ant's contacts and limits in a row of their own
COLUMNS = ["", "µs per env-step", "env-steps/s", "ratio"]


def measure(run: Run) -> list[Table]:
    return [_laikago(run), _ant(run), _gradient(run), _chain(run)]


def settle(simulator: bd.Simulator, robot: Standing, batch: int, steps: int) -> tuple[bd.State, Tensor]:
    """Robots that have come to rest on their feet, and controls [T, B, nu] of the steps that follow."""
    before = round(SETTLE / robot.dt)
    state, controls = robot.stance(batch, before + steps)
    with torch.no_grad():
        last = simulator.rollout(state, controls[:before], adjoint=bd.Checkpoint(before)).last
    return last, controls[before:]


def first(count: int, state: bd.State, controls: Tensor) -> tuple[bd.State, Tensor]:
    """The first environments of a batch; one alone has no batch dimension."""
    if count == 1:
        return bd.State(state.q[0], state.v[0]), controls[:, 0].contiguous()
    return bd.State(state.q[:count], state.v[:count]), controls[:, :count].contiguous()


def forward(simulator: bd.Simulator, state: bd.State, controls: Tensor) -> Callable[[], bd.Trajectory]:
    def call() -> bd.Trajectory:
        with torch.no_grad():
            return simulator.rollout(state, controls)

    return call


# ------------------------------------------------------------------------------------------ standing


class Scenario:
    """A robot that stands, in both engines: each settles by itself, then the measured steps begin."""

    def __init__(self, robot: Standing, batch: int) -> None:
        self.robot, self.batch = robot, batch
        self.simulators = {name: robot.simulator(solver=solver) for name, solver in SOLVERS.items()}
        self.state, self.controls = settle(self.simulators[DEFAULT], robot, batch, ALONE)
        self.mujoco = MuJoCo(robot.mjcf, contact=True, dt=robot.dt)
        self.elliptic = MuJoCo(robot.mjcf, contact=True, dt=robot.dt, elliptic=True)
        self.plain = MuJoCo(robot.mjcf, contact=True, dt=robot.dt, tuned=False)
        before = round(SETTLE / robot.dt)
        state, controls = first(SLICE, *robot.stance(batch, before + ALONE))
        q, v = self.mujoco.roller(state.q.numpy(), state.v.numpy(), _swap(controls[:before]))()
        self.q, self.v = q[:, -1].copy(), v[:, -1].copy()

    def ours(self, simulator: bd.Simulator) -> Case:
        return forward(simulator, self.state, self.controls[:STEPS]), self.batch * STEPS

    def theirs(self, mujoco: MuJoCo) -> Case:
        return mujoco.roller(self.q, self.v, _swap(self.controls[:STEPS, :SLICE])), SLICE * STEPS

    def cases(self) -> dict[str, Case]:
        alone = self.mujoco.roller(self.q[:1], self.v[:1], _swap(self.controls[:, :1]))
        cases: dict[str, Case] = {
            "MuJoCo": self.theirs(self.mujoco),
            "MuJoCo, elliptic": self.theirs(self.elliptic),
            "MuJoCo, plain": self.theirs(self.plain),
            "MuJoCo, one": (alone, ALONE),
        }
        for name, simulator in self.simulators.items():
            cases[name] = self.ours(simulator)
            cases[f"{name}, one"] = forward(simulator, *first(1, self.state, self.controls)), ALONE
        return cases

    def rows(self, table: Table, time: dict[str, float]) -> None:
        batch = f"batch {self.batch:,}"
        _row(table, time, "MuJoCo", "MuJoCo, pyramidal cone (below: “MuJoCo”)", "MuJoCo")
        _row(table, time, "MuJoCo, elliptic", "MuJoCo, elliptic cone", "MuJoCo")
        _row(table, time, "MuJoCo, plain", "MuJoCo, its default options (with islands)", "MuJoCo")
        for name in SOLVERS:
            bound = 15 if name == DEFAULT else None
            _row(table, time, name, f"backdrive, {batch}, {name}", "MuJoCo", bound)
        _row(table, time, "MuJoCo, one", "MuJoCo, one environment", "MuJoCo, one")
        for name in SOLVERS:
            bound = 3 if name == DEFAULT else None
            _row(table, time, f"{name}, one", f"backdrive, one environment, {name}", "MuJoCo, one", bound)

    def check(self, table: Table, feet: float) -> None:
        """That both have the same robot, that it stands in both, on that many feet, and that the steps are solved."""
        peer = self.mujoco.roller(self.q, self.v, _swap(self.controls[:STEPS, :SLICE]))
        low, counts = self.robot.height - 0.03, self.mujoco.contacts(self.q, self.v, _swap(self.controls[:, :SLICE]))
        table.check("MuJoCo: feet that do not touch, mean", 4 - counts.mean(), 4 - feet)
        table.check("MuJoCo: part of the states lower than 3 cm below the pose", _part(peer()[0][..., 2] < low), 0)
        for name, simulator in self.simulators.items():
            path = self.ours(simulator)[0]()
            lost, deepest = _part(~path.status.converged), path.status.depth.nan_to_num(nan=torch.inf).max()
            table.check(f"{name}: feet that do not press, mean", 4 - path.status.contacts.double().mean(), 4 - feet)
            table.check(f"{name}: part of the states lower than 3 cm", _part(~(path.q[..., 2] >= low)), 0)
            table.check(f"{name}: part of the steps that did not converge", lost, 0)
            table.check(f"{name}: deepest penetration, m", deepest, 1e-4)
        state, controls = self.robot.stance(SLICE, FLIGHT, lift=10.0)
        path = self.simulators[DEFAULT].rollout(state, controls)
        implicit = MuJoCo(self.robot.mjcf, contact=True, dt=self.robot.dt)  # in the damping of servos, as backdrive is
        implicit.model.opt.integrator = mujoco.mjtIntegrator.mjINT_IMPLICITFAST
        air = implicit.roller(state.q.numpy(), state.v.numpy(), _swap(controls))()
        error = max(float(np.abs(x[-1].numpy() - y[:, -1]).max()) for x, y in zip((path.q, path.v), air))
        table.check(f"q and v after {FLIGHT} steps in the air, backdrive - MuJoCo by implicitfast", error, 1e-8)


def _row(table: Table, time: dict[str, float], name: str, label: str, other: str, bound: float | None = None) -> None:
    """A case, and its speed relative to another one."""
    t, ratio = time[name], time[other] / time[name]
    target = None if bound is None else Target(ratio, bound, "×", at_least=True)
    table.add(label, microseconds(t), per_second(t), f"{ratio:.2f} × MuJoCo", target=target)


def _laikago(run: Run) -> Table:
    run.tell("Laikago settles")
    batch = FEW if run.quick else BATCH
    feet, pyramids = Scenario(standing_laikago(), batch), (6, 8, math.inf)
    cases = feet.cases() | {"rolled": feet.ours(feet.robot.simulator(specialize=False))}
    for sides in pyramids:
        cases[f"{sides} sides"] = feet.ours(feet.robot.simulator(pyramid=sides))
    bodies = {"floor": "all shapes may touch the floor", "all": "all shapes may touch each other, too"}
    if run.quick:  # they compile for long
        bodies = {}
    for shapes in bodies:
        body = Scenario(standing_laikago(shapes), batch)
        cases |= {shapes: body.ours(body.simulators[DEFAULT]), f"MuJoCo, {shapes}": body.theirs(body.mujoco)}
    time = run.interleave(cases, seconds=90)
    table = Table("Contact: Laikago standing on four feet", COLUMNS)
    feet.rows(table, time)
    _row(table, time, "rolled", f"backdrive, batch {batch:,}, rolled kernel", "MuJoCo")
    for sides in pyramids:
        t = time[f"{sides} sides"]
        cost = f"{t / time[DEFAULT]:.2f} × time of 4"
        table.add(f"backdrive, batch {batch:,}, pyramid={sides}", microseconds(t), per_second(t), cost)
    for shapes, what in bodies.items():
        _row(table, time, f"MuJoCo, {shapes}", f"MuJoCo, {what}", "MuJoCo")
        _row(table, time, shapes, f"backdrive, batch {batch:,}, {what}", f"MuJoCo, {shapes}")
    feet.check(table, 3.99)
    table.notes += [
        "What may touch are the four spheres of the feet and a floor, unless the row says that all shapes may: "
        "the boxes and cylinders of the body, too. Position servos hold it; every environment has other controls.",
        f"Each engine settles for {SETTLE:g} s; then {STEPS} steps are measured (one environment: {ALONE}). MuJoCo: "
        f"Newton, without islands, midphase and sensors, {SLICE} environments a call. Its contacts are soft, and it "
        "stands 2 mm lower.",
    ]
    return table


def _ant(run: Run) -> Table:
    run.tell("Ant settles")
    batch = FEW if run.quick else BATCH
    still, wild = Scenario(standing_ant(), batch), Scenario(standing_ant(noise=0.3), batch)
    cases = still.cases() | {"MuJoCo, wild": wild.theirs(wild.mujoco)}
    cases |= {f"{name}, wild": wild.ours(simulator) for name, simulator in wild.simulators.items()}
    soft = still.robot.simulator(solver=bd.ProjectedGaussSeidel(cfm=SOFT))
    state, controls = settle(soft, still.robot, batch, ALONE)
    cases["soft"] = forward(soft, state, controls[:STEPS]), batch * STEPS
    cases["soft, one"] = forward(soft, *first(1, state, controls)), ALONE
    time = run.interleave(cases, seconds=60)
    table = Table("Contact: Ant standing on four feet", COLUMNS)
    still.rows(table, time)
    _row(table, time, "soft", f"backdrive, batch {batch:,}, {DEFAULT}, cfm={SOFT:g}", "MuJoCo")
    _row(table, time, "soft, one", f"backdrive, one environment, {DEFAULT}, cfm={SOFT:g}", "MuJoCo, one")
    _row(table, time, "MuJoCo, wild", "MuJoCo, motors at random", "MuJoCo")
    for name in SOLVERS:
        label = f"backdrive, batch {batch:,}, {name}, motors at random"
        _row(table, time, f"{name}, wild", label, "MuJoCo, wild")
    still.check(table, 3.5)
    depth = forward(soft, state, controls[:STEPS])().status.depth.max()
    table.check(f"cfm={SOFT:g}: deepest penetration, m", depth, 1e-4)
    table.notes.append(
        "gymnasium's ant.xml, in both engines with Euler's method (the file asks for Runge-Kutta, which this engine "
        "does not have) and without contact margins. Its ankles lie at their limits, so that nothing yields: more "
        "constraints than freedoms, and who carries what is sought anew in every step. A little softness "
        f"decides it (cfm={SOFT:g}, in 1/kg; MuJoCo's own is about 0.05 of the inverse mass of a foot, 15 / kg). "
        "The last rows: controls of ±0.3, with which it stumbles on one to three feet."
    )
    return table


# ------------------------------------------------------------------------------------------ gradient


def _gradient(run: Run) -> Table:
    robot = standing_laikago()
    simulators = {name: robot.simulator(solver=solver) for name, solver in SOLVERS.items()}
    sizes = {DEFAULT: (1, 64) if run.quick else (1, 64, BATCH), "interior point": (1,) if run.quick else (1, 64)}
    start = settle(simulators[DEFAULT], robot, max(sizes[DEFAULT]), LONG)
    table = Table(
        f"Contact: gradient of {LONG:,} steps of Laikago standing, forward included",
        ["", "µs per env-step", "forward alone", "× forward"],
    )
    cases: dict[str, Case] = {}
    for name, simulator in simulators.items():
        for batch in sizes[name]:
            cases[f"{name} {batch}"] = forward(simulator, *first(batch, *start)), batch * LONG
            cases[f"{name} {batch} gradient"] = _gradient_of(simulator, *first(batch, *start)), batch * LONG
    time = run.interleave(cases, seconds=60)
    for name in simulators:
        for batch in sizes[name]:
            alone, total = time[f"{name} {batch}"], time[f"{name} {batch} gradient"]
            many, cost = "one environment" if batch == 1 else f"batch {batch:,}", total / alone
            target = Target(cost, 3, "× forward") if name == DEFAULT else None
            cells = microseconds(total), microseconds(alone), f"{cost:.2f}"
            table.add(f"backdrive, {many}, {name}", *cells, target=target)
    one = first(1, *start)
    for name, simulator in simulators.items():
        path = simulator.rollout(*one)
        table.check(f"{name}: part of the steps that did not converge", _part(~path.status.converged), 0)
        table.check(f"{name}: part of the steps without four feet pressing", _part(path.status.contacts < 4), 0.01)
        what = f"{name}: derivative along a random change of {LONG:,} controls - central difference, relative"
        table.check(what, _difference(simulator, *one), 1e-5)
    table.notes.append("Of |q|² + |v|² of the last state, with respect to the start and all controls.")
    return table


def _gradient_of(simulator: bd.Simulator, state: bd.State, controls: Tensor) -> Callable[[], tuple[Tensor, ...]]:
    return lambda: gradient(simulator, state, controls)


def _difference(simulator: bd.Simulator, state: bd.State, controls: Tensor, size: float = 1e-7) -> float:
    """Relative error of the derivative along one direction in the space of all controls."""
    direction = torch.randn(controls.shape, generator=torch.Generator().manual_seed(1), dtype=controls.dtype)

    def loss(along: float) -> float:
        last = simulator.rollout(state, controls + along * direction).last
        return float(last.q.square().sum() + last.v.square().sum())

    exact = float((gradient(simulator, state, controls)[2] * direction).sum())
    return relative_error(exact, central(loss, size))


# ------------------------------------------------------------------------------------------ chain


def _chain(run: Run) -> Table:
    chain, apart = struck_chain(LINKS), struck_chain(LINKS, coordinates="maximal")
    simulators = {name: bd.Simulator(chain, CHAIN_DT, solver=solver, threads=1) for name, solver in SOLVERS.items()}
    simulators[f"{DEFAULT}, maximal coordinates"] = bd.Simulator(apart, CHAIN_DT, threads=1)
    cases: dict[str, Case] = {}
    for name, simulator in simulators.items():
        cases[f"{name} forward"] = _chain_forward(simulator), CHAIN_STEPS
        cases[f"{name} gradient"] = _chain_gradient(simulator), CHAIN_STEPS
    time = run.interleave(cases, seconds=30)
    table = Table(f"Contact: chain of {LINKS} links hit by a ball, 2D, one world", ["", "µs per step", "ratio"])
    for way, bound in (("forward", 20), ("gradient", 60)):
        what = way if way == "forward" else "forward and gradient"
        table.add(f"lcp-physics, {what}", f"{LCP_PHYSICS[way] * 1e6:,.0f}", "1")
        for name in simulators:
            t = time[f"{name} {way}"]
            target = Target(t * 1e6, bound, "µs") if name == DEFAULT else None
            table.add(f"backdrive, {what}, {name}", microseconds(t), f"{LCP_PHYSICS[way] / t:.0f} ×", target=target)
    for name, simulator in simulators.items():
        path = _chain_forward(simulator)()
        table.check(f"{name}: part of the steps that did not converge", _part(~path.status.converged), 0)
        table.check(
            f"{name}: part of the steps in which the ball touches nothing", _part(path.status.contacts < 1), 0.25
        )
    table.notes += [
        f"{CHAIN_STEPS} steps of {CHAIN_DT:g} s from just before the hit; links that are not neighbours may touch each "
        "other. Gradient of the last positions with respect to the start and all masses.",
        "lcp-physics was not run here: its times are the project's figures, from another machine.",
    ]
    return table


def _chain_forward(simulator: bd.Simulator) -> Callable[[], bd.Trajectory]:
    start = simulator.model.initial_state()

    def call() -> bd.Trajectory:
        with torch.no_grad():
            return simulator.rollout(start, steps=CHAIN_STEPS)

    return call


def _chain_gradient(simulator: bd.Simulator) -> Callable[[], tuple[Tensor, ...]]:
    model = simulator.model
    inputs = [x.clone().requires_grad_() for x in (*model.initial_state(), model.parameter("mass"))]
    q, v, mass = inputs

    def call() -> tuple[Tensor, ...]:
        path = simulator.rollout(bd.State(q, v), steps=CHAIN_STEPS, parameters={"mass": mass})
        return torch.autograd.grad(path.last.q.square().sum(), inputs)

    return call


def _swap(controls: Tensor) -> Array:
    """[T, B, nu] as MuJoCo has it: [B, T, nu]."""
    return np.ascontiguousarray(controls.numpy().transpose(1, 0, 2))


def _part(mask: Tensor | Array) -> float:
    """Of all elements, how many are true, relative."""
    return float(np.asarray(mask).mean())
