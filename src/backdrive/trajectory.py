"""The result of a rollout: states over time, positions and velocities of bodies, and a status of every step."""

from __future__ import annotations

import importlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from .contacts import Contacts
from .model import Model, State
from .runtime.along_path import PathStates, constraint_forces, contacts_of_big_world, link_poses
from .runtime.clip import Clip
from .runtime.result import RolloutResult
from .schema.signatures import RolloutSettings

if TYPE_CHECKING:
    from .simulator import Simulator


@dataclass(frozen=True)
class Status:
    """How every step went: tensors [T, B] ([T] if unbatched).

    finite: the state after the step is finite. clipped: number of motors at a limit.
    converged, residual: of the step's solver, m/s; without constraints the dynamics is solved in closed form. A
    gradient through steps that did not converge is not that of the motion.
    contacts: number of contacts with a force. depth: the deepest penetration, m. impacts: number of impacts. modes: a
    number that changes with the active set: when a contact starts, ends, sticks or slips, when another one hits first,
    or when a limit or motor starts or ceases to act.
    fallbacks: 1 where there were too many impacts, or too much work: the rest of the step was done without bouncing.
    simultaneous: number of impacts of several contacts at once, or in which an edge came to lie on a face. A gradient
    through any of these two is not exact. guarded: how often restitution was reduced, since with friction it would have
    created energy.
    """

    finite: Tensor
    clipped: Tensor
    converged: Tensor
    residual: Tensor
    contacts: Tensor
    depth: Tensor
    modes: Tensor
    impacts: Tensor
    fallbacks: Tensor
    simultaneous: Tensor
    guarded: Tensor

    @classmethod
    def of(cls, numbers: Tensor, tolerance: float) -> Status:
        """From the numbers of a kernel, [..., 2], with constraints [..., 7], with impacts [..., 10].

        tolerance: the residual below which a solve has converged, m/s.
        """
        finite, clipped = numbers[..., 0] > 0.5, numbers[..., 1].to(torch.int64)
        if numbers.shape[-1] == 2:
            zero, none = torch.zeros_like(numbers[..., 0]), torch.zeros_like(clipped)
            return cls(finite, clipped, finite, zero, none, zero, numbers[..., 1], none, none, none, none)
        residual, contacts, depth, modes, *counts = numbers[..., 2:].unbind(-1)
        contacts, guarded, *counts = (x.to(torch.int64) for x in (contacts, *counts))
        converged, modes = finite & (residual <= tolerance), modes + numbers[..., 1]
        impacts, fallbacks, simultaneous = counts or [torch.zeros_like(contacts)] * 3
        events = (impacts, fallbacks, simultaneous, guarded)
        return cls(finite, clipped, converged, residual, contacts, depth, modes, *events)

    def __repr__(self) -> str:
        steps, touching, unsolved = self.finite.numel(), int((self.contacts > 0).sum()), int((~self.converged).sum())
        notes = [f"{int(self.finite.sum())} of {steps} steps finite"]
        if touching or unsolved:
            notes += [f"{steps - unsolved} converged", f"{touching} with contact"]
        if hits := int(self.impacts.sum()):
            notes.append(f"{hits} impacts")
        notes.append(f"{int((self.clipped > 0).sum())} with motors at a limit")
        return f"Status({', '.join(notes)})"


@dataclass(frozen=True)
class AdjointStatus:
    """How the backward pass of a rollout with `clip` went: tensors [T, B] ([T] if unbatched).

    norm: of the derivative (q̄, v̄) of the loss with respect to the state after the step, before it was clipped. clipped:
    whether it was scaled down. finite: whether it was finite, and what the step made of it.
    """

    norm: Tensor
    clipped: Tensor
    finite: Tensor

    def __repr__(self) -> str:
        steps, clipped, lost = self.norm.numel(), int(self.clipped.sum()), int((~self.finite).sum())
        return f"AdjointStatus({clipped} of {steps} steps clipped, {lost} not finite)"


class RolloutInputs(NamedTuple):
    """The inputs of a rollout: controls [T, B, nu], wrenches [T, B, 6 nlink], constants [nconst] or [B, nconst].

    constants: None for the model's own. parameters: names of those in the constants, separated by commas. clip: of the
    backward pass, None if it is not clipped.
    """

    settings: RolloutSettings
    controls: Tensor
    wrenches: Tensor | None = None
    constants: Tensor | None = None
    parameters: str = ""
    clip: Clip | None = None


class Trajectory:
    """States along a rollout, the start included; with `Checkpoint(every)`, of every `every`-th step and of the last.

    q: [S + 1, B, nq], v: [S + 1, B, nv]; unbatched rollouts have no B. last: the state after the last step; a loss on
    it alone has a cheaper gradient than one on ``q[-1]``. steps: [S + 1] numbers of the kept steps; time: [S + 1] in
    s.
    """

    def __init__(self, simulator: Simulator, motion: RolloutResult, inputs: RolloutInputs) -> None:
        self._simulator, self._inputs = simulator, inputs
        self._path, self._last = motion.path, motion.last
        self._numbers = motion.status  # as kernels write it
        self._poses: tuple[Tensor, ...] | None = None
        self._contacts: Contacts | None = None
        self._status: Status | None = None

    @property
    def q(self) -> Tensor:
        return State(*self._path).q

    @property
    def v(self) -> Tensor:
        return State(*self._path).v

    @property
    def last(self) -> State:
        return State(*self._last)

    @property
    def status(self) -> Status:
        """How every step went."""
        if self._status is None:
            self._status = Status.of(self._numbers, self._simulator._program.tolerance)
        return self._status

    @property
    def adjoint_status(self) -> AdjointStatus:
        """How the backward pass went, of a rollout with `clip`: known after it."""
        clip = self._inputs.clip
        if clip is None:
            raise ValueError("only rollout(..., clip=...) tells how its backward pass went")
        if not clip.done:
            raise RuntimeError("how the backward pass went is known after it: call backward() on a loss first")
        norm, lost = (clip.norms.squeeze(1) if self.q.ndim == 2 else clip.norms).to(self.q.device).unbind(-1)
        between = torch.tensor([clip.between(t) for t in range(len(norm))], device=norm.device)
        at = between.view(-1, *[1] * (norm.ndim - 1))
        finite = torch.isfinite(norm)
        return AdjointStatus(norm, (norm > clip.limit) & at & finite, finite & (lost < 0.5))

    @property
    def controls(self) -> Tensor:
        """The controls of every step, [T, B, nu]; those of a policy are differentiable."""
        controls = self._inputs.controls.squeeze(1) if self.q.ndim == 2 else self._inputs.controls
        return controls.to(self.q.device)

    @property
    def simulator(self) -> Simulator:
        """The simulator that made it."""
        return self._simulator

    @property
    def model(self) -> Model:
        """The model that moved."""
        return self._simulator.model

    @property
    def constants(self) -> Tensor:
        """The model's constants with the parameters of this rollout in their places: [nconst] or [B, nconst]."""
        constants = self._inputs.constants
        return self.model.constants_tensor if constants is None else constants

    @property
    def steps(self) -> Tensor:
        """Numbers of the kept steps, [S + 1]"""
        settings = self._inputs.settings
        return torch.arange(len(self)).mul_(settings.every).clamp_(max=settings.steps)

    @property
    def time(self) -> Tensor:
        """s, [S + 1]"""
        return self.steps.to(self._simulator.dtype) * self._simulator.dt

    def save(self, file: str | os.PathLike[str]) -> None:
        """Write the motion, its model and simulator to a file (.bd), without rounding: see docs/viewing.md."""
        from . import trajectory_files

        trajectory_files.save(self, file)

    @classmethod
    def load(cls, file: str | os.PathLike[str]) -> Trajectory:
        """The trajectory that ``save`` wrote, on the CPU, with the same bits."""
        from . import trajectory_files

        return trajectory_files.load(file)

    def __len__(self) -> int:
        return len(self.q)

    def __getitem__(self, index: int) -> State:
        """The state at a kept step: ``path[-1]`` is the last."""
        if index in (-1, len(self) - 1):
            return self.last
        return State(*(x[index] for x in self._path))

    def _states(self, which: slice | list[int] = slice(None)) -> PathStates:
        """Some of the states, with their program and constants."""
        states = tuple(x[which] for x in self._path)
        return PathStates(self._simulator._program, states, self._inputs.constants, self._inputs.parameters)

    def _of_body(self, quantity: int, body: str) -> Tensor:
        link = self._simulator._body_links[self._simulator.model.body_index(body)]
        if self._poses is None:  # (not a cached_property: torch.compile does not know its lock)
            self._poses = link_poses(self._states())
        return self._poses[quantity][..., link, :]

    @property
    def contacts(self) -> Contacts:
        """The forces of contacts, limits and loops in every step, differentiable: see `Contacts`.

        They are computed on first use, by stepping once more from every state.
        """
        if self._contacts is None:
            self._contacts = self.contacts_of(slice(0, self._inputs.settings.steps))
        return self._contacts

    def contacts_of(self, steps: Sequence[int] | slice) -> Contacts:
        """The same for some steps, by their numbers: each from the state ``path[step]`` to the next."""
        if self._inputs.settings.every != 1:
            raise ValueError("contact forces need all states: this rollout kept only some (adjoint=Checkpoint(...))")
        simulator, inputs = self._simulator, self._inputs
        which = steps if isinstance(steps, slice) else list(steps)
        wrenches = None if inputs.wrenches is None else inputs.wrenches[which]
        if simulator.sparse:
            shapes, numbers = contacts_of_big_world(self._states(which), wrenches)
            return Contacts(self.model, simulator.dt, shapes, numbers, numbers.flatten(-2)[..., :0])
        numbers = constraint_forces(self._states(which), inputs.controls[which], wrenches)
        return Contacts.of_all_pairs(simulator, numbers)

    def position(self, body: str) -> Tensor:
        """The origin of a body's frame, m: [S + 1, B, dim], in world axes."""
        return self._of_body(1, body)[..., : self._simulator.model.dim]

    def rotation(self, body: str) -> Tensor:
        """The matrix from a body's axes to the world's: [S + 1, B, dim, dim]."""
        dim = self._simulator.model.dim
        return self._of_body(0, body).unflatten(-1, (3, 3))[..., :dim, :dim]

    def orientation(self, body: str) -> Tensor:
        """3D: unit quaternion [S + 1, B, 4], w first and not negative. 2D: angle in rad [S + 1, B], not wrapped."""
        if self.model.dim == 2:
            return self._simulator._angles.of(self.q, body)
        return quaternion_of(self._of_body(0, body).unflatten(-1, (3, 3)))

    def velocity(self, body: str) -> Tensor:
        """The velocity of the origin of a body's frame, m/s: [S + 1, B, dim], in world axes."""
        return self._of_body(3, body)[..., : self._simulator.model.dim]

    def angular_velocity(self, body: str) -> Tensor:
        """rad/s. 3D: [S + 1, B, 3], in world axes. 2D: [S + 1, B]."""
        spin = self._of_body(2, body)
        return spin if self._simulator.model.dim == 3 else spin[..., 2]

    def _repr_html_(self) -> str | None:
        """As the last value of a notebook cell: the motion, if what shows it is installed."""
        page: str | None = importlib.import_module("backdrive.view").inline(self)
        return page

    def __repr__(self) -> str:
        shape = "x".join(str(n) for n in self.q.shape[1:-1])
        batch = f", batch {shape}" if shape else ""
        return f"Trajectory({self._inputs.settings.steps} steps of {self._simulator.dt:g} s{batch}, {self.status!r})"


def quaternion_of(R: Tensor) -> Tensor:
    """Unit quaternions [..., 4] of rotation matrices [..., 3, 3], w first and not negative."""
    (a, b, c), (d, e, f), (g, h, i) = (row.unbind(-1) for row in R.unbind(-2))
    # Four formulas, each good where its component is not small; every row is 4 q_k q.
    rows = torch.stack(
        [
            torch.stack([1 + a + e + i, h - f, c - g, d - b], -1),
            torch.stack([h - f, 1 + a - e - i, b + d, c + g], -1),
            torch.stack([c - g, b + d, 1 - a + e - i, f + h], -1),
            torch.stack([d - b, c + g, f + h, 1 - a - e + i], -1),
        ],
        -2,
    )
    best = rows.diagonal(dim1=-2, dim2=-1).argmax(-1)
    q = rows.gather(-2, best[..., None, None].expand(*best.shape, 1, 4)).squeeze(-2)
    q = torch.nn.functional.normalize(q, dim=-1)
    return torch.where(q[..., :1] < 0, -q, q)
