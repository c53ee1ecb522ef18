"""The code in the documentation runs, and its files can be read."""

import json
import re
from pathlib import Path

import matplotlib
import pytest

import backdrive as bd

DOCS = Path(__file__).parent.parent / "docs"


def blocks(page: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", (DOCS / page).read_text("utf-8"), re.DOTALL)


def test_the_tutorial_is_one_program(tmp_path, monkeypatch, capsys):
    matplotlib.use("Agg")
    monkeypatch.chdir(tmp_path)
    names: dict = {}
    for block in blocks("tutorial.md", "python"):
        exec(block, names)
    out = capsys.readouterr().out
    assert "torch.Size([481, 4]) torch.Size([481, 4])" in out
    assert "all agree to 1e-06" in out and out.strip().endswith("True True")
    assert (tmp_path / "tutorial.mp4").stat().st_size > 10_000
    assert names["model"].nq == 4 and names["model"].q_index("nail") == slice(3, 4)
    matplotlib.pyplot.close("all")


def test_the_code_about_control_is_one_program(monkeypatch, capsys):
    matplotlib.use("Agg")
    names: dict = {}
    for block in blocks("control.md", "python"):
        exec(block, names)
    assert "ILQR: 8 converged" in capsys.readouterr().out
    assert names["plan"].gains.shape == (150, 8, 1, 2) and names["mpc"].time == 5
    assert (names["plan"].states.q[-1].abs() - 3.14159).abs().max() < 0.05
    assert names["imagined"].converged.all()
    matplotlib.pyplot.close("all")


def test_the_map_from_lcp_physics_runs(capsys):
    (block,) = blocks("from_lcp_physics.md", "python")
    exec(block, {})
    # 3 or 4 steps of push, then the way of the speed they gave: 100 times as much for 100 N.
    assert capsys.readouterr().out.startswith("tensor(0.1")


def test_names_in_the_map_from_lcp_physics_exist():
    text = (DOCS / "from_lcp_physics.md").read_text("utf-8")
    for name in sorted(set(re.findall(r"\bbd\.(\w+)", text))):
        assert hasattr(bd, name), name
    for name in sorted(set(re.findall(r"\bscene\.(\w+)", text))):
        assert hasattr(bd.Scene, name), name
    for name in sorted(set(re.findall(r"\bpath\.(\w+)", text))):
        assert hasattr(bd.Trajectory, name) or name in ("q", "v", "status", "last"), name


def test_the_files_of_the_format_page_can_be_read(tmp_path):
    scene, state = blocks("scene_format.md", "json")
    (tmp_path / "scene.json").write_text(scene)
    (tmp_path / "state.json").write_text(state)
    model = bd.load(tmp_path / "scene.json")
    assert model.joints == ("rail", "pivot") and model.nu == 1
    assert bd.State.load(tmp_path / "state.json").q.tolist() == model.initial_state().q.tolist()
    wrong = json.loads(scene)
    wrong["joints"][0]["dampping"] = 1.0
    (tmp_path / "scene.json").write_text(json.dumps(wrong))
    with pytest.raises(ValueError, match=r"joints\[0\]: unknown key 'dampping'; did you mean 'damping'\?"):
        bd.load(tmp_path / "scene.json")


def test_the_format_page_has_every_key():
    from backdrive.model import files

    text = (DOCS / "scene_format.md").read_text("utf-8")
    for table in (files.SHAPES, files.JOINTS, files.CONSTRAINTS, files.MOTORS):
        for kind, keys in table.items():
            assert all(f"`{name}`" in text for name in (kind.__name__, *keys)), kind
    assert all(f"`{key}`" in text for key in (*files.MATERIAL, *files._body_keys(2), *files._body_keys(3)))
