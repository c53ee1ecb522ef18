"""A batch of models that predict the next observation."""

from __future__ import annotations

import torch
from torch import Tensor

from ...control import Dynamics
from .game import Steps


class ModelBatch(Dynamics):
    """K models as one `Dynamics`: a state [5] is an observation [4] and the number of its model."""

    nu = 1
    lanes = 256
    count: int
    """The number K of models."""

    def predict(self, model: Tensor, seen: Tensor, force: Tensor) -> Tensor:
        """The next observations [B, 4] that model[i] predicts after seen [B, 4] with the force [B, 1]."""
        raise NotImplementedError

    def step(self, x: Tensor, u: Tensor) -> Tensor:
        return torch.cat([self.predict(x[:, 4].long(), x[:, :4], u), x[:, 4:]], -1)

    def displace(self, x: Tensor, delta: Tensor) -> Tensor:
        return torch.cat([x[..., :4] + delta, x[..., 4:]], -1)

    def difference(self, x: Tensor, origin: Tensor) -> Tensor:
        return (x - origin)[..., :4]

    def errors(self, steps: Steps) -> Tensor:
        """Mean squared one-step errors of every model and element of the observation, [K, 4]."""
        n = len(steps.force)
        before, force, after = (x.repeat(self.count, 1) for x in (steps.before, steps.force.unsqueeze(-1), steps.after))
        with torch.no_grad():
            expected = self.predict(torch.arange(self.count).repeat_interleave(n), before, force)
        return (expected - after).square().unflatten(0, (self.count, n)).mean(1)
