"""Model-based policy optimisation (Janner et al. 2019): soft actor-critic that mostly learns from a learned model.

An ensemble of networks learns from all samples so far how observation and reward follow from observation and action.
Short rollouts in the model, from observations that were seen, make most of the transitions of soft actor-critic's
updates. The simulator's gradient is not used.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ...envs import Task
from ...learn import SAC, SACSettings
from ...learn.adam import Adam
from ...learn.replay import Replay
from ...learn.sac import Transitions
from ...learn.seeds import Layers, drawn
from ...model import checks

Terminates = Callable[[Tensor], Tensor]
"""Whether an episode terminates at observations [..., n], bool [...]. As in the paper, this is known, not learned."""
LEAST_SPREAD = 1e-3
"""Inputs and outputs of the models that vary by less than this are not scaled up."""


@dataclass(frozen=True, kw_only=True)
class MBPOSettings(SACSettings):
    """models, elites: numbers of networks in the ensemble, and of the best of them, which make the rollouts. model:
    numbers of neurons of their hidden layers. retrain: steps of each environment between two trainings of the models.
    model_updates, model_batch, model_rate: steps of a training, transitions in each, and the learning rate.

    branches: rollouts after each training. rollout: (first, last, shortest, longest): the lengths of the rollouts grow
    linearly from `shortest` in iteration `first` to `longest` in iteration `last`. real: share of an update's
    transitions that come from the environment. Other settings: as in `SACSettings`.
    """

    models: int = 7
    elites: int = 5
    model: tuple[int, ...] = (128, 128)
    retrain: int = 250
    model_updates: int = 200
    model_batch: int = 128
    model_rate: float = 1e-3
    branches: int = 5000
    rollout: tuple[int, int, int, int] = (20, 100, 1, 1)
    real: float = 0.05

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("models", "elites", "retrain", "model_updates", "model_batch", "branches"):
            checks.integer(getattr(self, name), name)
        checks.number(self.model_rate, "model_rate", low=0.0, strict=True)
        checks.number(self.real, "real", low=0.0, high=1.0)
        for name in ("model", "rollout"):
            object.__setattr__(self, name, tuple(checks.integer(x, name) for x in getattr(self, name)))
        if self.elites > self.models:
            raise ValueError(f"elites {self.elites} are more than models {self.models}")
        if self.enhance is not None:
            raise ValueError(f"model-based policy optimisation has no enhancement, got enhance={self.enhance!r}")

    def length(self, iteration: int) -> int:
        """The length of rollouts in an iteration."""
        first, last, shortest, longest = self.rollout
        share = min(1.0, max(0.0, (iteration - first) / max(1, last - first)))
        return int(shortest + share * (longest - shortest))


class Models(nn.Module):
    """The models of all seeds: Gaussian predictions of the change of an observation and of the reward.

    Networks are in the order seed by seed, `models` of each. Inputs and outputs are scaled by their mean and deviation.
    """

    in_mean: Tensor
    in_std: Tensor
    out_mean: Tensor
    out_std: Tensor

    def __init__(self, n: int, na: int, hidden: tuple[int, ...], generators: list[torch.Generator], count: int) -> None:
        super().__init__()
        self.count, self.outputs = count, n + 1
        self.layers = Layers((n + na, *hidden, 2 * (n + 1)), [g for g in generators for _ in range(count)])
        for name, size in (("in", n + na), ("out", n + 1)):
            self.register_buffer(f"{name}_mean", torch.zeros(len(generators), 1, size))
            self.register_buffer(f"{name}_std", torch.ones(len(generators), 1, size))

    def scale(self, inputs: Tensor, outputs: Tensor) -> None:
        """Take the mean and deviation of inputs and outputs [S, B, ...]."""
        for name, x in (("in", inputs), ("out", outputs)):
            std, mean = torch.std_mean(x, 1, keepdim=True)
            getattr(self, f"{name}_mean").copy_(mean)
            getattr(self, f"{name}_std").copy_(std.clamp(min=LEAST_SPREAD))

    def loss(self, inputs: Tensor, outputs: Tensor) -> Tensor:
        """The negative logarithm of the density of outputs [S, K, B, n + 1] for inputs [S, K, B, n + na]: [S, K, B]."""
        x = ((inputs - self.in_mean[:, None]) / self.in_std[:, None]).flatten(0, 1)
        y = ((outputs - self.out_mean[:, None]) / self.out_std[:, None]).flatten(0, 1)
        mean, log_var = self._predict(x)
        return (((y - mean).square() * (-log_var).exp() + log_var).mean(-1)).view(inputs.shape[:3])

    def step(self, inputs: Tensor, which: Tensor, noise: Tensor) -> Tensor:
        """Random outputs [S, B, n + 1] for inputs [S, B, n + na], by the model `which` [S, B] of each row."""
        x = (inputs - self.in_mean) / self.in_std
        # Each model gets a block of rows, as long as that of the model with most rows.
        chosen = nn.functional.one_hot(which, self.count)  # [S, B, K]
        longest = int(chosen.sum(1).max())
        rank = chosen.cumsum(1).gather(2, which[..., None]) - 1  # of a row in its block
        places = which[..., None] * longest + rank
        blocks = x.new_zeros(len(x), self.count * longest, x.shape[-1])
        blocks.scatter_(1, places.expand_as(x), x)
        mean, log_var = (
            y.view(len(x), -1, self.outputs).gather(1, places.expand(-1, -1, self.outputs))
            for y in self._predict(blocks.view(-1, longest, x.shape[-1]))
        )
        return self.out_mean + self.out_std * (mean + (0.5 * log_var).exp() * noise)

    def _predict(self, x: Tensor) -> tuple[Tensor, Tensor]:
        mean, log_var = self.layers(x).chunk(2, -1)
        return mean, -10.0 + 10.5 * torch.sigmoid(log_var)  # deviations from 0.7 % to 130 % of the outputs' own


class MBPO(SAC):
    """Model-based policy optimisation on a task. terminates: see `Terminates`. Other arguments: as for `SAC`; settings:
    see `MBPOSettings`."""

    method = "MBPO"
    settings_type = MBPOSettings
    parts = (*SAC.parts, "models", "model_step")
    given: MBPOSettings

    def __init__(self, task: Task | str, *, terminates: Terminates, **others: Any) -> None:
        self.terminates = terminates
        super().__init__(task, **others)

    def make(self) -> None:
        super().make()
        given, (seeds, _) = self.given, self.shape
        n, na = self.columns[:2]
        self.models = Models(n, na, given.model, self.generators, given.models)
        self.model_step = Adam(self.models.parameters(), given.model_rate)
        self.imagined = Replay(seeds, sum(self.columns), given.branches * given.rollout[3], 0)

    def _move(self) -> int:
        terminated = super()._move()
        if self.moves >= self.given.explore and (self.moves - self.given.explore) % self.given.retrain == 0:
            best = self.learn_model()
            self.imagine(best, self.given.length(self.iterations))
        return terminated

    def learn_model(self) -> Tensor:
        """Train the models on what was seen. Returns which models of each seed were best on other transitions,
        [S, elites]."""
        given, models = self.given, self.models
        rows = self.replay.at(
            self.replay.places(torch.arange(len(self.replay)).expand(self.shape[0], -1) / len(self.replay))
        )
        models.scale(*self._examples(rows))
        for _ in range(given.model_updates):
            self.model_step.descend(models.loss(*self._some(given.model_batch)).mean(-1).sum())
        with torch.no_grad():
            loss = models.loss(*self._some(4 * given.model_batch)).mean(-1)
        return loss.topk(given.elites, -1, largest=False).indices

    def _some(self, size: int) -> tuple[Tensor, Tensor]:
        """Inputs and outputs of transitions that were seen, drawn for every model, [S, K, size, ...]."""
        places = self.replay.places(drawn(torch.rand, self.generators, self.given.models * size))
        rows = self.replay.at(places).view(self.shape[0], self.given.models, size, -1)
        return self._examples(rows)

    def _examples(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Inputs (observation, action) and outputs (change of the observation, reward) of the models."""
        o, a, r, following, _ = rows.split(self.columns, -1)
        return torch.cat([o, a], -1), torch.cat([following - o, r], -1)

    @torch.no_grad()
    def imagine(self, best: Tensor, length: int) -> None:
        """Roll the policy out in the models, from observations that were seen, and keep the transitions."""
        given, count, na = self.given, self.given.branches, len(self.middle)
        x = self.replay.at(self.replay.places(drawn(torch.rand, self.generators, count)))[..., : self.columns[0]]
        alive = torch.ones(*x.shape[:2], 1)
        for _ in range(length):
            noise = drawn(torch.randn, self.generators, count, na + self.models.outputs)
            action, _ = self.actors(x, noise[..., :na])
            which = best.gather(1, (drawn(torch.rand, self.generators, count) * given.elites).long())
            change, reward = self.models.step(torch.cat([x, action], -1), which, noise[..., na:]).split(
                [x.shape[-1], 1], -1
            )
            following = x + change
            ended = self.terminates(following)[..., None]
            rows = torch.cat([x, action, reward, following, (~ended).float()], -1)
            # A rollout that has ended repeats its start, so that all seeds have as many rows.
            self.imagined.add(torch.where(alive > 0.0, rows, self._previous(rows, alive)))
            alive = alive * (~ended).float()
            x = torch.where(ended, x, following)

    def _previous(self, rows: Tensor, alive: Tensor) -> Tensor:
        """Rows of rollouts that still run in place of those that have ended, in the order of the rows."""
        order = torch.argsort(-alive[..., 0], dim=1, stable=True)
        running = alive[..., 0].sum(1, keepdim=True).clamp(min=1.0)
        places = order.gather(1, torch.arange(rows.shape[1])[None] % running.long())
        return rows.gather(1, places[..., None].expand_as(rows))

    def _draws(self) -> list[tuple[Transitions, Tensor | None, Tensor]]:
        """As in `SAC`, with most of the transitions from the models."""
        given = self.given
        made = given.batch - max(1, round(given.real * given.batch))
        draws: list[tuple[Transitions, Tensor | None, Tensor]] = []
        for seen, _, noise in super()._draws():
            places = self.imagined.places(drawn(torch.rand, self.generators, made))
            o, a, r, following, alive = self.imagined.at(places).split(self.columns, -1)
            other = Transitions(o, a, r[..., 0], following, alive[..., 0])
            mixed = (torch.cat([x[:, made:], y], 1) for x, y in zip(seen, other, strict=True))
            draws.append((Transitions(*mixed), None, noise))
        return draws

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "imagined": {**self.imagined.state_dict(), "rows": self.imagined.rows.clone()}}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        self.imagined.load_state_dict({**state["imagined"], "rows": state["imagined"]["rows"].clone()})
