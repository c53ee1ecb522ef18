"""A thread that calls a function at a steady rate, in real time."""

from __future__ import annotations

import threading
import time
import traceback
from collections.abc import Callable


class Clock:
    """Calls ``tick(seconds since the last call)`` up to `rate` times a second, in a thread, until it is stopped.

    An error in it is kept (`error`), told on the standard error output, and ends the calls.
    """

    def __init__(self, tick: Callable[[float], None], rate: float) -> None:
        self._tick, self._period = tick, 1.0 / rate
        self._stop = threading.Event()
        self.ticks = 0
        self.error: Exception | None = None
        self._thread = threading.Thread(target=self._run, name="backdrive viewer", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """End the calls, and wait for the one that runs."""
        self._stop.set()
        if self._thread.is_alive() and threading.current_thread() is not self._thread:
            self._thread.join(timeout=10.0)

    def _run(self) -> None:
        last = due = time.perf_counter()
        while not self._stop.is_set():
            now = time.perf_counter()
            try:
                self._tick(now - last)
            except Exception as error:  # the page stays, and the user can still close it
                self.error = error
                traceback.print_exc()
                return
            self.ticks += 1
            last = now
            due = max(due + self._period, time.perf_counter() - self._period)
            self._stop.wait(max(0.0, due - time.perf_counter()))
