"""Central differences: exact for polynomials up to their order, and honest about switches."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from backdrive.differences import (
    Reached,
    along,
    central,
    extrapolate,
    least_error,
    offsets,
    relative_error,
    slopes,
    smooth_slope,
)


@pytest.mark.parametrize("order", [2, 4, 6])
def test_polynomials_up_to_the_order_are_exact_and_those_above_are_not(order):
    for degree in range(order + 1):
        assert central(lambda e, d=degree: (1.0 + e) ** d, 0.25, order) == pytest.approx(degree, rel=1e-12)
    off = central(lambda e: (1.0 + e) ** (order + 1), 0.25, order) - (order + 1)
    assert abs(off) > 1e-4
    finer = central(lambda e: (1.0 + e) ** (order + 1), 0.125, order) - (order + 1)
    assert off / finer == pytest.approx(2.0**order)


def test_an_order_that_there_is_not():
    assert offsets(4) == (1.0, -1.0, 2.0, -2.0)
    with pytest.raises(KeyError):
        central(lambda e: e, 0.1, order=8)


def test_of_arrays_and_tensors_with_a_step_for_each():
    steps = torch.tensor([0.1, 0.2], dtype=torch.float64)
    values = [(torch.tensor([1.0, 2.0], dtype=torch.float64) + k * steps) ** 3 for k in offsets(4)]
    assert torch.allclose(extrapolate(slopes(values, steps)), torch.tensor([3.0, 12.0], dtype=torch.float64))
    assert central(lambda e: np.array([e, 2.0 * e]), 0.5).tolist() == [1.0, 2.0]


def test_along_a_direction_records_nothing():
    x = torch.tensor([1.0, 2.0], dtype=torch.float64, requires_grad=True)
    slope = along(lambda y: y.square().sum(), x, torch.tensor([0.0, 1.0], dtype=torch.float64), 1e-3)
    assert float(slope) == pytest.approx(4.0) and not slope.requires_grad


def test_relative_errors():
    assert relative_error(1.1, 1.0) == pytest.approx(0.1)
    assert relative_error(0.1, 0.0, least=2.0) == pytest.approx(0.05)
    assert relative_error(0.0, 0.0) == 0.0


def test_the_least_error_stops_when_it_is_small_enough():
    tried = []

    def difference(step):
        tried.append(step)
        return 1.0 + step

    assert least_error(1.0, difference, (1e-2, 1e-4, 1e-6), enough=1e-3) == pytest.approx(1e-4, rel=1e-3)
    assert tried == [1e-2, 1e-4]
    assert least_error(2.0, difference, (1e-2, 1e-4)) > 0.4


def test_smaller_steps_where_modes_switch():
    """|x - 1/1000|: at 0, a step of 0.01 goes over the kink, one of 1e-4 does not; at the kink every step does."""
    at = torch.tensor([0.0, 0.5, 1e-3], dtype=torch.float64)

    def function(e):
        x = at + e - 1e-3
        return Reached(x.abs(), (x > 0).long(), x.abs())

    slope = smooth_slope(function, (1e-2, 1e-4))
    assert slope.switched.tolist() == [False, False, True]
    assert slope.value[:2].tolist() == pytest.approx([-1.0, 1.0])
    assert slope.step[:2].tolist() == [1e-4, 1e-2]


def test_one_value_for_all_modes():
    def function(e):
        x = torch.tensor([1e-3, 0.5], dtype=torch.float64) + e
        return Reached(x.abs().sum(), (x > 0).long(), x.abs().sum())

    slope = smooth_slope(function, (1e-2, 1e-4))
    assert float(slope.value) == pytest.approx(2.0) and not slope.switched.any() and float(slope.step) == 1e-4


STEPS = (1e-4, 1e-5, 1e-3, 1e-6, 1e-7)


def of_one(f):
    """A function of one number, without modes."""

    def reached(e):
        value = torch.tensor(f(e), dtype=torch.float64)
        return Reached(value, torch.zeros(1), value.abs() + 1.0)

    return reached


@given(st.floats(-3.0, 3.0), st.floats(0.1, 300.0), st.floats(0.0, 1e-6))
def test_the_error_is_known(slope, curvature, noise):
    """sin: its derivative at 0 is known to the error that is told, whatever its scale and the noise of its values."""
    draw = np.random.default_rng(0)
    found = smooth_slope(
        of_one(lambda e: slope * np.sin(curvature * e) / curvature + e * e + noise * draw.uniform(-1, 1)), STEPS, 1e-9
    )
    assert abs(float(found.value) - slope) <= 3.0 * float(found.error) + 1e-300
    assert float(found.error) <= 1e-5 * abs(slope) + 1e4 * noise + 1e-9


@given(st.floats(-2.0, 2.0), st.floats(-2.0, 2.0))
def test_a_kink_without_a_mode_shows_as_a_jump(left, right):
    found = smooth_slope(of_one(lambda e: (right if e > 0 else left) * e + 50.0 * e * e), STEPS)
    assert float(found.jump) == pytest.approx(right - left, abs=1e-7)
    assert float(found.value) == pytest.approx((left + right) / 2, abs=1e-7)
