"""Run time of 10 s of 1 and of 128 quadrupeds with a neural network in the loop, with and without its gradient.

The paper states the numbers of parameters of its two controllers, 1,296 and 1,147,904, which match networks 81 -> 16
and 81 -> 1024 -> 1024 -> 16 without biases; it does not describe the robot, its observations, or the time step. Here
the robot has four legs with four hinges each, and a position servo on every hinge (`build`); its 81 observations are
`SENSORS` and `clock`, and a step is 0.01 s.

The controllers have random weights with which the robot shuffles on its feet, always in contact. The gradient is that
of the distance travelled, with respect to all weights.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..differences import central, relative_error
from ..model import Box, HalfSpace, Hinge, Model, PositionServo, Scene, Sphere, State
from ..policy import MLP, Sensor
from ..simulator import Simulator
from ..threads import one_torch_thread
from ..trajectory import Trajectory
from .run import Run

DT, SECONDS = 1 / 100, 10.0
LEGS = {"front left": (0.2, 0.12), "front right": (0.2, -0.12), "rear left": (-0.2, 0.12), "rear right": (-0.2, -0.12)}
PARTS = {  # Parts of a leg, from the trunk down: axis of the hinge, length (m), mass (kg).
    "hip": ((1.0, 0.0, 0.0), 0.06, 0.5),
    "thigh": ((0.0, 1.0, 0.0), 0.20, 0.8),
    "shank": ((0.0, 1.0, 0.0), 0.20, 0.4),
    "foot": ((0.0, 1.0, 0.0), 0.05, 0.15),
}
TRUNK, TRUNK_MASS, SOLE, THICKNESS = (
    (0.5, 0.24, 0.1),
    8.0,
    0.03,
    0.02,
)  # m, kg; radii of a foot's sphere and of a leg, m.
STIFFNESS, DAMPING, ARMATURE = 80.0, 2.0, 0.02  # N m/rad, N m s/rad, kg m²
FRICTION = 0.8
FEET = [f"{leg} foot" for leg in LEGS]
SENSORS: tuple[Sensor, ...] = (
    "q",  # 23: position and orientation of the trunk, joint angles
    "v",  # 22
    ("rotation", "trunk"),  # 9
    *(("position", foot) for foot in FEET),  # 12
    *(("velocity", foot) for foot in FEET),  # 12
)
STRIDE = 2.0  # Frequency of the clock, Hz.
SIZES = {"1,296": (81, 16), "1,147,904": (81, 1024, 1024, 16)}
FEEDBACK = 0.1  # Scale of the first layer's weights, except those of the clock.
GAIN = {"1,296": 0.4, "1,147,904": 2.0}  # Scale of the last layer's weights.
ROBOTS = (1, 128)
PAPER = {  # Seconds on a CPU that the paper reports: with gradient, without.
    ("1,296", 1): (8.17, 1.06), ("1,147,904", 1): (13.2, 2.04),
    ("1,296", 128): (263.0, 47.7), ("1,147,904", 128): (311.0, 50.4),
}  # fmt: skip
COMPILED, BY_TORCH, CALLED = "compiled", "torch, one node", "torch module"
WAYS = {"1,296": (COMPILED, CALLED), "1,147,904": (BY_TORCH, CALLED)}
"""How a controller is evaluated: inside the kernel; by torch, with a hand-written derivative; or as a module that is
called between steps and recorded by autograd (2 GB for 128 large controllers)."""
LEFT_OUT = ("1,147,904", 128, CALLED)
SINGLE = tuple(("1,147,904", robots, BY_TORCH) for robots in ROBOTS)  # Cases that are also run in float32.


@dataclass(frozen=True)
class RobotsTableSettings:
    """How thorough a run is."""

    seconds: float
    """Simulated time, s."""
    repeats: int
    """Number of repeated measurements with the small controller."""
    large_repeats: int
    """Number of repeated measurements with the large controller."""


FULL, QUICK = RobotsTableSettings(SECONDS, 7, 2), RobotsTableSettings(0.5, 2, 1)


# ---------------------------------------------------------------------------------------------- the robot


def build() -> Model:
    """The robot. At joint angles of zero, the servos' targets for zero control, its legs are straight."""
    height = SOLE + sum(length for _, length, _ in PARTS.values())
    scene = Scene(dim=3)
    scene.add_static(HalfSpace(normal=(0.0, 0.0, 1.0)), friction=FRICTION)
    scene.add_body("trunk", Box(*TRUNK), mass=TRUNK_MASS, position=(0.0, 0.0, height), friction=FRICTION)
    for leg, (x, y) in LEGS.items():
        top, parent = height, "trunk"
        for part, (axis, length, mass) in PARTS.items():
            name = f"{leg} {part}"
            scene.add_body(name, mass=mass, position=(x, y, top - length / 2), inertia=_rod(mass, length))
            hinge = Hinge(axis=axis, armature=ARMATURE, damping=DAMPING)
            scene.add_joint(name, hinge, parent=parent, child=name, anchor=(x, y, top))
            scene.add_motor(name, PositionServo(kp=STIFFNESS, kv=0.0), joint=name)
            top, parent = top - length, name
        scene.add_shape(parent, Sphere(SOLE), position=(0.0, 0.0, -PARTS["foot"][1] / 2), friction=FRICTION)
    return scene.build()


def _rod(mass: float, length: float) -> tuple[float, float, float]:
    """Moments of inertia of an upright rod, kg m²."""
    across = mass * (length**2 / 12 + THICKNESS**2 / 4)
    return (across, across, mass * THICKNESS**2 / 2)


def clock(steps: int, dtype: torch.dtype = torch.float64) -> Tensor:
    """The controllers' 3 inputs besides the sensors, [T, 3]: sine and cosine of the stride's phase, and 1."""
    phase = 2.0 * math.pi * STRIDE * DT * torch.arange(steps, dtype=torch.float64)
    return torch.stack([phase.sin(), phase.cos(), torch.ones_like(phase)], -1).to(dtype)


def controller(name: str, generator: torch.Generator, way: str, dtype: torch.dtype = torch.float64) -> MLP:
    policy = MLP(
        SIZES[name], bias=False, output="tanh", sensors=SENSORS, compiled=way == COMPILED, dtype=dtype,
        generator=generator,
    )  # fmt: skip
    with torch.no_grad():
        policy.linear[0].weight[:, :-3] *= FEEDBACK
        policy.linear[-1].weight *= GAIN[name]
    return policy


class QuadrupedWorld:
    """Robots with slightly different initial joint angles."""

    def __init__(self, generator: torch.Generator, dtype: torch.dtype = torch.float64) -> None:
        self.model = build()
        self.simulator = Simulator(self.model, DT, dtype=dtype)
        self.crooked = 0.05 * torch.randn(max(ROBOTS), self.model.nu, generator=generator, dtype=torch.float64)

    def start(self, robots: int) -> State:
        q, v = self.model.initial_state(batch=robots)
        q[:, 7:] += self.crooked[:robots]
        return State(q.to(self.simulator.dtype), v.to(self.simulator.dtype))

    def move(self, policy: MLP, way: str, robots: int, steps: int) -> Trajectory:
        inputs, start = clock(steps, self.simulator.dtype), self.start(robots)
        if way != CALLED:
            return self.simulator.rollout(start, policy=policy, inputs=inputs)
        ticks = inputs.unsqueeze(1).expand(-1, robots, -1)

        def module(state: State, t: int) -> Tensor:
            return policy(torch.cat([self.simulator.observe(state, SENSORS), ticks[t]], -1))

        return self.simulator.rollout(start, policy=module, steps=steps)

    def gradient(self, policy: MLP, way: str, robots: int, steps: int) -> tuple[Tensor, ...]:
        """The gradient of the mean distance with respect to all weights."""
        path = self.move(policy, way, robots, steps)
        return torch.autograd.grad(path.last.q[:, 0].mean(), list(policy.parameters()))


# ---------------------------------------------------------------------------------------------- the experiment


def run(run: Run) -> None:
    settings = QUICK if run.quick else FULL
    steps = round(settings.seconds / DT)
    with one_torch_thread():
        table_of_seconds(run, settings, steps)


def table_of_seconds(run: Run, settings: RobotsTableSettings, steps: int) -> None:
    world = QuadrupedWorld(run.generator(1))
    run.record(
        world={
            "dt": DT, "seconds": settings.seconds, "links": world.model.nlink, "motors": world.model.nu,
            "sensors": [sensor if isinstance(sensor, str) else " of ".join(sensor) for sensor in SENSORS] + ["clock"],
        },
        threads={"torch": torch.get_num_threads(), "backdrive": world.simulator._program.threads},
        paper={f"{robots} x {name}": figures for (name, robots), figures in PAPER.items()},
    )  # fmt: skip
    check(run, world, min(steps, 50))
    table = measure(run, world, settings, steps)
    compare(run, table)
    draw(run, table)
    policy = controller("1,296", run.generator(2), COMPILED)
    with torch.no_grad():
        run.film("robots", world.move(policy, COMPILED, 4, steps), environment="all", forces=False)


def check(run: Run, world: QuadrupedWorld, steps: int) -> None:
    """Check that the ways agree in values and gradients, and that gradients agree with differences."""
    found: dict[str, Any] = {}
    for name, ways in WAYS.items():
        results = []
        for way in ways:
            policy = controller(name, run.generator(2), way)
            with torch.no_grad():
                path = world.move(policy, way, 2, steps)
            results.append([path.q, path.v, path.controls, *world.gradient(policy, way, 2, steps)])
        values, gradients = ([_difference(*pair) for pair in zip(*(r[a:b] for r in results), strict=True)]
                             for a, b in ((0, 3), (3, None)))  # fmt: skip
        error, switched = gradient_error(world, controller(name, run.generator(2), ways[0]), ways[0], steps)
        found[name] = {
            "steps": steps, "status": repr(path.status), "values": max(values), "gradients": max(gradients),
            "against_differences": error, "mode_switch_within_the_difference": switched,
        }  # fmt: skip
        run.say(
            f"{name} parameters, {steps} steps: {' and '.join(ways)} agree to {max(values):.1e} in values, "
            f"{max(gradients):.1e} in gradients, and with differences to {error:.1e}"
            + (", over a change of contact modes" if switched else "")
        )
    run.record(checks=found)


def _difference(a: Tensor, b: Tensor) -> float:
    """The largest difference of a and b, relative to the largest element of b."""
    return float((a - b).abs().max() / b.abs().max())


def gradient_error(world: QuadrupedWorld, policy: MLP, way: str, steps: int, move: float = 1e-6) -> tuple[float, bool]:
    """Relative error of the derivative of one robot's distance along its gradient, against central differences.

    Also whether a contact changes its mode within the difference, so that the derivative jumps.
    """
    gradients, weights = world.gradient(policy, way, 1, steps), list(policy.parameters())
    norm = torch.stack([g.square().sum() for g in gradients]).sum().sqrt()
    before = [weight.detach().clone() for weight in weights]
    modes = []

    @torch.no_grad()
    def distance(shift: float) -> float:
        for weight, at, g in zip(weights, before, gradients, strict=True):
            weight.copy_(at).add_(g, alpha=shift / float(norm))
        path = world.move(policy, way, 1, steps)
        modes.append(path.status.modes)
        return float(path.last.q[:, 0].mean())

    error = relative_error(central(distance, move), float(norm))
    return error, not torch.equal(*modes)


def measure(run: Run, world: QuadrupedWorld, settings: RobotsTableSettings, steps: int) -> list[dict[str, Any]]:
    """Measure the seconds for 10 s of motion of all cases, each after a first call that compiles."""
    cases = [(*key, way, world) for key in PAPER for way in WAYS[key[0]] if (*key, way) != LEFT_OUT]
    if SINGLE:
        single = QuadrupedWorld(run.generator(1), torch.float32)
        cases += [(*case, single) for case in SINGLE]
    table = []
    for name, robots, way, here in run.track(cases, "cases"):
        dtype = here.simulator.dtype
        policy = controller(name, run.generator(2), way, dtype)
        repeats = settings.repeats if name == "1,296" else settings.large_repeats
        here.gradient(policy, way, robots, 2)

        def without(policy: MLP = policy, way: str = way, robots: int = robots, here: QuadrupedWorld = here) -> None:
            with torch.no_grad():
                here.move(policy, way, robots, steps)

        def with_gradient(
            policy: MLP = policy, way: str = way, robots: int = robots, here: QuadrupedWorld = here
        ) -> None:
            here.gradient(policy, way, robots, steps)

        seconds = _seconds({"without": without, "with": with_gradient}, repeats, SECONDS / settings.seconds)
        table.append({"parameters": name, "robots": robots, "way": way, "dtype": str(dtype).split(".")[-1], **seconds})
        run.record(table=table)
    return table


def _seconds(cases: dict[str, Callable[[], None]], repeats: int, scale: float) -> dict[str, dict[str, float]]:
    """Wall time, and processor time of all threads, which is less sensitive to other programs on the machine.

    The cases take turns, so that a temporary slowdown of the machine affects all of them.
    """
    taken: dict[str, list[float]] = {name: [] for name in cases}
    worked: dict[str, list[float]] = {name: [] for name in cases}
    for _ in range(repeats):
        for name, evaluate in cases.items():
            began, before = time.perf_counter(), time.process_time()
            evaluate()
            taken[name].append(scale * (time.perf_counter() - began))
            worked[name].append(scale * (time.process_time() - before))
    return {
        name: {"least": min(x), "median": statistics.median(x), "most": max(x), "processor": min(worked[name])}
        for name, x in taken.items()
    }


def compare(run: Run, table: list[dict[str, Any]]) -> None:
    """Ratios of the least times: paper over ours, with over without gradient, module over compiled controller."""
    modules = {(row["parameters"], row["robots"]): row["with"]["least"] for row in table if row["way"] == CALLED}
    for row in table:
        least, key = row["with"]["least"], (row["parameters"], row["robots"])
        paper = PAPER[key]
        row["ratio"] = least / row["without"]["least"]
        row["faster_than_paper"] = {"with": paper[0] / least, "without": paper[1] / row["without"]["least"]}
        row["faster_than_module"] = modules[key] / least if key in modules else None
        times = [f"{row['faster_than_paper'][what]:.3g}" for what in ("with", "without")]
        words = f", {row['faster_than_module']:.3g} x the module in the loop" if row["faster_than_module"] else ""
        run.say(
            f"{row['robots']} x {row['parameters']} parameters, {row['way']}, {row['dtype']}: "
            f"{least:.3g} s with gradient, {row['without']['least']:.3g} s without (ratio {row['ratio']:.2f}), "
            f"{' and '.join(times)} x as fast as the paper{words}"
        )
    run.record(table=table)


def draw(run: Run, table: list[dict[str, Any]]) -> None:
    """Draw the seconds of every case beside the paper's."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 2, figsize=(12, 4.2), layout="constrained", sharey=True)
    for axis, what, column in ((axes[0], "with", 0), (axes[1], "without", 1)):
        for place, key in enumerate(PAPER):
            rows = [row for row in table if (row["parameters"], row["robots"]) == key]
            bars = [("paper, CPU", PAPER[key][column], "0.6")]
            colors = {COMPILED: "C0", BY_TORCH: "C2", CALLED: "C3"}
            for row in rows:
                label = row["way"] + (", float32" if row["dtype"] == "float32" else "")
                bars.append((label, row[what]["least"], colors[row["way"]]))
            for k, (label, seconds, color) in enumerate(bars):
                at = place + 0.2 * k - 0.1 * (len(bars) - 1)
                known = axis.get_legend_handles_labels()[1]
                pale = 0.5 if "float32" in label else 1.0
                axis.bar(at, seconds, 0.18, color=color, alpha=pale, label=None if label in known else label)
        names = [f"{robots} robot{'s' * (robots > 1)}\n{name} parameters" for name, robots in PAPER]
        axis.set_xticks(range(len(PAPER)), names, fontsize=8)
        axis.set(yscale="log", title=f"{what} gradient")
    axes[0].set_ylabel("seconds for 10 s")
    axes[0].legend(fontsize=8)
    run.figure("seconds", figure)
