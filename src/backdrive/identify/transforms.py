"""From free numbers z, which an optimiser may move anywhere, to values x that are possible, whatever z is.

A number x with bounds is a function of one free number:

    no bounds  x = z        above a      x = a + exp z
    below b    x = b - exp z        between    x = a + (b - a) / (1 + exp -z)

so no optimiser can make a mass negative, and a step in z changes a mass by a ratio. The inertia of a body in space is a
function of six: `PhysicalInertia`.
"""

from __future__ import annotations

from typing import ClassVar, Protocol

import torch
from torch import Tensor


class Transform(Protocol):
    """A map between free numbers z [..., n] and values x [..., n].

    alone: every value depends on its own free number only, and grows or falls with it. relative: bool [n], which free
    numbers are exponents or ratios, and thus comparable with each other. low, high: [n], the values lie between.
    """

    alone: ClassVar[bool]
    relative: Tensor
    low: Tensor
    high: Tensor

    def values(self, z: Tensor) -> Tensor: ...

    def free(self, x: Tensor) -> Tensor:
        """The free numbers of values; not finite where the values are impossible."""


class Bounded:
    """Numbers between bounds low and high [n], which may be infinite."""

    alone: ClassVar[bool] = True

    def __init__(self, low: Tensor, high: Tensor) -> None:
        self.low, self.high = low, high
        self.relative = torch.isfinite(low) | torch.isfinite(high)

    def values(self, z: Tensor) -> Tensor:
        low, high = self.low, self.high
        from_low, from_high = torch.isfinite(low), torch.isfinite(high)
        finite_low = torch.where(from_low, low, torch.zeros_like(low))
        finite_high = torch.where(from_high, high, torch.zeros_like(high))
        both, either = from_low & from_high, from_low | from_high
        exp = torch.exp(torch.where(either & ~both, z, torch.zeros_like(z)))
        inside = finite_low + (finite_high - finite_low) * torch.sigmoid(z)
        one_end = torch.where(from_low, finite_low + exp, finite_high - exp)
        return torch.where(both, inside, torch.where(either, one_end, z))

    def free(self, x: Tensor) -> Tensor:
        low, high = self.low, self.high
        from_low, from_high = torch.isfinite(low), torch.isfinite(high)
        one = torch.ones_like(x)
        above = torch.where(from_low, x - low, one)
        below = torch.where(from_high, high - x, one)
        ends = torch.where(from_low & from_high, above.log() - below.log(), torch.where(from_low, above, below).log())
        return torch.where(from_low | from_high, ends, x)


class PhysicalInertia:
    """Inertias of bodies in space about their centers of mass: six numbers xx, yy, zz, xy, xz, yz of each.

    An inertia I is that of some distribution of mass if and only if Σ = ½ tr(I) 1 - I = ∫ r rᵀ dm is positive definite,
    whatever the mass and its center are. So Σ = L Lᵀ, with the triangular factor L = diag(exp d) N, where N has ones on
    its diagonal and the ratios s below it; the free numbers are (d₀, d₁, d₂, s₁₀, s₂₀, s₂₁). Together with the
    logarithm of the mass and the center of mass, these are coordinates of the log-Cholesky form of the pseudo-inertia
    (Rucker & Wensing 2022).
    """

    alone: ClassVar[bool] = False

    def __init__(self, bodies: int) -> None:
        moments = torch.tensor([True, True, True, False, False, False]).repeat(bodies)
        self.relative = torch.ones_like(moments)
        self.low = torch.where(moments, 0.0, -torch.inf).double()
        self.high = torch.full_like(self.low, torch.inf)

    def values(self, z: Tensor) -> Tensor:
        d0, d1, d2, s10, s20, s21 = z.unflatten(-1, (-1, 6)).unbind(-1)
        a, b, c = d0.exp(), d1.exp(), d2.exp()
        xx, yy, zz = a * a, b * b * (1 + s10 * s10), c * c * (1 + s20 * s20 + s21 * s21)  # of Σ
        xy, xz, yz = a * b * s10, a * c * s20, b * c * (s10 * s20 + s21)
        return torch.stack([yy + zz, xx + zz, xx + yy, -xy, -xz, -yz], -1).flatten(-2)

    def free(self, x: Tensor) -> Tensor:
        xx, yy, zz, xy, xz, yz = x.unflatten(-1, (-1, 6)).unbind(-1)
        half = (xx + yy + zz) / 2
        a = (half - xx).sqrt()
        l10, l20 = -xy / a, -xz / a
        b = (half - yy - l10 * l10).sqrt()
        l21 = (-yz - l20 * l10) / b
        c = (half - zz - l20 * l20 - l21 * l21).sqrt()
        return torch.stack([a.log(), b.log(), c.log(), l10 / b, l20 / c, l21 / c], -1).flatten(-2)
