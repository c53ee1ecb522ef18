"""How the backward pass of a rollout gets its states, and how far back it goes."""

from __future__ import annotations

from dataclasses import dataclass

from .model import checks
from .schema.signatures import RolloutSettings


@dataclass(frozen=True)
class Checkpoint:
    """Keep the state of every `every`-th step only (and of the last); the backward pass computes the others again.

    Memory falls by the factor `every`, the backward pass takes about a third longer. The trajectory has the kept
    states. Motion and gradient have the same bits as without checkpoints.
    """

    every: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "every", checks.integer(self.every, "Checkpoint(every=...)"))

    def settings(self, steps: int) -> RolloutSettings:
        return RolloutSettings(steps, every=min(self.every, steps))


@dataclass(frozen=True)
class Truncated:
    """Cut the backward pass every `steps` steps: gradients pass back over at most that many.

    For chaotic motion, where the gradient over long times grows beyond use.
    """

    steps: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "steps", checks.integer(self.steps, "Truncated(steps)"))

    def settings(self, steps: int) -> RolloutSettings:
        return RolloutSettings(steps, truncate=self.steps)


def rollout_settings(adjoint: Checkpoint | Truncated | None, steps: int) -> RolloutSettings:
    if adjoint is None:
        return RolloutSettings(steps)
    if not isinstance(adjoint, Checkpoint | Truncated):
        raise TypeError(f"adjoint must be Checkpoint(every) or Truncated(steps), got {adjoint!r}")
    return adjoint.settings(steps)
