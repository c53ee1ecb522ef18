"""Accelerations with soft constraints: a(q, v, u), a function of the state and the inputs alone."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ...ir import Index, Scalar, ScalarArray, any_lane, carry, loop, memory, select, to_float, when, workspace
from ...schema import layout
from ..constraints.assemble import signed
from ..constraints.delassus import RootFrameFactors
from ..constraints.rows import joint_row
from ..geometry.contact_points import ContactPoints
from ..math.arrays import copy, local
from ..math.spatial import SPATIAL
from ..state import StateArrays, StepInputs
from ..tree.dynamics import Dynamics, expand, forward_dynamics
from ..tree.inputs import DynamicsInputs
from ..tree.kinematics import turn
from ..tree.poses import Pose, link_poses, pose_of, pose_size
from ..tree.tree import Tree
from .constants import SoftConstants
from .contacts import find_points, follows_axis
from .newton import Newton, Solution
from .problem import SoftProblem
from .rows import ContactSide, contact_rows, friction_row, limit_gaps, limit_row
from .settings import SoftSettings


@dataclass(frozen=True)
class SoftConstrained:
    """The constraints of a state, and what became of them. q [nq]: readable in rolled loops."""

    soft: SoftConstants
    contacts: ContactPoints
    newton: Newton
    solution: Solution
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
        problem, contacts, solution = self.constrained.newton.problem, self.constrained.contacts, self.constrained.solution
        pressing, modes = carry(1), carry(1)
        pressing[0], modes[0] = 0.0, 0.0
        for r in loop(problem.singles[0]):
            modes[0] = modes[0] + to_float(r + 1) * problem.single_law(r).mode(solution.x[r])
        for c in loop(contacts.count[0]):
            first = problem.first_row(c)
            pressing[0] = pressing[0] + select(solution.f[first] > 0.0, 1.0, 0.0)
            mode = problem.contact_law(first).mode(
                problem.settings.elliptic, [solution.x[first + k] for k in range(problem.settings.block)]
            )
            modes[0] = modes[0] + to_float(contacts.slots[c] + 1) * mode
        return solution.residual, pressing[0], contacts.depth(), modes[0]


def accelerate(
    tree: Tree, settings: SoftSettings, h: Scalar, state: StateArrays, step_inputs: StepInputs,
    known: ScalarArray | None = None,
) -> Acceleration:  # fmt: skip
    """The acceleration of a state; h: the step size (s), below twice which no time constant of a solref can be.

    known [nv]: w of the solution, if it was found before (`problem`).
    """
    inputs = DynamicsInputs(state.q, state.v, state.v, *step_inputs, 0.0)
    dynamics = forward_dynamics(tree, inputs)
    if tree.constraints is None:
        return Acceleration(inputs, dynamics, None)
    constraints, soft = tree.constraints, SoftConstants(tree.constraints, tree.nlink)
    q = memory(tree.nq)
    copy(tree.nq, state.q, q)
    v = memory(tree.nv)
    copy(tree.nv, state.v, v)
    width, poses = pose_size(1), link_poses(tree, state.q, state.v, indexed=True)
    factors = RootFrameFactors(tree, dynamics.frames, dynamics.factors, constraints.dim)
    problem = SoftProblem(settings, constraints, factors, tree.nv)
    contacts = find_points(constraints, soft, poses, width, settings.reach)
    rows = _RowAssembler(tree, settings, h, soft, problem, poses)
    rows.joint_frictions(v)
    rows.limits(q, v)
    problem.close_singles()
    rows.contacts(contacts)
    problem.close_contacts(constraints.grounded)
    newton = Newton(problem)
    solution = newton.solve(dynamics.reduced) if known is None else newton.resume(known)
    constrained = SoftConstrained(soft, contacts, newton, solution, q)
    return Acceleration(inputs, _with_constraints(tree, dynamics, state.q, solution, problem), constrained)


def _with_constraints(
    tree: Tree, dynamics: Dynamics, q: ScalarArray, solution: Solution, problem: SoftProblem
) -> Dynamics:
    """The dynamics with the accelerations of the solution."""
    vdot, accelerations, total = workspace(tree.nv), tree.over_links(SPATIAL), memory(tree.nv)
    caused = memory((tree.nlink + 1) * SPATIAL)
    copy(tree.nv, dynamics.vdot, total)
    for i in tree.links():
        caused.put(i + 1, (0.0,) * SPATIAL)
    for _ in when(problem.count > 0):
        change, own = memory(tree.nv), workspace(tree.nv)
        for k in loop(tree.nv):
            change[k] = solution.w[k] - dynamics.reduced[k]
        z = local(tree.nv, change)
        motions = expand(tree, dynamics.frames, dynamics.factors, z)
        turn(tree, q, z, own, back=True)
        for k in loop(tree.nv):
            total[k] = total[k] + own[k]
        for i in tree.links():
            caused.put(i + 1, motions.get(i + 1, SPATIAL))
    copy(tree.nv, total, vdot)
    accelerations.put(0, dynamics.accelerations.get(0, SPATIAL))
    for i in tree.links():
        free, more = dynamics.accelerations.get(i + 1, SPATIAL), caused.get(i + 1, SPATIAL)
        accelerations.put(i + 1, tuple(x + y for x, y in zip(free, more, strict=True)))
    return replace(dynamics, vdot=vdot, accelerations=accelerations)


class _RowAssembler:
    """Puts the rows of all constraints into the problem. poses: over links, with the twists of v."""

    def __init__(
        self, tree: Tree, settings: SoftSettings, h: Scalar, soft: SoftConstants, problem: SoftProblem,
        poses: ScalarArray,
    ) -> None:  # fmt: skip
        self.constraints, self.settings, self.h = tree.constraints, settings, h
        self.soft, self.problem, self.links = soft, problem, (poses, pose_size(1))

    def _pose(self, link: int) -> Pose:
        return Pose.of(pose_of(*self.links[:1], link, self.links[1], self.constraints.dim))

    def joint_frictions(self, v: ScalarArray) -> None:
        constraints = self.constraints
        for i in loop(constraints.head("nfriction")):
            link, _, kind, support = constraints.joint("friction", i)
            row = joint_row(kind, constraints.joint_link(link), self._pose(link))
            speed, most = v[constraints.ints[support.way_a]], constraints.joint_friction(i)
            reference, law = friction_row(self.settings, self.h, self.soft.friction(i), most, speed)
            self.problem.add_single(support, row, most > 0.0, reference, law, self.links)

    def limits(self, q: ScalarArray, v: ScalarArray) -> None:
        """The rows of limits that are closer than their margin in some lane: either end has its own."""
        constraints = self.constraints
        for i in loop(constraints.head("nlimit")):
            link, at, kind, support = constraints.joint("limit", i)
            record, speed = self.soft.limit(i), v[constraints.ints[support.way_a]]
            for sign, gap in limit_gaps(constraints.limit_record(i), q[at]):
                reference, law = limit_row(self.settings, self.h, record, gap, sign * speed)
                on = gap < record[layout.MARGIN]
                for _ in when(any_lane(on)):
                    row = joint_row(kind, constraints.joint_link(link), self._pose(link))
                    self.problem.add_single(support, signed(row, sign), on, reference, law, self.links)

    def contacts(self, contacts: ContactPoints) -> None:
        constraints = self.constraints
        for c in loop(contacts.count[0]):
            point, on = contacts.point(contacts.slots[c])
            side, support = contact_side(constraints, self.soft, contacts.pairs[c], point.numbers)
            a, b = self._pose(support.a), self._pose(support.b)
            rows, reference, law = contact_rows(self.settings, self.h, side, a, b)
            self.problem.add_contact(support, rows, on, reference, law, self.links)


def contact_side(constraints, soft: SoftConstants, p, numbers):
    """What the rows of a contact of pair p depend on, and its support; numbers: of its point."""
    a, b, support = constraints.pair(p)
    side = ContactSide(
        (constraints.shape_record(a), constraints.shape_record(b)),
        (soft.shape(a), soft.shape(b)),
        numbers,
        follows_axis(constraints, p),
        soft.weight(support.a, support.b),
    )
    return side, support
