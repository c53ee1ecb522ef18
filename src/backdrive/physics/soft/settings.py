"""What a kernel with MuJoCo's physics is compiled for."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ...model.soft import Coupling, Rope, Swing, Tendon
from ...schema import layout

STAGES = 4  # of the Runge-Kutta method


@dataclass(frozen=True)
class SoftSettings:
    """MuJoCo's physics.

    integrator: "euler", "rk4", "implicit", "implicitfast". elliptic: the friction cone; otherwise it is pyramidal.
    impratio: of frictional to normal impedance. iterations: most steps of Newton's method. tolerance: the method
    has converged when its step is less than this part of the first one, in the norm of kinetic energy. eulerdamp:
    whether Euler treats joint damping implicitly. refsafe: whether time constants in solref are at least two steps.
    condim: the greatest of all contacts. power: of all impedances, 0 if they differ or are not small integers.
    explicit, adheres, moving: what contacts may have, as in `SoftOptions`. medium: where the MEDIUM floats start in
    the constants (`schema.layout`); None if there is no medium. tendons, couplings, swings, ropes: of the model;
    more: where their records start in the constants. chains: for every coordinate of v, those that are eliminated
    after it, up to the root of its tree; empty if nothing needs them.
    turning: coordinates of v whose Coriolis and gyroscopic forces are implicit. last_stage: steps of "rk4" end at their
    last stage.
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
    medium: int | None = None
    tendons: tuple[Tendon, ...] = ()
    couplings: tuple[Coupling, ...] = ()
    swings: tuple[Swing, ...] = ()
    ropes: tuple[Rope, ...] = ()
    more: int = 0
    chains: tuple[tuple[int, ...], ...] = ()
    turning: tuple[int, ...] = ()
    last_stage: bool = False
    solved: float = 1e-13
    rounding: float = 1e-28

    def in_float32(self) -> SoftSettings:
        """With tolerances that float32 can reach."""
        return replace(self, tolerance=max(self.tolerance, 1e-4), solved=1e-5, rounding=1e-12)

    def tendon_place(self, t: int) -> int:
        """Where the TENDON record of a tendon starts in the constants."""
        return self.more + t * layout.TENDON

    def coupling_place(self, i: int) -> int:
        """Where a COUPLING record starts in the constants."""
        return self.more + len(self.tendons) * layout.TENDON + i * layout.COUPLING

    def swing_place(self, i: int) -> int:
        """Where a SWING record starts in the constants."""
        return self.coupling_place(len(self.couplings)) + i * layout.SWING

    def rope_place(self, i: int) -> int:
        """Where a ROPE record starts in the constants."""
        return self.swing_place(len(self.swings)) + i * layout.ROPE

    @property
    def combination_rows(self) -> int:
        """The most rows of tendons, couplings, swings and ropes that there can be."""
        tendons = sum(2 * tendon.limited + tendon.rubs for tendon in self.tendons)
        return tendons + len(self.couplings) + len(self.swings) + 2 * len(self.ropes)

    @property
    def evaluations(self) -> int:
        """How often the accelerations are evaluated in a step: in the stages of the integrator."""
        return 1 if self.integrator != "rk4" else STAGES - 1 if self.last_stage else STAGES

    @property
    def dense(self) -> bool:
        """Whether what is implicit in the velocity is more than the damping of single coordinates."""
        couples = self.medium is not None or bool(self.tendons) or bool(self.turning)
        return self.integrator == "implicit" or (self.integrator == "implicitfast" and couples)

    @property
    def damps_motors(self) -> bool:
        """Whether the damping of motors is implicit; that of joints is, unless Euler's is explicit."""
        return self.integrator in ("implicit", "implicitfast")

    @property
    def block(self) -> int:
        """Rows of a contact, in whole tiles: normal and tangents; torsional and rolling friction."""
        return 3 if self.condim <= 3 else 6
