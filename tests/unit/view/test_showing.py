"""What the viewer refuses, whom it serves, and what it computes before a browser sees it."""

import socket
import sys
import threading
import time

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.spatial.transform import Rotation
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

import backdrive as bd
from backdrive.view import Staging
from backdrive.view.browser import solids
from backdrive.view.browser.arrangement import arrange
from backdrive.view.browser.live import SimulatorDriver
from backdrive.view.browser.parts import parts_of, product, rotated
from backdrive.view.browser.server import Origins
from backdrive.view.browser.timeline import Timeline

QUIET = {"block": False, "open": False}


def patiently(condition) -> None:
    """Until it holds: other threads may be slow on a busy machine."""
    end = time.monotonic() + 90.0
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def pendulum(dim: int = 3) -> bd.Model:
    scene = bd.Scene(dim=dim)
    shape = bd.Box(0.1, 0.1, 0.5) if dim == 3 else bd.Box(0.1, 0.5)
    rod = scene.add_body("rod", shape, mass=1.0)
    top = (0.0, 0.0, 0.25) if dim == 3 else (0.0, 0.25)
    scene.add_joint("pin", bd.Hinge(axis=(0, 1, 0)) if dim == 3 else bd.Hinge(), parent=None, child=rod, anchor=top)
    scene.add_motor("drive", joint="pin")
    return scene.build()


def swing(batch: int | None = None) -> bd.Trajectory:
    model = pendulum()
    state = model.initial_state(batch)
    return bd.Simulator(model, 0.01).rollout(bd.State(state.q + 0.5, state.v), steps=20)


# ---------------------------------------------------------------------------------------------- whom it serves


def answer(url: str, origin: str | None) -> int:
    """What a page of that origin gets: 101, the protocol of the viewer, or an error."""
    try:
        with connect(url.replace("http", "ws"), origin=origin, subprotocols=["viser-v1.1.1"], open_timeout=90) as link:
            return 101 if link.recv(timeout=90) else 0
    except InvalidStatus as error:
        return error.response.status_code


def test_only_pages_of_the_viewer_itself_are_served():
    with bd.view.show(swing(), **QUIET) as viewer:
        port = viewer.url.rsplit(":", 1)[1]
        for origin in (None, viewer.url, f"http://localhost:{port}"):
            assert answer(viewer.url, origin) == 101
        for origin in (
            "http://example.org", f"http://example.org:{port}", "http://localhost:1", f"https://localhost:{port}",
            f"http://127.0.0.1.example.org:{port}", "null", "file://", "http://[", f"http://192.168.0.1:{port}",
        ):  # fmt: skip
            assert answer(viewer.url, origin) == 403, origin


def test_a_name_that_points_to_this_machine_is_foreign():
    assert not Origins("127.0.0.1", 8080).allow("http://rebound.example.org:8080")
    assert not Origins("0.0.0.0", 8080).allow("http://rebound.example.org:8080")
    assert Origins("0.0.0.0", 8080).allow("http://192.168.0.7:8080")
    assert Origins("127.0.0.1", 8080, ["https://notebook.example.org/"]).allow("https://notebook.example.org")


def test_it_listens_on_loopback_only_and_opens_no_tunnel():
    from viser import _messages

    with bd.view.show(swing(), **QUIET) as viewer:
        port = int(viewer.url.rsplit(":", 1)[1])
        others = {info[4][0] for info in socket.getaddrinfo(socket.gethostname(), None, socket.AF_INET)}
        for host in others - {"127.0.0.1", "127.0.1.1"}:
            with pytest.raises(ConnectionRefusedError), socket.create_connection((host, port), timeout=2.0):
                pass
        assert _messages.ShareUrlRequest not in viewer.server._websock_server._incoming_handlers
    with pytest.raises(ConnectionRefusedError), socket.create_connection(("127.0.0.1", port), timeout=2.0):
        pass  # closed


# ---------------------------------------------------------------------------------------------- what it refuses


def test_a_port_in_use_is_named():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(OSError, match=f"port {port} on 127.0.0.1 is in use: close what uses it"):
            bd.view.show(swing(), port=port, **QUIET)
    for wrong in (0, 65536, -1, "8080", True):
        with pytest.raises(ValueError, match="port must be a number from 1 to 65535"):
            bd.view.show(swing(), port=wrong, **QUIET)


def test_without_viser_it_says_what_to_install(monkeypatch):
    for name in [name for name in sys.modules if name.startswith("backdrive.view.backends.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "viser", None)
    for call in (lambda: bd.view.show(swing(), **QUIET), lambda: bd.view.export(swing())):
        with pytest.raises(ImportError, match=r"needs viser: pip install 'backdrive\[view\]'"):
            call()
    assert swing()._repr_html_() is None  # a notebook then shows the text


def test_bad_input_is_refused_before_anything_is_served():
    before, path, model = threading.active_count(), swing(3), pendulum()
    other = bd.view.gradients(swing(), lambda path: path.q.sum())
    refused = [
        (lambda: bd.view.show(3.0, **QUIET), TypeError, "what to show must be a Model"),
        (lambda: bd.view.show([], **QUIET), TypeError, "empty list"),
        (lambda: bd.view.show(path, environments="all", **QUIET), ValueError, "all"),
        (lambda: bd.view.show(path, environments=3, **QUIET), ValueError, "number from 0 to 2"),
        (lambda: bd.view.show(path, policy=lambda s, t: None, **QUIET), ValueError, "a policy drives a simulator"),
        (lambda: bd.view.show(model, gradients=lambda path: path.q.sum(), **QUIET), TypeError, "along one trajectory"),
        (lambda: bd.view.show(bd.Simulator(model, 0.01), gradients=other, **QUIET), ValueError, "recorded motion"),
        (lambda: bd.view.export(path, "film.mp4"), ValueError, "written to a .html file"),
        (lambda: bd.view.export(path, "nowhere/motion.html"), FileNotFoundError, "no folder nowhere"),
        (lambda: bd.view.export(path, overlays=("ghosts",)), ValueError, "ghosts"),
        (lambda: bd.view.export(path, arrows="power"), ValueError, "power"),
        (lambda: bd.view.export(path, fps=0.0), ValueError, "fps"),
    ]
    for call, error, text in refused:
        with pytest.raises(error, match=text):
            call()
    with bd.view.show(path, **QUIET) as viewer:
        for call in (lambda: viewer.show("forces"), lambda: viewer.arrange("stacked"), lambda: viewer.draw_arrows("q")):
            with pytest.raises(ValueError, match="forces|stacked|no gradients"):
                call()
    viewer.close()  # again
    assert repr(viewer).startswith("Viewer(closed")
    patiently(lambda: threading.active_count() <= before + 1)  # no thread is left behind


def test_states_that_are_not_finite_are_told_and_not_drawn(capsys):
    path = swing(2)
    path.q.detach()[10:, 1] = torch.nan
    with bd.view.show(path, **QUIET) as viewer:
        assert "environment 1 is not finite from t = 0.1 s on" in capsys.readouterr().out
        assert np.isfinite(viewer.stage.positions).all()
    path.q.detach()[:] = torch.nan
    with pytest.raises(ValueError, match="nothing can be shown"):
        bd.view.show(path, **QUIET)


def test_a_simulation_that_diverges_stops_and_says_so():
    model = pendulum()
    driver = SimulatorDriver(bd.Simulator(model, 0.01, nonfinite="mark"))
    driver.state = bd.State(driver.state.q, driver.state.v * torch.nan)
    driver.advance(0.05)
    assert "not finite after t = 0 s" in driver.note
    driver.reset()
    driver.advance(0.05)
    assert driver.note == "" and driver.time == pytest.approx(0.05)


# ---------------------------------------------------------------------------------------------- what it computes


@pytest.mark.parametrize("make", [solids.box, solids.ball, solids.cylinder])
def test_solids_are_closed_and_their_faces_look_outward(make):
    vertices, faces = make()
    corners = vertices[faces]
    normals = np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0])
    assert (np.einsum("ij,ij->i", normals, corners.mean(1)) > 0.0).all()
    exact = {solids.box: 8.0, solids.ball: 4.0 / 3.0 * np.pi, solids.cylinder: 2.0 * np.pi}[make]
    volume = np.einsum("ij,ij->i", normals, corners[:, 0]).sum() / 6.0
    assert volume == pytest.approx(exact, rel=0.03)


@given(st.integers(0, 2**31))
def test_quaternions_turn_as_rotations_do(seed):
    draw = np.random.default_rng(seed)
    a, b = (Rotation.random(random_state=draw) for _ in range(2))
    x, (p, q) = draw.standard_normal(3), (np.roll(r.as_quat(), 1) for r in (a, b))
    assert rotated(p, x) == pytest.approx(a.apply(x), abs=1e-12)
    assert rotated(product(p, q), x) == pytest.approx((a * b).apply(x), abs=1e-12)


def test_environments_side_by_side_do_not_overlap_and_ghosts_do():
    stage = Staging.of(swing(5))
    low, high = stage.bounds_of(slice(None))
    apart = arrange(stage, "side by side")
    for a in range(5):
        for b in range(a):
            gap = np.abs(apart.shift[a] - apart.shift[b]) - (high.max((0, 1)) - low.min((0, 1)))
            assert gap.max() >= -1e-9
    ghosts = arrange(stage, "ghosts", 2)
    assert not ghosts.shift.any() and ghosts.opacity.tolist() == [0.25, 0.25, 1.0, 0.25, 0.25]
    assert arrange(stage, "one", 4).environments.tolist() == [4]


def test_planar_worlds_stand_in_space():
    parts, planes = parts_of(pendulum(2).looks.shown)
    assert [part.geometry for part in parts] == ["box"] and not planes
    with bd.view.show(pendulum(2), **QUIET) as viewer:
        assert viewer.stage.up == "+y"


def test_a_hand_pulls_a_body_to_where_it_is():
    """A free ball without gravity follows the spring, critically damped, and stays there."""
    scene = bd.Scene(dim=3, gravity=(0, 0, 0))
    scene.add_body("ball", bd.Sphere(0.1), mass=3.0, position=(0.0, 0.0, 0.0))
    model = scene.build()
    driver = SimulatorDriver(bd.Simulator(model, 0.002))
    driver.grab(0, np.array([0.1, 0.0, 0.0]))
    assert driver.pull.mass == pytest.approx(3.0 * 3.0 / 8.0, rel=1e-2)  # 3 / (3 / m + 2 r² / I), I = 2 m r² / 5
    driver.drag(np.array([0.1, 0.5, 0.2]))
    for _ in range(60):
        driver.advance(0.05)
    assert driver.held() == pytest.approx([0.1, 0.5, 0.2], abs=0.02)
    driver.release()
    assert driver.held() is None


def test_the_effective_mass_of_a_hinge_is_its_inertia_over_the_arm():
    """Of a rod on a hinge, only one direction moves: dim / trace(J M⁻¹ Jᵀ) = 3 I / r²."""
    model = pendulum()
    simulator = bd.Simulator(model, 0.01)
    driver = SimulatorDriver(simulator)
    inertia = float(simulator.mass_matrix(driver.state)[0, 0])
    driver.grab(0, np.array([0.0, 0.0, -0.25]))
    assert driver.pull.mass == pytest.approx(3.0 * inertia / 0.5**2, rel=1e-2)


def test_a_policy_drives_a_simulator_and_an_environment():
    model = pendulum()
    seen = []
    driver = SimulatorDriver(
        bd.Simulator(model, 0.01), policy=lambda state, t: (seen.append(t), state.v * 0.0 + 1.0)[1]
    )
    driver.advance(0.05)
    assert seen == [0, 1, 2, 3, 4] and driver.state.v.abs().max() > 0.0
    import backdrive.envs

    env = backdrive.envs.Env("Ant")
    with bd.view.show(env, policy=lambda observation: np.full(8, 0.5), **QUIET) as viewer:
        viewer.panel.run(False)
        before = viewer.driver.state.q.clone()
        viewer.driver.later(viewer.driver.step)
        patiently(lambda: viewer.driver.time > 0.0)
        assert (viewer.driver.state.q != before).any()


def test_parameters_change_while_it_runs():
    model = pendulum()
    driver = SimulatorDriver(
        bd.Simulator(model, 0.01), bd.State(torch.tensor([0.5], dtype=torch.float64), model.initial_state().v)
    )
    driver.parameters = {"gravity": torch.zeros(3, dtype=torch.float64)}
    driver.advance(0.1)
    assert driver.state.q.item() == 0.5
    driver.parameters = {}
    driver.advance(0.1)
    assert driver.state.q.item() < 0.5


def test_the_timeline_loops_and_stops():
    with bd.view.show(swing(), **QUIET) as viewer:
        viewer._clock.stop()
        timeline: Timeline = viewer.timeline
        timeline.play(True)
        timeline.seek(0.15)
        assert timeline.advance(0.1) and timeline.time == pytest.approx(0.05)
        timeline._loop.value = False
        timeline.advance(0.3)
        assert timeline.time == pytest.approx(0.2) and not timeline.playing and timeline.frame == 20
        timeline.speed = 0.5
        timeline.play(True)  # from the start
        timeline.advance(0.1)
        assert timeline.frame == 5
        timeline.step(-2)
        assert timeline.frame == 3


def test_a_page_has_the_motion_in_one_file(tmp_path):
    page = bd.view.export(swing(4), tmp_path / "motion.html", environments="ghosts", overlays=("centers of mass",))
    text = (tmp_path / "motion.html").read_text()
    assert text == page.html and "__VISER_EMBED_DATA__" in text and "backdrive: 1 bodies, 0.2 s" in text
    assert "<iframe srcdoc=" in page._repr_html_() and "<iframe" in swing()._repr_html_()
