"""A page in one file: the whole motion, with a timeline, for any browser, without a server and without a network."""

from __future__ import annotations

import html
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ...model import checks
from ..loss_gradients import Gradients
from ..stage import Staging
from . import server as servers
from .arrangement import arrange, parse
from .overlays import OVERLAYS, Overlay
from .scene import PageScene, Poses
from .sensitivity import QUANTITIES, GradientArrows

FPS = 30.0


@dataclass(frozen=True)
class PageOptions:
    """What a page shows: environments ("one", "side by side", "ghosts"), the overlays with these names, the arrows of
    one quantity of the gradients, and how many states per second."""

    environments: str | None = None
    overlays: Sequence[str] = ()
    gradients: Gradients | None = None
    arrows: str = "wrench"
    fps: float = FPS


class Page:
    """A page as text: ``html``. ``save(file)`` writes it; a notebook shows it as the last value of a cell."""

    def __init__(self, text: str, title: str) -> None:
        self.html, self._title = text, title

    def save(self, file: str | os.PathLike[str]) -> Path:
        path = Path(file)
        if not path.parent.is_dir():
            raise FileNotFoundError(f"there is no folder {path.parent} to write {path.name} to")
        path.write_text(self.html, encoding="utf-8")
        return path

    def _repr_html_(self) -> str:
        """In a frame of its own, so that the page and the notebook do not disturb each other."""
        inner = html.escape(self.html, quote=True)
        return f'<iframe srcdoc="{inner}" style="width:100%;height:480px;border:1px solid #ddd"></iframe>'

    def __repr__(self) -> str:
        return f"Page({self._title}, {len(self.html) / 1e6:.1f} MB)"


def record(stage: Staging, options: PageOptions) -> Page:
    """The page of a stage."""
    frames = stage.frames(checks.number(options.fps, "fps", low=0.0, strict=True))
    if options.arrows not in QUANTITIES:
        raise ValueError(checks.unknown("quantity of gradients", options.arrows, QUANTITIES))
    kinds = {kind.name: kind for kind in OVERLAYS if kind.fits(stage)}
    for name in options.overlays:
        if name not in kinds:
            raise ValueError(checks.unknown("overlay", name, tuple(kinds)))
    mode, environment = parse(options.environments, stage)
    server = servers.start("127.0.0.1", None, (), "backdrive")  # viser records what it would send to pages
    try:
        scene = PageScene(server, stage)
        arrangement = arrange(stage, mode, environment)
        scene.aim(arrangement, whole=True)
        low, high = stage.bounds_of([0])
        size = float(np.linalg.norm((high - low)[0].max(0)))
        overlays: list[Overlay] = [kinds[name](server, stage, size) for name in options.overlays]
        if options.gradients is not None:
            arrows = GradientArrows(server, stage, size, options.gradients)
            arrows.quantity = options.arrows
            overlays.append(arrows)
        recording = server.get_scene_serializer()
        for k, frame in enumerate(frames):
            poses = Poses.of(stage.positions[frame], stage.rotations[frame], frame)
            if k == 0:
                scene.build(arrangement, poses)
                for overlay in overlays:
                    overlay.show(True, arrangement, poses)
            else:
                recording.insert_sleep(1.0 / options.fps)
                scene.draw(poses)
                for overlay in overlays:
                    overlay.draw(arrangement, poses)
        text = recording.as_html()
    finally:
        servers.stop(server)
    title = f"{stage.model.nbody} bodies, {float(stage.time[-1]):.4g} s"
    return Page(text.replace("<title>Viser</title>", f"<title>backdrive: {html.escape(title)}</title>"), title)
