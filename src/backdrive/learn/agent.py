"""What all learning methods share: a loop that can be watched, stopped, saved and resumed."""

from __future__ import annotations

import os
import time
import warnings
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import torch
from torch import nn

from ..envs import Task
from ..model import checks
from ..progress import bar
from ..threads import one_torch_thread
from .budget import Budget
from .curve import Curve
from .networks import Actor, Normaliser, exported
from .worlds import World

RECENT = 64
"""Number of finished episodes over which the return of training is averaged."""
SAVE_EVERY = 30.0
"""Seconds between two writes of the file that `train(save=...)` keeps up to date."""
PARTS = 1000
"""Parts of the progress bar."""
TAKEN_BACK = "the agent is as it was before this iteration"
FORMAT = "backdrive.learn agent, version 1"

Self = TypeVar("Self", bound="Agent")


class Diverged(RuntimeError):
    """The weights of an agent are no longer usable. The agent is as it was before the iteration that did it."""


class Agent(ABC):
    """A learning method with its networks, its environments and its random numbers.

    task: a `backdrive.envs.Task` or its name. max_episode_steps: time limit; None: the one that is registered with the
    name. threads: of the simulator; None: all cores. dtype: that of the simulator; networks are float32. options: of
    the task, when it is given by name. settings: those of the method, fields of its `settings_type`.

    A method implements `make` and `iterate`, and names in `parts` what has a state besides environments and random
    numbers. steps: those of all environments so far. iterations: their number so far. seconds: spent in them. curve:
    one row per iteration. returns: those of the last finished episodes.
    """

    method: ClassVar[str]
    settings_type: ClassVar[type]
    parts: ClassVar[tuple[str, ...]]
    """Attributes with a `state_dict`: networks and optimisers."""
    actor: Actor

    def __init__(
        self, task: Task | str, *, num_envs: int = 64, seed: int = 0, max_episode_steps: int | None = None,
        threads: int | None = None, dtype: torch.dtype | str = "float64", options: Mapping[str, Any] | None = None,
        **settings: Any,
    ) -> None:  # fmt: skip
        self.steps = self.iterations = 0
        self.seconds = 0.0
        self.curve = Curve()
        self.returns: deque[float] = deque(maxlen=RECENT)
        known = [x.name for x in fields(self.settings_type)]
        for name in settings:
            if name not in known:
                raise TypeError(checks.unknown(f"argument of {self.method}", name, known))
        self.given: Any = self.settings_type(**settings)
        self._made: dict[str, Any] = {
            "num_envs": num_envs, "seed": seed, "max_episode_steps": max_episode_steps, "threads": threads,
            "dtype": str(dtype).removeprefix("torch."), "options": dict(options or {}),
        }  # fmt: skip
        of_env = {"threads": threads, "dtype": dtype, **(options or {})}
        self.world = World(task, num_envs, seed=seed, limit=max_episode_steps, settings=of_env)
        self.generator = torch.Generator().manual_seed(seed)
        self.normaliser = Normaliser(self.world.observation.shape[-1])
        self.normaliser.update(self.world.observation.detach())
        self.normaliser.refresh()
        self.make()

    # ------------------------------------------------------------------------------------------ what a method is

    @abstractmethod
    def make(self) -> None:
        """Make networks and optimisers, by the settings `self.given`, with random numbers from `self.generator`."""

    @abstractmethod
    def iterate(self, spent: float) -> Mapping[str, float]:
        """One iteration, when the share `spent` (0 to 1) of the training is over. Returns the numbers of its row."""

    def networks(self) -> dict[str, nn.Module]:
        """The networks that learn, by their names in messages."""
        return {"the actor": self.actor}

    @property
    def name(self) -> str:
        """The name of the task."""
        return self.world.name

    def settings(self) -> dict[str, Any]:
        """The arguments from which this agent can be made again, apart from the task."""
        return {**asdict(self.given), **self._made}

    def policy(self) -> nn.Module:
        """The mean action as modules of torch alone: observations [..., n] to actions [..., na], float32."""
        return exported(self.normaliser, self.actor)

    def state_dict(self) -> dict[str, Any]:
        """All that decides how training goes on, apart from the counts: weights, optimisers, environments, random
        numbers. Nothing of it changes when training goes on."""
        parts = {name: copied(getattr(self, name).state_dict()) for name in self.parts}
        return {**parts, "world": self.world.state_dict(), "generator": self.generator.get_state()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        for name in self.parts:
            getattr(self, name).load_state_dict(copied(state[name]))
        self.world.load_state_dict(state["world"])
        self.generator.set_state(state["generator"])

    # ------------------------------------------------------------------------------------------ training

    def train(
        self, *, steps: int | None = None, seconds: float | None = None, target: float | None = None,
        progress: bool = False, save: str | os.PathLike[str] | None = None,
        log: str | os.PathLike[str] | None = None, callback: Callable[[Agent], None] | None = None,
    ) -> Curve:  # fmt: skip
        """Train until there were `steps` steps of all environments together, or `seconds` of training, or the mean
        return of the last episodes is `target`: whichever comes first. Returns the curve.

        Steps and seconds are totals: those of earlier calls count, so that an agent that was saved at half time goes on
        as if it had not been interrupted. Learning rates fall linearly to nearly 0 at the end of `steps` or `seconds`.
        With `steps`, the result is the same to the bit for a given seed; with `seconds` it depends on the speed of
        the machine.

        progress: show a bar. save: a file that is written every half minute and at the end, for `load`. log: a folder
        for TensorBoard, if it is installed. callback: called with the agent after every iteration; its time does not
        count.

        Ctrl-C ends training and keeps what was learned. If weights stop being finite, or grow without bounds,
        `Diverged` is raised; the agent is then as it was before that iteration, as after every other error.
        """
        budget = Budget(steps, seconds, target)
        writer, saved = _tensorboard(log), time.perf_counter()
        try:
            with one_torch_thread(), bar(progress, f"{self.method} on {self.name}", PARTS) as show:
                while (spent := budget.spent(self.steps, self.seconds)) < 1.0 and not budget.reached(self.returns):
                    self._one(spent)
                    show(round(PARTS * budget.spent(self.steps, self.seconds)), self._text(budget))
                    _write(writer, self.curve)
                    if save is not None and time.perf_counter() > saved + SAVE_EVERY:
                        self.save(save)
                        saved = time.perf_counter()
                    if callback is not None:
                        callback(self)
        except KeyboardInterrupt:
            warnings.warn(f"interrupted after {self.steps:,} steps; what was learned is kept", stacklevel=2)
        finally:
            if save is not None:
                self.save(save)
            if writer is not None:
                writer.close()
        return self.curve

    def _one(self, spent: float) -> None:
        """One iteration, done as a whole or not at all."""
        before, begin = self._everything(), time.perf_counter()
        try:
            row = self.iterate(spent)
            bad = [name for name, network in self.networks().items() if not largest(network) < float("inf")]
            if bad:
                raise Diverged(
                    f"weights of {' and '.join(bad)} are not finite after {self.steps:,} steps; {TAKEN_BACK}"
                )
        except BaseException:
            self._restore(before)
            raise
        self.seconds += time.perf_counter() - begin
        self.iterations += 1
        mean = {} if self.mean_return is None else {"return": self.mean_return}
        self.curve.add(steps=self.steps, seconds=self.seconds, **mean, **row)

    @property
    def mean_return(self) -> float | None:
        """The mean return of the last finished episodes of training; None before the first."""
        return sum(self.returns) / len(self.returns) if self.returns else None

    def _text(self, budget: Budget) -> str:
        mean, left = self.mean_return, budget.left(self.steps, self.seconds)
        parts = [f"{self.steps:,} steps", "no episode yet" if mean is None else f"return {mean:,.0f}"]
        row = self.curve.last()
        parts += [f"{row['clipped']:.0%} clipped"] if row.get("clipped") else []
        parts += [f"{row['not_finite']:.0f} not finite"] if row.get("not_finite") else []
        parts += [] if left is None else [f"{left:.0f} s left"]
        return ", ".join(parts)

    # ------------------------------------------------------------------------------------------ files

    def save(self, file: str | os.PathLike[str]) -> Path:
        """Write the agent; `load` makes it anew, and training goes on as if it had not been interrupted, to the bit."""
        target = Path(file)
        target.parent.mkdir(parents=True, exist_ok=True)
        part = target.with_name(f".{target.name}.part")
        content = {
            "format": FORMAT, "method": self.method, "task": self.name, "settings": self.settings(),
            "everything": self._everything(), "curve": self.curve.rows,
        }  # fmt: skip
        try:
            torch.save(content, part)
            part.replace(target)
        finally:
            part.unlink(missing_ok=True)
        return target

    @classmethod
    def load(cls: type[Self], file: str | os.PathLike[str], task: Any = None, **changes: Any) -> Self:
        """The agent that `save` wrote. task: needed if it was made with a `Task` of your own, and not with a name.
        changes: arguments that are to differ from those it was made with, such as `threads`."""
        content = _read(file)
        if content["method"] != cls.method:
            raise ValueError(f"{file} has an agent of {content['method']}, not of {cls.method}")
        make: Callable[..., Self] = cls
        agent = make(content["task"] if task is None else task, **{**content["settings"], **changes})
        return agent.resume(file)

    def resume(self: Self, file: str | os.PathLike[str]) -> Self:
        """Take over what a saved agent of the same method, task and sizes had learned."""
        content = _read(file)
        if (content["method"], content["task"]) != (self.method, self.name):
            found = f"{content['method']} on {content['task']}"
            raise ValueError(f"{file} has an agent of {found}; this one is {self.method} on {self.name}")
        before = self._everything()
        try:
            self._restore(content["everything"])
        except (RuntimeError, ValueError, KeyError) as error:
            self._restore(before)
            raise ValueError(f"{file} has an agent of other sizes than this one: {error}") from None
        self.curve.rows = list(content["curve"])
        return self

    def _everything(self) -> dict[str, Any]:
        counts = {"steps": self.steps, "iterations": self.iterations, "seconds": self.seconds}
        return {**counts, "returns": list(self.returns), "state": self.state_dict()}

    def _restore(self, everything: Mapping[str, Any]) -> None:
        self.load_state_dict(everything["state"])
        for name in ("steps", "iterations", "seconds"):
            setattr(self, name, everything[name])
        self.returns.clear()
        self.returns.extend(everything["returns"])


@torch.no_grad()
def largest(network: nn.Module) -> float:
    """The largest magnitude of a network's weights."""
    return max(float(x.abs().max()) for x in network.parameters())


def copied(tree: Any) -> Any:
    """A copy of mappings and lists of tensors, such as the `state_dict` of a module or an optimiser."""
    if isinstance(tree, Mapping):
        return {name: copied(x) for name, x in tree.items()}
    if isinstance(tree, list):
        return [copied(x) for x in tree]
    return tree.clone() if isinstance(tree, torch.Tensor) else tree


def _read(file: str | os.PathLike[str]) -> dict[str, Any]:
    """The content of a file that `Agent.save` wrote."""
    try:
        content = torch.load(file, weights_only=True)
    except OSError:
        raise
    except Exception as error:  # torch raises all kinds of errors for files that are not its own.
        raise ValueError(f"{file} is no file of an agent: {error}") from None
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise ValueError(f"{file} is no file of an agent, which begins with {FORMAT!r}")
    return content


def _tensorboard(folder: str | os.PathLike[str] | None) -> Any:
    if folder is None:
        return None
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        raise ImportError("log=... needs TensorBoard: pip install tensorboard") from error
    return SummaryWriter(str(folder))


def _write(writer: Any, curve: Curve) -> None:
    if writer is not None:
        row = curve.last()
        for name, value in row.items():
            if name != "steps":
                writer.add_scalar(name, value, int(row["steps"]))
