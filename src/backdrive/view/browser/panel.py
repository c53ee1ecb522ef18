"""The controls of a running simulator on the page: run and reset, keyframes, joints, controls, parameters."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from ...model import Kind, State
from .live import Driver, SimulatorDriver
from .timeline import SPEEDS

if TYPE_CHECKING:
    import viser

Array = np.ndarray

MOST = 60
"""Sliders of joints, and of controls, that a page shows at most."""
SHOWN_SECONDS = 0.2
"""How often the sliders of joints follow the motion."""


class LivePanel:
    """Buttons and sliders that change what a driver does."""

    def __init__(self, server: viser.ViserServer, driver: Driver, *, run: bool = True) -> None:
        self._server, self._driver = server, driver
        self.running, self.speed, self._since = run, 1.0, 0.0
        self._joints: list[tuple[Any, int]] = []
        with server.gui.add_folder("run", order=0):
            self._clock: Any = server.gui.add_text("time, s", "0", disabled=True)
            self._run = server.gui.add_button("pause" if run else "run")
            others = server.gui.add_button_group("simulation", ("step", "reset"))
            speeds = server.gui.add_dropdown("speed", SPEEDS, initial_value="1")
            frames = driver.model.keyframes
            if frames:
                chosen = server.gui.add_dropdown("keyframe", ("start", *frames))
                chosen.on_update(lambda _: driver.later(lambda: driver.reset(frames.get(chosen.value))))

        @self._run.on_click
        def _(event: object) -> None:
            self.run(not self.running)

        @others.on_click
        def _(event: object) -> None:
            if others.value == "reset":
                driver.later(driver.reset)
            else:
                self.run(False)
                driver.later(driver.step)

        @speeds.on_update
        def _(event: object) -> None:
            self.speed = float(speeds.value)

        if isinstance(driver, SimulatorDriver):
            self._add_joints(driver)
            if driver.policy is None:
                self._add_controls(driver)
            self._add_parameters(driver)

    def run(self, running: bool) -> None:
        """Run, or pause."""
        self.running = running
        self._run.label = "pause" if running else "run"

    def advance(self, seconds: float) -> bool:
        """Move the driver on, if it runs. Returns whether there is anything new to draw."""
        changed = self._driver.changes()
        if self.running and not self._driver.note:
            self._driver.advance(seconds * self.speed)
            changed = True
        elif self.running:
            self.run(False)
            self._server_note(self._driver.note)
        self._since += seconds
        if changed and self._since > SHOWN_SECONDS:
            self._since = 0.0
            self._follow()
        return changed

    def _server_note(self, text: str) -> None:
        for client in self._server.get_clients().values():
            client.add_notification("The simulation stopped", text, color="red", auto_close_seconds=None)

    def _follow(self) -> None:
        """Show the time and the coordinates of the joints."""
        self._clock.value = f"{self._driver.time:.2f}"
        q = self._driver.state.q.reshape(-1, self._driver.model.nq)[0].tolist()
        for slider, at in self._joints:
            slider.value = min(max(q[at], slider.min), slider.max)

    # ---------------------------------------------------------------------------------------------- sliders

    def _slider(self, label: str, low: float, high: float, value: float, change: Callable[[float], None]) -> Any:
        """A slider; `change` is called, between two steps, with the values that users give it."""
        gui, driver = self._server.gui, self._driver
        step = 10.0 ** math.floor(math.log10((high - low) / 200.0))
        slider = gui.add_slider(label, low, high, step, min(max(value, low), high))

        @slider.on_update
        def _(event: viser.GuiEvent[Any]) -> None:
            if event.client is not None:
                number = float(slider.value)
                driver.later(lambda: change(number))

        return slider

    def _add_joints(self, driver: SimulatorDriver) -> None:
        model = driver.model
        single = [
            (name, int(link))
            for name, link in zip(model.joints, model.joint_link, strict=True)
            if Kind(model.kind[link]).nv == 1
        ][:MOST]
        if not single:
            return
        limits = {}
        if model.nlimit:
            lows, highs = model.parameter("limit_low").tolist(), model.parameter("limit_high").tolist()
            limits = dict(zip(model.limit_link.tolist(), zip(lows, highs, strict=True), strict=True))
        with self._server.gui.add_folder("joints", order=2, expand_by_default=False):
            for name, link in single:
                at, speed = int(model.qadr[link]), int(model.vadr[link])
                low, high = limits.get(link, (-math.pi, math.pi) if model.kind[link] == Kind.HINGE else (-2.0, 2.0))
                low, high = max(low, -1e3), min(high, 1e3)

                def put(value: float, at: int = at, speed: int = speed) -> None:
                    q, v = driver.state.q.clone(), driver.state.v.clone()
                    q[..., at], v[..., speed] = value, 0.0
                    driver.state = State(q, v)

                self._joints.append((self._slider(name, low, high, float(model.q0[at]), put), at))

    def _add_controls(self, driver: SimulatorDriver) -> None:
        model = driver.model
        if not model.nu:
            return
        with self._server.gui.add_folder("controls", order=1):
            for k, (name, (low, high)) in enumerate(zip(model.motors[:MOST], model.control_limits.tolist())):
                low, high = (low if math.isfinite(low) else -10.0), (high if math.isfinite(high) else 10.0)

                def put(value: float, k: int = k) -> None:
                    controls = driver.controls.clone()
                    controls[k] = value
                    driver.controls = controls

                self._slider(name, low, high, float(driver.controls[k]), put)

    def _add_parameters(self, driver: SimulatorDriver) -> None:
        """Gravity, and factors of all masses and of all friction coefficients."""
        model, dtype = driver.model, driver.simulator.dtype
        gravity = model.parameter("gravity")

        def scale(names: tuple[str, ...]) -> Callable[[float], None]:
            values = {name: model.parameter(name) for name in names}

            def change(factor: float) -> None:
                new = {name: (value * factor).to(dtype) for name, value in values.items()}
                driver.parameters = {**driver.parameters, **new}

            return change

        with self._server.gui.add_folder("parameters", order=3, expand_by_default=False):
            if float(gravity.norm()):
                self._slider("gravity ×", -1.0, 3.0, 1.0, scale(("gravity",)))
            self._slider("mass ×", 0.1, 5.0, 1.0, scale(("mass", "inertia")))
            if "friction" in model.parameters():
                self._slider("friction ×", 0.0, 3.0, 1.0, scale(("friction",)))
