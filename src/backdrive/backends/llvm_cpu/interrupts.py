"""Interrupts of a kernel that runs: signals such as Ctrl-C, which Python handles in the main thread only.

A kernel has a *pulse*, two words: a flag, which it reads after every pack of environments and every time step, and the
address of a function. If the flag is set, the kernel calls that function, and ends where it answers with 1; it also
ends if there is none. In the main thread, the function is `_answers` below: Python runs the handlers of signals that
have arrived, as everywhere. If one raises, the kernel ends, and `reraise` continues with the exception.

The flag of the main thread is set a few times a second, by a thread of its own, and by nobody else: a short call costs
no more than reading it. That thread ends when kernels have not answered for a while. It leaves the flag set, so the
next kernel asks at once, and the thread starts again.
"""

from __future__ import annotations

import ctypes
import os
import threading
import time
from collections.abc import Iterator
from types import GeneratorType
from typing import cast

import numpy as np

PERIOD = 0.2
"""Time (s) between two looks at signals while a kernel runs."""

PATIENCE = 50
"""The flag is set at most this many times in a row without an answer."""

GO_ON, STOP = 0, 1

caught: list[BaseException] = []
"""What handlers of signals raised while a kernel ran in the main thread."""


class Pulse:
    """The flag of a kernel's calls, and the function that they ask; None: a flag that is set ends them."""

    def __init__(self, ask: int | None = None) -> None:
        self._words = np.array([GO_ON, ask or 0], np.int64)
        self.address: int = self._words.ctypes.data

    def set(self, flag: int = STOP) -> None:
        self._words[0] = flag

    @property
    def flag(self) -> int:
        return int(self._words[0])


def _answers() -> Iterator[int]:
    """Whether the kernel in the main thread goes on.

    Python runs the handlers of signals as soon as this generator continues. An exception of theirs is then raised at
    `yield`, where it is caught; at the beginning of a function, it would be outside of any `try`.
    """
    answer = GO_ON
    while True:
        try:
            while True:
                yield answer
                answer = STOP if caught else GO_ON
                if not caught:
                    MAIN.set(GO_ON)
                    _keep_asking()
        except GeneratorExit:
            return
        except BaseException as error:
            caught.append(error)
            answer = STOP


asking = cast(GeneratorType, _answers())
next(asking)
_ask = ctypes.CFUNCTYPE(ctypes.c_int64)(asking.__next__)
MAIN, QUIET = Pulse(ctypes.cast(_ask, ctypes.c_void_p).value), Pulse()
"""The pulses of the main thread, and of kernels that nothing interrupts: those of other threads."""
MAIN.set()
_asker: threading.Thread | None = None


def pulse_of_this_thread() -> Pulse:
    return MAIN if threading.current_thread() is threading.main_thread() else QUIET


def handling() -> bool:
    """Whether a handler of a signal runs, which interrupted a kernel."""
    return asking.gi_running and threading.current_thread() is threading.main_thread()


def reraise() -> None:
    """Raise what a handler raised, after the kernel has ended; other threads have nothing to do with it."""
    if threading.current_thread() is not threading.main_thread():
        return
    error = caught[0]
    caught.clear()
    raise error


def _keep_asking() -> None:
    """Start the thread that sets the flag of the main thread, unless it runs."""
    global _asker
    if _asker is None:
        _asker = threading.Thread(target=_set_again_and_again, name="backdrive-interrupts", daemon=True)
        _asker.start()


def _set_again_and_again() -> None:
    global _asker
    unanswered = 0
    while unanswered < PATIENCE:
        time.sleep(PERIOD)
        unanswered = unanswered + 1 if MAIN.flag else 0
        MAIN.set()
    _asker = None
    MAIN.set()  # also where it was answered just now


def _forget_thread() -> None:
    """In a forked child, which has no other threads."""
    global _asker
    _asker = None
    MAIN.set()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_thread)
