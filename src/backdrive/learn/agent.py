"""What all learning methods share: a loop that can be watched, stopped, saved and resumed."""

from __future__ import annotations

import math
import os
import warnings
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn

from ..model import checks
from ..progress import bar
from .budget import Budget
from .curve import Curve

RECENT = 64
"""Number of finished episodes over which the return of training is averaged."""
PARTS = 1000
"""Parts of the progress bar."""
FORMAT = "backdrive.learn agent, version 1"


class Diverged(RuntimeError):
    """The weights of an agent are no longer finite; those of the last good iteration are kept."""


class Agent(ABC):
    """A learning method with its networks, its environments and its random numbers.

    A method implements `iterate`, `state_dict`, `load_state_dict` and `policy`. steps: those of all environments so far.
    curve: one row per iteration.
    """

    method: str
    steps: int = 0
    iterations: int = 0

    def __init__(self) -> None:
        self.curve = Curve()
        self.returns: deque[float] = deque(maxlen=RECENT)

    # ------------------------------------------------------------------------------------------ what a method is

    @abstractmethod
    def iterate(self, spent: float) -> Mapping[str, float]:
        """One iteration, when the share `spent` (0 to 1) of the training is over. Returns the numbers of its row."""

    @abstractmethod
    def state_dict(self) -> dict[str, Any]:
        """All that decides how training goes on: weights, optimisers, environments, random numbers."""

    @abstractmethod
    def load_state_dict(self, state: Mapping[str, Any]) -> None: ...

    @abstractmethod
    def settings(self) -> dict[str, Any]:
        """The arguments from which this agent can be made again, apart from the task."""

    @abstractmethod
    def policy(self) -> nn.Module:
        """The mean action as modules of torch alone: observations [..., n] to actions [..., na], float32."""

    # ------------------------------------------------------------------------------------------ training

    def train(
        self, *, steps: int | None = None, seconds: float | None = None, target: float | None = None,
        progress: bool = False, log: str | os.PathLike[str] | None = None,
        callback: Callable[[Agent], None] | None = None,
    ) -> Curve:  # fmt: skip
        """Train until `steps` steps of all environments together, or `seconds`, are spent, or the mean return of the
        last episodes is `target`: whichever comes first. Returns the curve.

        Learning rates fall linearly to nearly 0 at the end of `steps` or `seconds`. With `steps`, the result is the same
        to the bit for a given seed and number of threads; with `seconds` it depends on the speed of the machine.
        progress: show a bar. log: a folder for TensorBoard, if it is installed. callback: called after every iteration.

        Ctrl-C ends training after the current iteration; what was learned is kept. If weights stop being finite,
        `Diverged` is raised, and the agent is as it was before that iteration.
        """
        budget = Budget(steps, seconds, target)
        begin, spent = self.steps, 0.0
        writer = _tensorboard(log)
        try:
            with bar(progress, f"{self.method} on {self.name}", PARTS) as show:
                while spent < 1.0 and not budget.reached(self.mean_return):
                    self._one(spent)
                    spent = budget.spent(self.steps - begin)
                    show(round(PARTS * spent), self._text(budget, begin))
                    _write(writer, self.curve, self.steps)
                    if callback is not None:
                        callback(self)
        except KeyboardInterrupt:
            warnings.warn(f"training was interrupted after {self.steps:,} steps; what was learned is kept", stacklevel=2)
        finally:
            if writer is not None:
                writer.close()
        return self.curve

    def _one(self, spent: float) -> None:
        before = self.state_dict()
        try:
            row = self.iterate(spent)
        except KeyboardInterrupt:
            self.load_state_dict(before)  # An iteration is done as a whole or not at all.
            raise
        bad = [name for name, x in self.networks().items() if not _finite(x)]
        if bad:
            self.load_state_dict(before)
            raise Diverged(
                f"the weights of {', '.join(bad)} are not finite after {self.steps:,} steps, perhaps because the learning "
                "rate is too large, or a reward is not finite; the agent is as it was before this iteration"
            )
        self.iterations += 1
        self.curve.add(steps=self.steps, **row)

    @abstractmethod
    def networks(self) -> dict[str, nn.Module]:
        """The networks by name."""

    @property
    @abstractmethod
    def name(self) -> str:
        """The name of the task."""

    @property
    def mean_return(self) -> float | None:
        """The mean return of the last finished episodes of training; None before the first."""
        return sum(self.returns) / len(self.returns) if self.returns else None

    def _text(self, budget: Budget, begin: int) -> str:
        mean, left = self.mean_return, budget.left(self.steps - begin)
        parts = [f"{self.steps:,} steps", "no episode yet" if mean is None else f"return {mean:,.0f}"]
        row = self.curve.last()
        parts += [f"{row['clipped']:.0%} clipped"] if row.get("clipped") else []
        parts += [f"{row['not_finite']:.0f} not finite"] if row.get("not_finite") else []
        parts += [] if left is None or not math.isfinite(left) else [f"{left:.0f} s left"]
        return ", ".join(parts)

    # ------------------------------------------------------------------------------------------ files

    def save(self, file: str | os.PathLike[str]) -> Path:
        """Write the agent; `load` makes it anew, and training goes on as if it had not been interrupted, to the bit."""
        target = Path(file)
        target.parent.mkdir(parents=True, exist_ok=True)
        part = target.with_name(f".{target.name}.part")
        content = {
            "format": FORMAT, "method": self.method, "task": self.name, "settings": self.settings(),
            "state": self.state_dict(), "curve": self.curve.rows,
        }  # fmt: skip
        try:
            torch.save(content, part)
            part.replace(target)
        finally:
            part.unlink(missing_ok=True)
        return target

    def resume(self, file: str | os.PathLike[str]) -> Agent:
        """Take over what a saved agent of the same method and task had learned."""
        content = read(file)
        if (content["method"], content["task"]) != (self.method, self.name):
            found = f"{content['method']} on {content['task']}"
            raise ValueError(f"{file} has an agent of {found}; this one is {self.method} on {self.name}")
        self.load_state_dict(content["state"])
        self.curve.rows = list(content["curve"])
        return self


def read(file: str | os.PathLike[str]) -> dict[str, Any]:
    """The content of a file that `Agent.save` wrote."""
    try:
        content = torch.load(file, weights_only=True)
    except FileNotFoundError:
        raise
    except Exception as error:  # torch raises all kinds of errors for files that are not its own.
        raise ValueError(f"{file} is no file of an agent: {error}") from None
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise ValueError(f"{file} is no file of an agent, which begins with {FORMAT!r}")
    return content


def positive(settings: Mapping[str, Any], *names: str) -> None:
    """Raise if one of these settings is not a positive number."""
    for name in names:
        checks.number(settings[name], name, low=0.0, strict=True)


def _finite(module: nn.Module) -> bool:
    return all(bool(torch.isfinite(x).all()) for x in module.parameters())


def _tensorboard(folder: str | os.PathLike[str] | None) -> Any:
    if folder is None:
        return None
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        raise ImportError("log=... needs TensorBoard: pip install tensorboard") from error
    return SummaryWriter(str(folder))


def _write(writer: Any, curve: Curve, steps: int) -> None:
    if writer is not None:
        for name, value in curve.last().items():
            if name != "steps":
                writer.add_scalar(name, value, steps)
