"""A Laikago is released from the air and hits the ground: time of a step, forward and backward, and memory.

The robot (`laikago`) is held by position servos, whose targets tremble. It falls from 4 cm, lands after 45 steps of
2 ms, and stands. The loss is |q|² + |v|² of the last state; its gradient is for the start and all controls.

Beside it, autodiff tools on the same equations written plainly (`peers.quadruped`), and MuJoCo and MJX on the same
file with their own contact. Each runs in a process of its own. Most need an environment of their own, ``.venv-peers``
(`make peers`), or that whose Python BACKDRIVE_PEERS names.

backward: a gradient with the simulation that it needs, less a simulation. memory: by how much a gradient raises the
peak of the process; the inputs are there before.
"""

from __future__ import annotations

import json
import statistics
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from backdrive import Simulator, State, load
from backdrive.differences import slopes
from backdrive.experiments import Run
from backdrive.threads import one_torch_thread

from . import laikago
from .peers.tools import Tool, ask
from .peers.with_mujoco import to_tangent
from .timing import shortest

if TYPE_CHECKING:
    from matplotlib.axes import Axes

STEPS = (50, 100, 500, 1000, 5000)
STICKY = 100.0  # coefficient of friction of feet that do not slide
LIFT = 0.04  # m
SETTLED = 1000  # steps after which it stands
SWEEPS = 20  # of the plain equations: their motion is then the engine's to 1e-5, see `compare`
AGREE = 1e-5  # m, rad, m/s, rad/s; and of gradients, relative
DIRECTIONS, MOVES = 4, (1e-4, 1e-5, 1e-6, 1e-7)  # of differences; SI units
GOAL = {
    "forward": 0.057e-3 / 20,
    "backward": 0.34e-3 / 20,
    "memory": 4.0,
}  # s, s, MB: 20 times faster than diffarticulated


TOOLS = (
    Tool("backdrive", "with_backdrive", place=""),
    Tool("CasADi, compiled C", "with_casadi_c", slow=True),
    Tool("CasADi", "with_casadi"),
    Tool("CppAD", "with_cppad", slow=True),
    Tool("JAX", "with_jax", slow=True),
    Tool("PyTorch", "with_torch", place="", slow=True),
    Tool("MuJoCo, differences", "with_mujoco", place="", same=False),
    Tool("MJX", "with_mjx", slow=True, same=False, steps=(100,)),
)
PAPER_STEPS: dict[
    str, tuple[float | None, ...]
] = {  # ms per step; the paper's slides have no other table that is right
    "Qiao et al. 2021": (0.3, 0.3, 0.2, 0.2, 0.2),
    "CppAD": (2.4, 2.4, 2.3, 2.3, 4.5),
    "ADF": (25.7, 25.5, 25.1, 32.1, 58.4),
    "Ceres": (27.2, 27.5, 27.2, 34.0, 58.2),
    "JAX": (53.3, 46.1, 43.1, 42.7, 42.3),
    "PyTorch": (195.6, 192.2, 199.2, 192.8, None),
}
DIFFARTICULATED: dict[str, Any] = {  # the paper's own code, built on such a machine
    "forward_ms": 0.057, "backward_ms": (0.34, 0.47), "memory_mb_at_5000": 24
}  # fmt: skip


@dataclass(frozen=True)
class Settings:
    """How thorough.

    seconds: of a measurement. patience: s; a tool whose calls would take longer is asked no more. slow: ask slow tools.
    """

    steps: tuple[int, ...]
    seconds: float
    patience: float
    slow: bool


FULL, QUICK = Settings(STEPS, 4.0, 60.0, True), Settings((50, 100), 0.5, 10.0, False)


# ---------------------------------------------------------------------------------------------- the world


class World:
    """The robot, its start, and as many controls as are needed.

    Its feet do not slide: so the directions of friction, which differ between the tools, make no difference.
    """

    def __init__(self, generator: torch.Generator, steps: int) -> None:
        self.mjcf = laikago.on_floor(friction=STICKY)
        self.simulator = Simulator(load(self.mjcf), laikago.DT, physics="rigid", threads=1, specialize=True)
        q, v, self.controls = laikago.released(LIFT, steps, generator)
        self.start = State(q, v)

    def request(self, settings: Settings) -> dict[str, Any]:
        """As `peers` reads it."""
        return {
            "robot": laikago.numbers(self.mjcf), "mjcf": self.mjcf, "q": self.start.q.tolist(),
            "v": self.start.v.tolist(), "controls": self.controls.tolist(), "dt": laikago.DT, "sweeps": SWEEPS,
            "seconds": settings.seconds, "patience": settings.patience,
        }  # fmt: skip

    def gradient(self, steps: int) -> tuple[State, tuple[Tensor, ...]]:
        """The last state, and the gradients of the loss for q, v and the controls."""
        q, v, u = (x.clone().requires_grad_() for x in (*self.start, self.controls[:steps]))
        last = self.simulator.rollout(State(q, v), u).last
        return last, torch.autograd.grad(loss(last), (q, v, u))


def loss(last: State) -> Tensor:
    return last.q.square().sum() + last.v.square().sum()


# ---------------------------------------------------------------------------------------------- the experiment


def run(run: Run) -> None:
    settings = QUICK if run.quick else FULL
    with one_torch_thread():
        world = World(run.generator(1), max(*settings.steps, SETTLED))
        run.record(
            world={
                "dt": laikago.DT, "lift_m": LIFT, "sweeps_of_the_plain_equations": SWEEPS, "steps": settings.steps,
                "servos": {"stiffness": laikago.STIFFNESS, "damping": laikago.DAMPING, "noise_rad": laikago.NOISE},
            },
            quoted={"ms_per_step_forward": PAPER_STEPS, "diffarticulated": DIFFARTICULATED},
        )  # fmt: skip
        check_gradients(run, world, settings.steps)
        phases(run, world)
        found = measure(run, world, settings)
        compare(run, world, found)
    verdict(run, found["backdrive"]["rows"])
    run.file("tables.md").write_text(tables(found, settings.steps), "utf-8")
    draw(run, found, settings.steps)
    with torch.no_grad():
        run.film("laikago", world.simulator.rollout(world.start, world.controls[:SETTLED]), speed=0.25)


def check_gradients(run: Run, world: World, steps: Sequence[int]) -> None:
    """Against central differences along random directions in the space of q, of v, and of all controls.

    Of several sizes of the difference the best counts: large ones are curved, small ones drown in rounding. Where a
    contact changes its mode within every one of them, there is no derivative.
    """
    random, results = run.generator(2), {}
    for count in run.track(steps, "gradients against differences"):
        _, bars = world.gradient(count)
        errors: list[float] = []
        switches: list[int] = []  # the first step that differs
        for which in range(3):
            for _ in range(DIRECTIONS):
                error, step = difference(world, count, which, bars[which], random)
                if error is None:
                    switches.append(step)
                else:
                    errors.append(error)
        finite = all(bool(torch.isfinite(bar).all()) for bar in bars)
        results[count] = {
            "finite": finite, "largest_error": max(errors, default=None), "directions": 3 * DIRECTIONS,
            "switched": len(switches), "switched_first_at_step": switches, "norm": [float(bar.norm()) for bar in bars],
        }  # fmt: skip
        text = f"{max(errors):.1e}" if errors else "none comparable"
        run.say(
            f"{count:,} steps: gradient {'finite' if finite else 'NOT FINITE'}, differences agree to {text} of its norm"
            f" (in {len(switches)} of {3 * DIRECTIONS} directions a contact changes its mode)"
        )
    run.record(gradient_check=results)


@torch.no_grad()
def difference(
    world: World, steps: int, which: int, bar: Tensor, random: torch.Generator
) -> tuple[float | None, int]:  # fmt: skip
    """The error of a derivative along a random direction, relative to the gradient's norm and the direction's.

    which: of q, v and the controls; bar: the gradient for it. None where modes change; and from which step on they do.
    """
    inputs = (*world.start, world.controls[:steps])
    along = torch.randn(inputs[which].shape, generator=random, dtype=torch.float64)
    if which == 0:
        along[3] = 0.0  # the start is upright: what is left turns it
    exact, best, first = float((bar * along).sum()), None, -1
    for size in MOVES:
        paths = []
        for sign in (1.0, -1.0):
            q, v, u = (x + sign * size * along if i == which else x for i, x in enumerate(inputs))
            paths.append(world.simulator.rollout(State(q, v), u))
        change = torch.nonzero(paths[0].status.modes != paths[1].status.modes).flatten()
        if len(change):
            first = int(change[0])
            continue
        (slope,) = slopes([float(loss(path.last)) for path in paths], size)
        error = abs(slope - exact) / float(bar.norm() * along.norm())
        best = error if best is None else min(best, error)
    return best, first


def phases(run: Run, world: World) -> None:
    """What a step costs in the air, while landing, and standing; and a call."""
    simulator, controls = world.simulator, world.controls
    high = State(world.start.q.clone(), world.start.v)
    high.q[2] += 100.0
    with torch.no_grad():
        still = simulator.rollout(world.start, controls[:SETTLED]).last

    @torch.no_grad()
    def seconds(start: State, steps: int) -> float:
        return min(shortest(lambda: simulator.rollout(start, controls[:steps]), 1.0, 2000))

    def between(start: State, first: int, last: int) -> float:
        return (seconds(start, last) - seconds(start, first)) / (last - first)

    costs = {
        "call": seconds(high, 1), "air": between(high, 10, 210), "landing": between(world.start, 40, 90),
        "standing": between(still, 10, 210),
    }  # fmt: skip
    run.record(seconds_of_a_step=costs)
    words = ", ".join(f"{name} {1e6 * x:.2f}" for name, x in costs.items() if name != "call")
    run.say(f"a forward step, µs: {words}; a call of rollout costs {1e6 * costs['call']:.0f}")


def measure(run: Run, world: World, settings: Settings) -> dict[str, dict[str, Any]]:
    """What every tool says, by name; {"missing": why} of those that cannot run here."""
    found: dict[str, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory() as folder:
        request = Path(folder, "request.json")
        for tool in run.track(TOOLS, "tools"):
            steps = [n for n in settings.steps if tool.steps is None or n in tool.steps]
            request.write_text(json.dumps(world.request(settings) | {"steps": steps}), "utf-8")
            if tool.slow and not settings.slow:
                found[tool.name] = {"missing": "left out in a quick run"}
            else:
                found[tool.name] = ask(tool, request, folder)
            if "missing" in found[tool.name]:
                run.say(f"{tool.name}: {found[tool.name]['missing']}")
            run.record(tools=found)
    return found


def compare(run: Run, world: World, found: Mapping[str, Mapping[str, Any]]) -> None:
    """That those with the same equations move as the engine does, and have its gradients."""

    def tangent(bars: Sequence[Any]) -> np.ndarray:
        q, v, u = (np.asarray(x, dtype=np.float64) for x in bars)
        return np.concatenate([to_tangent(world.start.q.numpy(), q, 18), v, u.ravel()])

    results: dict[str, Any] = {}
    for tool in TOOLS:
        rows = found[tool.name].get("rows", {}) if tool.same else {}
        for count, row in rows.items():
            last, bars = world.gradient(int(count))
            ends = [np.abs(x.detach().numpy() - row[name]).max() for name, x in (("q", last.q), ("v", last.v))]
            entry = {"motion": float(max(ends))}
            if "start_bar" in row:
                ours = tangent(bars)
                theirs = tangent((row["start_bar"][:19], row["start_bar"][19:], row["controls_bar"]))
                entry["gradient"] = float(np.linalg.norm(ours - theirs) / np.linalg.norm(ours))
            results.setdefault(tool.name, {})[count] = entry
    run.record(agreement=results, agreement_within=AGREE)
    for name, entries in results.items():
        worst = {what: max(entry.get(what, 0.0) for entry in entries.values()) for what in ("motion", "gradient")}
        wrong = "" if max(worst.values()) <= AGREE else ": IT DIFFERS"
        run.say(f"{name} - backdrive: states {worst['motion']:.1e}, gradients {worst['gradient']:.1e}{wrong}")


def verdict(run: Run, rows: Mapping[str, Mapping[str, Any]]) -> None:
    """backdrive against what the table has to show."""
    for count, row in rows.items():
        values = {"forward": forward(row), "backward": backward(row), "memory": row["memory"]}
        met = {name: value is not None and value <= GOAL[name] for name, value in values.items()}
        run.results.setdefault("goals", {})[count] = {"values": values, "met": met}
        words = [f"{name} {1e6 * values[name]:.2f} µs ({'goal' if met[name] else 'MISSED goal'} {1e6 * GOAL[name]:.3g})"
                 for name in ("forward", "backward")]  # fmt: skip
        if values["memory"] is not None:
            words.append(
                f"memory {values['memory']:.2f} MB ({'goal' if met['memory'] else 'MISSED goal'} {GOAL['memory']:g})"
            )
        run.say(f"{int(count):,} steps: " + ", ".join(words))
    run.record(goal=GOAL)


# ---------------------------------------------------------------------------------------------- tables and figures


def forward(row: Mapping[str, Any]) -> float:
    """s per step"""
    return min(row["forward"])


def backward(row: Mapping[str, Any]) -> float:
    """s per step"""
    return min(row["gradient"]) - min(row["forward"])


def noise(rows: Mapping[str, Mapping[str, Any]]) -> float:
    """By which part two rounds of the same measurement differ: the median of all."""
    pairs = [row[what] for row in rows.values() for what in ("forward", "gradient")]
    return statistics.median(max(pair) / min(pair) - 1.0 for pair in pairs)


def _ms(value: float | None) -> str:
    return "–" if value is None else f"{value:.3g}"


def tables(found: Mapping[str, Mapping[str, Any]], steps: Sequence[int]) -> str:
    """Markdown."""
    parts = []
    kinds = {
        "Forward, ms per step": lambda row: _ms(1e3 * forward(row)),
        "Backward, ms per step": lambda row: _ms(1e3 * backward(row)),
        "Memory that a gradient takes, MB": lambda row: "–" if row["memory"] is None else f"{row['memory']:.2f}",
    }
    for title, cell in kinds.items():
        last = "two rounds differ by" if title.startswith("Forward") else ""
        heads = [title, *(f"{n:,}" for n in steps), *([last] if last else [])]
        lines = [heads, ["---", *["---:"] * (len(heads) - 1)]]
        for name, one in found.items():
            if "missing" in one:
                lines.append([f"{name}: {one['missing']}", *[""] * (len(heads) - 1)])
                continue
            slow = one["stopped"] or max(STEPS) + 1  # from so many steps on
            cells = [
                cell(one["rows"][str(n)]) if str(n) in one["rows"] else "too slow" if n >= slow else "–" for n in steps
            ]
            lines.append([name, *cells, *([f"{100 * noise(one['rows']):.0f} %"] if last else [])])
        if title.startswith("Forward"):
            for name, quoted in PAPER_STEPS.items():
                given = dict(zip(STEPS, quoted))
                lines.append([f"*quoted: {name}, in the paper*", *(_ms(given[n]) for n in steps), ""])
            lines.append(
                [
                    "*quoted: diffarticulated, built on such a machine*",
                    *[f"{DIFFARTICULATED['forward_ms']}"] * len(steps),
                    "",
                ]
            )
        elif title.startswith("Backward"):
            low, high = DIFFARTICULATED["backward_ms"]
            lines.append(["*quoted: diffarticulated*", *[f"{low} to {high}"] * len(steps)])
        else:
            at = [str(DIFFARTICULATED["memory_mb_at_5000"]) if n == 5000 else "" for n in steps]
            lines.append(["*quoted: diffarticulated*", *at])
        parts.append("\n".join("| " + " | ".join(line) + " |" for line in lines))
    heads = ["", "version", "settings", "compile, s"]
    lines = [heads, ["---", "---", "---", "---:"]]
    for name, one in found.items():
        if "missing" not in one:
            times = [row["compile"] for row in one["rows"].values()]
            lines.append([name, one["version"], one["settings"], f"{max(times):.1f}"])
    parts.append("\n".join("| " + " | ".join(line) + " |" for line in lines))
    return "\n\n".join(parts) + "\n"


def draw(run: Run, found: Mapping[str, Mapping[str, Any]], steps: Sequence[int]) -> None:
    """Forward, backward and memory against the number of steps, log-log; quoted figures dashed."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 3, figsize=(14, 4.8), layout="constrained")
    shown = {name: one for name, one in found.items() if "missing" not in one}
    for k, (name, one) in enumerate(shown.items()):
        counts = [int(n) for n in one["rows"]]
        rows = list(one["rows"].values())
        style: dict[str, Any] = {
            "color": f"C{k}",
            "marker": "o",
            "ms": 4,
            "lw": 2.5 if name == "backdrive" else 1.3,
            "label": name,
        }
        axes[0].loglog(counts, [1e3 * forward(row) for row in rows], **style)
        axes[1].loglog(counts, [1e3 * backward(row) for row in rows], **style)
        if all(row["memory"] for row in rows):
            axes[2].loglog(counts, [row["memory"] for row in rows], **style)
    for name, quoted in PAPER_STEPS.items():
        known = [(n, x) for n, x in zip(STEPS, quoted) if x is not None and n in steps]
        if name == "Ceres":  # as ADF, within a tenth
            continue
        axes[0].loglog(*zip(*known), color="0.6", ls="--", lw=0.9)
        axes[0].annotate(f"{name} (paper)", known[0], fontsize=7, color="0.4", va="bottom")
    _quote(axes[0], DIFFARTICULATED["forward_ms"])
    _quote(axes[1], DIFFARTICULATED["backward_ms"][0])
    if 5000 in steps:
        place = 5000, DIFFARTICULATED["memory_mb_at_5000"]
        axes[2].plot(*place, "k*", ms=9)
        axes[2].annotate("diffarticulated (quoted) ", place, fontsize=7, ha="right", va="bottom")
    for axis, title in zip(
        axes, ("forward, ms per step", "backward, ms per step", "memory of a gradient, MB"), strict=True
    ):
        axis.set(xlabel="steps", title=title, xticks=steps, xticklabels=[f"{n:,}" for n in steps])
        axis.minorticks_off()
        axis.grid(True, which="major", alpha=0.3)
    axes[1].legend(fontsize=8)
    run.figure("laikago", figure)


def _quote(axis: Axes, value: float) -> None:
    axis.axhline(value, color="k", ls=":", lw=1.0)
    axis.annotate(
        "diffarticulated (quoted)", (0.02, value), xycoords=("axes fraction", "data"), fontsize=7, va="bottom"
    )
