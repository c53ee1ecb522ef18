"""The other engines, behind the little that the tables need. Arrays are [B, T, n], as MuJoCo has them."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

import mujoco
import mujoco.rollout
import numpy as np
import pinocchio as pin

from .peers.with_mujoco import chain, to_tangent
from .robots import DT

Array = np.ndarray


class MuJoCo:
    """By semi-implicit Euler. Unless `contact`: contact, limits and constraints are switched off."""

    def __init__(
        self,
        mjcf: str,
        geoms: bool = True,
        contact: bool = False,
        dt: float = DT,
        elliptic: bool = False,
        tuned: bool = True,
    ) -> None:
        spec = mujoco.MjSpec.from_string(mjcf)
        for geom in [] if geoms else list(spec.geoms):
            spec.delete(geom)
        self.model = spec.compile()
        off = mujoco.mjtDisableBit
        if contact:  # islands cost more than they bring if all feet stand on one floor
            if tuned:
                self.model.opt.disableflags |= off.mjDSBL_ISLAND | off.mjDSBL_MIDPHASE | off.mjDSBL_SENSOR
        else:
            self.model.opt.disableflags |= off.mjDSBL_CONTACT | off.mjDSBL_LIMIT | off.mjDSBL_CONSTRAINT
        if elliptic:
            self.model.opt.cone = mujoco.mjtCone.mjCONE_ELLIPTIC
        self.model.opt.timestep = dt
        self.data = mujoco.MjData(self.model)

    def roller(self, q: Array, v: Array, controls: Array, threads: int = 1) -> Callable[[], tuple[Array, Array]]:
        """``mujoco.rollout`` with everything made ready: a call only steps, into memory that is there."""
        batch, steps = controls.shape[:2]
        start = np.concatenate([np.zeros((batch, 1)), q, v], axis=1)
        out = np.zeros((batch, steps, start.shape[1]))
        models, nq = [self.model] * batch, self.model.nq
        data = [mujoco.MjData(self.model) for _ in range(threads)]
        keep = {"skip_checks": True, "persistent_pool": threads > 1}

        def call() -> tuple[Array, Array]:
            mujoco.rollout.rollout(models, data, start, controls, nstep=steps, state=out, **keep)
            return out[..., 1 : 1 + nq], out[..., 1 + nq :]

        return call

    def contacts(self, q: Array, v: Array, controls: Array) -> Array:
        """How many there are in every step, [B, T]."""
        m, d = self.model, self.data
        counts = np.zeros(controls.shape[:2], int)
        for b, t in np.ndindex(*counts.shape):
            if t == 0:
                mujoco.mj_resetData(m, d)
                d.qpos, d.qvel = q[b], v[b]
            d.ctrl = controls[b, t]
            mujoco.mj_step(m, d)
            counts[b, t] = d.ncon
        return counts

    def gradient(self, q: Array, v: Array, controls: Array, centered: bool) -> tuple[Array, Array]:
        """Of |q_T|² + |v_T|², one environment: for its start [2 nv] (tangent) and controls [T, nu].

        A rollout, then the chain of ``mjd_transitionFD``.
        """
        path_q, path_v = (
            np.concatenate([x[None], y[0]]) for x, y in zip((q, v), self.roller(q[None], v[None], controls[None])())
        )
        end = np.concatenate([to_tangent(path_q[-1], 2 * path_q[-1], self.model.nv), 2 * path_v[-1]])
        return chain(self.model, self.data, path_q, path_v, controls, end, centered)


class Pinocchio:
    """A robot with a floating base; q, v and v̇ go in and come out as MuJoCo has them."""

    def __init__(self, mjcf: str) -> None:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "robot.xml"
            path.write_text(mjcf)
            self.model = pin.buildModelFromMJCF(str(path))
        self.data = self.model.createData()

    def convert(self, q: Array, v: Array, controls: Array) -> tuple[Array, Array, Array]:
        """(q, v, τ): quaternion with w last, the velocity of the base along its own axes."""
        rotation = pin.Quaternion(*q[3:7]).toRotationMatrix()
        tau = np.concatenate([np.zeros(self.model.nv - len(controls)), controls])
        place, speed = [q[:3], q[4:7], q[3:4], q[7:]], [rotation.T @ v[:3], v[3:]]
        return np.concatenate(place), np.concatenate(speed), tau

    def acceleration(self, q: Array, v: Array, controls: Array) -> Array:
        q, v, tau = self.convert(q, v, controls)
        vdot = pin.aba(self.model, self.data, q, v, tau).copy()
        rotation = pin.Quaternion(q[3:7]).toRotationMatrix()
        vdot[:3] = rotation @ (vdot[:3] + np.cross(v[3:6], v[:3]))
        return vdot

    def stepper(self, q: Array, v: Array, controls: Array, steps: int) -> Callable[[], None]:
        """Steps of one environment in a Python loop: ``aba``, then ``integrate``."""
        q0, v0, tau = self.convert(q, v, controls)
        model, data = self.model, self.data

        def call() -> None:
            q, v = q0, v0
            for _ in range(steps):
                v = v + DT * pin.aba(model, data, q, v, tau)
                q = pin.integrate(model, q, DT * v)

        return call

    def batch_aba(self, q: Array, v: Array, controls: Array) -> Callable[[], Array]:
        """``aba`` of a batch in one call: the loop is in C++, on one thread. Without integration."""
        columns = [np.asfortranarray(np.stack(x, axis=1)) for x in zip(*map(self.convert, q, v, controls))]
        pool, out = pin.ModelPool(self.model, 1), np.zeros_like(columns[1], order="F")

        def call() -> Array:
            pin.abaInParallel(1, pool, *columns, out)
            return out

        return call

    def jacobians(self, q: Array, v: Array, controls: Array, steps: int) -> Callable[[], Array]:
        """``computeABADerivatives`` in a Python loop; a call returns ∂v̇/∂q."""
        q, v, tau = self.convert(q, v, controls)
        model, data = self.model, self.data

        def call() -> Array:
            for _ in range(steps):
                pin.computeABADerivatives(model, data, q, v, tau)
            return data.ddq_dq

        return call
