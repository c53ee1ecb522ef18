"""Adam for many updates of small networks."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor


class Adam(torch.optim.Adam):
    """The optimiser of torch, with the same state and the same results. Its `step` spends more time on preparations,
    anew each time, than a small update takes; `update` does without them."""

    def __init__(self, parameters: Iterable[Tensor], rate: float) -> None:
        self.learned = list(parameters)
        super().__init__(self.learned, rate, fused=True)

    def update(self, slopes: tuple[Tensor, ...] | list[Tensor]) -> None:
        """Update the parameters `learned` with their gradients."""
        if not self.state:  # The first step makes it.
            for parameter, slope in zip(self.learned, slopes, strict=True):
                parameter.grad = slope
            self.step()
            self.zero_grad()
            return
        (group,), states = self.param_groups, [self.state[x] for x in self.learned]
        means, squares, counts = ([x[name] for x in states] for name in ("exp_avg", "exp_avg_sq", "step"))
        torch._foreach_add_(counts, 1)
        beta1, beta2 = group["betas"]
        with torch.no_grad():
            torch._fused_adam_(
                self.learned, slopes, means, squares, [], counts, lr=group["lr"], beta1=beta1, beta2=beta2,
                eps=group["eps"], weight_decay=0.0, amsgrad=False, maximize=False,
            )  # fmt: skip
