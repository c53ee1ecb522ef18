"""Models that expect what is seen a step later, several at once."""

from __future__ import annotations

import torch
from torch import Tensor

from ...control import Dynamics
from .game import Steps


class ModelBatch(Dynamics):
    """K models at once: a state [5] is what is seen [4], and the number of the model that goes on from there."""

    nu = 1
    lanes = 256
    count: int
    """K"""

    def predict(self, model: Tensor, seen: Tensor, force: Tensor) -> Tensor:
        """What model[i] expects to see [B, 4] a step after seen [B, 4] with the force [B, 1]."""
        raise NotImplementedError

    def step(self, x: Tensor, u: Tensor) -> Tensor:
        return torch.cat([self.predict(x[:, 4].long(), x[:, :4], u), x[:, 4:]], -1)

    def displace(self, x: Tensor, delta: Tensor) -> Tensor:
        return torch.cat([x[..., :4] + delta, x[..., 4:]], -1)

    def difference(self, x: Tensor, origin: Tensor) -> Tensor:
        return (x - origin)[..., :4]

    def errors(self, steps: Steps) -> Tensor:
        """Mean squares of the one-step errors of every model and number, [K, 4]."""
        n = len(steps.force)
        before, force, after = (x.repeat(self.count, 1) for x in (steps.before, steps.force.unsqueeze(-1), steps.after))
        with torch.no_grad():
            expected = self.predict(torch.arange(self.count).repeat_interleave(n), before, force)
        return (expected - after).square().unflatten(0, (self.count, n)).mean(1)
