"""The adjoint of the constrained part of a substep (`constrain`), by implicit differentiation at its solution.

With A (v⁺ - v*) = Jᵀ λ, and B λ = c for the active set of λ (`complementarity`): if w is the cotangent of v⁺, then
Bᵀ y = J A⁻¹ w,  and with the virtual motion  n = A⁻¹ (w - Jᵀ y)  the cotangents of everything that J, the gaps and the
materials depend on are those of a sum over rows (`row_adjoint`), for fixed λ, y, n and v⁺. Those of M and τ follow from
n as without constraints (`dynamics_adjoint`). The correction of positions is linear on its rows, and its adjoint has
the same form.

Where the energy guard keeps a part κ of the bias (`energy_guard`), κ is one more unknown, and the gain of energy
g = λ · (s* + s⁺) / 2 = 0 one more equation, with multiplier z. Then Bᵀ y = J A⁻¹ w - z s⁺, where z is such that y has
no component along the bias that is scaled by κ; the rows pull by y + z λ instead of y, on n + z u instead of n, with
u = v⁺ - v*; and -z/2 u · A u is left to differentiate.
"""

from __future__ import annotations

from collections.abc import Callable

from ...ir import Index, Scalar, ScalarArray, absolute, any_lane, carry, loop, memory, select, when, workspace
from ..geometry.collision import contacts_adjoint
from ..geometry.solids import CONTACT_POINT
from ..math import spatial as sp
from ..math.arrays import add_to, all_elements, copy, zero
from ..math.linear import TILE, solve_lu_transposed
from ..scheme import RigidContact
from ..solvers.active_set import FREE, INFINITE, LOWER
from ..solvers.complementarity import active_set_of_solution, evaluate_speeds, factor_active_set
from ..tree.dynamics import Dynamics, expand, reduce
from ..tree.dynamics_adjoint import Cotangents
from ..tree.kinematics import turn
from ..tree.poses import link_poses, link_poses_adjoint, pose_size
from ..tree.tree import Tree
from .correction import factor_correction
from .energy_guard import push_out
from .forces import FORCE
from .outcome import ConstraintOutcome, SubstepTimes
from .row_adjoint import CORRECTION, VELOCITY, LinkCotangents, RowAdjoint
from .slip_adjoint import SlipCotangents


class ConstraintAdjoint:
    """The adjoint of `constrain`, around that of the dynamics (`dynamics_adjoint`).

    Cotangents of v⁺ are given multiplied by h (`SubstepTimes.unit`), so that they can be added to those of v̇. mode:
    the active set, a code for every row; multiplier: y; correction_multiplier: y of the rows that correct positions;
    gain_multiplier [nlink + 1]: z of every tree, of the energy guard.
    velocities: arrays of 2 nv each: p, the virtual motion of the correction, and zeros; then v⁺, n, and (if contacts
    bounce) v. point_bars: cotangents of the contact points. slips: those of their slips; None in 2D.
    """

    def __init__(
        self, tree: Tree, contact_model: RigidContact, outcome: ConstraintOutcome, times: SubstepTimes,
        forces_bar: ScalarArray | None = None, apart: bool = False,
    ) -> None:  # fmt: skip
        """forces_bar: cotangents of λ / unit and of its point, in the order of `add_forces`, or None.

        apart: positions and velocities are differentiated separately, and several times; the caller factors their
        matrices before (`factor_correction`, `find_active_set`).
        """
        self.tree, self.contact_model, self.outcome, self.times = tree, contact_model, outcome, times
        self.forces_bar, self.apart = forces_bar, apart
        most = tree.constraints.nimpulse + TILE
        self.mode, self.multiplier, self.correction_multiplier = (memory(most) for _ in range(3))
        self.gain_multiplier = memory(tree.nlink + 1)
        zero(tree.nlink + 1, self.gain_multiplier)
        self.velocities = [memory(2 * tree.nv) for _ in range(3 if tree.constraints.bounces else 2)]
        self.point_bars = memory(tree.constraints.nslot * CONTACT_POINT)
        self.slips = None if outcome.slips is None else SlipCotangents(tree, outcome)
        self.forget_points()

    def forget_points(self) -> None:
        """Start anew, for another cotangent of v⁺."""
        contacts = self.outcome.contacts
        for k in loop(contacts.near_slot_count[0]):
            self.point_bars.put(contacts.near_slots[k], (0.0,) * CONTACT_POINT)
        if self.slips is not None:
            self.slips.clear()

    def find_active_set(self) -> None:
        """The active set of the solution, and the factors of its matrix B."""
        problem = self.outcome.problem
        most = problem.constraints.nimpulse + TILE
        mode = self.mode
        for _ in when(problem.count > 0):
            speed = memory(most)
            evaluate_speeds(problem, problem.impulse, speed)
            others, least = carry(1), self.contact_model.solver.tolerance / problem.unit[0]
            active_set_of_solution(problem, speed, least, mode)
            others[0] = 0.0
            for r in loop(problem.count):
                # A contact that touches, and carries no more than rounding, always counts as separating.
                idle = (problem.high[r] >= INFINITE) & (problem.low[r] == 0.0) & (absolute(speed[r]) <= least)
                mode[r] = select(idle & (problem.diagonal[r] * problem.impulse[r] <= least), LOWER, mode[r])
                others[0] = others[0] + absolute(mode[r] - problem.factored[r])
            for _ in when(any_lane(others[0] > 0.0)):  # otherwise the solver's last factors are those of the solution
                factor_active_set(problem, mode)

    def take_up(self, reduced: ScalarArray) -> None:
        """From the inward half of a solve with h w to that with h (w - Jᵀ y), in place (memory)."""
        problem = self.outcome.problem
        if not self.apart:
            self.find_active_set()
        for _ in when(problem.count > 0):
            problem.delassus.speeds(reduced, self.multiplier)
            if self.forces_bar is not None:
                self._add_forces(self.multiplier)
            solve_lu_transposed(problem.delassus.B, problem.count, self.multiplier)
            zero(self.tree.nlink + 1, self.gain_multiplier)
            for _ in when(any_lane(self.outcome.guard.guarded[0] > 0.0)):
                self._hold_energy()
            self._subtract(reduced, self.pull)

    def pull(self, r: Index) -> Scalar:
        """The multiplier of J v⁺ of row r: that of the row, where it is free, and its part in the gain of energy."""
        problem, z = self.outcome.problem, self.gain_multiplier[self.outcome.problem.tree[r]]
        return select(self.mode[r] == FREE, self.multiplier[r], 0.0) + z * problem.impulse[r]

    def _hold_energy(self) -> None:
        """Find z of the islands in which the energy guard acts, and subtract its part from y."""
        problem, guard, own = self.outcome.problem, self.outcome.guard, memory(self.outcome.problem.capacity)
        for r in loop(problem.count):
            own[r] = guard.free_speed(r)
        problem.delassus.apply(problem.impulse, own, problem.count)
        solve_lu_transposed(problem.delassus.B, problem.count, own)

        def along_bias(multiplier: ScalarArray) -> ScalarArray:
            """Of every island, the component along the bias that κ scales."""
            free = self.mode
            return guard.islands.total(
                lambda r: select(free[r] == FREE, push_out(problem.bias[r]) * multiplier[r], 0.0)
            )

        above, below = along_bias(self.multiplier), along_bias(own)
        for i in loop(self.tree.nlink + 1):
            acts = guard.holds_energy(i) & (below[i] != 0.0)
            self.gain_multiplier[i] = select(acts, above[i] / select(acts, below[i], 1.0), 0.0)
        for r in loop(problem.count):
            self.multiplier[r] = self.multiplier[r] - self.gain_multiplier[problem.tree[r]] * own[r]

    def _add_forces(self, impulse_bar: ScalarArray) -> None:
        """Add h times the cotangents of the impulses that follow from those of the forces λ / h."""
        constraints, outcome = self.tree.constraints, self.outcome
        assert self.forces_bar is not None
        for c in loop(outcome.contacts.count[0]):
            slot, first = outcome.contacts.slots[c], outcome.first_contact + c * constraints.block
            force_bar = self.forces_bar.get(slot, FORCE)[:3]
            for k, row in enumerate(outcome.contact_rows(constraints, c)):
                impulse_bar[first + k] = impulse_bar[first + k] + sp.dot(row.force, force_bar)
        if outcome.limits is None:
            return
        singles = self.forces_bar.at(constraints.nslot * FORCE)
        for r in loop(outcome.first_contact):
            impulse_bar[r] = impulse_bar[r] + singles[outcome.problem.slot[r]]

    def _subtract(self, reduced: ScalarArray, pull: Callable[[Index], Scalar]) -> None:
        """Subtract what the rows take up by these multipliers of J v⁺ from `reduced`."""
        problem = self.outcome.problem
        taken = memory(problem.capacity)
        for r in loop(problem.count):
            taken[r] = -pull(r)
        problem.delassus.add_effect(taken, reduced)

    def correct(self, dynamics: Dynamics, q: ScalarArray, move_bar: ScalarArray) -> tuple[ScalarArray, ScalarArray]:
        """From the cotangent of p = A⁻¹ Jᵀ π: the virtual motion n [nv] and its twists (over links), for which -n · A p
        is left to differentiate. The rows' part is added later, by `add_rows`.

        To be called where positions are corrected (`outcome.corrected`).
        """
        tree, outcome, problem = self.tree, self.outcome, self.outcome.problem
        w, reduced, virtual = workspace(tree.nv), memory(tree.nv), memory(tree.nv)
        turn(tree, q, move_bar, w)
        reduce(tree, dynamics.frames, dynamics.factors, w, reduced)
        if not self.apart:
            factor_correction(problem, outcome.pushes)
        multiplier = self.correction_multiplier
        problem.delassus.speeds(reduced, multiplier)
        solve_lu_transposed(problem.delassus.B, problem.count, multiplier)
        self._subtract(reduced, lambda r: select(outcome.pushes[r] > 0.5, multiplier[r], 0.0))
        motions = expand(tree, dynamics.frames, dynamics.factors, reduced)
        turn(tree, q, reduced, virtual, back=True)
        for source, target in zip((outcome.pseudo, virtual), self.velocities[:2], strict=True):
            copy(tree.nv, source, target)
        for rest in self.velocities[2:]:
            zero(tree.nv, rest)
        return virtual, motions

    def add_corrections(self, q: ScalarArray, q_bar: ScalarArray) -> None:
        """Add the cotangents of the rows that correct positions alone; otherwise `add_rows` adds them."""
        v_rows = memory(self.tree.nv)
        self._rows(q, None, CORRECTION, q_bar, v_rows, None)

    def add_rows(
        self, q: ScalarArray, v: ScalarArray, virtual: ScalarArray, q_bar: ScalarArray, v_bar: ScalarArray,
        constants_bar: ScalarArray | None,
    ) -> None:  # fmt: skip
        """Add the cotangents of all rows. virtual: h n. v_bar: of the velocity before the substep, on which A (v⁺ - v)
        depends, too: there w became w - Jᵀ y."""
        tree, outcome = self.tree, self.outcome
        q_rows, v_rows = memory(tree.nq), memory(tree.nv)
        zero(tree.nq, q_rows)
        zero(tree.nv, v_rows)
        for _ in when(outcome.problem.count > 0):
            pulled = memory(tree.nv)
            for i in tree.links():
                z, b = self.gain_multiplier[tree.root(i)], tree.v_start(i)
                for k in loop(tree.dofs(i)):
                    pulled[b + k] = virtual[b + k] + z * outcome.change[b + k]
            for source, target in zip((outcome.v_next, pulled, v), self.velocities, strict=False):
                copy(tree.nv, source, target.at(tree.nv))
            first = 1 if self.apart else 1 - outcome.corrected[0]
            for which in loop(2, start=first):
                self._rows(q, v, which, q_rows, v_rows, constants_bar)
        add_to(tree.nq, q_rows, q_bar)
        add_to(tree.nv, v_rows, v_bar)

    def _rows(
        self, q: ScalarArray, v: ScalarArray | None, which: Index, q_bar: ScalarArray, v_bar: ScalarArray,
        constants_bar: ScalarArray | None,
    ) -> None:  # fmt: skip
        """Add the cotangents of the rows that correct positions (`which` is CORRECTION) or of those of velocities
        (VELOCITY), to which v_bar belongs. Then the slips and points of contacts are differentiated, for both.

        v: the velocity before the substep; None if there is nothing to come but the rows that correct positions.
        """
        tree, given = self.tree, [array.at(which * self.tree.nv) for array in self.velocities]
        width = pose_size(len(given))
        poses, bars = link_poses(tree, q, *given, indexed=True), memory((tree.nlink + 1) * width)
        zero((tree.nlink + 1) * width, bars)
        zero(tree.nv, v_bar)
        RowAdjoint(self, which, LinkCotangents(poses, bars, q_bar, constants_bar)).add_all()
        for _ in when(which == (CORRECTION if v is None else VELOCITY)):
            if v is not None and self.slips is not None:
                self.slips.differentiate(q, v, self.point_bars, Cotangents(q_bar, v_bar, constants=constants_bar))
            constants = all_elements(constants_bar)
            contacts_adjoint(tree.constraints, self.outcome.contacts, poses, width, self.point_bars, bars, constants)
        velocity_bars = [v_bar, None, v_bar][: len(given)]
        link_poses_adjoint(tree, poses, bars, q, given, q_bar, velocity_bars, constants_bar)
