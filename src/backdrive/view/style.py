"""Colours and line widths."""

from __future__ import annotations

import colorsys
import re
from collections.abc import Mapping, Sequence

from matplotlib.colors import is_color_like, to_rgb

from ..model import checks

PALETTE = ("#3477b5", "#e2803a", "#3d9a6c", "#b5476d", "#7b62b3", "#c5a02c", "#3ba3b5", "#8a6d57")
PAPER, INK, GRID = "#fcfcfa", "#30363d", "#e6e8e6"
STATIC, STATIC_EDGE = "#e3e6ea", "#737d89"
FORCE, ROD = "#d1332e", "#6a7480"

RGB = tuple[float, float, float]


def body_colors(bodies: Sequence[str], given: Mapping[str, str] | None = None) -> dict[str, RGB]:
    """Colours of bodies; bodies whose names differ only by a number ("link 1", "link 2") share one, in two shades."""
    given = given or {}
    for name, color in given.items():
        if name not in bodies:
            raise ValueError("colors: " + checks.unknown("body", name, bodies))
        if not is_color_like(color):
            raise ValueError(f"colors: {color!r} of body {name!r} is no colour that matplotlib knows")
    groups: dict[str, int] = {}
    colors = {}
    for name in bodies:
        stem = re.sub(r"[\W_]*\d+$", "", name)
        members = groups.setdefault(stem, len(groups))
        rgb = to_rgb(given.get(name, PALETTE[members % len(PALETTE)]))
        number = re.search(r"\d+$", name)
        odd = number is not None and int(number[0]) % 2 == 1
        colors[name] = shade(rgb, 1.18) if odd and name not in given else rgb
    return colors


def shade(color: RGB, factor: float) -> RGB:
    """The colour, lighter (factor > 1) or darker."""
    hue, light, saturation = colorsys.rgb_to_hls(*color)
    return colorsys.hls_to_rgb(hue, min(1.0, light * factor), saturation)
