"""Build a kernel in the background: one that will be needed soon, while another one is built.

Tracing is Python and holds the interpreter lock; LLVM releases it. So one kernel is traced while another is compiled.
LLVM cannot be interrupted: the main thread lets another one compile, and waits for it.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

T = TypeVar("T")

HEAD_START = 0.02
"""Delay (s) before a background build starts, so that the kernel that is needed at once is traced first."""

_building: set[threading.Thread] = set()


def interruptibly(build: Callable[[], T]) -> T:
    """build(), which the user can interrupt although it does not listen to signals: it then ends on its own."""
    if threading.current_thread() is not threading.main_thread():
        return build()
    return ahead(build, 0.0).result()


def ahead(build: Callable[[], T], delay: float = HEAD_START) -> Future[T]:
    """Call `build` in a thread of its own, after a delay (s). The future has its result, or the exception that it
    raised."""
    future: Future[T] = Future()

    def work() -> None:
        time.sleep(delay)
        try:
            future.set_result(build())
        except BaseException as error:  # raised again where the result is asked for
            future.set_exception(error)
        finally:
            _building.discard(thread)

    thread = threading.Thread(target=work, name="backdrive-build")
    _building.add(thread)
    thread.start()
    return future


def _finish() -> None:
    """Wait before a fork: threads do not survive it, and the child would inherit LLVM in an inconsistent state."""
    for thread in list(_building):
        if thread is not threading.current_thread():
            thread.join()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_finish)
