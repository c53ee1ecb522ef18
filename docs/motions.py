"""A hook of MkDocs: simulates the motions that pages of this site embed, and adds them as pages of their own."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[1]


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add motions/standing_robot.html: a robot lands, with the contact forces and the gradient of a loss as arrows."""
    import backdrive as bd

    sys.path.insert(0, str(ROOT / "examples"))
    from standing_robot import drop

    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder) / "page.html"
        loss = lambda path: path.position("trunk")[-1, 2]  # noqa: E731
        bd.view.export(drop(), page, overlays=("contacts",), gradients=loss, arrows="wrench")
        files.append(File.generated(config, "motions/standing_robot.html", content=page.read_text("utf-8")))
    return files
