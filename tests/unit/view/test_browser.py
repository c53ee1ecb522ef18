"""Pages in a real browser: what they show is where it is, and their controls move it."""

from pathlib import Path

import gymnasium
import numpy as np
import pytest
import torch
from chromium import Tab, blob, browser, compare, project, wait_until

import backdrive as bd

pytestmark = pytest.mark.browser
ASSETS = Path(gymnasium.__file__).parent / "envs/mujoco/assets"
BASELINES = Path(__file__).parent / "baselines"
QUIET = {"block": False, "open": False}
PURE = np.eye(3)  # red, green, blue
SHAPES = "red", "green", "blue"


@pytest.fixture(scope="module")
def chromium():
    with browser() as found:
        yield found


def balls() -> bd.Model:
    scene = bd.Scene(dim=3)
    for name, place, velocity in zip(
        SHAPES, ((0, 0, 1), (0.6, 0.4, 0.5), (-0.7, 0.2, 0.2)), ((0, 0, 2), (0.2, 0, 3), (0, -0.4, 1))
    ):
        scene.add_body(name, bd.Sphere(0.06), mass=1.0, position=place, velocity=velocity)
    return scene.build()


def falling() -> bd.Trajectory:
    model = balls()
    return bd.Simulator(model, 0.01).rollout(model.initial_state(), steps=50)


def arm() -> bd.Model:
    """Two links that motors turn."""
    scene = bd.Scene(dim=3)
    upper = scene.add_body("upper", bd.Capsule(0.05, 0.5), mass=1.0, position=(0.0, 0.0, 1.0))
    lower = scene.add_body("lower", bd.Box(0.06, 0.06, 0.4), mass=0.5, position=(0.0, 0.0, 0.55))
    scene.add_joint("shoulder", bd.Hinge(axis=(0, 1, 0), damping=0.5), parent=None, child=upper, anchor=(0, 0, 1.25))
    scene.add_joint("elbow", bd.Hinge(axis=(0, 1, 0), damping=0.2), parent=upper, child=lower, anchor=(0, 0, 0.75))
    scene.add_motor("turn shoulder", joint="shoulder", limits=(-8.0, 8.0))
    scene.add_motor("turn elbow", joint="elbow", limits=(-4.0, 4.0))
    scene.exclude("upper", "lower")
    return scene.build()


def heap(count: int = 200) -> bd.Model:
    scene = bd.Scene(dim=3)
    scene.add_static(bd.HalfSpace(normal=(0, 0, 1), offset=0.0))
    draw = np.random.default_rng(0)
    for i in range(count):
        layer, place = divmod(i, 25)
        at = (0.25 * (place % 5) + 0.02 * layer, 0.25 * (place // 5), 0.11 + 0.21 * layer)
        turn = np.append(1.0, 0.05 * draw.standard_normal(3))
        scene.add_body(f"box {i}", bd.Box(0.2, 0.2, 0.2), mass=1.0, position=at, quaternion=turn / np.linalg.norm(turn))
    return scene.build()


def still(what, time: float, **options):
    """A viewer that shows a motion at a time, and does not play it."""
    viewer = bd.view.show(what, **QUIET, **options)
    viewer.timeline.play(False)
    viewer.timeline.seek(time)
    return viewer


def client_of(viewer):
    return wait_until(lambda: next(iter(viewer.server.get_clients().values()), None), "the page to connect")


def paint(viewer, colors) -> None:
    """Bodies in pure colours, without shadows."""
    viewer.server.scene.configure_default_lights(enabled=True, cast_shadow=False)
    viewer.scene.paint(np.asarray(colors, dtype=float))


def position(path, time, body) -> np.ndarray:
    frame = int(np.searchsorted(path.time.numpy(), time + 1e-9, side="right")) - 1
    return path.position(body)[frame].numpy()


def test_bodies_are_where_the_camera_says_while_the_user_scrubs(chromium):
    path = falling()
    with still(path, 0.0) as viewer, Tab(chromium, viewer.url) as tab:
        paint(viewer, PURE)
        client = client_of(viewer)
        for time in (0.0, 0.5):
            viewer.timeline.seek(time)
            picture = tab.settled()
            places = np.stack([position(path, time, body) for body in SHAPES])
            for body, expected in zip(SHAPES, project(client.camera, tab.box, places)):
                assert np.abs(blob(picture, body) - expected).max() < 2.0
        thumb = tab.slider("time, s")
        thumb.focus()
        thumb.press("Home")  # the user scrubs to the start
        wait_until(lambda: viewer.timeline.time == 0.0, "the slider to move the time")
        expected = project(client.camera, tab.box, position(path, 0.0, "red")[None])[0]
        assert np.abs(blob(tab.settled(), "red") - expected).max() < 2.0
        tab.page.get_by_role("button", name="play").click()
        wait_until(lambda: viewer.timeline.playing and viewer.timeline.time > 0.02, "the motion to play")
        assert tab.errors == []


def test_a_simulator_runs_and_obeys_sliders_and_hands(chromium):
    model = arm()
    with bd.view.show(bd.Simulator(model, 0.005), **QUIET) as viewer, Tab(chromium, viewer.url) as tab:
        client, driver = client_of(viewer), viewer.driver
        wait_until(lambda: driver.time > 0.1, "time to pass")
        assert driver.state.q.abs().max() < 1e-9  # it hangs
        thumb = tab.slider("turn shoulder")
        thumb.focus()
        thumb.press("End")
        wait_until(lambda: driver.controls[0] == 8.0, "the slider to move the control")
        wait_until(lambda: driver.state.q[0].abs() > 0.3, "the arm to turn")
        tab.page.get_by_role("button", name="pause").click()
        wait_until(lambda: not viewer.panel.running, "the pause")
        tab.page.get_by_role("button", name="reset").click()
        wait_until(lambda: driver.time == 0.0, "the reset")
        assert driver.state.q.abs().max() == 0.0
        tab.page.get_by_role("button", name="step").click()
        wait_until(lambda: driver.time == pytest.approx(0.005), "one step")
        thumb.press("Home")
        driver.later(lambda: setattr(driver, "controls", 0.0 * driver.controls))
        driver.later(driver.reset)
        tab.settled()
        tab.page.get_by_role("button", name="run").click()
        x, y = project(client.camera, tab.box, np.array([[0.0, 0.0, 0.45]]))[0]
        tab.page.mouse.move(x, y)
        tab.page.mouse.down()
        for k in range(1, 9):
            tab.page.mouse.move(x + 12.0 * k, y)
            tab.page.wait_for_timeout(50)
        wait_until(lambda: driver.pull is not None and model.bodies[driver.pull.body] == "lower", "the hand")
        wait_until(lambda: driver.state.q.abs().max() > 0.2, "the arm to follow the hand")
        tab.page.mouse.up()
        wait_until(lambda: driver.pull is None, "the hand to let go")
        assert tab.errors == []


def test_a_page_in_a_file_needs_no_network(chromium, tmp_path):
    path = falling()
    page = bd.view.export(path, tmp_path / "motion.html", overlays=("trails", "frames"))
    assert (tmp_path / "motion.html").stat().st_size == len(page.html.encode()) < 3e6
    with Tab(chromium, f"file://{tmp_path}/motion.html", offline=True) as tab:
        tab.page.locator("canvas").first.wait_for()
        first = tab.picture()
        wait_until(lambda: tab.picture().std() > 3.0 and (tab.picture() != first).any(), "the motion to play")
        time, seen = tab.page.locator("input").first, {}

        def differs(moment: str) -> int:
            return int(np.abs(tab.picture() - seen[moment]).max())

        for moment, other in (("0.4", None), ("0.1", "0.4")):  # the user scrubs, which pauses it
            time.fill(moment)
            tab.page.wait_for_timeout(1500)
            if other is not None:
                wait_until(lambda: differs(other) > 60, f"the page to show {moment} s")  # noqa: B023
            seen[moment] = tab.settled().astype(int)
        time.fill("0.4")
        wait_until(lambda: differs("0.4") <= 2, "the page to show 0.4 s again")
        assert tab.errors == [] and tab.requests == []


def test_a_notebook_shows_the_page_in_a_frame(chromium, tmp_path):
    (tmp_path / "notebook.html").write_text(f"<html><body>{bd.view.export(balls())._repr_html_()}</body></html>")
    with Tab(chromium, f"file://{tmp_path}/notebook.html", offline=True) as tab:
        tab.page.frame_locator("iframe").locator("canvas").first.wait_for()
        assert tab.errors == [] and tab.requests == []


def test_a_page_that_is_closed_does_not_stop_the_viewer(chromium):
    with bd.view.show(falling(), **QUIET) as viewer:
        with Tab(chromium, viewer.url):
            client_of(viewer)
        wait_until(lambda: viewer.pages == 0, "the page to be gone")
        before = viewer.frames
        wait_until(lambda: viewer.frames > before, "the motion to play on")
        with Tab(chromium, viewer.url) as tab:
            client_of(viewer)
            assert tab.errors == []
        assert viewer._clock.error is None


def ant(batch: int | None = None) -> bd.Trajectory:
    model = bd.load(ASSETS / "ant.xml")
    draw = torch.Generator().manual_seed(0)
    controls = torch.rand(
        (50, model.nu) if batch is None else (50, batch, model.nu), generator=draw, dtype=torch.float64
    )
    return bd.Simulator(model, physics="mujoco").rollout(model.initial_state(batch), 2.0 * controls - 1.0)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "make"),
    [
        ("arm", arm),
        ("ant", ant),
        ("ants", lambda: ant(16)),
        ("humanoid", lambda: bd.load(ASSETS / "humanoid.xml")),
        ("heap", heap),
    ],
)  # fmt: skip
def test_pages_look_as_they_did(chromium, name, make):
    with still(make(), 1.0) as viewer, Tab(chromium, viewer.url) as tab:
        client = client_of(viewer)
        tab.settled()
        compare(client.get_render(height=300, width=480)[..., :3], BASELINES / f"{name}.jpg")
        assert tab.errors == []


@pytest.mark.slow
def test_bodies_of_a_heap_and_of_a_batch_are_where_the_camera_says(chromium):
    """Only a little of a body is another's colour: of the red ones, whose silhouettes are those of balls."""
    scene = bd.Scene(dim=3)
    for i in range(200):
        shape = bd.Sphere(0.1) if i >= 175 else bd.Box(0.2, 0.2, 0.2)
        layer, place = divmod(i, 25)
        scene.add_body(f"body {i}", shape, mass=1.0, position=(0.25 * (place % 5), 0.25 * (place // 5), 0.21 * layer))
    model = scene.build()
    colors = np.full((model.nlink, 3), 0.8)
    tops = [model.body_index(f"body {i}") for i in (175, 177, 179)]  # in front, in the uppermost layer
    colors[tops] = PURE
    with still(model, 0.0) as viewer, Tab(chromium, viewer.url) as tab:
        paint(viewer, colors)
        camera, picture = client_of(viewer).camera, tab.settled()
        for color, expected in zip(SHAPES, project(camera, tab.box, viewer.stage.positions[0, 0, tops].astype(float))):
            assert np.abs(blob(picture, color) - expected).max() < 2.0
        assert tab.errors == []
    state = balls().initial_state(16)
    with still(bd.Simulator(balls(), 0.01).rollout(state, steps=5), 0.0) as viewer, Tab(chromium, viewer.url) as tab:
        colors = np.full((3, 3), 0.8)
        colors[0] = PURE[0]
        paint(viewer, colors)
        camera, shown = client_of(viewer).camera, tab.settled()
        for mode in ("ghosts", "one", "side by side"):
            viewer.arrange(mode)
            picture = tab.settled()
            if mode == "one":
                expected = project(camera, tab.box, viewer.stage.positions[0, 0, :1].astype(float))[0]
                assert np.abs(blob(picture, "red") - expected).max() < 2.0
        assert np.abs(shown.astype(int) - picture).max() <= 2  # as at first
        places = viewer.stage.positions[0, :, 0] + viewer.scene.arrangement.shift
        expected = project(camera, tab.box, places.astype(float)).mean(0)
        assert np.abs(blob(picture, "red") - expected).max() < 12.0  # nearer ones are larger
        assert tab.errors == []


@pytest.mark.slow
def test_gradients_are_drawn_as_arrows_and_colours(chromium):
    path = ant()
    loss = lambda path: -path.position("torso")[-1, 0]  # noqa: E731
    with still(path, 0.0, gradients=loss) as viewer, Tab(chromium, viewer.url) as tab:
        client_of(viewer)
        plain = tab.settled().astype(int)

        def changed() -> int:
            """Pixels that differ from the plain picture."""
            return (np.abs(tab.picture() - plain).max(2) > 40).sum()

        for quantity in ("position", "velocity", "control", "wrench"):
            viewer.draw_arrows(quantity)
            wait_until(lambda: any(node.visible for node in viewer.arrows.nodes), "arrows")
            wait_until(lambda: changed() > 20, f"the arrows of {quantity} on the page")
            viewer.draw_arrows("none")
            wait_until(lambda: changed() == 0, "the arrows to go")
        viewer.color_by("mass")
        wait_until(lambda: changed() > 20, "the colours of masses on the page")
        assert tab.errors == []
