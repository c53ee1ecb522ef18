"""What was seen, checked and brought to the times of the steps."""

import math

import identify_worlds as worlds
import pytest
import torch

import backdrive as bd
from backdrive.identify import Observations
from backdrive.identify.observations import Channels

N = 5
TIME = torch.arange(N, dtype=torch.float64) * worlds.DT


def channels(batch: int | None = None, **given) -> Channels:
    return Channels(Observations(**{"time": TIME, **given}), worlds.chain(), worlds.DT, batch)


def test_times_between_steps_are_interpolated():
    table = channels(time=[0.0, 0.03, 0.04], angle={"link1": [0.0, 0.0, 0.0]})
    assert table.step.tolist() == [0, 1, 2]
    assert torch.allclose(table.fraction, torch.tensor([0.0, 0.5, 0.0], dtype=torch.float64))
    assert table.count == 2
    steps = torch.tensor([[1.0], [3.0], [7.0]], dtype=torch.float64)
    assert table.interpolate(steps).flatten().tolist() == pytest.approx([1.0, 5.0, 7.0])


def test_what_is_nan_was_not_seen():
    position = torch.zeros(N, 2, dtype=torch.float64)
    position[2] = math.nan
    table = channels(position={"link1": position}, q=torch.full((N, 3), math.nan))
    assert int(table.seen.sum()) == 2 * (N - 1)
    assert table.names == ["link1 x", "link1 y", "q[0]", "q[1]", "q[2]"]


def test_of_a_path():
    path = worlds.simulator(worlds.chain).rollout(worlds.chain().initial_state(2), steps=6)
    clean = Observations.of(path, ["link3"], every=3)
    assert torch.equal(clean.position["link3"], path.position("link3")[::3])
    noisy = Observations.of(path, ["link3"], noise=0.1, generator=torch.Generator().manual_seed(0))
    spread = (noisy.position["link3"] - path.position("link3")).std()
    assert 0.05 < float(spread) < 0.2
    with pytest.raises(ValueError, match="say how much"):
        Observations.of(path, generator=torch.Generator())
    with pytest.raises(ValueError, match="unknown body 'link9'"):
        Observations.of(path, ["link9"])


def test_windows_end_at_the_last_observation_before_them():
    table = channels(angle={"link1": torch.zeros(N)})
    assert table.until(0.05).time.tolist() == TIME[:3].tolist()
    assert table.until(0.05).count == 2
    assert table.until(9.0) is table


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "nothing was observed"),
        ({"angle": {"link1": [math.nan] * N}}, "all numbers are NaN"),
        ({"angle": {"link7": [0.0] * N}}, "unknown body 'link7'; did you mean"),
        ({"angle": {"link1": [0.0] * 3}}, r"angle of 'link1' must be \[5\], got \[3\]"),
        ({"position": {"link1": torch.zeros(N, 3)}}, r"position of 'link1' must be \[5, 2\], got \[5, 3\]"),
        ({"q": torch.zeros(N, 2)}, r"q must be \[5, 3\]"),
        ({"v": torch.zeros(N, 2)}, r"v must be \[5, 3\]"),
        ({"angle": {"link1": [math.inf] * N}}, "infinite"),
        ({"time": [0.0, 0.2, 0.1], "angle": {"link1": [0.0] * 3}}, "must increase"),
        ({"time": [-0.1], "angle": {"link1": [0.0]}}, "not negative"),
        ({"time": [], "angle": {"link1": []}}, r"must be \[N\]"),
        ({"angle": {"link1": [0.0] * N}, "noise": 0.0}, "noise must be > 0"),
        ({"angle": {"link1": [0.0] * N}, "noise": {"angel": 1.0}}, "did you mean 'angle'"),
        ({"angle": {"link1": [0.0] * N}, "noise": {"q": 1.0}}, "says nothing about 'angle'"),
    ],
)
def test_bad_observations(given, message):
    with pytest.raises(ValueError, match=message):
        channels(**given)


def test_bad_types():
    with pytest.raises(TypeError, match="mapping"):
        channels(position=torch.zeros(N, 2))
    with pytest.raises(TypeError, match="numbers"):
        channels(angle={"link1": ["a"] * N})
    with pytest.raises(ValueError, match="2D only"):
        Channels(Observations(TIME, angle={"upper": TIME}), worlds.arm(), worlds.DT, None)
    with pytest.raises(TypeError, match="Trajectory"):
        bd.identify.fit(worlds.simulator(worlds.chain), [1, 2, 3], ["mass"])
