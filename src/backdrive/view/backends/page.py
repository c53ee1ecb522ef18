"""A page in one file, for any browser, notebook or web site: see `backdrive.view.export`."""

from __future__ import annotations

import os
from typing import Any

from ..browser import server as servers
from ..browser.page import Page, PageOptions, record
from ..stage import Staging

servers.load_viser()


def show(stage: Staging, *, file: str | os.PathLike[str] | None = None, **options: Any) -> Page:
    """The page of a stage, written to a file if one is given. options: see `PageOptions`."""
    page = record(stage, PageOptions(**options))
    if file is not None:
        page.save(file)
    return page
