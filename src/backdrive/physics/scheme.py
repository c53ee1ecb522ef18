"""How a kernel steps: the integrator, the contact model, and the step size."""

from __future__ import annotations

from dataclasses import dataclass

from ..ir import Scalar
from .integrators import Integrator
from .soft.settings import SoftSettings
from .solvers import Solver
from .tree.tree import Tree


@dataclass(frozen=True)
class RigidContact:
    """Rigid contact with Coulomb friction, as complementarity of velocities and impulses.

    bounce_threshold: in plain time stepping, contacts that approach more slowly than this (m/s) do not bounce.
    regularisation: compliance of every row as a part of the inverse mass it acts on; it decides how the contact points
        of one face share their load.
    impacts: steps are split at the times of their impacts (`impacts`); otherwise bounces follow from speeds alone.
    round_cones: friction cones are round in all substeps; otherwise in impacts only.
    """

    solver: Solver
    bounce_threshold: float = 0.05
    regularisation: float = 1e-8
    impacts: bool = False
    round_cones: bool = False


@dataclass(frozen=True)
class Scheme:
    """The time integrator, and the contact model (None: the model has no constraints).

    soft: MuJoCo's physics, in place of both. saturates: some servo of the model has a limit of its force.
    """

    integrator: Integrator
    contact_model: RigidContact | None = None
    soft: SoftSettings | None = None
    saturates: bool = False

    @property
    def constrains(self) -> bool:
        """Whether there is a model of constraints."""
        return self.contact_model is not None or self.soft is not None

    @property
    def sums_over_parts(self) -> bool:
        """Whether the adjoint of a step is a loop over its substeps or stages, which keep their sums in memory."""
        return self.splits_at_impacts or (self.soft is not None and self.soft.integrator == "rk4")

    @property
    def solutions(self) -> int:
        """What the adjoint of a step with constraints wants kept of it: so many accelerations [nv], which its solver
        found."""
        return 0 if self.soft is None else self.soft.evaluations

    @property
    def has_jacobian_kernel(self) -> bool:
        """Whether `step_jacobian` knows its steps: q⁺ = q ⊕ h v⁺."""
        if self.soft is not None:
            return self.soft.integrator != "rk4"
        return self.integrator.has_jacobian_kernel and not self.splits_at_impacts

    @property
    def tolerance(self) -> float:
        """The residual below which the solver has converged: m/s; of MuJoCo's physics, a part of the first step."""
        if self.soft is not None:
            return self.soft.tolerance
        return self.contact_model.solver.tolerance if self.contact_model else 0.0

    @property
    def splits_at_impacts(self) -> bool:
        return self.contact_model is not None and self.contact_model.impacts


@dataclass(frozen=True)
class StepContext:
    """What all steps of a kernel have in common: the model, the scheme, and the step size h (s)."""

    tree: Tree
    scheme: Scheme
    h: Scalar

    @property
    def integrator(self) -> Integrator:
        return self.scheme.integrator

    @property
    def constrained(self) -> bool:
        return self.tree.constraints is not None and self.scheme.contact_model is not None

    @property
    def splits_at_impacts(self) -> bool:
        return self.constrained and self.scheme.splits_at_impacts

    @property
    def soft(self) -> SoftSettings:
        """The settings of MuJoCo's physics."""
        assert self.scheme.soft is not None
        return self.scheme.soft

    @property
    def contact_model(self) -> RigidContact:
        """The contact model of a model that has constraints."""
        assert self.scheme.contact_model is not None
        return self.scheme.contact_model
