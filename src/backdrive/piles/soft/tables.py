"""The shapes of a model in MuJoCo's order, and the parameters of soft contacts."""

from __future__ import annotations

import numpy as np

from ...model import Model
from ...physics.geometry.mujoco import ALL_PAIRS, GeomPair
from ...physics.soft.settings import SoftSettings
from ...schema import layout
from ...schema.layout import GeomKind
from ..bodies import BodyForm
from ..tables import Array, PileConstants, PileTables
from ..tables import unsupported as unsupported_bodies

INTEGRATORS = ("euler", "implicit", "implicitfast")
GEOM_PAIR: dict[tuple[GeomKind, GeomKind], GeomPair] = dict(ALL_PAIRS)


def unsupported(model: Model, settings: SoftSettings) -> str | None:
    """Why a model cannot be stepped as a pile with MuJoCo's physics; None if it can."""
    if reason := unsupported_bodies(model):
        return reason
    if model.dim != 3:
        return "it is in 2D"
    if settings.integrator not in INTEGRATORS:
        return f"its integrator is {settings.integrator!r}, and not one of {', '.join(INTEGRATORS)}"
    if settings.explicit:
        return "it has contact pairs with a material of their own"
    if settings.medium is not None:
        return "it has a medium, or weights that are compensated"
    if settings.tendons or settings.couplings or settings.swings or settings.ropes:
        return "it has tendons"
    if GeomKind.MESH in _geoms(model):
        return "it has meshes"
    return None


def _geoms(model: Model) -> list[GeomKind]:
    """The kinds of all shapes, in the order of the model."""
    placed = [*(shape for shapes in model.shapes for shape in shapes), *model.statics]
    return [shape.shape.geom for shape in placed]


class SoftPileTables(PileTables):
    """The first shape of a pair is MuJoCo's second geom, as `physics.soft.contacts.geom_pairs` has it. Shapes of one
    class have the same kind of geom and hull: class_geom, class_hull."""

    def __init__(self, model: Model) -> None:
        self.geom = np.array([int(kind) for kind in _geoms(model)])
        super().__init__(model)

    def _rank(self) -> Array:
        """The geom of the greater kind comes first; of two of the same kind, the later one. In MuJoCo, the geoms of the
        world come before all others."""
        moves, count = self.model.shape_link[self.order] >= 0, len(self.order)
        return -((self.geom[self.order] * 2 + moves) * count + self.order)

    def _classes(self) -> None:
        rows = np.column_stack([self.geom[self.order], self.model.shape_hull[self.order]])
        unique, shape_class = np.unique(rows, axis=0, return_inverse=True)
        self.shape_class, self.nclass = shape_class.reshape(-1), len(unique)
        self.class_geom = [GeomKind(row[0]) for row in unique.tolist()]
        self.class_hull = [tuple(row[1:]) for row in unique.tolist()]
        found = [GEOM_PAIR.get((b, a)) for a in self.class_geom for b in self.class_geom]
        self.slots = np.array([0 if pair is None else pair.slots for pair in found], dtype=np.int64)

    def pair(self, a: int, b: int) -> GeomPair:
        """The narrow phase of two classes; a: of MuJoCo's second geoms."""
        return GEOM_PAIR[self.class_geom[b], self.class_geom[a]]


class SoftPileConstants(PileConstants):
    """The constants of one world. The SOFT_SHAPE numbers of a shape follow those of its SHAPE record in `records`.

    materials [nshape + 1, n]: these records, each with its reach (`_reach`), and a last one that is zero. weights
    [nbody + 1, 1]: the inverse inertia of the bodies, 1/kg; zero for the world.
    """

    def __init__(self, tables: PileTables, form: BodyForm, constants: Array) -> None:
        super().__init__(tables, form, constants)
        model = tables.model
        links, shapes = _places(model)
        soft = constants[shapes : shapes + model.nshape * layout.SOFT_SHAPE].reshape(-1, layout.SOFT_SHAPE)
        self.records = np.concatenate([self.records, soft[tables.order]], axis=1)
        self.materials = np.zeros((tables.nshape + 1, self.records.shape[1] + 1), constants.dtype)
        self.materials[:-1, :-1], self.materials[:-1, -1] = self.records, self._reach()
        own = constants[links:shapes].reshape(-1, layout.SOFT_LINK)[:, layout.LINEAR_WEIGHT]
        self.weights = np.concatenate([np.zeros(1, constants.dtype), own])[:, None]

    def _reach(self) -> Array:
        """The distance (m) by which boxes around shapes are wider: of two shapes, it adds up to the greatest margin and
        gap that their contacts have; planes leave theirs to all others."""
        own = self.records[:, layout.SHAPE + layout.MARGIN] + self.records[:, layout.SHAPE + layout.GAP]
        return own + own[self.tables.nsolid :].max(initial=0.0)

    def vjp(self, links_bar: Array, records_bar: Array) -> Array:
        model, bar = self.tables.model, super().vjp(links_bar, records_bar)
        _, start = _places(model)
        shapes = bar[start : start + model.nshape * layout.SOFT_SHAPE].reshape(-1, layout.SOFT_SHAPE)
        shapes[self.tables.order] = records_bar[:, layout.SHAPE :]
        return bar


def _places(model: Model) -> tuple[int, int]:
    """Where the SOFT_LINK and the SOFT_SHAPE records start in the constants of a model without joints."""
    sizes = (model.nlink, model.nq, model.nu, model.nshape, model.nlimit, model.nfriction)
    links = layout.equality_start(*sizes) + model.nequality * layout.EQUALITY
    return links, links + model.nlink * layout.SOFT_LINK
