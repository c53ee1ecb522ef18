"""vjp: against central differences and closed forms, on floats and compiled."""

import math

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from kernel_helpers import compute, from_function, launch, llvm_ir, make
from programs import INPUTS, bound, evaluate, program_lists

from backdrive import ir as bd
from backdrive.backends import Integer, Rows

PYTHON_RAISES = (ZeroDivisionError, ValueError, OverflowError)


def gradient(function, x, seeds=(1.0,)):
    return bd.vjp(function, x, seeds)[1]


@pytest.mark.parametrize(
    ("function", "derivative"),
    [
        (lambda x, y: x + y, lambda x, y: (1, 1)),
        (lambda x, y: x - y, lambda x, y: (1, -1)),
        (lambda x, y: x * y, lambda x, y: (y, x)),
        (lambda x, y: x * x * x, lambda x, y: (3 * x * x, 0)),
        (lambda x, y: x / y, lambda x, y: (1 / y, -x / y**2)),
        (lambda x, y: -x, lambda x, y: (-1, 0)),
        (lambda x, y: bd.sqrt(x), lambda x, y: (0.5 / math.sqrt(x), 0)),
        (lambda x, y: bd.sin(x), lambda x, y: (math.cos(x), 0)),
        (lambda x, y: bd.cos(x * y), lambda x, y: (-y * math.sin(x * y), -x * math.sin(x * y))),
        (lambda x, y: bd.atan2(x, y), lambda x, y: (y / (x * x + y * y), -x / (x * x + y * y))),
        (lambda x, y: bd.absolute(-x) * y, lambda x, y: (y, x)),
        (lambda x, y: bd.floor(x) * y, lambda x, y: (0, math.floor(x))),
        (lambda x, y: bd.nearest(x) * y, lambda x, y: (0, round(x))),
        (lambda x, y: bd.select(x < y, x * 2.0, y), lambda x, y: (2, 0) if x < y else (0, 1)),
        (lambda x, y: bd.minimum(x, y), lambda x, y: (1, 0) if x < y else (0, 1)),
        (lambda x, y: bd.maximum(x, y), lambda x, y: (1, 0) if x > y else (0, 1)),
        (lambda x, y: 3.0, lambda x, y: (0, 0)),
        (lambda x, y: y, lambda x, y: (0, 1)),
    ],
)
def test_closed_forms(function, derivative):
    points = [[0.7, 1.9], [2.3, 0.4], [1.2, 1.3]]
    for x in points:
        assert gradient(lambda *a: [function(*a)], x, [2.0]) == pytest.approx(
            [2.0 * d for d in derivative(*x)], rel=1e-14
        )

    kernel = from_function(lambda x: gradient(lambda *a: [function(*a)], [x[0], x[1]], [2.0]))
    expected = [[2.0 * d for d in derivative(*x)] for x in points]
    np.testing.assert_allclose(compute(kernel, points, 2), expected, rtol=1e-14)


def test_conventions_where_there_is_no_derivative():
    """At a tie the second argument of min and max has it; |x| has 1 at 0, clip on the closed interval."""

    def all_of(x):
        x = [x[k] for k in range(4)]
        return [
            *gradient(lambda a, b: [bd.minimum(a, b)], [x[0], x[0]]),
            *gradient(lambda a, b: [bd.maximum(a, b)], [x[0], x[0]]),
            *gradient(lambda a: [bd.absolute(a)], [x[1]]),
            *gradient(lambda a: [bd.clip(a, -1.0, 2.0)], [x[0]]),
            *gradient(lambda a: [bd.clip(a, -1.0, 2.0)], [x[2]]),
            *gradient(lambda a: [bd.clip(a, -1.0, 2.0)], [x[3]]),
            *gradient(lambda a, b: [bd.clip(x[3], a, b)], [x[2], x[0]]),
        ]

    x = [2.0, 0.0, -1.0, 2.5]
    expected = [0, 1, 0, 1, 1, 1, 1, 0, 0, 1]
    assert all_of(x) == expected
    assert compute(from_function(all_of), [x], 10)[0].tolist() == expected


@settings(
    max_examples=8,
    deadline=None,
    database=None,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)
@given(programs=program_lists(24, rough=False))
def test_random_programs(programs):
    """On floats as by central differences; compiled as on floats."""
    points = np.random.default_rng(7).uniform(-2, 2, (6, INPUTS)).tolist()
    usable, expected = [], []
    for program in programs:
        try:
            expected.append([_checked_gradient(program, x) for x in points])
            usable.append(program)
        except PYTHON_RAISES:
            continue  # undefined at one of the points
    if not usable:
        return

    def outputs(x):
        x = [x[k] for k in range(INPUTS)]
        results = []
        for program in usable:
            (y,), g = bd.vjp(lambda *a, p=program: [evaluate(p, a)], x, [1.5])
            results += [y, *g]
        return results

    got = compute(from_function(outputs), points, 5 * len(usable)).reshape(len(points), -1, 5)
    for p, program in enumerate(usable):
        for k, x in enumerate(points):
            reference = expected[p][k]
            if reference is not None:
                np.testing.assert_allclose(got[k, p], reference, rtol=1e-7, atol=1e-7, err_msg=f"{program} at {x}")


def _checked_gradient(program, x):
    """(value, gradient) on floats; None next to a jump or a kink, or where differences are inaccurate."""
    (y,), g = bd.vjp(lambda *a: [evaluate(program, a)], x, [1.5])
    assert y == evaluate(program, x)
    smooth = bound(program, x, 1e-7)[1] < 1e-3
    h = 1e-6
    for k in range(INPUTS):
        at = [evaluate(program, [v + s * h * (i == k) for i, v in enumerate(x)]) for s in (-2, -1, 1, 2)]
        slopes = [(at[1] - at[0]) / h, (at[2] - at[1]) / (2 * h), (at[3] - at[2]) / h]
        size = 1.0 + max(map(abs, slopes)) + abs(y)
        if not smooth or size > 1e3 or max(slopes) - min(slopes) > 1e-4 * size:
            return None
        assert g[k] == pytest.approx(1.5 * slopes[1], rel=1e-4, abs=1e-4 * size), (program, x, k)
    return [y, *g]


def test_several_outputs_shared_and_traced_seeds():
    def outputs(x):
        def function(a, b):
            p = a * b
            return [p, p, a, 4.0, x[2] * b]  # x[2] is captured: a constant

        return gradient(function, [x[0], x[1]], [x[3], 2.0, 10.0, 7.0, 1.0])

    x = [2.0, 3.0, 5.0, 0.5]
    expected = [2.5 * 3.0 + 10.0, 2.5 * 2.0 + 5.0]
    assert outputs(x) == expected

    def body(x, y):
        y.put(0, outputs([x[k] for k in range(4)]))

    y = np.zeros((3, 2))
    launch(make(body, Rows("x"), Rows("y", writable=True)), 3, x=np.tile(x, (3, 1)), y=y)
    assert (y == expected).all()


def test_second_derivatives_by_nesting():
    """Captured values of two traces must not be mixed up, though they have the same number in their own."""

    def outputs(x):
        a, b, c, d = (x[k] for k in range(4))

        def slope(u, v):
            w = u * v
            inner = lambda s: [s * s * s * a + s * u + s * b + s * v + s * w + s * c]  # noqa: E731
            return [gradient(inner, [d])[0]]

        return [*bd.vjp(slope, [a, b], [1.0])[0], *gradient(slope, [a, b]), *_hessian(d)]

    def _hessian(d):
        return gradient(lambda s: gradient(lambda r: [bd.sin(r * r)], [s]), [d])

    x = [2.0, 3.0, 5.0, 0.7]
    a, b, c, d = x
    second = 2 * math.cos(d * d) - 4 * d * d * math.sin(d * d)
    expected = [3 * d * d * a + a + b + b + a * b + c, 1 + b, 1 + a, second]
    assert outputs(x) == pytest.approx(expected, rel=1e-14)
    assert compute(from_function(outputs), [x] * 3, 4)[2].tolist() == pytest.approx(expected, rel=1e-14)


def test_integers_and_conditions_of_the_kernel_are_constants():
    def body(x, y, n):
        for i in bd.loop(n):

            def function(a, b, i=i):
                low = bd.select((i < 2) | (i + 1 == n), a * a, a * b)
                return [low * bd.to_float(bd.minimum(i, 2) * 10 + i % 2)]

            y.at(2 * i).put(0, gradient(function, [x[0], x[1]]))

    y = np.zeros((5, 8))
    kernel = make(body, Rows("x"), Rows("y", writable=True), Integer("n"))
    launch(kernel, 5, x=np.tile([3.0, 5.0], (5, 1)), y=y, n=4)
    assert (y == [0, 0, 66, 0, 100, 60, 126, 0]).all()


def test_workspaces_and_subroutines_inside_a_differentiated_function():
    @bd.subroutine("lanes", "f")
    def square(a, x):
        a[0] = x * x

    def function(x):
        w = bd.workspace(1)
        square(w, x)
        return [w[0] * x]

    assert gradient(function, [2.0]) == [12.0]
    kernel = from_function(lambda x: gradient(function, [x[0]]))
    assert compute(kernel, [[2.0]], 1)[0, 0] == 12.0


def test_is_finite_inside_a_differentiated_function():
    def outputs(x):
        y, g = bd.vjp(lambda a: [bd.select(bd.is_finite(a), a * 3.0, -1.0)], [x[0]], [1.0])
        return [*y, *g]

    x = [[2.0], [math.inf], [math.nan]]
    assert compute(from_function(outputs), x, 2).tolist() == [[6.0, 3.0], [-1.0, 0.0], [-1.0, 0.0]]
    assert outputs([2.0]) == [6.0, 3.0] and outputs([math.inf]) == [-1.0, 0.0]


def test_nothing_is_computed_for_seeds_and_inputs_that_vanish():
    def body(x, y):
        y[0] = gradient(lambda a, b: [bd.sin(a) * b, bd.sqrt(a)], [x[0], x[1]], [0.0, 1.0])[1]
        y[1] = gradient(lambda a: [3.0 * a + bd.floor(a)], [x[0]])[0]

    text = llvm_ir(make(body, Rows("x"), Rows("y", writable=True)), 64, 1)
    assert "load" not in text  # 0 and 3: no input is needed
