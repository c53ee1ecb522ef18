"""Random arguments never crash the process: each call is a Python exception or the right result."""

import os
import subprocess
import sys

import pytest


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
def test_random_arguments(seed, request):
    """In a process of its own, in which memory that was freed or never written has odd contents."""
    script = request.config.rootpath / "tests" / "support" / "fuzz_operators.py"
    environment = os.environ | {"MALLOC_PERTURB_": "165", "PYTHONFAULTHANDLER": "1"}
    command = [sys.executable, str(script), str(seed), "1200"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=environment)
    assert done.returncode == 0, done.stderr[-3000:]
    finished, refused = (int(part.split()[0]) for part in done.stdout.split(","))
    assert finished > 200 and refused > 400
