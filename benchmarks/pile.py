"""One world of many boxes: a heap between walls and rows of small towers, one core, float64."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter

import mujoco
import numpy as np
import torch

import backdrive as bd

from .report import Table, Target
from .timing import Case, Run

DT = 0.005
STEPS = 20  # of a measured call
SETTLE = 400  # steps before, in which each engine comes to rest
SIZES, FEW = (100, 200, 1000), (100, 200)  # boxes; few of them in a quick run
FALL, INTERIOR = 60, {50: 5, 200: 1}  # steps before, and of a measured call, of InteriorPoint, by boxes
RESTING, APART = {100: 8, 200: 6}, 10  # boxes at rest: of how many states InteriorPoint takes a step, and steps between
SOFT = [(50, "pyramidal"), (200, "pyramidal"), (200, "elliptic"), (500, "pyramidal")]  # heaps with MuJoCo's physics
COLUMNS = ["", "ms per step", "contacts", "µs per contact", "ratio"]
FRICTION, DENSITY, EDGE, HIGH = 0.6, 500.0, 0.2, 4  # m; boxes of a tower


# ------------------------------------------------------------------------------------------ scenes


def heap(count: int) -> bd.Model:
    """Boxes of 12 to 20 cm, turned anyhow, dropped between four walls."""
    random, scene = np.random.default_rng(0), bd.Scene(dim=3)
    side = round(0.8 * count ** (1 / 3))
    half = 0.11 * side + 0.1
    for normal, offset in (((0, 0, 1), 0.0), *(((x, y, 0), -half) for x, y in ((1, 0), (-1, 0), (0, 1), (0, -1)))):
        scene.add_static(bd.HalfSpace(normal=normal, offset=offset), friction=FRICTION)
    for i in range(count):
        cell = np.array([i % side - (side - 1) / 2, i // side % side - (side - 1) / 2, i // side**2 + 0.6])
        quaternion = random.normal(size=4)
        scene.add_body(
            f"box {i}", bd.Box(*random.uniform(0.12, 0.2, size=3)), density=DENSITY, friction=FRICTION,
            position=tuple(0.22 * cell + 0.01 * random.normal(size=3)),
            quaternion=tuple(quaternion / np.linalg.norm(quaternion)),
        )  # fmt: skip
    return scene.build()


def towers(count: int) -> bd.Model:
    """Towers of HIGH boxes that stand apart: for MuJoCo, islands of their own."""
    random, scene = np.random.default_rng(0), bd.Scene(dim=3)
    scene.add_static(bd.HalfSpace(normal=(0, 0, 1)), friction=FRICTION)
    side = int(np.ceil((count / HIGH) ** 0.5))
    for i in range(count):
        x, y = np.array(divmod(i // HIGH, side)) * 1.25 * EDGE + 0.003 * random.normal(size=2)
        place = (float(x), float(y), EDGE * (0.5 + i % HIGH) + 1e-4 * (i % HIGH))
        scene.add_body(f"box {i}", bd.Box(EDGE, EDGE, EDGE), density=DENSITY, friction=FRICTION, position=place)
    return scene.build()


def mjcf(model: bd.Model) -> str:
    friction = f'friction="{FRICTION} 0.005 0.0001"'
    parts = []
    for placed in model.statics:
        normal = np.array(placed.shape.normal)
        place = " ".join(map(str, normal * placed.shape.offset))
        parts.append(f'<geom type="plane" size="9 9 1" zaxis="{" ".join(map(str, normal))}" pos="{place}" {friction}/>')
    for (placed,), q in zip(model.shapes, model.q0.reshape(-1, 7)):
        size = " ".join(str(x / 2) for x in placed.shape.sizes)
        pose = f'pos="{" ".join(map(str, q[:3]))}" quat="{" ".join(map(str, q[3:]))}"'
        geom = f'<geom type="box" size="{size}" density="{DENSITY}" {friction}/>'
        parts.append(f"<body {pose}><freejoint/>{geom}</body>")
    head = f'<size memory="800M"/><option timestep="{DT}"/>'
    return f"<mujoco>{head}<worldbody>{''.join(parts)}</worldbody></mujoco>"


# ------------------------------------------------------------------------------------------ engines


class Ours:
    """A world that has come to rest, as far as it does, by sweeps; measured are steps by `solver`, if it is given."""

    def __init__(
        self, model: bd.Model, settle: int = SETTLE, steps: int = STEPS, solver: bd.InteriorPoint | None = None
    ) -> None:
        self.steps, self.simulator = steps, bd.Simulator(model, DT, sparse=True, threads=1)
        with torch.no_grad():
            start = model.initial_state()
            self.state = self.simulator.rollout(start, steps=settle, adjoint=bd.Checkpoint(settle)).last
            if solver is not None:
                self.simulator = bd.Simulator(model, DT, sparse=True, threads=1, solver=solver)
            self.path = self.simulator.rollout(self.state, steps=steps)
        self.contacts = float(self.path.status.contacts.double().mean())

    def forward(self) -> None:
        with torch.no_grad():
            self.simulator.rollout(self.state, steps=self.steps)

    def gradient(self) -> None:
        q, v = (x.clone().requires_grad_() for x in self.state)
        last = self.simulator.rollout(bd.State(q, v), steps=self.steps).last
        (last.q.square().sum() + last.v.square().sum()).backward()


def theirs(model: bd.Model, solver: mujoco.mjtSolver) -> tuple[Callable[[], None], mujoco.MjData]:
    """A call of STEPS steps, after it has come to rest."""
    peer = mujoco.MjModel.from_xml_string(mjcf(model))
    peer.opt.solver = solver
    data = mujoco.MjData(peer)
    mujoco.mj_step(peer, data, SETTLE)
    return lambda: mujoco.mj_step(peer, data, STEPS), data


class Soft:
    """MuJoCo's physics in both engines, from a state in which MuJoCo has come to rest."""

    def __init__(self, model: bd.Model, cone: str) -> None:
        self.peer = mujoco.MjModel.from_xml_string(mjcf(model))
        self.peer.opt.cone = {"pyramidal": mujoco.mjtCone.mjCONE_PYRAMIDAL, "elliptic": mujoco.mjtCone.mjCONE_ELLIPTIC}[
            cone
        ]
        self.data = mujoco.MjData(self.peer)
        mujoco.mj_step(self.peer, self.data, SETTLE)
        self.simulator = bd.Simulator(bd.load(mjcf(model)), physics=bd.MuJoCo(cone=cone), sparse=True, threads=1)
        self.state = bd.State(*(torch.from_numpy(x.copy()) for x in (self.data.qpos, self.data.qvel)))

    def forward(self) -> None:
        with torch.no_grad():
            self.simulator.rollout(self.state, steps=STEPS)

    def gradient(self) -> None:
        q, v = (x.clone().requires_grad_() for x in self.state)
        last = self.simulator.rollout(bd.State(q, v), steps=STEPS).last
        (last.q.square().sum() + last.v.square().sum()).backward()


# ------------------------------------------------------------------------------------------ tables


def measure(run: Run) -> list[Table]:
    return [_heaps(run), _soft_heaps(run), _towers(run), _exact_heaps(run)]


def _heaps(run: Run) -> Table:
    run.tell("heaps of boxes settle")
    sizes = FEW if run.quick else SIZES
    ours, cases = {n: Ours(heap(n)) for n in sizes}, {}
    for n, world in ours.items():
        cases |= {f"{n}": (world.forward, STEPS), f"{n} gradient": (world.gradient, STEPS)}
    peers = {"Newton": mujoco.mjtSolver.mjSOL_NEWTON, "CG": mujoco.mjtSolver.mjSOL_CG}
    counts = {}
    for name, solver in peers.items():
        call, counts[name] = theirs(heap(200), solver)
        cases[name] = call, STEPS
    time = run.interleave(cases, seconds=90)
    table = Table("One world: a heap of boxes", COLUMNS)
    for name in peers:
        ratio = f"{time[name] / time['200']:.1f} × the time of backdrive"
        table.add(f"MuJoCo, {name}, 200 boxes", *_cells(time[name], counts[name].ncon), ratio)
    fastest = min(time[name] for name in peers)
    for n, world in ours.items():
        per_contact = time[f"{n}"] / world.contacts
        first = time[f"{sizes[0]}"] / ours[sizes[0]].contacts
        target = Target(fastest / time["200"], 1, "× MuJoCo", at_least=True) if n == 200 else None
        if n == 1000:
            target = Target(per_contact / first, 2, "× the cost of a contact at 100")
        table.add(f"backdrive, {n:,} boxes", *_cells(time[f"{n}"], world.contacts), "", target=target)
    for n in sizes:
        cost = time[f"{n} gradient"] / time[f"{n}"]
        cells = _cells(time[f"{n} gradient"], ours[n].contacts)
        target = Target(cost, 4, "× forward")
        table.add(f"backdrive, {n:,} boxes, forward and gradient", *cells, f"{cost:.2f} × forward", target=target)
    for n, world in ours.items():
        residual, depth = world.path.status.residual, world.path.status.depth
        table.check(f"{n:,} boxes: deepest penetration, m", float(depth.max()), 5e-3)
        table.check(f"{n:,} boxes: residual of the solver, mean, m/s", float(residual.mean()), 1e-2)
    table.notes += [
        f"{STEPS} steps of {DT:g} s, after {SETTLE} in which each engine settles by itself; the first of the measured "
        "steps starts without impulses of a step before. Contacts: those that press; MuJoCo's: all that it has.",
        "MuJoCo's contacts are soft, and its solvers end at their default tolerance; those here are rigid, and solved "
        "by 50 sweeps at most. Gradient of |q|² + |v|² of the last state with respect to the first.",
    ]
    return table


def _soft_heaps(run: Run) -> Table:
    run.tell("heaps of boxes settle in MuJoCo")
    worlds: dict[str, Soft] = {}
    cases: dict[str, Case] = {}
    for n, cone in [(200, "pyramidal")] if run.quick else SOFT:
        world = worlds[f"{n:,} boxes, {cone}"] = Soft(heap(n), cone)
        name = f"{n:,} boxes, {cone}"
        cases |= {
            f"{name}, MuJoCo": (lambda world=world: mujoco.mj_step(world.peer, world.data, STEPS), STEPS),
            f"{name}, backdrive": (world.forward, STEPS), f"{name}, forward and gradient": (world.gradient, STEPS),
        }  # fmt: skip
    time = run.interleave(cases, seconds=60)
    table = Table('One world: a heap of boxes, physics="mujoco"', COLUMNS)
    for name, world in worlds.items():
        theirs, mine = time[f"{name}, MuJoCo"], time[f"{name}, backdrive"]
        table.add(f"{name}, MuJoCo", *_cells(theirs, world.data.ncon), "1")
        target = Target(theirs / mine, 1, "× MuJoCo", at_least=True) if "200" in name else None
        table.add(f"{name}, backdrive", *_cells(mine, world.data.ncon), f"{theirs / mine:.2f} × MuJoCo", target=target)
        both = time[f"{name}, forward and gradient"]
        table.add(f"{name}, forward and gradient", *_cells(both, world.data.ncon), f"{both / mine:.2f} × forward")
    table.notes.append(
        f"{STEPS} steps of {DT:g} s after {SETTLE} in MuJoCo, from the same state: its Newton solver, sparse, at its "
        "default tolerance and with warm starts. backdrive's is solved to rounding, without."
    )
    return table


def _towers(run: Run) -> Table:
    model = towers(200)
    ours, (call, data) = Ours(model), theirs(model, mujoco.mjtSolver.mjSOL_NEWTON)
    cases: dict[str, Case] = {"backdrive": (ours.forward, STEPS), "MuJoCo": (call, STEPS)}
    time = run.interleave(cases, seconds=30)
    table = Table(f"One world: 200 boxes in towers of {HIGH}", COLUMNS)
    table.add("MuJoCo, Newton", *_cells(time["MuJoCo"], data.ncon), "1")
    target = Target(time["MuJoCo"] / time["backdrive"], 1, "× MuJoCo", at_least=True)
    table.add("backdrive", *_cells(time["backdrive"], ours.contacts), f"{target.measured:.2f} × MuJoCo", target=target)
    table.check("backdrive: fastest body at rest, m/s", float(ours.path.v[-1].abs().max()), 1e-2)
    table.notes.append("At rest nothing changes: MuJoCo needs one step of Newton's method in each of its 50 islands.")
    return table


def _exact_heaps(run: Run) -> Table:
    worlds = {n: Ours(heap(n), FALL, steps, bd.InteriorPoint()) for n, steps in INTERIOR.items()}
    cases: dict[str, Case] = {}
    for n, world in worlds.items():
        cases |= {f"{n}, exact": (world.forward, world.steps), f"{n} gradient, exact": (world.gradient, world.steps)}
    time = run.interleave(cases, seconds=30)
    table = Table("One world: a heap of boxes while it falls together, solved by InteriorPoint", COLUMNS)
    for n, world in worlds.items():
        forward, gradient = time[f"{n}, exact"], time[f"{n} gradient, exact"]
        cost = gradient / forward
        table.add(f"backdrive, {n:,} boxes", *_cells(forward, world.contacts), "")
        cells = _cells(gradient, world.contacts)
        table.add(f"backdrive, {n:,} boxes, forward and gradient", *cells, f"{cost:.2f} × forward")
        table.check(f"{n:,} boxes: residual of the solver, m/s", float(world.path.status.residual.max()), 1e-8)
    table.notes.append(f"After {FALL} steps by sweeps.")
    for n, states in {} if run.quick else RESTING.items():
        run.tell(f"{n} boxes at rest")
        seconds, contacts, solved = _at_rest(n, states)
        table.add(f"backdrive, {n} boxes at rest", *_cells(seconds, contacts), f"{solved} of {states} steps solved")
    if not run.quick:
        table.notes.append(
            f"At rest: after {SETTLE} steps by sweeps; the mean of steps from states {APART} steps apart."
        )
    return table


def _at_rest(count: int, states: int) -> tuple[float, float, int]:
    """Seconds and contacts of a step, mean, and how many steps were solved to the tolerance."""
    world, solver = Ours(heap(count)), bd.InteriorPoint()
    exact = bd.Simulator(world.simulator.model, DT, sparse=True, threads=1, solver=solver)
    state, seconds, contacts, solved = world.state, 0.0, 0.0, 0
    with torch.no_grad():
        for _ in range(states):
            began = perf_counter()
            status = exact.rollout(state, steps=1).status
            seconds += (perf_counter() - began) / states
            contacts += float(status.contacts.double().mean()) / states
            solved += int(status.converged.all())
            state = world.simulator.rollout(state, steps=APART).last
    return seconds, contacts, solved


def _cells(time: float, contacts: float) -> tuple[str, str, str]:
    return f"{time * 1e3:.3g}", f"{contacts:,.0f}", f"{time / contacts * 1e6:.2f}"
