"""What a kernel with MuJoCo's physics is compiled for."""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True)
class SoftSettings:
    """MuJoCo's physics.

    integrator: "euler", "rk4", "implicit", "implicitfast". elliptic: the friction cone; otherwise it is pyramidal.
    impratio: of frictional to normal impedance. iterations: most steps of Newton's method. tolerance: the method
    has converged when its step is less than this part of the first one, in the norm of kinetic energy. eulerdamp:
    whether Euler treats joint damping implicitly. refsafe: whether time constants in solref are at least two steps.
    condim: the greatest of all contacts. power: of all impedances.
    medium: where the MEDIUM floats start in the constants (`schema.layout`); None if there is no medium.
    last_stage: steps of "rk4" end at their last stage.
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
    medium: int | None = None
    last_stage: bool = False
    solved: float = 1e-13
    rounding: float = 1e-28

    def in_float32(self) -> SoftSettings:
        """With tolerances that float32 can reach."""
        return replace(self, tolerance=max(self.tolerance, 1e-4), solved=1e-5, rounding=1e-12)

    @property
    def dense(self) -> bool:
        """Whether what is implicit in the velocity is more than the damping of single coordinates."""
        return self.integrator == "implicit" or (self.integrator == "implicitfast" and self.medium is not None)

    @property
    def damps_motors(self) -> bool:
        """Whether the damping of motors is implicit; that of joints is, unless Euler's is explicit."""
        return self.integrator in ("implicit", "implicitfast")

    @property
    def block(self) -> int:
        """Rows of a contact, in whole tiles: normal and tangents; torsional and rolling friction."""
        return 3 if self.condim <= 3 else 6
