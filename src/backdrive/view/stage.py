"""What is shown: a model in its states over time, in plain numpy, as every backend reads it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from ..model import Model, State, checks
from ..model.looks import Looks
from ..schema import layout
from ..simulator import Simulator
from ..trajectory import Trajectory
from .poses import link_poses, matrices

Array = np.ndarray


@dataclass(frozen=True, eq=False)
class ContactArrows:
    """Contacts of some frames: points [F, B, n, 3] (m) and forces [F, B, n, 3] (N, zero where nothing touches) on the
    first of the two links [n, 2] (-1: the world) of each of the n places; the opposite force is on the second."""

    points: Array
    forces: Array
    links: Array


@dataclass(frozen=True, eq=False)
class Staging:
    """Poses of all links, float32: positions [S, B, nlink, 3] (m), rotations [S, B, nlink, 4] (quaternions, w first).

    time: [S] s. environments: the numbers of the B shown ones. constants: of the model with the parameters of the
    rollout, [nconst] or [B, nconst]. sources: the rollout of each environment, and its number there; none for states.
    q: coordinates as they were, [S, B, nq]. Links keep their last finite pose; `visible` [B, nlink] is False for those
    that never had one. notes: sentences that tell users what is not shown as it is. Planar models are in the plane
    z = 0; `up` is "+y" for them, else "+z".
    """

    model: Model
    time: Array
    positions: Array
    rotations: Array
    environments: tuple[int, ...]
    constants: Array
    visible: Array
    q: Array = field(repr=False)
    notes: tuple[str, ...] = ()
    sources: tuple[tuple[Trajectory, int | None], ...] = field(default=(), repr=False)
    simulator: Simulator | None = field(default=None, repr=False)

    @staticmethod
    def of(
        what: Model | State | Trajectory | Simulator | Staging | Sequence[Trajectory],
        state: State | None = None,
        *,
        model: Model | None = None,
        environments: int | Sequence[int] | None = None,
    ) -> Staging:
        """The stage of a model or simulator in a state (None: the initial one), a state of a ``model``, a trajectory,
        or several trajectories of one model, side by side. environments: which of a batch; None: all."""
        if isinstance(what, Staging):
            return what
        if isinstance(what, State):
            if not isinstance(model, Model):
                raise TypeError("a State does not say what moves: give its model, too, as model=...")
            return _of_state(model, what, environments, None)
        if isinstance(what, Model):
            return _of_state(what, what.initial_state() if state is None else state, environments, None)
        if isinstance(what, Simulator):
            start = what.model.initial_state() if state is None else state
            return _of_state(what.model, start, environments, what)
        if state is not None:
            raise TypeError("state is for a model or a simulator; a trajectory has its own states")
        if isinstance(what, Trajectory):
            return _of_paths([what], environments)
        if isinstance(what, list | tuple) and what and all(isinstance(path, Trajectory) for path in what):
            return _of_paths(list(what), environments)
        raise TypeError(
            "what to show must be a Model, a State with its model, a Simulator, a Trajectory (what Simulator.rollout "
            f"returns) or a list of trajectories, got {_described(what)}"
        )

    def __len__(self) -> int:
        """The number of frames S."""
        return len(self.time)

    @property
    def batch(self) -> int:
        """The number of environments B."""
        return len(self.environments)

    @property
    def up(self) -> str:
        return "+y" if self.model.dim == 2 else "+z"

    @cached_property
    def looks(self) -> Looks:
        """What the first environment looks like, with the sizes of its rollout."""
        return self.looks_of(0)

    def looks_of(self, b: int) -> Looks:
        """What the b-th shown environment looks like: parameters may differ between environments."""
        constants = self.constants if self.constants.ndim == 1 else self.constants[b]
        return self.model.looks.with_constants(self.model, constants)

    @property
    def same_looks(self) -> bool:
        """Whether all environments look the same."""
        return self.constants.ndim == 1 or bool((self.constants == self.constants[:1]).all())

    def link(self, body: str) -> int:
        """The link of a body."""
        return int(self.model.body_link[self.model.body_index(body)])

    def links(self, bodies: Sequence[str] | str | bool, what: str = "body") -> list[int]:
        """The links of some bodies; True: of all, False: of none."""
        if isinstance(bodies, bool):
            return self.model.body_link.tolist() if bodies else []
        return [self.link(body) for body in ((bodies,) if isinstance(bodies, str) else bodies)]

    def frames(self, fps: float, speed: float = 1.0) -> list[int]:
        """The frames that a film of fps pictures per second shows, at a speed (1: real time)."""
        fps = checks.number(fps, "fps", low=0.0, strict=True)
        speed = checks.number(speed, "speed", low=0.0, strict=True)
        return frames(self.time, fps / speed)

    def rotation_matrices(self, frame: int) -> Array:
        """[B, nlink, 3, 3] of one frame."""
        return matrices(self.rotations[frame].astype(np.float64))

    @cached_property
    def _inertials(self) -> tuple[Array, Array]:
        """Masses [1 or B, nbody] and centers of mass in the links' frames [1 or B, nbody, 3]."""
        records = np.atleast_2d(self.constants)[:, : self.model.nlink * layout.LINK]
        records = records.reshape(-1, self.model.nlink, layout.LINK)[:, self.model.body_link]
        return records[..., layout.MASS], records[..., layout.COM :][..., :3]

    @property
    def body_masses(self) -> Array:
        """kg, [1 or B, nbody]."""
        return self._inertials[0]

    def body_centers(self, which: Sequence[int] | slice = slice(None)) -> Array:
        """Centers of mass of the bodies in some frames, m: [F, B, nbody, 3]."""
        links = self.model.body_link
        quaternions = np.moveaxis(self.rotations[which][:, :, links], -1, 0).astype(np.float64)
        arm = np.moveaxis(np.broadcast_to(self._inertials[1], (self.batch, len(links), 3)), -1, 0)[:, None]
        w, u = quaternions[0], quaternions[1:]
        twice = 2.0 * np.cross(u, arm, axis=0)
        turned = arm + w * twice + np.cross(u, twice, axis=0)
        return self.positions[which][:, :, links] + np.moveaxis(turned, 0, -1)

    def center_of_mass(self, which: Sequence[int] | slice = slice(None)) -> Array:
        """The center of mass of the whole model in some frames, m: [F, B, 3]."""
        share = self._inertials[0] / self._inertials[0].sum(1, keepdims=True)
        return (self.body_centers(which) * share[None, :, :, None]).sum(2)

    def contacts(self, which: Sequence[int]) -> ContactArrows | None:
        """Contact points and forces in some frames, where the rollout can say them; None where not (states, kept steps
        that are not next to each other, models without contact). Those of the last frame are of the step before."""
        if not self.sources:
            return None
        points, forces, links = [], [], None
        for path, number in self.sources:
            found = _contacts(path, number, which, self.time)
            if found is None or (links is not None and found.links.shape != links.shape):
                return None
            links = found.links
            points.append(found.points)
            forces.append(found.forces)
        assert links is not None
        return ContactArrows(np.concatenate(points, 1), np.concatenate(forces, 1), links)

    @cached_property
    def bounds(self) -> tuple[Array, Array]:
        """The corners of a box around all that moves, in all frames and environments, m: [3] each."""
        low, high = self.bounds_of(slice(None))
        return low.min((0, 1)), high.max((0, 1))

    def bounds_of(self, which: Sequence[int] | slice) -> tuple[Array, Array]:
        """The corners of boxes around all that moves, in some frames: [F, B, 3] each. Links count as balls."""
        radii, centers = self.balls
        used = np.flatnonzero(radii >= 0.0)
        quaternions = self.rotations[which][:, :, used].astype(np.float64)
        arm = np.broadcast_to(centers[used], (*quaternions.shape[:-1], 3))
        w, u = quaternions[..., :1], quaternions[..., 1:]
        twice = 2.0 * np.cross(u, arm)
        middle = self.positions[which][:, :, used] + arm + w * twice + np.cross(u, twice)
        middle = np.where(self.visible[:, used, None], middle, np.nan)
        reach = radii[used, None]
        return np.nanmin(middle - reach, 2), np.nanmax(middle + reach, 2)

    @cached_property
    def balls(self) -> tuple[Array, Array]:
        """The radius of a ball around the looks of each link (negative: the link has none) and its center in the link's
        frame: [nlink], [nlink, 3]."""
        low, high = np.full((self.model.nlink, 3), np.inf), np.full((self.model.nlink, 3), -np.inf)
        for look in self.looks.shown:
            if look.link < 0 or look.kind == "plane":
                continue
            middle, half = np.zeros(3), np.array(look.size)
            if look.mesh is not None:
                mesh = look.triangles()
                assert mesh is not None
                bottom, top = mesh.vertices.min(0), mesh.vertices.max(0)
                middle, half = (bottom + top) / 2.0, (top - bottom) / 2.0
            elif look.kind == "sphere":
                half = np.full(3, look.size[0])
            elif look.kind in ("capsule", "cylinder"):
                radius, length, _ = look.size
                half = np.array([radius, radius, length + (radius if look.kind == "capsule" else 0.0)])
            center, extent = look.position + look.rotation @ middle, np.abs(look.rotation) @ half
            low[look.link] = np.minimum(low[look.link], center - extent)
            high[look.link] = np.maximum(high[look.link], center + extent)
        drawn = np.isfinite(low).all(1)
        if not drawn.any():
            drawn[self.model.body_link] = True
            low[drawn], high[drawn] = -0.1, 0.1
        low[~drawn], high[~drawn] = 0.0, 0.0
        return np.where(drawn, np.linalg.norm(high - low, axis=1) / 2.0, -1.0), (low + high) / 2.0


def frames(times: Array, per_second: float) -> list[int]:
    """Indices of the states nearest to the times of pictures at a rate. times: [S] s, starting at 0."""
    if len(times) == 1:
        return [0]
    count = math.floor(float(times[-1]) * per_second + 1e-9) + 1
    wanted = np.arange(count) / per_second
    after = np.clip(np.searchsorted(times, wanted), 1, len(times) - 1)
    nearest = np.where(wanted - times[after - 1] < times[after] - wanted, after - 1, after)
    return nearest.tolist()


# ---------------------------------------------------------------------------------------------- making one


def _of_state(
    model: Model, state: State, environments: int | Sequence[int] | None, simulator: Simulator | None
) -> Staging:
    if not isinstance(state, State):
        raise TypeError(f"state must be State(q, v), got {type(state).__name__}")
    q = state.q.detach().cpu().double().numpy()
    if q.ndim not in (1, 2) or q.shape[-1] != model.nq:
        raise ValueError(f"state.q must be [{model.nq}] or [B, {model.nq}], got {list(q.shape)}")
    q = np.atleast_2d(q)[None]
    chosen = choose(environments, q.shape[1])
    return _made(model, np.zeros(1), q[:, chosen], chosen, model.constants, simulator=simulator)


def _of_paths(paths: list[Trajectory], environments: int | Sequence[int] | None) -> Staging:
    model = paths[0].model
    for i, path in enumerate(paths):
        if path.model is not model and path.model.fingerprint != model.fingerprint:
            raise ValueError(f"trajectories that are shown together must be of one model; number {i} is of another")
        if len(path) == 0 or path.q.numel() == 0:
            raise ValueError(f"trajectory {i} is empty (its q is {list(path.q.shape)}): there is nothing to show")
    longest = max(paths, key=len)
    time = longest.time.double().cpu().numpy()
    parts, constants, sources = [], [], []
    for path in paths:
        q = path.q.detach().cpu().double().numpy()
        batched = q.ndim == 3
        q = q if batched else q[:, None]
        if path is not longest:
            own = path.time.double().cpu().numpy()
            q = q[np.minimum(np.searchsorted(own, time - 1e-9 * max(float(time[-1]), 1.0)), len(own) - 1)]
        parts.append(q)
        constants.append(np.broadcast_to(path.constants.detach().cpu().double().numpy(), (q.shape[1], model.nconst)))
        sources += [(path, b if batched else None) for b in range(q.shape[1])]
    together, all_constants = np.concatenate(parts, 1), np.concatenate(constants)
    chosen = choose(environments, together.shape[1])
    if all(path.constants.ndim == 1 for path in paths) and len(paths) == 1:
        kept = all_constants[0]
    else:
        kept = all_constants[chosen]
    return _made(
        model, time, together[:, chosen], chosen, kept,
        sources=tuple(sources[b] for b in chosen), simulator=paths[0].simulator,
    )  # fmt: skip


def choose(environments: int | Sequence[int] | None, count: int) -> list[int]:
    """The numbers of the chosen environments, of a batch of `count`; negative ones count from the end."""
    if environments is None:
        return list(range(count))
    single = np.ndim(environments) == 0
    chosen = []
    for given in [environments] if single else list(environments):  # type: ignore[arg-type]
        number = checks.integer(given, "environment", -count)
        if number >= count:
            if count == 1:
                raise ValueError(f"there is one world only, not environment {given!r}")
            raise ValueError(f"environment must be a number from 0 to {count - 1}, got {given!r}")
        chosen.append(number % count)
    if not chosen:
        raise ValueError("environments is empty: there is nothing to show")
    return chosen


def _made(
    model: Model, time: Array, q: Array, chosen: list[int], constants: Array, *,
    sources: tuple[tuple[Trajectory, int | None], ...] = (), simulator: Simulator | None = None,
) -> Staging:  # fmt: skip
    positions, rotations = link_poses(model, q, constants)
    visible, notes = np.ones((len(chosen), model.nlink), dtype=bool), []
    if not (np.isfinite(positions).all() and np.isfinite(rotations).all()):
        notes = _hold_finite(time, positions, rotations, visible, chosen)
    return Staging(
        model, time, positions, rotations, tuple(chosen), constants, visible, q, tuple(notes), sources, simulator
    )


def _hold_finite(time: Array, positions: Array, rotations: Array, visible: Array, chosen: list[int]) -> list[str]:
    """Let links keep their last finite pose. Returns what to tell the user."""
    finite = np.isfinite(positions).all(-1) & np.isfinite(rotations).all(-1)  # [S, B, nlink]
    ever = finite.any(0)
    if not ever.any():
        raise ValueError("nothing can be shown: in no state is a coordinate of any body finite (see path.status)")
    last = np.maximum.accumulate(np.where(finite, np.arange(len(finite))[:, None, None], -1), 0)
    last = np.where(last < 0, finite.argmax(0), last)  # before the first finite pose: that one
    for values in (positions, rotations):
        values[:] = np.take_along_axis(values, last[..., None], 0)
    positions[:, ~ever], rotations[:, ~ever] = 0.0, (1.0, 0.0, 0.0, 0.0)
    visible[:] = ever
    notes = []
    for b in np.flatnonzero(~finite.all((0, 2))).tolist():
        since = float(time[(~finite[:, b].all(-1)).argmax()])
        what = "is not finite" if len(time) == 1 else f"is not finite from t = {since:.6g} s on"
        shown = "bodies keep their last finite poses" if ever[b].all() else "bodies without a finite pose are hidden"
        notes.append(f"environment {chosen[b]} {what}: {shown}")
    return notes


def _contacts(path: Trajectory, number: int | None, which: Sequence[int], time: Array) -> ContactArrows | None:
    own = path.time.double().cpu().numpy()
    if len(own) < 2:
        return None
    steps = np.clip(np.searchsorted(own, time[list(which)] - 1e-9), 0, len(own) - 2).tolist()
    try:
        found = path.contacts_of(steps)
    except (ValueError, NotImplementedError):  # steps that were not kept, or nothing that could touch
        return None
    if not found.pairs:
        return None
    values = []
    for x in (found.point, found.force):
        array = x.detach().cpu().float().numpy()
        array = array[:, None] if number is None else array[:, number : number + 1]
        values.append(np.pad(array, [(0, 0)] * 3 + [(0, 3 - array.shape[-1])]))
    points, forces = values
    finite = np.isfinite(forces).all(-1, keepdims=True) & np.isfinite(points).all(-1, keepdims=True)
    pressing = finite & (points != 0.0).any(-1, keepdims=True)  # a place that first touches later has no point yet
    model = path.model
    links = [[int(model.shape_link[model.shape_index(name)]) for name in pair] for pair in found.pairs]
    return ContactArrows(np.where(pressing, points, 0.0), np.where(pressing, forces, 0.0), np.array(links))


def _described(what: Any) -> str:
    if isinstance(what, list | tuple):
        return "an empty list" if not what else f"a {type(what).__name__} of {type(what[0]).__name__}"
    return type(what).__name__
