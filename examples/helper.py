"""Helpers of the examples: command-line arguments, pictures and films."""

from __future__ import annotations

import argparse
from pathlib import Path

import matplotlib
from rich.console import Console

import backdrive as bd

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.figure import Figure

FPS = 30


def arguments(description: str | None, **numbers: tuple[int, str]) -> argparse.Namespace:
    """``--out`` and whole numbers, {name: (default, help)}, from the command line."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, (default, text) in numbers.items():
        parser.add_argument(f"--{name}", type=int, default=default, help=f"{text} ({default})")
    parser.add_argument("--out", type=Path, default=Path("results"), help="folder for the pictures (results)")
    return parser.parse_args()


def save(figure: Figure, picture: Path) -> None:
    picture.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(picture, dpi=110)
    plt.close(figure)


def film(path: bd.Trajectory, file: Path, **options) -> None:
    """See `backdrive.view.animate`; of a spatial world also a page for the browser."""
    bd.view.animate(path, file, fps=FPS, **options)
    if path.model.dim == 3:
        bd.view.export(path, file.with_suffix(".html"), fps=FPS)


def written(console: Console, *files: Path) -> None:
    for file in files:
        console.print(f"{'film' if file.suffix == '.mp4' else 'picture'}: {file}", soft_wrap=True)
