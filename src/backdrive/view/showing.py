"""`show` and `export`: from what users have to a page in the browser, or in a file."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import Tensor

from ..model import State
from ..simulator import Simulator
from ..trajectory import Trajectory
from . import backends
from .loss_gradients import Gradients, gradients
from .stage import Staging

if TYPE_CHECKING:
    from .browser.page import Page
    from .browser.viewer import Viewer

INLINE = 16
"""The most environments that a notebook shows by itself."""

Environments = str | int | Sequence[int] | None
Loss = Gradients | Tensor | Callable[[Trajectory], Tensor] | None


def show(
    what: Any, state: State | None = None, *, policy: Callable[..., Any] | None = None, gradients: Loss = None,
    environments: Environments = None, port: int | None = None, host: str = "127.0.0.1", block: bool | None = None,
    open: bool = True,
) -> Viewer:  # fmt: skip
    """An interactive page in the browser.

    what: a model (in a state, if one is given), a trajectory or several of one model, with a timeline; a simulator,
    which runs in real time from the state, with sliders and with bodies that can be dragged; or an environment of
    `backdrive.envs`. policy: drives a simulator, ``policy(state, t) -> control``, or an environment,
    ``policy(observation) -> action``. gradients: of a trajectory: those of `gradients`, or a loss; drawn as arrows.
    environments: of a batch: "side by side" (None), "ghosts", "one", or the numbers of some. host, port: where the page
    is served; other machines can see it only with another host than this; port None: a free one. block: wait until the
    viewer is closed; None: in scripts, not in notebooks and at a prompt. open: open the page.
    """
    chosen: dict[str, Any] = {"environments": environments if isinstance(environments, str) else None}
    driver: Any = None
    if isinstance(what, Simulator) or _is_environment(what):
        chosen["driver"] = driver = _driver(what, state, policy)
        if gradients is not None:
            raise ValueError("gradients are of a recorded motion: roll out, and show the trajectory")
        source = what if isinstance(what, Simulator) else what.unwrapped.simulator
        stage = Staging.of(source, driver.state, environments=_numbers(environments))
        if stage.batch != (driver.state.q.shape[0] if driver.state.q.ndim == 2 else 1):
            raise ValueError(
                "a simulator shows all environments of its state: start it from those that you want to see"
            )
    else:
        if policy is not None:
            raise ValueError("a policy drives a simulator or an environment; a trajectory has moved already")
        stage = Staging.of(what, state, environments=_numbers(environments))
        chosen["gradients"] = _gradients(what, gradients)
    return backends.find("browser").show(stage, port=port, host=host, block=block, open=open, **chosen)


def export(
    what: Any, file: str | os.PathLike[str] | None = None, *, state: State | None = None,
    environments: Environments = None, overlays: Sequence[str] = (), gradients: Loss = None, arrows: str = "wrench",
    fps: float = 30.0,
) -> Page:  # fmt: skip
    """A page in one file (.html) that works anywhere, also without a network; without a file, for notebooks.

    overlays: what is laid over the bodies: frames, joints, sites, centers of mass, contacts, trails. arrows: the
    quantity of the gradients that is drawn: position, velocity, control or wrench. fps: states per second. The rest as
    in `show`.
    """
    if file is not None and Path(file).suffix.lower() not in (".html", ".htm"):
        raise ValueError(f"a page is written to a .html file, got {os.fspath(file)!r}; films are made by animate")
    stage = Staging.of(what, state, environments=_numbers(environments))
    mode = environments if isinstance(environments, str) else None
    options = {"overlays": overlays, "gradients": _gradients(what, gradients), "arrows": arrows, "fps": fps}
    return backends.find("page").show(stage, file=file, environments=mode, **options)


def inline(path: Trajectory) -> str | None:
    """The page of a trajectory for a notebook, of a few environments at most; None where it cannot be shown."""
    try:
        count = path.q.shape[1] if path.q.ndim == 3 else 1
        return export(path, environments=None if count == 1 else range(min(count, INLINE)))._repr_html_()
    except (ImportError, ValueError):  # viser is missing, or nothing is finite: the notebook shows the text
        return None


def _numbers(environments: Environments) -> int | Sequence[int] | None:
    return None if isinstance(environments, str) else environments


def _is_environment(what: Any) -> bool:
    base = getattr(what, "unwrapped", None)
    return isinstance(getattr(base, "simulator", None), Simulator) and hasattr(what, "step")


def _driver(what: Any, state: State | None, policy: Callable[..., Any] | None) -> Any:
    from .browser.live import EnvironmentDriver, SimulatorDriver

    if isinstance(what, Simulator):
        return SimulatorDriver(what, state, policy)
    driver = EnvironmentDriver(what, policy)
    if state is not None:
        driver.reset(state)
    return driver


def _gradients(what: Any, given: Loss) -> Gradients | None:
    if given is None or isinstance(given, Gradients):
        if isinstance(given, Gradients) and isinstance(what, Trajectory) and len(given.steps) != len(what):
            raise ValueError(f"the gradients are of {len(given.steps)} states, the trajectory has {len(what)}")
        return given
    if not isinstance(what, Trajectory):
        raise TypeError("a loss has gradients along one trajectory: show that, or the gradients that you computed")
    return gradients(what, given)
