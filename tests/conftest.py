"""The same examples in every run, so that a change is judged by itself; `HYPOTHESIS_PROFILE=explore` draws new ones.

All tests in campaigns/ are slow: `make test` leaves them out, `make test-all` runs them.
"""

import os
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis.internal.conjecture import providers

settings.register_profile("repeatable", deadline=None, derandomize=True, print_blob=True)
settings.register_profile("explore", deadline=None, derandomize=False, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "repeatable"))

if os.environ.get("HYPOTHESIS_PROFILE", "repeatable") == "repeatable":
    # Hypothesis also draws constants from the source of all local modules that are imported by then: examples would
    # depend on the order of the tests, and change with any number in the source.
    providers._get_local_constants = lambda: providers._local_constants  # which stay empty


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    campaigns = Path(__file__).parent / "campaigns"
    for item in items:
        if campaigns in item.path.parents:
            item.add_marker(pytest.mark.slow)
