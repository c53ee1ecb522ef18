"""Drawings show what is there; films have the right length; bad input is refused."""

import re

import matplotlib
import numpy as np
import pytest
import torch

import backdrive as bd
from backdrive.view import animate, draw
from backdrive.view.camera import limits
from backdrive.view.stage import frames as _frames
from backdrive.view.world import PlanarWorld, contains

matplotlib.use("Agg")
import matplotlib.pyplot as plt


def zoo() -> bd.Model:
    """Every planar shape, joint and constraint."""
    scene = bd.Scene(dim=2)
    scene.add_static(bd.HalfSpace(normal=(0, 1)), friction=0.5)
    scene.add_static(bd.Box(1.0, 0.1), position=(3.0, 0.4), angle=0.3)
    scene.add_body("ball", bd.Circle(0.2), mass=1.0, position=(0.0, 0.2), velocity=(0.5, 0.0))
    scene.add_body("stone", bd.Polygon([(0, 0), (0.4, 0), (0.1, 0.4)]), mass=1.0, position=(1.2, 0.0))
    scene.add_body("bob", bd.Circle(0.1), mass=1.0, position=(-1.0, 1.0), angle=0.3)
    scene.add_joint("string", bd.Hinge(), child="bob", anchor=(-1.5, 2.0), position=0.4, velocity=1.0)
    scene.add_body("cart", bd.Box(0.4, 0.2), mass=1.0, position=(-2.0, 0.5), angle=-0.2)
    scene.add_joint("rail", bd.Slider(axis=(1, 0.2)), child="cart", velocity=1.0)
    scene.add_body("arm", bd.Box(0.1, 0.4), mass=0.3, position=(-2.0, 0.8))
    scene.add_joint("elbow", bd.Hinge(), parent="cart", child="arm", anchor=(-2.0, 0.6))
    scene.add_body("tip", bd.Box(0.1, 0.1), mass=0.1, position=(-2.0, 1.05), angle=0.5)
    scene.add_joint("glue", bd.Fixed(), parent="arm", child="tip")
    scene.add_body("rider", bd.Circle(0.05), mass=0.1, position=(-1.6, 0.6))
    scene.add_joint("seat", bd.Planar(), parent="cart", child="rider", position=(0.1, 0.2, 0.3))
    scene.add_body("dust", mass=0.1, inertia=0.01, position=(0.5, 1.5))
    scene.add_constraint("rod", bd.Distance(), a="dust", anchor_b=(0.5, 2.0))
    return scene.build()


@pytest.fixture(scope="module")
def path():
    model = zoo()
    return bd.Simulator(model, dt=1 / 100, specialize=False).rollout(model.initial_state(batch=2), steps=50)


def test_poses_are_those_of_the_trajectory(path):
    world = PlanarWorld(path.model, path.model.constants)
    angle, position = world.poses(path.q[:, 1].numpy())
    for name, link in zip(path.model.bodies, path.model.body_link, strict=True):
        np.testing.assert_allclose(position[:, link], path.position(name)[:, 1], atol=1e-12)
        np.testing.assert_allclose(angle[:, link], path.orientation(name)[:, 1], atol=1e-12)


def test_parameters_of_the_rollout_are_drawn():
    scene = bd.Scene(dim=2)
    scene.add_body("ball", bd.Circle(0.2), mass=1.0)
    model = scene.build()
    size = torch.tensor([[0.5], [0.7]], dtype=torch.float64)
    sim = bd.Simulator(model, dt=0.1)
    moved = sim.rollout(model.initial_state(batch=2), steps=2, parameters={"size": size})
    film = animate(moved, environment=1)
    assert film._world.outlines[0].radius == 0.7


def test_a_still_has_every_shape_where_it_is(path):
    ax = draw(path.model, path[-1], environment=1)
    ax.figure.canvas.draw()
    balls = [p for p in ax.patches if isinstance(p, matplotlib.patches.Circle) and p.get_radius() == 0.2]
    (ball,) = balls
    inverse = ax.transData.inverted()
    center = inverse.transform(ball.get_transform().transform((0.0, 0.0)))  # of a unit circle
    np.testing.assert_allclose(center, path.position("ball")[-1, 1], atol=1e-9)
    assert ax.get_aspect() == 1.0
    plt.close(ax.figure)


def image(film, time: float) -> np.ndarray:
    return film.image(time).astype(int)


def test_films_show_motion_forces_and_trails(path):
    film = animate(path, fps=20, environment=1, trail=["bob"])
    assert len(film) == 11 and film.seconds == 0.55
    width, height = film.size
    assert width % 2 == 0 and height % 2 == 0 and film.image(0.0).shape == (height, width, 3)
    assert (image(film, 0.0) != image(film, 0.5)).any()
    red = (np.abs(image(film, 0.5) - [0xD1, 0x33, 0x2E]).sum(-1) < 30).sum()
    without = animate(path, fps=20, environment=1, trail=["bob"], forces=False)
    assert red > 50 and (np.abs(image(without, 0.5) - [0xD1, 0x33, 0x2E]).sum(-1) < 30).sum() == 0
    assert (image(animate(path, fps=20, environment=1, forces=False), 0.5) != image(without, 0.5)).any()
    assert re.match(r"Animation\(11 frames, 0.55 s at 20 fps, \d+ x \d+ pixels\)", repr(film))


def test_frames_drawn_on_a_kept_background_are_those_drawn_anew(path):
    film = animate(path, fps=10, trail=True)
    for k, frame in enumerate(film.images()):
        fresh = animate(path, fps=10, trail=True).image(k / 10)
        assert (np.abs(frame.astype(int) - fresh) > 8).any(-1).mean() < 1e-3, k


def test_films_are_written_and_play_in_real_time(path, tmp_path):
    from PIL import Image

    done = []
    film = animate(path, tmp_path / "new" / "film.gif", fps=30, progress=lambda n, total: done.append((n, total)))
    assert film.file == tmp_path / "new" / "film.gif" and done[-1] == (16, 16)
    with Image.open(film.file) as picture:
        durations = []
        for k in range(picture.n_frames):
            picture.seek(k)
            durations.append(picture.info["duration"])
    assert sum(durations) == pytest.approx(1e3 * 16 / 30, abs=10)  # (equal frames may be one)
    ffmpeg = pytest.importorskip("imageio_ffmpeg")
    assert animate(path, tmp_path / "film.mp4", fps=25).file.stat().st_size > 1000
    reader = ffmpeg.read_frames(str(tmp_path / "film.mp4"))
    about = next(reader)
    frames = list(reader)
    assert about["fps"] == 25 and tuple(about["size"]) == film.size and len(frames) == 13
    assert sorted(p.name for p in tmp_path.iterdir()) == ["film.mp4", "new"]  # nothing half-written is left


def test_notebooks_play_films(path, monkeypatch):
    import importlib.util

    html = animate(path, fps=5)._repr_html_()
    assert "base64" in html
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)  # as without imageio-ffmpeg
    assert animate(path, fps=5)._repr_html_().startswith('<img width="704" src="data:image/gif;base64,R0lG')


def test_slow_motion_and_coarse_steps():
    times = np.arange(11) * 0.1
    assert _frames(times, 10.0) == list(range(11))
    assert _frames(times, 5.0) == [0, 2, 4, 6, 8, 10]
    assert len(_frames(times, 100.0)) == 101 and _frames(times, 100.0)[-1] == 10
    assert _frames(times[: 1 + 1], 3.0) == [0]


def flight(positions: np.ndarray, extra: bool = False) -> tuple[PlanarWorld, np.ndarray, np.ndarray]:
    scene = bd.Scene(dim=2)
    scene.add_body("ball", bd.Circle(0.1), mass=1.0)
    if extra:
        for i in range(4):
            scene.add_body(f"box {i}", bd.Box(0.5, 0.5), mass=1.0, position=(i, 0.0))
    model = scene.build()
    q = np.tile(model.q0, (len(positions), 1))
    q[:, :2] = positions
    world = PlanarWorld(model, model.constants)
    return world, *world.poses(q)


def test_the_camera_shows_all_or_follows():
    line = np.linspace(0, 1, 50)[:, None]
    near = limits(*flight(line * [4.0, 2.0]))
    assert (near == near[0]).all() and near[0, 0] < -0.1 and near[0, 1] > 4.1
    far = limits(*flight(line * [400.0, 0.0]))
    assert np.ptp(far[:, 1] - far[:, 0]) < 1e-9 and far[0, 1] - far[0, 0] < 20
    assert (far[:, 0] < 400 * line[:, 0] - 0.1).all() and (far[:, 1] > 400 * line[:, 0] + 0.1).all()
    assert limits(*flight(line * [400.0, 0.0]), "all")[0, 1] > 400
    lost = limits(*flight(line * [0.0, -400.0], extra=True))
    assert (lost == lost[0]).all() and lost[0, 2] > -10 and lost[0, 1] > 3.2  # what falls away leaves the picture
    given = limits(*flight(line), (-1, 2, -3, 4))
    assert given.tolist() == [[-1, 2, -3, 4]] * 50


def test_broken_motion_is_drawn_as_far_as_it_goes():
    positions = np.array([[0.0, 0.0], [np.nan, 0.0]])
    world, angle, position = flight(positions, extra=True)
    assert np.isfinite(limits(world, angle, position)).all()
    with pytest.raises(ValueError, match="no coordinate of any body is finite"):
        limits(*flight(positions))


def test_points_in_shapes():
    world = PlanarWorld(zoo(), zoo().constants)
    stone = next(o for o in world.outlines if o.vertices is not None and len(o.vertices) == 3)
    assert contains(stone, np.array([0.1, 0.1])) and not contains(stone, np.array([0.4, 0.4]))


def test_bad_input_is_refused(path, tmp_path):
    for arguments, message in (
        ({"environment": 2}, "environment must be a number from 0 to 1, got 2"),
        ({"fps": 0}, "fps must be > 0"),
        ({"speed": -1}, "speed must be > 0"),
        ({"trail": ["bal"]}, "unknown body 'bal'; did you mean 'ball'?"),
        ({"limits": "everything"}, "unknown value of limits 'everything'"),
        ({"limits": (0, 0, 1, 1)}, r"limits must be \(left, right, bottom, top\)"),
        ({"colors": {"bal": "red"}}, "did you mean 'ball'"),
        ({"colors": {"ball": "reddish"}}, "'reddish' of body 'ball' is no colour"),
        ({"file": tmp_path / "film.avi"}, "a .mp4 or a .gif file"),
    ):
        with pytest.raises(ValueError, match=message):
            animate(path, **arguments)
    with pytest.raises(TypeError, match=r"what Simulator\.rollout returned"):
        animate(path.q)
    with pytest.raises(TypeError, match="must be a backdrive Model"):
        draw(bd.Scene(dim=2))
    with pytest.raises(ValueError, match=r"state\.q must be \["):
        draw(path.model, bd.State(torch.zeros(3), torch.zeros(3)))
    with pytest.raises(ValueError, match="there is one world only"):
        draw(path.model, environment=1)
    assert list(tmp_path.iterdir()) == []


def test_what_has_no_forces_is_drawn_without():
    scene = bd.Scene(dim=2)
    scene.add_body("ball", bd.Circle(0.1), mass=1.0)
    model = scene.build()
    free = bd.Simulator(model, dt=0.1).rollout(model.initial_state(), steps=3)
    assert len(animate(free, fps=10)) == 4
    with pytest.raises(ValueError, match="no forces"):
        animate(free, forces=True)
