"""Actuators: how a control becomes a force on one degree of freedom.

All of them are affine, as MuJoCo's joint actuators. With the length gear q and the velocity gear v,

    force = clip(gain clip(control, *limits) + bias0 + bias1 length + bias2 velocity, *force_limits)

and the joint feels gear * force. Forces are in N m (rotation) or N (translation). Where a force brakes (bias2 <= 0) and
is not clipped, steps treat it as joint damping: it acts on the velocity after the step, and does not diverge however
strong it is. Whether it is clipped is decided by the velocity before the step.

To add an actuator with another choice of gain and bias: a subclass of `Motor` with its fields, `kind`, `gain`, `bias`,
`parameters` with their ranges, and `matches`, here or in a file of its own; and its name in `ACTUATORS`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

from ..schema import layout
from . import checks
from .files import values
from .files.values import Check
from .ranges import FINITE, NOT_NEGATIVE, NOT_ZERO, POSITIVE, Range

Bias = tuple[float, float, float]
"""Coefficients of 1, of the length and of the velocity."""

STIFFNESS, DAMPING = layout.BIAS + 1, layout.BIAS + 2
"""Offsets in the MOTOR record of the coefficients of the length and of the velocity."""


class RecordField(NamedTuple):
    """Numbers of the MOTOR record that are a parameter times a coefficient."""

    offset: int
    coefficient: float = 1.0
    width: int = 1


class ActuatorParameter(NamedTuple):
    """A parameter of actuators that users may vary and differentiate, and the numbers of the record that it sets.

    range: the values that it may have, for the constructor, scene files and parameters alike.
    """

    name: str
    unit: str
    fields: tuple[RecordField, ...]
    range: Range = FINITE


GEAR = ActuatorParameter("gear", "1", (RecordField(layout.GEAR),), NOT_ZERO)  # with 0, a motor would have no effect


@dataclass(frozen=True, kw_only=True)
class Motor:
    """Torque motor: force = control. ``limits`` clip the control, ``force_limits`` the force."""

    kind: ClassVar[str] = "torque"
    parameters: ClassVar[tuple[ActuatorParameter, ...]] = (GEAR,)
    own_keys: ClassVar[dict[str, Check]] = {}
    """Keys of scene files that this actuator has in addition to its parameters and limits."""

    gear: float = 1.0
    limits: Any = None
    force_limits: Any = None

    def __post_init__(self) -> None:
        what = type(self).__name__
        for parameter in self.parameters:
            name = parameter.name
            object.__setattr__(self, name, parameter.range.number(getattr(self, name), f"{what} {name}"))
        for name in ("limits", "force_limits"):
            object.__setattr__(self, name, checks.interval(getattr(self, name), f"{what} {name}"))

    @property
    def gain(self) -> float:
        """Force per unit of control."""
        return 1.0

    @property
    def bias(self) -> Bias:
        """Coefficients of 1, of the length and of the velocity in the force."""
        return 0.0, 0.0, 0.0

    @classmethod
    def matches(cls, gain: float, bias: Bias) -> bool:
        """Whether an affine actuator with this gain and bias is of this class."""
        return gain == 1.0 and not any(bias)

    @classmethod
    def file_keys(cls) -> dict[str, Check]:
        """The keys of this actuator in scene files, with the checks of their values."""
        limits: dict[str, Check] = {"limits": values.interval, "force_limits": values.interval}
        return {**{p.name: values.within(p.range) for p in cls.parameters}, **limits, **cls.own_keys}

    def record(self) -> tuple[float, ...]:
        """The MOTOR record of the tables."""
        return motor_record(self.gear, self.gain, self.bias, self.limits, self.force_limits)


@dataclass(frozen=True)
class PositionServo(Motor):
    """force = kp (control - length) - kv velocity."""

    kind = "position"
    parameters = (
        GEAR,
        ActuatorParameter("kp", "N m/rad | N/m", (RecordField(layout.GAIN), RecordField(STIFFNESS, -1.0)), POSITIVE),
        ActuatorParameter("kv", "N m s/rad | N s/m", (RecordField(DAMPING, -1.0),), NOT_NEGATIVE),
    )

    kp: float
    kv: float = 0.0

    @property
    def gain(self) -> float:
        return self.kp

    @property
    def bias(self) -> Bias:
        return 0.0, -self.kp, -self.kv

    @classmethod
    def matches(cls, gain: float, bias: Bias) -> bool:
        return bias[:2] == (0.0, -gain) and gain in POSITIVE and -bias[2] in NOT_NEGATIVE


@dataclass(frozen=True)
class VelocityServo(Motor):
    """force = kv (control - velocity)."""

    kind = "velocity"
    parameters = (
        GEAR,
        ActuatorParameter("kv", "N m s/rad | N s/m", (RecordField(DAMPING, -1.0), RecordField(layout.GAIN)), POSITIVE),
    )

    kv: float

    @property
    def gain(self) -> float:
        return self.kv

    @property
    def bias(self) -> Bias:
        return 0.0, 0.0, -self.kv

    @classmethod
    def matches(cls, gain: float, bias: Bias) -> bool:
        return bias == (0.0, 0.0, -gain) and gain in POSITIVE


ACTUATORS: tuple[type[Motor], ...] = (Motor, PositionServo, VelocityServo)
"""All actuators that scenes can have. Loaders take the first that matches."""

GENERAL = "general"
"""The kind of an affine actuator, loaded from a file, that is none of `ACTUATORS`."""

_GENERAL_PARAMETERS = (
    GEAR,
    ActuatorParameter("gain", "N m | N", (RecordField(layout.GAIN),)),
    ActuatorParameter("bias", "N m | N", (RecordField(layout.BIAS, width=3),)),
)

PARAMETERS: dict[str, tuple[ActuatorParameter, ...]] = {
    **{actuator.kind: actuator.parameters for actuator in ACTUATORS},
    GENERAL: _GENERAL_PARAMETERS,
}
"""The parameters of actuators of each kind."""


def kind_of(gain: float, bias: Bias) -> str:
    """The kind of an affine actuator."""
    return next((actuator.kind for actuator in ACTUATORS if actuator.matches(gain, bias)), GENERAL)


def motor_record(
    gear: float, gain: float, bias: Bias, limits: tuple[float, float], force_limits: tuple[float, float]
) -> tuple[float, ...]:
    """The MOTOR record, in the order of layout.py."""
    return (gear, gain, *bias, *limits, *force_limits)
