"""Short runs of experiments, as the command line does them."""

import json
from pathlib import Path
from typing import Any, NamedTuple

from backdrive import experiments


class Finished(NamedTuple):
    """The results that were recorded, the files that were written, and the findings in words."""

    results: dict[str, Any]
    files: list[Path]
    lines: list[str]

    @property
    def names(self) -> set[str]:
        """Of the files."""
        return {path.name for path in self.files}


def quick_run(name: str, folder: Path) -> Finished:
    """The short version of an experiment, up to its end."""
    lines: list[str] = []
    run = experiments.Run(folder, quick=True, log=lines.append)
    experiments.find(name).run(run)
    written = json.loads((folder / "results.json").read_text("utf-8"))
    assert written["complete"] is True
    return Finished(written["results"], run.files, lines)
