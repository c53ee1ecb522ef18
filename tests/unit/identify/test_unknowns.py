"""Free numbers and what they stand for."""

import math

import identify_worlds as worlds
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import backdrive as bd
from backdrive.differences import along
from backdrive.identify import Learn
from backdrive.identify.unknowns import Unknowns
from backdrive.schema.layout import INERTIA_INDEX


def unknowns(model: bd.Model, learn, **base) -> Unknowns:
    return Unknowns(model, learn, base, model.initial_state())


@pytest.mark.parametrize(
    ("bounds", "values"),
    [(None, (-3.0, 0.0, 9.0)), ((0.0, None), (1e-3, 1.0, 50.0)), ((None, 2.0), (-9.0, 1.9)), ((0.5, 4.0), (0.6, 3.9))],
)
def test_values_and_free_numbers_are_inverse(bounds, values):
    learned = unknowns(worlds.stone(), [Learn("gravity", "y", bounds=bounds)])
    x = torch.tensor(values, dtype=torch.float64).unsqueeze(1)
    assert torch.allclose(learned.values(learned.free(x)), x, rtol=1e-12)
    z = learned.free(x)
    slopes = torch.cat([learned.jacobian(row) for row in z])
    assert torch.allclose(slopes, along(learned.values, z, torch.ones_like(z), 1e-6), rtol=1e-8)


@given(st.lists(st.floats(-700, 700), min_size=3, max_size=3))
def test_whatever_the_free_numbers_are_masses_are_possible(z):
    learned = unknowns(worlds.chain(), [Learn("mass", bounds=(0.01, 100.0))])
    values = learned.values(torch.tensor([z], dtype=torch.float64))
    assert bool(((values >= 0.01) & (values <= 100.0)).all())


def test_a_mass_takes_its_inertia_along():
    model = worlds.chain()
    learned = unknowns(model, {"mass": ["link2"]})
    parameters = learned.parameters(learned.free(torch.tensor([[1.8]], dtype=torch.float64)))
    assert torch.allclose(parameters["mass"], torch.tensor([[1.0, 1.8, 0.3]], dtype=torch.float64))
    ratio = parameters["inertia"][0] / model.parameter("inertia")
    assert torch.allclose(ratio, torch.tensor([1.0, 3.0, 1.0], dtype=torch.float64))


@pytest.mark.parametrize("learn", [[Learn("mass", scale_inertia=False)], ["mass", "inertia"]])
def test_an_inertia_stays_where_it_is_told_to(learn):
    model = worlds.chain()
    learned = unknowns(model, learn)
    x = learned.starts(1, None)
    x[:, :3] *= 2.0
    inertia = learned.parameters(learned.free(x)).get("inertia", model.parameter("inertia"))
    assert torch.allclose(inertia, model.parameter("inertia"))


def test_shared_values():
    model, rows = worlds.chain(), ["link1", "link3"]
    total = unknowns(model, [Learn("mass", rows, shared="total")])
    equal = unknowns(model, [Learn("mass", rows, shared="equal")])
    x = torch.tensor([[2.6]], dtype=torch.float64)
    assert torch.allclose(total.parameters(total.free(x))["mass"][0], torch.tensor([2.0, 0.6, 0.6]).double())
    assert torch.allclose(equal.parameters(equal.free(x))["mass"][0], torch.tensor([2.6, 0.6, 2.6]).double())
    assert math.isclose(float(total.starts(1, None)), 1.3)
    assert total.labels == ["total mass of link1, link3"]


def test_random_starts_are_between_the_bounds_and_repeatable():
    learned = unknowns(worlds.chain(), [Learn("mass", bounds=(0.1, 10.0))])
    first, second = (learned.starts(50, torch.Generator().manual_seed(3)) for _ in range(2))
    assert torch.equal(first, second)
    assert bool(((first > 0.1) & (first < 10.0)).all())
    assert (first < 1.0).double().mean() > 0.3  # by ratio


@pytest.mark.parametrize(
    ("learn", "message"),
    [
        (["mas"], "unknown parameter 'mas'; did you mean 'mass'?"),
        ({"mass": ["link4"]}, "unknown row of parameter 'mass' 'link4'; did you mean"),
        ({"mass": []}, "of nothing"),
        ([], "at least one"),
        (["mass", Learn("mass", "link1")], "mass of link1 is to be learned twice"),
        ([Learn("mass", ["link1", "link1"])], "named twice"),
        ([Learn("mass", start=-1.0)], "must start between 0 and inf, not at -1"),
        ([Learn("mass", start=5.0, bounds=(0.1, 2.0))], "must start between 0.1 and 2, not at 5"),
        ([Learn("mass", start=math.nan)], "must be finite"),
        ([Learn("mass", start=[1.0, 2.0])], r"must be a number, \[3\] or \[S, 3\], got \[2\]"),
        ([Learn("mass", bounds=(-1.0, 2.0))], "must lie between 0 and inf"),
        ([Learn("mass", bounds=(3.0, 2.0))], "low < high"),
        ([Learn("mass", bounds="wide")], "'physical' or None"),
        ([Learn("mass", shared="sum")], "unknown value of shared 'sum'"),
        ([Learn("com", shared="equal")], "cannot be shared"),
    ],
)
def test_bad_wishes(learn, message):
    with pytest.raises(ValueError, match=message):
        unknowns(worlds.chain(), learn).starts(1, None)


def test_bad_starts():
    open_ended = unknowns(worlds.chain(), ["mass"])
    with pytest.raises(ValueError, match=r"give mass of link1 bounds=\(low, high\)"):
        open_ended.starts(4, torch.Generator())
    with pytest.raises(ValueError, match="give a generator"):
        unknowns(worlds.chain(), [Learn("mass", bounds=(0.1, 1.5))]).starts(4, None)
    learn = [Learn("mass", "link1", start=[[1.0], [2.0]]), Learn("damping", "hinge1", start=[[1.0]] * 3)]
    with pytest.raises(ValueError, match="same number of starts"):
        unknowns(worlds.chain(), learn).starts(1, None)
    with pytest.raises(ValueError, match="quaternions"):
        unknowns(worlds.arm(), ["q0"])


# ---------------------------------------------------------------------------------------------- inertias


NUMBERS = st.lists(st.floats(-4, 4), min_size=18, max_size=18)


@given(NUMBERS)
@settings(max_examples=60, deadline=None)
def test_whatever_the_free_numbers_are_inertias_are_possible(z):
    learned = unknowns(worlds.arm(), ["inertia"])
    z = torch.tensor([z], dtype=torch.float64)
    worlds.arm().assemble(learned.parameters(z))  # raises if one is not
    assert bool(learned.possible(z))
    x = learned.values(z)
    torch.testing.assert_close(learned.values(learned.free(x)), x, rtol=1e-9, atol=0.0)


@given(st.integers(0, 10_000))
@settings(max_examples=30, deadline=None)
def test_every_distribution_of_mass_has_free_numbers(seed):
    """The inertia of random points with random masses, about their center."""
    draw = np.random.default_rng(seed)
    points, masses = draw.normal(size=(5, 3)) * draw.uniform(0.01, 3.0, 3), draw.uniform(0.1, 2.0, 5)
    points = points - masses @ points / masses.sum()
    second = np.einsum("n,ni,nj->ij", masses, points, points)
    I = np.trace(second) * np.eye(3) - second
    learned = unknowns(worlds.arm(), [Learn("inertia", "top", start=[I[i, j] for i, j in INERTIA_INDEX])])
    x = learned.starts(1, None)
    z = learned.free(x)
    torch.testing.assert_close(learned.values(z), x, rtol=1e-9, atol=1e-12)
    J = learned.jacobian(z[0])
    for k in range(6):
        unit = torch.eye(6, dtype=torch.float64)[k : k + 1]
        torch.testing.assert_close(J[:, k], along(learned.values, z, unit, 1e-3, order=6)[0], rtol=1e-8, atol=1e-10)


def test_inertias_that_no_body_has_are_no_start():
    for start in ([1.0, 1.0, 2.0, 0.0, 0.0, 0.0], [1.0, 1.0, 3.0, 0.0, 0.0, 0.0], [1.0, 1.0, 1.0, 2.0, 0.0, 0.0]):
        with pytest.raises(ValueError, match="inertia of top .* must start at the inertia of a body with a volume"):
            unknowns(worlds.arm(), [Learn("inertia", "top", start=start)]).starts(1, None)
    loose = unknowns(worlds.arm(), [Learn("inertia", "top", bounds=None)])
    z = torch.tensor([[1.0, 1.0, 3.0, 0.0, 0.0, 0.0], [1.0, 1.0, 1.5, 0.0, 0.0, 0.0]], dtype=torch.float64)
    assert loose.possible(z).tolist() == [False, True]


def test_extreme_free_numbers_are_told():
    learned = unknowns(worlds.arm(), [Learn("inertia", "top")])
    z = torch.tensor([[800.0, 0, 0, 0, 0, 0], [0, 0, 0, math.nan, 0, 0], [0, 0, 0, 0, 0, 0]], dtype=torch.float64)
    assert learned.possible(z).tolist() == [False, False, True]
