"""Clipping of the cotangents of states between the steps of a backward pass."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from ..physics.clipping import NORMS, SMALLEST


@dataclass(eq=False)
class Clip:
    """How one rollout clips, and what its backward pass did.

    limit: the largest norm of a cotangent (q̄, v̄). every: it holds at states whose number is a multiple of this. norms
    [T, B, NORMS]: written by the backward pass, after which `done` is True; see `physics.clipping`.
    """

    limit: float
    every: int
    norms: Tensor
    done: bool = field(default=False)

    @staticmethod
    def of(limit: float, every: int, steps: int, batch: int, dtype: torch.dtype) -> Clip:
        return Clip(limit, every, torch.zeros(steps, batch, NORMS, dtype=dtype))

    @property
    def kernel_values(self) -> dict[str, float]:
        """The kernel's own arguments, besides `norms`."""
        return {"clip": self.limit, "clip_every": self.every}

    def between(self, t: int) -> bool:
        """Whether the state after step t is one that the limit holds at: the last state is not between steps."""
        return (t + 1) % self.every == 0 and t + 1 < len(self.norms)

    def limited(self, t: int, bars: Sequence[Tensor]) -> list[Tensor]:
        """The cotangents [B, n] of the fields of the state after step t, as kernels limit them."""
        self.done = True
        flat = torch.cat(list(bars), -1)
        largest = flat.abs().amax(-1).clamp(min=SMALLEST)
        norm = largest * (flat / largest.unsqueeze(-1)).norm(dim=-1)
        self.norms[t, :, 0] = norm
        scale = (self.limit / norm).clamp(max=1.0) if self.between(t) else torch.ones_like(norm)
        fine = torch.isfinite(norm).unsqueeze(-1)
        return [torch.where(fine, scale.unsqueeze(-1) * bar, 0.0) for bar in bars]

    def kept(self, t: int, bars: Sequence[Tensor | None]) -> list[Tensor | None]:
        """The cotangents [B, n] that the adjoint of step t found; all of an environment are 0 if one is not finite."""
        given = [bar for bar in bars if bar is not None]
        fine = torch.isfinite(torch.cat(given, -1)).all(-1)
        self.norms[t, :, 1] = (~fine).to(self.norms.dtype)
        return [None if bar is None else torch.where(fine.unsqueeze(-1), bar, 0.0) for bar in bars]
