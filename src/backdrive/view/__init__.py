"""See worlds: `show` them in the browser, `export` a page, `draw` a state, `animate` a trajectory.

What is to be shown (a model, a state, a simulator, trajectories) becomes a `Staging`: poses of all links over time,
looks, contacts, in plain numpy. A backend shows the stage: each is one module of `backdrive.view.backends`.

``import backdrive`` does not load this module; what a backend needs comes with ``pip install 'backdrive[view]'``.
"""

import importlib
from typing import TYPE_CHECKING, Any

from .loss_gradients import Gradients, gradients
from .stage import Staging

if TYPE_CHECKING:
    from .animation import Animation
    from .pictures import animate, draw, picture
    from .showing import export, show

__all__ = ["Animation", "Gradients", "Staging", "animate", "draw", "export", "gradients", "picture", "show"]

_ON_DEMAND = {
    "Animation": "animation", "animate": "pictures", "draw": "pictures", "picture": "pictures", "export": "showing",
    "inline": "showing", "show": "showing",
}  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in _ON_DEMAND:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        module = importlib.import_module(f".{_ON_DEMAND[name]}", __name__)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.split(".")[0] != "matplotlib":
            raise
        raise ImportError("backdrive.view needs matplotlib: pip install 'backdrive[view]'") from error
    return getattr(module, name)
