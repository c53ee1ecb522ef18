"""A network that the kernel evaluates, which also steps: a rollout is one call, and its gradient another."""

from __future__ import annotations

import functools
from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from torch import Tensor

from ...physics.policy import HEAD, LAYER, ROWS, LayerRecord, NetworkHead, PolicyForm, PolicySignature
from ...policy import MLP, OUTPUTS, View, network_table, watched_poses
from ...schema.signatures import POLICY_ROLLOUT
from ...schema.state import NAMES, state_names
from .. import autograd
from ..request import Request
from ..result import RolloutResult

if TYPE_CHECKING:
    from ..program import Program
    from .stepper import Loop


@dataclass(frozen=True, eq=False)
class Network:
    """An MLP as kernels see it. view: the observations of its sensors. ninput: inputs of the rollout that it sees.
    shaped: whether there is more to it than layers."""

    program: Program
    policy: MLP
    view: View
    ninput: int
    parameters: str  # names of the model's parameters that are given at run time, separated by commas
    shaped: bool

    @functools.cached_property
    def sizes(self) -> dict[str, int]:
        """Of the arguments that only kernels with a network have."""
        sizes = {"ninput": self.ninput, "nweight": self.policy.table_size(self.shaped)}
        return sizes | {"nneuron": self._table()[1]}

    def _table(self) -> tuple[np.ndarray, int]:
        """See `network_table`."""
        policy, known = self.policy, self.program.seen
        key = (policy.sensors, self.ninput, policy.sizes, *policy.kinds(), policy.bias, self.shaped, policy.hold)
        if key not in known:
            known[key] = network_table(policy, self.view, self.ninput, sum(self.program.state_sizes), self.shaped)
        return known[key]

    def kernel_values(self, weights: Tensor) -> dict[str, int]:
        """Addresses and sizes of the network's tables."""
        ints, neurons = self._table()
        tables = {"network": ints.ctypes.data, "weights": weights.data_ptr()}
        return tables | {"nneuron": neurons, "nweight": weights.numel(), "ninput": self.ninput}

    def signature(self, names: Collection[str]) -> PolicySignature:
        """What a kernel with arguments of these names must know of the network."""
        policy, known = self.policy, self.program.seen
        given = ("inputs" in names, "inputs_bar" in names, "weights_bar" in names or "neurons" in names)
        form = self._form("noise" in names, "noise_bar" in names) if self.shaped else None
        key = (policy.sensors, policy.bias, self.parameters, form, *given)
        if key not in known:
            specialised = self.view.poses and self.program.kernels.specializes(self.parameters)
            pairs = watched_poses(policy, self.view) if specialised else None
            known[key] = PolicySignature(given[0], bool(self.view.poses), pairs, given[1], given[2], form)
        return known[key]

    def _form(self, noise: bool, noise_bar: bool) -> PolicyForm:
        policy = self.policy
        squash, holds = OUTPUTS[policy.output], policy.hold > 1
        return PolicyForm(squash, policy.observes_shaped, policy.layer_norm, holds, noise, noise_bar)

    def weights_bar(self, neurons: Tensor, neurons_bar: Tensor, noise: Tensor | None) -> Tensor:
        """The cotangent of the weights, from the neurons of all decisions [D, B, nneuron] and their cotangents."""
        table, total = self._table()[0], neurons.new_zeros(self.sizes["nweight"])
        x, bars, head = neurons.flatten(0, 1), neurons_bar.flatten(0, 1), NetworkHead(*table[:HEAD].tolist())
        for record in table[head.layers : head.layers + head.nlayer * LAYER].reshape(-1, LAYER).tolist():
            layer = LayerRecord(*record)
            product = bars[:, layer.y : layer.y + layer.blocks * ROWS].T @ x[:, layer.x : layer.x + layer.columns]
            place = total[layer.first_weight : layer.first_weight + product.numel()]
            place.copy_(product.unflatten(0, (-1, ROWS)).transpose(1, 2).flatten())
        if noise is not None:
            nu = noise.shape[-1]
            std_bar = bars[:, head.output : head.output + nu] * noise.flatten(0, 1)
            total[head.others : head.others + nu] = std_bar.sum(0)
        return total

    def weights_by_name(self) -> dict[str, Tensor]:
        return weights_by_name(self.policy)


def weights_by_name(policy: MLP) -> dict[str, Tensor]:
    """For messages about numbers that are not finite."""
    return {f"the policy's {name}": x.detach() for name, x in policy.named_parameters()}


def in_kernel(
    loop: Loop, network: Network, inputs: Tensor | None, noise: Tensor | None
) -> tuple[RolloutResult, Tensor]:
    """A rollout, and its controls [T, B, nu]. inputs: [D, B, ninput], noise: [D, B, nu], of D decisions."""
    weights = network.policy.table(network.shaped).to(loop.program.dtype)
    given = dict(zip(NAMES, loop.state)) | {"inputs": inputs, "noise": noise, "weights": weights}
    given |= {"wrenches": loop.wrenches, "constants": loop.constants}
    tensors = {name: x for name, x in given.items() if x is not None}
    request = Request(loop.program, POLICY_ROLLOUT, tuple(tensors), loop.parameters, loop.settings, network, loop.clip)
    outputs = autograd.evaluate(request, tensors)
    path, last = (tuple(outputs[name] for name in state_names(prefix)) for prefix in ("path_", "last_"))
    return RolloutResult(path, last, outputs["status"]), outputs["controls"]
