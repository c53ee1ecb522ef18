"""Real robots, wherever their packages are installed."""

import importlib.util
import sysconfig
from collections.abc import Callable
from pathlib import Path

import pytest

ROBOTS = Path(sysconfig.get_paths()["purelib"]) / "cmeel.prefix/share/example-robot-data/robots"


def _locate(name: str) -> Path:
    if name.endswith(".xml"):
        found = importlib.util.find_spec("gymnasium")
        folder = Path(str(found.origin)).parent / "envs/mujoco/assets" if found else Path()
    else:
        folder = ROBOTS
    paths = sorted(folder.rglob(name)) if folder.is_dir() else []
    if not paths:
        pytest.skip(f"{name} is not installed")
    return paths[0]


@pytest.fixture
def robot() -> Callable[[str], Path]:
    """Path of a MJCF file of gymnasium or a URDF of example-robot-data, by file name."""
    return _locate
