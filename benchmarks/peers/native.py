"""Rollouts of a library in machine code that a compiler makes of a tool's own code.

It has two functions, of a start [STATE] and controls [steps, 12]:

    void forward(const double* start, const double* controls, int steps, double* end)        end: [STATE]
    void gradient(const double* start, const double* controls, int steps, double* bars)      bars: [STATE + 12 steps]
"""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from .with_casadi import STATE


def compile_library(
    compilers: Sequence[str], flags: Sequence[str], name: str, write: Callable[[Path], str], *libraries: str
) -> ctypes.CDLL:
    """The library of a source file of this name, by the first compiler there is.

    write: into a folder the files that the source includes; returns the source.
    """
    compiler = next(filter(None, map(shutil.which, compilers)), None)
    if compiler is None:
        raise RuntimeError(f"no compiler was found: {' or '.join(compilers)}")
    with tempfile.TemporaryDirectory() as folder:
        code, built = Path(folder, name), Path(folder, "library.so")
        code.write_text(write(Path(folder)))
        command = [compiler, *flags, "-shared", "-fPIC", str(code), "-o", str(built), *libraries]
        subprocess.run(command, check=True)
        return ctypes.CDLL(str(built))


def prepare(library: ctypes.CDLL, request: dict[str, Any], steps: int) -> tuple[Callable[[], Any], Callable[[], Any]]:
    """As `with_torch.prepare`."""
    start = np.concatenate([request["q"], request["v"], np.zeros(STATE - 37)])
    controls = np.array(request["controls"][:steps])

    def call(function: Any, size: int) -> np.ndarray:
        out = np.empty(size)
        address = [ctypes.c_void_p(x.ctypes.data) for x in (start, controls, out)]
        function(address[0], address[1], steps, address[2])
        return out

    def forward() -> tuple[Any, Any]:
        end = call(library.forward, STATE)
        return end[:19], end[19:37]

    def gradient() -> tuple[Any, ...]:
        bar = call(library.gradient, STATE + 12 * steps)
        return bar[:19], bar[19:37], bar[STATE:].reshape(steps, 12)

    return forward, gradient
