"""Saved trajectories have the same bits, are read without this package, and garbage is refused."""

import json
import os
import zipfile
from pathlib import Path

import gymnasium
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import backdrive as bd

ASSETS = Path(os.path.dirname(gymnasium.__file__)) / "envs" / "mujoco" / "assets"


def world(dim: int) -> bd.Model:
    scene = bd.Scene(dim=dim)
    scene.add_static(bd.HalfSpace(normal=(0, 1) if dim == 2 else (0, 0, 1)), friction=0.5)
    shape = bd.Polygon([(0, 0), (0.4, 0), (0.1, 0.4)]) if dim == 2 else bd.Convex(np.eye(4)[:, :3])
    scene.add_body("stone", shape, mass=1.0, position=(0.0, 0.3) if dim == 2 else (0.0, 0.0, 0.3), restitution=0.5)
    scene.add_body("arm", bd.Box(*([0.2] * dim)), mass=1.0, position=(2.0, 1.0) if dim == 2 else (2.0, 0.0, 1.0))
    joint = bd.Hinge() if dim == 2 else bd.Hinge(axis=(0, 1, 0), limits=(-1.0, float("inf")))
    scene.add_joint("elbow", joint, child="arm", anchor=(1.5, 1.0) if dim == 2 else (1.5, 0.0, 1.0))
    scene.add_motor("motor", joint="elbow", limits=(-1.0, 1.0))
    return scene.build()


def same(a: bd.Trajectory, b: bd.Trajectory) -> None:
    for x, y in ((a.q, b.q), (a.v, b.v), (a.controls, b.controls), (a.constants, b.constants), (a.time, b.time)):
        assert x.dtype == y.dtype and x.numpy().tobytes() == y.numpy().tobytes()
    assert a.model.fingerprint == b.model.fingerprint and repr(a) == repr(b)
    assert a.model.bodies == b.model.bodies and a.model.parameters().names == b.model.parameters().names
    assert [v.name for v in a.model.looks.visuals] == [v.name for v in b.model.looks.visuals]


@settings(max_examples=8, deadline=None, derandomize=True)
@given(
    dim=st.sampled_from([2, 3]), batch=st.sampled_from([None, 1, 2]), dtype=st.sampled_from(["float64", "float32"]),
    varied=st.booleans(), pushed=st.booleans(), broken=st.booleans(),
)  # fmt: skip
def test_what_is_loaded_is_what_was_saved(tmp_path_factory, dim, batch, dtype, varied, pushed, broken):
    model, kind = world(dim), getattr(torch, dtype)
    simulator = bd.Simulator(model, 0.01, dtype=kind, specialize=False, impacts=False)
    start = model.initial_state(batch).to(kind)
    parameters = {"mass": model.parameter("mass").to(kind) * 2.0} if varied else None
    wrenches = (
        torch.ones(5, *([] if batch is None else [batch]), 2, 3 if dim == 2 else 6, dtype=kind) if pushed else None
    )
    controls = torch.rand(5, *([] if batch is None else [batch]), 1, dtype=kind)
    path = simulator.rollout(start, controls, parameters=parameters, wrenches=wrenches)
    if broken:
        path.q[2] = float("nan")
    file = tmp_path_factory.mktemp("files") / "motion.bd"
    path.save(file)
    again = bd.Trajectory.load(file)
    same(path, again)
    if not broken:
        assert torch.equal(path.contacts.force, again.contacts.force)
        more = (s.rollout(p.last, controls, parameters=parameters) for s, p in
                ((simulator, path), (again.simulator, again)))  # fmt: skip
        first, second = more
        assert torch.equal(first.q, second.q)


def test_models_of_files_and_their_physics_are_kept(tmp_path):
    model = bd.load(ASSETS / "humanoid.xml")
    simulator = bd.Simulator(model, physics=bd.MuJoCo(integrator="implicitfast"))
    path = simulator.rollout(model.initial_state(2), steps=4, adjoint=bd.Checkpoint(2))
    path.save(tmp_path / "motion.bd")
    again = bd.Trajectory.load(tmp_path / "motion.bd")
    same(path, again)
    assert again.simulator.physics == simulator.physics and len(again) == 3
    assert again.model.keyframes.keys() == model.keyframes.keys()
    first, second = (look.texture for look in (model.looks.visuals[1], again.model.looks.visuals[1]))
    np.testing.assert_array_equal(first.image, second.image)
    plain = bd.Simulator(world(3), 0.01, solver=bd.InteriorPoint(), integrator=bd.Midpoint(), impacts=False)
    plain.rollout(world(3).initial_state(), steps=2).save(tmp_path / "other.bd")
    other = bd.Trajectory.load(tmp_path / "other.bd").simulator
    assert (other.solver, other.integrator) == (plain.solver, plain.integrator)


@pytest.fixture
def saved(tmp_path):
    model = world(2)
    file = tmp_path / "motion.bd"
    bd.Simulator(model, 0.01, specialize=False, impacts=False).rollout(model.initial_state(), steps=3).save(file)
    return file


def test_numpy_reads_it(saved):
    with np.load(saved) as file:
        assert file["q"].shape == (4, 4) and file["time"].tolist() == pytest.approx([0.0, 0.01, 0.02, 0.03])
        header = json.loads(file["header.json"])
    assert header["format"] == "backdrive trajectory" and header["bodies"] == ["stone", "arm"] and header["dt"] == 0.01


def rewritten(file: Path, change) -> Path:
    """The file with changed entries: change(name, data) -> data, or None to leave it out."""
    other = file.with_name("changed.bd")
    with zipfile.ZipFile(file) as old, zipfile.ZipFile(other, "w") as new:
        for name in old.namelist():
            data = change(name, old.read(name))
            if data is not None:
                new.writestr(name, data)
    return other


def header(change):
    def apply(name, data):
        if name != "header.json":
            return data
        content = json.loads(data)
        change(content)
        return json.dumps(content)

    return apply


GARBAGE = [
    (lambda name, data: None if name == "header.json" else data, "it has no header.json"),
    (lambda name, data: b"{" if name == "header.json" else data, "header.json"),
    (lambda name, data: None if name == "v.npy" else data, "it has no array 'v'"),
    (lambda name, data: data[:-8] if name == "q.npy" else data, "q|array|bytes|read"),
    (header(lambda h: h.update(format="other")), "must be 'backdrive trajectory'"),
    (header(lambda h: h.update(version=9)), "version 9, and this backdrive reads version 1"),
    (header(lambda h: h.pop("dt")), "has no 'dt'"),
    (header(lambda h: h.update(dt=-1)), "dt must be a positive number"),
    (header(lambda h: h.update(dtype="int8")), "dtype must be"),
    (header(lambda h: h["model"].update(record="Popen")), "unknown kind 'Popen'"),
    (header(lambda h: h["model"]["fields"].update(extra=1)), "unknown field 'extra'"),
    (header(lambda h: h["model"]["fields"].pop("parent")), "no field 'parent'"),
    (header(lambda h: h["rollout"]["fields"].update(steps=7)), r"q must be \[8, 4\]"),
    (header(lambda h: h["simulator"].update(color=7)), "unknown setting 'color'"),
    (header(lambda h: h.update(fingerprint="0")), "fingerprint differs"),
]


@pytest.mark.parametrize(("change", "message"), GARBAGE)
def test_garbage_is_refused(saved, change, message):
    with pytest.raises(ValueError, match=message):
        bd.Trajectory.load(rewritten(saved, change))


def test_other_files_are_refused(saved, tmp_path):
    (tmp_path / "text.bd").write_text("hello")
    with pytest.raises(ValueError, match="not a backdrive trajectory"):
        bd.Trajectory.load(tmp_path / "text.bd")
    data = bytearray(saved.read_bytes())
    data[len(data) // 2] ^= 0xFF
    (tmp_path / "damaged.bd").write_bytes(data)
    with pytest.raises(ValueError, match="not a backdrive trajectory"):
        bd.Trajectory.load(tmp_path / "damaged.bd")
    with pytest.raises(FileNotFoundError, match="no such file"):
        bd.Trajectory.load(tmp_path / "nothing.bd")
    path = bd.Trajectory.load(saved)
    with pytest.raises(ValueError, match=r"saved in a \.bd file"):
        path.save(tmp_path / "motion.npz")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["damaged.bd", "motion.bd", "text.bd"]
