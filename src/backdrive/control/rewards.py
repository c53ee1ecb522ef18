"""Rewards and ends of episodes along rollouts, in one kernel, with their gradient in another.

Functions that can be traced to a formula become kernels, as costs do (`formulas`); torch evaluates the others.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..backends import Argument, Executable, Integer, Kernel, Rows, Table, run
from ..ir import (
    Index,
    Mask,
    Scalar,
    ScalarArray,
    TimedArray,
    carry,
    interruptible,
    is_constant,
    is_finite,
    loop,
    memory,
    minimum,
    replay,
    select,
    vjp,
)
from ..model import State, checks
from ..simulator import Simulator
from ..trajectory import Trajectory
from .symbols import Formula

Reward = Callable[[State, Tensor, State], Tensor | Mapping[str, Tensor]]
Ends = Callable[[State], Tensor]
_PATH = ("q", "v", "u")


class Rewarded(NamedTuple):
    """rewards [D, B], differentiable, and ended: bool [D, B], of D decisions; without B for one world."""

    rewards: Tensor
    ended: Tensor


class Episodes(NamedTuple):
    """A rollout with its rewards: see `Rewarded`."""

    path: Trajectory
    rewards: Tensor
    ended: Tensor


class Rewards:
    """The rewards of the decisions of a rollout, and where its episodes end.

    reward: (before, control, after) -> [B], or {name: [B]}, the terms of a sum. ends: state -> bool [B], whether the
    episode terminates there; None: never. Both are functions of batches, as those of an `envs.Task` are: states with q
    [B, nq] and v [B, nv], controls [B, nu]. They are called once with symbols, and become formulas in kernels, with the
    numbers that they refer to at that time. If they use functions of torch that formulas do not have, torch evaluates
    them: the same, more slowly (`compiled` tells).

    An environment whose episode has ended, or whose motion is not finite, goes on moving to the end of the rollout, for
    it shares its kernel with others: but its later rewards are zero, and none of its gradient comes from them. Start it
    anew after the rollout. Rewards and ends are those of whole decisions: controls that a policy holds for some steps.
    """

    def __init__(self, reward: Reward, ends: Ends | None = None) -> None:
        if not callable(reward):
            raise TypeError(f"reward must be a function of (before, control, after), got {type(reward).__name__}")
        if ends is not None and not callable(ends):
            raise TypeError(f"ends must be a function of a state, or None, got {type(ends).__name__}")
        self.reward, self.ends = reward, ends
        self._kernels: dict[tuple, RewardKernels | None] = {}

    def rollout(self, simulator: Simulator, state: State, controls: Tensor | None = None, **options: Any) -> Episodes:
        """``simulator.rollout`` with these arguments, and its rewards: a horizon of reinforcement learning."""
        path = simulator.rollout(state, controls, **options)
        return Episodes(path, *self(path, getattr(options.get("policy"), "hold", 1)))

    def __call__(self, path: Trajectory, hold: int = 1) -> Rewarded:
        """Of a rollout whose controls are held for `hold` steps, as ``MLP(hold=...)`` does."""
        hold, every = checks.integer(hold, "hold"), int(path.steps[1]) if len(path) > 2 else 1
        if hold % every:
            raise ValueError(
                f"the path has every {every}-th state (Checkpoint), but controls are held for {hold} steps"
            )
        single = path.q.ndim == 2
        q, v, u = (x.unsqueeze(1) if single else x for x in (path.q, path.v, path.controls))
        motion = Motion(q, v, u, hold // every, hold)
        kernels = self._found(motion)
        rewards, ended = self._by_torch(motion) if kernels is None else _Rewarding.apply(kernels, motion, q, v, u)
        return Rewarded(*(x.squeeze(1) if single else x for x in (rewards, ended)))

    def compiled(self, path: Trajectory) -> bool:
        """Whether kernels evaluate them along such a path."""
        return self._found(Motion(path.q, path.v, path.controls, 1, 1)) is not None

    def _found(self, motion: Motion) -> RewardKernels | None:
        sizes, dtype = motion.sizes, motion.q.dtype
        key = (*sizes, dtype)
        if key not in self._kernels:
            formulas = self._formulas(sizes, dtype)
            self._kernels[key] = None if formulas is None else RewardKernels(*formulas, sizes)
        return self._kernels[key]

    def _formulas(self, sizes: tuple[int, int, int], dtype: torch.dtype) -> tuple[Formula, Formula] | None:
        """Of the reward and of the end; None if torch must evaluate them."""
        nq, nv, nu = sizes

        def reward(q: Any, v: Any, u: Any, q_next: Any, v_next: Any) -> Any:
            return self._total(State(q[None], v[None]), u[None], State(q_next[None], v_next[None]))[0]

        def end(q: Any, v: Any) -> Any:
            return self._stops(State(q[None], v[None]))[0]

        try:
            return Formula(reward, (nq, nv, nu, nq, nv), dtype), Formula(end, (nq, nv), dtype)
        except Exception:  # Any error of a user's function called with symbols: torch evaluates it on tensors instead.
            return None

    def _total(self, before: State, control: Tensor, after: State) -> Any:
        found = self.reward(before, control, after)
        return sum(found.values()) if isinstance(found, Mapping) else found

    def _stops(self, after: State) -> Any:
        return torch.zeros(after.q.shape[:-1], dtype=torch.bool) if self.ends is None else self.ends(after)

    def _by_torch(self, motion: Motion) -> tuple[Tensor, Tensor]:
        before, control, after = motion.decisions()
        count, batch = len(control), control.shape[1]
        finite = torch.isfinite(torch.cat([*before, control, *after], -1)).all(-1, keepdim=True)

        def rows(x: Tensor) -> Tensor:
            return torch.where(finite, x, 0.0).flatten(0, 1)  # 0 × NaN would be NaN in the backward pass

        last = State(*map(rows, after))
        total, stops = self._total(State(*map(rows, before)), rows(control), last), self._stops(last)
        for name, found in (("reward", total), ("ends", stops)):
            if not isinstance(found, Tensor) or found.shape != (count * batch,):
                got = list(found.shape) if isinstance(found, Tensor) else type(found).__name__
                raise ValueError(f"{name} must return a tensor [B], here [{count * batch}], got {got}")
        total = total.unflatten(0, (count, batch))
        lost = ~torch.isfinite(total) | ~finite.squeeze(-1)
        ended = (stops.detach().unflatten(0, (count, batch)) | lost).cumsum(0) > 0
        counts = torch.cat([torch.ones_like(ended[:1]), ~ended[:-1]]) & ~lost
        return torch.where(counts, total, 0.0), ended


@dataclass(frozen=True, eq=False)
class Motion:
    """States q [S + 1, B, nq], v [S + 1, B, nv] and controls u [T, B, nu]. A decision is `stride` states long, and
    `hold` controls."""

    q: Tensor
    v: Tensor
    u: Tensor
    stride: int
    hold: int

    @property
    def sizes(self) -> tuple[int, int, int]:
        return self.q.shape[-1], self.v.shape[-1], self.u.shape[-1]

    @property
    def count(self) -> int:
        """The number of decisions."""
        return -(-len(self.u) // self.hold)

    def decisions(self) -> tuple[State, Tensor, State]:
        """The states before, the controls, and the states after, [D, B, n]."""
        ends = torch.arange(1, self.count + 1).mul_(self.stride).clamp_(max=len(self.q) - 1)
        before, control = slice(0, self.count * self.stride, self.stride), self.u[:: self.hold]
        q, v = (x[before][: self.count] for x in (self.q, self.v))
        return State(q, v), control, State(self.q[ends], self.v[ends])


class _Rewarding(torch.autograd.Function):
    """Rewards of a motion, by kernels."""

    @staticmethod
    def forward(ctx: Any, kernels: RewardKernels, motion: Motion, *path: Tensor) -> tuple[Tensor, Tensor]:
        rewards, numbers = kernels.rewards(motion)
        ended = numbers.squeeze(-1) > 0.5
        ctx.kernels, ctx.lengths = kernels, (motion.stride, motion.hold)
        ctx.save_for_backward(*path, numbers)
        ctx.mark_non_differentiable(ended)
        return rewards.squeeze(-1), ended

    @staticmethod
    def backward(ctx: Any, bar: Tensor, _: Any) -> tuple:
        if torch.is_grad_enabled():
            raise RuntimeError("backdrive has first derivatives only: a gradient was differentiated again")
        *path, numbers = ctx.saved_tensors
        return None, None, *ctx.kernels.vjp(Motion(*path, *ctx.lengths), numbers, bar.unsqueeze(-1))


class RewardKernels:
    """The formulas of a reward and an end, and their kernels. sizes: nq, nv, nu."""

    def __init__(self, reward: Formula, end: Formula, sizes: tuple[int, int, int]) -> None:
        self.reward, self.end, dtype = reward, end, reward.dtype
        self.sizes, self.bits = sizes, 64 if dtype == torch.float64 else 32
        self.constants = torch.tensor([*self.reward.constants, *self.end.constants, 0.0], dtype=dtype)
        self._built: dict[str, Executable] = {}
        for name in ("rewards", "vjp"):
            self._built[name] = self._build(name)

    def rewards(self, motion: Motion) -> tuple[Tensor, Tensor]:
        """[D, B, 1] each; whether an episode has ended is 1 or 0."""
        shape = (motion.count, motion.q.shape[1], 1)
        rewards, ended = motion.q.new_empty(shape), motion.q.new_empty(shape)
        self._run("rewards", motion, rewards=rewards, ended=ended)
        return rewards, ended

    def vjp(self, motion: Motion, ended: Tensor, bar: Tensor) -> tuple[Tensor, ...]:
        """The cotangents of q, v and u."""
        bars = {f"{name}_bar": torch.zeros_like(x) for name, x in zip(_PATH, (motion.q, motion.v, motion.u))}
        self._run("vjp", motion, ended=ended, rewards_bar=bar, **bars)
        return tuple(bars.values())

    def _run(self, name: str, motion: Motion, **others: Tensor) -> None:
        rows = {key: x.contiguous() for key, x in zip(_PATH, (motion.q.detach(), motion.v.detach(), motion.u.detach()))}
        rows |= {
            key: x if key.endswith("_bar") and key != "rewards_bar" else x.contiguous() for key, x in others.items()
        }
        values: dict[str, Any] = {"constants": self.constants.data_ptr(), "count": motion.count}
        values |= {"stride": motion.stride, "final": len(motion.q) - 1, "hold": motion.hold}
        for key, x in rows.items():
            values[key] = (x.data_ptr(), x.stride(-2), x.stride(0))
        run(self._built[name], motion.q.shape[1], 1, values)

    def _build(self, name: str) -> Executable:
        if name == "rewards":
            others: list[Argument] = [Rows("rewards", writable=True), Rows("ended", writable=True)]
        else:
            others = [Rows("ended"), Rows("rewards_bar"), *(Rows(f"{x}_bar", writable=True) for x in _PATH)]
        arguments: list[Argument] = [*map(Rows, _PATH), *others, Table("constants")]
        arguments += [Integer(x) for x in ("count", "stride", "final", "hold")]

        def body(**given: Any) -> None:
            rest = [given.pop(argument.name) for argument in others]
            inputs = RewardInputs(self.reward, self.end, self.sizes, **given)
            if name == "rewards":
                write_rewards(inputs, *rest)
            else:
                write_vjp(inputs, *rest)

        key = hashlib.sha256(repr((self.reward.key, self.end.key, len(self.reward.constants))).encode()).hexdigest()
        return Kernel(f"reward_{name}", arguments, body, key=key).build(self.bits)


@dataclass(frozen=True)
class RewardInputs:
    """The inputs of the kernels: formulas, and the motion of one environment, of `final` + 1 states.

    sizes: nq, nv, nu. constants: those of `reward`, then those of `end`.
    """

    reward: Formula
    end: Formula
    sizes: tuple[int, int, int]
    q: TimedArray
    v: TimedArray
    u: TimedArray
    constants: ScalarArray
    count: Index
    stride: Index
    final: Index
    hold: Index

    def state(self, number: Index) -> list[Scalar]:
        """The state with this number, and after the last one that."""
        nq, nv, _ = self.sizes
        q, v = (x.row(minimum(number, self.final)) for x in (self.q, self.v))
        return [*(q[k] for k in range(nq)), *(v[k] for k in range(nv))]

    def decision(self, d: Index) -> list[Scalar]:
        """State, control and next state of decision d."""
        u = self.u.row(d * self.hold)
        return [*self.state(d * self.stride), *(u[k] for k in range(self.sizes[2])), *self.state((d + 1) * self.stride)]

    def total(self) -> Callable[..., list[Scalar]]:
        """The reward of a decision as a function of its numbers."""
        reward, constants = self.reward, [self.constants[k] for k in range(len(self.reward.constants))]
        return lambda *numbers: replay(reward.tape, [*numbers, *constants], [reward.value])

    def stops(self, state: list[Scalar]) -> Mask:
        first = len(self.reward.constants)
        constants = [self.constants[first + k] for k in range(len(self.end.constants))]
        found: list[Any] = replay(self.end.tape, [*state, *constants], [self.end.value])
        return found[0]


def write_rewards(inputs: RewardInputs, rewards: TimedArray, ended: TimedArray) -> None:
    """Kernel: rewards, and 1 where an episode has ended, else 0."""
    over = carry(1)
    over[0] = 0.0
    for d in interruptible(loop(inputs.count)):
        numbers = inputs.decision(d)
        after = numbers[-sum(inputs.sizes[:2]) :]
        (reward,), finite = inputs.total()(*numbers), is_finite(sum(after[1:], after[0]))
        finite = finite & is_finite(reward)
        rewards.row(d)[0] = select(finite & (over[0] < 0.5), reward, 0.0)
        over[0] = select(finite, select(inputs.stops(after), 1.0, over[0]), 1.0)
        ended.row(d)[0] = over[0]


def write_vjp(
    inputs: RewardInputs, ended: TimedArray, rewards_bar: TimedArray, q_bar: TimedArray, v_bar: TimedArray,
    u_bar: TimedArray,
) -> None:  # fmt: skip
    """Kernel: from the cotangents of the rewards to those of the motion; rows that get none are zero already."""
    nq, nv, nu = inputs.sizes
    n, over = nq + nv, carry(1)
    state_bar = memory(n)  # what the decision before gave to the state that is before this one
    over[0] = 0.0
    for k in range(n):
        state_bar[k] = 0.0

    def write(number: Index) -> None:
        for k in range(n):
            target = q_bar if k < nq else v_bar
            target.row(minimum(number, inputs.final))[k if k < nq else k - nq] = state_bar[k]

    for d in interruptible(loop(inputs.count)):
        numbers = inputs.decision(d)
        (reward,), bars = vjp(inputs.total(), numbers, [rewards_bar.row(d)[0]])
        after = numbers[-n:]
        counts = is_finite(sum(after[1:], after[0])) & is_finite(reward) & (over[0] < 0.5)
        bars = [bar if is_constant(bar, 0.0) else select(counts, bar, 0.0) for bar in bars]
        for k in range(n):
            state_bar[k] = state_bar[k] + bars[k]
        write(d * inputs.stride)
        for m in range(nu):
            u_bar.row(d * inputs.hold)[m] = bars[n + m]
        for k in range(n):
            state_bar[k] = bars[n + nu + k]
        over[0] = ended.row(d)[0]
    write(inputs.count * inputs.stride)
