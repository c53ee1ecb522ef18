"""The simulator: a model, a step size, and an integrator, as a PyTorch module."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from . import operators
from .model import Model, State
from .model.layout import Kind
from .physics.integrate import Integrator, Midpoint, SemiImplicitEuler
from .physics.poses import POSE
from .program import Program
from .trajectory import Trajectory


@dataclass(frozen=True)
class Checkpoint:
    """Keep the state of every `every`-th step only (and of the last); the backward pass computes the others again.

    Memory falls by the factor `every`, the backward pass takes about a third longer. The trajectory has the kept
    states.
    """

    every: int

    def __post_init__(self) -> None:
        _require_count("Checkpoint(every=...)", self.every)


@dataclass(frozen=True)
class Truncated:
    """Cut the backward pass every `steps` steps: gradients pass back over at most that many.

    For chaotic motion, where the gradient over long times grows beyond use.
    """

    steps: int

    def __post_init__(self) -> None:
        _require_count("Truncated(steps)", self.steps)


class Simulator(nn.Module):
    """Steps of `dt` seconds of a model, differentiable.

    integrator: `SemiImplicitEuler()` or `Midpoint()`. dtype: torch.float64 or torch.float32, of all tensors that go
    in and come out. threads: at most so many; None: all cores. The number changes no bit of any result. specialize:
    compile kernels for this very model (True: faster, a second or two once) or use those that serve every model
    (False); "auto": True for models of up to 40 links, as long as few of their constants are given as parameters.
    nonfinite: NaN or inf in an input raises ("raise"), or only shows in its environment's results and status
    ("mark").
    """

    def __init__(
        self, model: Model, dt: float, *, integrator: Integrator | None = None, dtype: torch.dtype = torch.float64,
        threads: int | None = None, specialize: bool | str = "auto", nonfinite: str = "raise",
    ) -> None:  # fmt: skip
        super().__init__()
        if not isinstance(model, Model):
            raise TypeError(f"model must be a backdrive Model (Scene.build() or load()), got {type(model).__name__}")
        if isinstance(dt, bool) or not isinstance(dt, (int, float)) or not (math.isfinite(dt) and dt > 0):
            raise ValueError(f"dt must be a positive number of seconds, got {dt!r}")
        if dtype not in (torch.float64, torch.float32):
            raise TypeError(f"dtype must be torch.float64 or torch.float32, got {dtype}")
        if integrator is None:
            integrator = SemiImplicitEuler()
        if not isinstance(integrator, SemiImplicitEuler | Midpoint):
            raise TypeError(f"integrator must be SemiImplicitEuler() or Midpoint(), got {integrator!r}")
        if threads is not None:
            _require_count("threads", threads)
        if specialize not in (True, False, "auto"):
            raise ValueError(f"specialize must be True, False or 'auto', got {specialize!r}")
        self.model, self.dt, self.integrator, self.dtype = model, float(dt), integrator, dtype
        if nonfinite not in ("raise", "mark"):
            raise ValueError(f"nonfinite must be 'raise' or 'mark', got {nonfinite!r}")
        self.threads, self.specialize, self.nonfinite = threads, specialize, nonfinite
        self._make_program()

    def _make_program(self) -> None:
        self._program = Program(
            self.model, self.dt, self.integrator, self.dtype, self.threads, self.specialize, self.nonfinite
        )

    def __getstate__(self) -> dict[str, Any]:
        """Compiled code is not copied or pickled: the copy makes its own, from the cache."""
        return {k: v for k, v in self.__dict__.items() if k != "_program"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._make_program()

    def extra_repr(self) -> str:
        return f"{self.model!r}, dt={self.dt:g}, {self.integrator!r}, {self.dtype}"

    # ------------------------------------------------------------------------------------------ steps

    def forward(self, state: State, control: Tensor | None = None, **kwargs: Any) -> State:
        """`step`."""
        return self.step(state, control, **kwargs)

    def step(
        self, state: State, control: Tensor | None = None, *, wrench: Tensor | None = None,
        parameters: Mapping[str, Tensor] | None = None,
    ) -> State:  # fmt: skip
        """The state after one step.

        state: q [B, nq], v [B, nv]; control: [B, nu] (zero if None); wrench: [B, nbody, 6] (3D: force, torque) or
        [B, nbody, 3] (2D: fx, fy, torque), on the centers of mass, in world axes, N and N m; parameters: see `rollout`.
        Without B everywhere: one world.
        """
        call = _Call(self, state, parameters)
        controls = call.controls(None if control is None else control.unsqueeze(0), 1)
        wrenches = call.wrenches(None if wrench is None else wrench.unsqueeze(0), 1)
        _, q, v = call.evaluate("rollout", controls, wrenches, [1, 1, 0, False])
        return State(*call.finished(q, v, dim=0))

    def rollout(
        self, state: State, controls: Tensor | None = None, *, steps: int | None = None,
        wrenches: Tensor | None = None, parameters: Mapping[str, Tensor] | None = None,
        adjoint: Checkpoint | Truncated | None = None,
    ) -> Trajectory:  # fmt: skip
        """Many steps, with all their states.

        state: where to start, q [B, nq], v [B, nv]. controls: [T, B, nu], or [T, nu] for all environments alike;
        without controls, `steps` says how long. wrenches: [T, B, nbody, 6 (3D) or 3 (2D)], as in `step`. parameters:
        {name: tensor}, of those that ``model.parameters()`` lists, in place of the model's own; each [*shape], or [B,
        *shape] for one per environment. adjoint: how the backward pass gets its states: `Checkpoint`, `Truncated`.
        Without B everywhere: one world.
        """
        given = [len(x) for x in (controls, wrenches) if x is not None and x.ndim > 0]
        if steps is None:
            if not given:
                raise ValueError("rollout needs controls [T, B, nu], wrenches [T, B, nbody, k], or steps=T")
            steps = given[0]
        _require_count("steps", steps)
        if any(n != steps for n in given):
            raise ValueError(f"steps = {steps}, but controls and wrenches are for {given} steps")
        if adjoint is not None and not isinstance(adjoint, Checkpoint | Truncated):
            raise TypeError(f"adjoint must be Checkpoint(every) or Truncated(steps), got {adjoint!r}")
        every = min(adjoint.every, steps) if isinstance(adjoint, Checkpoint) else 1
        truncate = adjoint.steps if isinstance(adjoint, Truncated) else 0
        call = _Call(self, state, parameters)
        settings = [steps, every, truncate, True]
        outcome = call.evaluate("rollout", call.controls(controls, steps), call.wrenches(wrenches, steps), settings)
        status, last_q, last_v, path_q, path_v = outcome
        q, v, status = call.finished(path_q, path_v, status, dim=1)
        last = State(*call.finished(last_q, last_v, dim=0))
        return Trajectory(self, q, v, last, status, every, steps, call.constants, call.names)

    def linearize(
        self, state: State, control: Tensor | None = None, *, parameters: Mapping[str, Tensor] | None = None
    ) -> tuple[Tensor, Tensor]:
        """A [B, 2 nv, 2 nv] and B [B, 2 nv, nu]: the Jacobians of a step, in the tangent space.

        (δq⁺, δv⁺) = A (δq, δv) + B δu, where δq are displacements in the coordinates of v: q ⊕ δq, as ``v dt`` moves q.
        """
        from .tangent import step_jacobians

        return step_jacobians(self, state, control, parameters)

    # ------------------------------------------------------------------------------------------ dynamics

    def forward_dynamics(
        self, state: State, control: Tensor | None = None, *, wrench: Tensor | None = None,
        parameters: Mapping[str, Tensor] | None = None,
    ) -> Tensor:  # fmt: skip
        """v̇ [B, nv]: M(q) v̇ = τ(q, v, u) - c(q, v), springs, dampers and motors included."""
        call = _Call(self, state, parameters)
        controls = call.controls(None if control is None else control.unsqueeze(0), 1)
        wrenches = call.wrenches(None if wrench is None else wrench.unsqueeze(0), 1)
        wrenches = None if wrenches is None else wrenches[0]
        return call.finished(*call.evaluate("forward", controls[0], wrenches), dim=0)[0]

    def inverse_dynamics(
        self, state: State, acceleration: Tensor, *, parameters: Mapping[str, Tensor] | None = None
    ) -> Tensor:
        """τ [B, nv] = M(q) v̇ + c(q, v): the generalised force that gives v̇ (`acceleration` [B, nv])."""
        call = _Call(self, state, parameters)
        vdot = call.tensor("acceleration", acceleration, (self.model.nv,))
        return call.finished(*call.evaluate("inverse", vdot), dim=0)[0]

    def mass_matrix(self, state: State, *, parameters: Mapping[str, Tensor] | None = None) -> Tensor:
        """M(q) [B, nv, nv], with the joints' armature."""
        call, nv = _Call(self, state, parameters), self.model.nv
        constants = call.constants if call.constants is not None else self._program.constants
        names = ",".join(filter(None, [call.names, "gravity"]))
        constants = torch.cat([constants[..., :-3], torch.zeros_like(constants[..., -3:])], -1)  # no weight
        if constants.ndim == 2:
            constants = constants.repeat_interleave(nv, 0)
        q = call.q.repeat_interleave(nv, 0)
        unit = torch.eye(nv, dtype=self.dtype).repeat(call.batch, 1)
        zero = torch.zeros_like(unit)
        (columns,) = operators.evaluate("inverse", q, zero, unit, None, constants, self._program.number, names, [])
        return call.finished(columns.unflatten(0, (call.batch, nv)), dim=0)[0]

    # ------------------------------------------------------------------------------------------ for trajectories

    def _link_poses(self, q: Tensor, v: Tensor, constants: Tensor | None, names: str) -> tuple[Tensor, ...]:
        """Rotation (9), position, angular velocity, velocity of every link: [S, (B,) nlink, k] each."""
        unbatched, device = q.ndim == 2, q.device
        q, v = q.cpu(), v.cpu()
        if unbatched:
            q, v = q.unsqueeze(1), v.unsqueeze(1)
        (out,) = operators.evaluate("poses", q, v, None, None, constants, self._program.number, names, [])
        out = out.unflatten(-1, (-1, sum(POSE)))
        if unbatched:
            out = out.squeeze(1)
        return out.to(device).split(list(POSE), -1)

    def _planar_angle(self, q: Tensor, body: str) -> Tensor:
        """The angle of a body of a 2D model: the joint angles on the way to it, and those the model was built with."""
        model = self.model
        link = int(model.body_link[model.body_index(body)])
        total = torch.zeros_like(q[..., 0])
        while link >= 0:
            record, at = model.constants[link * 31 : (link + 1) * 31], int(model.qadr[link])
            total = total + math.atan2(record[16], record[13])
            if model.kind[link] == Kind.HINGE:
                total = total + q[..., at] * float(record[27])
            elif model.kind[link] == Kind.PLANAR:
                total = total + q[..., at + 2]
            link = int(model.parent[link])
        return total


class _Call:
    """The arguments of one call: checked, batched, on the CPU."""

    def __init__(self, simulator: Simulator, state: State, parameters: Mapping[str, Tensor] | None) -> None:
        self.simulator, model = simulator, simulator.model
        try:
            q, v = state
        except (TypeError, ValueError):
            raise TypeError(f"state must be State(q, v), got {type(state).__name__}") from None
        for name, x, n in (("state.q", q, model.nq), ("state.v", v, model.nv)):
            self._check_type(name, x)
            if x.ndim not in (1, 2) or x.shape[-1] != n:
                raise ValueError(f"{name} must be [{n}] or [B, {n}], got {list(x.shape)}")
        if q.shape[:-1] != v.shape[:-1]:
            raise ValueError(f"state.q and state.v must have the same batch, got {list(q.shape)} and {list(v.shape)}")
        if q.ndim == 2 and len(q) == 0:
            raise ValueError("the batch is empty: state.q has shape " + str(list(q.shape)))
        self.device = q.device
        self.constants: Tensor | None = None
        self.names = ""
        if parameters:
            self.names = ",".join(sorted(parameters))
            self.constants = model.assemble({k: x.cpu() for k, x in parameters.items()}).to(simulator.dtype)
        rows = None if self.constants is None or self.constants.ndim == 1 else len(self.constants)
        self.unbatched = q.ndim == 1 and rows is None
        q, v = q.cpu(), v.cpu()
        if q.ndim == 1:
            q, v = q.unsqueeze(0), v.unsqueeze(0)
            if rows is not None:  # one world per row of parameters
                q, v = q.expand(rows, -1), v.expand(rows, -1)
        elif rows is not None and rows != len(q):
            raise ValueError(f"parameters are for {rows} environments, but the state has {len(q)}")
        self.q, self.v, self.batch = q, v, len(q)

    def _check_type(self, name: str, x: object) -> None:
        if not isinstance(x, Tensor):
            raise TypeError(f"{name} must be a torch tensor, got {type(x).__name__}")
        if x.dtype != self.simulator.dtype:
            raise TypeError(f"{name} must have the simulator's dtype {self.simulator.dtype}, got {x.dtype}")

    def tensor(self, name: str, x: Tensor, shape: tuple[int, ...], steps: int | None = None) -> Tensor:
        """x as [B, *shape], or [T, B, *shape] with steps; environments may share it."""
        self._check_type(name, x)
        time = [] if steps is None else [steps]
        if list(x.shape) == [*time, *shape]:
            x = x.unsqueeze(len(time)).expand(*time, self.batch, *shape)
        elif list(x.shape) != [*time, self.batch, *shape] or self.unbatched:
            wanted = ", ".join(str(n) for n in [*time, *([] if self.unbatched else [self.batch]), *shape])
            raise ValueError(f"{name} must be [{wanted}], got {list(x.shape)}")
        return x.cpu()

    def controls(self, controls: Tensor | None, steps: int) -> Tensor:
        """[T, B, nu]"""
        nu = self.simulator.model.nu
        if controls is None:
            return torch.zeros(1, 1, nu, dtype=self.simulator.dtype).expand(steps, self.batch, nu)
        return self.tensor("controls", controls, (nu,), steps)

    def wrenches(self, wrenches: Tensor | None, steps: int) -> Tensor | None:
        """[T, B, nlink * 6] of [T, B, nbody, k]: on links, in three dimensions."""
        if wrenches is None:
            return None
        model = self.simulator.model
        size = 6 if model.dim == 3 else 3
        x = self.tensor("wrenches", wrenches, (model.nbody, size), steps)
        if model.dim == 2:  # fx, fy, torque about z
            fx, fy, torque = x.unbind(-1)
            zero = torch.zeros_like(fx)
            x = torch.stack([fx, fy, zero, zero, zero, torque], -1)
        if model.nlink != model.nbody:
            padded = x.new_zeros(*x.shape[:2], model.nlink, 6)
            x = padded.index_copy(2, torch.from_numpy(model.body_link), x)
        return x.flatten(-2)

    def evaluate(
        self, form: str, x: Tensor | None, wrenches: Tensor | None = None, settings: Sequence[int] = ()
    ) -> Sequence[Tensor]:
        number = self.simulator._program.number
        return operators.evaluate(form, self.q, self.v, x, wrenches, self.constants, number, self.names, list(settings))

    def finished(self, *tensors: Tensor, dim: int) -> list[Tensor]:
        """As the caller has his tensors: without the batch dimension `dim` if there was none, on his device."""
        if self.unbatched:
            tensors = tuple(x.squeeze(dim) for x in tensors)
        return [x.to(self.device) for x in tensors]


def _require_count(name: str, n: object) -> None:
    if isinstance(n, bool) or not isinstance(n, int) or n < 1:
        raise ValueError(f"{name} must be an integer >= 1, got {n!r}")
