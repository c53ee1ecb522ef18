"""Films draw as much detail as their pixels show, and shadows without speckles."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_pictures import RENDERERS

import backdrive as bd
from backdrive.model.looks import Mesh, Visual
from backdrive.view import animate, picture
from backdrive.view.spatial import renderer
from backdrive.view.spatial.cameras import looking
from backdrive.view.spatial.detail import APART, coarse
from backdrive.view.spatial.marks import NONE
from backdrive.view.spatial.shapes import solid_of


def blob(rings: int, radius: float, bumps: float, seed: int) -> Visual:
    """A fine mesh: a ball with bumps."""
    polar, around = np.meshgrid(np.linspace(0.0, np.pi, rings), np.linspace(0, 2 * np.pi, 2 * rings), indexing="ij")
    phases = np.random.default_rng(seed).uniform(0.0, 6.0, 2)
    far = radius * (1.0 + bumps * np.sin(3 * polar + phases[0]) * np.sin(polar) * np.cos(2 * around + phases[1]))
    way = np.stack([np.sin(polar) * np.cos(around), np.sin(polar) * np.sin(around), np.cos(polar)], -1)
    corner = (np.arange(rings - 1)[:, None] * 2 * rings + np.arange(2 * rings - 1)).ravel()
    first = np.stack([corner, corner + 2 * rings, corner + 2 * rings + 1], 1)
    second = np.stack([corner, corner + 2 * rings + 1, corner + 1], 1)
    mesh = Mesh((far[..., None] * way).reshape(-1, 3).astype(np.float32), np.concatenate([first, second]))
    return Visual("blob", 0, "mesh", (1.0, 1.0, 1.0), np.zeros(3), np.eye(3), (0.9, 0.3, 0.1, 1.0), mesh)


@settings(max_examples=20, deadline=None, derandomize=True)
@given(st.integers(60, 120), st.floats(0.01, 10.0), st.floats(0.0, 0.4), st.integers(0, 99), st.floats(0.003, 0.2))
def test_a_coarse_mesh_stays_within_a_cell_of_the_fine_one(rings, radius, bumps, seed, relative):
    fine = blob(rings, radius, bumps, seed)
    pixel = relative * radius
    (made,) = coarse([fine], np.array([pixel]))
    assert made.mesh is not None and len(made.mesh.faces) <= len(fine.mesh.faces)
    cell = APART * pixel
    for point in made.mesh.vertices[:: max(1, len(made.mesh.vertices) // 50)]:  # the mean of what was in its cell
        assert np.linalg.norm(fine.mesh.vertices - point, axis=1).min() <= cell * np.sqrt(3.0)
    normals = np.linalg.norm(made.mesh.normals, axis=1)
    assert np.abs(normals - 1.0).max() < 1e-5
    assert np.array_equal(np.unique(made.mesh.faces), np.arange(len(made.mesh.vertices)))
    if relative > 4.0 * np.pi / rings:
        assert len(made.mesh.faces) < 0.2 * len(fine.mesh.faces)


def test_edges_stay_sharp_and_small_meshes_as_they_are():
    grid = np.linspace(-1.0, 1.0, 40)
    corner = (np.arange(39)[:, None] * 40 + np.arange(39)).ravel()
    square = np.concatenate(
        [np.stack([corner, corner + 1, corner + 41], 1), np.stack([corner, corner + 41, corner + 40], 1)]
    )
    x, y = np.meshgrid(grid, grid)
    top = np.stack([x, y, np.ones_like(x)], -1).reshape(-1, 3)
    faces, sides = [], []
    for k, turn in enumerate(([0, 1, 2], [1, 2, 0], [2, 0, 1])):  # three sides of a cube that share no vertices
        sides.append(top[:, turn])
        faces.append(square + 1600 * k)
    mesh = Mesh(np.concatenate(sides).astype(np.float32), np.concatenate(faces).astype(np.int32))
    cube = Visual("cube", 0, "mesh", (1.0, 1.0, 1.0), np.zeros(3), np.eye(3), (0.5, 0.5, 0.5, 1.0), mesh)
    (made,) = coarse([cube], np.array([0.1]))
    solid = solid_of(made)
    assert len(solid.faces) < 0.2 * len(mesh.faces)
    flat = np.abs(solid.normals).max(1)
    assert flat.min() > 0.999, "a normal of the cube is that of two sides"
    small = blob(12, 1.0, 0.0, 0)
    assert coarse([small], np.array([1.0]))[0] is small


@pytest.mark.parametrize("which", RENDERERS)
def test_a_coarse_film_looks_as_a_fine_one(which):
    fine = blob(150, 0.4, 0.3, 1)
    eye = np.array([2.0, -2.0, 1.0])
    view = looking(eye, np.zeros(3), np.array([0.0, 0.0, 1.0]), 40.0, 1.0)
    pixel = 2.0 * np.tan(np.radians(20.0)) / 120 * (np.linalg.norm(eye) - 0.5)
    made = coarse([fine], np.array([pixel]))
    assert len(made[0].mesh.faces) < 0.25 * len(fine.mesh.faces)
    images = []
    for visuals in ([fine], made):
        drawn = renderer(visuals, 160, 120, which)
        images.append(drawn.image(np.zeros((1, 3)), np.eye(3)[None], view, NONE).astype(float))
        drawn.close()
    difference = np.abs(images[0] - images[1]).max(2)
    assert difference.mean() < 1.5 and (difference > 60.0).mean() < 0.004


def test_films_of_robots_with_fine_meshes_draw_fewer_triangles(tmp_path):
    """Stills have them all."""
    fine = blob(100, 0.3, 0.2, 3).mesh
    lines = [
        *(f"v {x} {y} {z}" for x, y, z in fine.vertices.tolist()),
        *(f"f {a} {b} {c}" for a, b, c in fine.faces + 1),
    ]
    (tmp_path / "blob.obj").write_text("\n".join(lines))
    (tmp_path / "robot.xml").write_text(
        '<mujoco><asset><mesh name="blob" file="blob.obj"/></asset><worldbody><body name="trunk"><freejoint/>'
        '<geom type="mesh" mesh="blob" contype="0" conaffinity="0"/><geom type="sphere" size="0.1" group="3"/></body>'
        "</worldbody></mujoco>"
    )
    model = bd.load(tmp_path / "robot.xml")
    film = animate(model, turntable=1.0, size=(64, 48), renderer="software")
    film.fine = False
    drawn = sum(len(v.mesh.faces) for v in film._visuals() if v.mesh is not None)
    assert drawn < 0.2 * len(fine.faces)
    assert film.frame(0).std() > 5.0
    film.close()


@pytest.mark.skipif("opengl" not in RENDERERS, reason="there is no OpenGL")
@pytest.mark.parametrize("height", [0.3, 1.0])
def test_a_floor_has_no_speckles(height):
    """Nothing on a plain floor is darker than all that is around it, but for the shadow and the ball."""
    scene = bd.load(
        '<mujoco><asset><texture name="t" type="2d" builtin="flat" rgb1=".7 .7 .7" width="8" height="8"/>'
        '<material name="m" texture="t"/></asset><worldbody><geom type="plane" size="0 0 1" material="m"/>'
        f'<body pos="0 0 {height}"><freejoint/><geom type="sphere" size="0.2" rgba="1 0 0 1"/></body>'
        "</worldbody></mujoco>"
    )
    film = animate(scene, turntable=1.0, fps=4, size=(320, 240), renderer="opengl")
    for image in [picture(scene, size=(320, 240), renderer="opengl"), *film.images()]:
        light = image.astype(int).max(2)
        inner = light[1:-1, 1:-1]
        around = np.stack([light[:-2, 1:-1], light[2:, 1:-1], light[1:-1, :-2], light[1:-1, 2:]])
        assert (inner < around.min(0) - 6).sum() < 40  # at the edges of the ball and of its shadow
        assert light.max() - light.min() > 30  # there is a shadow
