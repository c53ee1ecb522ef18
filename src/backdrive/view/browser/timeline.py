"""The timeline of a recorded motion: play, speed, scrubbing, looping."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import viser

Array = np.ndarray

SPEEDS = ("0.05", "0.1", "0.25", "0.5", "1", "2", "4", "10")
SLIDER_SECONDS = 0.1
"""How often the slider moves while a motion plays."""


class Timeline:
    """Where in the motion the page is. `advance` moves it on; users move it by the slider."""

    def __init__(self, server: viser.ViserServer, times: Array, *, play: bool = True, loop: bool = True) -> None:
        """times: [S] s, of the frames."""
        self._times, self._lock = times, threading.Lock()
        self._duration = float(times[-1])
        self._time, self._since = 0.0, 0.0
        self._changed = True
        self._playing = play and len(times) > 1
        self.speed = 1.0
        with server.gui.add_folder("time", order=0, visible=len(times) > 1):
            self._play = server.gui.add_button("pause" if self._playing else "play")
            step = max(self._duration / 10_000.0, 1e-4) if self._duration else 1.0
            self._slider: Any = server.gui.add_slider("time, s", 0.0, max(self._duration, step), step, 0.0)
            speeds = server.gui.add_dropdown("speed", SPEEDS, initial_value="1")
            self._loop = server.gui.add_checkbox("loop", loop)
            single = server.gui.add_button_group("step", ("◀ back", "forward ▶"))

        @self._play.on_click
        def _(event: object) -> None:
            self.play(not self._playing)

        @self._slider.on_update
        def _(event: viser.GuiEvent[Any]) -> None:
            if event.client is not None:  # not by `advance`
                self.play(False)
                self.seek(float(self._slider.value))

        @speeds.on_update
        def _(event: object) -> None:
            self.speed = float(speeds.value)

        @single.on_click
        def _(event: object) -> None:
            self.play(False)
            self.step(-1 if single.value.startswith("◀") else 1)

    @property
    def time(self) -> float:
        """s"""
        return self._time

    @property
    def playing(self) -> bool:
        return self._playing

    @property
    def frame(self) -> int:
        """The number of the shown frame: the last that is not later than the time."""
        return max(int(np.searchsorted(self._times, self._time + 1e-9, side="right")) - 1, 0)

    def play(self, playing: bool) -> None:
        """Play, or pause. At the end of a motion it plays from the start."""
        with self._lock:
            if playing and self._time >= self._duration:
                self._time = 0.0
            self._playing = playing and len(self._times) > 1
            self._play.label = "pause" if self._playing else "play"
            self._changed = True

    def seek(self, time: float) -> None:
        """Go to a time, s."""
        with self._lock:
            self._time = min(max(time, 0.0), self._duration)
            self._changed = True
        if abs(float(self._slider.value) - self._time) > 1e-9:
            self._slider.value = self._time

    def step(self, frames: int) -> None:
        """Go some frames on, or back."""
        self.seek(float(self._times[min(max(self.frame + frames, 0), len(self._times) - 1)]))

    def advance(self, seconds: float) -> bool:
        """Move on by the time that passed, if it plays. Returns whether there is anything new to draw."""
        with self._lock:
            changed, self._changed = self._changed, False
            if not self._playing:
                return changed
            self._time += seconds * self.speed
            if self._time > self._duration:
                if self._loop.value:
                    self._time %= self._duration
                else:
                    self._time, self._playing = self._duration, False
                    self._play.label = "play"
            self._since += seconds
            due = self._since >= SLIDER_SECONDS or not self._playing
            at = self._time
        if due:
            self._since = 0.0
            self._slider.value = at
        return True
