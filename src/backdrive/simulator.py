"""The simulator: a model, a step size, and an integrator, as a PyTorch module."""

from __future__ import annotations

import math
import operator
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

import torch
from torch import Tensor, nn

from .adjoints import Checkpoint, Truncated, rollout_settings
from .contacts import Contacts
from .model import Model, State, checks
from .physics import integrators, solvers
from .physics.integrators import Integrator, SemiImplicitEuler
from .physics.scheme import RigidContact, Scheme
from .physics.soft.options import MuJoCo, choose
from .physics.solvers import ProjectedGaussSeidel, Solver
from .physics.tree.saturation import saturates
from .policy import Policy, Sensor
from .rollout_arguments import RolloutArguments, rollout_clip, rollout_length
from .runtime import autograd, closed_loop, execute
from .runtime.along_path import PlanarAngles
from .runtime.call import Call
from .runtime.jacobians import StepPoint, chained, euler_jacobians, step_jacobians
from .runtime.program import Program, ProgramSettings
from .runtime.report import NotFiniteError, require_finite
from .runtime.request import Request
from .runtime.result import RolloutResult
from .runtime.tangent import Tangent
from .runtime.transforms import plain_call, values_visible
from .schema import layout
from .schema.signatures import FORWARD, INVERSE, ONE_STEP, ROLLOUT, TRACKING, RolloutSettings
from .schema.state import state_names
from .simulator_settings import FIXED, SimulatorSettings, refuse_rigid, tell_of_rigid
from .trajectory import RolloutInputs, Trajectory

__all__ = ["Checkpoint", "Simulator", "Truncated"]

SPARSE_SOLVER = ProjectedGaussSeidel(iterations=50, tolerance=1e-5, exact=False)  # the default of the sparse form
_PATH, _LAST = state_names("path_"), state_names("last_")


class Simulator(nn.Module):
    """Steps of `dt` seconds of a model, differentiable.

    physics: "rigid" (default): contacts are rigid, and all arguments below apply; for a MJCF file that moves otherwise
        in MuJoCo, the default warns, unless another argument shows that rigid physics is meant. "mujoco": MuJoCo's own
        soft constraints, integrator and solver with the options of the MJCF file, or with those of a `MuJoCo` object;
        dt is that of the file unless given, and solver, integrator, impacts, pyramid and bounce_threshold have no
        meaning.
    solver: for contacts and other constraints, `ProjectedGaussSeidel()` (default) or `InteriorPoint()`; the default of
        the sparse form is ``ProjectedGaussSeidel(iterations=50, tolerance=1e-5, exact=False)``.
    integrator: `SemiImplicitEuler()` (default) or `Midpoint()`.
    impacts: True: steps are split at their impacts, so that bounces and their gradients are exact. False: plain time
        stepping, somewhat faster; contacts then bounce by their approach speed at the start of a step, and gradients
        through bounces are wrong. "auto": True where a shape of the model has restitution, in float64 and up to 64
        links.
    pyramid: number of sides of the friction pyramid in 3D, even, at least 4. With 4, the default, impacts have round
        cones; with math.inf, all steps have (small worlds only), which takes up to twice the time.
    bounce_threshold: m/s; in plain time stepping, contacts that approach more slowly do not bounce.
    dtype: torch.float64 or torch.float32, of all tensors that go in and come out.
    threads: the largest number of threads; None: one for every core that the process may use. They
        change no bit of any result.
    specialize: compile kernels for this very model (True: faster, a second or two once, with contact a few more) or use
        those that serve every model with the same kinds of shapes (False); "auto": True for models of up to 40 links
        (120 in 2D, 24 with contact), as long as few of their constants are given as parameters.
    nonfinite: NaN or inf in an input raises ("raise"), or only shows in its environment's results and status ("mark").
    sparse: the form for one big world of free bodies, whose cost grows with the number of contacts and not with its
        cube. Contacts are solved by Gauss-Seidel sweeps alone, and gradients are those of these sweeps, converged or
        not (where sweeps that have not converged make them grow a hundredfold, those before are left out); or by
        `InteriorPoint()`, slower, to its tolerance, and gradients are those of the solution. Steps are plain
        (impacts=False). "auto": True from 24 bodies on, if all are free and none bounces (65, if some do). MuJoCo's
        physics has it from 25 bodies on, with the integrators "euler", "implicit" and "implicitfast", without meshes,
        media and explicit pairs; results are those of the form for small worlds, to rounding.

    The attributes `impacts` and `sparse` hold the choices that "auto" made.
    """

    def __init__(
        self, model: Model, dt: float | None = None, *, physics: str | MuJoCo | None = None,
        solver: Solver | None = None, integrator: Integrator | None = None, impacts: bool | str = "auto",
        pyramid: float = 4, bounce_threshold: float = 0.05, dtype: torch.dtype = torch.float64,
        threads: int | None = None, specialize: bool | str = "auto", nonfinite: str = "raise",
        sparse: bool | str = "auto",
    ) -> None:  # fmt: skip
        super().__init__()
        if not isinstance(model, Model):
            raise TypeError(f"model must be a backdrive Model (Scene.build() or load()), got {type(model).__name__}")
        if physics is None:
            tell_of_rigid(model, solver=solver, integrator=integrator, impacts=impacts, sparse=sparse)
            physics = "rigid"
        soft = choose(physics, model)
        if soft is not None:
            refuse_rigid(
                solver=solver, integrator=integrator, impacts=impacts,
                pyramid=None if pyramid == 4 else pyramid,
                bounce_threshold=None if bounce_threshold == 0.05 else bounce_threshold,
            )  # fmt: skip
            impacts = False
            dt = model.timestep if dt is None else dt
        if dt is None:
            raise ValueError("dt must be a positive number of seconds, got None (physics='mujoco' takes the file's)")
        settings = SimulatorSettings(
            dt, impacts, pyramid, bounce_threshold, dtype, threads, specialize, nonfinite, sparse
        )  # fmt: skip
        if integrator is None:
            integrator = SemiImplicitEuler()
        integrators.check(integrator)
        if solver is not None:
            solvers.check(solver)
        settings.check()
        self.model, self.dt, self.integrator, self.dtype = model, float(dt), integrator, dtype
        self.pyramid, self.bounce_threshold = pyramid if settings.round_cones else int(pyramid), bounce_threshold
        self.threads = None if threads is None else operator.index(threads)
        self.specialize, self.nonfinite, self.physics = specialize, nonfinite, physics
        self.impacts = settings.choose_impacts(model)
        self.sparse = settings.choose_sparse(model, self.impacts, soft)
        self.solver = solver or (SPARSE_SOLVER if self.sparse else ProjectedGaussSeidel())
        self._make_program()

    def _make_program(self) -> None:
        self._tangent = Tangent(self.model)
        self._body_links = self.model.body_link.tolist()
        self._angles = PlanarAngles(self.model)
        soft = choose(self.physics, self.model)
        rigid, cones = soft is None, self.pyramid == math.inf
        contact_model = RigidContact(self.solver, float(self.bounce_threshold), impacts=self.impacts, round_cones=cones)
        scheme = Scheme(self.integrator, contact_model if rigid else None, soft, rigid and saturates(self.model))
        sides = 4 if cones else int(self.pyramid)  # round cones are found from pyramids with four sides
        directions = sides // 2 if soft is None else soft.block - 1
        settings = ProgramSettings(
            self.dt, scheme, directions, self.dtype, self.threads, self.specialize, self.nonfinite, self.sparse
        )
        self._program = Program(self.model, settings)

    def __getstate__(self) -> dict[str, Any]:
        """Compiled code is not copied or pickled: the copy loads its own from the cache."""
        return {k: v for k, v in self.__dict__.items() if k not in ("_program", "_tangent", "_body_links", "_angles")}

    def __setattr__(self, name: str, value: Any) -> None:
        if name in FIXED and "_program" in self.__dict__:
            raise AttributeError(f"{name} is fixed: the kernels were made for it. Make another Simulator")
        super().__setattr__(name, value)

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._make_program()

    def extra_repr(self) -> str:
        if self._program.scheme.soft is not None:
            return f"{self.model!r}, dt={self.dt:g}, physics={self.physics!r}, {self.dtype}"
        constrained = self._program.kernels.tables is not None or self.sparse
        solver = f"{self.solver!r}, " if constrained else ""
        physics = "physics='rigid', " if self.model.rigid_differences else ""
        return f"{self.model!r}, dt={self.dt:g}, {physics}{solver}{self.integrator!r}, {self.dtype}"

    # ------------------------------------------------------------------------------------------ steps

    def forward(self, state: State, control: Tensor | None = None, **kwargs: Any) -> State:
        """`step`."""
        return self.step(state, control, **kwargs)

    def step(
        self, state: State, control: Tensor | None = None, *, wrench: Tensor | None = None,
        parameters: Mapping[str, Tensor] | None = None,
    ) -> State:  # fmt: skip
        """The state after one step.

        state: q [B, nq], v [B, nv]; control: [B, nu] (zero if None); wrench: [B, nbody, 6] (3D: force, torque) or
        [B, nbody, 3] (2D: fx, fy, torque), on the centers of mass, in world axes, N and N m; parameters: see `rollout`.
        Without B everywhere: one world.
        """
        usual = wrench is None and parameters is None and isinstance(state, State)
        if usual and all(isinstance(x, Tensor) for x in (*state, control)):
            after = autograd.quick_step(self._program, state, cast(Tensor, control))
            if after is not None:
                return State(*after)
        call = Call(self._program, state, parameters)
        return State(*call.finished(*self._one_step(call, call.controls(control), call.wrenches(wrench)), dim=0))

    def _one_step(self, call: Call, control: Tensor, wrench: Tensor | None) -> list[Tensor]:
        """The fields of the state after a step, [B, n]."""
        wrenches = None if wrench is None else wrench.unsqueeze(0)
        given = {"controls": control.unsqueeze(0), "wrenches": wrenches}
        outputs = self._evaluate(call, *call.request(ROLLOUT, ONE_STEP, **given))
        return [outputs[name] for name in _LAST]

    def _evaluate(
        self, call: Call, request: Request, tensors: dict[str, Tensor], keep_steps: bool = False
    ) -> dict[str, Tensor]:
        """Run a form; inputs that are not finite are reported by the names and places that the user knows."""
        try:
            return autograd.evaluate(request, tensors, keep_steps)
        except NotFiniteError:
            call.report()
            raise

    def rollout(
        self, state: State, controls: Tensor | None = None, *, steps: int | None = None,
        wrenches: Tensor | None = None, parameters: Mapping[str, Tensor] | None = None,
        adjoint: Checkpoint | Truncated | None = None, policy: Policy | None = None, inputs: Tensor | None = None,
        clip: float | None = None, noise: Tensor | None = None,
    ) -> Trajectory:  # fmt: skip
        """Many steps, with all their states.

        state: the start, q [B, nq], v [B, nv]. controls: [T, B, nu], or [T, nu] shared by all environments; without
        controls, `steps` is the number of steps T. wrenches: [T, B, nbody, 6 (3D) or 3 (2D)], as in `step`.
        parameters: {name: tensor}, some of those that ``model.parameters()`` lists, in place of the model's own; each
        [*shape], or [B, *shape] for one per environment. adjoint: how the backward pass gets its states: `Checkpoint`,
        `Truncated`. Without B everywhere: one world.

        policy: in place of controls: an `MLP`, or any function ``policy(state, t)`` that returns the control [B, nu] of
        step t, which starts from `state`; gradients reach its parameters. inputs: [T, B, k] or [T, k], observed by an
        `MLP` besides its sensors; noise: [T, B, nu] or [T, nu], for its controls. If it holds its controls, these two
        have a row for each of its decisions.

        clip: in the backward pass, the derivative of the loss with respect to (q, v) of each environment between steps
        is scaled down to a norm of at most this, and is zero where it is not finite (gradients of parameters stay
        as they are); with an `MLP` that holds its controls, it is scaled at its decisions only.
        ``Trajectory.adjoint_status`` tells how much was clipped. See docs/gradients.md.
        """
        others = (steps, wrenches, parameters, adjoint, policy, inputs, clip, noise)
        usual = isinstance(state, State) and all(x is None for x in others)
        if usual and all(isinstance(x, Tensor) for x in (*state, controls)):
            u = cast(Tensor, controls)
            motion = autograd.quick_rollout(self._program, state, u)
            if motion is not None:
                u = u.unsqueeze(1) if u.ndim == 2 else u
                return Trajectory(self, motion, RolloutInputs(RolloutSettings(len(u)), u))
        return self._rollout(
            RolloutArguments(state, controls, steps, wrenches, parameters, adjoint, policy, inputs, clip, noise)
        )  # fmt: skip

    def _rollout(self, given: RolloutArguments, check_parameters: bool = True) -> Trajectory:
        """check_parameters: refuse impossible values, as a negative mass is."""
        call = Call(self._program, given.state, given.parameters, check_parameters)
        settings = rollout_settings(given.adjoint, rollout_length(call, given))
        steps, wrenches = settings.steps, call.wrenches(given.wrenches, settings.steps)
        clip = rollout_clip(call, given, steps)
        if given.policy is None:
            controls = call.controls(given.controls, steps)
            request, tensors = call.request(ROLLOUT, settings, controls=controls, wrenches=wrenches)
            outputs = self._evaluate(call, replace(request, clip=clip), tensors)
            path, last = [outputs[name] for name in _PATH], [outputs[name] for name in _LAST]
            motion = RolloutResult(tuple(path), tuple(last), outputs["status"])
        else:
            decides = closed_loop.PolicyArguments(given.policy, given.inputs, given.noise)
            motion, controls = closed_loop.rollout(call, decides, wrenches, settings, clip)
        *states, status = call.finished(*motion.path, motion.status, dim=1)
        motion = RolloutResult(tuple(states), tuple(call.finished(*motion.last, dim=0)), status)
        inputs = RolloutInputs(settings, controls, wrenches, call.constants, call.parameters, clip)
        return Trajectory(self, motion, inputs)

    def observe(self, state: State, sensors: Sequence[Sensor] = ("q", "v")) -> Tensor:
        """The observations [B, n] of a state that an `MLP` with these sensors has, differentiable: see `MLP`."""
        call = Call(self._program, state, None)
        (seen,) = call.finished(closed_loop.observe(self._program, call.state, sensors), dim=0)
        return seen

    def contacts(
        self, state: State, control: Tensor | None = None, *, parameters: Mapping[str, Tensor] | None = None
    ) -> Contacts:
        """The forces of contacts, limits and loops in one step from a state, as ``rollout(...).contacts`` has them
        ([T, B, ...] with T = 1), differentiable."""
        call = Call(self._program, state, parameters)
        q, v = call.finished(*(x.expand(2, *x.shape) for x in call.state), dim=1)
        motion = RolloutResult((q, v), (q[1], v[1]), q.new_zeros(0))  # forces are those of a step from the first state
        inputs = RolloutInputs(
            RolloutSettings(1), call.controls(control).unsqueeze(0), None, call.constants, call.parameters
        )
        return Trajectory(self, motion, inputs).contacts

    def track(
        self, state: State, controls: Tensor, gains: Tensor, origin: State, *,
        limits: tuple[Tensor, Tensor] | None = None, parameters: Mapping[str, Tensor] | None = None,
    ) -> tuple[Trajectory, Tensor]:  # fmt: skip
        """A rollout with linear feedback u = clip(controls + gains (x ⊖ origin)), and the controls u that it used.

        state: q [B, nq], v [B, nv]. controls: [T, B, nu]; gains: [T, B, nu, 2 nv], for (δq, δv) in the tangent space,
        as `linearize` has them; origin: q [T, B, nq], v [T, B, nv]; limits: low and high, [nu] each. Without B
        everywhere: one world. No gradient passes through the results. Motion that does not stay finite is marked in the
        status, without a warning.
        """
        call, model = Call(self._program, state, parameters), self.model
        steps = call.length("controls", controls)
        checks.integer(steps, "steps")
        with torch.no_grad():
            given = {"controls": call.controls(controls, steps)}
            given["gains"] = call.tensor("gains", gains, (model.nu, 2 * model.nv), steps).flatten(-2)
            for name, x, n in zip(State._fields, origin, self._program.state_sizes, strict=True):
                given[f"origin_{name}"] = call.tensor(f"origin.{name}", x, (n,), steps)
            unlimited = torch.full((model.nu,), math.inf, dtype=self.dtype)
            bounds = (-unlimited, unlimited) if limits is None else limits
            finite = dict(call.given)
            for name, x in zip(("low", "high"), bounds, strict=True):
                given[name] = call.tensor(f"limits: {name}", x, (model.nu,))
            if self.nonfinite == "raise" and values_visible(finite.values()):
                require_finite(finite)
            settings = RolloutSettings(steps)
            outputs = execute.track(*call.request(TRACKING, settings, **given))
            used = outputs["used"]
            *path, status, out = call.finished(*(outputs[x] for x in _PATH), outputs["status"], used, dim=1)
        motion = RolloutResult(tuple(path), tuple(x[-1] for x in path), status)
        return Trajectory(self, motion, RolloutInputs(settings, used, None, call.constants, call.parameters)), out

    def linearize(
        self, state: State, control: Tensor | None = None, *, steps: int = 1,
        parameters: Mapping[str, Tensor] | None = None,
    ) -> tuple[Tensor, Tensor]:  # fmt: skip
        """A [B, 2 nv, 2 nv] and B [B, 2 nv, nu]: the Jacobians of a step, or of several with the same control, in the
        tangent space.

        (δq⁺, δv⁺) = A (δq, δv) + B δu, where δq are displacements in the coordinates of v: q ⊕ δq, as ``v dt`` moves q.
        Without B everywhere: [2 nv, 2 nv] and [2 nv, nu]. No gradient passes through them.
        """
        if checks.integer(steps, "steps") > 1:
            return self._linearize_steps(state, control, steps, parameters)
        call = Call(self._program, state, parameters)
        with torch.no_grad():
            u = call.controls(control)
            euler = self._program.scheme.has_jacobian_kernel and not self.sparse
            euler = euler and self.model.nv > 0 and plain_call()
            jacobians = euler_jacobians if euler else step_jacobians
            at = StepPoint(self._program, self._tangent, call.state, u, call.constants, call.parameters)
            found = None
            solves = self._program.solution_size > 0
            if not self._tangent.quaternions and not solves and not self.sparse and plain_call():
                found = jacobians(at, call.state[0])  # without turns, it does not matter where the step ends
            if found is None or not _all_finite(*call.state, u, found[0]):  # which the step reports on
                step = call.request(ROLLOUT, ONE_STEP, controls=u.unsqueeze(0))
                after = self._evaluate(call, *step, keep_steps=solves)
                at = at._replace(solution=after["solution"].squeeze(0) if solves else None)
                found = jacobians(at, after[_LAST[0]])
            A, B = call.finished(*found, dim=0)
        return A, B

    def _linearize_steps(
        self, state: State, control: Tensor | None, steps: int, parameters: Mapping[str, Tensor] | None
    ) -> tuple[Tensor, Tensor]:
        """Of several steps: the product of the Jacobians of all of them, which are computed in one batch."""
        with torch.no_grad():
            controls = None if control is None else control.expand(steps, *control.shape)
            path = self.rollout(state, controls, steps=steps, parameters=parameters)
            states, u = [State(q, v) for q, v in zip(path.q[:-1], path.v[:-1])], path.controls
            if parameters:  # which may have rows for environments
                each = [self.linearize(x, y, parameters=parameters) for x, y in zip(states, u)]
                return chained(*(torch.stack(x) for x in zip(*each)))
            shape = (steps, *path.q.shape[1:-1])
            q, v, u = (x.reshape(-1, x.shape[-1]) for x in (path.q[:-1], path.v[:-1], u))
            A, B = self.linearize(State(q, v), u)
            return chained(A.unflatten(0, shape), B.unflatten(0, shape))

    # ------------------------------------------------------------------------------------------ dynamics

    def forward_dynamics(
        self, state: State, control: Tensor | None = None, *, wrench: Tensor | None = None,
        parameters: Mapping[str, Tensor] | None = None,
    ) -> Tensor:  # fmt: skip
        """v̇ [B, nv]: M(q) v̇ = τ(q, v, u) - c(q, v), springs, dampers and motors included."""
        call = Call(self._program, state, parameters)
        controls, wrenches = call.controls(control), call.wrenches(wrench)
        outputs = self._evaluate(call, *call.request(FORWARD, controls=controls, wrenches=wrenches))
        return call.finished(outputs["vdot"], dim=0)[0]

    def inverse_dynamics(
        self, state: State, acceleration: Tensor, *, parameters: Mapping[str, Tensor] | None = None
    ) -> Tensor:
        """τ [B, nv] = M(q) v̇ + c(q, v): the generalised force that gives v̇ (`acceleration` [B, nv])."""
        call = Call(self._program, state, parameters)
        vdot = call.tensor("acceleration", acceleration, (self.model.nv,))
        outputs = self._evaluate(call, *call.request(INVERSE, vdot=vdot))
        return call.finished(outputs["tau"], dim=0)[0]

    def mass_matrix(self, state: State, *, parameters: Mapping[str, Tensor] | None = None) -> Tensor:
        """M(q) [B, nv, nv], with the joints' armature."""
        call, nv = Call(self._program, state, parameters), self.model.nv
        q, v = call.state
        if nv == 0:
            return call.finished(v.new_zeros(call.batch, 0, 0), dim=0)[0]
        constants = call.constants if call.constants is not None else self._program.constants
        names = ",".join(filter(None, [call.parameters, "gravity"]))
        at = layout.gravity_start(self.model.nlink, self.model.nq, self.model.nu)  # no weight
        weightless = torch.zeros_like(constants[..., at : at + layout.GRAVITY])
        constants = torch.cat([constants[..., :at], weightless, constants[..., at + layout.GRAVITY :]], -1)
        if constants.ndim == 2:
            constants = constants.repeat_interleave(nv, 0)
        unit = torch.eye(nv, dtype=self.dtype).repeat(call.batch, 1)
        tensors = {"q": q.repeat_interleave(nv, 0), "v": torch.zeros_like(unit), "vdot": unit, "constants": constants}
        columns = self._evaluate(call, Request(self._program, INVERSE, tuple(tensors), names), tensors)["tau"]
        return call.finished(columns.unflatten(0, (call.batch, nv)), dim=0)[0]


def _all_finite(*tensors: Tensor) -> bool:
    """False also where the sum of finite numbers overflows: the caller then looks more closely."""
    return math.isfinite(sum(float(x.sum()) for x in tensors))
