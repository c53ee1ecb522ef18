"""Films: pictures at a rate, in real time or at another speed, that can be saved, or played in a notebook."""

from __future__ import annotations

import base64
import importlib.util
import os
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ..model import checks
from . import video
from .stage import Staging

Array = np.ndarray
Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class FilmOptions:
    """What all films have: see `animate`."""

    fps: float = 30.0
    speed: float = 1.0
    trail: Sequence[str] | bool = ()
    trail_seconds: float = 1.0
    forces: bool | None = None
    colors: Mapping[str, str] | None = None
    title: str | None = None

    def __post_init__(self) -> None:
        for name in ("fps", "speed", "trail_seconds"):
            object.__setattr__(self, name, checks.number(getattr(self, name), name, low=0.0, strict=True))


class Animation(ABC):
    """A film. ``save(file)`` writes it, ``image(time)`` is one of its frames, and a notebook plays it."""

    def __init__(self, stage: Staging, options: FilmOptions) -> None:
        self.stage, self.fps, self.speed = stage, options.fps, options.speed
        self.file: Path | None = None
        self._frames = stage.frames(self.fps, self.speed)
        self._html: str | None = None

    def __len__(self) -> int:
        """Number of frames."""
        return len(self._frames)

    @property
    def seconds(self) -> float:
        """Duration of the film, s."""
        return len(self) / self.fps

    @property
    @abstractmethod
    def size(self) -> tuple[int, int]:
        """Width and height in pixels."""

    @abstractmethod
    def frame(self, k: int) -> Array:
        """The k-th frame: uint8 [height, width, 3], RGB."""

    def close(self) -> None:  # noqa: B027  # (most films hold nothing)
        """Give back what drawing holds; the film can be drawn again."""

    def save(self, file: str | os.PathLike[str], progress: Progress | None = None) -> Path:
        """Write a .mp4 or a .gif."""
        if not isinstance(file, str | os.PathLike):
            raise TypeError(f"file must be a path, got {file!r}")
        target = Path(file)
        video.write(target, self.images(progress), self.size, self.fps)
        self.file = target
        return target

    def images(self, progress: Progress | None = None) -> Iterator[Array]:
        """All frames."""
        try:
            for k, image in enumerate(self._all()):
                yield image
                if progress is not None:
                    progress(k + 1, len(self))
        finally:
            self.close()

    def _all(self) -> Iterator[Array]:
        return (self.frame(k) for k in range(len(self)))

    def image(self, time: float) -> Array:
        """The frame nearest to a time (s): uint8 [height, width, 3], RGB."""
        time = checks.number(time, "time")
        return self.frame(int(np.abs(self.stage.time[self._frames] - time).argmin()))

    def _repr_html_(self) -> str:
        if self._html is None:
            kind = "mp4" if importlib.util.find_spec("imageio_ffmpeg") else "gif"
            with tempfile.TemporaryDirectory() as folder:
                film = Path(folder) / f"film.{kind}"
                video.write(film, self.images(), self.size, self.fps)
                data = base64.b64encode(film.read_bytes()).decode("ascii")
            if kind == "mp4":
                source = f'<source src="data:video/mp4;base64,{data}" type="video/mp4">'
                self._html = f'<video width="{self.size[0]}" controls loop autoplay muted>{source}</video>'
            else:
                self._html = f'<img width="{self.size[0]}" src="data:image/gif;base64,{data}">'
        return self._html

    def __repr__(self) -> str:
        width, height = self.size
        return f"Animation({len(self)} frames, {self.seconds:.2f} s at {self.fps:g} fps, {width} x {height} pixels)"
