"""The examples of CONTRIBUTING.md work: each is applied to a copy of the source, and its own check is run there.

A section of "Where does a ... go?" has blocks with a title:

    ```python title="src/backdrive/..."     a new file
    ```diff title="src/backdrive/..."       changes of a file, in hunks that begin with @@
    ```python title="Try it"                a program that asserts that the addition works
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
RECIPES = PAGE.split("\n## Where does a ... go?\n")[1].split("\n## ")[0]
SECTIONS = dict(re.findall(r"^### ([^\n]+)\n(.*?)(?=^### |\Z)", RECIPES, re.DOTALL | re.MULTILINE))
BLOCK = re.compile(r'```(python|diff) title="([^"]+)"\n(.*?)```', re.DOTALL)
MOST_FILES = {"A shape of a new kind": 4}
"""Three files are enough for everything else; exports of the package aside."""


def apply(folder: Path, language: str, path: str, text: str) -> None:
    """Write a new file, or change one: the lines of every hunk must occur there, once."""
    target = folder / path
    if language == "python":
        assert not target.exists(), f"{path} exists already"
        target.write_text(text, "utf-8")
        return
    content = target.read_text("utf-8")
    for hunk in re.split(r"^@@.*\n", text, flags=re.MULTILINE)[1:]:
        lines = hunk.splitlines(keepends=True)
        old = "".join(line[1:] or "\n" for line in lines if line[0] in " -\n")
        new = "".join(line[1:] or "\n" for line in lines if line[0] in " +\n")
        assert content.count(old) == 1, f"{path} has these lines {content.count(old)} times:\n{old}"
        content = content.replace(old, new)
    target.write_text(content, "utf-8")


def run(program: str, folder: Path) -> None:
    (folder / "try_it.py").write_text(program, "utf-8")
    environment = {**os.environ, "PYTHONPATH": str(folder / "src")}
    done = subprocess.run(
        [sys.executable, "try_it.py"], env=environment, cwd=folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_there_is_a_recipe_for_everything():
    words = " ".join(SECTIONS).lower()
    for word in ("integrator", "solver", "joint", "shape", "actuator", "sensor", "experiment"):
        assert word in words


@pytest.mark.slow
@pytest.mark.parametrize("title", SECTIONS)
def test_the_recipe_works(title, tmp_path):
    blocks = BLOCK.findall(SECTIONS[title])
    changes = [block for block in blocks if block[1] != "Try it"]
    (program,) = (text for _, name, text in blocks if name == "Try it")
    files = {path for _, path, _ in changes}
    assert 0 < len(files) <= MOST_FILES.get(title, 3), files
    assert files == set(re.findall(r"^\d\. `(src/[^`]+)`", SECTIONS[title], re.MULTILINE)), "the list of files"
    shutil.copytree(ROOT / "src", tmp_path / "src", ignore=shutil.ignore_patterns("__pycache__"))
    for language, path, text in changes:
        apply(tmp_path, language, path, text)
    run(program, tmp_path)
