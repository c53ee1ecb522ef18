import math

import mujoco
import numpy as np
import pytest

from backdrive.model import Box, Capsule, Circle, Convex, Cylinder, HalfSpace, Polygon, Scene, Sphere
from backdrive.model.rotations import from_quaternion

CUBE = [[x, y, z] for x in (0.0, 0.1) for y in (0.0, 0.7) for z in (0.0, 1 / 3)]
HOUSE = [(0.0, 0.0), (1.0, 0.0), (1.2, 0.5), (0.5, 1.5), (-0.1, 0.4)]


@pytest.mark.parametrize(
    ("shape", "geom"),
    [
        (Sphere(0.3), {"type": mujoco.mjtGeom.mjGEOM_SPHERE, "size": [0.3, 0, 0]}),
        (Box(0.2, 0.4, 0.7), {"type": mujoco.mjtGeom.mjGEOM_BOX, "size": [0.1, 0.2, 0.35]}),
        (Capsule(0.1, 0.6), {"type": mujoco.mjtGeom.mjGEOM_CAPSULE, "size": [0.1, 0.3, 0]}),
        (Cylinder(0.1, 0.6), {"type": mujoco.mjtGeom.mjGEOM_CYLINDER, "size": [0.1, 0.3, 0]}),
    ],
    ids=lambda value: type(value).__name__,
)
def test_solids_weigh_what_mujoco_says(shape, geom):
    spec = mujoco.MjSpec()
    spec.worldbody.add_body().add_geom(density=700.0, **geom)
    model = spec.compile()
    axes = from_quaternion(model.body_iquat[1])
    mass = 700.0 * shape.volume
    assert mass == pytest.approx(model.body_mass[1], rel=1e-13)
    expected = axes @ np.diag(model.body_inertia[1]) @ axes.T
    np.testing.assert_allclose(shape.inertia(mass), expected, rtol=1e-12, atol=1e-12)


def test_a_hull_weighs_what_its_solid_does():
    hull = Convex(np.array(CUBE + [[0.05, 0.3, 0.1]]))
    box = Box(0.1, 0.7, 1 / 3)
    assert hull.volume == pytest.approx(box.volume, rel=1e-13)
    np.testing.assert_allclose(hull.center, [0.05, 0.35, 1 / 6], rtol=1e-13)
    np.testing.assert_allclose(hull.inertia(2.0), box.inertia(2.0), rtol=1e-12, atol=1e-15)


def test_the_hull_of_many_points_approaches_a_ball():
    rng = np.random.default_rng(0)
    points = rng.normal(size=(4000, 3))
    ball = Convex(points / np.linalg.norm(points, axis=1, keepdims=True) + [3.0, 0.0, 0.0])
    assert ball.volume == pytest.approx(Sphere(1.0).volume, rel=1e-2)
    np.testing.assert_allclose(ball.center, [3.0, 0.0, 0.0], atol=1e-3)
    np.testing.assert_allclose(ball.inertia(1.0), Sphere(1.0).inertia(1.0), atol=5e-3)


@pytest.mark.parametrize("shape", [Circle(0.7), Box(0.8, 0.5), Polygon(HOUSE)], ids=lambda s: type(s).__name__)
def test_flat_shapes_by_numerical_integration(shape):
    step = 2e-3
    x, y = np.meshgrid(*(np.arange(-1.0, 2.0, step) + step / 2,) * 2)
    if isinstance(shape, Circle):
        inside = x**2 + y**2 < shape.radius**2
    elif isinstance(shape, Box):
        inside = (abs(x) < 0.4) & (abs(y) < 0.25)
    else:
        inside = np.ones_like(x, dtype=bool)
        for (ax, ay), (bx, by) in zip(HOUSE, HOUSE[1:] + HOUSE[:1], strict=True):
            inside &= (bx - ax) * (y - ay) - (by - ay) * (x - ax) > 0
    area = inside.sum() * step**2
    center = np.array([x[inside].mean(), y[inside].mean()])
    spread = ((x[inside] - center[0]) ** 2 + (y[inside] - center[1]) ** 2).mean()
    assert shape.volume == pytest.approx(area, rel=1e-3)
    np.testing.assert_allclose(shape.center[:2], center, atol=1e-3)
    assert shape.inertia(3.0)[2, 2] == pytest.approx(3.0 * spread, rel=1e-3)


def test_a_polygon_far_from_the_origin_keeps_its_digits():
    square = Polygon([(1e6, 1e6), (1e6 + 1, 1e6), (1e6 + 1, 1e6 + 1), (1e6, 1e6 + 1)])
    assert square.inertia(1.0)[2, 2] == pytest.approx(1 / 6, rel=1e-12)


def test_clockwise_polygons_are_turned_round():
    clockwise = Polygon(HOUSE[::-1])
    assert clockwise.volume == pytest.approx(Polygon(HOUSE).volume)
    assert clockwise.volume > 0.0


def test_several_shapes_make_one_body():
    """Two boxes side by side are one longer box."""
    scene = Scene(dim=3)
    scene.add_body("bar", density=500.0, position=(1.0, 2.0, 3.0))
    turned = (math.sqrt(0.5), 0.0, 0.0, math.sqrt(0.5))
    scene.add_shape("bar", Box(1.0, 0.2, 0.3), position=(0.5, 0.0, 0.0))
    scene.add_shape("bar", Box(0.2, 1.0, 0.3), position=(1.5, 0.0, 0.0), quaternion=turned)
    model = scene.build()
    whole = Box(2.0, 0.2, 0.3)
    mass = 500.0 * whole.volume
    assert model.parameter("mass").item() == pytest.approx(mass)
    np.testing.assert_allclose(model.parameter("com")[0], [1.0, 0.0, 0.0], atol=1e-15)
    expected = [*np.diag(whole.inertia(mass)), 0.0, 0.0, 0.0]
    np.testing.assert_allclose(model.parameter("inertia")[0], expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: Circle(0.0), ValueError, "Circle radius must be > 0"),
        (lambda: Circle(float("nan")), ValueError, "Circle radius must be finite"),
        (lambda: Circle("big"), TypeError, "Circle radius must be a number"),
        (lambda: Sphere(-1.0), ValueError, "Sphere radius must be > 0, got -1"),
        (lambda: Box(1.0), ValueError, "Box takes 2 sizes in 2D or 3 in 3D"),
        (lambda: Box(1.0, 0.0), ValueError, "Box size 1 must be > 0"),
        (lambda: Box((1.0, 2.0), 1.0), TypeError, "Box size 0 must be a number"),
        (lambda: Capsule(0.1, 0.0), ValueError, "Capsule length must be > 0"),
        (lambda: Cylinder(0.1, float("inf")), ValueError, "Cylinder length must be finite"),
        (lambda: Polygon([(0, 0), (1, 0)]), ValueError, "n >= 3"),
        (lambda: Polygon([(0, 0), (1, 0), (2, 0)]), ValueError, "convex polygon"),
        (lambda: Polygon([(0, 0), (2, 0), (0.2, 0.2), (0, 2)]), ValueError, "convex polygon"),
        (lambda: Polygon([(math.cos(4 * math.pi * k / 5), math.sin(4 * math.pi * k / 5)) for k in range(5)]),
         ValueError, "convex polygon"),
        (lambda: Polygon([(0, 0), (1, 0), (1, float("nan"))]), ValueError, "must be finite"),
        (lambda: HalfSpace((0, 0)), ValueError, "HalfSpace normal must not have zero length"),
        (lambda: HalfSpace((1, 0, 0, 0)), ValueError, "2 or 3 elements"),
        (lambda: HalfSpace((0, 1), offset=None), TypeError, "HalfSpace offset must be a number"),
        (lambda: HalfSpace((0, 1)).inertia(1.0), ValueError, "infinite"),
        (lambda: Convex([[0, 0, 0], [1, 0, 0], [0, 1, 0]]), ValueError, "n >= 4"),
        (lambda: Convex([[0, 0, 0], [1, 0, 0], [0, 1, 0], [1, 1, 0]]), ValueError, "one plane"),
        (lambda: Convex([[0, 0], [1, 0], [0, 1], [1, 1]]), ValueError, r"\[n, 3\]"),
    ],
)  # fmt: skip
def test_bad_sizes(make, error, message):
    with pytest.raises(error, match=message):
        make()


def test_shapes_are_values():
    assert Box(1, 2) == Box(1.0, 2.0)
    assert hash(Circle(1.0)) == hash(Circle(1))
    assert HalfSpace((0, 2)).normal == (0.0, 1.0)
