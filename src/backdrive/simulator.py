"""The simulator: a model, a step size, and an integrator, as a PyTorch module."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor, nn

from .contacts import Contacts
from .model import Model, State
from .physics import integrators, solvers
from .physics.integrators import Integrator, SemiImplicitEuler
from .physics.scheme import RigidContact, Scheme
from .physics.solvers import ProjectedGaussSeidel, Solver
from .physics.tree.poses import POSE
from .policy import MLP, Policy, Sensor
from .runtime import autograd as operators
from .runtime import closed_loop
from .runtime import execute as evaluation
from .runtime.call import Call
from .runtime.program import Program, has_restitution
from .runtime.tangent import Tangent, euler_jacobians, step_jacobians
from .schema import layout
from .trajectory import Trajectory

IMPACT_LINKS = 64  # up to so many, impacts="auto" makes bounces exact
SPARSE_BODIES = 24  # from so many on, sparse="auto" takes the sparse form
SPARSE_SOLVER = ProjectedGaussSeidel(iterations=50, tolerance=1e-5, exact=False)  # its default


@dataclass(frozen=True)
class Checkpoint:
    """Keep the state of every `every`-th step only (and of the last); the backward pass computes the others again.

    Memory falls by the factor `every`, the backward pass takes about a third longer. The trajectory has the kept
    states. At each of them the contact solver starts afresh, so that the steps between are computed again bit by bit:
    to its tolerance, the motion is that of a rollout without.
    """

    every: int

    def __post_init__(self) -> None:
        _require_count("Checkpoint(every=...)", self.every)


@dataclass(frozen=True)
class Truncated:
    """Cut the backward pass every `steps` steps: gradients pass back over at most that many.

    For chaotic motion, where the gradient over long times grows beyond use.
    """

    steps: int

    def __post_init__(self) -> None:
        _require_count("Truncated(steps)", self.steps)


class Simulator(nn.Module):
    """Steps of `dt` seconds of a model, differentiable.

    solver: of contacts and other constraints, `ProjectedGaussSeidel()` (default) or `InteriorPoint()`; in the sparse
        form by default ``ProjectedGaussSeidel(iterations=50, tolerance=1e-5, exact=False)``.
    integrator: `SemiImplicitEuler()` (default) or `Midpoint()`.
    impacts: True: steps are split at their impacts, so that bounces and their gradients are exact. False: plain time
        stepping, somewhat faster; what bounces is then found out from speeds, and gradients through bounces are wrong.
        "auto": True where a shape of the model has restitution, in float64 and up to 64 links.
    pyramid: sides of the friction pyramid in 3D, even, at least 4.
    bounce_threshold: m/s; in plain time stepping, contacts that approach more slowly do not bounce.
    dtype: torch.float64 or torch.float32, of all tensors that go in and come out.
    threads: at most so many; None: all cores. The number changes no bit of any result.
    specialize: compile kernels for this very model (True: faster, a second or two once, with contact a few more) or use
        those that serve every model with the same kinds of shapes (False); "auto": True for models of up to 40 links
        (120 in 2D, 24 with contact), as long as few of their constants are given as parameters.
    nonfinite: NaN or inf in an input raises ("raise"), or only shows in its environment's results and status ("mark").
    sparse: the form for one big world of free bodies, whose cost grows with the number of contacts and not with its
        cube; contacts are then solved by sweeps alone, and gradients are those of these sweeps, converged or not; or
        by `InteriorPoint()`, slower, to its tolerance, and gradients are those of the solution.
        Its steps are plain (impacts=False). "auto": True from 24 bodies on, where all are free, without impacts.

    The attributes `impacts` and `sparse` say what "auto" has chosen.
    """

    def __init__(
        self, model: Model, dt: float, *, solver: Solver | None = None, integrator: Integrator | None = None,
        impacts: bool | str = "auto", pyramid: int = 4, bounce_threshold: float = 0.05,
        dtype: torch.dtype = torch.float64, threads: int | None = None, specialize: bool | str = "auto",
        nonfinite: str = "raise", sparse: bool | str = "auto",
    ) -> None:  # fmt: skip
        super().__init__()
        if not isinstance(model, Model):
            raise TypeError(f"model must be a backdrive Model (Scene.build() or load()), got {type(model).__name__}")
        if isinstance(dt, bool) or not isinstance(dt, (int, float)) or not (math.isfinite(dt) and dt > 0):
            raise ValueError(f"dt must be a positive number of seconds, got {dt!r}")
        if dtype not in (torch.float64, torch.float32):
            raise TypeError(f"dtype must be torch.float64 or torch.float32, got {dtype}")
        if integrator is None:
            integrator = SemiImplicitEuler()
        integrators.check(integrator)
        if solver is not None:
            solvers.check(solver)
        if impacts not in (True, False, "auto"):
            raise ValueError(f"impacts must be True, False or 'auto', got {impacts!r}")
        if impacts is True and dtype != torch.float64:
            raise ValueError(f"impacts=True needs dtype=torch.float64: the time of an impact is lost in {dtype}")
        if isinstance(pyramid, bool) or not isinstance(pyramid, int) or pyramid < 4 or pyramid % 2:
            raise ValueError(f"pyramid must be an even number of sides >= 4, got {pyramid!r}")
        number = isinstance(bounce_threshold, (int, float)) and not isinstance(bounce_threshold, bool)
        if not number or not bounce_threshold >= 0:  # nor NaN
            raise ValueError(f"bounce_threshold must be a speed >= 0 in m/s, got {bounce_threshold!r}")
        self.pyramid, self.bounce_threshold = pyramid, bounce_threshold
        if threads is not None:
            _require_count("threads", threads)
        if specialize not in (True, False, "auto"):
            raise ValueError(f"specialize must be True, False or 'auto', got {specialize!r}")
        self.model, self.dt, self.integrator, self.dtype = model, float(dt), integrator, dtype
        if nonfinite not in ("raise", "mark"):
            raise ValueError(f"nonfinite must be 'raise' or 'mark', got {nonfinite!r}")
        if sparse not in (True, False, "auto"):
            raise ValueError(f"sparse must be True, False or 'auto', got {sparse!r}")
        if impacts is True and sparse is True:
            raise ValueError("impacts=True and sparse=True: the sparse form takes plain steps, impacts=False")
        if impacts == "auto":
            few = sparse is not True and model.nlink <= IMPACT_LINKS
            impacts = few and has_restitution(model) and dtype == torch.float64
        wanted = model.nlink >= SPARSE_BODIES and not impacts if sparse == "auto" else bool(sparse)
        reason = _not_sparse(model) if wanted else None
        if sparse is True and reason is not None:
            raise ValueError(f"sparse=True: this model has no sparse form, since {reason}")
        self.threads, self.specialize, self.nonfinite = threads, specialize, nonfinite
        self.sparse = wanted and reason is None
        self.impacts = bool(impacts)
        self.solver = solver or (SPARSE_SOLVER if self.sparse else ProjectedGaussSeidel())
        self._make_program()

    def _make_program(self) -> None:
        self._tangent = Tangent(self.model)
        self._body_links = self.model.body_link.tolist()
        self._angles = _planar_angles(self.model) if self.model.dim == 2 else []
        scheme = Scheme(self.integrator, RigidContact(self.solver, float(self.bounce_threshold), impacts=self.impacts))
        self._program = Program(
            self.model,
            self.dt,
            scheme,
            self.pyramid // 2,
            self.dtype,
            self.threads,
            self.specialize,
            self.nonfinite,
            self.sparse,
        )

    def __getstate__(self) -> dict[str, Any]:
        """Compiled code is not copied or pickled: the copy makes its own, from the cache."""
        return {k: v for k, v in self.__dict__.items() if k not in ("_program", "_tangent", "_body_links", "_angles")}

    def __setattr__(self, name: str, value: Any) -> None:
        if name in _FIXED and "_program" in self.__dict__:
            raise AttributeError(f"{name} is fixed: the kernels were made for it. Make another Simulator")
        super().__setattr__(name, value)

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._make_program()

    def extra_repr(self) -> str:
        constrained = self._program.tables is not None or self.sparse
        solver = f"{self.solver!r}, " if constrained else ""
        return f"{self.model!r}, dt={self.dt:g}, {solver}{self.integrator!r}, {self.dtype}"

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
            after = operators.quick_step(self._program, state.q, state.v, cast(Tensor, control))
            if after is not None:
                return State(*after)
        call = Call(self._program, state, parameters)
        controls, wrenches = call.controls(control), call.wrenches(wrench)
        wrenches = None if wrenches is None else wrenches.unsqueeze(0)
        _, q, v = call.evaluate("rollout", controls.unsqueeze(0), wrenches, operators.ONE_STEP)
        return State(*call.finished(q, v, dim=0))

    def rollout(
        self, state: State, controls: Tensor | None = None, *, steps: int | None = None,
        wrenches: Tensor | None = None, parameters: Mapping[str, Tensor] | None = None,
        adjoint: Checkpoint | Truncated | None = None, policy: Policy | None = None, inputs: Tensor | None = None,
    ) -> Trajectory:  # fmt: skip
        """Many steps, with all their states.

        state: where to start, q [B, nq], v [B, nv]. controls: [T, B, nu], or [T, nu] for all environments alike;
        without controls, `steps` says how long. wrenches: [T, B, nbody, 6 (3D) or 3 (2D)], as in `step`. parameters:
        {name: tensor}, of those that ``model.parameters()`` lists, in place of the model's own; each [*shape], or [B,
        *shape] for one per environment. adjoint: how the backward pass gets its states: `Checkpoint`, `Truncated`.
        Without B everywhere: one world.

        policy: in place of controls: an `MLP`, or any function ``policy(state, t)`` that returns the control [B, nu] of
        step t, which starts from `state`; a gradient reaches what it is made of. inputs: [T, B, k] or [T, k], what an
        `MLP` sees besides its sensors.
        """
        others = (steps, wrenches, parameters, adjoint, policy, inputs)
        usual = isinstance(state, State) and all(x is None for x in others)
        if usual and all(isinstance(x, Tensor) for x in (*state, controls)):
            u = cast(Tensor, controls)
            outcome = operators.quick_rollout(self._program, state.q, state.v, u)
            if outcome is not None:
                status, last_q, last_v, q, v = outcome
                u = u.unsqueeze(1) if u.ndim == 2 else u
                return Trajectory(self, q, v, State(last_q, last_v), status, 1, len(u), None, "", u, None)
        call = Call(self._program, state, parameters)
        over_time = (("controls", controls), ("wrenches", wrenches), ("inputs", inputs))
        given = {name: call.length(name, x) for name, x in over_time if x is not None}
        if policy is not None and controls is not None:
            raise ValueError("rollout takes controls or a policy, got both")
        if inputs is not None and not isinstance(policy, MLP):
            raise ValueError("inputs are for an MLP: any other policy gets what it needs by itself, from state and t")
        if steps is None:
            if not given:
                raise ValueError("rollout needs controls [T, B, nu], wrenches [T, B, nbody, k], or steps=T")
            steps = next(iter(given.values()))
        _require_count("steps", steps)
        for name, length in given.items():
            if length != steps:
                raise ValueError(f"{name} are for {length} steps, but the rollout is of {steps}")
        if adjoint is not None and not isinstance(adjoint, Checkpoint | Truncated):
            raise TypeError(f"adjoint must be Checkpoint(every) or Truncated(steps), got {adjoint!r}")
        every = min(adjoint.every, steps) if isinstance(adjoint, Checkpoint) else 1
        truncate = adjoint.steps if isinstance(adjoint, Truncated) else 0
        settings = [steps, every, truncate, 1]
        w = call.wrenches(wrenches, steps)
        if policy is None:
            u = call.controls(controls, steps)
            status, last_q, last_v, path_q, path_v = call.evaluate("rollout", u, w, settings)
        else:
            outcome = closed_loop.rollout(self._program, call, policy, inputs, w, steps, every, truncate)
            status, last_q, last_v, path_q, path_v, u = outcome
        q, v, status = call.finished(path_q, path_v, status, dim=1)
        last = State(*call.finished(last_q, last_v, dim=0))
        return Trajectory(self, q, v, last, status, every, steps, call.constants, call.names, u, w)

    def observe(self, state: State, sensors: Sequence[Sensor] = ("q", "v")) -> Tensor:
        """What an `MLP` with these sensors sees of a state, [B, n], differentiable: see `MLP`."""
        call = Call(self._program, state, None)
        (seen,) = call.finished(closed_loop.observe(self._program, call.q, call.v, sensors), dim=0)
        return seen

    def track(
        self, state: State, controls: Tensor, gains: Tensor, origin: State, *,
        limits: tuple[Tensor, Tensor] | None = None, parameters: Mapping[str, Tensor] | None = None,
    ) -> tuple[Trajectory, Tensor]:  # fmt: skip
        """A rollout with linear feedback, and the controls that it used: u = clip(controls + gains (x ⊖ origin)).

        state: q [B, nq], v [B, nv]. controls: [T, B, nu]; gains: [T, B, nu, 2 nv], for (δq, δv) in the tangent space,
        as `linearize` has them; origin: q [T, B, nq], v [T, B, nv]; limits: low and high, [nu] each. Without B
        everywhere: one world. They are numbers: no gradient passes through them. Motion that does not stay finite is
        marked in the status, and not warned of.
        """
        call, model = Call(self._program, state, parameters), self.model
        steps = call.length("controls", controls)
        _require_count("steps", steps)
        with torch.no_grad():
            u = call.controls(controls, steps)
            K = call.tensor("gains", gains, (model.nu, 2 * model.nv), steps).flatten(-2)
            origin_q = call.tensor("origin.q", origin.q, (model.nq,), steps)
            origin_v = call.tensor("origin.v", origin.v, (model.nv,), steps)
            unlimited = torch.full((model.nu,), math.inf, dtype=self.dtype)
            low, high = (-unlimited, unlimited) if limits is None else limits
            bounds = [call.tensor(f"limits: {x}", y, (model.nu,)) for x, y in (("low", low), ("high", high))]
            given = {name: x for name, x in call.given.items() if not name.startswith("limits")}
            if self.nonfinite == "raise" and operators.values_visible(given.values()):
                evaluation.require_finite(given)
            program = self._program.number
            q, v, used, status = evaluation.track(
                program, call.q, call.v, u, K, origin_q, origin_v, bounds[0], bounds[1], call.constants, call.names
            )
            q, v, status, out = call.finished(q, v, status, used, dim=1)
        last = State(q[-1], v[-1])
        return Trajectory(self, q, v, last, status, 1, steps, call.constants, call.names, used, None), out

    def linearize(
        self, state: State, control: Tensor | None = None, *, parameters: Mapping[str, Tensor] | None = None
    ) -> tuple[Tensor, Tensor]:
        """A [B, 2 nv, 2 nv] and B [B, 2 nv, nu]: the Jacobians of a step, in the tangent space.

        (δq⁺, δv⁺) = A (δq, δv) + B δu, where δq are displacements in the coordinates of v: q ⊕ δq, as ``v dt`` moves q.
        Without B everywhere: [2 nv, 2 nv] and [2 nv, nu]. They are numbers: no gradient passes through them.
        """
        call = Call(self._program, state, parameters)
        with torch.no_grad():
            controls = call.controls(control).unsqueeze(0)
            step = (self._program.number, self._tangent, call.q, call.v, controls)
            constants = (call.constants, call.names)
            euler = self.integrator.has_jacobian_kernel and not self.impacts and not self.sparse
            euler = euler and self.model.nv > 0 and operators.plain_call()
            jacobians = euler_jacobians if euler else step_jacobians
            found = None
            if not self._tangent.quaternions and not self.sparse and operators.plain_call():
                found = jacobians(*step, call.q, *constants)  # without turns, it does not matter where the step ends
            if found is None or not _all_finite(call.q, call.v, controls, found[0]):  # which the step reports on
                _, after, _ = call.evaluate("rollout", controls, None, operators.ONE_STEP)
                found = jacobians(*step, after, *constants)
            A, B = call.finished(*found, dim=0)
        return A, B

    # ------------------------------------------------------------------------------------------ dynamics

    def forward_dynamics(
        self, state: State, control: Tensor | None = None, *, wrench: Tensor | None = None,
        parameters: Mapping[str, Tensor] | None = None,
    ) -> Tensor:  # fmt: skip
        """v̇ [B, nv]: M(q) v̇ = τ(q, v, u) - c(q, v), springs, dampers and motors included."""
        call = Call(self._program, state, parameters)
        outcome = call.evaluate("forward", call.controls(control), call.wrenches(wrench))
        return call.finished(*outcome, dim=0)[0]

    def inverse_dynamics(
        self, state: State, acceleration: Tensor, *, parameters: Mapping[str, Tensor] | None = None
    ) -> Tensor:
        """τ [B, nv] = M(q) v̇ + c(q, v): the generalised force that gives v̇ (`acceleration` [B, nv])."""
        call = Call(self._program, state, parameters)
        vdot = call.tensor("acceleration", acceleration, (self.model.nv,))
        return call.finished(*call.evaluate("inverse", vdot), dim=0)[0]

    def mass_matrix(self, state: State, *, parameters: Mapping[str, Tensor] | None = None) -> Tensor:
        """M(q) [B, nv, nv], with the joints' armature."""
        call, nv = Call(self._program, state, parameters), self.model.nv
        if nv == 0:
            return call.finished(call.v.new_zeros(call.batch, 0, 0), dim=0)[0]
        constants = call.constants if call.constants is not None else self._program.constants
        names = ",".join(filter(None, [call.names, "gravity"]))
        at = layout.gravity_start(self.model.nlink, self.model.nq, self.model.nu)  # no weight
        weightless = torch.zeros_like(constants[..., at : at + layout.GRAVITY])
        constants = torch.cat([constants[..., :at], weightless, constants[..., at + layout.GRAVITY :]], -1)
        if constants.ndim == 2:
            constants = constants.repeat_interleave(nv, 0)
        q = call.q.repeat_interleave(nv, 0)
        unit = torch.eye(nv, dtype=self.dtype).repeat(call.batch, 1)
        zero = torch.zeros_like(unit)
        (columns,) = call.run("inverse", q, zero, unit, None, constants, self._program.number, names, [])
        return call.finished(columns.unflatten(0, (call.batch, nv)), dim=0)[0]

    # ------------------------------------------------------------------------------------------ for trajectories

    def _link_poses(self, q: Tensor, v: Tensor, constants: Tensor | None, names: str) -> tuple[Tensor, ...]:
        """Rotation (9), position, angular velocity, velocity of every link: [S, (B,) nlink, k] each."""
        unbatched, device = q.ndim == 2, q.device
        q, v = q.cpu(), v.cpu()
        if unbatched:
            q, v = q.unsqueeze(1), v.unsqueeze(1)
        (out,) = operators.evaluate("poses", q, v, None, None, constants, self._program.number, names, [])
        out = out.unflatten(-1, (-1, sum(POSE)))
        if unbatched:
            out = out.squeeze(1)
        return out.to(device).split(list(POSE), -1)

    def _constraint_forces(
        self, q: Tensor, v: Tensor, controls: Tensor, wrenches: Tensor | None, constants: Tensor | None, names: str
    ) -> Tensor:
        """What `contact.write_forces` writes, of a step from each of the states [T, (B,) n]: [T, (B,) size]."""
        unbatched, device = q.ndim == 2, q.device
        q, v = q.cpu(), v.cpu()
        if unbatched:
            q, v = q.unsqueeze(1), v.unsqueeze(1)
        (out,) = operators.evaluate("forces", q, v, controls, wrenches, constants, self._program.number, names, [])
        return (out.squeeze(1) if unbatched else out).to(device)

    def _contacts_of_big_world(
        self, q: Tensor, v: Tensor, wrenches: Tensor | None, constants: Tensor | None, names: str
    ) -> Contacts:
        """As `_constraint_forces`, in the sparse form."""
        from .piles.forces import contact_forces

        unbatched, device = q.ndim == 2, q.device
        q, v = q.cpu(), v.cpu()
        if unbatched:
            q, v = q.unsqueeze(1), v.unsqueeze(1)
        no_controls = q.new_zeros(*q.shape[:2], self.model.nu)
        evaluation.check("forces", self._program.number, (), q, v, no_controls, wrenches, constants)
        shapes, numbers = contact_forces(self._program, q, v, wrenches, constants, names)
        numbers = (numbers.squeeze(1) if unbatched else numbers).to(device)
        return Contacts(self.model, self.dt, shapes, numbers, numbers.flatten(-2)[..., :0])

    def _planar_angle(self, q: Tensor, body: str) -> Tensor:
        """The angle of a body of a 2D model: the joint angles on the way to it, and those the model was built with."""
        angle, terms = self._angles[self._body_links[self.model.body_index(body)]]
        total = q.new_full(q.shape[:-1], angle)
        for at, sign in terms:
            total = total + q[..., at] * sign
        return total


def _not_sparse(model: Model) -> str | None:
    """Why there is no sparse form; None if there is one."""
    from .piles.tables import unsupported

    if not model.npair:
        return "nothing can touch in it"
    return unsupported(model)


def _planar_angles(model: Model) -> list[tuple[float, list[tuple[int, float]]]]:
    """For every link of a 2D model, its angle at q = 0, and the coordinates (with their signs) that add to it."""
    angles: list[tuple[float, list[tuple[int, float]]]] = []
    for link, (parent, kind, at) in enumerate(zip(model.parent, model.kind, model.qadr.tolist(), strict=True)):
        record = model.constants[layout.link_start(link) : layout.link_start(link + 1)]
        cosine, sine = record[layout.ROTATION], record[layout.ROTATION + 3]
        angle, terms = angles[parent] if parent >= 0 else (0.0, [])
        if kind == layout.Kind.HINGE:
            terms = [*terms, (at, float(record[layout.AXIS + 2]))]
        elif kind == layout.Kind.PLANAR:
            terms = [*terms, (at + 2, 1.0)]
        angles.append((angle + math.atan2(sine, cosine), terms))
    return angles


_FIXED = (
    "model", "dt", "solver", "integrator", "impacts", "pyramid", "bounce_threshold", "dtype", "threads", "specialize",
    "nonfinite", "sparse",
)  # fmt: skip


def _all_finite(*tensors: Tensor) -> bool:
    """Or, if not, that it must be looked at more closely: their sum may overflow."""
    return math.isfinite(sum(float(x.sum()) for x in tensors))


def _require_count(name: str, n: object) -> None:
    if isinstance(n, bool) or not isinstance(n, int) or n < 1:
        raise ValueError(f"{name} must be an integer >= 1, got {n!r}")
