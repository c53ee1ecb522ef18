"""Random arguments never crash the process: each call is a Python exception or the right result."""

import pytest

from benchmarks import fuzz


@pytest.mark.parametrize("seed", range(2))
def test_random_arguments(seed):
    done = fuzz.run(seed, 1200, 0)
    assert done.returncode == 0, done.stderr[-3000:]
    finished, refused = (int(part.split()[0]) for part in done.stdout.split(","))
    assert finished > 200 and refused > 400
