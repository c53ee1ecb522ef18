"""Costs of motions: plain torch functions of one state and one control, differentiated twice.

Costs that can be traced to a formula become kernels (`formulas`); torch maps and differentiates the others.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor
from torch.func import vmap

from .dynamics import Dynamics, as_dynamics
from .fingerprints import constant, fingerprint
from .formulas import CostKernels, cost_kernels
from .points import PointNames, Points
from .symbols import Symbols

MOST_KNOWN = 100  # Cached kernels per dynamics, at most.
_known: WeakKeyDictionary[Dynamics, dict[tuple, CostKernels | None]] = WeakKeyDictionary()
"""Kernels of earlier costs, by their fingerprints: comparing fingerprints is faster than tracing a cost again."""

Stage = Callable[[Any, Tensor, Tensor], Tensor]
Final = Callable[[Any], Tensor]


@dataclass(frozen=True)
class Cost:
    """Σ stage(state, u, t) over the steps t = 0 ... T - 1, plus final(state) of the last state.

    Both are functions of *one* state (of a simulator: `State`, q [nq], v [nv]; else x [n]), one control u [nu] and the
    step number t (a scalar tensor of the state's dtype), and return one number; they are mapped over all steps and
    environments. To look up a value by time, write ``table[t.long()]``.

    points: of a simulator's bodies, whose positions the functions may ask for: ``state.position("hand")``, [dim] in m.
    Names of bodies (for the origins of their frames), or {name: (body, position in its frame)}. To second order, a
    cost of positions is that of Gauss and Newton (see `points`).
    """

    stage: Stage
    final: Final | None = None
    points: PointNames = ()

    def __post_init__(self) -> None:
        for name in ("stage", "final"):
            function = getattr(self, name)
            if not callable(function) and not (name == "final" and function is None):
                raise TypeError(f"{name} must be a function that returns a cost, got {type(function).__name__}")


def quadratic(dynamics: Any, state: Any, Q: Tensor, R: Tensor, final: Tensor | None = None) -> Cost:
    """½ δᵀ Q δ + ½ uᵀ R u, and ½ δᵀ final δ at the end (Q if None), with δ = x ⊖ state in the tangent space.

    state: the target, unbatched. Q, final: [d, d] or diagonals [d], of (δq, δv) for a simulator: d = 2 nv. R: [nu, nu]
    or [nu].
    """
    dynamics = as_dynamics(dynamics)
    target = dynamics.pack(state).detach().clone()
    if target.ndim != 1:
        raise ValueError(f"the state to go to must be unbatched, got {list(target.shape)}")
    d = dynamics.difference(target, target).shape[-1]
    Q = _weights("Q", Q, d, target)
    end = Q if final is None else _weights("final", final, d, target)
    R = _weights("R", R, dynamics.nu, target)

    def stage(state: Any, u: Tensor, t: Tensor) -> Tensor:
        delta = dynamics.difference(dynamics.flat(state), target)
        return 0.5 * (delta @ Q @ delta + u @ R @ u)

    def last(state: Any) -> Tensor:
        delta = dynamics.difference(dynamics.flat(state), target)
        return 0.5 * delta @ end @ delta

    return Cost(constant(stage), constant(last))


def _weights(name: str, x: Tensor, size: int | None, like: Tensor) -> Tensor:
    x = torch.as_tensor(x, dtype=like.dtype).detach()
    x = torch.diag(x) if x.ndim == 1 else x
    size = len(x) if size is None and x.ndim == 2 else size
    if list(x.shape) != [size, size]:
        raise ValueError(f"{name} must be [{size}, {size}], or the diagonal [{size}], got {list(x.shape)}")
    if not bool(torch.isfinite(x).all()):
        raise ValueError(f"{name} must be finite")
    return 0.5 * (x + x.mT)


class TrajectoryCost:
    """Costs of trajectories: states [T + 1, B, n], controls [T, B, nu]. start: the number of the first step."""

    def __init__(self, cost: Cost | Callable[..., Tensor], dynamics: Dynamics, start: int = 0) -> None:
        if not isinstance(cost, Cost):
            if not callable(cost):
                raise TypeError(f"cost must be Cost(stage, final) or a function stage(state, u, t), got {cost!r}")
            cost = Cost(cost)
        self.cost, self.dynamics, self.start = cost, dynamics, start
        self._points = points = Points(cost.points, dynamics) if cost.points else None

        def seen(x: Tensor, change: Tensor | None = None) -> Any:
            """The state as the cost sees it, moved by a change."""
            if points is None:
                return dynamics.unpack(x if change is None else dynamics.displace(x, change))
            x, p, J = points.split(x)
            if change is None:
                return points.state(x, p)
            return points.state(dynamics.displace(x, change), p + J @ change[: dynamics.moved])

        def last(state: Any) -> Tensor:
            return _number("final", state[0].new_zeros(()) if cost.final is None else cost.final(state))

        def stage(x: Tensor, u: Tensor, t: Tensor) -> Tensor:
            return _number("stage", cost.stage(seen(x), u, t))

        def final(x: Tensor) -> Tensor:
            return last(seen(x))

        def near_stage(change: Tensor, x: Tensor, u: Tensor, t: Tensor) -> Tensor:
            nu = len(u)
            return _number("stage", cost.stage(seen(x, change[nu:]), u + change[:nu], t))

        def near_final(change: Tensor, x: Tensor) -> Tensor:
            return last(seen(x, change))

        self._near = near_stage, near_final
        self._kernels: CostKernels | None = None
        self._asked: tuple | None = None
        self._one = stage, final

    def _compiled(self, states: Tensor, controls: Tensor) -> CostKernels | None:
        """The kernels for trajectories of these sizes; None if torch must evaluate the cost."""
        if states.requires_grad or controls.requires_grad:
            return None
        sizes = states.shape[-1], controls.shape[-1], states.dtype
        if self._asked != sizes:
            self._asked, self._kernels = sizes, self._find_kernels(*sizes, self._tangent_size(states))
        return self._kernels

    def _tangent_size(self, states: Tensor) -> int:
        """d, for the states that the kernels see."""
        x = states[0, :1] if self._points is None else self._points.split(states[0, 0])[0].unsqueeze(0)
        return self.dynamics.difference(x, x).shape[-1]

    def _placed(self, states: Tensor, jacobian: bool) -> Tensor:
        """The states [T + 1, B, n] with the positions of the cost's points, if it has any."""
        return states if self._points is None else self._points.attach(states, jacobian)

    def _find_kernels(self, n: int, nu: int, dtype: torch.dtype, d: int) -> CostKernels | None:
        stage, final = fingerprint(self.cost.stage), fingerprint(self.cost.final)
        if stage is None or final is None:
            return cost_kernels(*self._near, n, nu, d, dtype)
        names = () if self._points is None else self._points.names
        known, key = _known.setdefault(self.dynamics, {}), (stage, final, names, n, nu, dtype)
        if key not in known:
            if len(known) == MOST_KNOWN:
                known.clear()
            known[key] = cost_kernels(*self._near, n, nu, d, dtype)
        return known[key]

    def _rows(self, states: Tensor, controls: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """States before each step [n, T B], controls [nu, T B], and the step numbers [T B].

        The long axis is last in memory, because torch is slow at sums over short contiguous axes.
        """
        steps, batch, _ = controls.shape
        time = torch.arange(self.start, self.start + steps, dtype=states.dtype).repeat_interleave(batch)
        return _columns(states[:-1].flatten(0, 1)), _columns(controls.flatten(0, 1)), time

    def total(self, states: Tensor, controls: Tensor) -> Tensor:
        """Total costs [B], differentiable; infinite where a motion is not finite."""
        states = self._placed(states, jacobian=False)
        if (kernels := self._compiled(states, controls)) is not None:
            return kernels.total(states, controls, self.start)
        stage, final = vmap(self._one[0], (1, 1, 0)), vmap(self._one[1], 1)
        total = stage(*self._rows(states, controls)).view(controls.shape[:2]).sum(0) + final(_columns(states[-1]))
        return torch.where(torch.isfinite(total), total, torch.full_like(total, torch.inf))

    def expand(self, states: Tensor, controls: Tensor) -> tuple[Tensor, Tensor]:
        """The costs to second order, as forms ½ zᵀ H z + const of z = (δu, δx, 1), or z = (δx, 1) for the final cost.

        [T, B, nu + d + 1, nu + d + 1] and [B, d + 1, d + 1]
        """
        states = self._placed(states, jacobian=True)
        if (kernels := self._compiled(states, controls)) is not None:
            return kernels.expand(states, controls, self.start)
        (steps, batch, nu), d = controls.shape, self._tangent_size(states)
        near_stage, near_final = vmap(self._near[0], (1, 1, 1, 0)), vmap(self._near[1], 1)
        stage = _form(*_derivatives(near_stage, nu + d, *self._rows(states, controls)))
        return stage.unflatten(0, (steps, batch)), _form(*_derivatives(near_final, d, _columns(states[-1])))


def _columns(x: Tensor) -> Tensor:
    """[n, N] of [N, n]"""
    return x.T.contiguous()


def _derivatives(function: Callable[..., Tensor], size: int, *given: Tensor) -> tuple[Tensor, Tensor]:
    """Hessian [n, n, N] and gradient [n, N] of function(change, *given) [N] at changes [n, N] of zero, n = `size`.

    The N values are independent of each other, so the gradient of their sum holds the gradients of all of them; the
    same trick gives each column of the Hessians.
    """
    change = given[0].new_zeros(size, given[0].shape[-1])
    H, g = change.new_zeros(size, *change.shape), change
    with torch.enable_grad():
        total = function(change.requires_grad_(), *given).sum()
        if total.requires_grad:
            (g,) = torch.autograd.grad(total, change, create_graph=True, materialize_grads=True)
        if g.requires_grad and g is not change:
            units = torch.eye(size, dtype=g.dtype).unsqueeze(-1).expand(size, *g.shape)
            (H,) = torch.autograd.grad(g, change, units, is_grads_batched=True, materialize_grads=True)
    return H, g.detach()


def _form(H: Tensor, g: Tensor) -> Tensor:
    """[N, n + 1, n + 1], with the gradient in the last row and column."""
    n, count = g.shape
    out = g.new_zeros(count, n + 1, n + 1)
    out[:, :n, :n] = (0.5 * (H + H.transpose(0, 1))).permute(2, 0, 1)
    out[:, :n, n] = out[:, n, :n] = g.T
    return out


def _number(name: str, value: Any) -> Any:
    if not isinstance(value, Tensor | Symbols):
        raise TypeError(f"{name} must return a tensor, got {type(value).__name__}")
    if value.ndim:
        raise ValueError(f"{name} must return one number for one state, a tensor of shape [], got {list(value.shape)}")
    return value
