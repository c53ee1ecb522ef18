"""The sensors of a policy, and a network that kernels can evaluate in the loop."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch
from torch import Tensor, nn

from .model import State, checks
from .physics.policy import ELU, HEAD, LAYER, LINEAR, RELU, ROWS, TANH
from .physics.shaped_policy import CLAMP, EPSILON
from .physics.tree.poses import POSE
from .schema.state import NAMES, STATE

if TYPE_CHECKING:
    from .model import Model

Sensor = str | tuple[str, str]
"""``"q"``, ``"v"``, parts of them, ``"q[2:]"``, or of a body: ``("rotation" | "position" | "angular_velocity" |
"velocity", its name)``."""

Limit = float | Sequence[float] | Tensor
ACTIVATIONS = {"tanh": TANH, "relu": RELU, "elu": ELU}
OUTPUTS = {"linear": LINEAR, "tanh": TANH, "clamp": CLAMP}
COMPILED_WEIGHTS = 30_000  # compiled="auto": most weights of a network that kernels evaluate; torch does larger ones


class MLP(nn.Module):
    """A network of fully connected layers from observations to controls, for ``Simulator.rollout(policy=...)``.

    sizes: numbers of observations, of the neurons of each hidden layer, and of controls (``model.nu``).
    activation: "tanh", "relu" or "elu", of hidden layers; output: "linear", "tanh" or "clamp", of the last. bias:
        whether layers have one.
    sensors: the observations, in that order: "q", "v", or parts of them, as "q[2:]" and "v[0, 3]"; and of bodies
        ("rotation" | "position" | "angular_velocity" | "velocity", name), as `Trajectory` has them (a rotation row
        after row). After these come the `inputs` of the rollout, if there are any: the phase of a gait, or a target.
    compiled: True: kernels evaluate it, so that a rollout and its gradient are a call each. False: torch does, step by
        step. "auto": True up to 30,000 weights; beyond, torch is faster with many environments.
    dtype: of the weights; kernels compute in that of the simulator. generator: for the initial weights, uniform in
        ±1/√n for n inputs of a layer; None: torch's own.
    hold: number of steps for which a control lasts; inputs and noise of a rollout have a row for each such decision.
    low, high: limits of the controls, numbers or [nu]: outputs tanh are scaled to them (±1 if None), "clamp" clips.
    std: the controls' noise has this standard deviation at first, which is learned: the parameter `log_std` [nu]. The
        noise itself is an argument of the rollout, and is added before tanh or the limits.
    normalize: observations x become (x - observation_mean) / observation_std, two buffers [sizes[0]] that are 0 and 1
        at first and stay as they are in a rollout. observation_clip: the largest magnitude of what results, None: any.
    observation_limits: (low, high), numbers or [sizes[0]] each, to which observations are clipped before that.
    layer_norm: whether the neurons of every hidden layer are shifted and scaled to mean 0 and variance 1 before their
        activation, as by ``torch.nn.LayerNorm(n, elementwise_affine=False)``.

    Called, it is a plain torch module: observations [..., sizes[0]] (and noise [..., sizes[-1]]) to controls
    [..., sizes[-1]].
    """

    log_std: nn.Parameter | None
    observation_mean: Tensor
    observation_std: Tensor
    low: Tensor
    high: Tensor
    observation_low: Tensor
    observation_high: Tensor

    def __init__(
        self, sizes: Sequence[int], *, activation: str = "tanh", output: str = "linear", bias: bool = True,
        sensors: Sequence[Sensor] = NAMES, compiled: bool | str = "auto", dtype: torch.dtype = torch.float64,
        generator: torch.Generator | None = None, hold: int = 1, low: Limit | None = None, high: Limit | None = None,
        std: float | None = None, normalize: bool = False, observation_clip: float | None = None,
        observation_limits: tuple[Limit, Limit] | None = None, layer_norm: bool = False,
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
        self.compiled, self.hold, self.layer_norm = compiled, checks.integer(hold, "hold"), bool(layer_norm)
        self._take_limits(low, high, dtype)
        self._take_observations(normalize, observation_clip, dtype)
        self._take_observation_limits(observation_limits, dtype)
        self.log_std = None
        if std is not None:
            start = math.log(checks.number(std, "std", low=0.0, strict=True))
            self.log_std = nn.Parameter(torch.full((sizes[-1],), start, dtype=dtype))
        self.layers = nn.ModuleList(
            nn.utils.skip_init(nn.Linear, n, m, bias=bias, dtype=dtype) for n, m in itertools.pairwise(sizes)
        )
        with torch.no_grad():
            for layer in self.linear:
                for parameter in layer.parameters():
                    reach = 1.0 / math.sqrt(layer.in_features)
                    parameter.uniform_(-reach, reach, generator=generator)

    def _take_limits(self, low: Limit | None, high: Limit | None, dtype: torch.dtype) -> None:
        """Buffers that are no part of the state: limits are settings."""
        if (low is None) != (high is None):
            raise ValueError("low and high limit the controls together: give both, or none")
        if self.output == "clamp" and low is None:
            raise ValueError("output='clamp' needs the limits of the controls, low and high")
        if self.output == "linear" and low is not None:
            raise ValueError("low and high are limits of output='tanh' or 'clamp'; 'linear' has none")
        self.limited = low is not None
        for name, given in (("low", -1.0 if low is None else low), ("high", 1.0 if high is None else high)):
            limit = torch.as_tensor(given, dtype=dtype)
            if limit.ndim > 1 or limit.numel() not in (1, self.sizes[-1]) or not bool(torch.isfinite(limit).all()):
                raise ValueError(f"{name} must be a finite number, or one for each of the {self.sizes[-1]} controls")
            self.register_buffer(name, limit.expand(self.sizes[-1]).clone(), persistent=False)
        if not bool((self.low < self.high).all()):
            raise ValueError(f"low must be below high, got {self.low.tolist()} and {self.high.tolist()}")

    def _take_observations(self, normalize: bool, most: float | None, dtype: torch.dtype) -> None:
        self.normalize = bool(normalize)
        self.observation_clip = None if most is None else checks.number(most, "observation_clip", low=0.0, strict=True)
        for name, start in (("observation_mean", 0.0), ("observation_std", 1.0)):
            self.register_buffer(
                name, torch.full((self.sizes[0],), start, dtype=dtype), persistent=self.normalize
            )  # fmt: skip

    def _take_observation_limits(self, limits: tuple[Limit, Limit] | None, dtype: torch.dtype) -> None:
        self.observation_limited = limits is not None
        ends = (-math.inf, math.inf) if limits is None else limits
        for name, given in zip(("observation_low", "observation_high"), ends, strict=True):
            limit = torch.as_tensor(given, dtype=dtype)
            if limit.ndim > 1 or limit.numel() not in (1, self.sizes[0]) or bool(limit.isnan().any()):
                raise ValueError(f"{name} must be a number, or one for each of the {self.sizes[0]} observations")
            self.register_buffer(name, limit.expand(self.sizes[0]).clone(), persistent=False)
        if not bool((self.observation_low < self.observation_high).all()):
            raise ValueError("observation_limits must be (low, high), each low below its high")

    @property
    def observes_shaped(self) -> bool:
        """Whether the first layer sees something else than the observations themselves."""
        return self.normalize or self.observation_limited or self.observation_clip is not None

    @property
    def shaped(self) -> bool:
        """Whether there is more to it than layers: see `physics.shaped_policy`."""
        return self.observes_shaped or self.layer_norm or self.hold > 1 or self.limited or self.log_std is not None

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

    def forward(self, observations: Tensor, noise: Tensor | None = None) -> Tensor:
        x = self.normalized(observations)
        *hidden, last = self.linear
        for layer in hidden:
            y = layer(x)
            y = nn.functional.layer_norm(y, y.shape[-1:], eps=EPSILON) if self.layer_norm else y
            x = TORCH_ACTIVATIONS[self.activation](y)
        z = last(x)
        if noise is not None:
            z = z + (noise if self.log_std is None else self.log_std.exp() * noise)
        if self.output == "tanh":
            y = z.tanh()
            return 0.5 * (self.low + self.high) + 0.5 * (self.high - self.low) * y if self.limited else y
        return z.clamp(self.low, self.high) if self.output == "clamp" else z

    def normalized(self, observations: Tensor) -> Tensor:
        """The observations as the first layer sees them."""
        x = (
            observations.clamp(self.observation_low, self.observation_high)
            if self.observation_limited
            else observations
        )
        x = (x - self.observation_mean) / self.observation_std if self.normalize else x
        return x if self.observation_clip is None else x.clamp(-self.observation_clip, self.observation_clip)

    def table_size(self, shaped: bool) -> int:
        """The number of numbers in `table`."""
        weights = sum((n + self.bias) * -(-m // ROWS) * ROWS for n, m in itertools.pairwise(self.sizes))
        return weights + (3 * self.sizes[-1] + 4 * self.sizes[0] if shaped else 0)

    def table(self, shaped: bool) -> Tensor:
        """The weights as kernels read them, flat and differentiable: for each layer [rows / ROWS, columns, ROWS], and
        the numbers of `physics.shaped_policy`."""
        parts = []
        for layer in self.linear:
            W = layer.weight if layer.bias is None else torch.cat([layer.bias.unsqueeze(1), layer.weight], 1)
            W = nn.functional.pad(W, (0, 0, 0, -len(W) % ROWS))
            parts.append(W.unflatten(0, (-1, ROWS)).transpose(1, 2).flatten())
        if shaped:
            std = torch.ones_like(self.low) if self.log_std is None else self.log_std.exp()
            most = math.inf if self.observation_clip is None else self.observation_clip
            shift, scale = self.observation_mean, 1.0 / self.observation_std
            ends = [((x - shift) * scale).clamp(-most, most) for x in (self.observation_low, self.observation_high)]
            parts += [std, self.low, self.high, shift, scale, *ends]
        return torch.cat(parts)

    def extra_repr(self) -> str:
        named = [(name, getattr(self, name)) for name in ("activation", "output", "bias", "sensors", "compiled")]
        named += [("hold", self.hold)] if self.hold > 1 else []
        named += [(name, getattr(self, name).tolist()) for name in ("low", "high") if self.limited]
        named += [("normalize", True)] if self.normalize else []
        named += [("observation_clip", self.observation_clip)] if self.observation_clip is not None else []
        named += [("layer_norm", True)] if self.layer_norm else []
        return ", ".join([str(list(self.sizes)), *(f"{name}={value!r}" for name, value in named)])


TORCH_ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "tanh": torch.tanh,
    "relu": torch.relu,
    "elu": nn.functional.elu,
}

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
            if isinstance(sensor, str):
                field, chosen = _state_places(sensor, sizes)
                self.state += [(next(count), starts[field] + k) for k in chosen]
                self.names.append((sensor, len(chosen)))
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


def _state_places(sensor: str, sizes: Mapping[str, int]) -> tuple[str, Sequence[int]]:
    """The field of the state that a sensor observes, and which of its elements."""
    found = re.fullmatch(r"(\w+)(?:\[([-\d:, ]+)\])?", sensor)
    if found is None or found[1] not in sizes:
        names = " or ".join(map(repr, sizes))
        raise ValueError(f"a sensor is {names}, a part of these as 'q[2:]', or (quantity, body), got {sensor!r}")
    field, part = found.groups()
    every = range(sizes[field])
    try:
        if part is None:
            return field, every
        if ":" in part:
            return field, every[slice(*(int(x) if x.strip() else None for x in part.split(":")))]
        return field, [every[int(x)] for x in part.split(",")]
    except (TypeError, ValueError, IndexError) as error:
        raise ValueError(f"sensor {sensor!r}: {field} has {len(every)} numbers, from 0 to {len(every) - 1}") from error


def _body_places(model: Model, sensor: Any) -> Iterator[int]:
    """The elements of the links' poses that a sensor of a body observes."""
    shape = isinstance(sensor, tuple) and len(sensor) == 2 and all(isinstance(word, str) for word in sensor)
    if not shape:
        raise ValueError(f"a sensor is 'q', 'v[3:]' or (quantity, body), e.g. ('position', 'foot'), got {sensor!r}")
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


def network_table(policy: MLP, seen: View, ninput: int, nstate: int, shaped: bool) -> tuple[np.ndarray, int]:
    """The integers of a network (see `physics.policy`), and the number of its neurons with their padding.

    ninput: inputs of the rollout. nstate: numbers of the state. shaped: its outputs are not those of the last layer.
    """
    one, sizes = int(policy.bias), policy.sizes
    start, weight, layers = 0, 0, []
    kinds = [*policy.kinds()[:-1], "linear"] if shaped else policy.kinds()
    for (n, m), kind in zip(itertools.pairwise(sizes), kinds, strict=True):
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
    head = [len(sizes) - 1, HEAD, len(state), len(poses), HEAD + len(layers), output, one, policy.hold, weight]
    return np.array([*head, *layers, *pairs], np.int64), output + -(-sizes[-1] // ROWS) * ROWS


def watched_poses(policy: MLP, seen: View) -> tuple[tuple[int, int], ...]:
    """Pairs (observation, element of the poses) as kernels count them, with the pose of the world first."""
    return tuple((place + policy.bias, sum(POSE) + source) for place, source in seen.poses)
