"""NaN and infinity: they raise where they are an input, and warn where a motion came to them."""

from __future__ import annotations

import math
import sys
import warnings
from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

FINITE, CLIPPED = 0, 1  # numbers of a step's status: 1 if the state is finite; how many motors are at a limit


class NotFiniteError(ValueError):
    """An input has a NaN or an infinite number."""


def report_motion(inputs: Mapping[str, Tensor], controls: Tensor, status: Tensor, limited: bool) -> None:
    """Raise if an input of a rollout is not finite; warn if the motion is not, from finite inputs.

    status: [T, B, nstatus]. limited: some motor has limits. It is cheap as long as all numbers are finite.
    """
    numbers = status.numpy()
    finite = numbers[..., FINITE]
    if finite.min() > 0.5:  # the motion does not show limited controls, nor wrenches on bodies that cannot move
        if limited and numbers[..., CLIPPED].max() > 0.5:
            require_finite({"controls": controls})
        if "wrenches" in inputs:
            require_finite({"wrenches": inputs["wrenches"]})
    else:
        require_finite(inputs)
        step, environment = np.argwhere(finite < 0.5)[0].tolist()
        warnings.warn(
            f"the motion of environment {environment} is no longer finite after step {step} (is dt too large?); "
            "Trajectory.status.finite says where",
            RuntimeWarning,
            stacklevel=_caller(),
        )


def nothing_to_report(status: Tensor, controls: Tensor, limited: bool) -> bool:
    """Whether `report_motion` would do nothing, for rollouts without wrenches."""
    numbers = status.numpy()
    if np.minimum.reduce(numbers[..., FINITE], axis=None) < 0.5:
        return False
    clipped = limited and np.maximum.reduce(numbers[..., CLIPPED], axis=None) > 0.5
    return not clipped or math.isfinite(controls.sum().item())


def require_finite(tensors: Mapping[str, Tensor]) -> None:
    for name, tensor in tensors.items():
        if math.isfinite(tensor.sum().item()) or bool(torch.isfinite(tensor).all()):
            continue
        place = torch.nonzero(~torch.isfinite(tensor))[0].tolist()
        value = tensor[tuple(place)].item()
        raise NotFiniteError(f"{name} is not finite: {value} at {place} of its shape {list(tensor.shape)}")


def _caller() -> int:
    """The stacklevel with which a warning points at the user's code, outside of this package and of torch."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").split(".")[0] in ("backdrive", "torch"):
        level, frame = level + 1, frame.f_back
    return level
