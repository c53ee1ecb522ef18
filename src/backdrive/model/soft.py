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
    all contacts. power: of all solimp. explicit: the pairs of shapes that have a material of their own. adheres:
    whether a contact may pull. moving: whether a surface moves along itself. unsupported: the elements of the file that
    rigid physics represents, and MuJoCo's here does not.
    """

    integrator: str = "euler"
    cone: str = "pyramidal"
    impratio: float = 1.0
    iterations: int = 100
    eulerdamp: bool = True
    refsafe: bool = True
    condim: int = 3
    power: int = 2
    explicit: tuple[tuple[int, int], ...] = ()
    adheres: bool = False
    moving: bool = False
    unsupported: tuple[str, ...] = ()


class SoftParts(NamedTuple):
    """The options, and the last part of the constants (see `schema.layout`)."""

    options: SoftOptions
    constants: np.ndarray
