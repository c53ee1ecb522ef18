"""The examples do what they say."""

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
