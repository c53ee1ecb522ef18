"""The viewer: a page in the browser that shows a stage, recorded or live."""

from __future__ import annotations

import contextlib
import sys
import threading
import webbrowser
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ...model import checks
from ..loss_gradients import Gradients
from ..poses import link_poses
from ..stage import ContactArrows, Staging
from . import server as servers
from .arrangement import MODES, Placing, arrange, parse
from .clock import Clock
from .live import Driver, SimulatorDriver
from .overlays import OVERLAYS, ContactForces, Overlay, add_arrows, set_arrows
from .panel import LivePanel
from .scene import PageScene, Poses
from .sensitivity import QUANTITIES, GradientArrows, link_colors
from .timeline import Timeline

if TYPE_CHECKING:
    import viser

Array = np.ndarray

RATE = 40.0
"""Pictures that are sent per second, at most."""
PULL_COLOR = (40, 160, 90)


@dataclass(frozen=True)
class Options:
    """How a stage is shown.

    environments: "one", "side by side" or "ghosts". overlays: names of what is laid over the bodies at first. play:
    whether a motion plays, or a simulator runs, at first. collision: show the shapes that collide. label: the title.
    """

    environments: str | None = None
    overlays: Sequence[str] = ()
    gradients: Gradients | None = None
    play: bool = True
    collision: bool = False
    label: str = "backdrive"


class Viewer:
    """A page in the browser. ``url`` is its address; ``close()`` ends it, as leaving a ``with`` block does.

    timeline: of a recorded motion (``timeline.seek(1.5)``, ``timeline.play(True)``); None if a simulator runs, whose
    state is ``driver.state``.
    """

    def __init__(
        self, server: viser.ViserServer, stage: Staging, options: Options, driver: Driver | None = None
    ) -> None:
        self.server, self.stage, self.driver = server, stage, driver
        self._closed = threading.Event()
        self._lock = threading.RLock()
        self._mode, self._environment = parse(options.environments, stage)
        low, high = stage.bounds_of([0])
        self._size = float(np.linalg.norm((high - low)[0].max(0)))
        self.scene = PageScene(server, stage, collision=options.collision)
        self.overlays = {kind.name: kind(server, stage, self._size) for kind in OVERLAYS if kind.fits(stage)}
        for name in options.overlays:
            if name not in self.overlays:
                raise ValueError(checks.unknown("overlay", name, tuple(self.overlays)))
        self.arrows: GradientArrows | None = None
        self._rope: Any = None
        self._boxes: dict[str, Any] = {}
        self.timeline = Timeline(server, stage.time, play=options.play) if driver is None else None
        self.panel = None if driver is None else LivePanel(server, driver, run=options.play)
        self._poses = self._now()
        self.scene.aim(arrange(stage, self._mode, self._environment))
        self._build()
        self._frames = 0
        self._checkboxes(options)
        if options.gradients is not None:
            self._add_gradients(options.gradients)
        for note in stage.notes:
            server.gui.add_markdown(f"⚠ {note}", order=-1)
        self._follow: Array | None = None
        self._clock = Clock(self._tick, RATE)
        self._clock.start()

    # ---------------------------------------------------------------------------------------------- users

    @property
    def url(self) -> str:
        """The address of the page."""
        return servers.address(self.server)

    @property
    def closed(self) -> bool:
        return self._closed.is_set()

    @property
    def frames(self) -> int:
        """How many pictures were sent."""
        return self._frames

    @property
    def pages(self) -> int:
        """How many pages are open."""
        return len(self.server.get_clients())

    def show(self, overlay: str, shown: bool = True) -> None:
        """Lay something over the bodies, or take it away."""
        if overlay not in self.overlays:
            raise ValueError(checks.unknown("overlay", overlay, tuple(self.overlays)))
        if overlay in self._boxes:
            self._boxes[overlay].value = shown
        with self._lock:
            self.overlays[overlay].show(shown, self.scene.arrangement, self._poses)

    def arrange(self, mode: str, environment: int = 0) -> None:
        """Show one environment, all side by side, or all over each other as ghosts of one."""
        arrange(self.stage, mode, environment)  # refuses unknown modes before anything is removed
        with self._lock:
            self._mode, self._environment = mode, environment
            self._build()

    def close(self) -> None:
        """Stop, and disconnect all pages."""
        if not self._closed.is_set():
            self._closed.set()
            self._clock.stop()
            servers.stop(self.server)

    def wait(self) -> None:
        """Until the viewer is closed, or Ctrl-C, which closes it."""
        try:
            while not self._closed.wait(0.2):
                pass
        except KeyboardInterrupt:
            self.close()

    def __enter__(self) -> Viewer:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Viewer({'closed' if self.closed else self.url}, {self.stage.model!r})"

    def _repr_html_(self) -> str:
        if self.closed:
            return "The viewer is closed."
        return f'<iframe src="{self.url}" style="width:100%;height:480px;border:1px solid #ddd"></iframe>'

    # ---------------------------------------------------------------------------------------------- drawing

    def _now(self) -> Poses:
        if self.driver is None:
            assert self.timeline is not None
            frame = self.timeline.frame
            return Poses.of(self.stage.positions[frame], self.stage.rotations[frame], frame)
        q = self.driver.state.q.detach().cpu().double().numpy()
        positions, rotations = link_poses(self.stage.model, np.atleast_2d(q)[None], self.stage.constants)
        return Poses.of(positions[0], rotations[0])

    def _build(self) -> None:
        """Add all nodes anew, in the wanted arrangement."""
        with self.server.atomic():
            self.scene.build(arrange(self.stage, self._mode, self._environment), self._poses)
            self._connect_handles()
            for overlay in self._all_overlays():
                if overlay.shown:
                    overlay.show(True, self.scene.arrangement, self._poses)

    def _all_overlays(self) -> list[Overlay]:
        more = [] if self.arrows is None else [self.arrows]
        return [*self.overlays.values(), *more]

    def _tick(self, seconds: float) -> None:
        moving = self.timeline if self.timeline is not None else self.panel
        assert moving is not None
        if not moving.advance(seconds) or self.closed:
            return
        with self._lock, self.server.atomic():
            self._poses = self._now()
            self.scene.draw(self._poses)
            contacts = self.overlays.get("contacts")
            if self.driver is not None and isinstance(contacts, ContactForces) and contacts.shown:
                contacts.live = self._live_contacts()
            for overlay in self._all_overlays():
                if overlay.shown:
                    overlay.draw(self.scene.arrangement, self._poses)
            self._draw_rope()
            self._track()
        self._frames += 1

    def _live_contacts(self) -> ContactArrows | None:
        driver = self.driver
        if not isinstance(driver, SimulatorDriver) or driver.simulator.sparse or not driver.model.npair:
            return None
        found = driver.simulator.contacts(
            driver.state, driver.controls.expand(*driver.state.batch_shape, driver.model.nu)
        )
        model = driver.model
        links = [[int(model.shape_link[model.shape_index(name)]) for name in pair] for pair in found.pairs]
        values = []
        for x in (found.point, found.force):
            array = x.detach().float().numpy()
            array = array[:, None] if array.ndim == 3 else array
            values.append(np.nan_to_num(np.pad(array, [(0, 0)] * 3 + [(0, 3 - array.shape[-1])])))
        return ContactArrows(values[0], values[1], np.array(links).reshape(-1, 2))

    # ---------------------------------------------------------------------------------------------- the page's controls

    def _checkboxes(self, options: Options) -> None:
        gui = self.server.gui
        if self.stage.batch > 1:
            with gui.add_folder("environments", order=4):
                mode = gui.add_dropdown("shown", MODES, initial_value=self._mode)
                number = gui.add_slider("environment", 0, self.stage.batch - 1, 1, self._environment)
            for control in (mode, number):
                control.on_update(lambda _: self.arrange(mode.value, int(number.value)))
        with gui.add_folder("show", order=5):
            for name in self.overlays:
                self._boxes[name] = box = gui.add_checkbox(name, name in options.overlays)
                if name in options.overlays:
                    self.show(name)
                box.on_update(self._toggle(name))
            follow = gui.add_checkbox("camera follows", False)
            shadows = gui.add_checkbox("shadows", True)
            collision = gui.add_checkbox("collision shapes", options.collision)

        @follow.on_update
        def _(event: object) -> None:
            self._follow = self._middle() if follow.value else None

        @shadows.on_update
        def _(event: object) -> None:
            self.server.scene.configure_default_lights(enabled=True, cast_shadow=shadows.value)

        @collision.on_update
        def _(event: object) -> None:
            with self._lock:
                self.scene.collision = collision.value
                self._build()

    def _toggle(self, name: str) -> Callable[[Any], None]:
        def changed(event: Any) -> None:
            if event.client is not None:  # by a user
                self.show(name, event.target.value)

        return changed

    def _add_gradients(self, gradients: Gradients) -> None:
        arrows = self.arrows = GradientArrows(self.server, self.stage, self._size, gradients)
        arrows.show(True, self.scene.arrangement, self._poses)
        gui = self.server.gui
        with gui.add_folder("gradients", order=1):
            gui.add_markdown(f"loss {gradients.loss:.6g}")
            quantity: Any = gui.add_dropdown("arrows", QUANTITIES, initial_value="none")
            downhill: Any = gui.add_checkbox("downhill", False)
            scale = gui.add_slider("length ×", 0.1, 5.0, 0.1, 1.0)
            parameter = gui.add_dropdown("colours", ("own", *gradients.log_parameters), initial_value="own")

        def change(event: object = None) -> None:
            with self._lock:
                arrows.downhill, arrows.scale = downhill.value, float(scale.value)
                arrows.quantity = quantity.value
                arrows.draw(self.scene.arrangement, self._poses)

        for control in (quantity, downhill, scale):
            control.on_update(change)

        @parameter.on_update
        def _(event: object) -> None:
            self.color_by(parameter.value)

        self._arrow_choice, self._downhill = quantity, downhill

    def draw_arrows(self, quantity: str, downhill: bool = False) -> None:
        """Draw the gradients of a quantity as arrows: position, velocity, control, wrench, or none."""
        if self.arrows is None:
            raise ValueError("there are no gradients: give show a loss, or what backdrive.view.gradients returns")
        if quantity not in QUANTITIES:
            raise ValueError(checks.unknown("quantity of gradients", quantity, QUANTITIES))
        self._arrow_choice.value, self._downhill.value = quantity, downhill

    def color_by(self, parameter: str) -> None:
        """Colour bodies by the sensitivity to a parameter of the gradients; "own": in their own colours."""
        if parameter == "own" or self.arrows is None:
            colors = None
        else:
            colors = link_colors(self.arrows.gradients, parameter, self.stage.environments[self._environment])
        with self._lock:
            self.scene.paint(colors)

    def _middle(self) -> Array:
        return np.asarray(self._poses.positions[self.scene.arrangement.environments[0], 0], dtype=float)

    def _track(self) -> None:
        """Move the cameras with the first body."""
        if self._follow is None:
            return
        middle = self._middle()
        by, self._follow = middle - self._follow, middle
        if np.abs(by).max() > 1e-6:
            for client in self.server.get_clients().values():
                with client.atomic():
                    client.camera.position = client.camera.position + by
                    client.camera.look_at = client.camera.look_at + by

    # ---------------------------------------------------------------------------------------------- pulling bodies

    def _connect_handles(self) -> None:
        """Let users drag the bodies of a running simulator."""
        driver = self.driver
        if not isinstance(driver, SimulatorDriver):
            return
        for group, node in self.scene.movable:

            async def dragged(event: Any, group: Any = group) -> None:
                place = np.array(event.end_position)
                if event.phase == "start":
                    k = int(event.instance_index or 0)
                    shift = self.scene.arrangement.shift[group.copy[k]]
                    link, environment = int(group.link[k]), int(group.environment[k])
                    self._shift = shift
                    at = np.array(event.start_position) - shift
                    driver.later(lambda: driver.grab(self._named(link), at, environment))
                    driver.later(lambda: driver.drag(place - shift))
                elif event.phase == "update":
                    driver.later(lambda: driver.drag(place - self._shift))
                else:
                    driver.later(driver.release)

            node.on_drag("left")(dragged)

    def _named(self, link: int) -> int:
        """The body's link that carries a link's solids."""
        links = self.stage.model.body_link.tolist()
        while link not in links:
            link = int(np.flatnonzero(self.stage.model.parent == link)[0])
        return link

    def _draw_rope(self) -> None:
        """An arrow from the point that is held to where it is pulled."""
        driver = self.driver
        if not isinstance(driver, SimulatorDriver):
            return
        held = driver.held()
        if self._rope is None:
            if held is None:
                return
            self._rope = add_arrows(self.server, "/pull", PULL_COLOR, 0.006 * self._size)
        if held is None or driver.pull is None:
            self._rope.visible = False
            return
        set_arrows(self._rope, (held + self._shift)[None], (driver.pull.goal - held)[None])

    _shift: Array = np.zeros(3)


def interactive() -> bool:
    """Whether this runs in a notebook, or at a prompt."""
    return hasattr(sys, "ps1") or ("IPython" in sys.modules and bool(sys.modules["IPython"].get_ipython()))


def open_page(url: str) -> None:
    """Open a page in the user's browser; a machine without one does not mind."""
    with contextlib.suppress(webbrowser.Error, OSError):
        webbrowser.open(url)


__all__ = ["Options", "Placing", "Viewer"]
