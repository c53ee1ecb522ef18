"""Building a kernel that will be wanted soon while another one is built: tracing is Python, which LLVM leaves free."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

T = TypeVar("T")

HEAD_START = 0.02  # s, of the kernel that is wanted at once: it is to be traced first

_building: set[threading.Thread] = set()


def ahead(build: Callable[[], T]) -> Future[T]:
    """Call `build` in the background."""
    future: Future[T] = Future()

    def work() -> None:
        time.sleep(HEAD_START)
        try:
            future.set_result(build())
        except BaseException as error:  # whoever asks for the result gets it
            future.set_exception(error)
        finally:
            _building.discard(thread)

    thread = threading.Thread(target=work, name="backdrive-build")
    _building.add(thread)
    thread.start()
    return future


def _finish() -> None:
    """No thread survives a fork, and a child must not find LLVM in the middle of something."""
    for thread in list(_building):
        if thread is not threading.current_thread():
            thread.join()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_finish)
