"""Motors: how a control becomes a force on one degree of freedom.

All of them are affine, as MuJoCo's joint actuators: with length = gear q and velocity = gear v,

    force = clip(gain clip(control, *limits) + bias0 + bias1 length + bias2 velocity, *force_limits)

and the joint feels gear * force. Forces in N m (rotation) or N (translation).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from . import checks
from .links import motor_record


@dataclass(frozen=True, kw_only=True)
class Motor:
    """Torque motor: force = control. ``limits`` clip the control, ``force_limits`` the force."""

    kind: ClassVar[str] = "torque"

    gear: float = 1.0
    limits: Any = None
    force_limits: Any = None

    def __post_init__(self) -> None:
        what = type(self).__name__
        gear = checks.number(self.gear, f"{what} gear")
        if gear == 0.0:
            raise ValueError(f"{what} gear must not be 0: the motor would have no effect")
        object.__setattr__(self, "gear", gear)
        for name in ("limits", "force_limits"):
            object.__setattr__(self, name, checks.interval(getattr(self, name), f"{what} {name}"))

    @property
    def gain(self) -> float:
        return 1.0

    @property
    def bias(self) -> tuple[float, float, float]:
        return 0.0, 0.0, 0.0

    def record(self) -> tuple[float, ...]:
        """The MOTOR record of the tables."""
        return motor_record(self.gear, self.gain, self.bias, self.limits, self.force_limits)


@dataclass(frozen=True)
class PositionServo(Motor):
    """force = kp (control - length) - kv velocity."""

    kind = "position"

    kp: float
    kv: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "kp", checks.number(self.kp, "PositionServo kp", low=0.0, strict=True))
        object.__setattr__(self, "kv", checks.number(self.kv, "PositionServo kv", low=0.0))

    @property
    def gain(self) -> float:
        return self.kp

    @property
    def bias(self) -> tuple[float, float, float]:
        return 0.0, -self.kp, -self.kv


@dataclass(frozen=True)
class VelocityServo(Motor):
    """force = kv (control - velocity)."""

    kind = "velocity"

    kv: float

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "kv", checks.number(self.kv, "VelocityServo kv", low=0.0, strict=True))

    @property
    def gain(self) -> float:
        return self.kv

    @property
    def bias(self) -> tuple[float, float, float]:
        return 0.0, 0.0, -self.kv
