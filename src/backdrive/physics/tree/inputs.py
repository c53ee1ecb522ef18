"""The inputs of the dynamics: the state, and everything that acts on it from outside."""

from __future__ import annotations

from dataclasses import dataclass

from ...ir import Index, Scalar, ScalarArray


@dataclass(frozen=True)
class DynamicsInputs:
    """The inputs of `forward_dynamics` and of its adjoint.

    q [nq], v [nv]: the state. v_damped [nv]: the velocity that dampers and braking motors act on. controls [nu].
    wrenches [nlink, 6]: (force, torque) at the centers of mass, in world axes, N and N m; None if there are none.
    damping_time: h of the implicit damping in M + h D, s. stiffness_time: the time (s) by which the stiffness of motors
    counts in D; 0 if it is explicit. spin_time: h of the implicit gyroscopic torques, s (see `spin`); 0 for those of v.
    applied [nv]: generalised forces that act besides; None if there are none. saturation [nu]: which limit of its force
    every motor is at, -1, 1 or 0 for none (see `saturation`); None: that of its explicit force.
    """

    q: ScalarArray
    v: ScalarArray
    v_damped: ScalarArray
    controls: ScalarArray
    wrenches: ScalarArray | None
    damping_time: Scalar
    stiffness_time: Scalar = 0.0
    spin_time: Scalar = 0.0
    applied: ScalarArray | None = None
    saturation: ScalarArray | None = None

    def limit_of(self, m: Index) -> Scalar | None:
        """The saturation of motor m."""
        return None if self.saturation is None else self.saturation[m]
