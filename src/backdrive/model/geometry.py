"""The tables that collision reads of a model's shapes: kinds, records of numbers, and hulls that shapes share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ..schema import layout
from ..schema.layout import ShapeKind
from .shapes import SHAPE_KINDS, PlacedShape

Array = np.ndarray


class ShapeTables(NamedTuple):
    """The shapes of a model. kind [nshape], hull_geometry, shape_hull [nshape, 6]: as in `Model`; records
    [nshape, SHAPE]: their part of the model's constants."""

    kind: Array
    records: Array
    hull_geometry: Array
    shape_hull: Array


def size_names(dim: int, kind: int) -> tuple[str, ...]:
    """Names of the numbers in a shape's SIZE; a hull has a scale factor for each of the `dim` axes."""
    return SHAPE_KINDS[ShapeKind(kind)].size_names[:dim]


def shape_tables(shapes: Sequence[PlacedShape]) -> ShapeTables:
    """Tables of shapes placed in their link's frame (half-spaces: in the world's frame)."""
    pool: list[Array] = []
    stored = 0
    entries: dict[bytes, tuple[int, ...]] = {}  # offset and count of each table of a hull, by the hull's numbers
    rows = np.zeros((len(shapes), 6), dtype=np.int64)
    for row, placed in zip(rows, shapes, strict=True):
        tables = placed.shape.hull()
        if tables is None:
            continue
        key = b"|".join(table.tobytes() for table in tables)
        if key not in entries:
            entry: list[int] = []
            for table in tables:
                entry += [stored, len(table)]
                pool.append(table.ravel())
                stored += table.size
            entries[key] = tuple(entry)
        row[:] = entries[key]
    return ShapeTables(
        np.array([placed.shape.kind for placed in shapes], dtype=np.int64),
        np.array([placed.record() for placed in shapes]).reshape(len(shapes), layout.SHAPE),
        np.concatenate([np.zeros(0), *pool]),
        rows,
    )
