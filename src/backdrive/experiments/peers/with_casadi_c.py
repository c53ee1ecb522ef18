"""CasADi's C code of a step and of its reverse mode, compiled, in a loop written in C. It needs a C compiler."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import casadi as ca
import numpy as np

from .with_casadi import STATE, step_function, version

__all__ = ["SETTINGS", "prepare", "version"]

DRIVER = """
#include "step.c"
#include <stdlib.h>
#include <string.h>
enum { n = %d, m = 12, wide = %d };
static casadi_real w[wide];
void forward(const double* start, const double* controls, int steps, double* states) {
    memcpy(states, start, n * sizeof(double));
    for (int t = 0; t < steps; ++t) {
        const double* arg[64] = {states + t * n, controls + t * m};
        double* res[64] = {states + (t + 1) * n};
        one_step(arg, res, 0, w, 0);
    }
}
void gradient(const double* start, const double* controls, int steps, double* states, double* bars) {
    double bar[n], before[n];
    forward(start, controls, steps, states);
    for (int i = 0; i < n; ++i) bar[i] = i < 37 ? 2 * states[steps * n + i] : 0.0;
    for (int t = steps - 1; t >= 0; --t) {
        const double* arg[64] = {states + t * n, controls + t * m, 0, bar};
        double* res[64] = {before, bars + n + t * m};
        one_step_bar(arg, res, 0, w, 0);
        memcpy(bar, before, sizeof bar);
    }
    memcpy(bars, bar, sizeof bar);
}
"""
FLAGS = ["-O1", "-march=native"]
SETTINGS = f"generated C of a step and of its reverse mode, cc {' '.join(FLAGS)}, looped in C"


_library: list[Any] = []  # compiled once


def library(request: dict[str, Any]) -> Any:
    if not _library:
        compiler = shutil.which("cc") or shutil.which("gcc")
        if compiler is None:
            raise RuntimeError("no C compiler was found")
        step = step_function(request)
        x, u, after, bar = (
            ca.SX.sym(name, size) for name, size in (("x", STATE), ("u", 12), ("after", STATE), ("bar", STATE))
        )
        back = ca.Function("one_step_bar", [x, u, after, bar], step.reverse(1)(x, u, after, bar))
        with tempfile.TemporaryDirectory() as folder:
            generator = ca.CodeGenerator("step.c")
            generator.add(step)
            generator.add(back)
            generator.generate(f"{folder}/")
            code, built = Path(folder, "driver.c"), Path(folder, "driver.so")
            code.write_text(DRIVER % (STATE, max(step.sz_w(), back.sz_w()) + 1))
            subprocess.run([compiler, *FLAGS, "-shared", "-fPIC", str(code), "-o", str(built), "-lm"], check=True)
            _library.append(ctypes.CDLL(str(built)))
    return _library[0]


def prepare(request: dict[str, Any], steps: int) -> tuple[Callable[[], Any], Callable[[], Any]]:
    """As `with_torch.prepare`."""
    tool = library(request)
    start = np.concatenate([request["q"], request["v"], np.zeros(STATE - 37)])
    controls = np.array(request["controls"][:steps])

    def call(function: Any, *outputs: np.ndarray) -> None:
        inputs, results = ([ctypes.c_void_p(x.ctypes.data) for x in arrays] for arrays in ((start, controls), outputs))
        function(*inputs, steps, *results)

    def forward() -> tuple[Any, Any]:
        states = np.empty((steps + 1, STATE))
        call(tool.forward, states)
        return states[-1, :19], states[-1, 19:37]

    def gradient() -> tuple[Any, ...]:
        bars = np.empty(STATE + 12 * steps)
        call(tool.gradient, np.empty((steps + 1, STATE)), bars)
        return bars[:19], bars[19:37], bars[STATE:].reshape(steps, 12)

    return forward, gradient
