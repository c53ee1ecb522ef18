"""`draw`, `picture` and `animate`: one interface for planar and spatial worlds."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..model import Model, State
from ..simulator import Simulator
from ..trajectory import Trajectory
from . import backends
from .animation import Animation, FilmOptions
from .stage import Staging

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Array = np.ndarray
Shown = Model | Simulator | Trajectory | Staging | Sequence[Trajectory]


def animate(
    path: Shown,
    file: str | os.PathLike[str] | None = None,
    *,
    environment: int | Sequence[int] | str = 0,
    fps: float = 30.0,
    speed: float = 1.0,
    trail: Sequence[str] | bool = (),
    trail_seconds: float = 1.0,
    forces: bool | None = None,
    colors: Mapping[str, str] | None = None,
    title: str | None = None,
    progress: Callable[[int, int], None] | None = None,
    backend: str | None = None,
    **camera: Any,
) -> Animation:
    """A film of a trajectory, written to ``file`` (.mp4 or .gif) if given; else frames are drawn when needed.

    As the last value of a notebook cell, the film plays there. environment: number of the environment in a batch; of a
    spatial world also several, or "all", which stand side by side. fps: frames per second. speed: 1 is real time, 0.1
    ten times slower. trail: names of bodies (True: all) that leave a trail, of ``trail_seconds``. forces: draw contact
    forces as arrows; None: if the rollout knows them. colors: {body: colour}. progress: called with the numbers of
    finished and of all frames.

    Of planar worlds: title; limits: "auto", "all" (the whole motion), "follow" (a window that follows the bodies), or
    (left, right, bottom, top) in m. backend="film" shows them in space, with some depth.

    Of spatial worlds: camera: "free" or the name of one of the file's cameras; track: a body that the free camera
    follows; turntable: let it go round, in so many seconds (True: 8); size: width and height in pixels, (640, 480);
    renderer: "opengl" (MuJoCo's, through EGL or OSMesa where there is no screen), "software" (anywhere, slower), or
    "auto", the first of them that works. A model, in place of a trajectory, makes a film of a turntable.
    """
    if not isinstance(path, Trajectory | Staging | Model | Simulator | list | tuple):
        raise TypeError(f"path must be what Simulator.rollout returned, got {type(path).__name__}")
    stage, name = _staged(path, None, environment, backend)
    options = FilmOptions(fps, speed, trail, trail_seconds, forces, colors, title)
    animation = backends.find(name).show(stage, options, **_camera(name, camera))
    assert isinstance(animation, Animation)
    if file is not None:
        animation.save(file, progress)
    return animation


def draw(
    model: Shown | State,
    state: State | None = None,
    ax: Axes | None = None,
    *,
    file: str | os.PathLike[str] | None = None,
    environment: int | Sequence[int] | str = 0,
    colors: Mapping[str, str] | None = None,
    backend: str | None = None,
    **camera: Any,
) -> Axes:
    """A picture of a world, on matplotlib axes.

    model: a model or a simulator (a trajectory: its first state). state: q [nq], or [B, nq], of which ``environment``
    selects one; None: the state it was built in. ax: matplotlib axes; None: a new figure. file: write the picture,
    too, a .png for example. Other arguments: see `animate`.
    """
    stage, name = _staged(model, state, environment, backend)
    if ax is None:
        import matplotlib.pyplot as plt

        ax = plt.subplots(constrained_layout=True)[1]
    if name == "planar":
        from .backends.planar import still

        still(stage, ax, FilmOptions(colors=colors), **_camera(name, camera))
        if file is not None:
            _written(file, ax.get_figure(root=True).savefig)  # type: ignore[union-attr]
        return ax
    image = _image(stage, name, colors, camera)
    ax.imshow(image)
    ax.set_axis_off()
    if file is not None:
        from PIL import Image

        _written(file, Image.fromarray(image).save)
    return ax


def picture(
    model: Shown | State,
    state: State | None = None,
    *,
    environment: int | Sequence[int] | str = 0,
    colors: Mapping[str, str] | None = None,
    backend: str | None = None,
    **camera: Any,
) -> Array:
    """The same as pixels: uint8 [height, width, 3], RGB."""
    stage, name = _staged(model, state, environment, backend)
    return _image(stage, name, colors, camera)


def _written(file: str | os.PathLike[str], save: Callable[[Path], object]) -> None:
    Path(file).parent.mkdir(parents=True, exist_ok=True)
    save(Path(file))


def _image(stage: Staging, name: str, colors: Mapping[str, str] | None, camera: Mapping[str, Any]) -> Array:
    animation = backends.find(name).show(stage, FilmOptions(colors=colors), **_camera(name, camera))
    animation.fine = True
    try:
        image: Array = animation.frame(0)
    finally:
        animation.close()
    return image


def _staged(
    what: Any, state: State | None, environment: int | Sequence[int] | str, backend: str | None
) -> tuple[Staging, str]:
    """What is shown, and the backend that shows it."""
    if isinstance(what, type) or not isinstance(what, Trajectory | Staging | Model | Simulator | list | tuple):
        raise TypeError(f"model must be a backdrive Model (Scene.build() or load()), got {type(what).__name__}")
    if isinstance(environment, str) and environment != "all":
        raise ValueError(f"environment must be a number, several, or 'all', got {environment!r}")
    stage = Staging.of(what, state, environments=None if isinstance(environment, str) else environment)
    name = backend or ("planar" if stage.model.dim == 2 else "film")
    if name == "planar" and stage.batch > 1:
        raise ValueError("planar pictures show one environment: environment must be a number")
    return stage, name


_OPTIONS = {"planar": ("limits",), "film": ("camera", "track", "turntable", "size", "renderer")}


def _camera(name: str, given: Mapping[str, Any]) -> Mapping[str, Any]:
    """The options of a backend's own camera, checked."""
    from ..model import checks

    known = {option: backend for backend, options in _OPTIONS.items() for option in options}
    for option in given:
        if option not in known:
            raise TypeError(checks.unknown("argument", option, known))
        if name in _OPTIONS and known[option] != name:
            kind = {"planar": "planar worlds", "film": "spatial worlds"}[known[option]]
            raise ValueError(f"{option} is for {kind}: {', '.join(_OPTIONS[name])} are the options here")
    return given
