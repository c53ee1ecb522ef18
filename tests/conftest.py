"""The same examples in every run, so that a change is judged by itself; `HYPOTHESIS_PROFILE=explore` draws new ones."""

import os

from hypothesis import settings

settings.register_profile("repeatable", deadline=None, derandomize=True, print_blob=True)
settings.register_profile("explore", deadline=None, derandomize=False, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "repeatable"))
