"""Kernels of these tests go to a cache of their own: their names and keys mean nothing to another run."""

import os

import pytest


@pytest.fixture(scope="session", autouse=True)
def _own_cache(tmp_path_factory):
    before = os.environ.get("BACKDRIVE_CACHE")
    os.environ["BACKDRIVE_CACHE"] = str(tmp_path_factory.mktemp("kernels"))
    yield
    if before is None:
        del os.environ["BACKDRIVE_CACHE"]
    else:
        os.environ["BACKDRIVE_CACHE"] = before
