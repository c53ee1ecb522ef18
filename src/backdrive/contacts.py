"""The forces of contacts and other constraints along a rollout."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from .model import Model, checks
from .physics.constraints.forces import FORCE

if TYPE_CHECKING:
    from .simulator import Simulator


class Contacts:
    """Forces in every step of a rollout, differentiable.

    pairs: [nslot] pairs of names of shapes; a pair that can touch at several contact points has several slots.
    force: [T, B, nslot, dim], N, on the first shape of its pair, the mean over the step, in world axes; zero where
    there is no contact. point: [T, B, nslot, dim], m, the contact point. Unbatched rollouts have no B. One big world
    (`Simulator.sparse`) has slots only for contacts that occur in some step, in some environment.
    """

    def __init__(self, model: Model, dt: float, shapes: np.ndarray, numbers: Tensor, single: Tensor) -> None:
        """shapes: the pair of every slot, [nslot, 2]; numbers: [T, B, nslot, FORCE]; single: forces of other rows."""
        self._model, self._dt, self._shapes, self._single = model, dt, shapes, single
        force, point = numbers.split(3, -1)
        self.force, self.point = force[..., : model.dim], point[..., : model.dim]
        self.pairs = [(model.shape_names[a], model.shape_names[b]) for a, b in shapes.tolist()]

    @classmethod
    def of_all_pairs(cls, simulator: Simulator, numbers: Tensor) -> Contacts:
        """From the forces [T, B, nforce] that the kernel `forces` writes."""
        model, tables = simulator.model, simulator._program.kernels.tables
        assert tables is not None
        forces, single = numbers.split([tables.nslot * FORCE, tables.nsingle], -1)
        shapes = tables.pairs[tables.pair_of_slot]
        return cls(model, simulator.dt, shapes, forces.unflatten(-1, (tables.nslot, FORCE)), single)

    @property
    def impulse(self) -> Tensor:
        """The impulse of every contact, force times dt: [T, B, nslot, dim], N s."""
        return self.force * self._dt

    def on(self, body: str) -> Tensor:
        """The sum of all contact forces on a body, N: [T, B, dim]."""
        link = int(self._model.body_link[self._model.body_index(body)])
        ends = self._model.shape_link[self._shapes]
        sign = (ends[:, 0] == link).astype(np.float64) - (ends[:, 1] == link)
        return (self.force * torch.from_numpy(sign).to(self.force).unsqueeze(-1)).sum(-2)

    def of(self, name: str) -> Tensor:
        """The forces of a joint or of a constraint other than contacts, N or N m: [T, B, k].

        A constraint (or a joint that closes a loop, or any joint in maximal coordinates) has a force for each of its
        equations; another joint has that of its friction and that of its limit, as far as it has them.
        """
        model = self._model
        joint_of = dict(zip(model.joint_link.tolist(), model.joints, strict=True))
        bounded = [joint_of[i] for i in (*model.friction_link.tolist(), *model.limit_link.tolist())]
        names = [*model.equality_names, *bounded]
        rows = [k for k, owner in enumerate(names) if owner == name]
        if not rows:
            raise ValueError(checks.unknown("constraint", name, names))
        return self._single[..., rows]

    def __repr__(self) -> str:
        pressing = int((self.force.detach() != 0.0).any(-1).sum())
        return f"Contacts({len(self.pairs)} places of {len(set(self.pairs))} pairs, {pressing} contacts press)"
