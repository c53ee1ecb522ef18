"""The options of MuJoCo's physics, as users give them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .settings import SoftSettings

if TYPE_CHECKING:
    from ...model import Model

INTEGRATORS = ("euler", "rk4", "implicitfast")
CONES = ("pyramidal", "elliptic")


@dataclass(frozen=True)
class MuJoCo:
    """MuJoCo's physics: soft constraints, as ``Simulator(model, physics="mujoco")`` has them. None: as in the file.

    Contacts are where MuJoCo has them: the same points, distances, frames and number for planes, spheres, capsules,
    boxes, and cylinders with planes and spheres; within the tolerance of its iterations for ellipsoids with all of
    these, and for cylinders with capsules and each other, unless they lie flat. Meshes touch planes at the vertices of
    the same face; of a face with more than four, MuJoCo may choose others. The contact points of cylinders with boxes,
    of cylinders that lie flat on each other, and of meshes with anything but planes are those of rigid physics: with
    cylinders and ellipsoids as polyhedra, steps in which these touch differ from MuJoCo's.

    integrator: "euler", "rk4" or "implicitfast". cone: "pyramidal" or "elliptic". impratio: ratio of frictional to
        normal impedance of elliptic cones. iterations: most steps of Newton's method.
    tolerance: Newton's method has converged when its step is less than this part of the first one. It then takes that
        step: results agree with those of MuJoCo's own solver at its tightest tolerance.
    """

    integrator: str | None = None
    cone: str | None = None
    impratio: float | None = None
    iterations: int | None = None
    tolerance: float = 1e-8

    def settings(self, model: Model) -> SoftSettings:
        """For a model; raises where it has no parameters of soft constraints, or elements that are not supported."""
        options = model.soft
        if options is None:
            raise ValueError(
                "physics='mujoco' needs solref, solimp and the other parameters of a MJCF file: load the model with "
                "load(...). Models of a Scene have rigid physics"
            )
        integrator = options.integrator if self.integrator is None else self.integrator
        missing = list(options.unsupported)
        if integrator not in INTEGRATORS:
            missing.append(f"integrator {integrator!r} (of {', '.join(INTEGRATORS)})")
        if missing:
            raise NotImplementedError(f"physics='mujoco' does not support yet: {'; '.join(missing)}")
        cone = options.cone if self.cone is None else self.cone
        if cone not in CONES:
            raise ValueError(f"cone must be one of {', '.join(CONES)}, got {cone!r}")
        impratio = options.impratio if self.impratio is None else float(self.impratio)
        iterations = options.iterations if self.iterations is None else self.iterations
        if not (math.isfinite(impratio) and impratio > 0.0):
            raise ValueError(f"impratio must be positive, got {impratio!r}")
        if not isinstance(iterations, int) or iterations < 1:
            raise ValueError(f"iterations must be an integer >= 1, got {iterations!r}")
        if not 0.0 < self.tolerance < 1.0:
            raise ValueError(f"tolerance must be between 0 and 1, got {self.tolerance!r}")
        return SoftSettings(
            integrator=integrator,
            elliptic=cone == "elliptic",
            impratio=impratio,
            iterations=iterations,
            tolerance=self.tolerance,
            eulerdamp=options.eulerdamp,
            refsafe=options.refsafe,
            condim=options.condim,
            power=options.power,
            explicit=bool(options.explicit),
            adheres=options.adheres,
            moving=options.moving,
        )


def choose(physics: str | MuJoCo, model: Model) -> SoftSettings | None:
    """The settings of MuJoCo's physics; None for rigid physics."""
    if isinstance(physics, MuJoCo):
        return physics.settings(model)
    if physics not in ("rigid", "mujoco"):
        raise ValueError(f"physics must be 'rigid', 'mujoco' or a MuJoCo(...), got {physics!r}")
    return MuJoCo().settings(model) if physics == "mujoco" else None
