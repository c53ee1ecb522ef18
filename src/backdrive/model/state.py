"""The state of a world: positions and velocities."""

from __future__ import annotations

import os
from typing import Any, NamedTuple

from torch import Size, Tensor


class State(NamedTuple):
    """Coordinates of one world or of a batch of them; a tuple, so ``q, v = state`` works.

    q: [nq] or [B, nq], in m and rad, quaternions w first.
    v: [nv] or [B, nv], in m/s and rad/s.
    """

    q: Tensor
    v: Tensor

    @property
    def batch_shape(self) -> Size:
        """() for one world, (B,) for a batch."""
        return self.q.shape[:-1]

    def to(self, *args: Any, **kwargs: Any) -> State:
        """Both tensors on another device or in another dtype, as ``torch.Tensor.to``."""
        return State(self.q.to(*args, **kwargs), self.v.to(*args, **kwargs))

    def detach(self) -> State:
        """The same tensors, cut from the autograd graph."""
        return State(self.q.detach(), self.v.detach())

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the state to a JSON file (docs/scene_format.md) without rounding."""
        from .files.write import save_state

        save_state(self, path)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> State:
        """The state that ``save`` wrote, on the CPU."""
        from .files.read import load_state

        return load_state(path)

    def clone(self) -> State:
        """A differentiable copy."""
        return State(self.q.clone(), self.v.clone())
