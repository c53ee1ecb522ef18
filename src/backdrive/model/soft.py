"""What MuJoCo's physics needs of a MJCF file besides the model: options, and parameters of soft constraints."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np


@dataclass(frozen=True)
class SoftOptions:
    """The options of a file for MuJoCo's physics.

    integrator: "euler", "rk4", "implicit" or "implicitfast". cone: "pyramidal" or "elliptic". impratio: of frictional
    to normal impedance of elliptic cones. iterations: most steps of Newton's method. eulerdamp: whether Euler treats
    joint damping implicitly. refsafe: whether time constants in solref are at least two steps. condim: the greatest of
    all contacts. power: of all solimp. medium: whether a fluid drags the links, or their weight is compensated. unsupported: the elements of the
    file that rigid physics represents, and MuJoCo's here does not. own: those that it is the other way round with, by
    their kind.
    """

    integrator: str = "euler"
    cone: str = "pyramidal"
    impratio: float = 1.0
    iterations: int = 100
    eulerdamp: bool = True
    refsafe: bool = True
    condim: int = 3
    power: int = 2
    medium: bool = False
    unsupported: tuple[str, ...] = ()
    own: tuple[tuple[str, tuple[str, ...]], ...] = ()

    def refuse_rigid(self) -> None:
        """Raise if the file has elements that rigid physics does not represent."""
        if self.own:
            lines = "\n".join(f"  {kind}: {', '.join(names)}" for kind, names in self.own)
            ignore = tuple(kind for kind, _ in self.own)
            raise ValueError(
                f"the file has elements that are not supported by rigid physics:\n{lines}\n"
                f"With them: Simulator(..., physics='mujoco'). Without them: load(..., ignore={ignore!r})"
            )


class SoftParts(NamedTuple):
    """The options, and the last part of the constants (see `schema.layout`)."""

    options: SoftOptions
    constants: np.ndarray
