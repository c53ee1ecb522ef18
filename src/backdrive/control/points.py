"""Costs of the positions of points on bodies, as of a hand: ``Cost(stage, final, points={"hand": ("forearm", tip)})``.

The engine has first derivatives of positions only. Near a state x, a cost to second order therefore takes the positions
to first order, p(x ⊕ δx) ≈ p + J δq, with the kinematic Jacobian J = ∂p/∂q: the gradient of the cost is exact, and its
Hessian is that of Gauss and Newton, Jᵀ (∂²c/∂p²) J, which is positive where the cost is convex in p.

To the functions that map and compile costs, a state then has p [k] and J [k, m] behind its own n numbers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from ..model import State, checks

if TYPE_CHECKING:
    from .dynamics import Dynamics

PointNames = Mapping[str, Any] | Sequence[str]
"""Names of points, and for each a body or (body, position in its frame, m, [dim]); or just bodies: their origins."""


class Point(NamedTuple):
    """A point of a body; position: in the body's frame, m."""

    name: str
    body: str
    position: tuple[float, ...]


class PlacedState(State):
    """A state, as a cost sees it, with the positions of the cost's points."""

    places: dict[str, Any]

    def position(self, name: str) -> Tensor:
        """The position [dim] of one of the cost's points, in the world, m."""
        if name not in self.places:
            raise ValueError(checks.unknown("point of the cost", name, self.places))
        return self.places[name]


class Points:
    """The points of a cost, on the bodies of some dynamics."""

    def __init__(self, given: PointNames, dynamics: Dynamics) -> None:
        if isinstance(given, str) or not isinstance(given, Mapping | Sequence):
            raise TypeError(f"points must be names of bodies, or {{name: (body, position)}}, got {given!r}")
        if not dynamics.dim:
            raise TypeError(f"{type(dynamics).__name__} has no bodies, so a cost cannot have points on them")
        named = given.items() if isinstance(given, Mapping) else [(body, body) for body in given]
        self.dynamics = dynamics
        self.list = tuple(_point(name, what, dynamics.dim) for name, what in named)
        self.names = tuple(point.name for point in self.list)

    def attach(self, states: Tensor, jacobian: bool) -> Tensor:
        """States [..., n] with p and J behind them, [..., n + k + k m]; J is zero unless asked for."""
        flat = states.reshape(-1, states.shape[-1])
        if jacobian:
            with torch.enable_grad():
                change = flat.new_zeros(len(flat), self.dynamics.moved).requires_grad_()
                rest = flat.new_zeros(len(flat), self._tangent_size(flat) - self.dynamics.moved)
                p = self.dynamics.positions(self.dynamics.displace(flat, torch.cat([change, rest], -1)), self.list)
                rows = [torch.autograd.grad(column.sum(), change, retain_graph=True)[0] for column in p.unbind(-1)]
            p, J = p.detach(), torch.stack(rows, 1)
        else:
            p = self.dynamics.positions(flat, self.list)
            J = p.new_zeros(len(p), p.shape[-1], self.dynamics.moved)
        return torch.cat([flat, p, J.flatten(1)], -1).reshape(*states.shape[:-1], -1)

    def _tangent_size(self, x: Tensor) -> int:
        return self.dynamics.difference(x[:1], x[:1]).shape[-1]

    def split(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The state [n], p [k] and J [k, m] of numbers that `attach` put together."""
        k, m = self.dynamics.dim * len(self.list), self.dynamics.moved
        n = x.shape[-1] - k - k * m
        return x[:n], x[n : n + k], x[n + k :].reshape(k, m)

    def state(self, x: Tensor, p: Tensor) -> PlacedState:
        """The state [n] as the cost sees it, with the positions p [k]."""
        dim = self.dynamics.dim
        placed = PlacedState(*self.dynamics.unpack(x))
        placed.places = {name: p[dim * i : dim * i + dim] for i, name in enumerate(self.names)}
        return placed


def _point(name: Any, what: Any, dim: int) -> Point:
    if not isinstance(name, str):
        raise TypeError(f"the name of a point must be a string, got {name!r}")
    if isinstance(what, str):
        return Point(name, what, (0.0,) * dim)
    if not isinstance(what, Sequence) or len(what) != 2 or not isinstance(what[0], str):
        raise TypeError(f"point {name!r} must be a body, or (body, position in its frame), got {what!r}")
    return Point(name, what[0], tuple(checks.vector(what[1], dim, f"point {name!r}: position").tolist()))
