"""Pictures in space: things are where the camera says, with OpenGL and without; films, cameras, bad input."""

import functools
import sys
import warnings

import matplotlib
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import backdrive as bd
from backdrive.model.looks import Visual
from backdrive.view import Staging, animate, backends, draw, picture
from backdrive.view.spatial import renderer
from backdrive.view.spatial.cameras import looking
from backdrive.view.spatial.marks import NONE
from backdrive.view.spatial.opengl import NoOpenGL, open_context

matplotlib.use("Agg")

CAMERAS = """<mujoco>
  <worldbody>
    <geom type="plane" size="0 0 1"/>
    <camera name="side" pos="0 -6 1" xyaxes="1 0 0 0 0 1" fovy="40"/>
    <body name="cart" pos="0 0 1">
      <freejoint/>
      <geom type="box" size="0.3 0.2 0.1" rgba="0.9 0.1 0.1 1"/>
      <camera name="follow" mode="track" pos="0 -5 0" xyaxes="1 0 0 0 0 1"/>
      <camera name="watch" mode="targetbody" target="cart" pos="3 -3 2"/>
    </body>
  </worldbody>
</mujoco>"""


def works() -> bool:
    try:
        open_context(8, 8).free()
    except NoOpenGL:
        return False
    return True


RENDERERS = ["software", *(["opengl"] if works() else [])]


def test_opengl_works_here():
    """EGL (Debian: libegl1, libgl1-mesa-dri) is part of what the tests need."""
    assert works()


def falling(dim: int = 3) -> bd.Trajectory:
    scene = bd.Scene(dim=dim)
    scene.add_static(bd.HalfSpace(normal=(0, 0, 1) if dim == 3 else (0, 1)))
    for i in range(3):
        place = (0.5 * i, 0.0, 0.5) if dim == 3 else (0.5 * i, 0.5)
        scene.add_body(f"box {i}", bd.Box(*([0.2] * dim)), mass=1.0, position=place)
    model = scene.build()
    return bd.Simulator(model, 0.01, specialize=False).rollout(model.initial_state(2), steps=50)


@pytest.fixture(scope="module")
def path():
    return falling()


def colored(image: np.ndarray) -> np.ndarray:
    """Pixels (x, y) of what is red."""
    red, green, blue = image.astype(int).transpose(2, 0, 1)
    y, x = np.nonzero((red > 60) & (green < 0.4 * red) & (blue < 0.4 * red))
    return np.stack([x + 0.5, y + 0.5], 1)


@functools.cache
def red_ball(which: str):
    ball = Visual("ball", 0, "sphere", (0.08, 0.0, 0.0), np.zeros(3), np.eye(3), (0.9, 0.05, 0.05, 1.0))
    return renderer([ball], 320, 240, which)


@pytest.mark.parametrize("which", RENDERERS)
@settings(max_examples=8, deadline=None, derandomize=True)
@given(place=st.tuples(*[st.floats(-0.6, 0.6)] * 3), turn=st.floats(0.0, 6.28), height=st.floats(-0.5, 2.0))
def test_things_are_where_the_camera_says(which, place, turn, height):
    eye = np.array([4 * np.cos(turn), 4 * np.sin(turn), height])
    view = looking(eye, np.zeros(3), np.array([0.0, 0.0, 1.0]), 40.0, 2.0)
    found = colored(red_ball(which).image(np.array([place]), np.eye(3)[None], view, NONE))
    local = (np.array(place) - eye) @ view.axes
    focal = 120.0 / np.tan(np.radians(20.0))
    expected = [160.0 + focal * local[0] / -local[2], 120.0 - focal * local[1] / -local[2]]
    assert np.linalg.norm((found.min(0) + found.max(0)) / 2.0 - expected) < 2.0


@pytest.mark.skipif(len(RENDERERS) < 2, reason="there is no OpenGL")
def test_both_renderers_show_the_same(path):
    first, second = (picture(path.model, size=(160, 120), renderer=which).astype(float) for which in RENDERERS)
    assert np.abs(first - second).mean() < 25.0


@pytest.mark.parametrize("which", RENDERERS)
def test_films_show_motion_forces_and_trails(path, which):
    film = animate(path, fps=10, environment=1, size=(160, 120), renderer=which)
    assert len(film) == 6 and film.size == (160, 120)
    assert (np.abs(film.image(0.0).astype(int) - film.image(0.3)) > 40).any()
    with_trail = animate(path, fps=10, environment=1, size=(160, 120), renderer=which, trail=["box 1"])
    assert (np.abs(film.image(0.3).astype(int) - with_trail.image(0.3)) > 20).any()
    without = animate(path, fps=10, environment=1, size=(160, 120), renderer=which, forces=False)
    assert (np.abs(film.image(0.5).astype(int) - without.image(0.5)) > 20).any()
    np.testing.assert_array_equal(film.image(0.1), without.image(0.1))  # nothing touches yet
    for each in (film, with_trail, without):
        each.close()


def test_films_are_written(path, tmp_path):
    film = animate(path, tmp_path / "film.gif", fps=10, size=(64, 48), environment="all", renderer="software")
    assert film.file.stat().st_size > 500 and len(film) == 6
    turned = animate(path.model, fps=10, size=(64, 48), turntable=2.0, renderer="software")
    assert len(turned) == 20 and (turned.frame(0) != turned.frame(10)).any()
    flat = falling(2)
    assert animate(flat, fps=10, size=(64, 48), backend="film", renderer="software").frame(0).std() > 5.0


def test_a_still_goes_to_axes_and_files(path, tmp_path):
    ax = draw(path.model, file=tmp_path / "new" / "still.png", size=(64, 48), renderer="software")
    assert ax.images[0].get_array().shape == (48, 64, 3)
    from PIL import Image

    with Image.open(tmp_path / "new" / "still.png") as still:
        np.testing.assert_array_equal(np.asarray(still), ax.images[0].get_array())
    matplotlib.pyplot.close(ax.figure)


def test_cameras_of_the_file_follow_what_they_should():
    model = bd.load(CAMERAS)
    start = model.initial_state()
    start.v[0] = 2.0
    moved = bd.Simulator(model, 0.01, physics="mujoco").rollout(start, steps=30)
    seen = {}
    for camera in ("side", "follow", "watch"):
        film = animate(moved, fps=10, camera=camera, size=(160, 120), renderer="software", forces=False)
        middles = [colored(film.frame(k)).mean(0) for k in (0, len(film) - 1)]
        seen[camera] = middles[1][0] - middles[0][0]
    assert seen["side"] > 10.0 and abs(seen["follow"]) < 2.0 and abs(seen["watch"]) < 4.0
    tracked = animate(moved, fps=10, track="cart", size=(160, 120), renderer="software", forces=False)
    assert np.linalg.norm(colored(tracked.frame(1)).mean(0) - [80, 60]) < 8.0
    chosen = picture(model, colors={"cart": "blue"}, size=(64, 48), renderer="software")
    assert len(colored(chosen)) == 0


@pytest.mark.parametrize("which", RENDERERS)
def test_the_floor_is_where_the_robot_is(which):
    """What is below a body does not depend on how far it is from the origin."""
    model = bd.load(CAMERAS)
    pictures = []
    for x in (0.0, 48.0):
        state = model.initial_state()
        q = state.q.clone()
        q[0] = x
        shown = picture(model, bd.State(q, state.v), size=(64, 48), renderer=which)
        pictures.append(shown.astype(float).mean((0, 1)))
    np.testing.assert_allclose(pictures[1], pictures[0], atol=4.0)


def test_without_opengl_pictures_are_drawn_in_software(path, monkeypatch):
    for name in ("MUJOCO_GL", "DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    for module in ("mujoco.egl", "mujoco.osmesa"):
        monkeypatch.setitem(sys.modules, module, None)  # as if they could not be imported
    with pytest.warns(UserWarning, match="OpenGL does not work.*libegl1.*Pictures are drawn in software"):
        image = picture(path.model, size=(64, 48))
    assert image.shape == (48, 64, 3) and image.std() > 5.0
    with pytest.raises(NoOpenGL, match="Debian: libegl1"):
        picture(path.model, size=(64, 48), renderer="opengl")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        picture(path.model, size=(64, 48), renderer="software")


def test_bad_input_is_refused(path):
    for arguments, message in (
        ({"camera": "nowhere"}, "unknown camera 'nowhere'"),
        ({"track": "box 7"}, "did you mean 'box"),
        ({"size": (63, 48)}, "size must be even"),
        ({"size": 3}, r"size must be \(width, height\)"),
        ({"renderer": "opengi"}, "did you mean 'opengl'"),
        ({"limits": "all"}, "limits is for planar worlds"),
        ({"environment": 5}, "from 0 to 1, got 5"),
        ({"environment": "some"}, "environment must be a number"),
        ({"trail": ["box"]}, "unknown body 'box'"),
        ({"turntable": -1.0}, "turntable"),
        ({"backend": "movie"}, "unknown backend 'movie'"),
    ):
        with pytest.raises(ValueError, match=message):
            animate(path, **arguments)
    with pytest.raises(TypeError, match="did you mean 'camera'"):
        animate(path, camra="free")
    with pytest.raises(ValueError, match="camera is for spatial worlds"):
        animate(falling(2), camera="free")
    with pytest.raises(ValueError, match="draws planar worlds"):
        backends.find("planar").show(Staging.of(path, environments=0))
    model = bd.load(CAMERAS)
    still = bd.State(model.initial_state().q, model.initial_state().v)
    with pytest.raises(ValueError, match="contact forces cannot be shown"):
        animate(Staging.of(model, still), forces=True)


def test_what_is_not_finite_is_told(path):
    broken = falling()
    with torch.no_grad():
        broken.q[20:, 0, 0] = float("nan")
    with pytest.warns(UserWarning, match=r"environment 0 is not finite from t = 0.2 s on"):
        film = animate(broken, fps=10, size=(64, 48), renderer="software")
    assert film.frame(5).std() > 5.0
