"""Where a step's controls come from: rows that are given, or a neural network that sees the state; and the adjoints.

The network's layers are y = σ(W x), each followed by the next; with a bias, x has a first element that is 1. Its
observations are elements of (q, v, inputs) and of the links' poses. The weights are one table that all environments
share, and every loop over layers, rows and columns is rolled: one kernel serves networks of all sizes. A kernel that is
specialised to its model is so to the poses that its network sees, too.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from ..ir import carry, counters, loop, maximum, memory, select, tanh, when, workspace
from .math.arrays import add_to, copy, local, zero
from .tree.poses import link_poses, link_poses_adjoint, pose_size
from .tree.tree import Tree

ROWS = 8  # of a matrix that are computed together; matrices are padded to a multiple, and stored [n / ROWS, m, ROWS]
HEAD = 7  # layers; their records; observations of the state, of poses; their pairs; the output; 1 if there are biases
LAYER = 6  # columns, blocks of rows, first weight, first element of x, of y, what σ is
LINEAR, TANH, RELU = 0, 1, 2  # σ
KEPT = 8  # steps whose neurons are kept until their share of W̄ is added: W̄ is larger than the nearest cache


class GivenControls:
    """Controls that are given: a row for every step."""

    def __init__(self, tree: Tree, controls: Any, controls_bar: Any = None) -> None:
        self.tree, self.controls, self.controls_bar = tree, controls, controls_bar

    def prefetch(self, t: Any) -> None:
        self.controls.row(t).prefetch(self.tree.nu)

    def prefetch_adjoint(self, t: Any) -> None:
        self.controls.row(t - 1).prefetch(self.tree.nu)
        self.controls_bar.row(t).prefetch(self.tree.nu)

    def control(self, t: Any, q: Any, v: Any) -> Any:
        """Those of step t, which starts from (q, v)."""
        return self.again(t)

    def again(self, t: Any) -> Any:
        """The controls of a step that was done before."""
        return local(self.tree.nu, self.controls.row(t))

    def pull_back(self, t: Any, control_bar: Any, q: Any, v: Any, bars: Any) -> None:
        """From the gradient with respect to the controls of step t, those with respect to what they depend on."""
        copy(self.tree.nu, control_bar, self.controls_bar.row(t))

    def finish(self) -> None:
        pass


@dataclass(frozen=True)
class Watching:
    """What a kernel must know of its network, besides the tables.

    inputs: whether it sees some. poses: pairs (observation, element of the poses), where kernels are specialised to
    them; else whether there are any. inputs_bar, weights_bar: whether their gradients are wanted.
    """

    inputs: bool
    poses: bool | tuple[tuple[int, int], ...]
    inputs_bar: bool = False
    weights_bar: bool = False


class NetworkTables(NamedTuple):
    """A network as kernels see it. ints: HEAD, records of LAYER, pairs (observation, element seen)."""

    ints: Any
    weights: Any
    nneuron: Any
    nweight: Any
    ninput: Any


class PolicyNetwork:
    """Controls of a network. Rows that are None are not wanted, or there are none.

    controls: written, or of an adjoint, known; controls_bar: what the loss says about them itself.
    """

    def __init__(
        self, tree: Tree, watching: Watching, tables: NetworkTables, inputs: Any = None, controls: Any = None,
        controls_bar: Any = None, inputs_bar: Any = None, weights_bar: Any = None,
    ) -> None:  # fmt: skip
        self.tree, self.watching, self.tables = tree, watching, tables
        self.inputs, self.controls = inputs, controls
        self.controls_bar, self.inputs_bar, self.weights_bar = controls_bar, inputs_bar, weights_bar
        ints = tables.ints
        self.nlayer, self.layers, self.nstate, self.npose, self.pairs, self.output, bias = ints.get(0, HEAD)
        self.nseen = tree.nq + tree.nv + tables.ninput
        kept = 1 if weights_bar is None else KEPT
        self.seen, self.all_neurons, self.step = memory(self.nseen), memory(tables.nneuron * kept), counters(1)
        self.step[0] = 0  # of those kept
        zero(tables.nneuron * kept, self.all_neurons)
        for _ in when(bias > 0):
            for k in range(kept):
                for l in loop(self.nlayer):
                    self.all_neurons.at(tables.nneuron * k)[self._layer(l)[3]] = 1.0
        self.poses: Any = None
        self.specialised = isinstance(watching.poses, tuple)
        if controls_bar is not None:
            self.seen_bar, self.all_bars = memory(self.nseen), memory(tables.nneuron * kept)
        if weights_bar is not None:
            self.total = memory(tables.nweight)
            zero(tables.nweight, self.total)

    @property
    def neurons(self) -> Any:
        """Of the current step."""
        return self.all_neurons.at(self.tables.nneuron * self.step[0])

    @property
    def bars(self) -> Any:
        """Gradients with respect to the neurons of the current step; before a layer's σ, once `_backward` was there."""
        return self.all_bars.at(self.tables.nneuron * self.step[0])

    def _layer(self, l: Any) -> Any:
        return self.tables.ints.at(self.layers + l * LAYER).get(0, LAYER)

    def prefetch(self, t: Any) -> None:
        self.controls.row(t).prefetch(self.tree.nu)

    def prefetch_adjoint(self, t: Any) -> None:
        self.controls.row(t - 1).prefetch(self.tree.nu)

    def control(self, t: Any, q: Any, v: Any) -> Any:
        neurons, known = self.neurons, self.controls_bar is not None
        self._look(t, q, v, neurons)
        for l in loop(self.nlayer - 1 if known else self.nlayer):
            self._forward(l, neurons)
        if known:
            u = self.again(t)
            copy(self.tree.nu, u, neurons.at(self.output))
        else:
            u = local(self.tree.nu, neurons.at(self.output))
            copy(self.tree.nu, u, self.controls.row(t))
        return u

    def again(self, t: Any) -> Any:
        return local(self.tree.nu, self.controls.row(t))

    def _look(self, t: Any, q: Any, v: Any, neurons: Any) -> None:
        """Fill the observations."""
        nq, nv = self.tree.nq, self.tree.nv
        copy(nq, q, self.seen)
        copy(nv, v, self.seen.at(nq))
        if self.inputs is not None:
            copy(self.tables.ninput, self.inputs.row(t), self.seen.at(nq + nv))
        for k in loop(self.nstate):
            place, source = self._pair(k)
            neurons[place] = self.seen[source]
        if self.watching.poses:
            self.poses = link_poses(self.tree, q, v, indexed=not self.specialised)
            for place, source in self._watched():
                neurons[place] = self.poses[source]

    def _watched(self) -> Iterator[Any]:
        """Pairs (observation, element of the poses)."""
        if isinstance(self.watching.poses, tuple):
            yield from self.watching.poses
            return
        for k in loop(self.npose):
            yield self._pair(self.nstate + k)

    def _pair(self, k: Any) -> Any:
        return self.tables.ints.at(self.pairs + k * 2).get(0, 2)

    def _forward(self, l: Any, neurons: Any) -> None:
        n, blocks, first, x, y, kind = self._layer(l)
        x, y = neurons.at(x), neurons.at(y)
        for b in loop(blocks):
            W, sums = self.tables.weights.at(first + b * n * ROWS), carry(ROWS)
            for r in range(ROWS):
                sums[r] = 0.0
            for j in loop(n):
                xj = x[j]
                for r, w in enumerate(W.get(j, ROWS)):
                    sums[r] = sums[r] + w * xj
            y.put(b, [sums[r] for r in range(ROWS)])
        for _ in when(kind == TANH):
            for i in loop(blocks * ROWS):
                y[i] = tanh(y[i])
        for _ in when(kind == RELU):
            for i in loop(blocks * ROWS):
                y[i] = maximum(0.0, y[i])  # in this order, NaN stays NaN

    def pull_back(self, t: Any, control_bar: Any, q: Any, v: Any, bars: Any) -> None:
        """As `Given.pull_back`; to `bars` (q, v, constants) what the observations say is added."""
        tree, nq, nv = self.tree, self.tree.nq, self.tree.nv
        neurons, neurons_bar = self.neurons, self.bars
        zero(self.tables.nneuron, neurons_bar)
        output_bar, own = neurons_bar.at(self.output), local(tree.nu, self.controls_bar.row(t))
        for m in loop(tree.nu):
            output_bar[m] = control_bar[m] + own[m]
        for l in loop(self.nlayer, reverse=True):
            self._backward(l, neurons, neurons_bar)
        zero(self.nseen, self.seen_bar)
        for k in loop(self.nstate):
            place, source = self._pair(k)
            self.seen_bar[source] = self.seen_bar[source] + neurons_bar[place]
        add_to(nq, self.seen_bar, bars.q)
        add_to(nv, self.seen_bar.at(nq), bars.v)
        if self.inputs_bar is not None:
            copy(self.tables.ninput, self.seen_bar.at(nq + nv), self.inputs_bar.row(t))
        if self.watching.poses:
            size = (tree.nlink + 1) * pose_size(1)
            poses_bar = workspace(size) if self.specialised else memory(size)
            zero(size, poses_bar)
            for place, source in self._watched():
                poses_bar[source] = poses_bar[source] + neurons_bar[place]
            link_poses_adjoint(tree, self.poses, poses_bar, q, [v], bars.q, [bars.v], bars.constants)
        if self.weights_bar is not None:
            self.step[0] = self.step[0] + 1
            for _ in when(self.step[0] == KEPT):
                self._learn()

    def _backward(self, l: Any, neurons: Any, neurons_bar: Any) -> None:
        """ȳ becomes δ = σ' ȳ, and x̄ += Wᵀ δ."""
        n, blocks, first, x, y, kind = self._layer(l)
        x_bar, y_bar, y = neurons_bar.at(x), neurons_bar.at(y), neurons.at(y)
        for _ in when(kind == TANH):
            for i in loop(blocks * ROWS):
                y_bar[i] = y_bar[i] * (1.0 - y[i] * y[i])
        for _ in when(kind == RELU):
            for i in loop(blocks * ROWS):
                y_bar[i] = select(y[i] > 0.0, y_bar[i], 0.0)
        for b in loop(blocks):
            W, delta = self.tables.weights.at(first + b * n * ROWS), y_bar.get(b, ROWS)
            for j in loop(n):
                total = x_bar[j]
                for w, d in zip(W.get(j, ROWS), delta, strict=True):
                    total = total + w * d
                x_bar[j] = total

    def _learn(self) -> None:
        """W̄ += δ xᵀ of the steps kept, one after the other."""
        size = self.tables.nneuron
        for l in loop(self.nlayer):
            n, blocks, first, x, y, _ = self._layer(l)
            for b in loop(blocks):
                total = self.total.at(first + b * n * ROWS)
                for j in loop(n):
                    sums = carry(ROWS)
                    for r, g in enumerate(total.get(j, ROWS)):
                        sums[r] = g
                    for k in loop(self.step[0]):
                        xj, delta = self.all_neurons.at(size * k + x)[j], self.all_bars.at(size * k + y).get(b, ROWS)
                        for r, d in enumerate(delta):
                            sums[r] = sums[r] + d * xj
                    total.put(j, [sums[r] for r in range(ROWS)])
        self.step[0] = 0

    def finish(self) -> None:
        if self.weights_bar is not None:
            self._learn()
            copy(self.tables.nweight, self.total, self.weights_bar)
