"""The settings of a `Simulator`: they are checked, and "auto" becomes a choice."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass

import torch

from .model import Model, checks
from .physics.kernels import has_restitution
from .physics.soft.settings import SoftSettings

IMPACT_LINKS = 64  # impacts="auto": most links of models whose bounces are exact
SPARSE_BODIES = 24  # sparse="auto": fewest bodies of worlds that take the sparse form
SOFT_SPARSE_BODIES = 25  # those with MuJoCo's physics: dense kernels for a model with fewer bodies are faster

FIXED = (
    "model", "dt", "physics", "solver", "integrator", "impacts", "pyramid", "bounce_threshold", "dtype", "threads",
    "specialize", "nonfinite", "sparse",
)  # fmt: skip
"""Attributes of a `Simulator` that its kernels were made for."""


@dataclass(frozen=True)
class SimulatorSettings:
    """See `Simulator`."""

    dt: float
    impacts: bool | str
    pyramid: float
    bounce_threshold: float
    dtype: torch.dtype
    threads: int | None
    specialize: bool | str
    nonfinite: str
    sparse: bool | str

    def check(self) -> None:
        dt, pyramid, threshold = self.dt, self.pyramid, self.bounce_threshold
        checks.in_range(dt, "dt", "a positive number of seconds", lambda x: 0 < x < math.inf)
        if self.dtype not in (torch.float64, torch.float32):
            raise TypeError(f"dtype must be torch.float64 or torch.float32, got {self.dtype}")
        _require_choice("impacts", self.impacts)
        if self.impacts is True and self.dtype != torch.float64:
            raise ValueError(f"impacts=True needs dtype=torch.float64: the time of an impact is lost in {self.dtype}")
        if not self.round_cones:
            sides = checks.integer(pyramid, "pyramid")
            if sides % 2 or sides < 4:
                raise ValueError(f"pyramid must be an even number of sides >= 4, or math.inf, got {pyramid!r}")
        checks.in_range(threshold, "bounce_threshold", "a speed >= 0 in m/s", lambda x: x >= 0)
        if self.threads is not None:
            checks.integer(self.threads, "threads")
        _require_choice("specialize", self.specialize)
        if self.nonfinite not in ("raise", "mark"):
            raise ValueError(f"nonfinite must be 'raise' or 'mark', got {self.nonfinite!r}")
        _require_choice("sparse", self.sparse)
        if self.impacts is True and self.sparse is True:
            raise ValueError("impacts=True and sparse=True: the sparse form takes plain steps, impacts=False")
        if self.round_cones and self.sparse is True:
            raise ValueError("pyramid=math.inf and sparse=True: the sparse form has pyramids, not round cones")

    @property
    def round_cones(self) -> bool:
        """Whether friction cones are round in all steps."""
        return isinstance(self.pyramid, float) and self.pyramid == math.inf

    def choose_impacts(self, model: Model) -> bool:
        """Whether steps are split at their impacts."""
        if self.impacts != "auto":
            return bool(self.impacts)
        few = self.sparse is not True and model.nlink <= IMPACT_LINKS
        return few and has_restitution(model) and self.dtype == torch.float64

    def choose_sparse(self, model: Model, impacts: bool, soft: SoftSettings | None = None) -> bool:
        """Whether the form for one big world is taken; soft: of MuJoCo's physics."""
        many = model.nlink >= (SPARSE_BODIES if soft is None else SOFT_SPARSE_BODIES)
        wanted = many and not (impacts or self.round_cones) if self.sparse == "auto" else bool(self.sparse)
        reason = _not_sparse(model, soft) if wanted else None
        if self.sparse is True and reason is not None:
            if soft is not None:
                raise NotImplementedError(
                    f"sparse=True: MuJoCo's physics has no form for big worlds of this model yet, since {reason}"
                )
            raise ValueError(f"sparse=True: this model has no sparse form, since {reason}")
        return wanted and reason is None


def refuse_rigid(**given: object) -> None:
    """Raise if a setting of rigid physics is given together with MuJoCo's."""
    for name, value in given.items():
        if value not in (None, "auto", False):
            raise ValueError(
                f"{name}={value!r} is a setting of rigid physics. MuJoCo's has its own: physics=MuJoCo(integrator=..., "
                "cone=..., iterations=...)"
            )


def tell_of_rigid(model: Model, **given: object) -> None:
    """Warn if rigid physics moves a MJCF file otherwise than MuJoCo, and no given setting shows that this is meant."""
    if model.rigid_differences and all(value in (None, "auto") for value in given.values()):
        warnings.warn(
            "the MJCF file moves otherwise here than in MuJoCo: " + "; ".join(model.rigid_differences) + ". "
            "Simulator(model, physics='mujoco') moves it as MuJoCo does; physics='rigid' is this, without a warning",
            stacklevel=3,
        )  # fmt: skip


def _require_choice(name: str, value: bool | str) -> None:
    if value not in (True, False, "auto"):
        raise ValueError(f"{name} must be True, False or 'auto', got {value!r}")


def _not_sparse(model: Model, soft: SoftSettings | None) -> str | None:
    """Why there is no sparse form; None if there is one."""
    from .piles.soft.tables import unsupported as unsupported_soft
    from .piles.tables import unsupported

    if not model.npair:
        return "nothing can touch in it"
    return unsupported(model) if soft is None else unsupported_soft(model, soft)
