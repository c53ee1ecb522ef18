"""The sensors of a policy, and a network that kernels can evaluate in the loop."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch
from torch import Tensor, nn

from .model import State, checks
from .physics.policy import HEAD, LAYER, LINEAR, RELU, ROWS, TANH
from .physics.tree.poses import POSE
from .schema.state import NAMES, STATE

if TYPE_CHECKING:
    from .model import Model

Sensor = str | tuple[str, str]
"""``"q"``, ``"v"``, or of a body: ``("rotation" | "position" | "angular_velocity" | "velocity", its name)``."""

ACTIVATIONS = {"tanh": TANH, "relu": RELU}
OUTPUTS = {"linear": LINEAR, "tanh": TANH}
COMPILED_WEIGHTS = 30_000  # compiled="auto": most weights of a network that kernels evaluate; torch does larger ones


class MLP(nn.Module):
    """A network of fully connected layers from observations to controls, for ``Simulator.rollout(policy=...)``.

    sizes: numbers of observations, of the neurons of each hidden layer, and of controls (``model.nu``).
    activation: "tanh" or "relu", of hidden layers; output: "linear" or "tanh", of the last. bias: whether layers have
        one.
    sensors: the observations, in that order: "q", "v", and of bodies ("rotation" | "position" | "angular_velocity" |
        "velocity", name), as `Trajectory` has them (a rotation row after row). After these come the `inputs` of the
        rollout, if there are any, e.g. the phase of a gait or a target.
    compiled: True: kernels evaluate it, so that a rollout and its gradient are a call each. False: torch does, step by
        step. "auto": True up to 30,000 weights; beyond, torch is faster with many environments.
    dtype: that of the simulator. generator: for the initial weights, uniform in ±1/√n for n inputs of a layer; None:
        torch's own.

    Called, it is a plain torch module: observations [..., sizes[0]] to controls [..., sizes[-1]].
    """

    def __init__(
        self, sizes: Sequence[int], *, activation: str = "tanh", output: str = "linear", bias: bool = True,
        sensors: Sequence[Sensor] = NAMES, compiled: bool | str = "auto", dtype: torch.dtype = torch.float64,
        generator: torch.Generator | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        if len(sizes) < 2:
            raise ValueError(f"sizes must be two or more integers >= 1, (observations, ..., controls), got {sizes!r}")
        for name, value, known in (("activation", activation, ACTIVATIONS), ("output", output, OUTPUTS)):
            if value not in known:
                raise ValueError(f"{name} must be one of {list(known)}, got {value!r}")
        if compiled not in (True, False, "auto"):
            raise ValueError(f"compiled must be True, False or 'auto', got {compiled!r}")
        if dtype not in (torch.float64, torch.float32):
            raise TypeError(f"dtype must be torch.float64 or torch.float32, got {dtype}")
        sizes = tuple(checks.integer(n, "each of the sizes") for n in sizes)
        self.sizes, self.activation, self.output, self.bias = sizes, activation, output, bool(bias)
        self.sensors = tuple(tuple(sensor) if isinstance(sensor, list) else sensor for sensor in sensors)
        self.compiled = compiled
        self.layers = nn.ModuleList(
            nn.utils.skip_init(nn.Linear, n, m, bias=bias, dtype=dtype) for n, m in itertools.pairwise(sizes)
        )
        with torch.no_grad():
            for layer in self.linear:
                for parameter in layer.parameters():
                    reach = 1.0 / math.sqrt(layer.in_features)
                    parameter.uniform_(-reach, reach, generator=generator)

    @property
    def linear(self) -> list[nn.Linear]:
        """The layers, without their activations."""
        return [cast(nn.Linear, layer) for layer in self.layers]

    @property
    def dtype(self) -> torch.dtype:
        return self.linear[0].weight.dtype

    @property
    def in_kernel(self) -> bool:
        """Whether kernels evaluate it."""
        if self.compiled == "auto":
            return sum(parameter.numel() for parameter in self.parameters()) <= COMPILED_WEIGHTS
        return bool(self.compiled)

    def kinds(self) -> list[str]:
        """The activation of each layer."""
        return [self.activation] * (len(self.layers) - 1) + [self.output]

    def forward(self, observations: Tensor) -> Tensor:
        x = observations
        for layer, kind in zip(self.linear, self.kinds(), strict=True):
            x = layer(x)
            if kind != "linear":
                x = x.tanh() if kind == "tanh" else x.relu()
        return x

    @property
    def table_size(self) -> int:
        """The numbers of `table`."""
        return sum((n + self.bias) * -(-m // ROWS) * ROWS for n, m in itertools.pairwise(self.sizes))

    def table(self) -> Tensor:
        """The weights as kernels read them, flat and differentiable: for each layer [rows / ROWS, columns, ROWS]."""
        parts = []
        for layer in self.linear:
            W = layer.weight if layer.bias is None else torch.cat([layer.bias.unsqueeze(1), layer.weight], 1)
            W = nn.functional.pad(W, (0, 0, 0, -len(W) % ROWS))
            parts.append(W.unflatten(0, (-1, ROWS)).transpose(1, 2).flatten())
        return torch.cat(parts)

    def extra_repr(self) -> str:
        return (
            f"{list(self.sizes)}, activation={self.activation!r}, output={self.output!r}, bias={self.bias}, "
            f"sensors={self.sensors!r}, compiled={self.compiled!r}"
        )


Policy = MLP | Callable[[State, int], Tensor]
"""A function ``policy(state, t)`` returns the control [B, nu] of step t, which starts from that state."""


# ---------------------------------------------------------------------------------------------- sensors


class View:
    """The elements of the state and of the links' poses that some sensors observe.

    state, poses: pairs (index of the observation, index of the element); those of poses count from the first link's.
    names: the name of each sensor, and the number of its observations. size: the number of all.
    """

    def __init__(self, model: Model, sensors: Sequence[Sensor]) -> None:
        self.state: list[tuple[int, int]] = []
        self.poses: list[tuple[int, int]] = []
        self.names: list[tuple[str, int]] = []
        count = itertools.count()
        sizes = {field.name: int(getattr(model, field.size)) for field in STATE}
        starts = dict(zip(sizes, itertools.accumulate(sizes.values(), initial=0)))
        nstate = sum(sizes.values())
        for sensor in sensors:
            if isinstance(sensor, str) and sensor in sizes:
                start, size = starts[sensor], sizes[sensor]
                self.state += [(next(count), start + k) for k in range(size)]
                self.names.append((sensor, size))
            else:
                places = list(_body_places(model, sensor))
                self.poses += [(next(count), place) for place in places]
                self.names.append((f"{sensor[0]} of {sensor[1]}", len(places)))
        self.size = len(self.state) + len(self.poses)
        order = sorted((*((n, place) for n, place in self.state), *((n, -1 - place) for n, place in self.poses)))
        self.in_order = self.state == [(k, k) for k in range(nstate)] and not self.poses
        self._places = torch.tensor([place if place >= 0 else nstate - 1 - place for _, place in order])

    def observe(self, state: Sequence[Tensor], poses: Tensor | None) -> Tensor:
        """[..., size] of a state [..., n] and flat poses [..., npose] (None if no sensor sees poses)."""
        numbers = torch.cat(tuple(state) if poses is None else (*state, poses), -1)
        return numbers if self.in_order else numbers.index_select(-1, self._places)

    def vjp(self, bar: Tensor, sizes: Sequence[int]) -> tuple[Tensor, ...]:
        """The cotangents of the state (and of the poses) from that of the observations [..., size].

        sizes: of the fields of the state, and of the poses if some sensor sees them.
        """
        if not self.in_order:
            bar = bar.new_zeros(*bar.shape[:-1], sum(sizes)).index_add_(-1, self._places, bar)
        return bar.split(list(sizes), -1)


def _body_places(model: Model, sensor: Any) -> Iterator[int]:
    """The elements of the links' poses that a sensor of a body observes."""
    shape = isinstance(sensor, tuple) and len(sensor) == 2 and all(isinstance(word, str) for word in sensor)
    if not shape:
        raise ValueError(f"a sensor is 'q', 'v' or (quantity, body), e.g. ('position', 'foot'), got {sensor!r}")
    quantity, body = sensor
    dim, turns = model.dim, range(3) if model.dim == 3 else range(2, 3)
    elements = {
        "rotation": [3 * row + column for row in range(dim) for column in range(dim)],
        "position": [9 + k for k in range(dim)],
        "angular_velocity": [12 + k for k in turns],
        "velocity": [15 + k for k in range(dim)],
    }
    if quantity not in elements:
        raise ValueError(checks.unknown("quantity of a body", quantity, elements))
    start = int(model.body_link[model.body_index(body)]) * sum(POSE)
    return (start + k for k in elements[quantity])


# ---------------------------------------------------------------------------------------------- tables for kernels


def network_table(policy: MLP, seen: View, ninput: int, nstate: int) -> tuple[np.ndarray, int]:
    """The integers of a network (see `physics.policy`), and the number of its neurons with their padding.

    ninput: inputs of the rollout. nstate: numbers of the state.
    """
    one, sizes = int(policy.bias), policy.sizes
    start, weight, layers = 0, 0, []
    for (n, m), kind in zip(itertools.pairwise(sizes), policy.kinds(), strict=True):
        columns, blocks = n + one, -(-m // ROWS)
        end = start + one + -(-n // ROWS) * ROWS
        layers += [columns, blocks, weight, start, end + one, {**ACTIVATIONS, **OUTPUTS}[kind]]
        weight += columns * blocks * ROWS
        start = end
    state = [*seen.state, *((seen.size + k, nstate + k) for k in range(ninput))]
    pairs = [number for place, source in state for number in (place + one, source)]
    poses = watched_poses(policy, seen)
    pairs += itertools.chain(*poses)
    output = layers[-LAYER + 4]
    head = [len(sizes) - 1, HEAD, len(state), len(poses), HEAD + len(layers), output, one]
    return np.array([*head, *layers, *pairs], np.int64), output + -(-sizes[-1] // ROWS) * ROWS


def watched_poses(policy: MLP, seen: View) -> tuple[tuple[int, int], ...]:
    """Pairs (observation, element of the poses) as kernels count them, with the pose of the world first."""
    return tuple((place + policy.bias, sum(POSE) + source) for place, source in seen.poses)
