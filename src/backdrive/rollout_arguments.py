"""What `Simulator.rollout` is given."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from torch import Tensor

from .adjoints import Checkpoint, Truncated
from .model import State, checks
from .policy import MLP, Policy
from .runtime.call import Call
from .runtime.clip import Clip
from .runtime.transforms import traced, transformed


class RolloutArguments(NamedTuple):
    """The arguments of `Simulator.rollout`."""

    state: State
    controls: Tensor | None = None
    steps: int | None = None
    wrenches: Tensor | None = None
    parameters: Mapping[str, Tensor] | None = None
    adjoint: Checkpoint | Truncated | None = None
    policy: Policy | None = None
    inputs: Tensor | None = None
    clip: float | None = None
    noise: Tensor | None = None


def rollout_length(call: Call, given: RolloutArguments) -> int:
    """The number of steps of a rollout."""
    hold = given.policy.hold if isinstance(given.policy, MLP) else 1
    over_time = (("controls", given.controls), ("wrenches", given.wrenches))
    lengths = {name: call.length(name, x) for name, x in over_time if x is not None}
    decisions = {name: hold * len(x) for name, x in (("inputs", given.inputs), ("noise", given.noise)) if x is not None}
    if given.policy is not None and given.controls is not None:
        raise ValueError("rollout takes controls or a policy, got both")
    if (given.inputs is not None or given.noise is not None) and not isinstance(given.policy, MLP):
        name = "inputs are" if given.inputs is not None else "noise is"
        raise ValueError(f"{name} for an MLP: any other policy gets what it needs by itself, from state and t")
    steps = given.steps
    if steps is None:
        if not lengths and not decisions:
            raise ValueError("rollout needs controls [T, B, nu], wrenches [T, B, nbody, k], or steps=T")
        steps = next(iter({**lengths, **decisions}.values()))
    steps = checks.integer(steps, "steps")
    for name, length in lengths.items():
        if length != steps:
            raise ValueError(f"{name} are for {length} steps, but the rollout is of {steps}")
    for name, length in decisions.items():
        if not length - hold < steps <= length:
            raise ValueError(f"{name} are for {length} steps, {hold} for each row, but the rollout is of {steps}")
    return steps


def rollout_clip(call: Call, given: RolloutArguments, steps: int) -> Clip | None:
    """How the backward pass is clipped, None if it is not."""
    if given.clip is None:
        return None
    limit = checks.in_range(given.clip, "clip", "a positive number, the largest norm of (q̄, v̄)", lambda x: x > 0.0)
    if call.program.sparse is not None:
        raise NotImplementedError("rollout(clip=...) of one big world (sparse=True) is not possible")
    if transformed() or traced():
        raise NotImplementedError("rollout(clip=...) is not possible in torch.func or torch.compile: use backward()")
    every = given.policy.hold if isinstance(given.policy, MLP) else 1
    return Clip.of(limit, every, steps, call.batch, call.program.dtype)
