"""How a loss changes with everything along a motion: the adjoint states, in the terms that can be drawn.

Along a rollout x₀ → x₁ → … → x_T with controls u_t and wrenches w_t, the *total* derivative of a loss with respect to
the state at time t counts both that the loss sees x_t and that all later states follow from it:

    λ_t = ∂loss/∂x_t + (∂x_{t+1}/∂x_t)ᵀ λ_{t+1},    dloss/du_t = ∂loss/∂u_t + (∂x_{t+1}/∂u_t)ᵀ λ_{t+1}

and the same for w_t. Controls are held: those of a policy do not react to the change.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from ..model import Model, State
from ..trajectory import RolloutInputs, RolloutResult, Trajectory

Array = np.ndarray
Loss = Tensor | Callable[[Trajectory], Tensor]


@dataclass(frozen=True)
class Gradients:
    """Total derivatives of a loss along a trajectory of S + 1 kept states and T steps, of B environments.

    position, velocity: [S + 1, B, nv], with respect to a displacement of q (in the coordinates of v: m and rad) and to
    v (m/s and rad/s), by joint. control: [T, B, nu], per unit of control during one step. force, torque: [T, B, nbody,
    3], with respect to a force (N) at the center of mass and a torque (N m), world axes, that act during one step;
    divided by dt they are derivatives by an impulse. log_parameters: {name: [B, *shape]}, dloss/d log p = p dloss/dp,
    so that parameters of different units compare.
    """

    model: Model
    loss: float
    steps: Array
    """Numbers of the kept states, [S + 1]."""
    position: Array
    velocity: Array
    control: Array
    force: Array
    torque: Array
    log_parameters: dict[str, Array] = field(default_factory=dict)

    def step_of(self, kept: int) -> int:
        """The number of the step that starts from a kept state; for the last state, that of the last step."""
        return min(int(self.steps[kept]), len(self.control) - 1)

    def __repr__(self) -> str:
        shape = f"{len(self.steps)} states of {self.position.shape[1]} environments"
        return f"Gradients(loss {self.loss:.6g}, {shape}, parameters {', '.join(self.log_parameters) or 'none'})"


def gradients(path: Trajectory, loss: Loss, *, parameters: Sequence[str] = ("mass",)) -> Gradients:
    """The derivatives of a loss with respect to positions, velocities, controls and wrenches at every time.

    loss: a function of a trajectory that returns a scalar tensor; or such a tensor, computed from ``path``, whose graph
    is still there (``loss.backward(retain_graph=True)``, or not yet called). A tensor counts through q and v of the
    path; a function also counts what it does with ``path.controls``. parameters: names of parameters (see
    ``model.parameters()``) whose sensitivity is wanted; they count through the motion.

    It steps once more from the start, one call for every step: milliseconds for a hundred of them.
    """
    if not isinstance(path, Trajectory):
        raise TypeError(f"path must be what Simulator.rollout returned, got {type(path).__name__}")
    for name in parameters:
        path.model.parameters()[name]  # refuses unknown names before anything is computed
    value, seen = _partial(path, loss)
    return _adjoint(path, value, seen, tuple(parameters))


@dataclass(frozen=True)
class _Seen:
    """What the loss sees itself, ∂loss/∂(q, v) [S + 1, B, n] and ∂loss/∂u [T, B, nu]."""

    q: Tensor
    v: Tensor
    controls: Tensor


def _partial(path: Trajectory, loss: Loss) -> tuple[float, _Seen]:
    if isinstance(loss, Tensor):
        value, run = loss, path
        controls = torch.zeros(())  # not an input of the loss
        inputs = [path.q, path.v, *path.last]
        if not value.requires_grad or not any(x.requires_grad for x in inputs):
            raise ValueError(
                "the loss has no graph to the trajectory: roll out from tensors that require grad, and call gradients "
                "before loss.backward() frees it; or give the loss as a function of the trajectory"
            )
    else:
        run = _cut(path)
        controls = run._inputs.controls
        with torch.enable_grad():
            value = loss(run)
        if not isinstance(value, Tensor):
            raise TypeError(f"the loss must return a scalar tensor, got {type(value).__name__}")
        inputs = [run.q, run.v, *run.last, controls]
    if value.numel() != 1:
        raise ValueError(f"the loss must be a scalar, got a tensor of shape {list(value.shape)}")
    if not torch.isfinite(value).all():
        raise ValueError(f"the loss is {value.item()}: it has no gradient that could be shown (see path.status)")
    given = [x for x in inputs if x.requires_grad]
    found: list[Tensor | None] = [None] * len(inputs)
    if value.requires_grad:
        pulled = iter(torch.autograd.grad(value.reshape(()), given, retain_graph=True, allow_unused=True))
        found = [next(pulled) if x.requires_grad else None for x in inputs]
    dense = [torch.zeros_like(x) if g is None else g for x, g in zip(inputs, found, strict=True)]
    q, v = dense[0].clone(), dense[1].clone()
    if not isinstance(loss, Tensor):  # `last` of a cut path is a part of its q and v
        q, v = _batched(path, q, v)
        return float(value.detach()), _Seen(q, v, dense[4])
    q[-1] += dense[2]
    v[-1] += dense[3]
    q, v = _batched(path, q, v)
    return float(value.detach()), _Seen(q, v, controls)


def _cut(path: Trajectory) -> Trajectory:
    """The same trajectory, in which q, v and controls are independent of each other: leaves of the graph."""
    q, v = (x.detach().clone().requires_grad_() for x in (path.q, path.v))
    inputs = path._inputs
    controls = inputs.controls.detach().clone().requires_grad_()
    wrenches, constants = (None if x is None else x.detach() for x in (inputs.wrenches, inputs.constants))
    motion = RolloutResult((q, v), (q[-1], v[-1]), path._numbers)
    held = RolloutInputs(inputs.settings, controls, wrenches, constants, inputs.parameters)
    return Trajectory(path._simulator, motion, held)


def _batched(path: Trajectory, *tensors: Tensor) -> list[Tensor]:
    return [x.unsqueeze(1) if path.q.ndim == 2 else x for x in tensors]


def _adjoint(path: Trajectory, value: float, seen: _Seen, names: tuple[str, ...]) -> Gradients:
    simulator, model, inputs = path._simulator, path.model, path._inputs
    start = State(*(x[0].detach().cpu().requires_grad_() for x in _batched(path, path.q, path.v)))
    batch, steps = len(start.q), inputs.settings.steps
    controls = inputs.controls.detach().cpu().expand(steps, batch, model.nu).clone().requires_grad_()
    wrenches = _given_wrenches(path, batch).requires_grad_()
    given = filter(None, dict.fromkeys((*inputs.parameters.split(","), *names)))
    values = {name: _values(path, name, batch) for name in given}
    for name in names:
        values[name].requires_grad_()
    states = [start]
    with torch.enable_grad():
        for u, w in zip(controls.unbind(), wrenches.unbind(), strict=True):
            states.append(simulator.step(states[-1], u, wrench=w, parameters=values or None))
    kept = [int(k) for k in path.steps]
    shown = [x for k in kept for x in states[k]]
    cotangents = [x.cpu() for pair in zip(seen.q, seen.v, strict=True) for x in pair]
    wanted = [*shown, controls, wrenches, *(values[name] for name in names)]
    found = torch.autograd.grad(shown, wanted, cotangents, allow_unused=True)
    totals = [torch.zeros_like(x) if g is None else g for x, g in zip(wanted, found, strict=True)]
    q, v = torch.stack([states[k].q for k in kept]).detach(), torch.stack(totals[1 : 2 * len(kept) : 2])
    position = simulator._tangent.project(q, torch.stack(totals[0 : 2 * len(kept) : 2]))
    control, wrench, *sensitivities = totals[2 * len(kept) :]
    force, torque = _spatial(wrench.numpy(), model.dim)
    shared = (
        batch if seen.controls.ndim == 3 and seen.controls.shape[1] < batch else 1
    )  # one tensor for all environments
    logs = {name: (values[name].detach() * g).numpy() for name, g in zip(names, sensitivities, strict=True)}
    return Gradients(
        model, value, np.array(kept), position.numpy(), v.numpy(), (control + seen.controls.cpu() / shared).numpy(),
        force, torque, logs,
    )  # fmt: skip


def _given_wrenches(path: Trajectory, batch: int) -> Tensor:
    """The wrenches of the rollout as its caller gave them, [T, B, nbody, 6 or 3]; zero if there were none."""
    model, given, steps = path.model, path._inputs.wrenches, path._inputs.settings.steps
    if given is None:
        return torch.zeros(steps, batch, model.nbody, 6 if model.dim == 3 else 3, dtype=path.q.dtype)
    on_bodies = given.detach().cpu().unflatten(-1, (model.nlink, 6))[..., torch.tensor(model.body_link.tolist()), :]
    on_bodies = on_bodies.expand(steps, batch, -1, -1).clone()
    return on_bodies if model.dim == 3 else on_bodies[..., [0, 1, 5]].clone()


def _values(path: Trajectory, name: str, batch: int) -> Tensor:
    """The values of a parameter in the rollout, [B, *shape]."""
    info, constants = path.model.parameters()[name], path.constants.detach().cpu().double().numpy()
    rows = constants[None].repeat(batch, 0) if constants.ndim == 1 else constants
    return torch.from_numpy(np.stack([info.values(row) for row in rows])).to(path.q.dtype)


def _spatial(wrench: Array, dim: int) -> tuple[Array, Array]:
    """Force and torque in three dimensions, [..., 3] each."""
    if dim == 3:
        return wrench[..., :3], wrench[..., 3:]
    zero = np.zeros_like(wrench[..., :1])
    return np.concatenate([wrench[..., :2], zero], -1), np.concatenate([zero, zero, wrench[..., 2:]], -1)
