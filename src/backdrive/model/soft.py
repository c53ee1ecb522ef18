"""What MuJoCo's physics needs of a MJCF file besides the model: options, and parameters of soft constraints."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ..schema import layout

if TYPE_CHECKING:
    from .model import Model


class Combination(NamedTuple):
    """A linear combination of coordinates: where they are in q and in v, and their coefficients."""

    q: tuple[int, ...]
    v: tuple[int, ...]
    coefficients: tuple[float, ...]


class Tendon(NamedTuple):
    """A fixed tendon: its length, whether it has limits and friction, and the numbers of the motors that pull it."""

    name: str
    length: Combination
    limited: bool
    rubs: bool
    motors: tuple[int, ...]


class Coupling(NamedTuple):
    """An equation: the first combination is a polynomial of the second, or of nothing."""

    name: str
    first: Combination
    second: Combination | None


class Swing(NamedTuple):
    """A ball joint whose angle is limited: where its quaternion starts in q, and its angular velocity in v."""

    name: str
    q: int
    v: int


class Rope(NamedTuple):
    """A spatial tendon: the link of every site on its path (0: the world, else one more than its number), and where the
    site is in the frame of that link."""

    name: str
    links: tuple[int, ...]
    sites: tuple[tuple[float, float, float], ...]


@dataclass(frozen=True)
class SoftOptions:
    """The options of a file for MuJoCo's physics.

    integrator: "euler", "rk4", "implicit" or "implicitfast". cone: "pyramidal" or "elliptic". impratio: of frictional
    to normal impedance of elliptic cones. iterations: most steps of Newton's method. eulerdamp: whether Euler
    treats joint damping implicitly. refsafe: whether time constants in solref are at least two steps. condim: the
    greatest of all contacts. power: of all solimp, 0 if they differ. explicit: the pairs of shapes that have a
    material of their own. adheres: whether a contact may pull. moving: whether a surface moves along itself.
    medium: whether a fluid drags the links, or their weight is compensated. tendons, couplings, swings, ropes:
    those of the file. unsupported: the elements of the file that rigid physics represents, and MuJoCo's here does
    not. own: those that it is the other way round with, by their kind.
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
    medium: bool = False
    tendons: tuple[Tendon, ...] = ()
    couplings: tuple[Coupling, ...] = ()
    swings: tuple[Swing, ...] = ()
    ropes: tuple[Rope, ...] = ()
    unsupported: tuple[str, ...] = ()
    own: tuple[tuple[str, tuple[str, ...]], ...] = ()

    @property
    def more_size(self) -> int:
        """Length of the records of tendons, couplings, swings and ropes in the constants."""
        joined = len(self.tendons) * layout.TENDON + len(self.couplings) * layout.COUPLING
        return joined + len(self.swings) * layout.SWING + len(self.ropes) * layout.ROPE

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
