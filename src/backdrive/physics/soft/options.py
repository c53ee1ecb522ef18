"""The options of MuJoCo's physics, as users give them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...model import checks
from ...schema import layout
from ...schema.layout import Kind
from .settings import SoftSettings

if TYPE_CHECKING:
    from ...model import Model

ITERATIONS = 100  # at least, unless told: files that ask for one are for solvers that do not converge anyway
INTEGRATORS = ("euler", "rk4", "implicit", "implicitfast")
CONES = ("pyramidal", "elliptic")


@dataclass(frozen=True)
class MuJoCo:
    """MuJoCo's physics: soft constraints, as ``Simulator(model, physics="mujoco")`` has them. None: as in the file.

    Contacts are where MuJoCo has them: the same points, distances, frames and number for planes, spheres, capsules,
    boxes, and cylinders with planes and spheres; within the tolerance of MuJoCo's iterations for ellipsoids, and for
    cylinders with capsules, boxes and each other. Where more than four corners of a cap are candidates, MuJoCo may
    choose others; so it may among the vertices of a mesh's face that lies on a plane. Meshes touch anything but planes
    as in rigid physics: steps in which they do differ from MuJoCo's.

    integrator: "euler", "rk4", "implicit" or "implicitfast". cone: "pyramidal" or "elliptic".
    impratio: ratio of frictional to normal impedance of elliptic cones. iterations: most steps of Newton's method
        (None: 100, or the file's, if more).
    tolerance: Newton's method has converged when its step is less than this part of the first one. It then takes that
        step: results agree with those of MuJoCo's own solver at its tightest tolerance.
    last_stage: True: a step of "rk4" ends at the state of its last stage, where ``mj_step`` evaluates, and leaves, what
        `mjData` has besides the state: positions of bodies, contacts, forces. (Those of other integrators are of the
        state before the step.)
    """

    integrator: str | None = None
    cone: str | None = None
    impratio: float | None = None
    iterations: int | None = None
    tolerance: float = 1e-8
    last_stage: bool = False

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
        if self.integrator is not None and integrator not in INTEGRATORS:
            raise ValueError(checks.unknown("integrator", integrator, INTEGRATORS))
        if missing:
            raise NotImplementedError(f"physics='mujoco' does not support yet: {'; '.join(missing)}")
        cone = options.cone if self.cone is None else self.cone
        if cone not in CONES:
            raise ValueError(f"cone must be one of {', '.join(CONES)}, got {cone!r}")
        impratio = options.impratio if self.impratio is None else self.impratio
        iterations = max(options.iterations, ITERATIONS) if self.iterations is None else self.iterations
        if self.last_stage and integrator != "rk4":
            raise ValueError(f"last_stage=True is for the integrator 'rk4', got {integrator!r}")
        return SoftSettings(
            integrator=integrator,
            elliptic=cone == "elliptic",
            impratio=checks.in_range(impratio, "impratio", "a number > 0", lambda x: 0.0 < x < math.inf),
            iterations=checks.integer(iterations, "iterations"),
            tolerance=checks.in_range(self.tolerance, "tolerance", "between 0 and 1", lambda x: 0.0 < x < 1.0),
            eulerdamp=options.eulerdamp,
            refsafe=options.refsafe,
            condim=options.condim,
            power=options.power,
            explicit=bool(options.explicit),
            adheres=options.adheres,
            moving=options.moving,
            medium=_soft_end(model) if options.medium else None,
            tendons=options.tendons,
            couplings=options.couplings,
            swings=options.swings,
            ropes=options.ropes,
            more=len(model.constants) - options.more_size,
            chains=_chains(model) if options.more_size else (),
            turning=_turning(model, integrator),
            last_stage=self.last_stage,
        )


def choose(physics: str | MuJoCo, model: Model) -> SoftSettings | None:
    """The settings of MuJoCo's physics; None for rigid physics."""
    if isinstance(physics, MuJoCo):
        return physics.settings(model)
    if physics not in ("rigid", "mujoco"):
        raise ValueError(f"physics must be 'rigid', 'mujoco' or a MuJoCo(...), got {physics!r}")
    if physics == "mujoco":
        return MuJoCo().settings(model)
    if model.soft is not None:
        model.soft.refuse_rigid()
    return None


def _turning(model: Model, integrator: str) -> tuple[int, ...]:
    """The coordinates of v whose Coriolis and gyroscopic forces are implicit: all with the integrator "implicit"; with
    "implicitfast", as in MuJoCo, those of free bodies that carry no joint."""
    if integrator == "implicit":
        return tuple(range(model.nv))
    if integrator != "implicitfast":
        return ()
    kinds, parents = model.kind.tolist(), [int(parent) for parent in model.parent]
    carries = {root for link in range(model.nlink) if layout.NV[kinds[link]] for root in _above(parents, link)}
    lone = [link for link, kind in enumerate(kinds) if kind == Kind.FREE and link not in carries]
    starts = model.vadr.tolist()
    return tuple(starts[link] + k for link in lone for k in range(layout.NV[Kind.FREE]))


def _above(parents: Sequence[int], link: int) -> Iterator[int]:
    """The links inward of a link."""
    while (link := parents[link]) >= 0:
        yield link


def _chains(model: Model) -> tuple[tuple[int, ...], ...]:
    """For every coordinate of v, those that the dynamics eliminate after it: of its own link, and then inward."""
    inward: list[tuple[int, ...]] = []
    result: list[tuple[int, ...]] = []
    for link, kind in enumerate(model.kind.tolist()):
        parent = int(model.parent[link])
        rest = inward[parent] if parent >= 0 else ()
        own = range(int(model.vadr[link]), int(model.vadr[link]) + layout.NV[kind])
        result += [(*range(k + 1, own.stop), *rest) for k in own]
        inward.append((*own, *rest))
    return tuple(result)


def _soft_end(model: Model) -> int:
    """Where the parameters of soft constraints end in the constants."""
    soft = (model.nshape, model.nlimit, model.nfriction, model.nequality)
    sizes = (model.nlink, model.nq, model.nu, *soft)
    assert model.soft is not None
    return int(layout.constants_size(*sizes) + layout.soft_size(model.nlink, *soft, len(model.soft.explicit)))
