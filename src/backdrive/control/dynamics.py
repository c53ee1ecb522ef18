"""Dynamics to plan with: a `Simulator`, a torch function, or any other class that can step and be linearised.

Planning methods work on flat states x [..., n]. Changes δx [..., d] are in the tangent space, where a quaternion has
three coordinates (`tangent`): for a simulator n = nq + nv, d = 2 nv.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.func import jacrev, vmap

from ..model import State
from ..simulator import Simulator, Tangent
from ..trajectory import PathStates, link_poses
from .points import Point


class Dynamics:
    """The base class of all dynamics. Define `step` and `linearize`; override other methods where you can do better.

    nu: number of controls; None if unknown until controls are given. lanes: batch size up to which a batch of steps
    takes about as long as one step; a line search tries that many step sizes together. dim, moved: of dynamics with
    bodies, 2 or 3, and the number of leading coordinates of δx that move them.
    """

    nu: int | None = None
    lanes: int = 1
    dim: int = 0
    moved: int = 0

    def step(self, x: Tensor, u: Tensor) -> Tensor:
        """The states [B, n] after one step from x [B, n] with controls [B, nu]."""
        raise NotImplementedError

    def linearize(self, x: Tensor, u: Tensor) -> tuple[Tensor, Tensor]:
        """A [B, d, d] and B [B, d, nu]: δx⁺ = A δx + B δu."""
        raise NotImplementedError

    def pack(self, state: Any) -> Tensor:
        """The flat states [..., n] of the user's states, checked."""
        if not isinstance(state, Tensor):
            raise TypeError(f"state must be a tensor [n] or [B, n], got {type(state).__name__}")
        return state

    def flat(self, state: Any) -> Tensor:
        """The flat states of states that `unpack` made, unchecked."""
        return state

    def unpack(self, x: Tensor) -> Any:
        """The user's states, as the cost sees them, from flat states [..., n]."""
        return x

    def displace(self, x: Tensor, delta: Tensor) -> Tensor:
        """x ⊕ δx, twice differentiable in δx."""
        return x + delta

    def difference(self, x: Tensor, origin: Tensor) -> Tensor:
        """δx [..., d] with x = origin ⊕ δx."""
        return x - origin

    def positions(self, x: Tensor, points: Sequence[Point]) -> Tensor:
        """The positions [N, dim len(points)] of points on bodies, for states [N, n]; differentiable once."""
        raise NotImplementedError

    def limits(self) -> tuple[Tensor, Tensor] | None:
        """The dynamics' own limits of the controls, low and high [nu]; None if there are none."""
        return None

    def rollout(self, x: Tensor, controls: Tensor) -> Tensor:
        """States [T + 1, B, n] from x [B, n] with controls [T, B, nu]; differentiable if `step` is."""
        states = [x]
        for u in controls:
            states.append(self.step(states[-1], u))
        return torch.stack(states)

    def track(
        self, x: Tensor, controls: Tensor, gains: Tensor, origin: Tensor, low: Tensor, high: Tensor
    ) -> tuple[Tensor, Tensor]:
        """States [T + 1, B, n] and controls [T, B, nu] with the feedback u = clip(controls + gains (x ⊖ origin)).

        gains: [T, B, nu, d]; origin: [T + 1, B, n]; low, high: [nu].
        """
        states, used = [x], []
        for u, K, at in zip(controls, gains, origin[:-1], strict=True):
            change = K @ self.difference(states[-1], at).unsqueeze(-1)
            used.append(torch.clamp(u + change.squeeze(-1), low, high))
            states.append(self.step(states[-1], used[-1]))
        return torch.stack(states), torch.stack(used)


class SimulatedDynamics(Dynamics):
    """Steps of a `Simulator`; states are `State`. parameters: of `Simulator.rollout`, the same for all."""

    lanes = 256

    def __init__(self, simulator: Simulator, parameters: Mapping[str, Tensor] | None = None) -> None:
        if not isinstance(simulator, Simulator):
            raise TypeError(f"simulator must be a backdrive Simulator, got {type(simulator).__name__}")
        self.simulator = simulator
        self.parameters = None if parameters is None else {name: x.detach() for name, x in parameters.items()}
        constants = simulator.model.assemble(self.parameters).to(simulator.dtype) if parameters else None
        self._constants = constants  # None: the model's own
        self.nq, self.nu = simulator.model.nq, simulator.model.nu
        self.tangent = Tangent(simulator.model)
        self.dim, self.moved = simulator.model.dim, simulator.model.nv
        low, high = torch.tensor(simulator.model.control_limits, dtype=simulator.dtype).unbind(-1)
        self._limits = low.contiguous(), high.contiguous()

    def pack(self, state: Any) -> Tensor:
        try:
            q, v = state
        except (TypeError, ValueError):
            raise TypeError(f"state must be State(q, v), got {type(state).__name__}") from None
        model = self.simulator.model
        for name, x, n in (("state.q", q, model.nq), ("state.v", v, model.nv)):
            if not isinstance(x, Tensor) or x.dtype != self.simulator.dtype:
                raise TypeError(f"{name} must be a tensor of dtype {self.simulator.dtype}")
            if x.ndim not in (1, 2) or x.shape[-1] != n:
                raise ValueError(f"{name} must be [{n}] or [B, {n}], got {list(x.shape)}")
        if q.shape[:-1] != v.shape[:-1]:
            raise ValueError(f"state.q and state.v must have the same batch, got {list(q.shape)} and {list(v.shape)}")
        return self.flat(state)

    def flat(self, state: Any) -> Tensor:
        return torch.cat(tuple(state), -1)

    def unpack(self, x: Tensor) -> State:
        return State(x[..., : self.nq], x[..., self.nq :])

    def step(self, x: Tensor, u: Tensor) -> Tensor:
        return torch.cat(self.simulator.step(self.unpack(x), u, parameters=self.parameters), -1)

    def linearize(self, x: Tensor, u: Tensor) -> tuple[Tensor, Tensor]:
        return self.simulator.linearize(self.unpack(x), u, parameters=self.parameters)

    def displace(self, x: Tensor, delta: Tensor) -> Tensor:
        nv = self.tangent.nv
        q = self.tangent.displace(x[..., : self.nq], delta[..., :nv])
        return torch.cat([q, x[..., self.nq :] + delta[..., nv:]], -1)

    def difference(self, x: Tensor, origin: Tensor) -> Tensor:
        if not self.tangent.quaternions:
            return x - origin
        q = self.tangent.difference(x[..., : self.nq], origin[..., : self.nq])
        return torch.cat([q, x[..., self.nq :] - origin[..., self.nq :]], -1)

    def positions(self, x: Tensor, points: Sequence[Point]) -> Tensor:
        simulator, names = self.simulator, ",".join(sorted(self.parameters or ()))
        state = tuple(y.unsqueeze(0) for y in self.unpack(x))
        states = PathStates(simulator._program, state, self._constants, names)
        rotation, origin, *_ = link_poses(states)
        parts = []
        for point in points:
            link = simulator._body_links[simulator.model.body_index(point.body)]
            R = rotation[0, :, link].unflatten(-1, (3, 3))[:, : self.dim, : self.dim]
            parts.append(origin[0, :, link, : self.dim] + R @ x.new_tensor(point.position))
        return torch.cat(parts, -1)

    def limits(self) -> tuple[Tensor, Tensor] | None:
        return self._limits

    def rollout(self, x: Tensor, controls: Tensor) -> Tensor:
        with warnings.catch_warnings():  # A motion that is not finite has an infinite cost, which is enough.
            warnings.filterwarnings("ignore", "the motion of environment", RuntimeWarning)
            path = self.simulator.rollout(self.unpack(x), controls, parameters=self.parameters)
        return torch.cat([path.q, path.v], -1)

    def track(
        self, x: Tensor, controls: Tensor, gains: Tensor, origin: Tensor, low: Tensor, high: Tensor
    ) -> tuple[Tensor, Tensor]:
        if self.simulator.sparse:  # Big worlds have no kernel for tracking.
            return super().track(x, controls, gains, origin, low, high)
        path, used = self.simulator.track(
            self.unpack(x), controls, gains, self.unpack(origin[:-1]), limits=(low, high), parameters=self.parameters
        )
        return torch.cat([path.q, path.v], -1), used


class TorchDynamics(Dynamics):
    """x⁺ = function(x, u) of a torch function or module, such as a learned model; x [B, n], u [B, nu]."""

    lanes = 256

    def __init__(self, function: Callable[[Tensor, Tensor], Tensor], nu: int | None = None) -> None:
        if not callable(function):
            raise TypeError(f"function must be callable as function(x, u), got {type(function).__name__}")
        self.function, self.nu = function, nu

    def step(self, x: Tensor, u: Tensor) -> Tensor:
        after = self.function(x, u)
        if not isinstance(after, Tensor) or after.shape != x.shape:
            found = list(after.shape) if isinstance(after, Tensor) else type(after).__name__
            raise ValueError(f"the dynamics must return states of the shape it is given, {list(x.shape)}, got {found}")
        return after

    def linearize(self, x: Tensor, u: Tensor) -> tuple[Tensor, Tensor]:
        return vmap(jacrev(self.function, argnums=(0, 1)))(x, u)


def as_dynamics(dynamics: Any) -> Dynamics:
    """The user's dynamics as `Dynamics`."""
    if isinstance(dynamics, Dynamics):
        return dynamics
    if isinstance(dynamics, Simulator):
        return SimulatedDynamics(dynamics)
    if callable(dynamics):
        return TorchDynamics(dynamics)
    raise TypeError(
        f"dynamics must be a Simulator, a function x⁺ = f(x, u), or Dynamics; got {type(dynamics).__name__}"
    )
