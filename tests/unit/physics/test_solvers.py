"""Both solvers on random problems, as plain Python on floats: against the enumeration of all active sets.

A problem is W, b and bounds as arrays, in the form in which the solvers see a `ContactProblem`.
"""

import dataclasses
import itertools
import re
from types import SimpleNamespace
from typing import NamedTuple

import numpy as np
import pytest
from contact_scenes import BOTH, SOLVERS
from hypothesis import example, given, settings
from hypothesis import strategies as st

import backdrive as bd
from backdrive.ir import Floats
from backdrive.physics import solvers
from backdrive.physics.budget import Factorisations
from backdrive.physics.math.linear import multiply, padded
from backdrive.physics.solvers.active_set import FREE, INFINITE, LOWER, NO_ACTIVE_SET, UPPER
from backdrive.physics.solvers.complementarity import active_set_of_solution, evaluate_speeds, residual

SEEDS = st.integers(0, 2**32 - 1)
FEW = settings(max_examples=60)
TOLERANCE = 1e-10
ABOVE_TOLERANCE = {(bd.ProjectedGaussSeidel, 20), (bd.ProjectedGaussSeidel, 43), (bd.InteriorPoint, 43)}
"""Solvers and seeds of singular problems whose residual is above the tolerance, but below the rounding of W λ."""

ROWS = {"equality": 1, "limit": 1, "rub": 1, "contact": 2, "contact in space": 3}
EVERYTHING = ["equality", "rub", "limit", "contact in space", "contact in space"]


class FloatDelassus(NamedTuple):
    """The matrices of a `DenseDelassus`."""

    W: Floats
    B: Floats

    def apply(self, impulse, speed, n):
        multiply(self.W, n, impulse, speed)


class Problem:
    """0 = (W + R) λ + b with bounds low - μ λₙ <= λ <= high + μ λₙ; kinds of rows in turn.

    equality: free; limit: λ >= 0; rub: |λ| <= a bound; contact: a normal, and one or two directions of friction.
    copy: the last says the same as the first.
    """

    def __init__(self, rng, kinds, freedoms=None, friction=(0.05, 0.5), copy=False, regularisation=1e-8):
        low, high, mu, normal = [], [], [], []
        for kind in kinds:
            at, most = len(low), rng.uniform(0.1, 1.0)
            low.append({"equality": -INFINITE, "rub": -most}.get(kind, 0.0))
            high.append(most if kind == "rub" else INFINITE)
            directions = ROWS[kind] - 1
            low += [0.0] * directions
            high += [0.0] * directions
            mu += [0.0] + [rng.uniform(*friction)] * directions
            normal += [at] * (1 + directions)
        n = len(low)
        J = rng.normal(size=(n, freedoms or n + 2))
        b = rng.normal(size=n)
        if copy:
            rows = ROWS[kinds[0]]
            J[-rows:], b[-rows:], mu[-rows:] = J[:rows], b[:rows], mu[:rows]
        self.W, self.b = J @ J.T, b
        self.compliance = np.full(n, regularisation * np.trace(self.W) / n)
        self.low, self.high, self.mu, self.normal = (np.array(x) for x in (low, high, mu, normal))
        self.n = n

    def limits(self, x):
        most = self.mu * x[self.normal]
        return self.low - most, self.high + most

    def speed(self, x):
        return self.W @ x + self.compliance * x + self.b

    def error(self, x):
        """By how much the conditions are violated, written down independently of the solvers."""
        low, high = self.limits(x)
        w = self.speed(x)
        outside = np.maximum(np.maximum(low - x, x - high), 0.0) * np.diag(self.W)
        inside_low, inside_high = x - low > 1e-9, high - x > 1e-9
        return max(
            outside.max(),
            np.maximum(w, 0.0)[inside_low].max(initial=0),
            np.maximum(-w, 0.0)[inside_high].max(initial=0),
        )

    def rounding(self, x):
        """That of the largest speed in W λ, relative to 1 + the largest speed in b."""
        return np.finfo(float).eps * (np.abs(self.W) @ np.abs(x)).max() / (1.0 + np.abs(self.b).max())

    def solutions(self):
        """All impulses for which some choice of which bounds hold satisfies all conditions."""
        choices = []
        for r in range(self.n):
            frees = [0] if self.high[r] > 0.0 or self.mu[r] > 0.0 else []
            lows = [-1] if self.low[r] > -INFINITE / 2 else []
            highs = [1] if self.high[r] < INFINITE / 2 else []
            choices.append(frees + lows + highs)
        found = []
        for modes in itertools.product(*choices):
            if any(modes[self.normal[r]] == -1 and modes[r] != -1 for r in range(self.n) if self.normal[r] != r):
                continue  # a contact that does not press has no friction
            A, c = self.W + np.diag(self.compliance), -self.b
            for r, mode in enumerate(modes):
                if mode:
                    A[r], c[r] = 0.0, self.low[r] if mode < 0 else self.high[r]
                    A[r, r] = 1.0
                    A[r, self.normal[r]] -= mode * self.mu[r]
            try:
                x = np.linalg.solve(A, c)
            except np.linalg.LinAlgError:
                continue
            low, high = self.limits(x)
            w = self.speed(x)
            fits = (x >= low - 1e-9) & (x <= high + 1e-9)
            right = [
                abs(w[r]) < 1e-7 if m == 0 else m * w[r] <= 1e-7
                for r, m in enumerate(modes)
                if self.normal[r] == r or x[self.normal[r]] > 1e-12
            ]
            if fits.all() and all(right):
                found.append(x)
        return found

    def contact_problem(self):
        """What the solvers see, padded to whole tiles by rows that do nothing."""
        size = padded(self.n)

        def filled(x, rest):
            return Floats([*map(float, x), *[rest] * (size - self.n)])

        W = np.zeros((size, size))
        W[: self.n, : self.n] = self.W
        delassus = FloatDelassus(Floats(W.ravel().tolist()), Floats([0.0] * size * size))
        work = Factorisations()
        work.of(float(self.n), size)
        return SimpleNamespace(
            capacity=size, count=size, delassus=delassus, work=work,
            b=filled(self.b, 0.0), compliance=filled(self.compliance, 1.0),
            low=filled(self.low, 0.0), high=filled(self.high, 0.0), mu=filled(self.mu, 0.0),
            impulse=Floats([0.0] * size), unit=Floats([1.0 / (1.0 + np.abs(self.b).max())]),
            normal=Floats([*self.normal.tolist(), *range(self.n, size)]), slot=Floats(list(range(size))),
            factored=Floats([NO_ACTIVE_SET] * size),
            diagonal=filled(self.W.diagonal() + self.compliance, 1.0),
        )  # fmt: skip

    def solve(self, solver):
        """(impulses, residual), which is what it claims to be."""
        problem = self.contact_problem()
        error = solver.solve(problem)
        x = np.array(problem.impulse.values[: self.n])
        speed = Floats([0.0] * problem.count)
        assert error == pytest.approx(residual(problem, problem.impulse, speed), rel=1e-3, abs=1e-14)
        return x, error


def check(problem, solver, speed=1e-8, rounded=False):
    """Converged, satisfies the conditions, and is the solution that enumeration finds (or one of several)."""
    right = problem.solutions()
    assert right, "friction this small has a solution"
    x, error = problem.solve(solver)
    assert error <= (problem.rounding(x) if rounded else TOLERANCE)
    assert problem.error(x) <= 1e-8
    assert min(np.abs(problem.W @ (x - y)).max() for y in right) <= speed


@BOTH
@FEW
@given(SEEDS)
def test_all_kinds_of_rows(solver, seed):
    rng = np.random.default_rng(seed)
    kinds = rng.choice([*ROWS], size=rng.integers(1, 5)).tolist()
    check(Problem(rng, kinds), solver)


@BOTH
@settings(max_examples=40)
@given(SEEDS)
def test_everything_at_once(solver, seed):
    check(Problem(np.random.default_rng(seed), EVERYTHING, friction=(0.5, 0.5)), solver)


@BOTH
@FEW
@given(SEEDS)
def test_contacts(solver, seed):
    rng = np.random.default_rng(seed)
    check(Problem(rng, ["contact"] * int(rng.integers(1, 4))), solver)


@BOTH
@pytest.mark.parametrize("seed", [*range(60), 271, 278])
def test_more_rows_than_freedoms(solver, seed):
    """W is singular: impulses are defined by the regularisation alone, speeds by W.

    They are a million times the speeds: in some cases no residual can be smaller than the rounding of W λ, which is
    above the tolerance.
    """
    rng = np.random.default_rng(seed)
    kinds = ["limit"] * int(rng.integers(3, 7))
    rounded = (type(solver), seed) in ABOVE_TOLERANCE
    check(Problem(rng, kinds, freedoms=2, regularisation=1e-6), solver, speed=1e-5, rounded=rounded)


@BOTH
@pytest.mark.parametrize("kind", ROWS)
@FEW
@given(SEEDS)
def test_redundant_rows(solver, kind, seed):
    """Two say the same: the speeds are determined."""
    check(Problem(np.random.default_rng(seed), [kind, "limit", "limit", kind], copy=True), solver, speed=1e-6)


@FEW
@given(SEEDS)
def test_solvers_share_the_load_alike(seed):
    """Of two contacts at one place, beside all kinds of other rows."""
    problem = Problem(np.random.default_rng(seed), ["contact in space", *EVERYTHING[:3], "contact in space"], copy=True)
    found = [problem.solve(solver) for solver in SOLVERS.values()]
    assert all(error <= TOLERANCE for _, error in found)
    assert np.abs(problem.W @ (found[0][0] - found[1][0])).max() < 1e-6


@BOTH
def test_degenerate_problems(solver):
    """Nothing to do: b = 0; and rows that just touch: impulse and speed are both zero."""
    rng = np.random.default_rng(0)
    still = Problem(rng, [*ROWS])
    still.b[:] = 0.0
    x, error = still.solve(solver)
    assert error <= TOLERANCE and np.abs(still.W @ x).max() < 1e-10
    touching = Problem(rng, ["limit", "limit", "equality"])
    x = np.array([0.0, 1.0, -1.0])
    touching.b[:] = -(touching.W @ x + touching.compliance * x)
    y, error = touching.solve(solver)
    assert error <= TOLERANCE
    assert y == pytest.approx(x, abs=1e-7)


@pytest.mark.parametrize("seed", range(20))
def test_rows_that_do_not_count(seed):
    """Friction of frictionless contacts, and contacts of other lanes: no coupling, and no impulse."""
    problem, off = Problem(np.random.default_rng(seed), EVERYTHING), [4, 5, 6, 7, 8]
    problem.W[off], problem.W[:, off], problem.compliance[off] = 0.0, 0.0, 1.0
    for x in (problem.b, problem.low, problem.high, problem.mu):
        x[off] = 0.0
    found = []
    for solver in SOLVERS.values():
        x, error = problem.solve(solver)
        assert error <= TOLERANCE
        assert (x[off] == 0.0).all()
        found.append(x)
    assert np.abs(found[0] - found[1]).max() < 1e-7


@pytest.mark.parametrize("seed", range(20))
def test_all_the_friction_there_can_be(seed):
    """Whatever presses, sticks; what slides is all but free of pressure, for its friction is a million times that."""
    problem = Problem(np.random.default_rng(seed), EVERYTHING, friction=(1e6, 1e6))
    x, error = problem.solve(bd.InteriorPoint())
    if error > TOLERANCE:
        return  # there may be no solution: friction jams
    speed = problem.W @ x + problem.b
    for c in (3, 6):
        assert x[c] < 1e-5 or np.abs(speed[c + 1 : c + 3]).max() < 1e-6


@FEW
@given(SEEDS)
def test_sweeps_alone_converge(seed):
    """exact=False: to the same solution, only slower."""
    rng = np.random.default_rng(seed)
    kinds = rng.choice(["limit", "rub", "contact"], size=3).tolist()
    problem = Problem(rng, kinds, friction=(0.03, 0.3), freedoms=12)
    check(problem, bd.ProjectedGaussSeidel(iterations=3000, tolerance=1e-10, exact=False))


@settings(max_examples=40)
@given(SEEDS)
def test_sweeps_alone_converge_or_say_so(seed):
    problem = Problem(np.random.default_rng(seed), EVERYTHING, friction=(0.5, 0.5))
    x, error = problem.solve(bd.ProjectedGaussSeidel(iterations=5000, tolerance=1e-10, exact=False))
    if error <= TOLERANCE:
        assert min(np.abs(problem.W @ (x - y)).max() for y in problem.solutions()) < 1e-7


@FEW
@given(SEEDS)
def test_the_active_set_of_a_solution(seed):
    """Impulses at a bound, or free, are recognised as such even if speeds and bounds are missed by the tolerance."""
    rng = np.random.default_rng(seed)
    problem = Problem(rng, ["rub", "limit", "contact", "contact", "contact in space"])
    codes = rng.choice([LOWER, FREE, UPPER], size=problem.n)
    pressing = (problem.high >= INFINITE) & (problem.low == 0.0)  # normals and limits
    codes[pressing] = rng.choice([LOWER, FREE], size=pressing.sum())
    x = np.where(pressing & (codes == FREE), rng.uniform(0.1, 1.0, problem.n), 0.0)
    low, high = problem.limits(x)
    inside = np.where(pressing, x, low + rng.uniform(0.2, 0.8, problem.n) * (high - low))
    d = problem.W.diagonal() + problem.compliance
    beyond = np.where(pressing | (rng.random(problem.n) < 0.5), inside, low - 0.4 * TOLERANCE / d)
    x = np.where(codes == LOWER, low, np.where(codes == UPPER, high, beyond))
    free = codes == FREE
    wrong = rng.choice([-1.0, 0.0, 0.4 * TOLERANCE, -0.4 * TOLERANCE, 1e-17], size=problem.n)
    problem.b[:] = np.where(free, 0.0, codes * wrong) - (problem.W @ x + problem.compliance * x)
    solution = problem.contact_problem()
    speed, found = (Floats([0.0] * solution.count) for _ in range(2))
    solution.impulse.values[: problem.n] = x.tolist()
    evaluate_speeds(solution, solution.impulse, speed)
    assert residual(solution, solution.impulse, Floats([0.0] * solution.count)) <= TOLERANCE
    active_set_of_solution(solution, speed, TOLERANCE, found)
    loaded = pressing | (problem.normal == np.arange(problem.n)) | (x[problem.normal] > 0.0)
    assert np.array_equal(np.array(found.values[: problem.n])[loaded], codes[loaded])


class CreepingProblem(Problem):
    """A body on four contacts, more than it takes to hold it: `sliding` of their directions of friction are at a bound,
    and slide at 1e-12 to 1e-9 m/s, about the tolerance. Impulses are determined by the regularisation alone."""

    def __init__(self, rng, sliding):
        corners = rng.uniform(0.2, 1.0, 3) * [(x, y, -0.5) for x in (-1, 1) for y in (-1, 1)]
        turns = [(np.cos(a), np.sin(a)) for a in rng.uniform(0.0, 6.0, 4)]
        axes = [((0, 0, 1), (c, s, 0), (-s, c, 0)) for c, s in turns]
        J = np.array([(*d, *np.cross(p, d)) for p, own in zip(corners, axes) for d in own])
        inverse_mass = 1.0 / rng.uniform(0.3, 3.0)
        n = self.n = len(J)
        self.W = J * [*[inverse_mass] * 3, *(1.0 / rng.uniform(0.05, 0.5, 3))] @ J.T
        self.compliance = np.full(n, 1e-8 * inverse_mass)
        self.low, self.high = np.zeros(n), np.array([INFINITE, 0.0, 0.0] * 4)
        self.mu, self.normal = np.array([0.0, 1.0, 1.0] * 4) * rng.uniform(0.1, 0.8), np.repeat(np.arange(0, n, 3), 3)
        free = (self.mu == 0.0) | (rng.random(n) > sliding)
        codes = np.where(free, FREE, rng.choice([LOWER, UPPER], n))
        parts = np.where(self.mu == 0.0, 1.0, self.mu * np.where(free, rng.uniform(-0.9, 0.9, n), codes))
        x = parts * rng.uniform(0.05, 0.3, 4).repeat(3)
        self.codes, self.creep = codes, -codes * 10 ** rng.uniform(-12.0, -9.0, n)
        self.b = self.creep - (self.W @ x + self.compliance * x)

    def is_determined(self):
        """Whether rounding leaves the slow speeds as they are: friction may jam, and then it does not."""
        A, c = self.W + np.diag(self.compliance), np.where(self.codes == FREE, -self.b, 0.0)
        for r in np.flatnonzero(self.codes):
            A[r] = np.eye(self.n)[r] - self.codes[r] * self.mu[r] * np.eye(self.n)[self.normal[r]]
        return np.abs(self.speed(np.linalg.solve(A, c)) - self.creep).max() < 1e-13


@BOTH
@FEW
@given(SEEDS, st.floats(0.1, 0.5))
@example(96, 0.5)
@example(98, 0.5)
def test_contacts_that_slide_more_slowly_than_the_tolerance(solver, seed, sliding):
    """Their active set is found all the same: impulses do not end at a residual just below the tolerance."""
    problem = CreepingProblem(np.random.default_rng(seed), sliding)
    if problem.is_determined():
        _, error = problem.solve(solver)
        assert error <= 1e-13


def test_few_sweeps_say_that_they_are_few():
    problem = Problem(np.random.default_rng(1), ["limit"] * 6, freedoms=6)
    problem.b[:] = -1.0
    _, error = problem.solve(bd.ProjectedGaussSeidel(iterations=1, exact=False))
    assert error > 1e-6


def test_what_is_no_solver():
    solvers.check(bd.InteriorPoint())
    message = "solver must be InteriorPoint(...) or ProjectedGaussSeidel(...), got 3"
    with pytest.raises(TypeError, match=re.escape(message)):
        solvers.check(3)


def test_registered_solvers_keep_to_the_protocol():
    """Settings are fields, since the repr of a solver is part of the key of compiled kernels."""
    for solver in (each() for each in solvers.SOLVERS):
        fields = {field.name for field in dataclasses.fields(solver)}
        assert {"tolerance", "erp", "cfm"} <= fields
        assert callable(solver.solve)
        assert hash(solver) == hash(dataclasses.replace(solver))
