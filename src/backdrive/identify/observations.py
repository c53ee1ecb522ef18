"""Observations of a motion: positions and angles of bodies, q and v, at given times, with noise."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..model import Model, checks
from ..trajectory import Trajectory

QUANTITIES = ("position", "angle", "q", "v")


@dataclass(frozen=True, eq=False)
class Observations:
    """Measured values; NaN marks missing ones.

    time: [N] s since the start, increasing; not necessarily multiples of dt (the simulation is interpolated linearly).
    position: {body: [N, dim]}, m, of the origin of the body's frame. angle: {body: [N]}, rad, not wrapped, 2D only.
    q: [N, nq]. v: [N, nv]. Each may have a batch axis, [N, B, ...], for the B environments of the motion.
    noise: the standard deviation of all values, or {"position": m, "angle": rad, "q": rad | m, "v": rad/s | m/s};
        None if unknown: all values then have the same weight, and the noise is estimated from the residuals of the fit.
    """

    time: Tensor
    position: Mapping[str, Tensor] | None = None
    angle: Mapping[str, Tensor] | None = None
    q: Tensor | None = None
    v: Tensor | None = None
    noise: float | Mapping[str, float] | None = None

    @classmethod
    def of(
        cls, path: Trajectory, bodies: Sequence[str] | None = None, *, every: int = 1,
        noise: float | Mapping[str, float] | None = None, generator: torch.Generator | None = None,
    ) -> Observations:  # fmt: skip
        """The positions of `bodies` (default: all) along a simulated path, at every `every`-th state.

        With a generator, Gaussian noise with the standard deviation `noise` (m) is added.
        """
        if not isinstance(path, Trajectory):
            raise TypeError(f"path must be a Trajectory (of Simulator.rollout), got {type(path).__name__}")
        every = checks.integer(every, "every")
        model = path._simulator.model
        bodies = model.bodies if bodies is None else bodies
        position = {body: path.position(body).detach()[::every].to(torch.float64) for body in bodies}
        if generator is not None:
            if noise is None:
                raise ValueError("noise is to be added (a generator was given): say how much, noise=...")
            sigma = _deviations(noise).get("position")
            if sigma is None:
                raise ValueError("noise says nothing about 'position'")
            position = {
                body: x + sigma * torch.randn(x.shape, generator=generator, dtype=x.dtype)
                for body, x in position.items()
            }
        return cls(path.time.to(torch.float64)[::every], position, noise=noise)


class Channels:
    """Observations, checked against a model and arranged as one table.

    value: [N, B, D], NaN where nothing was observed; deviation: [D]; seen: bool [N, B, D]. The axis D holds the
    coordinates of the bodies' positions, then the angles, q and v. step [N], fraction [N]: time = (step + fraction) dt.
    """

    def __init__(self, observations: Observations, model: Model, dt: float, batch: int | None) -> None:
        self.batch = 1 if batch is None else batch
        time = _numbers(observations.time, "observed times")
        if time.ndim != 1 or len(time) == 0:
            raise ValueError(f"observed times must be [N], got {list(time.shape)}")
        if not bool(torch.isfinite(time).all()) or bool((time < 0).any()):
            raise ValueError("observed times must be finite and not negative")
        if bool((time.diff() <= 0).any()):
            raise ValueError("observed times must increase")
        self.time = time
        steps = time / dt
        whole = steps.round()
        on_step = (steps - whole).abs() < 1e-6
        self.step = torch.where(on_step, whole, steps.floor()).to(torch.int64)
        self.fraction = torch.where(on_step, torch.zeros_like(steps), steps - steps.floor())
        self.count = self._steps()
        """Steps to simulate."""
        self.bodies = _bodies(observations.position, "position", model)
        self.turning = _bodies(observations.angle, "angle", model)
        self.has_q, self.has_v = observations.q is not None, observations.v is not None
        if self.turning and model.dim == 3:
            raise ValueError("angles can be observed in 2D only; in 3D observe q, or the positions of several bodies")
        self.known_noise = observations.noise is not None
        deviation = _deviations(observations.noise)
        present = zip(QUANTITIES, (self.bodies, self.turning, self.has_q, self.has_v), strict=True)
        for quantity, seen in present:
            if seen and quantity not in deviation:
                raise ValueError(f"noise says nothing about {quantity!r}, which was observed")
        values: list[Tensor] = []
        self.names: list[str] = []
        scales: list[float] = []
        for body in self.bodies:
            assert observations.position is not None
            values.append(self._table(observations.position[body], f"position of {body!r}", (model.dim,)))
            self.names += [f"{body} {axis}" for axis in "xyz"[: model.dim]]
            scales += [deviation["position"]] * model.dim
        for body in self.turning:
            assert observations.angle is not None
            values.append(self._table(observations.angle[body], f"angle of {body!r}", ()))
            self.names.append(f"{body} angle")
            scales.append(deviation["angle"])
        for name, x, size in (("q", observations.q, model.nq), ("v", observations.v, model.nv)):
            if x is not None:
                values.append(self._table(x, name, (size,)))
                self.names += [f"{name}[{k}]" for k in range(size)]
                scales += [deviation[name]] * size
        if not values:
            raise ValueError("nothing was observed: give position={body: [N, dim]}, angle={body: [N]}, q or v")
        self.value = torch.cat(values, -1)
        self.deviation = torch.tensor(scales, dtype=torch.float64)
        self.seen = ~torch.isnan(self.value)
        if not bool(self.seen.any()):
            raise ValueError("nothing was observed: all numbers are NaN")

    def _table(self, value: Any, what: str, shape: tuple[int, ...]) -> Tensor:
        """A checked table [N, B, size]; NaN means not observed, infinite values raise."""
        table = _numbers(value, what)
        n, batch = len(self.time), self.batch
        if list(table.shape) == [n, *shape] and batch == 1:
            table = table.unsqueeze(1)
        if list(table.shape) != [n, batch, *shape]:
            lead = [n] if batch == 1 else [n, batch]
            wanted = ", ".join(map(str, [*lead, *shape]))
            raise ValueError(f"observed {what} must be [{wanted}], got {list(table.shape)}")
        if bool(torch.isinf(table).any()):
            raise ValueError(f"observed {what} has infinite numbers; write NaN where nothing was seen")
        return table.reshape(n, batch, -1)

    def _steps(self) -> int:
        return max(1, int(self.step[-1]) + int(self.fraction[-1] > 0))

    def until(self, time: float) -> Channels:
        """The observations up to a time, s; at least the first one."""
        if time >= float(self.time[-1]):
            return self
        kept = max(1, int((self.time <= time * (1.0 + 1e-9)).sum()))
        part = object.__new__(Channels)
        part.__dict__.update(self.__dict__)
        for name in ("time", "step", "fraction", "value", "seen"):
            setattr(part, name, getattr(self, name)[:kept])
        part.count = part._steps()
        return part

    def interpolate(self, table: Tensor) -> Tensor:
        """The rows of [T + 1, ...] at the observed times, [N, ...]."""
        after = (self.step + 1).clamp_max(len(table) - 1)
        fraction = self.fraction.reshape(-1, *[1] * (table.ndim - 1))
        return torch.lerp(table[self.step], table[after], fraction)


def observations_of(observed: Observations | Trajectory) -> Observations:
    """The observations given to `fit`; for a trajectory, the positions of all its bodies."""
    if isinstance(observed, Trajectory):
        return Observations.of(observed)
    if not isinstance(observed, Observations):
        raise TypeError(f"observed must be Observations(...) or a Trajectory, got {type(observed).__name__}")
    return observed


def _numbers(value: Any, what: str) -> Tensor:
    try:
        table = torch.as_tensor(value).detach().cpu()
    except (TypeError, ValueError, RuntimeError) as error:
        raise TypeError(f"{what} must be numbers, got {type(value).__name__}") from error
    if table.dtype == torch.bool or table.is_complex():
        raise TypeError(f"{what} must be real numbers, got {table.dtype}")
    return table.to(torch.float64)


def _bodies(given: Mapping[str, Tensor] | None, what: str, model: Model) -> list[str]:
    if given is None:
        return []
    if not isinstance(given, Mapping):
        raise TypeError(f"{what} must be a mapping {{body: numbers}}, got {type(given).__name__}")
    for body in given:
        model.body_index(body)
    return list(given)


def _deviations(noise: float | Mapping[str, float] | None) -> dict[str, float]:
    """The standard deviation of each quantity; 1 if unknown, so that the residuals are in the units of the values."""
    if noise is None:
        return dict.fromkeys(QUANTITIES, 1.0)
    if isinstance(noise, Mapping):
        for name in noise:
            if name not in QUANTITIES:
                raise ValueError(checks.unknown("quantity in noise", name, QUANTITIES))
        return {name: checks.number(x, f"noise of {name}", low=0.0, strict=True) for name, x in noise.items()}
    return dict.fromkeys(QUANTITIES, checks.number(noise, "noise", low=0.0, strict=True))
