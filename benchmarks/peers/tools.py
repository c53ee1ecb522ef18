"""Ask a tool, in a process of its own, how fast it simulates the quadruped.

Most tools need an environment of their own, ``.venv-peers`` (`make peers`), or the one whose Python the environment
variable BACKDRIVE_PEERS names.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

INSTALL = "not installed: make peers"
REPOSITORY = Path(__file__).parents[2]
LONGEST = 1800.0  # s after which a tool is stopped, without an answer


@dataclass(frozen=True)
class Tool:
    """A simulator to compare with: its name, its module in this package, and how it runs.

    place: the name of its environment, .venv-PLACE, unless the variable BACKDRIVE_PLACE names another Python; "" is the
    Python that runs this. slow: compiling or running it takes a minute or more. same: it solves the same equations as
    backdrive. steps: the rollout lengths that are worth measuring, for tools that compile anew for each; None: all.
    """

    name: str
    module: str
    place: str = "peers"
    slow: bool = False
    same: bool = True
    steps: tuple[int, ...] | None = None


def python_of(tool: Tool) -> Path | None:
    """The Python that has the tool installed; None if its environment does not exist."""
    if tool.place == "":
        return Path(sys.executable)
    path = Path(os.environ.get(f"BACKDRIVE_{tool.place.upper()}", REPOSITORY / f".venv-{tool.place}/bin/python"))
    return path.absolute() if path.exists() else None


def ask(tool: Tool, request: Path, folder: str) -> dict[str, Any]:
    """The tool's answer to a request file, with an empty kernel cache in `folder`; {"missing": why} without one."""
    python = python_of(tool)
    if python is None:
        return {"missing": INSTALL}
    paths = [str(REPOSITORY)]
    if tool.place == "" and (found := importlib.util.find_spec("backdrive")) and found.origin:
        paths.append(str(Path(found.origin).parents[1]))
    environment = {
        **os.environ, "PYTHONPATH": os.pathsep.join(paths), "BACKDRIVE_CACHE": str(Path(folder, "cache")),
        "NPROC": "1",  # XLA's threads: with two, batches of 1,024 robots wait for each other for ever (jaxlib 0.10.2)
    }  # fmt: skip
    command = [str(python), "-m", "benchmarks.peers", tool.module, str(request)]
    try:
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=LONGEST)
    except subprocess.TimeoutExpired:
        return {"missing": f"no answer after {LONGEST / 60:g} minutes"}
    if done.returncode:
        lines = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        missing = lines[-1].startswith("ModuleNotFoundError")
        return {"missing": INSTALL if missing else f"failed: {lines[-1][:200]}"}
    return json.loads(done.stdout.splitlines()[-1])
