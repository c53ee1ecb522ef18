"""Time integrators, one file each. A new one implements `Integrator` (`base`) and is listed in `INTEGRATORS`."""

from .base import Integrator
from .midpoint import Midpoint
from .semi_implicit_euler import SemiImplicitEuler

INTEGRATORS: tuple[type, ...] = (SemiImplicitEuler, Midpoint)

__all__ = ["INTEGRATORS", "Integrator", "Midpoint", "SemiImplicitEuler", "check"]


def check(integrator: object) -> None:
    """Raise a TypeError for anything but an instance of a registered integrator."""
    if not isinstance(integrator, INTEGRATORS):
        names = " or ".join(f"{each.__name__}()" for each in INTEGRATORS)
        raise TypeError(f"integrator must be {names}, got {integrator!r}")
