"""What a kernel with MuJoCo's physics is compiled for."""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True)
class SoftSettings:
    """MuJoCo's physics.

    integrator: "euler", "rk4", "implicitfast". elliptic: the friction cone; otherwise it is pyramidal. impratio: of
    frictional to normal impedance. iterations: most steps of Newton's method. tolerance: the method has converged when
    its step is less than this part of the first one, in the norm of kinetic energy. eulerdamp: whether Euler treats
    joint damping implicitly. refsafe: whether time constants in solref are at least two steps. condim: the greatest of
    all contacts. power: of all impedances. explicit, adheres, moving: what contacts may have, as in `SoftOptions`.
    solved: the gradient is zero if the step that it leads to is less than this part of the first one. rounding: so is
    it if the square of that step is less than this part of the kinetic energy of the free motion.
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
    explicit: bool = False
    adheres: bool = False
    moving: bool = False
    solved: float = 1e-13
    rounding: float = 1e-28

    def in_float32(self) -> SoftSettings:
        """With tolerances that float32 can reach."""
        return replace(self, tolerance=max(self.tolerance, 1e-4), solved=1e-5, rounding=1e-12)

    @property
    def block(self) -> int:
        """Rows of a contact, in whole tiles: normal and tangents; torsional and rolling friction."""
        return 3 if self.condim <= 3 else 6
