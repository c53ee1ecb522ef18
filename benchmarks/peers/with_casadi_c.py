"""CasADi's C code of a step and of its reverse mode, compiled, in a loop written in C. It needs a C compiler."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import casadi as ca

from . import native
from .with_casadi import STATE, step_function, version

__all__ = ["SETTINGS", "prepare", "version"]

DRIVER = """
#include "step.c"
#include <stdlib.h>
#include <string.h>
enum { n = %d, m = 12, wide = %d };
static casadi_real w[wide];
static double* roll(const double* start, const double* controls, int steps) {
    double* states = malloc((steps + 1) * n * sizeof(double));
    memcpy(states, start, n * sizeof(double));
    for (int t = 0; t < steps; ++t) {
        const double* arg[64] = {states + t * n, controls + t * m};
        double* res[64] = {states + (t + 1) * n};
        one_step(arg, res, 0, w, 0);
    }
    return states;
}
void forward(const double* start, const double* controls, int steps, double* end) {
    double* states = roll(start, controls, steps);
    memcpy(end, states + steps * n, n * sizeof(double));
    free(states);
}
void gradient(const double* start, const double* controls, int steps, double* bars) {
    double bar[n], before[n], *states = roll(start, controls, steps);
    for (int i = 0; i < n; ++i) bar[i] = i < 37 ? 2 * states[steps * n + i] : 0.0;
    for (int t = steps - 1; t >= 0; --t) {
        const double* arg[64] = {states + t * n, controls + t * m, 0, bar};
        double* res[64] = {before, bars + n + t * m};
        one_step_bar(arg, res, 0, w, 0);
        memcpy(bar, before, sizeof bar);
    }
    memcpy(bars, bar, sizeof bar);
    free(states);
}
"""
FLAGS = ["-O1", "-march=native"]
SETTINGS = f"generated C of a step and of its reverse mode, cc {' '.join(FLAGS)}, looped in C"

_libraries: list[Any] = []  # compiled once


def write(request: dict[str, Any], folder: Path) -> str:
    """The functions of a step, as files, and the driver that includes them."""
    step = step_function(request)
    x, u, after, bar = (
        ca.SX.sym(name, size) for name, size in (("x", STATE), ("u", 12), ("after", STATE), ("bar", STATE))
    )
    back = ca.Function("one_step_bar", [x, u, after, bar], step.reverse(1)(x, u, after, bar))
    generator = ca.CodeGenerator("step.c")
    generator.add(step)
    generator.add(back)
    generator.generate(f"{folder}/")
    return DRIVER % (STATE, max(step.sz_w(), back.sz_w()) + 1)


def prepare(request: dict[str, Any], steps: int) -> tuple[Callable[[], Any], Callable[[], Any]]:
    """As `with_torch.prepare`."""
    if not _libraries:
        written = functools.partial(write, request)
        _libraries.append(native.compile_library(("cc", "gcc"), FLAGS, "driver.c", written, "-lm"))
    return native.prepare(_libraries[0], request, steps)
