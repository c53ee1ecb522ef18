"""The examples do what they say."""

import math
import re
import runpy
from pathlib import Path

import pytest
import torch
from rich.console import Console

import backdrive as bd

EXAMPLES = Path(__file__).parents[2] / "examples"
QUIET = Console(quiet=True)


@pytest.fixture
def example(monkeypatch):
    """The names of an example; its films have few frames here."""
    monkeypatch.syspath_prepend(EXAMPLES)
    import helper

    monkeypatch.setattr(helper, "FPS", 4)
    return lambda name: runpy.run_path(str(EXAMPLES / f"{name}.py"))


def assert_drawn(draw, *arguments, picture: Path) -> None:
    draw(*arguments, picture)
    assert picture.stat().st_size > 10_000


def test_arm_masses_are_learned(example, tmp_path):
    names = example("learn_arm_masses")
    result = names["learn"](250, QUIET)
    truth = names["TRUE_MASSES"]
    assert (result["masses"][0] - truth).abs().max() > 1.0
    assert torch.allclose(result["masses"][-1], truth, rtol=0.01)
    assert_drawn(names["draw"], result, picture=tmp_path / "results" / "arm.png")


def test_a_robot_stands_on_its_feet(example, tmp_path):
    names = example("standing_robot")
    result = names["stand"](QUIET)
    path, weight = result["path"], result["weight"]
    assert path.status.converged.all()
    assert path.status.contacts[-1] == 4
    assert path.v[-1].abs().max() < 0.1
    assert torch.isclose(path.contacts.force[-50:, :, 2].sum(-1).mean(), torch.tensor(weight).double(), rtol=0.01)
    assert result["report"].ok
    assert_drawn(names["draw"], result, picture=tmp_path / "results" / "robot.png")


def test_a_pile_falls(example, tmp_path):
    names = example("falling_pile")
    result = names["fall"](QUIET)
    path = result["path"]
    assert path.status.finite.all()
    assert path.status.contacts[-1] > 150
    assert path.status.depth[-1] < 5e-3
    assert result["influence"].isfinite().all()
    assert (result["influence"] > 0).sum() > 10
    assert_drawn(names["draw"], result, picture=tmp_path / "results" / "pile.png")


def test_a_cradle_finds_the_masses_of_huygens(example, tmp_path):
    names = example("newtons_cradle")
    result = names["run"](100, QUIET)
    assert result["cradle"].status.impacts.sum() >= 20
    assert result["drift"] < 1e-3
    assert result["error"] < 1e-6
    assert (result["masses"][0] - names["HUYGENS"]).abs().max() > 0.5
    assert torch.allclose(result["masses"][-1], names["HUYGENS"], rtol=0.02)
    assert result["heights"][-1] > 1.3 * result["heights"][0]
    assert_drawn(names["draw"], result, picture=tmp_path / "results" / "cradle.png")


def test_arrows_of_billiards_point_to_where_the_balls_end(example, tmp_path):
    names = example("billiards")
    result = names["break_rack"](QUIET)
    status = result["path"].status
    assert status.impacts[:, 0].sum() > 40
    assert (status.fallbacks + status.simultaneous).sum() == 0
    assert result["error"].max() < 1e-6
    slope = (result["miss"][8] / result["miss"][0]).log() / (result["sizes"][8] / result["sizes"][0]).log()
    assert ((slope - 2).abs() < 0.1).all()  # what the gradient leaves is of second order
    assert_drawn(names["draw"], result, picture=tmp_path / "results" / "billiards.png")


def test_balls_bounce_as_their_formulas_say(example, tmp_path):
    names = example("bouncing_balls")
    result = names["drop"](QUIET)
    assert result["errors"].abs().max() < 1e-11
    assert_drawn(names["draw"], result, picture=tmp_path / "balls.png")


def test_boxes_slide_or_stick(example, tmp_path):
    names = example("slide_and_friction")
    result = names["slide"](QUIET)
    assert torch.allclose(result["way"][-1], result["wanted"], atol=2e-4)
    assert torch.allclose(result["gradient"], result["slope"], rtol=1e-3, atol=1e-6)
    assert (result["way"][-1, -2:].abs() < 1e-9).all() and (result["way"][-1, :-2] > 0.02).all()
    assert_drawn(names["draw"], result, picture=tmp_path / "slide.png")


def test_a_chain_moves_alike_in_both_coordinates(example, tmp_path):
    names = example("chain")
    result = names["swing"](4, QUIET)
    assert all(path.status.converged.all() for path in result["paths"].values())
    assert result["tips"]["reduced"][:, 0].abs().max() > 0.1
    assert result["apart"][: result["hit"] + 48].max() < 0.02
    assert_drawn(names["draw"], result, picture=tmp_path / "chain.png")


def test_fixed_joints_make_one_body(example, tmp_path):
    names = example("fixed_joints")
    result = names["tumble"](QUIET)
    apart = result["apart"]
    assert apart["one body"] < 1e-9
    assert 0.0 < apart["weld"] < 0.2
    assert apart["weld"] / apart["weld, half the step"] == pytest.approx(2.0, rel=0.1)
    assert result["paths"]["fixed"].status.contacts.max() > 0
    assert_drawn(names["draw"], result, picture=tmp_path / "hammer.png")


def test_a_throw_finds_its_target_over_the_wall(example, tmp_path):
    names = example("throw_over_wall")
    result = names["aim"](12, QUIET)
    assert result["misses"][0] > 0.5 and result["misses"][-1] < 1e-9 and result["error"] < 1e-6
    track, (x, height) = result["paths"][-1], names["WALL"]
    above = track[(track[:, 0] - x).abs() < 0.1]
    assert len(above) and (above[:, 1] > height + 0.1).all()
    assert (result["last"].status.impacts.sum(0) == 1).all()
    assert_drawn(names["draw"], result, picture=tmp_path / "throw.png")
    names["film"](result["last"], tmp_path / "throw.mp4", trail=["ball"])
    assert (tmp_path / "throw.mp4").stat().st_size > 1000


def test_contact_is_learned_from_a_track(example, tmp_path):
    names = example("learn_contact")
    result = names["learn"](QUIET)
    found = result["fit"]
    truth = torch.tensor([names["FRICTION"], names["RESTITUTION"]], dtype=torch.float64)
    assert ((found.value - truth).abs() < 4 * found.std).all() and (found.std < 0.01).all()
    assert 0.8 < found.noise < 1.2 and math.isfinite(found.loss)
    assert_drawn(names["draw"], result, picture=tmp_path / "contact.png")


def test_a_cartpole_swings_up(example, tmp_path):
    names = example("swing_up")
    result = names["swing"](200, QUIET)
    off = names["off"]
    assert result["plan"].converged and off(bd.State(result["plan"].states.q[-1], None)) < 0.05
    assert off(result["blind"].last) > 0.3
    assert off(result["guided"].last) < 0.15 and off(result["held"].last) < 0.05
    assert_drawn(names["draw"], result, picture=tmp_path / "swing.png")


def test_every_example_has_a_command_line(example, monkeypatch, tmp_path, capsys):
    """One of them from its arguments to its files; for the others, that it takes ``--help``."""
    names = example("throw_over_wall")
    monkeypatch.setattr("sys.argv", ["throw_over_wall.py", "--iterations", "1", "--out", str(tmp_path)])
    names["main"]()
    assert {p.name for p in tmp_path.iterdir()} == {"throw_over_wall.png", "throw_over_wall.mp4"}
    assert str(tmp_path / "throw_over_wall.mp4") in capsys.readouterr().out
    for file in sorted(EXAMPLES.glob("*.py")):
        if file.stem != "helper":
            monkeypatch.setattr("sys.argv", [file.name, "--help"])
            with pytest.raises(SystemExit) as stopped:
                example(file.stem)["main"]()
            assert stopped.value.code == 0 and "--out" in capsys.readouterr().out


def test_the_code_about_gradients_prints_what_the_page_says(capsys):
    page = (EXAMPLES.parent / "docs" / "gradients.md").read_text("utf-8")
    bounce, smoothing = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    exec(bounce, {})
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    (split, x, slope), (plain, other_x, other_slope) = lines
    assert (split, plain) == ("True", "False")
    assert abs(float(x) - 0.2) < 1e-12 and abs(float(slope) + 1) < 1e-12
    assert abs(float(other_x) - 0.192) < 1e-6 and float(other_slope) == 1
    exec(smoothing, {})
    (_, *first), (_, *zeroth) = (map(float, line.split()) for line in capsys.readouterr().out.splitlines())
    assert first[0] == zeroth[0]
    assert abs(first[1] + 15.58) < 3 * 0.55 and abs(zeroth[1] + 15.58) < 3 * 0.24
