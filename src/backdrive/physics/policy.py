"""Controls that a neural network computes from what it observes of the state, with the adjoint.

The layers of the network are y = σ(W x), one after the other; with a bias, the first element of every x is 1. The
observations are elements of (q, v, inputs) and of the links' poses. All environments share one table of weights, and
every loop over layers, rows and columns is rolled, so that one kernel serves networks of all sizes. A kernel that is
specialised to its model is also specialised to the elements of the poses that its network observes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from ..ir import (
    Index,
    IndexArray,
    Scalar,
    ScalarArray,
    TimedArray,
    carry,
    counters,
    is_finite,
    loop,
    maximum,
    memory,
    minimum,
    select,
    tanh,
    when,
    workspace,
)
from .math.arrays import add_to, copy, local, zero
from .tree.dynamics_adjoint import Cotangents
from .tree.poses import link_poses, link_poses_adjoint, pose_size
from .tree.tree import Tree

ROWS = 8  # rows of a matrix that are computed together; matrices are padded to a multiple, stored [n / ROWS, m, ROWS]
HEAD = 9  # size of the head of the integer table: see `NetworkHead`
LAYER = 6  # size of the record of a layer in the integer table: see `LayerRecord`
PAIR = 2  # size of the record of an observation: its index among the neurons, and that of the element it observes
LINEAR, TANH, RELU, ELU = 0, 1, 2, 3  # codes of the activations σ
KEPT = 8  # steps whose neurons are kept before their part of W̄ is added: W̄ is larger than the nearest cache


@dataclass(frozen=True)
class PolicyForm:
    """What a network does besides its layers: see `shaped_policy`.

    squash: the code of its outputs. normalises: whether it shifts, scales and clips its observations. layer_norm:
    whether hidden layers are normalised before their activation. holds: whether its controls last for several steps.
    noise: whether it gets any; noise_bar: whether its cotangent is wanted.
    """

    squash: int
    normalises: bool
    layer_norm: bool
    holds: bool
    noise: bool
    noise_bar: bool


@dataclass(frozen=True)
class PolicySignature:
    """The properties of a policy that its kernels are compiled for; everything else is in the tables.

    inputs, poses: whether it observes inputs, and poses of links. pose_pairs: the pairs (neuron of the observation,
    element of the poses), if the kernel is specialised to them; None if it reads them from the table. inputs_bar,
    weights_bar: whether their cotangents are wanted. form: None of a network that has layers and nothing else.
    """

    inputs: bool
    poses: bool
    pose_pairs: tuple[tuple[int, int], ...] | None = None
    inputs_bar: bool = False
    weights_bar: bool = False
    form: PolicyForm | None = None


class NetworkTables(NamedTuple):
    """A network as kernels see it.

    ints: a `NetworkHead`, the `LayerRecord`s, and the pairs (neuron of the observation, element observed). weights
    [nweight]. nneuron: elements of all x and y. ninput: inputs of a step.
    """

    ints: IndexArray
    weights: ScalarArray
    nneuron: Index
    nweight: Index
    ninput: Index


class NetworkHead(NamedTuple):
    """The first HEAD numbers of the integer table."""

    nlayer: Index  # number of layers
    layers: Index  # where their records start in the table
    nstate: Index  # observations of (q, v, inputs)
    npose: Index  # observations of poses
    pairs: Index  # where the pairs of the observations start in the table
    output: Index  # the first neuron of the controls
    bias: Index  # 1 if the layers have biases, else 0
    hold: Index  # steps for which controls last
    others: Index  # where the numbers that are no weights of layers start in the weights: see `shaped_policy`


class LayerRecord(NamedTuple):
    """The LAYER numbers of a layer y = σ(W x)."""

    columns: Index  # elements of x
    blocks: Index  # blocks of ROWS elements of y
    first_weight: Index  # where W starts in the weights
    x: Index  # the first neuron of x
    y: Index  # the first neuron of y
    activation: Index  # LINEAR, TANH, RELU or ELU


@dataclass(frozen=True)
class PolicyRows:
    """Rows of the caller's tensors that a policy reads and writes; None for those that are absent or not wanted.

    controls: written by a rollout, read by its adjoint. controls_bar: of an adjoint, the gradient of the loss with
    respect to the controls as results of the rollout.
    """

    inputs: TimedArray | None = None
    controls: TimedArray | None = None
    controls_bar: TimedArray | None = None
    inputs_bar: TimedArray | None = None
    weights_bar: ScalarArray | None = None
    noise: TimedArray | None = None
    noise_bar: TimedArray | None = None
    neurons: TimedArray | None = None
    neurons_bar: TimedArray | None = None


class PolicyNetwork:
    """Controls that a network computes from its observations.

    guarded: observations that are not finite count as 0, so that those of one environment, whose cotangents are zero,
    do not reach the gradient of the weights.
    """

    def __init__(
        self, tree: Tree, signature: PolicySignature, tables: NetworkTables, rows: PolicyRows, guarded: bool = False
    ) -> None:
        assert rows.controls is not None
        self.guarded = guarded
        self.tree, self.signature, self.tables, self.rows = tree, signature, tables, rows
        self.controls = rows.controls
        self.head = NetworkHead(*tables.ints.get(0, HEAD))
        self.nseen = tree.nq + tree.nv + tables.ninput
        kept = 1 if rows.weights_bar is None else KEPT
        self.seen, self.all_neurons, self.step = memory(self.nseen), memory(tables.nneuron * kept), counters(1)
        self.step[0] = 0  # the current step among those kept
        zero(tables.nneuron * kept, self.all_neurons)
        for _ in when(self.head.bias > 0):
            for k in range(kept):
                for l in loop(self.head.nlayer):
                    self.all_neurons.at(tables.nneuron * k)[self._layer(l).x] = 1.0
        self.poses: ScalarArray | None = None
        if rows.controls_bar is not None:
            self.seen_bar, self.all_neurons_bar = memory(self.nseen), memory(tables.nneuron * kept)
        if rows.weights_bar is not None:
            self.total = memory(tables.nweight)
            zero(tables.nweight, self.total)

    @property
    def neurons(self) -> ScalarArray:
        """The neurons of the current step."""
        return self.all_neurons.at(self.tables.nneuron * self.step[0])

    @property
    def neurons_bar(self) -> ScalarArray:
        """The cotangents of the neurons of the current step; `_backward` replaces ȳ of a layer by that before its σ."""
        return self.all_neurons_bar.at(self.tables.nneuron * self.step[0])

    def _layer(self, l: Index) -> LayerRecord:
        return LayerRecord(*self.tables.ints.at(self.head.layers + l * LAYER).get(0, LAYER))

    def prefetch(self, t: Index) -> None:
        self.controls.row(t).prefetch(self.tree.nu)

    def prefetch_adjoint(self, t: Index) -> None:
        self.controls.row(t - 1).prefetch(self.tree.nu)

    def control(self, t: Index, q: ScalarArray, v: ScalarArray) -> ScalarArray:
        """The controls of step t; in an adjoint they are known, and all layers but the last are evaluated again."""
        neurons, known = self.neurons, self.rows.controls_bar is not None
        self._observe(t, q, v, neurons)
        for l in loop(self.head.nlayer - 1 if known else self.head.nlayer):
            self._forward(l, neurons)
        if known:
            u = self.again(t)
            copy(self.tree.nu, u, neurons.at(self.head.output))
        else:
            u = local(self.tree.nu, neurons.at(self.head.output))
            copy(self.tree.nu, u, self.controls.row(t))
        return u

    def again(self, t: Index) -> ScalarArray:
        return local(self.tree.nu, self.controls.row(t))

    def _observe(self, t: Index, q: ScalarArray, v: ScalarArray, neurons: ScalarArray) -> None:
        """Fill the observations: the first neurons."""
        nq, nv = self.tree.nq, self.tree.nv
        copy(nq, q, self.seen)
        copy(nv, v, self.seen.at(nq))
        if self.rows.inputs is not None:
            copy(self.tables.ninput, self.rows.inputs.row(t), self.seen.at(nq + nv))
        for k in loop(self.head.nstate):
            neuron, source = self._pair(k)
            neurons[neuron] = self._guard(self.seen[source])
        if self.signature.poses:
            self.poses = link_poses(self.tree, q, v, indexed=self.signature.pose_pairs is None)
            for neuron, source in self._pose_pairs():
                neurons[neuron] = self._guard(self.poses[source])

    def _guard(self, x: Scalar) -> Scalar:
        return select(is_finite(x), x, 0.0) if self.guarded else x

    def _pose_pairs(self) -> Iterator[tuple[Index, Index]]:
        """Pairs (neuron of the observation, element of the poses)."""
        if self.signature.pose_pairs is not None:
            yield from self.signature.pose_pairs
            return
        for k in loop(self.head.npose):
            yield self._pair(self.head.nstate + k)

    def _pair(self, k: Index) -> tuple[Index, Index]:
        neuron, source = self.tables.ints.at(self.head.pairs + k * PAIR).get(0, PAIR)
        return neuron, source

    def _forward(self, l: Index, neurons: ScalarArray) -> None:
        """y = σ(W x) of layer l."""
        layer = self._layer(l)
        n, blocks = layer.columns, layer.blocks
        x, y = neurons.at(layer.x), neurons.at(layer.y)
        for b in loop(blocks):
            W, sums = self.tables.weights.at(layer.first_weight + b * n * ROWS), carry(ROWS)
            for r in range(ROWS):
                sums[r] = 0.0
            for j in loop(n):
                xj = x[j]
                for r, w in enumerate(W.get(j, ROWS)):
                    sums[r] = sums[r] + w * xj
            y.put(b, [sums[r] for r in range(ROWS)])
        self._before_activation(l, y)
        for _ in when(layer.activation == TANH):
            for i in loop(blocks * ROWS):
                y[i] = tanh(y[i])
        for _ in when(layer.activation == RELU):
            for i in loop(blocks * ROWS):
                y[i] = maximum(0.0, y[i])  # in this order of the arguments, NaN stays NaN
        for _ in when(layer.activation == ELU):
            for i in loop(blocks * ROWS):
                half = tanh(0.5 * minimum(0.0, y[i]))
                y[i] = select(y[i] > 0.0, y[i], 2.0 * half / (1.0 - half))  # exp(y) - 1

    def _before_activation(self, l: Index, y: ScalarArray) -> None:
        """What happens to y = W x of layer l before its activation, in its place: nothing here."""

    def _before_activation_vjp(self, l: Index, y_bar: ScalarArray) -> None:
        """The adjoint of `_before_activation`, in its place."""

    def vjp(self, t: Index, control_bar: ScalarArray, q: ScalarArray, v: ScalarArray, cotangents: Cotangents) -> None:
        assert self.rows.controls_bar is not None
        neurons_bar = self.neurons_bar
        zero(self.tables.nneuron, neurons_bar)
        output_bar, own = neurons_bar.at(self.head.output), local(self.tree.nu, self.rows.controls_bar.row(t))
        for m in loop(self.tree.nu):
            output_bar[m] = control_bar[m] + self._guard(own[m])
        self._back_to_inputs(t, q, v, cotangents)

    def _observations_vjp(self, neurons_bar: ScalarArray) -> None:
        """From the cotangents of the first layer's x to those of the observations, in their place: the same here."""

    def _back_to_inputs(self, t: Index, q: ScalarArray, v: ScalarArray, cotangents: Cotangents) -> None:
        """From the cotangents of the last layer's y to those of all that was observed, and of the weights.

        t: the row of the inputs.
        """
        tree, nq, nv = self.tree, self.tree.nq, self.tree.nv
        neurons, neurons_bar = self.neurons, self.neurons_bar
        for l in loop(self.head.nlayer, reverse=True):
            self._backward(l, neurons, neurons_bar)
        self._observations_vjp(neurons_bar)
        zero(self.nseen, self.seen_bar)
        for k in loop(self.head.nstate):
            neuron, source = self._pair(k)
            self.seen_bar[source] = self.seen_bar[source] + neurons_bar[neuron]
        add_to(nq, self.seen_bar, cotangents.q)
        add_to(nv, self.seen_bar.at(nq), cotangents.v)
        if self.rows.inputs_bar is not None:
            copy(self.tables.ninput, self.seen_bar.at(nq + nv), self.rows.inputs_bar.row(t))
        if self.poses is not None:
            size = (tree.nlink + 1) * pose_size(1)
            poses_bar = memory(size) if self.signature.pose_pairs is None else workspace(size)
            zero(size, poses_bar)
            for neuron, source in self._pose_pairs():
                poses_bar[source] = poses_bar[source] + neurons_bar[neuron]
            link_poses_adjoint(
                tree, self.poses, poses_bar, q, [v], cotangents.q, [cotangents.v], cotangents.constants
            )  # fmt: skip
        if self.rows.weights_bar is not None:
            self.step[0] = self.step[0] + 1
            for _ in when(self.step[0] == KEPT):
                self._add_weights_bar()

    def _backward(self, l: Index, neurons: ScalarArray, neurons_bar: ScalarArray) -> None:
        """ȳ becomes δ = σ' ȳ, and x̄ += Wᵀ δ."""
        layer = self._layer(l)
        n, blocks = layer.columns, layer.blocks
        x_bar, y_bar, y = neurons_bar.at(layer.x), neurons_bar.at(layer.y), neurons.at(layer.y)
        for _ in when(layer.activation == TANH):
            for i in loop(blocks * ROWS):
                y_bar[i] = y_bar[i] * (1.0 - y[i] * y[i])
        for _ in when(layer.activation == RELU):
            for i in loop(blocks * ROWS):
                y_bar[i] = select(y[i] > 0.0, y_bar[i], 0.0)
        for _ in when(layer.activation == ELU):
            for i in loop(blocks * ROWS):
                y_bar[i] = select(y[i] > 0.0, y_bar[i], y_bar[i] * (1.0 + y[i]))
        self._before_activation_vjp(l, y_bar)
        for b in loop(blocks):
            W, delta = self.tables.weights.at(layer.first_weight + b * n * ROWS), y_bar.get(b, ROWS)
            for j in loop(n):
                total = x_bar[j]
                for w, d in zip(W.get(j, ROWS), delta, strict=True):
                    total = total + w * d
                x_bar[j] = total

    def _add_weights_bar(self) -> None:
        """W̄ += δ xᵀ of the steps kept, one after the other."""
        size = self.tables.nneuron
        for l in loop(self.head.nlayer):
            layer = self._layer(l)
            n = layer.columns
            for b in loop(layer.blocks):
                total = self.total.at(layer.first_weight + b * n * ROWS)
                for j in loop(n):
                    sums = carry(ROWS)
                    for r, g in enumerate(total.get(j, ROWS)):
                        sums[r] = g
                    for k in loop(self.step[0]):
                        xj = self.all_neurons.at(size * k + layer.x)[j]
                        delta = self.all_neurons_bar.at(size * k + layer.y).get(b, ROWS)
                        for r, d in enumerate(delta):
                            sums[r] = sums[r] + d * xj
                    total.put(j, [sums[r] for r in range(ROWS)])
        self.step[0] = 0

    def finish(self) -> None:
        if self.rows.weights_bar is not None:
            self._add_weights_bar()
            copy(self.tables.nweight, self.total, self.rows.weights_bar)
