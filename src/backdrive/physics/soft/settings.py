"""What a kernel with MuJoCo's physics is compiled for."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class SoftSettings:
    """MuJoCo's physics.

    integrator: "euler", "rk4", "implicitfast". elliptic: the friction cone; otherwise it is pyramidal. impratio: of
    frictional to normal impedance. iterations: most steps of Newton's method. tolerance: the method has converged when
    its step is less than this part of the first one, in the norm of kinetic energy. eulerdamp: whether Euler treats
    joint damping implicitly. refsafe: whether time constants in solref are at least two steps. condim: the greatest of
    all contacts. power: of all impedances. reach: the greatest margin of a pair, relative to its smaller shape.
    """

    integrator: str
    elliptic: bool
    impratio: float
    iterations: int
    tolerance: float
    eulerdamp: bool
    refsafe: bool
    condim: int
    power: int
    reach: float

    @property
    def block(self) -> int:
        """Rows of a contact, in whole tiles: normal and tangents; torsional and rolling friction."""
        return 3 if self.condim <= 3 else 6
