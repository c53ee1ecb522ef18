"""Kernels load wherever there is room in memory."""

import subprocess
import sys

import pytest


@pytest.mark.skipif(sys.platform != "linux", reason="the gaps in memory are filled by a call of Linux")
def test_code_and_constants_are_loaded_side_by_side(request):
    """Otherwise a kernel that needs more room than a gap has ends the process: its constants are too far away."""
    script = request.config.rootpath / "tests" / "support" / "far_apart.py"
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0 and done.stdout == "loaded\n", done.stderr[-2000:]
