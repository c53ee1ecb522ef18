"""The tables that collision reads of shapes: records, and the vertices, faces and edges of hulls."""

import math

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from records import shape_records

import backdrive.model as bd
from backdrive.model.hull import CYLINDER_SIDES, HULL_VERTICES, HullTables, convex_tables
from backdrive.schema import layout
from backdrive.schema.layout import ShapeKind


def tables_of(model: bd.Model, shape: str) -> HullTables:
    row = model.shape_hull[model.shape_index(shape)]
    parts = [
        model.hull_geometry[start : start + count * width].reshape(count, width)
        for start, count, width in zip(row[::2], row[1::2], (3, 6, 12), strict=True)
    ]
    return HullTables(*parts)


def build(*shapes: bd.Shape) -> bd.Model:
    scene = bd.Scene(dim=shapes[0].dim)
    for i, shape in enumerate(shapes):
        scene.add_body(f"s{i}", shape, mass=1.0)
    return scene.build()


def check_polyhedron(tables: HullTables) -> None:
    """That the tables describe one closed convex solid."""
    vertices, faces, edges = tables
    scale = np.ptp(vertices, axis=0).max()
    normals, points = faces[:, :3], faces[:, 3:]
    assert len(vertices) - len(edges) + len(faces) == 2
    np.testing.assert_allclose(np.linalg.norm(normals, axis=1), 1.0, rtol=1e-12)
    heights = vertices @ normals.T - np.einsum("ij,ij->i", normals, points)
    assert heights.max() < 1e-12 * (scale + np.abs(vertices).max())
    on_face = heights > -2e-6 * scale
    assert (on_face.sum(0) >= 3).all() and (on_face.sum(1) >= 3).all()
    # No two faces are one plane, and no edge is twice there.
    assert len(np.unique(faces[:, :3].round(9), axis=0)) == len(faces)
    ends = np.sort([[np.abs(vertices - end).sum(1).argmin() for end in (e[:3], e[3:6])] for e in edges], axis=1)
    assert len(np.unique(ends, axis=0)) == len(edges) and (ends[:, 0] < ends[:, 1]).all()
    for (a, b), edge in zip(ends, edges, strict=True):
        np.testing.assert_array_equal(np.sort(vertices[[a, b]], axis=0), np.sort(edge[:6].reshape(2, 3), axis=0))
        sides = [np.abs(normals - normal).sum(1).argmin() for normal in (edge[6:9], edge[9:])]
        assert sides[0] != sides[1]
        np.testing.assert_array_equal(normals[sides].ravel(), edge[6:])
        assert on_face[np.ix_([a, b], sides)].all()
    degree = np.bincount(ends.ravel(), minlength=len(vertices))
    assert (degree >= 3).all()


def same_hull(vertices: np.ndarray, points: np.ndarray) -> None:
    """Both reach as far in every direction."""
    directions = np.random.default_rng(0).normal(size=(200, 3))
    reach = [(cloud @ directions.T).max(0) for cloud in (vertices, points)]
    np.testing.assert_allclose(*reach, rtol=0, atol=2e-6 * np.ptp(points, axis=0).max() * 3)


def test_a_box_is_a_cube_of_side_one():
    model = build(bd.Box(1, 2, 3), bd.Box(4, 5, 6))
    cube = tables_of(model, "s0")
    assert [len(part) for part in cube] == [8, 6, 12]
    assert sorted(map(tuple, cube.vertices)) == [
        (x, y, z) for x in (-0.5, 0.5) for y in (-0.5, 0.5) for z in (-0.5, 0.5)
    ]
    assert sorted(map(tuple, np.abs(cube.faces[:, :3]))) == sorted(map(tuple, np.repeat(np.eye(3), 2, axis=0)))
    np.testing.assert_array_equal(cube.faces[:, 3:], cube.faces[:, :3] / 2)
    check_polyhedron(cube)
    # Equal hulls are stored once; the size makes the difference.
    assert model.shape_hull[0].tolist() == model.shape_hull[1].tolist()
    assert len(model.hull_geometry) == 8 * 3 + 6 * 6 + 12 * 12
    records = shape_records(model)
    assert records[:, layout.SIZE : layout.SIZE + 3].tolist() == [[1, 2, 3], [4, 5, 6]]
    assert model.shape_kind.tolist() == [ShapeKind.HULL] * 2


def test_a_cylinder_has_a_prism():
    model = build(bd.Cylinder(0.2, 0.6))
    prism = tables_of(model, "s0")
    n = CYLINDER_SIDES
    assert [len(part) for part in prism] == [2 * n, n + 2, 3 * n]
    np.testing.assert_allclose(np.linalg.norm(prism.vertices[:, :2], axis=1), 1.0)
    assert set(prism.vertices[:, 2]) == {-0.5, 0.5}
    check_polyhedron(prism)
    assert shape_records(model)[0, layout.SIZE : layout.SIZE + 3].tolist() == [0.2, 0.6, 0.0]
    assert model.shape_kind.tolist() == [ShapeKind.CYLINDER]


def test_round_shapes_have_no_tables():
    model = build(bd.Sphere(0.3), bd.Capsule(0.1, 0.5))
    assert not model.shape_hull.any() and not len(model.hull_geometry)
    sizes = shape_records(model)[:, layout.SIZE : layout.SIZE + 3]
    assert sizes.tolist() == [[0.3, 0, 0], [0.1, 0.5, 0]]
    assert model.shape_kind.tolist() == [ShapeKind.SPHERE, ShapeKind.CAPSULE]


def test_flat_hulls():
    house = bd.Polygon([(0.0, 0.0), (0.0, 1.0), (0.5, 1.5), (1.0, 1.0), (1.0, 0.0)])  # clockwise
    model = build(house, bd.Box(2, 3), bd.Circle(0.4))
    polygon, square = (tables_of(model, name) for name in ("s0", "s1"))
    for tables in (polygon, square):
        assert not len(tables.faces) and not len(tables.edges) and not tables.vertices[:, 2].any()
        edges = np.roll(tables.vertices, -1, axis=0) - tables.vertices
        assert (np.cross(edges, np.roll(edges, -1, axis=0))[:, 2] > 0.0).all()
    assert np.abs(square.vertices[:, :2]).tolist() == [[0.5, 0.5]] * 4
    sizes = shape_records(model)[:, layout.SIZE : layout.SIZE + 3]
    assert sizes.tolist() == [[1, 1, 1], [2, 3, 1], [0.4, 0, 0]]
    assert model.shape_kind.tolist() == [ShapeKind.HULL, ShapeKind.HULL, ShapeKind.SPHERE]
    assert model.parameters()["size"].rows == ("s0.x", "s0.y", "s1.x", "s1.y", "s2.radius")


def test_half_spaces_are_planes_of_the_world():
    scene = bd.Scene(dim=3)
    half = math.sqrt(0.5)
    scene.add_body("ball", bd.Sphere(0.1), mass=1.0)
    turn = (half, 0.0, -half, 0.0)  # by -90 degrees about y: z becomes -x
    scene.add_static(bd.HalfSpace((0, 0, 2), offset=0.5), position=(3, 4, 5), quaternion=turn, friction=0.7)
    record = shape_records(scene.build())[1]
    np.testing.assert_allclose(record[layout.PLACE : layout.PLACE + 3], [-1, 0, 0], atol=1e-15)
    assert record[layout.SIZE] == pytest.approx(0.5 - 3.0) and record[layout.FRICTION] == 0.7
    flat = bd.Scene(dim=2)
    flat.add_body("ball", bd.Circle(0.1), mass=1.0)
    flat.add_static(bd.HalfSpace((0, 1)), angle=math.pi / 2, position=(2, 0))
    record = shape_records(flat.build())[1]
    np.testing.assert_allclose(record[layout.PLACE : layout.PLACE + 3], [-1, 0, 0], atol=1e-15)
    assert record[layout.SIZE] == pytest.approx(-2.0)


def test_places_and_materials():
    scene = bd.Scene(dim=2)
    scene.add_body("a", bd.Circle(0.1), mass=1.0, friction=math.inf, restitution=1.0, softness=0.2)
    scene.add_shape("a", bd.Box(1, 1), position=(1, 2), angle=math.pi / 2, friction=0.0)
    record = shape_records(scene.build())
    assert record[:, layout.FRICTION :].tolist() == [[math.inf, 1.0, 0.2], [0.0, 1.0, 0.2]]
    assert record[1, layout.PLACE : layout.PLACE + 3].tolist() == [1.0, 2.0, 0.0]
    turn = record[1, layout.TURN : layout.TURN + 9].reshape(3, 3)
    np.testing.assert_allclose(turn, [[0, -1, 0], [1, 0, 0], [0, 0, 1]], atol=1e-15)


def clouds() -> st.SearchStrategy[np.ndarray]:
    """Points in space: scattered, on a coarse grid (many in one plane, many in one line), or equal; any scale."""

    def make(seed: int, count: int, cells: int, stretch: tuple[float, float, float], shift: float) -> np.ndarray:
        rng = np.random.default_rng(seed)
        points = rng.integers(0, cells + 1, size=(count, 3)) if cells else rng.normal(size=(count, 3))
        return points * np.array(stretch) + shift

    scales = st.sampled_from([1.0, 0.03, 7.0])
    return st.builds(
        make,
        st.integers(0, 2**32 - 1),
        st.integers(4, 60),
        st.sampled_from([0, 1, 2, 3, 8]),
        st.tuples(scales, scales, scales),
        st.sampled_from([0.0, 1.0, -100.0]),
    )


@settings(max_examples=150, deadline=None)
@given(clouds())
def test_hulls_of_any_points(points):
    spread = np.linalg.svd(points - points.mean(0), compute_uv=False)
    assume(spread[2] > 1e-6 * spread[0])
    tables = convex_tables(points)
    check_polyhedron(tables)
    same_hull(tables.vertices, points)


def test_many_vertices_are_reduced():
    rng = np.random.default_rng(0)
    points = rng.normal(size=(2000, 3))
    points /= np.linalg.norm(points, axis=1, keepdims=True)
    tables = convex_tables(points)
    assert len(tables.vertices) == HULL_VERTICES
    check_polyhedron(tables)
    depth = np.einsum("ij,ij->i", tables.faces[:, :3], tables.faces[:, 3:])
    assert depth.min() > 0.85  # still nearly a ball


def test_a_mesh_that_is_a_box():
    corners = np.array([[x, y, z] for x in (0.0, 0.5, 1.0) for y in (0.0, 2.0) for z in (0.0, 1.5, 3.0)])
    tables = tables_of(build(bd.Convex(corners)), "s0")
    assert [len(part) for part in tables] == [8, 6, 12]


@pytest.mark.parametrize(
    "points",
    [
        [[0, 0, 0], [1, 0, 0], [0, 1, 0], [1, 1, 0], [0.5, 0.5, 0]],
        [[0, 0, 0], [1, 1, 1], [2, 2, 2], [3, 3, 3]],
        [[0, 0, 0]] * 5,
        [[0, 0, 0], [1, 0, 0], [0, 1, 0], [0, 1, 0], [1, 0, 0]],
    ],
    ids=["flat", "line", "point", "triangle"],
)
def test_hulls_without_volume_are_refused(points):
    with pytest.raises(ValueError, match="Convex vertices"):
        build(bd.Convex(points))


@pytest.mark.parametrize(
    "points",
    [
        [(0, 0), (1, 0), (2, 0), (1, 1)],
        [(0, 0), (1, 0), (1, 0), (0, 1)],
        [(0, 0), (1, 0), (1, 1), (0, 0)],
        [(0, 0), (0, 0), (0, 0)],
        [(0, 0), (1, 1), (1, 0), (0, 1)],
    ],
    ids=["collinear", "twice", "closed", "point", "bow tie"],
)
def test_polygons_that_are_none_are_refused(points):
    with pytest.raises(ValueError, match="convex polygon"):
        bd.Polygon(points)
