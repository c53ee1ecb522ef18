"""The unknowns: parameters to be learned, as functions of free numbers that an optimiser may move anywhere.

The functions are in `transforms`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..model import Model, State, checks
from ..model.assemble import possible_inertias
from ..model.parameters import ParameterInfo
from ..model.ranges import FINITE
from .transforms import Bounded, PhysicalInertia, Transform

SHARED = ("equal", "total")
START = ("q0", "v0")  # Names of the initial state.


@dataclass(frozen=True, eq=False)
class Learn:
    """A parameter to be learned, or some of its rows.

    name: a name of `Model.parameters`, or "q0" and "v0" for the initial state.
    of: a row (the name of a body, a joint, ...) or several rows; None: all of them.
    start: initial value: a number for all rows, [n] one per row, or [S] and [S, n] for several starts (with `shared`, n
        is 1); None: the model's value.
    bounds: (low, high), None for an open end; "physical": the values that are possible (positive mass, restitution
        between 0 and 1, an inertia that some distribution of mass has); None: no bounds, also for impossible values.
    shared: None: one unknown per row. "equal": one unknown, the value of all rows. "total": one unknown, the sum of the
        rows, whose proportions are those of the model.
    scale_inertia: for a mass: scale the body's inertia with it (known shape, unknown density). Ignored if the inertia
        is learned, too.
    """

    name: str
    of: str | Sequence[str] | None = None
    start: float | Sequence[float] | Tensor | None = None
    bounds: tuple[float | None, float | None] | str | None = "physical"
    shared: str | None = None
    scale_inertia: bool = True


Derive = Callable[[dict[str, Tensor]], Mapping[str, Tensor]]
"""A torch function of the learned and given parameters, {name: [S, *shape]}; returns others in the same form."""
Wanted = Sequence[str | Learn] | Mapping[str, str | Sequence[str] | None] | str | Learn


class Unknowns:
    """All P unknowns x as functions of free numbers z [S, P]; the S starts are independent."""

    def __init__(
        self, model: Model, learn: Wanted, base: Mapping[str, Tensor], state: State, derive: Derive | None = None
    ) -> None:
        self.model, self.base, self.state, self.derive = model, dict(base), state, derive
        self.groups: list[_Group] = []
        wanted = _wanted(learn)
        masses = {item.name for item in wanted} >= {"mass", "inertia"}
        taken: dict[tuple[str, int], str] = {}
        at = 0
        for item in wanted:
            group = _Group(model, item, self._current(item.name), at, follows=not masses)
            for element, label in zip(group.elements.tolist(), group.element_labels, strict=True):
                if (item.name, element) in taken:
                    raise ValueError(f"{label} is to be learned twice")
                taken[item.name, element] = label
            self.groups.append(group)
            at += group.size
        self.labels = [label for group in self.groups for label in group.labels]
        self.units = [group.unit for group in self.groups for _ in group.labels]
        self.low, self.high = (torch.cat([getattr(g.transform, end) for g in self.groups]) for end in ("low", "high"))
        self.possible_low = torch.cat([g.possible[0] for g in self.groups])
        self.possible_high = torch.cat([g.possible[1] for g in self.groups])
        self.relative = torch.cat([g.transform.relative for g in self.groups])
        """Which free numbers are exponents (of bounded unknowns), and thus comparable with each other; bool [P]."""
        self.alone = torch.tensor([g.transform.alone for g in self.groups for _ in g.labels])
        """Which unknowns depend on their own free number only; bool [P]."""
        self.learns_start = any(group.name in START for group in self.groups)

    def __len__(self) -> int:
        return len(self.labels)

    def starts(self, count: int, generator: torch.Generator | None) -> Tensor:
        """Initial x [S, P]; for `count` > 1 random, between the bounds (log-uniform where the bounds are positive)."""
        given = [group.starts for group in self.groups]
        sizes = {len(x) for x in given if len(x) > 1}
        if len(sizes) > 1:
            raise ValueError(f"all parameters must have the same number of starts, got {sorted(sizes)}")
        several = sizes.pop() if sizes else 1
        if count > 1 and several > 1:
            raise ValueError(f"{several} starts were given; leave out starts={count}")
        if count > 1:
            x = self._random(count, generator)
        else:
            x = torch.cat([x.expand(several, -1) for x in given], -1)
        self.check(x)
        return x

    def _random(self, count: int, generator: torch.Generator | None) -> Tensor:
        if generator is None:
            raise ValueError(f"starts={count} are random: give a generator=torch.Generator().manual_seed(...)")
        open_ends = [i for i in range(len(self)) if not bool((self.low[i].abs() + self.high[i].abs()).isfinite())]
        if open_ends:
            raise ValueError(
                f"random starts are drawn between bounds: give {self.labels[open_ends[0]]} bounds=(low, high)"
            )
        low, high = self.low, self.high
        share = torch.rand(count, len(self), generator=generator, dtype=torch.float64)
        share = 0.01 + 0.98 * share  # Not at the bounds, where dx/dz is zero.
        even = low + share * (high - low)
        by_ratio = low.clamp_min(1e-300) * (high / low.clamp_min(1e-300)) ** share
        return torch.where(low > 0, by_ratio, even)

    def check(self, x: Tensor) -> None:
        """Starts must lie strictly between the bounds."""
        for i, label in enumerate(self.labels):
            for value in x[:, i].tolist():
                if not self.low[i] < value < self.high[i]:
                    inside = f"between {self.low[i]:g} and {self.high[i]:g}"
                    raise ValueError(f"{label} must start {inside}, not at {value:g}")
        impossible = torch.nonzero(~torch.isfinite(self.free(x)).all(0)).flatten().tolist()
        if impossible:
            raise ValueError(
                f"{self.labels[impossible[0]]} must start at the inertia of a body with a volume: positive definite, "
                "with its largest principal moment below the sum of the other two; give start="
            )

    def values(self, z: Tensor) -> Tensor:
        """The unknowns x [..., P] for free numbers z [..., P]."""
        return torch.cat([g.transform.values(z[..., g.columns]) for g in self.groups], -1)

    def free(self, x: Tensor) -> Tensor:
        """The free numbers z [..., P] for possible unknowns x [..., P]."""
        return torch.cat([g.transform.free(x[..., g.columns]) for g in self.groups], -1)

    def jacobian(self, z: Tensor) -> Tensor:
        """∂x/∂z [P, P], for z [P]."""
        return torch.func.jacrev(self.values)(z)

    def possible(self, z: Tensor) -> Tensor:
        """Whether z [S, P] is physically possible: bool [S]."""
        x = self.values(z)
        fine = (torch.isfinite(x) & (x > self.possible_low) & (x <= self.possible_high)).all(-1)
        for group in self.groups:
            if group.name == "inertia" and self.model.dim == 3 and bool(fine.any()):
                inertia = group.write(x[fine], self._current("inertia"))[:, group.bodies_learned]
                fine[fine.clone()] = torch.stack(possible_inertias(inertia)).all(0).all(-1)
        return fine

    def parameters(self, z: Tensor) -> dict[str, Tensor]:
        """Parameters for `Simulator.rollout`, [S, *shape] each, for z [S, P]: learned, given, and derived ones."""
        x = self.values(z)
        out: dict[str, Tensor] = dict(self.base)
        for group in self.groups:
            if group.name in START:
                continue
            out[group.name] = group.write(x, out.get(group.name, group.current))
            if group.bodies is not None:  # The inertia scales with the mass.
                inertia = out.get("inertia", self._current("inertia"))
                ratio = group.ratios(x)  # [S, nbody]
                shape = ratio.shape + (1,) * (self.model.parameter("inertia").ndim - 1)
                out["inertia"] = inertia * ratio.reshape(shape)
        batch = len(z)
        out = {
            name: value if value.ndim > len(self.model.parameters()[name].shape) else value.expand(batch, *value.shape)
            for name, value in out.items()
        }
        return out if self.derive is None else out | self._derived(self.derive, out)

    def _derived(self, derive: Derive, known: dict[str, Tensor]) -> dict[str, Tensor]:
        derived = derive(dict(known))
        if not isinstance(derived, Mapping):
            raise TypeError(f"derive must return a mapping {{name: tensor}}, got {type(derived).__name__}")
        learned = {group.name for group in self.groups}
        for name, value in derived.items():
            if name in learned:
                raise ValueError(f"{name!r} is learned, and derived as well")
            shape = [len(next(iter(known.values()))), *self.model.parameters()[name].shape]
            if not isinstance(value, Tensor) or list(value.shape) != shape:
                got = list(value.shape) if isinstance(value, Tensor) else type(value).__name__
                raise ValueError(f"derive must return {name!r} as a tensor {shape}, got {got}")
        return dict(derived)

    def start_state(self, z: Tensor) -> tuple[Tensor, Tensor]:
        """The initial q and v: [S, nq], [S, nv], or [S, B, n] with the batch of the given state."""
        x = self.values(z)
        start = {name: value.expand(len(z), *value.shape) for name, value in zip(START, self.state, strict=True)}
        for group in self.groups:
            if group.name in START:
                start[group.name] = group.write(x, start[group.name])
        return start["q0"], start["v0"]

    def _current(self, name: str) -> Tensor:
        if name == "q0":
            return self.state.q
        if name == "v0":
            return self.state.v
        if name in self.base:
            return self.base[name]
        if name not in self.model.parameters():
            raise ValueError(checks.unknown("parameter", name, (*self.model.parameters().names, *START)))
        return self.model.parameter(name)


class _Group:
    """One `Learn`, resolved: which elements of the parameter depend (linearly) on which unknowns."""

    def __init__(self, model: Model, item: Learn, current: Tensor, at: int, follows: bool) -> None:
        self.name, self.current = item.name, current
        info = _start_info(model, item.name) if item.name in START else model.parameters()[item.name]
        if current.ndim != len(info.shape):
            raise ValueError(f"{item.name!r} is to be learned: parameters or state must have no batch for it")
        self.unit = info.unit
        rows = _rows(info, item)
        width = int(np.prod(info.shape[1:], dtype=np.int64))
        self.elements = torch.tensor([row * width + k for row in rows for k in range(width)])
        parts = [""] if width == 1 else [f" {_part(model, item.name, k, width)}" for k in range(width)]
        self.element_labels = [f"{item.name} of {info.rows[row]}{part}" for row in rows for part in parts]
        values = current.to(torch.float64).flatten()[self.elements]
        if item.shared is None:
            self.weights = torch.eye(len(values), dtype=torch.float64)
            self.labels = self.element_labels
        else:
            self.weights, self.labels, values = _share(item, info, rows, width, values)
        self.columns = torch.arange(at, at + self.weights.shape[1])
        self.bodies = torch.tensor(rows) if item.name == "mass" and item.scale_inertia and follows else None
        self.bodies_learned = rows
        self.possible = _physical(info, rows, width, self.size)
        self.transform: Transform = Bounded(*self._bounds(item))
        if item.name == "inertia" and model.dim == 3 and item.bounds == "physical":
            self.transform = PhysicalInertia(len(rows))
        self.starts = self._starts(item, values)

    @property
    def size(self) -> int:
        return self.weights.shape[1]

    def write(self, x: Tensor, into: Tensor) -> Tensor:
        """The whole parameter [S, *shape], with its learned elements computed from the unknowns x [S, P]."""
        values = x[:, self.columns] @ self.weights.T
        shape = self.current.shape
        flat = into.to(torch.float64).reshape(-1, shape.numel()).expand(len(x), -1)
        return flat.index_copy(-1, self.elements, values).reshape(len(x), *shape)

    def ratios(self, x: Tensor) -> Tensor:
        """The ratio of new to old mass of every body, [S, nbody]."""
        old = self.current.to(torch.float64)
        return self.write(x, old) / old

    def _bounds(self, item: Learn) -> tuple[Tensor, Tensor]:
        bounds = item.bounds
        if bounds == "physical":
            return self.possible
        if isinstance(bounds, str):
            raise ValueError(f"bounds of {item.name!r} must be (low, high), 'physical' or None, got {bounds!r}")
        low, high = checks.interval(bounds, f"bounds of {item.name!r}")
        possible_low, possible_high = self.possible
        if bounds is not None and (bool((low < possible_low).any()) or bool((high > possible_high).any())):
            limits = f"{float(possible_low.max()):g} and {float(possible_high.min()):g}"
            raise ValueError(f"bounds of {item.name!r} must lie between {limits}, got {bounds!r}")
        return torch.full((self.size,), low, dtype=torch.float64), torch.full((self.size,), high, dtype=torch.float64)

    def _starts(self, item: Learn, current: Tensor) -> Tensor:
        """Initial values [S, n]; S = 1 unless several are given."""
        if item.start is None:
            return current.reshape(1, -1)
        try:
            start = torch.as_tensor(item.start, dtype=torch.float64).detach()
        except (TypeError, ValueError, RuntimeError) as error:
            raise TypeError(f"start of {item.name!r} must be numbers, got {item.start!r}") from error
        if not bool(torch.isfinite(start).all()):
            raise ValueError(f"start of {item.name!r} must be finite, got {item.start!r}")
        n = self.size
        if start.ndim == 0:
            return start.expand(1, n)
        if start.ndim == 1 and len(start) == n and (n > 1 or item.shared is None):
            return start.reshape(1, n)
        if start.ndim == 1 and n == 1 and len(start):
            return start.reshape(-1, 1)
        if start.ndim == 2 and start.shape[1] == n and len(start):
            return start
        raise ValueError(f"start of {item.name!r} must be a number, [{n}] or [S, {n}], got {list(start.shape)}")


def _wanted(learn: Wanted) -> list[Learn]:
    if isinstance(learn, str | Learn):
        learn = [learn]
    if isinstance(learn, Mapping):
        learn = [Learn(name, of) for name, of in learn.items()]
    if not isinstance(learn, Sequence) or not learn:
        raise ValueError(f"learn must name at least one parameter, such as ['mass'], got {learn!r}")
    items = [Learn(item) if isinstance(item, str) else item for item in learn]
    for item in items:
        if not isinstance(item, Learn):
            raise TypeError(f"learn must have names or Learn(...), got {item!r}")
        if item.shared is not None and item.shared not in SHARED:
            raise ValueError(checks.unknown("value of shared", item.shared, SHARED))
    return items


def _rows(info: ParameterInfo, item: Learn) -> list[int]:
    if item.of is None:
        return list(range(len(info.rows)))
    names = [item.of] if isinstance(item.of, str) else list(item.of)
    if not names:
        raise ValueError(f"{item.name!r} of nothing is to be learned: of=[]")
    rows: list[int] = []
    for name in names:
        exact = [k for k, row in enumerate(info.rows) if row == name]
        within = [k for k, row in enumerate(info.rows) if row.startswith((f"{name}[", f"{name}."))]
        found = exact or within
        if not found:
            raise ValueError(checks.unknown(f"row of parameter {item.name!r}", name, info.rows))
        rows += found
    if len(set(rows)) != len(rows):
        raise ValueError(f"{item.name!r} has rows that are named twice in {names}")
    return rows


def _share(
    item: Learn, info: ParameterInfo, rows: list[int], width: int, values: Tensor
) -> tuple[Tensor, list[str], Tensor]:
    """Weights [n, 1], label, and the model's value of an unknown that several rows share."""
    if width != 1:
        raise ValueError(f"{item.name!r} has {width} numbers per row: they cannot be shared")
    names = [info.rows[row] for row in rows]
    few = ", ".join(names) if len(names) <= 3 else f"{names[0]} ... {names[-1]}"
    if item.shared == "equal":
        return torch.ones(len(rows), 1, dtype=torch.float64), [f"{item.name} of each of {few}"], values.mean()
    if float(values.sum()) == 0.0:
        raise ValueError(
            f"{item.name!r}: a total cannot be shared out in proportion, since the model's values add to 0"
        )
    return (values / values.sum()).unsqueeze(1), [f"total {item.name} of {few}"], values.sum()


def _physical(info: ParameterInfo, rows: list[int], width: int, size: int) -> tuple[Tensor, Tensor]:
    """The range of the parameter: low and high [n], infinite where there is none; n = 1 if the rows share a value."""
    bounds = [info.range_of(row).bounds for row in rows for _ in range(width)]
    low, high = torch.tensor(bounds, dtype=torch.float64).unbind(-1)
    return (low, high) if size == len(bounds) else (low.amax(0, keepdim=True), high.amin(0, keepdim=True))


def _start_info(model: Model, name: str) -> ParameterInfo:
    """The coordinates of q or v as if they were a parameter; a joint's name stands for all of its coordinates."""
    index, count = (model.q_index, model.nq) if name == "q0" else (model.v_index, model.nv)
    rows = [""] * count
    for joint in model.joints:
        part = index(joint)
        for k in range(part.start, part.stop):
            rows[k] = joint if part.stop - part.start == 1 else f"{joint}[{k - part.start}]"
    if name == "q0" and model.nq != model.nv:
        raise ValueError("q0 cannot be learned in a model with quaternions: their lengths have no meaning")
    none = np.zeros(0, dtype=np.int64)
    unit = "rad | m" if name == "q0" else "rad/s | m/s"
    return ParameterInfo(name, (count,), unit, tuple(rows), (FINITE,), none, none, none, none)


def _part(model: Model, name: str, k: int, width: int) -> str:
    if width == model.dim:
        return "xyz"[k]
    return ("xx", "yy", "zz", "xy", "xz", "yz")[k] if name == "inertia" and width == 6 else str(k)


def as_parameters(model: Model, parameters: Any) -> dict[str, Tensor]:
    """The given parameters, checked; without a batch."""
    if parameters is None:
        return {}
    if not isinstance(parameters, Mapping):
        raise TypeError(f"parameters must be a mapping {{name: tensor}}, got {type(parameters).__name__}")
    for name, value in parameters.items():
        info = model.parameters()[name]
        if not isinstance(value, Tensor) or tuple(value.shape) != info.shape:
            got = list(value.shape) if isinstance(value, Tensor) else type(value).__name__
            raise ValueError(f"parameter {name!r} must be a tensor {list(info.shape)}, got {got}")
    return {name: value.detach().to(torch.float64) for name, value in parameters.items()}
