"""Pictures in three dimensions, without a screen: scenery, cameras, marks, and the renderers that draw them.

`renderer` opens one: MuJoCo's, which needs OpenGL, or else one in software, which needs nothing.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Protocol

import numpy as np

from ...model import checks
from ...model.looks import Visual
from .cameras import Viewpoint
from .marks import Marks

Array = np.ndarray
RENDERERS = ("auto", "opengl", "software")


class Renderer(Protocol):
    """Draws some visuals, whose poses change, as pictures of one size."""

    def image(self, positions: Array, rotations: Array, view: Viewpoint, marks: Marks) -> Array:
        """uint8 [height, width, 3]; positions [n, 3] (m) and rotations [n, 3, 3] of the visuals."""

    def close(self) -> None:
        """Give back what the renderer holds."""


def renderer(
    visuals: Sequence[Visual], width: int, height: int, which: str = "auto", *, fine: bool = False
) -> Renderer:
    """A renderer: "opengl" (MuJoCo's), "software", or the first of them that works ("auto"). fine: for single pictures;
    the one in software then takes four times as long."""
    if which not in RENDERERS:
        raise ValueError(checks.unknown("renderer", which, RENDERERS))
    if which != "software":
        from .opengl import NoOpenGL, OpenGLRenderer

        try:
            return OpenGLRenderer(visuals, width, height)
        except NoOpenGL as error:
            if which == "opengl":
                raise
            warnings.warn(f"{error}. Pictures are drawn in software, more slowly and more simply", stacklevel=3)
    from .software import SoftwareRenderer

    return SoftwareRenderer(visuals, width, height, 2 if fine else 1)
