"""Pictures of planar worlds: `draw` a state, `animate` a trajectory, as mp4, gif, or inline in a notebook.

``import backdrive`` does not load this module: it needs matplotlib (``pip install 'backdrive[view]'``).
"""

try:
    import matplotlib as _matplotlib  # noqa: F401
except ImportError as error:
    raise ImportError("backdrive.view needs matplotlib: pip install 'backdrive[view]'") from error

from .animation import Animation, animate
from .drawing import draw

__all__ = ["Animation", "animate", "draw"]
