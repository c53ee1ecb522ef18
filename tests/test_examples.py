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
