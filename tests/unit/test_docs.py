"""The code in the documentation runs, and its files can be read."""

import json
import re
from pathlib import Path

import matplotlib
import pytest

import backdrive as bd

ROOT = next(folder for folder in Path(__file__).parents if (folder / "mkdocs.yml").is_file())
DOCS = ROOT / "docs"
SOURCE = ROOT / "src" / "backdrive"


def blocks(page: str, language: str) -> list[str]:
    """The blocks of a page of the docs, or of ../README.md."""
    return re.findall(rf"```{language}\n(.*?)```", (DOCS / page).read_text("utf-8"), re.DOTALL)


def test_the_readme_is_short_and_its_example_runs():
    assert len((ROOT / "README.md").read_bytes()) <= 8000
    (block,) = blocks("../README.md", "python")
    names: dict = {}
    exec(block, names)
    assert names["path"].status.converged.all() and names["path"].status.impacts.sum() > 0
    assert names["controls"].grad.abs().max() > 0 and names["mass"].grad.abs().min() > 0


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md", "CHANGELOG.md"])
def test_links_of_the_repository_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", (ROOT / page).read_text("utf-8")):
        assert target.startswith("https://") or (ROOT / target).is_file(), target


def test_the_code_about_contact_runs():
    (block,) = blocks("concepts.md", "python")
    names = {"bd": bd}
    exec(block, names)
    assert names["path"].contacts.on("box")[-1, 2].item() == pytest.approx(2.0 * 9.81, rel=1e-6)


def test_the_code_about_gradients_prints_the_numbers_of_the_page(capsys):
    wall, post = blocks("gradients.md", "python")
    exec(wall, {})
    exact, plain = (line.split() for line in capsys.readouterr().out.splitlines())
    assert float(exact[1]) == pytest.approx(0.2, abs=1e-12) and float(exact[2]) == pytest.approx(-1.0, abs=1e-12)
    assert float(plain[1]) == pytest.approx(0.192) and float(plain[2]) == pytest.approx(1.0)
    exec(post, {})
    first, zeroth = (float(line.split()[2]) for line in capsys.readouterr().out.splitlines())
    assert abs(first + 15.58) < 3 * 0.55 and abs(zeroth + 15.58) < 3 * 0.24


def test_the_code_about_identification_prints_the_numbers_of_the_page(capsys):
    (block,) = blocks("identify.md", "python")
    exec(block, {})
    printed = capsys.readouterr().out
    for number in ("0.100267", "0.599947"):
        assert number in printed and number in (DOCS / "identify.md").read_text("utf-8")


def test_the_glossary_is_sorted_and_names_modules_that_exist():
    rows = re.findall(r"^\| (.+?) \| .+? \| (`.+`) \|$", (DOCS / "glossary.md").read_text("utf-8"), re.MULTILINE)
    words = [word.lower() for word, _ in rows]
    assert words == sorted(words) and len(set(words)) == len(words) > 100
    for word, modules in rows:
        for module in modules.split(", "):
            assert (SOURCE / module.strip("`")).is_file(), (word, module)


def test_the_pages_about_the_inside_name_files_that_exist():
    for page in ("architecture.md", "../CONTRIBUTING.md"):
        text = (DOCS / page).read_text("utf-8")
        text = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
        added = {"leapfrog.py", "jacobi.py", "cylindrical.py", "egg.py", "pendulum.py"}  # by examples
        for path in re.findall(r"`([\w./]+\.py)`", text):
            places = [folder / path for folder in (ROOT, SOURCE, *SOURCE.glob("physics/*"))]
            assert Path(path).name in added or any(place.is_file() for place in places), (page, path)


def test_the_reference_has_every_public_name():
    listed = "".join(page.read_text("utf-8") for page in (DOCS / "api").glob("*.md"))
    names = set(re.findall(r"^::: backdrive\.(?:\w+\.)*(\w+)$", listed, re.MULTILINE))
    assert set(bd.__all__) - {"__version__"} <= names
    for part in ("control", "envs", "experiments", "identify", "view"):
        assert set(getattr(bd, part).__all__) - {"TASKS", "TWINS"} <= names, part


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
    from backdrive.model.files import keys

    text = (DOCS / "scene_format.md").read_text("utf-8")
    for table in (keys.SHAPES, keys.JOINTS, keys.CONSTRAINTS, keys.MOTORS):
        for kind, names in table.items():
            assert all(f"`{name}`" in text for name in (kind.__name__, *names)), kind
    assert all(f"`{key}`" in text for key in (*keys.MATERIAL, *keys.body_keys(2), *keys.body_keys(3)))


def test_the_code_about_learning_runs(capsys):
    (block,) = blocks("learning.md", "python")
    exec(block, {})
    assert "2 episodes of 200 steps" in capsys.readouterr().out
