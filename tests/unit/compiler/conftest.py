"""Kernels of these tests go to a cache of their own: their names and keys mean nothing to another run."""

import pytest


@pytest.fixture(scope="session")
def kernels(tmp_path_factory):
    return tmp_path_factory.mktemp("kernels")


@pytest.fixture(scope="module", autouse=True)
def _own_cache(kernels):
    """For these modules only: others find their kernels where earlier runs left them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("BACKDRIVE_CACHE", str(kernels))
        yield
