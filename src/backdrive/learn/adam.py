"""Adam for many updates of small networks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor


class Adam(torch.optim.Adam):
    """The optimiser of torch, with the same results. Its `step` spends more time on preparations, anew each time and
    for each parameter, than a small update takes; `update` does without them.

    All parameters become views of one vector, `values`, and their gradients views of another one, `slopes`: so an
    update is one operation. The state is that of torch's optimiser for the parameter `values`.
    """

    def __init__(self, parameters: Iterable[Tensor], rate: float) -> None:
        learned = list(parameters)
        self.values = as_one(learned)
        self.values.grad = self.slopes = torch.zeros_like(self.values)
        for parameter, slope in zip(learned, parts(self.slopes, learned), strict=True):
            parameter.grad = slope
        super().__init__([self.values], rate, fused=True)

    @torch.no_grad()
    def update(self) -> None:
        """Update the parameters with the gradients that were written into their `grad`."""
        if not self.state:  # The first step makes it.
            self.step()
            return
        (group,), state = self.param_groups, self.state[self.values]
        state["step"] += 1
        beta1, beta2 = group["betas"]
        torch._fused_adam_(
            [self.values], [self.slopes], [state["exp_avg"]], [state["exp_avg_sq"]], [], [state["step"]],
            lr=group["lr"], beta1=beta1, beta2=beta2, eps=group["eps"], weight_decay=0.0, amsgrad=False, maximize=False,
        )  # fmt: skip

    def descend(self, loss: Tensor) -> None:
        """Update the parameters with the gradients of a loss that autograd finds."""
        self.slopes.zero_()
        loss.backward()
        self.update()


@torch.no_grad()
def as_one(tensors: Sequence[Tensor]) -> Tensor:
    """One vector with the values of all tensors, which are its parts from now on."""
    values = torch.cat([x.detach().flatten() for x in tensors])
    for x, part in zip(tensors, parts(values, tensors), strict=True):
        x.data = part
    return values


def parts(values: Tensor, tensors: Sequence[Tensor]) -> list[Tensor]:
    """The parts of a vector, in the shapes of tensors."""
    each = values.split([x.numel() for x in tensors])
    return [part.view_as(x) for part, x in zip(each, tensors, strict=True)]
