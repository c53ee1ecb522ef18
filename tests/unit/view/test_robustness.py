"""What goes wrong when things are shown: files that cannot be written, odd models, foreign names, interrupts."""

import contextlib
import http.client
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from chromium import wait_until
from hypothesis import given, settings
from hypothesis import strategies as st

import backdrive as bd
from backdrive.view import animate, export, picture, show
from backdrive.view.browser.parts import instance_colors
from backdrive.view.browser.scene import round_length
from backdrive.view.browser.server import Origins

QUIET = {"block": False, "open": False}
SMALL = {"size": (64, 48), "renderer": "software"}
BARE = """<mujoco><worldbody><body name="b" pos="0 0 1"><freejoint/>
  <inertial pos="0 0 0" mass="1" diaginertia="1 1 1"/></body></worldbody></mujoco>"""


def dropped(name: str = "ball", height: float = 1.0, dim: int = 3, steps: int = 30) -> bd.Trajectory:
    scene = bd.Scene(dim=dim)
    up = (0, 0, 1) if dim == 3 else (0, 1)
    scene.add_static(bd.HalfSpace(normal=up))
    shape = bd.Sphere(0.1) if dim == 3 else bd.Circle(0.1)
    scene.add_body(name, shape, mass=1.0, position=tuple(height * x for x in up))
    model = scene.build()
    return bd.Simulator(model, 0.02, specialize=False).rollout(model.initial_state(), steps=steps)


@pytest.fixture(scope="module")
def path():
    return dropped()


def test_a_body_without_shapes_can_be_shown():
    model = bd.load(BARE)
    assert picture(model, **SMALL).shape == (48, 64, 3)
    assert "<html" in export(model).html


@pytest.mark.parametrize("suffix", [".mp4", ".gif"])
def test_films_that_cannot_be_written_are_refused_before_they_are_drawn(path, tmp_path, suffix):
    (tmp_path / f"folder{suffix}").mkdir()
    (tmp_path / "file").write_text("")
    drawn = []
    for file, error in ((tmp_path / f"folder{suffix}", IsADirectoryError), (tmp_path / "file" / f"a{suffix}", OSError)):
        with pytest.raises(error, match="folder|file"):
            animate(path, file, progress=lambda done, _: drawn.append(done), **SMALL)
    assert drawn == [] and sorted(p.name for p in tmp_path.iterdir()) == ["file", f"folder{suffix}"]


def test_odd_arguments_are_told(path):
    with pytest.raises(ValueError, match=r"a film of 18,000,000,001 pictures is too long \(of 0.6 s"):
        animate(path, speed=1e-9)
    with pytest.raises(TypeError, match="names of bodies, or True for all, are wanted, got 3"):
        animate(path, trail=3)
    with pytest.raises(TypeError, match="file must be a path, got State; a state is given as state="):
        export(path.model, path.model.initial_state())
    with pytest.raises(TypeError, match="loss must be a function of a trajectory, or a scalar tensor, got float"):
        bd.view.gradients(path, 3.0)
    for host in ("no.such.host.invalid", "203.0.113.7"):
        with pytest.raises(ValueError, match=f"host '{host}' is no address of this machine"):
            show(path, host=host, **QUIET)
    with pytest.raises(TypeError, match="host must be a name or an address"):
        show(path, host=3, **QUIET)


def test_a_picture_that_opengl_cannot_draw_is_told(path):
    pytest.importorskip("mujoco.egl")
    with pytest.raises(ValueError, match="OpenGL cannot draw this here, in 40000 x 40000 pixels"):
        picture(path.model, size=(40000, 40000), renderer="opengl")


def test_a_batch_of_hundreds_is_drawn():
    """OpenGL has a thousand materials at most."""
    pytest.importorskip("mujoco.egl")
    scene = bd.Scene(dim=3)
    for i in range(8):
        scene.add_body(f"box {i}", bd.Box(0.1, 0.1, 0.1), mass=1.0, position=(0.2 * i, 0.0, 0.1))
    model = scene.build()
    state = model.initial_state(150)
    assert picture(model, state, environment="all", size=(64, 48), renderer="opengl").std() > 5.0


def status(url: str, host: str) -> int:
    """What a request that calls the server by a name gets."""
    port = int(url.rsplit(":", 1)[1])
    link = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    link.putrequest("GET", "/", skip_host=True)
    link.putheader("Host", host)
    link.endheaders()
    try:
        return link.getresponse().status
    finally:
        link.close()


def test_who_asks_by_a_foreign_name_is_refused(path):
    with show(path, **QUIET) as viewer:
        port = int(viewer.url.rsplit(":", 1)[1])
        for own in (f"127.0.0.1:{port}", f"localhost:{port}", f"LOCALHOST:{port}"):
            assert status(viewer.url, own) == 200, own
        for foreign in (f"rebound.example.org:{port}", "example.org", f"127.0.0.1.example.org:{port}", "10.0.0.1"):
            assert status(viewer.url, foreign) == 403, foreign
    assert Origins("0.0.0.0", 8080).serve("10.0.0.1:8080") and Origins("127.0.0.1", 8080).serve("[::1]:8080")
    assert not Origins("0.0.0.0", 8080).serve("rebound.example.org") and not Origins("127.0.0.1", 1).serve("[::1")


@pytest.mark.parametrize("name", ["</script><script>alert(1)</script>", '"><img src=x onerror=alert(1)>', "<!--"])
def test_names_are_no_code(name):
    moved = dropped(name)
    page = export(moved, overlays=("frames", "trails"))
    assert name not in page.html and "alert(1)" not in page.html
    assert name not in (moved._repr_html_() or "")
    plain = export(dropped(), overlays=("frames", "trails"))
    assert page.html.count("<script") == plain.html.count("<script")


def test_a_page_replaces_a_file_at_once(path, tmp_path, monkeypatch):
    file = tmp_path / "page.html"
    file.write_text("before")
    page = export(path)

    def interrupted(self, text, **options):
        with self.open("w") as half:
            half.write(text[:100])
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "write_text", interrupted)
    with pytest.raises(KeyboardInterrupt):
        page.save(file)
    assert file.read_text() == "before" and [p.name for p in tmp_path.iterdir()] == ["page.html"]


@pytest.mark.skipif(os.name != "posix", reason="signals")
@pytest.mark.parametrize("suffix", ["mp4", "gif"])
def test_an_interrupted_film_leaves_nothing(tmp_path, suffix):
    """Ctrl-C while pictures are drawn."""
    script = f"""
import signal
import backdrive as bd
signal.signal(signal.SIGINT, signal.default_int_handler)  # jobs in the background ignore it
scene = bd.Scene(dim=3)
scene.add_body("ball", bd.Sphere(0.1), mass=1.0, position=(0, 0, 1))
model = scene.build()
said = lambda done, total: done == 3 and print("drawing", flush=True)
bd.view.animate(model, {str(tmp_path / f"film.{suffix}")!r}, turntable=500.0, size=(64, 48), renderer="software",
                progress=said)
"""
    run = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert run.stdout.readline() == "drawing\n"
        run.send_signal(signal.SIGINT)
        assert run.wait(60) != 0
    finally:
        run.kill()
    assert run.stderr.read().strip().endswith("KeyboardInterrupt")
    assert list(tmp_path.iterdir()) == []


@settings(max_examples=50, deadline=None)
@given(st.floats(1e-3, 1e6))
def test_grids_have_round_lengths_of_about_half_a_size(size):
    cell = round_length(size)
    assert size / 5.01 <= cell <= max(size, 0.01) / 2.0 * 1.01 or size < 0.01
    assert re.fullmatch(r"[125]\.0*e[+-]\d+", f"{cell:.10e}")


def test_colours_of_instances_are_amounts_of_light():
    assert instance_colors(np.array([0.0, 0.5, 1.0])).tolist() == [0, 55, 255]  # sRGB 0.5 is 21.4 % of the light


@pytest.mark.parametrize("dim", [2, 3])
def test_the_page_frames_the_whole_motion_and_the_floor(dim):
    """The ball falls from ten times its size to the floor, and stays in the picture."""
    moved = dropped(height=0.9, dim=dim, steps=60)
    for what in (moved, moved.simulator):
        with show(what, **QUIET) as viewer:
            camera = viewer.server.initial_camera
            eye, focus, up = (np.array(x) for x in (camera.position, camera.look_at, camera.up))
            back = (eye - focus) / np.linalg.norm(eye - focus)
            right = np.cross(up, back) / np.linalg.norm(np.cross(up, back))
            axes = np.stack([right, np.cross(back, right), back], 1)
            for place in (viewer.stage.positions[0, 0, 0], viewer.stage.positions[-1, 0, 0], np.zeros(3)):
                x, y, z = (np.asarray(place, dtype=float) - eye) @ axes
                assert max(abs(x), abs(y)) / -z < np.tan(camera.fov / 2.0), place


def test_controls_of_the_page_follow_what_the_program_arranges():
    scene = bd.Scene(dim=3)
    scene.add_body("ball", bd.Sphere(0.1), mass=1.0, position=(0, 0, 1))
    model = scene.build()
    moved = bd.Simulator(model, 0.02, specialize=False).rollout(model.initial_state(3), steps=2)
    with show(moved, **QUIET) as viewer:
        viewer.arrange("one", 2)
        assert [control.value for control in viewer._chosen] == ["one", 2]
        assert viewer.scene.arrangement.environments.tolist() == [2]
        with pytest.raises(ValueError, match="from 0 to 2, got 3"):
            viewer.arrange("one", 3)
        assert viewer.scene.arrangement.environments.tolist() == [2]


class _Refused(Exception):
    """With a message that names the file."""


def load(file: Path) -> bd.Trajectory:
    try:
        return bd.Trajectory.load(file)
    except ValueError as error:
        if file.name not in str(error):
            raise
        raise _Refused from None


def test_a_policy_that_fails_stops_the_motion_and_not_the_page(capfd):
    fails = [True]
    scene = bd.Scene(dim=3)
    rod = scene.add_body("rod", bd.Capsule(0.05, 0.5), mass=1.0, position=(0.0, 0.0, 1.0))
    scene.add_joint("hinge", bd.Hinge(axis=(0, 1, 0)), parent=None, child=rod, anchor=(0, 0, 1.25))
    scene.add_motor("motor", joint="hinge", limits=(-1.0, 1.0))

    def policy(state, t):
        if fails[0]:
            raise ZeroDivisionError("no action")
        return state.q.new_zeros(1)

    with show(bd.Simulator(scene.build(), 0.02, specialize=False), policy=policy, **QUIET) as viewer:
        wait_until(lambda: not viewer.panel.running, "it to stop")
        assert viewer.driver.note == "ZeroDivisionError: no action" and viewer._clock.error is None
        fails[0] = False
        viewer.driver.later(viewer.driver.reset)
        viewer.panel.run(True)
        wait_until(lambda: viewer.driver.time > 0.0, "it to run again")
    assert "no action" in capfd.readouterr().err


def test_damaged_files_are_refused(path, tmp_path):
    """Whatever is cut off or written over: a ValueError that names the file, and nothing else."""
    path.save(tmp_path / "motion.bd")
    whole = (tmp_path / "motion.bd").read_bytes()
    draw, file = np.random.default_rng(0), tmp_path / "damaged.bd"
    for k in range(120):
        bad = bytearray(whole[: int(draw.integers(1, len(whole)))] if k % 3 == 0 else whole)
        if k % 3:
            for at in draw.integers(0, len(bad), 12 if k % 3 == 1 else 200):
                bad[at] = int(draw.integers(256))
        file.write_bytes(bad)
        with contextlib.suppress(_Refused):
            load(file)


def test_headers_of_hostile_files_are_refused(path, tmp_path):
    import zipfile

    path.save(tmp_path / "motion.bd")
    with zipfile.ZipFile(tmp_path / "motion.bd") as archive:
        entries = {name: archive.read(name) for name in archive.namelist()}
    header = json.loads(entries["header.json"])
    deep = b"[" * 200_000 + b"]" * 200_000

    def changed(**fields: object) -> dict[str, bytes]:
        return entries | {"header.json": json.dumps(header | fields).encode()}

    def array(kind: str, shape: str) -> bytes:
        said = f"{{'descr': '{kind}', 'fortran_order': False, 'shape': {shape}, }}"
        return b"\x93NUMPY\x01\x00v\x00" + said.encode().ljust(117) + b"\ncos\nsystem\n"

    hostile = {
        "deep": entries | {"header.json": deep},
        "deep model": entries
        | {"header.json": changed(model=0)["header.json"].replace(b'"model": 0', b'"model": ' + deep)},
        "huge": entries | {"q.npy": array("<f8", "(99999999999999,)")},
        "code": entries | {"q.npy": array("|O", "(1,)")},
        "dt": changed(dt="1"),
        "negative": changed(dt=-1),
        "batched": changed(batched=True),
        "nothing": changed(model=None),
    }
    for name, contents in hostile.items():
        with zipfile.ZipFile(tmp_path / "hostile.bd", "w") as archive:
            for entry, data in contents.items():
                archive.writestr(entry, data)
        begin = time.monotonic()
        with pytest.raises(ValueError, match=r"hostile\.bd"):
            bd.Trajectory.load(tmp_path / "hostile.bd")
        assert time.monotonic() - begin < 20.0, name
