"""One run of an experiment: its settings, its random numbers, and its results folder."""

from __future__ import annotations

import importlib.util
import json
import math
import os
import platform
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from ..model import checks
from ..trajectory import Trajectory

T = TypeVar("T")
Progress = Callable[[str, int, int], None]
"""Called with the name of an activity, the amount done, and the total amount."""


class WrongOption(ValueError):
    """An option that an experiment does not have, or a value that it cannot have."""


@dataclass
class Run:
    """The settings of a run and its results folder, which is kept up to date during the run.

    out: the folder, created if it does not exist. quick: run the short version, about a minute. seed: of all random
    numbers. progress: see `Progress`. log: called with a line of text for every finding. options: those of the
    experiment, by name, as text.
    """

    out: Path
    quick: bool = False
    seed: int = 0
    progress: Progress | None = None
    log: Callable[[str], None] | None = None
    options: Mapping[str, str] = field(default_factory=dict)
    results: dict[str, Any] = field(default_factory=dict, init=False)
    """The recorded results, in the form of results.json."""
    _files: list[str] = field(default_factory=list, init=False, repr=False)
    _name: str | None = field(default=None, init=False, repr=False)
    _began: float = field(default_factory=time.perf_counter, init=False, repr=False)
    _complete: bool = field(default=False, init=False, repr=False)

    def __post_init__(self) -> None:
        self.out = Path(self.out)
        self.seed = checks.integer(self.seed, "seed", 0)
        if self.out.exists() and not self.out.is_dir():
            raise NotADirectoryError(f"the results folder {self.out} is a file")

    @property
    def files(self) -> list[Path]:
        """The files written so far, in order, results.json last."""
        return [path for name in (*self._files, "results.json") if (path := self.out / name).exists()]

    def generator(self, stream: int = 0) -> torch.Generator:
        """A generator of this run's random numbers; different streams are independent of each other."""
        return torch.Generator().manual_seed(1_000_003 * self.seed + stream)

    def number(self, option: str, usual: float) -> float:
        """The value of an option that is a positive number."""
        try:
            return checks.number(float(self.options.get(option, usual)), option, low=0.0, strict=True)
        except ValueError:
            raise WrongOption(f"--{option} must be a number > 0, got {self.options[option]!r}") from None

    def begin(self, experiment: str) -> None:
        """Discard earlier results, and start recording those of `experiment`."""
        self._name, self._began, self._complete = experiment, time.perf_counter(), False
        self.results.clear()
        self._files.clear()
        self._write()

    def finish(self) -> None:
        """Mark the experiment as complete in results.json."""
        self._complete = True
        self._write()

    def record(self, **values: Any) -> None:
        """Write numbers, strings, tensors, and lists or mappings of these to results.json, immediately."""
        self.results.update({key: _plain(value) for key, value in values.items()})
        self._write()

    def say(self, text: str) -> None:
        """Log a finding as a line of text."""
        if self.log is not None:
            self.log(text)

    def file(self, name: str) -> Path:
        """The path of a results file with this name; it will be listed in results.json."""
        self.out.mkdir(parents=True, exist_ok=True)
        if name not in self._files:
            self._files.append(name)
        return self.out / name

    def figure(self, name: str, figure: Any) -> Path:
        """Save a matplotlib figure as `name`.png, and close it."""
        import matplotlib.pyplot as plt  # An optional dependency.

        path = self.file(f"{name}.png")
        figure.savefig(path, dpi=130)
        plt.close(figure)
        self._write()
        return path

    def film(self, name: str, path: Trajectory, **options: Any) -> Path:
        """Film a trajectory as `name`.mp4 (.gif where ffmpeg is missing). Of a spatial world, also write a page for the
        browser, `name`.html. options: see `backdrive.view.animate`."""
        from .. import view  # Its parts are optional dependencies.

        suffix = ".mp4" if importlib.util.find_spec("imageio_ffmpeg") else ".gif"
        film = self.file(f"{name}{suffix}")
        view.animate(path, film, progress=lambda done, total: self.advance("film", done, total), **options)
        if path.model.dim == 3 and importlib.util.find_spec("viser"):
            view.export(path, self.file(f"{name}.html"))
        self._write()
        return film

    def track(self, items: Iterable[T], what: str, total: int | None = None) -> Iterator[T]:
        """Iterate over the items, and report progress."""
        items = items if total is not None else list(items)
        count = total if total is not None else len(items)  # type: ignore[arg-type]
        for done, item in enumerate(items):
            self.advance(what, done, count)
            yield item
        self.advance(what, count, count)

    def advance(self, what: str, done: int, total: int) -> None:
        """Report progress."""
        if self.progress is not None:
            self.progress(what, done, total)

    def _write(self) -> None:
        """Write results.json. It is replaced atomically, so that an interrupt leaves the previous version intact."""
        self.out.mkdir(parents=True, exist_ok=True)
        content = {
            "experiment": self._name,
            "complete": self._complete,
            "seconds": round(time.perf_counter() - self._began, 3),
            "settings": {"quick": self.quick, "seed": self.seed, **self.options},
            "versions": _versions(),
            "results": self.results,
            "files": [path.name for path in self.files if path.name != "results.json"],
        }
        unfinished = self.out / ".results.json.part"
        unfinished.write_text(json.dumps(content, indent=1, allow_nan=False) + "\n", "utf-8")
        os.replace(unfinished, self.out / "results.json")


def _versions() -> dict[str, str]:
    from .. import __version__

    return {
        "backdrive": __version__, "python": platform.python_version(), "torch": torch.__version__,
        "numpy": np.__version__, "machine": f"{platform.machine()}, {os.cpu_count()} cores",
    }  # fmt: skip


def _plain(value: Any) -> Any:
    """The value as plain JSON types; numbers that are not finite become null."""
    if isinstance(value, Tensor):
        value = value.detach().cpu().tolist()
    elif isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, str | bool | int) or value is None:
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Sequence):
        return [_plain(item) for item in value]
    if isinstance(value, Path):
        return str(value)
    raise TypeError(f"results are numbers, strings, tensors, lists and mappings, got {type(value).__name__}")
