"""CppAD: the scalar graph that `with_casadi` makes of a step, written out as C++ and recorded on a tape as it runs.

It needs a C++ compiler. As in the paper, the tape is of the whole simulation, and recorded anew for every gradient.
"""

from __future__ import annotations

import importlib.metadata
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import casadi as ca

from . import native
from .with_casadi import STATE, step_function

INFIX = {ca.OP_ADD: "+", ca.OP_SUB: "-", ca.OP_MUL: "*", ca.OP_DIV: "/", ca.OP_LT: "<"}
CALLS = {
    ca.OP_SIN: "sin", ca.OP_COS: "cos", ca.OP_SQRT: "sqrt", ca.OP_FMAX: "larger", ca.OP_FMIN: "smaller",
    ca.OP_SQ: "square", ca.OP_TWICE: "twice", ca.OP_NEG: "-", ca.OP_ASSIGN: "", ca.OP_INV: "1.0 / ",
}  # fmt: skip
SOURCE = """
#include <cppad/cppad.hpp>
#include <vector>
using std::sin; using std::cos; using std::sqrt;
typedef CppAD::AD<double> AD;
template <class T> T square(const T& x) {{ return x * x; }}
template <class T> T twice(const T& x) {{ return x + x; }}
template <class T> T larger(const T& x, const T& y) {{ return x > y ? x : y; }}
template <class T> T smaller(const T& x, const T& y) {{ return x < y ? x : y; }}
template <class T> void step(const T* x, const T* u, T* after) {{
    T w[{size}];
{body}
}}
const int n = {state}, m = 12;
extern "C" void forward(const double* start, const double* controls, int steps, double* end) {{
    std::vector<double> x(start, start + n), y(n);
    for (int t = 0; t < steps; ++t, x.swap(y)) step(x.data(), controls + t * m, y.data());
    std::copy(x.begin(), x.end(), end);
}}
extern "C" void gradient(const double* start, const double* controls, int steps, double* bars) {{
    std::vector<AD> inputs(n + m * steps);
    for (int i = 0; i < n; ++i) inputs[i] = start[i];
    for (int i = 0; i < m * steps; ++i) inputs[n + i] = controls[i];
    CppAD::Independent(inputs);
    std::vector<AD> x(inputs.begin(), inputs.begin() + n), y(n), loss(1, AD(0.0));
    for (int t = 0; t < steps; ++t, x.swap(y)) step(x.data(), inputs.data() + n + t * m, y.data());
    for (int i = 0; i < 37; ++i) loss[0] += x[i] * x[i];
    CppAD::ADFun<double> tape(inputs, loss);
    std::vector<double> one(1, 1.0), result = tape.Reverse(1, one);
    std::copy(result.begin(), result.end(), bars);
}}
"""
FLAGS = ["-O2", "-march=native", "-DNDEBUG"]
SETTINGS = f"AD<double>, a tape of all steps for every gradient; forward in double; g++ {' '.join(FLAGS)}"


def version() -> str:
    return f"CppAD {importlib.metadata.version('cmeel-cppad')}"


def source(function: ca.Function) -> str:
    """The instructions of a function of scalars, one statement each."""
    lines = []
    for k in range(function.n_instructions()):
        op, to, of = function.instruction_id(k), function.instruction_output(k), function.instruction_input(k)
        if op == ca.OP_CONST:
            text = f"w[{to[0]}] = {function.instruction_constant(k)!r};"
        elif op == ca.OP_INPUT:
            text = f"w[{to[0]}] = {'xu'[of[0]]}[{of[1]}];"
        elif op == ca.OP_OUTPUT:
            text = f"after[{to[1]}] = w[{of[0]}];"
        elif op == ca.OP_LT:
            text = f"w[{to[0]}] = w[{of[0]}] < w[{of[1]}] ? 1.0 : 0.0;"
        elif op == ca.OP_NOT:
            text = f"w[{to[0]}] = w[{of[0]}] == 0.0 ? 1.0 : 0.0;"
        elif op == ca.OP_IF_ELSE_ZERO:
            text = f"w[{to[0]}] = w[{of[0]}] != 0.0 ? w[{of[1]}] : T(0.0);"
        elif op in INFIX:
            text = f"w[{to[0]}] = w[{of[0]}] {INFIX[op]} w[{of[1]}];"
        else:
            text = f"w[{to[0]}] = {CALLS[op]}({', '.join(f'w[{i}]' for i in of)});"
        lines.append("    " + text)
    return SOURCE.format(size=function.sz_w(), body="\n".join(lines), state=STATE)


_libraries: list[Any] = []  # compiled once


def prepare(request: dict[str, Any], steps: int) -> tuple[Callable[[], Any], Callable[[], Any]]:
    """As `with_torch.prepare`."""
    if not _libraries:
        packages = Path(sys.prefix, "lib", f"python3.{sys.version_info.minor}", "site-packages")
        flags = [*FLAGS, f"-I{packages / 'cmeel.prefix' / 'include'}"]
        code = source(step_function(request))
        _libraries.append(native.compile_library(("c++", "g++"), flags, "step.cpp", lambda _: code))
    return native.prepare(_libraries[0], request, steps)
