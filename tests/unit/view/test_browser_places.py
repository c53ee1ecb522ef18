"""Bodies of robots on the page are where the camera says: as another renderer draws them, from the same place."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from chromium import Tab, browser, wait_until
from scipy.spatial.transform import Rotation

import backdrive as bd
from backdrive.view.spatial.cameras import Viewpoint
from backdrive.view.spatial.marks import NONE
from backdrive.view.spatial.scenery import Scenery
from backdrive.view.spatial.software import SoftwareRenderer

pytestmark = pytest.mark.browser
PURE = dict(zip(("red", "green", "blue"), np.eye(3)))
GREY = np.full(3, 0.75)
PIXELS = 2.0


@pytest.fixture(scope="module")
def chromium():
    with browser() as found:
        yield found


def arm() -> str:
    """Seven hinges like a Panda's, with links of meshes, capsules and a hand of boxes."""
    corners = " ".join(f"{x} {y} {z}" for x in (-0.05, 0.06) for y in (-0.04, 0.05) for z in (-0.14, 0.1))
    text, close = "", ""
    for i in range(7):
        axis, bend = ("0 0 1", "0 1 0")[i % 2], 0.05 * (i % 3)
        shape = ('type="mesh" mesh="block"', 'type="capsule" size="0.05" fromto="0 0 0 0.04 0 0.15"')[i % 2]
        text += f'<body name="link{i}" pos="{bend} 0 {0.16 if i else 0.2}">'
        text += f'<joint name="j{i}" axis="{axis}"/><geom {shape} mass="1"/>'
        close += "</body>"
    hand = '<body name="hand" pos="0 0 0.2"><geom type="box" size="0.1 0.03 0.04" mass="0.5"/></body>'
    return f"""<mujoco><compiler angle="radian"/><option gravity="0 0 0"/>
      <asset><mesh name="block" vertex="{corners}"/></asset><worldbody>
      <geom type="plane" size="0 0 1" contype="0" conaffinity="0"/>{text}{hand}{close}</worldbody></mujoco>"""


def dog() -> str:
    """A trunk on four legs of three links, like a Go1's."""
    legs = ""
    for i, (x, y) in enumerate(((0.19, 0.05), (0.19, -0.05), (-0.19, 0.05), (-0.19, -0.05))):
        side = np.sign(y)
        legs += f"""<body name="hip{i}" pos="{x} {y} 0"><joint name="h{i}" axis="1 0 0"/>
          <geom type="cylinder" size="0.05 0.02" euler="90 0 0" mass="0.5"/>
          <body name="thigh{i}" pos="0 {0.08 * side} 0"><joint name="t{i}" axis="0 1 0"/>
            <geom type="box" size="0.02 0.015 0.1" pos="0 0 -0.1" mass="0.8"/>
            <body name="calf{i}" pos="0 0 -0.21"><joint name="c{i}" axis="0 1 0"/>
              <geom type="capsule" size="0.012" fromto="0 0 0 0 0 -0.2" mass="0.2"/>
              <geom type="sphere" size="0.024" pos="0 0 -0.21" mass="0.05"/></body></body></body>"""
    return f"""<mujoco><option gravity="0 0 0"/><worldbody><geom type="plane" size="0 0 1"/>
      <body name="trunk" pos="0 0 0.5"><freejoint/><geom type="box" size="0.2 0.05 0.06" mass="5"/>
      <geom type="ellipsoid" size="0.06 0.05 0.05" pos="0.24 0 0.03" mass="0.3"/>{legs}</body></worldbody></mujoco>"""


def moving(text: str, batch: int | None = None) -> bd.Trajectory:
    """Every joint turns, each of the batch otherwise."""
    model = bd.load(text)
    start = model.initial_state(batch)
    draw = torch.Generator().manual_seed(3)
    start.v[..., -len(model.joints) :] += 1.5 * torch.randn(
        (*start.v.shape[:-1], len(model.joints)), generator=draw, dtype=start.v.dtype
    )
    return bd.Simulator(model, 0.01, physics="mujoco").rollout(start, steps=30)


def expected(viewer, camera, box, colors: np.ndarray) -> np.ndarray:
    """The picture that numpy draws of the same bodies from the same place."""
    turn = Rotation.from_quat(np.roll(camera.wxyz, -1)).as_matrix() * np.array([1.0, -1.0, -1.0])
    up, eye = np.array([0.0, 0.0, 1.0]), np.asarray(camera.position)
    view = Viewpoint(eye, turn, float(np.degrees(camera.fov)), np.asarray(camera.look_at), 1.0, up)
    stage, placing = viewer.stage, viewer.scene.arrangement
    looks = replace(
        stage.looks,
        visuals=tuple(replace(v, rgba=(*colors[v.link], 1.0)) for v in stage.looks.shown if v.link >= 0),
    )
    frame = viewer.timeline.frame
    scenery = Scenery([looks] * placing.copies, placing.shift)
    poses = scenery.poses(stage.positions[frame][placing.environments], stage.rotations[frame][placing.environments])
    return SoftwareRenderer(scenery.visuals, round(box["width"]), round(box["height"])).image(*poses, view, NONE)


def mask(picture: np.ndarray, color: str) -> np.ndarray:
    """Pixels (x, y) of one pure colour, in all its shades and behind others that let light through."""
    one = list(PURE).index(color)
    rest = np.delete(picture.astype(int), one, axis=2).max(2)
    rows, columns = np.nonzero(picture[..., one].astype(int) - rest > 25)
    assert len(rows) > 20, f"nothing {color} is in the picture"
    return np.stack([columns, rows], 1)


def compare(picture: np.ndarray, wanted: np.ndarray, colors) -> None:
    for color in colors:
        found, right = mask(picture, color), mask(wanted[:, : picture.shape[1]], color)
        assert np.abs(found.mean(0) - right.mean(0)).max() < PIXELS, color
        for share in (2.0, 98.0):  # the borders, but for slivers where two bodies meet
            assert np.abs(np.percentile(found, share, 0) - np.percentile(right, share, 0)).max() <= PIXELS, color


@pytest.mark.parametrize(
    ("make", "bodies"), [(arm, ("hand", "link3", "link0")), (dog, ("trunk", "calf1", "thigh3"))]
)  # fmt: skip
def test_links_of_robots_are_where_the_camera_says(chromium, make, bodies):
    path = moving(make())
    colors = np.tile(GREY, (path.model.nlink, 1))
    with bd.view.show(path, block=False, open=False) as viewer, Tab(chromium, viewer.url) as tab:
        for body, pure in zip(bodies, PURE.values()):
            colors[viewer.stage.link(body)] = pure
        viewer.timeline.play(False)
        client = wait_until(lambda: next(iter(viewer.server.get_clients().values()), None), "the page to connect")
        viewer.server.scene.configure_default_lights(enabled=True, cast_shadow=False)
        viewer.scene.paint(colors)
        for time in (0.0, 0.3):
            viewer.timeline.seek(time)
            picture = tab.settled(viewer)
            compare(picture, expected(viewer, client.camera, tab.box, colors), PURE)
        assert tab.errors == []


def test_ghosts_and_batches_of_robots_are_where_the_camera_says(chromium):
    path = moving(dog(), 4)
    colors = np.tile(GREY, (path.model.nlink, 1))
    with bd.view.show(path, block=False, open=False) as viewer, Tab(chromium, viewer.url) as tab:
        colors[viewer.stage.link("trunk")], colors[viewer.stage.link("calf1")] = PURE["red"], PURE["blue"]
        viewer.timeline.play(False)
        viewer.timeline.seek(0.3)
        client = wait_until(lambda: next(iter(viewer.server.get_clients().values()), None), "the page to connect")
        viewer.server.scene.configure_default_lights(enabled=True, cast_shadow=False)
        viewer.scene.paint(colors)
        for mode, environment in (("side by side", 0), ("ghosts", 1), ("one", 2)):
            viewer.arrange(mode, environment)
            viewer.scene.paint(colors)
            picture = tab.settled(viewer)
            wanted = expected(viewer, client.camera, tab.box, colors)
            compare(picture, wanted, ("red", "blue") if mode != "ghosts" else ("red",))
        assert tab.errors == []
