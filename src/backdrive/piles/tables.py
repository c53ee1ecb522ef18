"""The bodies and shapes of a model, as the stages of a pile read them."""

from __future__ import annotations

import numpy as np

from ..model import Model
from ..model.shapes import BOUND, SHAPE_KINDS
from ..physics.geometry.pairs import PAIRS
from ..schema import layout
from ..schema.layout import FLOATING, ShapeKind
from .bodies import BodyForm
from .records import SHAPE_MATERIAL

Array = np.ndarray
SURFACE = slice(layout.FRICTION, layout.SHAPE)  # friction, restitution and softness in the constants of a shape


def unsupported(model: Model) -> str | None:
    """Why a model cannot be stepped as a pile; None if it can."""
    if model.nu:
        return "it has motors"
    if model.nlimit or model.nfriction:
        return "it has joints with limits or friction"
    if model.nequality:
        return "it has loops or other constraints between bodies"
    if model.nlink == 0 or (model.parent >= 0).any() or (model.kind != FLOATING[model.dim]).any():
        return f"it has bodies with joints other than {FLOATING[model.dim].name.lower()} ones to the world"
    return None


class PileTables:
    """Numbers of a model that do not depend on its parameters.

    Shapes are sorted, planes last: shape i here is shape order[i] of the model. body: of each shape; 0 is the world,
    and link k is body k + 1. size (m): radius of each shape; inverse_mass (1/kg): of each body; both are those of the
    model as it was built, and only set scales. touching [nshape, nshape]: which shapes may touch. Shapes of one class
    have the same kind and hull: class_kind, class_hull, class_is_box. slots [class, class]: for contact points of a
    pair.
    """

    def __init__(self, model: Model) -> None:
        self.model = model
        kind = model.shape_kind
        self.order = np.argsort(kind == ShapeKind.PLANE, kind="stable")
        self.kind, self.rank = kind[self.order], self._rank()
        self.nshape, self.nsolid = len(kind), int((kind != ShapeKind.PLANE).sum())
        self.body = model.shape_link[self.order] + 1
        self.nbody = model.nlink
        self.floats = model.hull_geometry
        self.bounds, self.size = self._bounds()
        mass = model.constants[: model.nlink * layout.LINK].reshape(-1, layout.LINK)[:, layout.MASS]
        self.inverse_mass = np.concatenate([[0.0], 1.0 / mass])
        self.touching = self._touching()
        self._classes()

    def _rank(self) -> Array:
        """The order of the two shapes of a pair: the first is the one of lower rank."""
        kind = self.model.shape_kind[self.order].astype(np.int64)
        return kind * len(kind) + np.arange(len(kind))

    def _touching(self) -> Array:
        """Whether two shapes may touch: bool [nshape, nshape], symmetric."""
        place = np.argsort(self.order)
        table = np.zeros((self.nshape, self.nshape), bool)
        a, b = place[self.model.pairs].T if self.model.npair else np.zeros((2, 0), int)
        table[a, b] = table[b, a] = True
        return table

    def _bounds(self) -> tuple[Array, Array]:
        """The BOUND numbers and the radius (m) of every shape; that of a plane is infinite."""
        model = self.model
        start = layout.shape_start(model.nlink, model.nq, model.nu)
        records = model.constants[start : start + model.nshape * layout.SHAPE].reshape(-1, layout.SHAPE)
        bounds, sizes = np.zeros((self.nshape, BOUND)), np.full(self.nshape, np.inf)
        for i, shape in enumerate(self.order.tolist()):
            kind, (first, count, *_) = ShapeKind(model.shape_kind[shape]), model.shape_hull[shape].tolist()
            vertices = self.floats[first : first + 3 * count].reshape(-1, 3)
            bounds[i] = SHAPE_KINDS[kind].bound_factors(vertices)
            sizes[i] = SHAPE_KINDS[kind].bounding_radius(records[shape, layout.SIZE : layout.SIZE + 3], vertices)
        return bounds, sizes

    def _classes(self) -> None:
        """Find the classes of shapes."""
        rows = np.column_stack([self.kind, self.model.shape_hull[self.order]])
        unique, shape_class = np.unique(rows, axis=0, return_inverse=True)
        self.shape_class = shape_class.reshape(-1)
        self.nclass = len(unique)
        self.class_kind = [ShapeKind(row[0]) for row in unique.tolist()]
        self.class_hull = [tuple(row[1:]) for row in unique.tolist()]
        self.class_is_box = [self._is_box(*place) for place in zip(self.class_kind, self.class_hull, strict=True)]
        known = PAIRS[self.model.dim]
        self.slots = np.array(
            [known[k].slots if (k := (a, b)) in known else 0 for a in self.class_kind for b in self.class_kind],
            dtype=np.int64,
        )

    def _is_box(self, kind: ShapeKind, hull: tuple[int, ...]) -> bool:
        """Whether a hull is that of a box in 3D."""
        first, count = hull[:2]
        corners = self.floats[first : first + 3 * count]
        return self.model.dim == 3 and kind == ShapeKind.HULL and count == 8 and bool((abs(corners) == 0.5).all())


class PileConstants:
    """The constants of one world, as the stages read them.

    links [nbody, n]: constants of a model with one link, for each body. records [nshape, SHAPE]: of the shapes.
    materials [nshape + 1, SHAPE_MATERIAL]: of the shapes; a last row, zero, is for empty cells.
    """

    def __init__(self, tables: PileTables, form: BodyForm, constants: Array) -> None:
        self.tables, self.form, model = tables, form, tables.model
        n, dtype = model.nlink, constants.dtype
        start = layout.shape_start(n, model.nq, model.nu)
        gravity = layout.gravity_start(n, model.nq, model.nu)
        links = constants[: n * layout.LINK].reshape(n, layout.LINK)
        reference = constants[layout.reference_start(n) :][: model.nq].reshape(n, form.nq)
        weight = np.broadcast_to(constants[gravity : gravity + layout.GRAVITY], (n, layout.GRAVITY))
        self.links = np.concatenate([links, reference, weight], axis=1)
        records = constants[start : start + model.nshape * layout.SHAPE].reshape(-1, layout.SHAPE)
        self.records = records[tables.order]
        self.materials = np.zeros((tables.nshape + 1, SHAPE_MATERIAL.size), dtype)
        shapes = self.materials[:-1]
        shapes[:, SHAPE_MATERIAL["surface"]] = self.records[:, SURFACE]
        shapes[:, SHAPE_MATERIAL.first("size")] = tables.size
        shapes[:, SHAPE_MATERIAL.first("inverse_mass")] = tables.inverse_mass[tables.body]
        shapes[:, SHAPE_MATERIAL.first("static")] = tables.body == 0

    def vjp(self, links_bar: Array, records_bar: Array) -> Array:
        """The cotangent of the model's constants, from those of links and records."""
        tables, form, model = self.tables, self.form, self.tables.model
        n = model.nlink
        bar = np.zeros(len(model.constants), links_bar.dtype)
        start = layout.shape_start(n, model.nq, model.nu)
        gravity = layout.gravity_start(n, model.nq, model.nu)
        own = links_bar[:, : layout.LINK].copy()
        own[:, layout.ROTATION : layout.ROTATION + 9] = 0.0  # is not a parameter
        bar[: n * layout.LINK] = own.ravel()
        bar[layout.reference_start(n) :][: model.nq] = links_bar[:, layout.LINK : layout.LINK + form.nq].ravel()
        bar[gravity : gravity + layout.GRAVITY] = links_bar[:, layout.LINK + form.nq :].sum(0)
        shapes = bar[start : start + model.nshape * layout.SHAPE].reshape(-1, layout.SHAPE)
        shapes[tables.order] = records_bar[:, : layout.SHAPE]
        return bar
