"""Gradients of MuJoCo's physics, of Gymnasium's robots: against central differences of every input, against MuJoCo's
own finite differences (`mjd_transitionFD`), and over 1,000 steps.

A difference counts if the active set is the same on both sides, and if those of two sizes agree. Errors are relative to
the change of the state, |J d|.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import mujoco
import numpy as np
import torch
from torch import Tensor

import backdrive as bd
from backdrive.differences import extrapolate, slopes
from backdrive.runtime.tangent import Tangent
from backdrive.simulator import RolloutArguments

from .mujoco_agreement import ASSETS, FILES, mujoco_model, visited
from .report import Table, Target
from .timing import Run

SIZES = (1e-2, 1e-3, 1e-4, 1e-5, 1e-6, 1e-7)  # of differences, relative to the largest entry of the input
OFFSETS = (1.0, -1.0, 2.0, -2.0)
AGREE, RIGHT, LEAST = 1e-7, 1e-6, 1e-3  # of two sizes; of the gradient; |J d| below `LEAST` counts as this
STATE = ("q", "v", "u", "wrench")
PLACES = ("com", "offset", "anchor", "shape_position", "axis", "gravity")  # vectors: entries that are zero vary, too
STEPS = 1000
EPSILON = 1e-6  # of MuJoCo's differences


def measure(run: Run) -> list[Table]:
    count = 64 if run.quick else 512
    steps = Table("MuJoCo's physics: gradients of a step", ["", "inputs", "differences", "on a switch", "worst error"])
    against = Table("MuJoCo's physics: linearize against mjd_transitionFD", ["", "states", "median", "worst"])
    long = Table(f"MuJoCo's physics: gradients over {STEPS} steps", ["", "environments", "largest |∂v(T)/∂u|"])
    for name in FILES:
        run.tell(f"gradients of {name}")
        robot = Robot.load(name, count)
        found = list(robot.compare())
        names = {input for input, _, _ in found}
        clean = torch.cat([clean for _, clean, _ in found])
        errors = torch.cat([error for _, _, error in found])[clean]
        worst = float(errors.max()) if errors.numel() else math.nan
        switched = f"{100.0 * float((~clean).double().mean()):.1f} %"
        target = Target(worst, RIGHT, "")
        steps.add(name, f"{len(names)}", f"{len(errors):,}", switched, f"{worst:.1e}", target=target)
        errors = robot.transition_errors(16 if run.quick else 64)
        against.add(name, f"{len(errors)}", f"{np.median(errors):.1e}", f"{errors.max():.1e}")
        norms = robot.long_gradient(8)
        long.add(name, f"{len(norms)}", f"{float(norms.max()):.1e}")
        long.check(f"{name}: gradients that are not finite", float((~norms.isfinite()).sum()), 0.0)
    against.notes.append(f"errors: |A - A_FD| / |A|, with central differences of {EPSILON:g}, at full precision")
    return [steps, against, long]


@dataclass(frozen=True)
class Robot:
    """A robot, and states and controls that it visits, [B, n] each."""

    mjcf: mujoco.MjModel
    simulator: bd.Simulator
    q: Tensor
    v: Tensor
    u: Tensor

    @classmethod
    def load(cls, name: str, count: int) -> Robot:
        path = ASSETS / f"{name}.xml"
        mjcf = mujoco_model(path)
        at = visited(mjcf, count)
        states = (torch.from_numpy(x) for x in (at.q, at.v, at.u))
        return cls(mjcf, bd.Simulator(bd.load(path), physics="mujoco"), *states)

    def compare(self) -> Iterator[tuple[str, Tensor, Tensor]]:
        """Of every input: its name, whether its differences count, and the errors of the gradient, [B] each."""
        generator, count = torch.Generator().manual_seed(0), len(self.q)

        def random(*shape: int) -> Tensor:
            return torch.randn(*shape, generator=generator, dtype=torch.float64)

        values = self._inputs(random)
        weights = random(count, self.mjcf.nq + self.mjcf.nv)
        leaves = {name: x.clone().requires_grad_() for name, x in values.items()}
        states, modes = self._step(leaves)
        bars = torch.autograd.grad((states * weights).sum(), list(leaves.values()), allow_unused=True)
        for (name, value), bar in zip(values.items(), bars, strict=True):
            direction = self._direction(name, value, random)
            if bar is None or not bool(direction.any()):
                continue
            unit = value.abs().amax().clamp(min=0.1 if name in PLACES else 1e-3) * (1.0 if name in STATE else 0.01)
            found, clean = self._differences(values, name, direction, unit, modes)
            adjoint = (bar * direction).flatten(1).sum(1)
            scale = found.norm(dim=2).clamp(min=LEAST)
            errors = ((found * weights).sum(2) - adjoint).abs() / scale
            best = torch.where(clean, errors, torch.inf).amin(0)
            yield name, clean.any(0), best

    def _differences(
        self, values: dict[str, Tensor], name: str, direction: Tensor, unit: Tensor, modes: Tensor
    ) -> tuple[Tensor, Tensor]:
        """J d [sizes - 1, B, n], and whether it counts."""
        found, same = [], []
        for size in SIZES:
            step = float(size * unit)
            with torch.no_grad():
                ends = [self._step(values | {name: values[name] + k * step * direction}) for k in OFFSETS]
            found.append(extrapolate(slopes([x for x, _ in ends], step)))
            same.append(torch.stack([other == modes for _, other in ends]).all(0))
        clean = []
        for k in range(1, len(SIZES)):
            scale = found[k].norm(dim=1).clamp(min=LEAST)
            clean.append(same[k] & ((found[k] - found[k - 1]).norm(dim=1) < AGREE * scale))
        return torch.stack(found[1:]), torch.stack(clean)

    def _inputs(self, random: Callable[..., Tensor]) -> dict[str, Tensor]:
        model, count = self.simulator.model, len(self.q)
        values = {"q": torch.zeros_like(self.v), "v": self.v, "u": self.u}
        values["wrench"] = 0.1 * random(count, model.nbody, 6)
        ignored = self.simulator._program.ignored
        for name in (x.name for x in model.parameters()):
            value = model.parameter(name)
            if name not in ignored and value.numel() and bool(torch.isfinite(value).all()):
                # Where two shapes have the same friction, the larger one is not differentiable.
                apart = torch.rand(count, *value.shape, dtype=torch.float64)
                values[name] = value * (1.0 + 0.02 * (apart[..., :1] if name == "inertia" else apart))
        return values

    def _direction(self, name: str, value: Tensor, random: Callable[..., Tensor]) -> Tensor:
        size = torch.ones_like(value) if name in STATE else value.abs()
        if name in PLACES:
            size = size.clamp(min=0.1)
        elif name == "inertia":
            size = 0.1 * size.amax(-1, keepdim=True).expand_as(size)
        direction = random(*value.shape) * size
        length = direction.flatten(1).norm(dim=1).clamp(min=1e-300)
        return direction / length.reshape(-1, *[1] * (value.ndim - 1))

    def _step(self, inputs: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        """The states [B, nq + nv] after a step, and the fingerprints of the active sets [B]."""
        given = dict(inputs)
        q = Tangent(self.simulator.model).displace(self.q, given.pop("q"))
        v, u, wrench = given.pop("v"), given.pop("u"), given.pop("wrench")
        arguments = RolloutArguments(bd.State(q, v), u[None], wrenches=wrench[None], parameters=given)
        path = self.simulator._rollout(arguments, check_parameters=False)  # flat bodies have the least inertia already
        return torch.cat([path.q[-1], path.v[-1]], 1), path.status.modes[-1]

    def transition_errors(self, count: int) -> np.ndarray:
        """|A - A_FD| / |A| of some states; by Euler's method where the file says RK4, which MuJoCo refuses."""
        state, data, nv = bd.State(self.q[:count], self.v[:count]), mujoco.MjData(self.mjcf), self.mjcf.nv
        simulator = self.simulator
        if self.mjcf.opt.integrator == mujoco.mjtIntegrator.mjINT_RK4:
            self.mjcf.opt.integrator = mujoco.mjtIntegrator.mjINT_EULER
            simulator = bd.Simulator(simulator.model, physics=bd.MuJoCo(integrator="euler"))
        A, B = (x.numpy() for x in simulator.linearize(state, self.u[:count]))
        errors = []
        for k in range(count):
            mujoco.mj_resetData(self.mjcf, data)
            data.qpos[:], data.qvel[:], data.ctrl[:] = self.q[k].numpy(), self.v[k].numpy(), self.u[k].numpy()
            FA, FB = np.zeros((2 * nv, 2 * nv)), np.zeros((2 * nv, self.mjcf.nu))
            mujoco.mjd_transitionFD(self.mjcf, data, EPSILON, True, FA, FB, None, None)
            mine, theirs = np.hstack([A[k], B[k]]), np.hstack([FA, FB])
            errors.append(np.linalg.norm(mine - theirs) / np.linalg.norm(mine))
        return np.array(errors)

    def long_gradient(self, count: int) -> Tensor:
        """The norms [B] of the gradient of Σ v with respect to all controls."""
        generator = torch.Generator().manual_seed(1)
        controls = torch.rand(STEPS, count, self.mjcf.nu, generator=generator, dtype=torch.float64) - 0.5
        controls.requires_grad_()
        start = self.simulator.model.initial_state(count)
        path = self.simulator.rollout(start, controls)
        (gradient,) = torch.autograd.grad(path.v[-1].sum(), controls)
        return gradient.norm(dim=(0, 2))
