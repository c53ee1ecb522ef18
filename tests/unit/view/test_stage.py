"""What is shown has the poses of the trajectory and the looks of the file; what cannot be shown is refused."""

import copy
import os
import pickle
from pathlib import Path

import gymnasium
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import backdrive as bd
from backdrive.view import Staging, backends

ASSETS = Path(os.path.dirname(gymnasium.__file__)) / "envs" / "mujoco" / "assets"

TEXTURED = """<mujoco>
  <asset>
    <texture name="checks" type="2d" builtin="checker" width="8" height="8" rgb1="1 0 0" rgb2="0 0 1"/>
    <texture name="lost" type="2d" file="nowhere.png"/>
    <material name="paint" texture="checks" texrepeat="2 3" rgba="0.1 0.2 0.3 1" reflectance="0.4"/>
    <material name="bare" texture="lost" rgba="0.5 0.6 0.7 1"/>
    <mesh name="tetra" vertex="0 0 0  1 0 0  0 1 0  0 0 1" texcoord="0 0 1 0 0 1 1 1"
      face="0 2 1 0 1 3 0 3 2 1 2 3"/>
    <mesh name="lost" file="nowhere.stl"/>
  </asset>
  <worldbody>
    <camera name="far" pos="0 -5 1" xyaxes="1 0 0 0 0 1" fovy="30"/>
    <geom name="floor" type="plane" size="3 3 0.1"/>
    <body name="thing" pos="0 0 1">
      <freejoint/>
      <inertial pos="0 0 0" mass="1" diaginertia="1 1 1"/>
      <geom name="hidden" type="box" size="0.1 0.2 0.3" group="3"/>
      <geom name="seen" type="mesh" mesh="tetra" contype="0" conaffinity="0" group="2" material="paint"/>
      <geom name="gone" type="mesh" mesh="lost" contype="0" conaffinity="0" group="2"/>
      <geom name="plain" type="capsule" size="0.1 0.3" material="bare" pos="0 1 0"/>
      <site name="tip" pos="0 0 2"/>
    </body>
  </worldbody>
  <keyframe><key name="up" qpos="0 0 3 1 0 0 0"/></keyframe>
</mujoco>"""


def arm(dim: int) -> bd.Model:
    """Every joint of a dimension in one tree, with a loose body beside it."""
    scene = bd.Scene(dim=dim)
    up = (0.0, 1.0) if dim == 2 else (0.0, 0.0, 1.0)
    joints = [bd.Hinge(), bd.Slider(axis=up), bd.Fixed(), bd.Planar()]
    if dim == 3:
        joints = [bd.Hinge(axis=(0, 1, 0)), bd.Ball(), bd.Slider(axis=up), bd.Fixed(), bd.Free()]
    shape = bd.Box(0.1, 0.3) if dim == 2 else bd.Capsule(0.05, 0.3)
    parent = None
    for i, joint in enumerate(joints):
        place = [0.1 * i, *([0.0] * (dim - 2)), 1.0 - 0.3 * i]
        scene.add_body(f"b{i}", shape, mass=1.0, position=place)
        if not (dim == 3 and i == 4):
            scene.add_joint(f"j{i}", joint, parent=parent, child=f"b{i}", anchor=[x + 0.05 for x in place])
            parent = f"b{i}"
    return scene.build()


@settings(max_examples=15, deadline=None)
@given(dim=st.sampled_from([2, 3]), seed=st.integers(0, 10_000), batch=st.integers(1, 3))
def test_poses_are_those_of_the_trajectory(dim, seed, batch):
    model = arm(dim)
    rng = np.random.default_rng(seed)
    start = model.initial_state(batch)
    start = bd.State(start.q + torch.tensor(rng.normal(size=start.q.shape) * 0.3), start.v)
    path = bd.Simulator(model, 1e-3, specialize=False, impacts=False).rollout(start, steps=3)
    stage = Staging.of(path)
    for body in model.bodies:
        link = stage.link(body)
        np.testing.assert_allclose(stage.positions[:, :, link, :dim], path.position(body), atol=1e-6)
        if dim == 3:
            turn = np.abs((stage.rotations[:, :, link] * path.orientation(body).numpy()).sum(-1))
            np.testing.assert_allclose(turn, 1.0, atol=1e-6)
        else:
            angle = 2.0 * np.arctan2(stage.rotations[:, :, link, 3], stage.rotations[:, :, link, 0])
            np.testing.assert_allclose(np.exp(1j * angle), np.exp(1j * path.orientation(body).numpy()), atol=1e-6)
    assert np.abs(stage.positions[..., 2]).max() == 0.0 or dim == 3


def test_parameters_change_what_is_shown():
    scene = bd.Scene(dim=3)
    scene.add_static(bd.HalfSpace(normal=(0, 0, 1)))
    scene.add_body("rod", bd.Capsule(0.1, 0.4), mass=1.0, position=(0, 0, 1))
    model = scene.build()
    sizes = model.parameter("size").repeat(2, 1)
    sizes[:, 0] = torch.tensor([0.2, 0.3])
    sizes[:, 2] = torch.tensor([0.0, -0.5])
    path = bd.Simulator(model, 0.01).rollout(model.initial_state(2), steps=2, parameters={"size": sizes})
    stage = Staging.of(path)
    assert not stage.same_looks
    for b, radius in enumerate((0.2, 0.3)):
        np.testing.assert_allclose(stage.looks_of(b).visuals[0].size, (radius, 0.2, 0.0), atol=1e-7)
    assert [stage.looks_of(b).visuals[1].position[2] for b in range(2)] == [0.0, -0.5]
    assert model.looks.visuals[0].size == (0.1, 0.2, 0.0)


def test_looks_of_a_file():
    model = bd.load(TEXTURED)
    looks = {look.name: look for look in model.looks.visuals}
    assert "gone" not in looks, "a visual mesh without a file is left out"
    assert [look.name for look in model.looks.shown] == ["floor", "seen", "plain"]
    seen = looks["seen"]
    assert seen.kind == "mesh" and not seen.collides and seen.link == 0
    np.testing.assert_allclose(seen.rgba, (0.1, 0.2, 0.3, 1.0), atol=1e-6)
    assert seen.texture.image.shape == (8, 8, 3) and seen.texture.repeat == (2.0, 3.0)
    assert len(seen.mesh.uv) == len(seen.mesh.textured.vertices)
    assert looks["plain"].texture is None, "an image without a file is left out"
    assert looks["plain"].collides and looks["hidden"].collides and not looks["hidden"].shown
    assert (looks["floor"].link, looks["floor"].kind) == (-1, "plane")
    assert [site.name for site in model.looks.sites] == ["tip"]
    assert [(camera.name, camera.fovy) for camera in model.looks.cameras] == [("far", 30.0)]
    assert model.keyframes["up"].q.tolist() == [0, 0, 3, 1, 0, 0, 0]


def test_looks_have_no_part_in_the_motion():
    plain = TEXTURED.replace('group="2"', 'group="4"').replace('rgba="0.1 0.2 0.3 1"', "")
    model, other = bd.load(TEXTURED), bd.load(plain)
    assert model.fingerprint == other.fingerprint
    again = pickle.loads(pickle.dumps(model))
    assert [look.name for look in again.looks.shown] == [look.name for look in model.looks.shown]
    assert copy.deepcopy(model).looks is model.looks


def test_shapes_of_scenes_are_shown_in_the_colours_of_their_bodies():
    scene = bd.Scene(dim=2)
    scene.add_static(bd.HalfSpace(normal=(0, 1)))
    for name, shape in (
        ("ball", bd.Circle(0.2)),
        ("box", bd.Box(0.4, 0.2)),
        ("tri", bd.Polygon([(0, 0), (1, 0), (0, 1)])),
    ):
        scene.add_body(name, shape, mass=1.0)
    looks = scene.build().looks.visuals
    assert [look.kind for look in looks] == ["cylinder", "box", "mesh", "plane"]
    assert len({look.rgba for look in looks}) == 4
    np.testing.assert_allclose(looks[3].rotation @ [0, 0, 1], [0, 1, 0], atol=1e-12)
    corners = looks[2].mesh.vertices[looks[2].mesh.faces]
    normals = np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0])
    outside = corners.mean(1) - looks[2].mesh.vertices.mean(0)
    assert ((normals * outside).sum(1) > 0).all()


def test_what_is_not_finite_keeps_its_last_pose():
    model = bd.load(ASSETS / "ant.xml")
    q = model.initial_state(3).q.repeat(1, 1)
    path = bd.Simulator(model, physics="mujoco", nonfinite="mark").rollout(model.initial_state(3), steps=4)
    with torch.no_grad():
        path.q[2:, 1] = float("nan")
        path.q[:, 2] = float("inf")
    stage = Staging.of(path)
    assert np.isfinite(stage.positions).all() and np.isfinite(stage.rotations).all()
    np.testing.assert_array_equal(stage.positions[2:, 1], stage.positions[[1, 1, 1], 1])
    assert stage.visible[:2].all() and not stage.visible[2].any()
    assert len(stage.notes) == 2
    assert f"environment 1 is not finite from t = {path.time[2]:.6g} s on" in stage.notes[0]
    with pytest.raises(ValueError, match="nothing can be shown"):
        Staging.of(path, environments=2)
    with pytest.raises(ValueError, match="nothing can be shown"):
        Staging.of(model, bd.State(q * float("nan"), model.initial_state(3).v))


def test_bad_input_is_refused():
    model = arm(3)
    path = bd.Simulator(model, 1e-3, specialize=False).rollout(model.initial_state(2), steps=1)
    for what, message in ((3, "got int"), ([], "an empty list"), ([model], "a list of Model"), (None, "got NoneType")):
        with pytest.raises(TypeError, match=message):
            Staging.of(what)
    with pytest.raises(TypeError, match="give its model"):
        Staging.of(model.initial_state())
    with pytest.raises(ValueError, match=r"state.q must be \[\d+\]"):
        Staging.of(model, bd.State(torch.zeros(3), torch.zeros(3)))
    with pytest.raises(ValueError, match="from 0 to 1, got 2"):
        Staging.of(path, environments=[0, 2])
    with pytest.raises(ValueError, match="did you mean 'b1'"):
        Staging.of(path).link("bb1")
    with pytest.raises(ValueError, match="must be of one model"):
        Staging.of([path, bd.Simulator(arm(2), 1e-3, specialize=False).rollout(arm(2).initial_state(), steps=1)])
    with pytest.raises(ValueError, match="did you mean 'none'"):
        backends.find("nome")
    assert backends.find("none").show(Staging.of(path)).batch == 2


def test_empty_trajectories_are_refused():
    model = arm(3)
    path = bd.Simulator(model, 1e-3, specialize=False).rollout(model.initial_state(), steps=1)
    path._path = tuple(x[:0] for x in path._path)
    with pytest.raises(ValueError, match="is empty"):
        Staging.of(path)


def test_trajectories_of_different_lengths_are_shown_together():
    model = arm(3)
    simulator = bd.Simulator(model, 1e-3, specialize=False)
    long, short = (simulator.rollout(model.initial_state(), steps=steps) for steps in (6, 2))
    stage = Staging.of([short, long])
    assert stage.positions.shape[:2] == (7, 2)
    np.testing.assert_array_equal(stage.positions[2:, 0], stage.positions[[2] * 5, 0])
    np.testing.assert_array_equal(stage.positions[:3, 0], stage.positions[:3, 1])


@pytest.mark.parametrize("physics", ["rigid", "mujoco"])
def test_contacts_of_frames(physics):
    model = bd.load(ASSETS / "ant.xml")
    simulator = bd.Simulator(model, 0.01, physics=physics)
    path = simulator.rollout(model.initial_state(2), steps=60)
    stage, which = Staging.of(path), [0, 30, 59]
    found = stage.contacts(which)
    np.testing.assert_allclose(found.forces, path.contacts.force[which].float(), rtol=1e-4, atol=1e-3)
    assert np.abs(found.forces[2]).max() > 0.0
    assert Staging.of(model).contacts([0]) is None
