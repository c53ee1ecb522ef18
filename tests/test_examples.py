"""The examples do what they say."""

import re
import runpy
from pathlib import Path

import torch
from rich.console import Console

EXAMPLES = Path(__file__).parent.parent / "examples"


def test_arm_masses_are_learned(tmp_path):
    example = runpy.run_path(str(EXAMPLES / "learn_arm_masses.py"))
    result = example["learn"](250, Console(quiet=True))
    truth = example["TRUE_MASSES"]
    assert (result["masses"][0] - truth).abs().max() > 1.0
    assert torch.allclose(result["masses"][-1], truth, rtol=0.01)
    picture = tmp_path / "results" / "arm.png"
    example["draw"](result, picture)
    assert picture.stat().st_size > 10_000


def test_a_robot_stands_on_its_feet(tmp_path):
    example = runpy.run_path(str(EXAMPLES / "standing_robot.py"))
    result = example["stand"](Console(quiet=True))
    path, weight = result["path"], result["weight"]
    assert path.status.converged.all()
    assert path.status.contacts[-1] == 4
    assert path.v[-1].abs().max() < 0.1
    assert torch.isclose(path.contacts.force[-50:, :, 2].sum(-1).mean(), torch.tensor(weight).double(), rtol=0.01)
    assert result["report"].ok
    picture = tmp_path / "results" / "robot.png"
    example["draw"](result, picture)
    assert picture.stat().st_size > 10_000


def test_a_pile_falls(tmp_path):
    example = runpy.run_path(str(EXAMPLES / "falling_pile.py"))
    result = example["fall"](Console(quiet=True))
    path = result["path"]
    assert path.status.finite.all()
    assert path.status.contacts[-1] > 150
    assert path.status.depth[-1] < 5e-3
    assert result["influence"].isfinite().all()
    assert (result["influence"] > 0).sum() > 10
    picture = tmp_path / "results" / "pile.png"
    example["draw"](result, picture)
    assert picture.stat().st_size > 10_000


def test_a_cradle_finds_the_masses_of_huygens(tmp_path):
    example = runpy.run_path(str(EXAMPLES / "newtons_cradle.py"))
    result = example["run"](100, Console(quiet=True))
    assert result["cradle"].status.impacts.sum() >= 20
    assert result["drift"] < 1e-3
    assert result["error"] < 1e-6
    assert (result["masses"][0] - example["HUYGENS"]).abs().max() > 0.5
    assert torch.allclose(result["masses"][-1], example["HUYGENS"], rtol=0.02)
    assert result["heights"][-1] > 1.3 * result["heights"][0]
    picture = tmp_path / "results" / "cradle.png"
    example["draw"](result, picture)
    assert picture.stat().st_size > 10_000


def test_arrows_of_billiards_point_to_where_the_balls_end(tmp_path):
    example = runpy.run_path(str(EXAMPLES / "billiards.py"))
    result = example["break_rack"](Console(quiet=True))
    status = result["path"].status
    assert status.impacts[:, 0].sum() > 40
    assert (status.fallbacks + status.simultaneous + status.guarded).sum() == 0
    assert result["error"].max() < 1e-6
    slope = (result["miss"][8] / result["miss"][0]).log() / (result["sizes"][8] / result["sizes"][0]).log()
    assert ((slope - 2).abs() < 0.1).all()  # what the gradient leaves is of second order
    picture = tmp_path / "results" / "billiards.png"
    example["draw"](result, picture)
    assert picture.stat().st_size > 10_000


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
