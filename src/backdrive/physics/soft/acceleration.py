"""Accelerations with soft constraints: a(q, v, u), a function of the state and the inputs alone."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ...ir import Index, Scalar, ScalarArray, carry, loop, memory, select, to_float, when
from ..constraints.assemble import LinkMotions
from ..constraints.root_frame import RootFrameFactors
from ..math.arrays import copy
from ..state import StateArrays, StepInputs
from ..tree.dynamics import Dynamics, complete, reduced_dynamics
from ..tree.inputs import DynamicsInputs
from ..tree.poses import link_poses, pose_size
from ..tree.tree import Tree
from .assemble import SoftRowAssembler
from .combinations import CombinationRows
from .constants import SoftConstants
from .contacts import FramedContacts, find_contacts
from .drift import drifting_links
from .medium import with_medium
from .newton import Newton, NewtonSolution
from .problem import SoftProblem
from .ropes import RopeRows
from .settings import SoftSettings
from .stage_before import StageBefore
from .tendons import tendon_forces

MOST_IMPORTANT = 16  # pairs, the first of which are those with planes, come before all other constraints


@dataclass(frozen=True)
class SoftConstrained:
    """The constraints of a state, and what became of them. q [nq]: readable in rolled loops."""

    soft: SoftConstants
    contacts: FramedContacts
    newton: Newton
    solution: NewtonSolution
    q: ScalarArray


@dataclass(frozen=True)
class Acceleration:
    """The dynamics with the accelerations that constraints allow; constrained: None without constraints."""

    inputs: DynamicsInputs
    dynamics: Dynamics
    constrained: SoftConstrained | None

    def status(self) -> tuple[Scalar, Scalar, Scalar, Scalar]:
        """Residual of the solver; contacts that press; the deepest penetration (m); a fingerprint of the active set."""
        if self.constrained is None:
            return 0.0, 0.0, 0.0, 0.0
        problem, contacts, solution = (
            self.constrained.newton.problem,
            self.constrained.contacts,
            self.constrained.solution,
        )
        pressing, modes = carry(1), carry(1)
        pressing[0], modes[0] = 0.0, 0.0
        for r in loop(problem.singles[0]):
            modes[0] = modes[0] + to_float(problem.place[r] + 1) * problem.single_law(r).mode(solution.x[r])
        for c in loop(contacts.count[0]):
            first = problem.first_row(c)
            pressing[0] = pressing[0] + select(solution.f[first] > 0.0, 1.0, 0.0)
            mode = problem.contact_law(first).mode(
                problem.settings.elliptic, [solution.x[first + k] for k in range(problem.settings.block)]
            )
            modes[0] = modes[0] + to_float(contacts.slots[c] + 1) * mode
        return solution.residual, pressing[0], contacts.depth(), modes[0]

    def likeness(self) -> Scalar:
        """A number that is close in states with similar active sets: the sum of the importances of all rows."""
        total = carry(1)
        total[0] = 0.0
        if self.constrained is not None:
            problem, contacts = self.constrained.newton.problem, self.constrained.contacts
            for r in loop(problem.singles[0]):
                total[0] = total[0] + problem.on[r] * _importance(MOST_IMPORTANT + problem.place[r] + 1)
            for c in loop(contacts.count[0]):
                total[0] = total[0] + problem.on[problem.first_row(c)] * _importance(contacts.pairs[c] + 1)
        return total[0]


def _importance(rank: Index) -> Scalar:
    """rank⁻⁸: where states are sorted by sums of these, the first ranks decide, and others where those agree."""
    x = 1.0 / to_float(rank)
    for _ in range(3):
        x = x * x
    return x


def accelerate(
    tree: Tree, settings: SoftSettings, h: Scalar, state: StateArrays, step_inputs: StepInputs,
    known: ScalarArray | None = None, before: StageBefore | None = None,
) -> Acceleration:  # fmt: skip
    """The acceleration of a state; h: the step size (s), below twice which no time constant of a solref can be.

    known [nv]: w of the solution, if it was found before (`problem`); before: that of the stage before, if it was not.
    """
    inputs, dynamics = free_motion(tree, settings, state, step_inputs)
    if tree.constraints is None:
        complete(tree, state.q, dynamics, dynamics.reduced)
        return Acceleration(inputs, dynamics, None)
    constrained = constrain(tree, settings, h, inputs, dynamics, known, before)
    complete(tree, state.q, dynamics, constrained.solution.w)
    return Acceleration(inputs, dynamics, constrained)


def accelerations(
    tree: Tree, settings: SoftSettings, state: StateArrays, step_inputs: StepInputs, known: ScalarArray
) -> ScalarArray:
    """The accelerations [nv] alone, of a state of which w of the solution is known."""
    _, dynamics = free_motion(tree, settings, state, step_inputs)
    complete(tree, state.q, dynamics, known)
    return dynamics.vdot


def free_motion(
    tree: Tree, settings: SoftSettings, state: StateArrays, step_inputs: StepInputs
) -> tuple[DynamicsInputs, Dynamics]:
    """The dynamics without constraints; the inward half of a solve for the accelerations."""
    wrenches = step_inputs.wrenches
    if settings.medium is not None:
        wrenches = with_medium(tree, settings.medium, state, wrenches)
    inputs = DynamicsInputs(state.q, state.v, state.v, step_inputs.controls, wrenches, 0.0)
    clipped: Scalar = 0.0
    if settings.tendons:
        applied, clipped = tendon_forces(tree, settings, inputs)
        inputs = replace(inputs, applied=applied)
    dynamics = reduced_dynamics(tree, inputs)
    return inputs, replace(dynamics, clipped=dynamics.clipped + clipped)


def constrain(
    tree: Tree, settings: SoftSettings, h: Scalar, inputs: DynamicsInputs, dynamics: Dynamics,
    known: ScalarArray | None, before: StageBefore | None,
) -> SoftConstrained:  # fmt: skip
    """Find the constraints of a state, and solve them; known, before: as in `accelerate`."""
    state = StateArrays(inputs.q, inputs.v)
    constraints, soft = tree.constraints, SoftConstants(tree.constraints, tree.nlink)
    q = memory(tree.nq)
    copy(tree.nq, state.q, q)
    v = memory(tree.nv)
    copy(tree.nv, state.v, v)
    links = LinkMotions(link_poses(tree, state.q, state.v, indexed=True), pose_size(1))
    factors = RootFrameFactors(tree, dynamics.frames, dynamics.factors, constraints.dim)
    problem = SoftProblem(settings, constraints, factors, tree)
    contacts = find_contacts(constraints, settings, soft, links)
    rows = SoftRowAssembler(soft, problem, links, h)
    for _ in when(constraints.head("nequality") > 0):
        rows.equalities(drifting_links(tree, state.q, state.v))
    rows.joint_frictions(v)
    rows.limits(q, v)
    if settings.combination_rows:
        CombinationRows(tree, settings, h).add(problem, q, v)
    if settings.ropes:
        RopeRows(tree, settings, h).add(problem, state.q, state.v, dynamics)
    problem.close_singles()
    rows.contacts(contacts)
    problem.close_contacts()
    newton = Newton(problem)
    solution = newton.solve(dynamics.reduced, before) if known is None else newton.resume(known)
    return SoftConstrained(soft, contacts, newton, solution, q)
