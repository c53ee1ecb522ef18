"""The code of docs/envs.md runs, as one program."""

import re
from pathlib import Path

import gymnasium
import matplotlib

from backdrive.envs import TASKS, TWINS

PAGE = (Path(__file__).parents[3] / "docs" / "envs.md").read_text("utf-8")


def test_it_runs():
    matplotlib.use("Agg")
    names: dict = {}
    for block in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL):
        exec(block, names)
    assert names["picture"].shape == (480, 480, 3) and names["observations"].shape == (64, 27)
    assert all(x.grad is not None for x in names["policy"].parameters())
    observation, _ = names["envs"].reset(seed=0)
    assert observation.shape == (256, 2)
    for _ in range(100):
        *_, truncated, _ = names["envs"].step(-observation[:, :1])
    assert truncated.any()


def test_its_table_has_every_environment_with_its_sizes():
    rows = dict(re.findall(r"\| `backdrive/(\w+)-v0` \| (.*? \| .*?) \|", PAGE))
    assert list(rows) == list(TASKS)
    for name, sizes in rows.items():
        spaces = gymnasium.make(f"backdrive/{name}-v0").unwrapped
        found = [spaces.action_space.shape[0], spaces.observation_space.shape[0]]
        assert found == ([3, 9] if name == "NLinkPendulum" else [int(x) for x in sizes.split(" | ")])


def test_its_table_has_every_twin_with_its_sizes():
    rows = dict(re.findall(r"\| `backdrive/(\w+)-v5` \| (.*? \| .*?) \|", PAGE))
    assert list(rows) == list(TWINS)
    for name, sizes in rows.items():
        spaces = gymnasium.make(f"backdrive/{name}-v5").unwrapped
        assert [spaces.action_space.shape[0], spaces.observation_space.shape[0]] == [int(x) for x in sizes.split(" | ")]


def test_the_code_about_mujoco_runs():
    page = (Path(__file__).parents[3] / "docs" / "mujoco.md").read_text("utf-8")
    names: dict = {}
    for block in re.findall(r"```python\n(.*?)```", page, re.DOTALL):
        exec(block, names)
    assert names["controls"].grad.abs().max() > 0.0 and names["solref"].grad.abs().max() > 0.0
    assert names["actions"].grad.abs().max() > 0.0
