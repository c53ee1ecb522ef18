"""Colours and line widths."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from matplotlib.colors import is_color_like, to_rgb

from ..model import checks
from ..model import looks as model_looks
from ..model.looks import PALETTE, RGB, shade

__all__ = ["PALETTE", "RGB", "body_colors", "shade"]

PAPER, INK, GRID = "#fcfcfa", "#30363d", "#e6e8e6"
STATIC, STATIC_EDGE = "#e3e6ea", "#737d89"
FORCE, ROD = "#d1332e", "#6a7480"


def body_colors(bodies: Sequence[str], given: Mapping[str, str] | None = None) -> dict[str, RGB]:
    """Colours of bodies, in turn but for those that are given, in any form that matplotlib knows."""
    colors = model_looks.body_colors(bodies)
    for name, color in (given or {}).items():
        if name not in bodies:
            raise ValueError("colors: " + checks.unknown("body", name, bodies))
        if not is_color_like(color):
            raise ValueError(f"colors: {color!r} of body {name!r} is no colour that matplotlib knows")
        colors[name] = to_rgb(color)
    return colors
