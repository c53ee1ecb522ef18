"""iLQR through backdrive and through MuJoCo's finite differences, and the Jacobians of steps in contact."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

import mujoco
import mujoco.rollout
import numpy as np
import torch
from torch import Tensor

import backdrive as bd
from backdrive.control import ILQR, MPC, Cost, Dynamics, Plan, SimulatedDynamics, optimize
from backdrive.differences import central

from .engines import MuJoCo
from .report import Table, Target, microseconds
from .robots import standing_laikago
from .swings import Swing, swings
from .timing import Run

SEEDS = (1, 24, 64)
ENOUGH_SEEDS = 20  # to judge by
HORIZON = 5  # of a small plan
BATCH = 256
ENOUGH = 10.0  # s: a run that takes so long is not repeated
WARM = 20  # calls that are not counted
SLICE = 16  # states per call of MuJoCo, whose time per state does not depend on it


class MuJoCoDynamics(SimulatedDynamics):
    """A swing's steps and their Jacobians by MuJoCo; the rest of the simulator only says what a state is.

    Steps of a batch are one call of ``mujoco.rollout``, whose loop is in C++; Jacobians are forward differences by
    ``mjd_transitionFD``, one call each.
    """

    lanes = 16

    def __init__(self, swing: Swing) -> None:
        super().__init__(swing.simulator())
        self.engine = MuJoCo(swing.mjcf, dt=swing.dt)

    def rollout(self, x: Tensor, controls: Tensor) -> Tensor:
        nq = self.nq
        q, v = self.engine.roller(x[:, :nq].numpy(), x[:, nq:].numpy(), controls.transpose(0, 1).contiguous().numpy())()
        path = torch.from_numpy(np.concatenate([q, v], -1)).transpose(0, 1)
        return torch.cat([x.unsqueeze(0), path])

    def track(
        self, x: Tensor, controls: Tensor, gains: Tensor, origin: Tensor, low: Tensor, high: Tensor
    ) -> tuple[Tensor, Tensor]:
        model, data = self.engine.model, self.engine.data
        (steps, batch, nu), n = controls.shape, x.shape[-1]
        states, used = np.zeros((steps + 1, batch, n)), np.zeros((steps, batch, nu))
        states[0] = x.numpy()
        u, K, wanted, limits = controls.numpy(), gains.numpy(), origin.numpy(), (low.numpy(), high.numpy())
        start, end, models = np.zeros((batch, 1 + n)), np.zeros((batch, 1, 1 + n)), [model] * batch
        for t in range(steps):
            change = (K[t] @ (states[t] - wanted[t])[..., None])[..., 0]
            used[t] = np.clip(u[t] + change, *limits)
            start[:, 1:] = states[t]
            mujoco.rollout.rollout(models, [data], start, used[t][:, None], nstep=1, state=end, skip_checks=True)
            states[t + 1] = end[:, 0, 1:]
        return torch.from_numpy(states), torch.from_numpy(used)

    def linearize(self, x: Tensor, u: Tensor) -> tuple[Tensor, Tensor]:
        return tuple(map(torch.from_numpy, differences(self.engine, x.numpy(), u.numpy(), self.nq)))  # type: ignore[return-value]


def differences(engine: MuJoCo, x: np.ndarray, u: np.ndarray, nq: int) -> tuple[np.ndarray, np.ndarray]:
    """A [N, 2 nv, 2 nv] and B [N, 2 nv, nu] by ``mjd_transitionFD``, from states x [N, nq + nv]."""
    m, d = engine.model, engine.data
    A, B = np.zeros((len(x), 2 * m.nv, 2 * m.nv)), np.zeros((len(x), 2 * m.nv, m.nu))
    for k in range(len(x)):
        d.qpos, d.qvel, d.ctrl = x[k, :nq], x[k, nq:], u[k]
        mujoco.mjd_transitionFD(m, d, 1e-6, False, A[k], B[k], None, None)
    return A, B


def measure(run: Run) -> list[Table]:
    return [swing_ups(run), acting(run), jacobians(run)]


def swing_ups(run: Run) -> Table:
    table = Table(
        "Swing-ups by iLQR, all seeds in one batch, one core",
        ["", "stand", "median cost", "mean", "iterations", "s", "× MuJoCo's speed"],
    )
    mujoco.set_mju_user_warning(lambda text: None)  # step sizes are tried that no simulation survives
    for name, swing in swings().items():
        dynamics = {"MuJoCo": MuJoCoDynamics(swing), "backdrive": SimulatedDynamics(swing.simulator())}
        method = ILQR(max_iterations=40 if run.quick else 300)
        for seeds in SEEDS if name != "acrobot" else SEEDS[-1:]:
            state, controls = swing.start(seeds)
            plans: dict[str, Plan] = {}
            given = (swing.cost, state, controls, method)
            calls = {engine: partial(_plan, plans, engine, dynamics[engine], *given) for engine in dynamics}
            times = processor_time(run, {f"{name}, {engine}": call for engine, call in calls.items()}, 3)
            seconds = dict(zip(dynamics, times.values(), strict=True))
            _add_rows(table, f"{name}, {swing.steps} steps, {seeds} seeds", swing, plans, seconds)
        ours, theirs = (dynamics[engine].rollout(dynamics[engine].pack(state), controls) for engine in dynamics)
        table.check(f"{name}: states along {swing.steps} random steps", float((ours - theirs).abs().max()), 1e-8)
    mujoco.set_mju_user_warning(None)
    table.notes.append(
        "The same iLQR on the same costs and starts; only steps and Jacobians differ. Both are single calls for the "
        "whole batch, MuJoCo's steps by mujoco.rollout. Iterations: of all seeds together. Time: of the processor, "
        "everything included but compilation."
    )
    return table


def _add_rows(table: Table, name: str, swing: Swing, plans: dict[str, Plan], seconds: dict[str, float]) -> None:
    for engine, plan in plans.items():
        last = bd.State(plan.states.q[-1], plan.states.v[-1])
        seeds, stand = len(plan.cost), int(swing.stands(last).sum())
        speed = seconds["MuJoCo"] / seconds[engine]
        costs = [f"{plan.cost.median():.4f}", f"{plan.cost.mean():.4f}"]
        cells = [f"{stand} of {seeds}", *costs, f"{int(plan.iterations.sum())}", f"{seconds[engine]:.3f}"]
        judged = engine == "backdrive" and seeds >= ENOUGH_SEEDS
        target = Target(speed, 5, "× MuJoCo", at_least=True) if judged else None
        table.add(f"{name}, {engine}", *cells, f"{speed:.1f}", target=target)
        if judged:
            empty, ratio = [""] * 6, float(plan.cost.median() / plans["MuJoCo"].cost.median())
            table.add("   that stand", *empty, target=Target(stand, seeds, "seeds", at_least=True))
            table.add(f"   median cost / MuJoCo's: {ratio:.4f}", *empty, target=Target(ratio, 1.01, ""))


def _plan(
    plans: dict[str, Plan], name: str, dynamics: Dynamics, cost: Cost, state: bd.State, controls: Tensor, method: ILQR
) -> None:
    plans[name] = optimize(dynamics, cost, state, controls, method=method)


def processor_time(run: Run, calls: dict[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """Seconds of each, the shortest of some rounds after a warm-up; what takes long runs only once.

    What else runs on the machine would count in the time of a clock: these calls are too long to slip through.
    """
    best = dict.fromkeys(calls, float("inf"))
    for k in range(rounds + 1):
        for name, call in calls.items():
            if k == 0 or best[name] < ENOUGH:
                run.tell(f"{name} (round {k})")
                start = time.process_time()
                call()
                best[name] = min(best[name] if k > 1 else float("inf"), time.process_time() - start)
    return best


def acting(run: Run) -> Table:
    """`MPC.act` along a motion: one plan over few steps, for one state."""
    table = Table(
        f"MPC.act, horizon {HORIZON}, one state, one core", ["", "iterations, mean", "ms, median", "ms, 95 %"]
    )
    for name in ("pendulum", "cartpole"):
        swing = swings()[name]
        simulator = swing.simulator()
        for most in (1, 10):
            run.tell(f"MPC, {name}, at most {most} iterations")
            mpc = MPC(simulator, swing.cost, HORIZON, method=ILQR(max_iterations=most))
            state, _ = swing.start(1)
            state, seconds, iterations = bd.State(state.q[0], state.v[0]), [], []
            for _ in range(WARM + (100 if run.quick else 1000)):
                began = time.process_time()
                control = mpc.act(state)
                seconds.append(time.process_time() - began)
                assert mpc.plan is not None
                iterations.append(int(mpc.plan.iterations))
                state = simulator.step(state, control)
            median, high = (1e3 * float(np.quantile(seconds[WARM:], q)) for q in (0.5, 0.95))
            cells = [f"{np.mean(iterations[WARM:]):.1f}", f"{median:.2f}", f"{high:.2f}"]
            target = Target(median, 3, "ms") if most == 1 else None
            table.add(f"{name}, at most {most} iterations", *cells, target=target)
    return table


def jacobians(run: Run) -> Table:
    """`Simulator.linearize` of Laikago on its feet."""
    robot = standing_laikago()
    simulator, engine = robot.simulator(), MuJoCo(robot.mjcf, contact=True)
    state, controls = robot.stance(BATCH, 200)
    with torch.no_grad():
        path = simulator.rollout(state, controls)
    standing, u = bd.State(path.last.q.clone(), path.last.v.clone()), controls[-1].clone()
    x, nq = torch.cat(standing, -1)[:SLICE].numpy(), robot.model.nq
    calls: dict[str, Callable[[], object]] = {
        "MuJoCo": lambda: differences(engine, x, u[:SLICE].numpy(), nq),
        "backdrive": lambda: simulator.linearize(standing, u),
        "one state": lambda: simulator.linearize(bd.State(standing.q[0], standing.v[0]), u[0]),
    }
    times = processor_time(run, calls, 20 if run.quick else 200)
    seconds = {name: times[name] / n for name, n in (("MuJoCo", SLICE), ("backdrive", BATCH), ("one state", 1))}
    table = Table("Jacobians of a step: Laikago on four feet", ["", "µs per state", "× MuJoCo's speed"])
    table.add("MuJoCo, mjd_transitionFD, forward differences", microseconds(seconds["MuJoCo"]), "1")
    speed = seconds["MuJoCo"] / seconds["backdrive"]
    target = Target(speed, 10, "× MuJoCo", at_least=True)
    table.add(f"backdrive, batch {BATCH}", microseconds(seconds["backdrive"]), f"{speed:.1f}", target=target)
    alone = seconds["MuJoCo"] / seconds["one state"]
    table.add("backdrive, one state", microseconds(seconds["one state"]), f"{alone:.1f}")
    touching = path.status.contacts[-1]
    table.check("states of the batch that do not stand on four feet", float((touching != 4).sum()), 0)
    table.check("Jacobians - central differences of steps, relative", _error(simulator, standing, u), 1e-6)
    return table


def _error(simulator: bd.Simulator, state: bd.State, u: Tensor) -> float:
    """Of A and B in one direction, the same for all states: of joints, speeds and controls at once."""
    A, B = simulator.linearize(state, u)
    random = torch.Generator().manual_seed(1)
    direction = torch.randn(2 * state.v.shape[-1] + u.shape[-1], generator=random, dtype=u.dtype)
    nv = state.v.shape[-1]
    direction[:6] = 0.0  # not of the base, whose displacements are no plain sums

    def end(e: float) -> Tensor:
        dq, dv, du = (e * x for x in direction.split([nv, nv, len(direction) - 2 * nv]))
        q = state.q.clone()
        q[:, 7:] += dq[6:]
        after = simulator.step(bd.State(q, state.v + dv), u + du)
        return torch.cat([after.q[:, 7:], after.v], -1)

    found = central(end, 1e-6)
    wanted = A @ direction[: 2 * nv] + B @ direction[2 * nv :]
    wanted = torch.cat([wanted[:, 6:nv], wanted[:, nv:]], -1)
    return float((found - wanted).norm() / wanted.norm())
