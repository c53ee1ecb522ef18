"""MuJoCo's physics against MuJoCo: one step from many states, and motions side by side until chaos parts them.

    python -m benchmarks --only agreement
    python -m benchmarks.mujoco_agreement                   # also writes docs/mujoco_agreement.md and .png
    python -m benchmarks.mujoco_agreement --suite FOLDER    # the MJCF files of a folder instead: see `mujoco_suite`

MuJoCo has dense Jacobians and its solver at full precision: `opt.tolerance` 0, `opt.ls_tolerance` 1e-10, and Newton's
method also where a file asks for another one.
"""

from __future__ import annotations

import argparse
import itertools
import warnings
from dataclasses import dataclass
from pathlib import Path

import gymnasium
import mujoco
import mujoco.rollout
import numpy as np
import torch

import backdrive as bd
from backdrive.physics.soft.options import CONES, INTEGRATORS

from .report import Table, Target, machine
from .timing import Run

ASSETS = Path(gymnasium.__file__).parent / "envs" / "mujoco" / "assets"
FILES = (
    "hopper", "walker2d_v5", "half_cheetah", "ant", "humanoid", "humanoidstandup", "pusher_v5", "reacher", "swimmer",
    "inverted_pendulum", "inverted_double_pendulum",
)  # fmt: skip
STATES, MOTIONS, STEPS = 10_000, 8, 1000
BOUND, PARTED, DISTURBANCE = 1e-9, 1e-6, 1e-12
GROWTH = 1e-10, 1e-4  # errors between which their growth is measured
Array = np.ndarray


@dataclass
class Visited:
    """States of motions under random controls, and the controls: [count, n] each."""

    q: Array
    v: Array
    u: Array


def mujoco_model(
    path: Path, integrator: str | None = None, cone: str | None = None, ccd_tolerance: float | None = None
) -> mujoco.MjModel:
    """The file as MuJoCo has it, with its solver at full precision."""
    model = mujoco.MjModel.from_xml_path(str(path))
    option = model.opt
    option.jacobian, option.solver = mujoco.mjtJacobian.mjJAC_DENSE, mujoco.mjtSolver.mjSOL_NEWTON
    option.tolerance, option.ls_tolerance, option.iterations = 0.0, 1e-10, 30
    option.ccd_tolerance, option.ccd_iterations = ccd_tolerance or option.ccd_tolerance, 1000
    if integrator is not None:
        option.integrator = getattr(mujoco.mjtIntegrator, f"mjINT_{integrator.upper()}")
    if cone is not None:
        option.cone = getattr(mujoco.mjtCone, f"mjCONE_{cone.upper()}")
    return model


def random_controls(model: mujoco.MjModel, steps: int, random: np.random.Generator) -> Array:
    """Smooth noise within the limits of the controls, [steps, nu]."""
    limited = model.actuator_ctrllimited.astype(bool)
    low, high = np.where(limited[:, None], model.actuator_ctrlrange, (-1.0, 1.0)).T
    noise, out = np.zeros(model.nu), np.empty((steps, model.nu))
    for t in range(steps):
        noise = np.clip(0.9 * noise + 0.3 * random.standard_normal(model.nu), -1.0, 1.0)
        out[t] = 0.5 * (low + high) + 0.5 * (high - low) * noise
    return out


def start(model: mujoco.MjModel, data: mujoco.MjData, random: np.random.Generator) -> None:
    mujoco.mj_resetData(model, data)
    data.qvel[:] = 0.3 * random.standard_normal(model.nv)


def visited(model: mujoco.MjModel, count: int, every: int = 4, steps: int = 400) -> Visited:
    """Every fourth state of motions of 400 steps (less where one diverges)."""
    random, data, found = np.random.default_rng(0), mujoco.MjData(model), []
    while len(found) < count:
        start(model, data, random)
        for t, control in enumerate(random_controls(model, steps, random)):
            data.ctrl[:] = control
            if t % every == 0:
                found.append((data.qpos.copy(), data.qvel.copy(), control))
            mujoco.mj_step(model, data)
            if not np.isfinite(data.qacc).all() or np.abs(data.qvel).max() > 200.0:
                break
    return Visited(*(np.array(x[:count]) for x in zip(*found, strict=True)))


def steps_of_mujoco(model: mujoco.MjModel, at: Visited) -> tuple[Array, Array]:
    """qpos and qvel after a step from every state."""
    begin = np.concatenate([np.zeros((len(at.q), 1)), at.q, at.v], -1)
    states, _ = mujoco.rollout.rollout(model, mujoco.MjData(model), begin, at.u[:, None])
    return np.split(states[:, 0, 1:], [model.nq], -1)  # type: ignore[return-value]


@dataclass
class Difference:
    """The largest differences after a step; the part of all states from which both are within 1e-9; of those with
    contact; and the largest difference relative to the largest speed after the step, where that is above 1."""

    q: float
    v: float
    within: float
    touching: float
    relative: float


def one_step(loaded: bd.Model, path: Path, at: Visited, integrator: str | None, cone: str | None) -> Difference:
    simulator = bd.Simulator(loaded, physics=bd.MuJoCo(integrator=integrator, cone=cone), nonfinite="mark")
    state = bd.State(torch.from_numpy(at.q), torch.from_numpy(at.v))
    motion = simulator.rollout(state, torch.from_numpy(at.u)[None])
    q, v = steps_of_mujoco(mujoco_model(path, integrator, cone), at)
    by_q, by_v = (np.abs(x.numpy() - y).max(-1) for x, y in ((motion.last.q, q), (motion.last.v, v)))
    within = float(((by_q <= BOUND) & (by_v <= BOUND)).mean())
    touching = float((motion.status.contacts > 0).double().mean())
    relative = np.maximum(by_q, by_v) / np.maximum(np.abs(v).max(-1), 1.0)
    return Difference(by_q.max(), by_v.max(), within, touching, float(relative.max()))


@dataclass
class Parting:
    """Errors of q and v over the steps of some motions, [motions, steps]: of this engine, and of MuJoCo itself from a
    start whose velocities are off by 1e-12."""

    ours: Array
    disturbed: Array
    dt: float

    @staticmethod
    def first(errors: Array) -> float:
        """The median of the steps at which errors exceed 1e-6; those of motions that stay together count as all."""
        over = errors > PARTED
        return float(np.median(np.where(over.any(-1), over.argmax(-1), errors.shape[-1])))

    def rate(self, errors: Array) -> float:
        """1/s: the growth of the median error's logarithm, from 1e-10 to 1e-4; NaN if it does not get there."""
        middle = np.maximum.accumulate(np.median(errors, 0))
        low, high = (int((middle > bound).argmax()) if (middle > bound).any() else -1 for bound in GROWTH)
        if high <= low or low < 0:
            return float("nan")
        return float(np.log(middle[high] / middle[low]) / ((high - low) * self.dt))


def side_by_side(loaded: bd.Model, path: Path, count: int) -> Parting:
    """Motions of 1,000 steps from the same starts under the same controls."""
    model, random = mujoco_model(path), np.random.default_rng(1)
    data, begin, controls = mujoco.MjData(model), [], []
    for _ in range(count):
        start(model, data, random)
        begin.append(np.concatenate([[0.0], data.qpos, data.qvel]))
        controls.append(random_controls(model, STEPS, random))
    states, u = np.array(begin), np.array(controls)
    moved = states.copy()
    moved[:, 1 + model.nq :] += DISTURBANCE * random.choice([-1.0, 1.0], (count, model.nv))
    theirs, _ = mujoco.rollout.rollout(model, data, states, u)
    disturbed, _ = mujoco.rollout.rollout(model, data, moved, u)
    simulator = bd.Simulator(loaded, physics="mujoco", nonfinite="mark")
    q, v = (torch.from_numpy(x) for x in np.split(states[:, 1:], [model.nq], -1))
    motion = simulator.rollout(bd.State(q, v), torch.from_numpy(u).transpose(0, 1))
    ours = torch.cat([motion.q, motion.v], -1)[1:].transpose(0, 1).numpy()
    errors = [np.nan_to_num(np.abs(x - theirs[..., 1:]).max(-1), nan=np.inf) for x in (ours, disturbed[..., 1:])]
    return Parting(*errors, model.opt.timestep)


def measure(run: Run) -> list[Table]:
    """The two tables."""
    return tables(run)[0]


def tables(run: Run) -> tuple[list[Table], dict[str, Parting]]:
    """The tables, and the motions by file."""
    states, motions = (500, 2) if run.quick else (STATES, MOTIONS)
    columns = ["", "with contact", "Δq", "Δv", "within 1e-9", "Δq, all", "Δv, all", "within 1e-9, all"]
    steps = Table(f"One step from {states:,} states against mj_step", columns)
    parts = Table(
        f"{motions} motions of {STEPS:,} steps beside MuJoCo's",
        ["", "parted after", "MuJoCo, disturbed", "growth, 1/s", "of MuJoCo, disturbed"],
    )
    found = {}
    for name in FILES:
        run.tell(name)
        path = ASSETS / f"{name}.xml"
        loaded = load(path)
        if isinstance(loaded, str):
            steps.notes.append(f"{name}: {loaded}")
            continue
        at = visited(mujoco.MjModel.from_xml_path(str(path)), states)
        own = one_step(loaded, path, at, None, None)
        every = [one_step(loaded, path, at, *both) for both in itertools.product(INTEGRATORS, CONES)]
        worst_q, worst_v = max(x.q for x in every), max(x.v for x in every)
        cells = [f"{own.touching:.0%}", f"{own.q:.1e}", f"{own.v:.1e}", f"{own.within:.2%}", f"{worst_q:.1e}"]
        cells += [f"{worst_v:.1e}", f"{min(x.within for x in every):.2%}"]
        steps.add(name, *cells, target=Target(max(worst_q, worst_v), BOUND, "m, rad, m/s, rad/s"))
        parting = found[name] = side_by_side(loaded, path, motions)
        rates = [parting.rate(errors) for errors in (parting.ours, parting.disturbed)]
        texts = ["-" if np.isnan(rate) else f"{rate:.3g}" for rate in rates]
        parts.add(name, f"{Parting.first(parting.ours):.0f}", f"{Parting.first(parting.disturbed):.0f}", *texts)
    steps.notes.append("Δq, Δv: the largest differences, with the options of the file.")
    steps.notes.append(f"All: the worst of {', '.join(INTEGRATORS)}, each with pyramidal and elliptic cones.")
    parts.notes.append(
        f"Parted: the median of the steps after which q or v differ by {PARTED:g} ({STEPS}: they stay together). "
        f"Disturbed: MuJoCo against itself, with velocities that are off by {DISTURBANCE:g} at the start."
    )
    return [steps, parts], found


def load(path: Path) -> bd.Model | str:
    """The model; or why it cannot be simulated with MuJoCo's physics."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = bd.load(path)
        bd.Simulator(model, physics="mujoco")
        return model
    except (NotImplementedError, ValueError, FileNotFoundError) as error:
        return " ".join(str(error).replace(str(path), "the file").split()).partition(" To load it")[0]


def plot(found: dict[str, Parting], target: Path) -> None:
    """Median errors over the steps of the motions."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    rows = -(-len(found) // 4)
    figure, grid = plt.subplots(rows, 4, figsize=(11, 2.2 * rows), sharex=True, sharey=True, squeeze=False)
    for axes in grid.flat[len(found) :]:
        axes.set_visible(False)
    for axes, (name, parting) in zip(grid.flat, found.items(), strict=False):
        axes.semilogy(np.clip(np.median(parting.disturbed, 0), 1e-17, 1e2), color="0.6", label="MuJoCo, disturbed")
        axes.semilogy(np.clip(np.median(parting.ours, 0), 1e-17, 1e2), color="C0", label="backdrive")
        axes.axhline(PARTED, color="0.8", linewidth=0.8)
        axes.set_title(name, fontsize=9)
    grid[0, 0].legend(fontsize=7, loc="lower right")
    figure.supxlabel("step", fontsize=9)
    figure.supylabel("difference from MuJoCo in q, v", fontsize=9)
    figure.tight_layout()
    figure.savefig(target, dpi=110)


def main() -> None:
    parser = argparse.ArgumentParser("python -m benchmarks.mujoco_agreement", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer states and motions")
    parser.add_argument("--suite", type=Path, help="folder with MJCF files, to compare instead of Gymnasium's")
    parser.add_argument("--docs", type=Path, default=Path("docs"), help="where the results go (%(default)s)")
    options = parser.parse_args()
    torch.set_num_threads(1)
    run = Run(options.quick, lambda text: print(text, flush=True))
    from .mujoco_suite import compare, section

    suite = options.docs / "mujoco_suite.json"
    if options.suite is not None:
        print(compare(run, options.suite, suite))
        return
    measured, found = tables(run)
    plot(found, options.docs / "mujoco_agreement.png")
    facts = [f"- {name}: {value}" for name, value in machine().items() if name in ("processor", "versions")]
    text = "\n".join(["# Agreement with MuJoCo", "", INTRODUCTION, "", *facts, "", *(t.markdown() for t in measured)])
    text += "\n![Differences over time](mujoco_agreement.png)\n"
    text += section(suite)
    (options.docs / "mujoco_agreement.md").write_text(text, "utf-8")
    print(text)


INTRODUCTION = """`python -m benchmarks.mujoco_agreement` writes this page: `physics="mujoco"` against MuJoCo itself, on
the files of Gymnasium. MuJoCo has dense Jacobians and its solver at full precision (`tolerance` 0, `ls_tolerance`
1e-10, Newton's method). States are those that MuJoCo visits under random controls."""


if __name__ == "__main__":
    main()
