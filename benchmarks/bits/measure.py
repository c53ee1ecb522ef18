"""Roll a world out, differentiate a fixed random linear functional of the motion, and keep everything as arrays."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

import backdrive as bd

from .registry import Arrays


def generator(seed: int = 0) -> torch.Generator:
    """Random numbers that are the same in every run."""
    return torch.Generator().manual_seed(seed)


def arrays_of(**tensors: Tensor | np.ndarray | float | None) -> Arrays:
    """Tensors and numbers as numpy arrays, of which None is left out."""
    found: Arrays = {}
    for name, x in tensors.items():
        if x is not None:
            found[name] = np.array(x.detach().numpy() if isinstance(x, Tensor) else x)
    return found


def status_of(path: bd.Trajectory) -> Arrays:
    """Every field of the status, under "status.<field>"."""
    fields = dataclasses.fields(path.status)
    return {f"status.{f.name}": np.array(getattr(path.status, f.name).numpy()) for f in fields}


def start(model: bd.Model, batch: int | None = 3, *, speed: float = 0.5, seed: int = 1, **options: Any) -> bd.State:
    """The model's initial state with random velocities on top, m/s and rad/s, which asks for its gradient."""
    q, v = model.initial_state(batch)
    v = v + speed * torch.randn(v.shape, generator=generator(seed), dtype=torch.float64)
    dtype = options.get("dtype", torch.float64)
    return bd.State(q.to(dtype).requires_grad_(), v.to(dtype).requires_grad_())


def random(shape: Iterable[int], scale: float = 1.0, *, seed: int, dtype: torch.dtype = torch.float64) -> Tensor:
    """Normally distributed numbers, which ask for their gradient."""
    x = scale * torch.randn(tuple(shape), generator=generator(seed), dtype=torch.float64)
    return x.to(dtype).requires_grad_()


def parameters_of(
    model: bd.Model, names: str | Iterable[str], batch: int | None = None, dtype: torch.dtype = torch.float64
) -> dict[str, Tensor]:
    """Parameters of a model that ask for their gradient.

    names: "all", or some. batch: None shares one value among all environments; a number gives each its own, which
    differs from the model's by about one percent (the moments of inertia of a body all by the same factor, since
    unequal ones may be those of no rigid body).
    """
    chosen = model.parameters().names if names == "all" else names
    found = {}
    for k, name in enumerate(chosen):
        x = model.parameter(name).to(torch.float64)
        if batch is not None:
            shape = (*x.shape[:1], 1) if name == "inertia" and x.ndim == 2 else x.shape
            noise = torch.randn((batch, *shape), generator=generator(100 + k), dtype=torch.float64)
            x = x * (1.0 + 0.01 * noise)
        found[name] = x.detach().clone().to(dtype).requires_grad_()
    return found


def functional(*tensors: Tensor, seed: int = 2) -> Tensor:
    """A fixed random linear functional of tensors, the loss whose gradient is recorded.

    Torch must run on one thread (see `running`), so that the order of the sum, and with it its bits, are fixed.
    """
    random_numbers = generator(seed)
    total = torch.zeros((), dtype=torch.float64)
    for x in tensors:
        weights = torch.randn(x.shape, generator=random_numbers, dtype=torch.float64).to(x.dtype)
        total = total + (x * weights).sum()
    return total


def gradients(loss: Tensor, inputs: Mapping[str, Tensor | None]) -> Arrays:
    """The gradient of a loss with respect to each input, under "grad.<name>"; an input without influence has none."""
    given = {name: x for name, x in inputs.items() if x is not None and x.numel()}
    loss.backward()
    found: Arrays = {"loss": np.array(loss.detach().numpy())}
    for name, x in given.items():
        found[f"grad.{name}"] = np.zeros(()) if x.grad is None else np.array(x.grad.numpy())
    return found


def motion(
    sim: bd.Simulator,
    state: bd.State,
    *,
    steps: int = 20,
    controls: float | Tensor | None = None,
    wrenches: float | None = None,
    parameters: Mapping[str, Tensor] | None = None,
    forces: bool = False,
    bodies: Iterable[str] = (),
    policy: Any = None,
    inputs: Tensor | None = None,
    adjoint: Any = None,
) -> Arrays:
    """A rollout with its status and the gradients of a random functional with respect to all that went in.

    controls, wrenches: the scale of random ones (N m | N | rad), or the controls themselves. forces: contact forces
    are part of the functional, and recorded. bodies: those whose poses are part of the functional, and recorded.
    """
    model, batch = sim.model, state.q.shape[:-1]
    u = controls
    if isinstance(controls, float):
        u = random((steps, *batch, model.nu), controls, seed=3, dtype=sim.dtype)
    w = None
    if wrenches is not None:
        w = random((steps, *batch, model.nbody, 6 if model.dim == 3 else 3), wrenches, seed=4, dtype=sim.dtype)
    given = dict(parameters or {})
    path = sim.rollout(
        state, u, steps=steps, wrenches=w, parameters=given or None, policy=policy, inputs=inputs, adjoint=adjoint
    )
    seen = {"q": path.q, "v": path.v, "last.q": path.last.q, "last.v": path.last.v}
    for body in bodies:
        seen[f"position.{body}"], seen[f"rotation.{body}"] = path.position(body), path.rotation(body)
        seen[f"orientation.{body}"] = path.orientation(body)
        seen[f"velocity.{body}"], seen[f"spin.{body}"] = path.velocity(body), path.angular_velocity(body)
    if policy is not None:
        seen["controls"] = path.controls
    if forces:
        seen["force"], seen["point"] = path.contacts.force, path.contacts.point
    wanted: dict[str, Tensor | None] = {"q0": state.q, "v0": state.v, "controls": u, "wrenches": w, "inputs": inputs}
    wanted |= {f"parameter.{name}": x for name, x in given.items()}
    if isinstance(policy, torch.nn.Module):
        wanted |= {f"policy.{name}": x for name, x in policy.named_parameters()}
    found = arrays_of(**seen) | status_of(path)
    return found | gradients(functional(*seen.values()), {k: x for k, x in wanted.items() if x is None or x.is_leaf})


def rolled(model: bd.Model, dt: float = 0.01, **options: Any) -> bd.Simulator:
    """A simulator on the kernels that serve every model with the same kinds of shapes, so that few are compiled."""
    return bd.Simulator(model, dt, **{"specialize": False, **options})


def merged(**groups: Arrays) -> Arrays:
    """Several recordings in one scene: the arrays of each get its name in front."""
    return {f"{group}.{name}": x for group, arrays in groups.items() for name, x in arrays.items()}
