"""Film files: mp4 with ffmpeg, gif with pillow."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np

Array = np.ndarray

FORMATS = (".mp4", ".gif")


def write(file: Path, frames: Iterable[Array], size: tuple[int, int], fps: float) -> None:
    """Write RGB frames [height, width, 3] as a film; the file's suffix selects the format. size: (width, height), even.

    The film is written to a temporary file that then replaces ``file``, so that an interrupt leaves no broken film.
    """
    if file.suffix.lower() not in FORMATS:
        raise ValueError(f"an animation is a .mp4 or a .gif file, got {str(file)!r}")
    if file.is_dir():
        raise IsADirectoryError(f"{file} is a folder: a film needs a file")
    file.parent.mkdir(parents=True, exist_ok=True)
    part = file.with_name(f".{file.stem}.part{file.suffix.lower()}")
    part.touch()  # before anything is drawn: says so where nothing can be written
    try:
        (_write_mp4 if part.suffix == ".mp4" else _write_gif)(part, frames, size, fps)
        part.replace(file)
    finally:
        part.unlink(missing_ok=True)


def _write_mp4(file: Path, frames: Iterable[Array], size: tuple[int, int], fps: float) -> None:
    try:
        import imageio_ffmpeg
    except ImportError as error:
        raise ImportError(
            "writing a .mp4 needs imageio-ffmpeg: pip install 'backdrive[view]'; a .gif does without"
        ) from error
    options = ["-crf", "20", "-preset", "veryfast", "-movflags", "+faststart"]
    writer = imageio_ffmpeg.write_frames(
        str(file), size, fps=fps, codec="libx264", quality=None, macro_block_size=2, output_params=options,
        ffmpeg_log_level="error",
    )  # fmt: skip
    writer.send(None)
    try:
        for frame in frames:
            writer.send(np.ascontiguousarray(frame))
    finally:
        writer.close()


def _write_gif(file: Path, frames: Iterable[Array], size: tuple[int, int], fps: float) -> None:
    from PIL import Image

    def images() -> Iterator[Image.Image]:
        for frame in frames:
            yield Image.fromarray(frame).quantize(method=Image.Quantize.FASTOCTREE, dither=Image.Dither.NONE)

    pictures = list(images())
    # A gif counts in hundredths of a second: rounding the ends of frames, not their durations, keeps the speed right.
    ends = np.round(100.0 / fps * np.arange(len(pictures) + 1)).astype(int)
    durations = [10 * max(int(d), 2) for d in np.diff(ends)]
    pictures[0].save(file, save_all=True, append_images=pictures[1:], duration=durations, loop=0, optimize=False)
