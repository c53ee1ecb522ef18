"""Fingerprints of functions: whether a function still computes the same, as far as that can be decided safely."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from types import BuiltinFunctionType, CodeType, FunctionType, ModuleType
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

MOST_NUMBERS = 1000  # Tensors with more elements are not compared by value.
_PLAIN = (bool, int, float, complex, str, bytes, type(None), type(Ellipsis), slice, torch.dtype, torch.device)
_MODULES = (torch, math, np, torch.nn.functional, torch.linalg)
_LIBRARIES = ("builtins", "torch", "numpy", __name__.split(".")[0])  # Classes of these packages do not change.
_MISSING = object()
_TOKEN = "_backdrive_constant"
F = TypeVar("F", bound=Callable[..., Any])


class UnknownError(Exception):
    """The function refers to an object that may change unnoticed."""


def fingerprint(function: Any) -> tuple | None:
    """Equal for functions (or None) that compute the same; None if that cannot be decided.

    It consists of the function's code and the values of everything outside that the code names: numbers, strings,
    tensors, tuples and lists of these, functions, and the modules torch, numpy and math. An object with attributes may
    change unnoticed, so a function that refers to one has no fingerprint.
    """
    try:
        return _of(function, ())
    except UnknownError:
        return None


def constant(function: F) -> F:
    """Declare that nothing the function refers to ever changes."""
    function.__dict__[_TOKEN] = object()
    return function


def _of(x: Any, within: tuple) -> Any:
    if isinstance(x, _PLAIN):
        return type(x), repr(x)
    if isinstance(x, FunctionType):
        return _of_function(x, within)
    if isinstance(x, Tensor) and type(x) is Tensor and x.numel() <= MOST_NUMBERS and x.layout is torch.strided:
        return "tensor", x.dtype, x.shape, tuple(x.detach().flatten().tolist())
    if type(x) is np.ndarray and x.size <= MOST_NUMBERS and x.dtype.kind in "biuf":
        return "array", x.dtype, x.shape, tuple(x.ravel().tolist())
    if isinstance(x, np.number):
        return x.dtype, x.item()
    if type(x) in (tuple, list):
        return type(x), *(_of(item, within) for item in x)
    if isinstance(x, ModuleType) and x in _MODULES:
        return x
    if isinstance(x, BuiltinFunctionType) and isinstance(x.__self__, ModuleType | type | None):
        return x
    if isinstance(x, type) and x.__module__.split(".")[0] in _LIBRARIES:
        return x
    raise UnknownError


def _of_function(function: FunctionType, within: tuple) -> tuple:
    if _TOKEN in function.__dict__:
        return (function.__dict__[_TOKEN],)
    if function in within:  # The function calls itself.
        return ("recursion", within.index(function))
    code, within = function.__code__, (*within, function)
    cells = function.__closure__ or ()
    try:
        named = [cell.cell_contents for cell in cells]
    except ValueError:  # A variable of the closure is not bound yet.
        raise UnknownError from None
    for name in _names(code):
        x = function.__globals__.get(name, _MISSING)
        if x is not _MISSING:
            named.append(x)
    defaults = [*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()]
    return code, *(_of(x, within) for x in (*named, *defaults))


@functools.cache
def _names(code: CodeType) -> tuple[str, ...]:
    """Names in the code: global variables, and attributes, which may share a name with a global variable."""
    inside = [name for part in code.co_consts if isinstance(part, CodeType) for name in _names(part)]
    return tuple(dict.fromkeys([*code.co_names, *inside]))
