"""An interactive page in the browser, served on this machine by viser: see `backdrive.view.show`."""

from __future__ import annotations

from typing import Any

from ..browser import server as servers
from ..browser.live import Driver
from ..browser.viewer import Options, Viewer, interactive, open_page
from ..stage import Staging

servers.load_viser()


def show(
    stage: Staging, *, driver: Driver | None = None, port: int | None = None, host: str = "127.0.0.1",
    block: bool | None = False, open: bool = False, **options: Any,
) -> Viewer:  # fmt: skip
    """Serve a page. driver: what moves the stage live. options: see `Options`.

    block: wait until the viewer is closed; None: in scripts, not at a prompt. open: open the page in a browser.
    """
    chosen = Options(**options)
    server = servers.start(host, port, (), chosen.label)
    try:
        viewer = Viewer(server, stage, chosen, driver)
    except BaseException:
        servers.stop(server)
        raise
    for note in stage.notes:
        print(f"backdrive.view: {note}")
    if open:
        open_page(viewer.url)
    if block or (block is None and not interactive()):
        print(f"backdrive.view: {viewer.url} (Ctrl-C ends it)")
        viewer.wait()
    return viewer
