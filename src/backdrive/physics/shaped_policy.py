"""Networks as reinforcement learning has them: observations are normalised, outputs take noise and have limits, and a
control lasts for several steps.

    x = clip(scale (o - shift), ± most)          of the observations o
    y = the layers of x
    z = y + std noise
    u = z, or low + (high - low) (1 + tanh z) / 2, or clip(z, low, high)

u is computed before steps whose number is a multiple of `hold`, and lasts until the next such step. Rows of inputs and
noise are those of these decisions.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from ..ir import Index, Scalar, ScalarArray, absolute, clip, loop, memory, select, tanh, when
from .math.arrays import copy, local, zero
from .policy import TANH, NetworkTables, PolicyForm, PolicyNetwork, PolicyRows, PolicySignature
from .tree.dynamics_adjoint import Cotangents
from .tree.tree import Tree

CLAMP = 4  # code of outputs clip(z, low, high), besides LINEAR and TANH


class Others(NamedTuple):
    """The numbers after the weights of the layers: of controls [nu], of observations [n], and one."""

    std: ScalarArray
    low: ScalarArray
    high: ScalarArray
    shift: ScalarArray
    scale: ScalarArray
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
        if rows.controls_bar is not None:
            self.action_bar = memory(tree.nu)
            zero(tree.nu, self.action_bar)

    def _others(self, numbers: ScalarArray) -> Others:
        start, nu, n = self.head.others, self.tree.nu, self.nobserved
        places = (start, start + nu, start + 2 * nu, start + 3 * nu, start + 3 * nu + n, start + 3 * nu + 2 * n)
        return Others(*(numbers.at(place) for place in places))

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
            x, most = neurons.at(self.head.bias), self.others.most[0]
            for k in loop(self.nobserved):
                self.raw[k] = self.others.scale[k] * (x[k] - self.others.shift[k])
                x[k] = clip(self.raw[k], -most, most)
        for l in loop(self.head.nlayer):
            self._forward(l, neurons)

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
        bar, most = neurons_bar.at(self.head.bias), self.others.most[0]
        for k in loop(self.nobserved):
            bar[k] = select(absolute(self.raw[k]) <= most, self.others.scale[k] * bar[k], 0.0)
