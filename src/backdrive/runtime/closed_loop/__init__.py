"""Rollouts with a policy in the loop, differentiable with respect to it.

Three ways. A small `MLP` is evaluated by the kernel that steps (`network`), a larger one by torch (`by_torch`); any
other function of the state is called between steps (`between_steps`).
"""

from __future__ import annotations

import itertools
from typing import NamedTuple

from torch import Tensor

from ...policy import MLP, Policy, View
from ...schema.signatures import RolloutSettings
from ..call import Call
from ..clip import Clip
from ..program import Program
from ..result import RolloutResult
from ..transforms import traced, transformed
from .between_steps import between_steps, deciding
from .by_torch import TorchPolicy, by_torch
from .network import Network, in_kernel
from .observing import observe, view
from .stepper import Loop

__all__ = ["PolicyArguments", "observe", "rollout"]


class PolicyArguments(NamedTuple):
    """A policy, and what it gets besides the state: rows for each of its decisions."""

    policy: Policy
    inputs: Tensor | None = None
    noise: Tensor | None = None

    def checked(self, call: Call, steps: int) -> PolicyArguments:
        """Those of an MLP: inputs [D, B, k] and noise [D, B, nu], of D decisions."""
        assert isinstance(self.policy, MLP)
        decisions, inputs, noise = -(-steps // self.policy.hold), self.inputs, self.noise
        if inputs is not None:
            width = inputs.shape[-1] if inputs.ndim in (2, 3) else 0
            inputs = call.tensor("inputs", inputs, (width,), decisions)
        if noise is not None:
            if not isinstance(noise, Tensor) or not noise.is_floating_point():
                raise TypeError(f"noise must be a tensor of floating-point numbers, got {noise!r}")
            noise = call.tensor("noise", noise.to(call.program.dtype), (call.model.nu,), decisions)
        return self._replace(inputs=inputs, noise=noise)


def rollout(
    call: Call, given: PolicyArguments, wrenches: Tensor | None, settings: RolloutSettings, clip: Clip | None = None
) -> tuple[RolloutResult, Tensor]:
    """The rollout from a call's state, and the controls [T, B, nu] that the policy chose."""
    _refuse_transforms()
    program, policy = call.program, given.policy
    if program.model.nu == 0:
        raise ValueError("the model has no motors: a policy has nothing to control")
    loop = Loop(program, call.state, wrenches, call.constants, call.parameters, settings, clip)
    if not isinstance(policy, MLP):
        if not callable(policy):
            raise TypeError(f"policy must be an MLP or a function of (state, t), got {type(policy).__name__}")
        _refuse_checkpoints(settings, "a function")
        return between_steps(call, loop, policy)
    _, inputs, noise = given = given.checked(call, settings.steps)
    seen, ninput = view(program, policy.sensors), 0 if inputs is None else inputs.shape[-1]
    _check(program, policy, seen, ninput)
    shaped = policy.shaped or noise is not None or policy.output == "clamp"
    if policy.in_kernel:
        network = Network(program, policy, seen, ninput, call.parameters, shaped)
        return in_kernel(loop, network, inputs, noise)
    _refuse_checkpoints(settings, "an MLP that torch evaluates (compiled=False, or many weights)")
    if shaped or policy.dtype != program.dtype:
        return between_steps(call, loop, deciding(call, loop, policy, inputs, noise))
    return by_torch(loop, TorchPolicy(policy, seen, inputs))


def _check(program: Program, policy: MLP, seen: View, ninput: int) -> None:
    if type(policy).forward is not MLP.forward:
        name = type(policy).__name__
        raise TypeError(f"{name} has a forward of its own, which kernels do not know: pass a function of (state, t)")
    names = [*seen.names, *([("inputs", ninput)] if ninput else [])]
    if policy.sizes[0] != seen.size + ninput:
        parts = " + ".join(f"{size} ({name})" for name, size in names) or "nothing"
        raise ValueError(
            f"the policy takes {policy.sizes[0]} observations, but there are {seen.size + ninput}: {parts}"
        )
    if policy.sizes[-1] != program.model.nu:
        raise ValueError(f"the policy has {policy.sizes[-1]} outputs, but the model {program.model.nu} motors")
    _check_layers(policy)
    if any(x.device.type != "cpu" for x in policy.parameters()):
        raise ValueError("an MLP must be on the cpu: its weights are read there")


def _check_layers(policy: MLP) -> None:
    """Kernels read as many weights as the sizes say, whatever has become of the layers."""
    found = [(tuple(x.weight.shape), x.weight.dtype, x.bias is not None) for x in policy.linear]
    expected = [((m, n), policy.dtype, policy.bias) for n, m in itertools.pairwise(policy.sizes)]
    if found != expected:
        shapes = [shape for shape, _, _ in found]
        raise ValueError(
            f"the policy's layers were changed: they are {shapes} (dtype, bias: {[rest for _, *rest in found]}), "
            f"expected {[shape for shape, _, _ in expected]} ({[rest for _, *rest in expected]})"
        )


def _refuse_checkpoints(settings: RolloutSettings, what: str) -> None:
    if settings.every > 1:
        raise NotImplementedError(f"adjoint=Checkpoint(...) with {what} as policy: every state is needed")


def _refuse_transforms() -> None:
    if transformed() or traced():
        raise NotImplementedError(
            "rollout(policy=...) is not possible inside torch.func, torch.compile or forward-mode derivatives: use "
            "backward() or torch.autograd.grad, or a loop of Simulator.step"
        )
