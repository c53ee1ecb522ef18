"""Networks as reinforcement learning has them: observations are normalised, outputs take noise and have limits, and a
control lasts for several steps.

    x = clip(scale (o - shift), least, most)     of the observations o
    y = the layers of x; with layer_norm, a hidden layer is σ(n), n = (W x - mean) / sqrt(variance + 1e-5)
    z = y + std noise
    u = z, or low + (high - low) (1 + tanh z) / 2, or clip(z, low, high)

u is computed before steps whose number is a multiple of `hold`, and lasts until the next such step. Rows of inputs and
noise are those of these decisions.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from ..ir import Index, Scalar, ScalarArray, carry, clip, loop, memory, select, sqrt, tanh, to_float, when
from .math.arrays import copy, local, zero
from .policy import TANH, NetworkTables, PolicyForm, PolicyNetwork, PolicyRows, PolicySignature
from .tree.dynamics_adjoint import Cotangents
from .tree.tree import Tree

CLAMP = 4  # code of outputs clip(z, low, high), besides LINEAR and TANH
EPSILON = 1e-5  # added to the variance of a layer's neurons, as in torch.nn.LayerNorm


class Others(NamedTuple):
    """The numbers after the weights of the layers: of controls [nu], and of observations [n]."""

    std: ScalarArray
    low: ScalarArray
    high: ScalarArray
    shift: ScalarArray
    scale: ScalarArray
    least: ScalarArray
    most: ScalarArray


class ShapedNetwork(PolicyNetwork):
    """Controls of a network with the form above. In an adjoint, each decision is evaluated again where it is left.

    The adjoint writes the neurons of every decision, and their cotangents before the activations: the gradient of the
    weights is a product of these for all environments at once, which is faster than one for each.
    """

    def __init__(
        self, tree: Tree, signature: PolicySignature, tables: NetworkTables, rows: PolicyRows, guarded: bool = False
    ) -> None:
        super().__init__(tree, signature, tables, rows, guarded)
        assert signature.form is not None
        self.form: PolicyForm = signature.form
        self.nobserved = self._layer(0).columns - self.head.bias
        self.others = self._others(tables.weights)
        self.held, self.raw = memory(tree.nu), memory(tables.nneuron)  # (of which the first nobserved are used)
        if self.form.layer_norm:
            self.normal, self.inverse_std = (
                memory(tables.nneuron),
                memory(tables.nneuron),
            )  # n by neuron, 1/std by layer
        if rows.controls_bar is not None:
            self.action_bar = memory(tree.nu)
            zero(tree.nu, self.action_bar)

    def _others(self, numbers: ScalarArray) -> Others:
        start, nu, n = self.head.others, self.tree.nu, self.nobserved
        of_controls = [start + k * nu for k in range(3)]
        of_observations = [start + 3 * nu + k * n for k in range(4)]
        return Others(*(numbers.at(place) for place in (*of_controls, *of_observations)))

    def _decides(self, t: Index) -> Iterable[object]:
        """Once, if there is a decision before step t."""
        return when(t % self.head.hold == 0) if self.form.holds else range(1)

    def _number(self, t: Index) -> Index:
        """Of the decision that holds in step t."""
        return t // self.head.hold if self.form.holds else t

    def control(self, t: Index, q: ScalarArray, v: ScalarArray) -> ScalarArray:
        if self.rows.controls_bar is not None:
            return self.again(t)
        for _ in self._decides(t):
            self._evaluate(self._number(t), q, v)
            z = self._squashed_from(self._number(t))
            for m in loop(self.tree.nu):
                self.held[m] = self._squash(m, z[m])
        u = local(self.tree.nu, self.held)
        copy(self.tree.nu, u, self.controls.row(t))
        return u

    def _evaluate(self, number: Index, q: ScalarArray, v: ScalarArray) -> None:
        """Observe, and go through the layers."""
        neurons = self.neurons
        self._observe(number, q, v, neurons)
        if self.form.normalises:
            x = neurons.at(self.head.bias)
            for k in loop(self.nobserved):
                self.raw[k] = self.others.scale[k] * (x[k] - self.others.shift[k])
                x[k] = clip(self.raw[k], self.others.least[k], self.others.most[k])
        for l in loop(self.head.nlayer):
            self._forward(l, neurons)

    def _hidden(self, l: Index) -> Iterable[object]:
        """Once, if layer l is not the last."""
        return when(l < self.head.nlayer - 1)

    def _size(self, l: Index) -> Index:
        """The number of neurons of hidden layer l, without their padding."""
        return self._layer(l + 1).columns - self.head.bias

    def _before_activation(self, l: Index, y: ScalarArray) -> None:
        if not self.form.layer_norm:
            return
        for _ in self._hidden(l):
            m, normal, sums = self._size(l), self.normal.at(self._layer(l).y), carry(2)
            share = 1.0 / to_float(m)
            sums[0] = sums[1] = 0.0
            for i in loop(m):
                sums[0] = sums[0] + y[i]
            mean = share * sums[0]
            for i in loop(m):
                normal[i] = y[i] - mean
                sums[1] = sums[1] + normal[i] * normal[i]
            scale = 1.0 / sqrt(share * sums[1] + EPSILON)
            self.inverse_std[l] = scale
            for i in loop(m):
                normal[i] = y[i] = scale * normal[i]

    def _before_activation_vjp(self, l: Index, y_bar: ScalarArray) -> None:
        """With n̄: ȳ = (n̄ - mean(n̄) - n mean(n n̄)) / std."""
        if not self.form.layer_norm:
            return
        for _ in self._hidden(l):
            m, normal, sums = self._size(l), self.normal.at(self._layer(l).y), carry(2)
            share = 1.0 / to_float(m)
            sums[0] = sums[1] = 0.0
            for i in loop(m):
                sums[0] = sums[0] + y_bar[i]
                sums[1] = sums[1] + normal[i] * y_bar[i]
            mean, slope, scale = share * sums[0], share * sums[1], self.inverse_std[l]
            for i in loop(m):
                y_bar[i] = scale * (y_bar[i] - mean - normal[i] * slope)

    def _squashed_from(self, number: Index) -> ScalarArray:
        """z [nu]"""
        z = local(self.tree.nu, self.neurons.at(self.head.output))
        if self.rows.noise is not None:
            noise = local(self.tree.nu, self.rows.noise.row(number))
            for m in loop(self.tree.nu):
                z[m] = z[m] + self.others.std[m] * noise[m]
        return z

    def _squash(self, m: Index, z: Scalar) -> Scalar:
        low, high = self.others.low[m], self.others.high[m]
        if self.form.squash == TANH:
            return 0.5 * (low + high) + 0.5 * (high - low) * tanh(z)
        return clip(z, low, high) if self.form.squash == CLAMP else z

    def _squash_vjp(self, m: Index, z: Scalar, bar: Scalar) -> Scalar:
        low, high = self.others.low[m], self.others.high[m]
        if self.form.squash == TANH:
            y = tanh(z)
            return 0.5 * (high - low) * (1.0 - y * y) * bar
        return select((z >= low) & (z <= high), bar, 0.0) if self.form.squash == CLAMP else bar

    def vjp(self, t: Index, control_bar: ScalarArray, q: ScalarArray, v: ScalarArray, cotangents: Cotangents) -> None:
        assert self.rows.controls_bar is not None
        nu, own = self.tree.nu, local(self.tree.nu, self.rows.controls_bar.row(t))
        for m in loop(nu):
            self.action_bar[m] = self.action_bar[m] + (control_bar[m] + self._guard(own[m]))
        for _ in self._decides(t):
            number, neurons_bar = self._number(t), self.neurons_bar
            self._evaluate(number, q, v)
            z = self._squashed_from(number)
            zero(self.tables.nneuron, neurons_bar)
            output_bar = neurons_bar.at(self.head.output)
            for m in loop(nu):
                output_bar[m] = self._squash_vjp(m, z[m], self.action_bar[m])
                self.action_bar[m] = 0.0
            if self.rows.noise_bar is not None:
                for m in loop(nu):
                    self.rows.noise_bar.row(number)[m] = self.others.std[m] * output_bar[m]
            self._back_to_inputs(number, q, v, cotangents)
            if self.rows.neurons is not None and self.rows.neurons_bar is not None:
                copy(self.tables.nneuron, self.neurons, self.rows.neurons.row(number))
                copy(self.tables.nneuron, neurons_bar, self.rows.neurons_bar.row(number))

    def _observations_vjp(self, neurons_bar: ScalarArray) -> None:
        if not self.form.normalises:
            return
        bar = neurons_bar.at(self.head.bias)
        for k in loop(self.nobserved):
            inside = (self.raw[k] >= self.others.least[k]) & (self.raw[k] <= self.others.most[k])
            bar[k] = select(inside, self.others.scale[k] * bar[k], 0.0)
