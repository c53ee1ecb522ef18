"""A model's bodies and shapes, as the stages of one big world see them."""

from __future__ import annotations

import numpy as np

from ..model import Model
from ..model.shapes import BOUND, SHAPE_KINDS
from ..physics.geometry.pairs import PAIRS
from ..schema import layout
from ..schema.layout import ShapeKind
from .bodies import KIND, BodyForm
from .contacts import MATTER, STUFF

Array = np.ndarray


def unsupported(model: Model) -> str | None:
    """Why a model has no sparse form; None if it has one."""
    if model.nu:
        return "it has motors"
    if model.nlimit or model.nfriction:
        return "it has joints with limits or friction"
    if model.nequality:
        return "it has loops or other constraints between bodies"
    if model.nlink == 0 or (model.parent >= 0).any() or (model.kind != KIND[model.dim]).any():
        return f"it has bodies with joints other than {KIND[model.dim].name.lower()} ones to the world"
    return None


class Tables:
    """What of a model does not change in a rollout, whatever its parameters are.

    Shapes are in an order of their own, planes last: shape i here is shape order[i] of the model. body: of each shape;
    0 is the world, and link k is body k + 1. size (m), lightness (1/kg): scales, as in `physics.tables`.
    """

    def __init__(self, model: Model) -> None:
        self.model = model
        kind = model.shape_kind
        self.order = np.argsort(kind == ShapeKind.PLANE, kind="stable")
        self.kind = kind[self.order]
        self.nshape, self.nsolid = len(kind), int((kind != ShapeKind.PLANE).sum())
        self.body = model.shape_link[self.order] + 1
        self.nbody = model.nlink
        self.floats = model.hull_geometry
        self.bounds, self.size = self._bounds()
        mass = model.constants[: model.nlink * layout.LINK].reshape(-1, layout.LINK)[:, layout.MASS]
        self.lightness = np.concatenate([[0.0], 1.0 / mass])
        self.touching = self._touching()
        self._classes()

    def _touching(self) -> Array:
        """Whether two shapes may touch: bool [nshape, nshape], symmetric."""
        place = np.argsort(self.order)
        table = np.zeros((self.nshape, self.nshape), bool)
        a, b = place[self.model.pairs].T if self.model.npair else np.zeros((2, 0), int)
        table[a, b] = table[b, a] = True
        return table

    def _bounds(self) -> tuple[Array, Array]:
        """BOUND numbers and the radius of every shape (of planes: infinite)."""
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
        """shapes of one class have the same kind and hull: hulls [class], class_of each shape."""
        rows = np.column_stack([self.kind, self.model.shape_hull[self.order]])
        unique, shape_class = np.unique(rows, axis=0, return_inverse=True)
        self.shape_class = shape_class.reshape(-1)
        self.nclass = len(unique)
        self.class_kind = [ShapeKind(row[0]) for row in unique.tolist()]
        self.class_hull = [tuple(row[1:]) for row in unique.tolist()]
        self.class_cube = [self._is_cube(*place) for place in zip(self.class_kind, self.class_hull, strict=True)]
        known = PAIRS[self.model.dim]
        self.slots = np.array(
            [known[k].slots if (k := (a, b)) in known else 0 for a in self.class_kind for b in self.class_kind],
            dtype=np.int64,
        )

    def _is_cube(self, kind: ShapeKind, hull: tuple[int, ...]) -> bool:
        """Whether a hull is that of boxes in 3D."""
        first, count = hull[:2]
        corners = self.floats[first : first + 3 * count]
        return self.model.dim == 3 and kind == ShapeKind.HULL and count == 8 and bool((abs(corners) == 0.5).all())


class Numbers:
    """The constants of one world, as the stages read them.

    links: [nbody, n] those of a model of one link each; records: [nshape, SHAPE]; matter: [nshape + 1, MATTER], a last
    row for contacts that are none.
    """

    def __init__(self, tables: Tables, form: BodyForm, constants: Array) -> None:
        model = tables.model
        n, dtype = model.nlink, constants.dtype
        start = layout.shape_start(n, model.nq, model.nu)
        gravity = layout.gravity_start(n, model.nq, model.nu)
        links = constants[: n * layout.LINK].reshape(n, layout.LINK)
        reference = constants[layout.reference_start(n) :][: model.nq].reshape(n, form.nq)
        weight = np.broadcast_to(constants[gravity : gravity + layout.GRAVITY], (n, layout.GRAVITY))
        self.links = np.concatenate([links, reference, weight], axis=1)
        records = constants[start : start + model.nshape * layout.SHAPE].reshape(-1, layout.SHAPE)
        self.records = records[tables.order]
        self.matter = np.zeros((tables.nshape + 1, MATTER), dtype)
        self.matter[:-1, :STUFF] = self.records[:, layout.FRICTION : layout.FRICTION + STUFF]
        self.matter[:-1, STUFF] = tables.size
        self.matter[:-1, STUFF + 1] = tables.lightness[tables.body]
        self.matter[:-1, STUFF + 2] = tables.body == 0

    @staticmethod
    def pull_back(tables: Tables, form: BodyForm, links_bar: Array, records_bar: Array) -> Array:
        """The gradient with respect to the constants, from those with respect to links and records."""
        model = tables.model
        n = model.nlink
        bar = np.zeros(len(model.constants), links_bar.dtype)
        start = layout.shape_start(n, model.nq, model.nu)
        gravity = layout.gravity_start(n, model.nq, model.nu)
        own = links_bar[:, : layout.LINK].copy()
        own[:, layout.ROTATION : layout.ROTATION + 9] = 0.0  # no parameter
        bar[: n * layout.LINK] = own.ravel()
        bar[layout.reference_start(n) :][: model.nq] = links_bar[:, layout.LINK : layout.LINK + form.nq].ravel()
        bar[gravity : gravity + layout.GRAVITY] = links_bar[:, layout.LINK + form.nq :].sum(0)
        shapes = bar[start : start + model.nshape * layout.SHAPE].reshape(-1, layout.SHAPE)
        shapes[tables.order] = records_bar
        return bar
