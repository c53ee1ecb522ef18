"""What MuJoCo's physics needs of a MJCF file besides the model: options, and parameters of soft constraints."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from .model import Model


@dataclass(frozen=True)
class SoftOptions:
    """The options of a file for MuJoCo's physics.

    integrator: "euler", "rk4", "implicit" or "implicitfast". cone: "pyramidal" or "elliptic". impratio: of frictional
    to normal impedance of elliptic cones. iterations: most steps of Newton's method. eulerdamp: whether Euler treats
    joint damping implicitly. refsafe: whether time constants in solref are at least two steps. condim: the greatest of
    all contacts. power: of all solimp. reach: the greatest margin of a pair, relative to the radius of its smaller
    shape. unsupported: the elements of the file that rigid physics represents, and MuJoCo's here does not.
    """

    integrator: str = "euler"
    cone: str = "pyramidal"
    impratio: float = 1.0
    iterations: int = 100
    eulerdamp: bool = True
    refsafe: bool = True
    condim: int = 3
    power: int = 2
    reach: float = 0.0
    unsupported: tuple[str, ...] = ()


class SoftParts(NamedTuple):
    """The options, and the last part of the constants (see `schema.layout`)."""

    options: SoftOptions
    constants: np.ndarray


def rigid_differences(model: Model) -> tuple[str, ...]:
    """In what rigid physics differs from MuJoCo's for a model from a MJCF file; empty for other models."""
    options = model.soft
    if options is None or model.timestep is None:
        return ()
    found = []
    soft = {"contacts": model.npair, "limits": len(model.limit_link), "joint friction": len(model.friction_link)}
    soft["equalities"] = len(model.equality_kind)
    if kinds := [kind for kind, count in soft.items() if count]:
        found.append(f"{', '.join(kinds)} are rigid (solref, solimp and margins have no effect)")
    if model.npair and options.condim > 3:
        found.append("contacts have no torsional and rolling friction")
    if options.integrator != "euler":
        found.append(f"the integrator is semi-implicit Euler (the file's: {options.integrator})")
    return tuple(found)
