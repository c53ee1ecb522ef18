"""ball-throw: the ball comes to rest by itself, gradients find throws, and the comparison counts what it says."""

import itertools
import math
import sys

import matplotlib
import pytest
import torch
from quick_runs import quick_run

from backdrive import experiments
from backdrive.experiments import Run
from backdrive.experiments.ball_throw import experiment, searches
from backdrive.experiments.ball_throw.checks import gradient_errors
from backdrive.experiments.ball_throw.searches import Search, by_cma, by_gradient
from backdrive.experiments.ball_throw.world import DT, RADIUS, REST, STEPS, Landing, ThrowWorld

matplotlib.use("Agg")


@pytest.fixture(scope="module")
def world() -> ThrowWorld:
    return ThrowWorld()


def random_throws(count: int, seed: int) -> torch.Tensor:
    return 3.0 * torch.randn(count, 6, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_it_is_in_the_registry():
    found = experiments.find("ball-throw")
    assert "Degrave" in found.paper and "CMA-ES" in found.summary


def test_the_ball_bounces_slides_rolls_and_rests(world):
    """A throw without spin: each phase is as it should be, and the last lasts."""
    with torch.no_grad():
        path = world.throw(torch.tensor([[6.0, 0.0, 2.0, 0.0, 0.0, 0.0]], dtype=torch.float64), 2 * STEPS)
    place, v, spin = path.position("ball")[:, 0], path.velocity("ball")[:, 0], path.angular_velocity("ball")[:, 0]
    assert path.status.converged.all()
    assert int(path.status.impacts.sum()) >= 3
    lands = math.floor((2.0 + math.sqrt(2.0**2 + 2 * 9.81 * (1.0 - RADIUS))) / 9.81 / DT)
    hit = int(torch.nonzero(path.status.impacts[:, 0])[0])
    assert abs(hit - lands) <= 2
    slip = v[:, 0] - RADIUS * spin[:, 1]  # of the lowest point
    assert slip[hit] > 4.0  # it hits without spin, and slides
    rolls = slice(round(3.0 / DT), round(8.0 / DT))
    assert v[rolls, 0].min() > 0.0
    assert (slip[rolls].abs() < 1e-4 * v[rolls, 0]).all()  # what softened friction lets through
    rate = math.log(float(v[rolls.start, 0] / v[rolls.stop, 0])) / 5.0
    assert rate == pytest.approx(1.284, rel=0.02)  # c (1 + 1/r²) / (m + I/r²)
    assert place[STEPS, 2] == pytest.approx(RADIUS, abs=1e-4)  # softened: a little deeper
    assert v[STEPS].norm() + RADIUS * spin[STEPS].norm() < REST
    assert (place[-1] - place[STEPS]).norm() < 1e-4


def test_spin_and_side_matter(world):
    """Spin about y makes the ball go farther, spin about x aside; both ways alike."""
    throws = torch.zeros(4, 6, dtype=torch.float64)
    throws[:, 0] = 5.0
    throws[1, 4], throws[2, 3], throws[3, 3] = 5.0, 5.0, -5.0
    with torch.no_grad():
        ends = world.throw(throws).last.q
    assert ends[1, 0] > ends[0, 0] + 0.1
    assert ends[2, 1] < -0.1
    assert ends[3, 1] == pytest.approx(-float(ends[2, 1]), rel=1e-6)


def test_gradients_agree_with_differences(world):
    errors, switched = gradient_errors(world, random_throws(24, 5))
    assert int(switched.sum()) <= 2
    assert errors[~switched].max() < 1e-6


def test_gradients_find_throws_from_random_starts(world):
    """The claim is of fewer than 88 iterations, from 9 of 10."""
    found = [by_gradient(world, start) for start in random_throws(10, 7)]
    assert sum(search.found for search in found) >= 9
    for search in found:
        assert len(search.loss) < 88
        if search.found:
            end = world.landing(world.throw(search.throws[-1].unsqueeze(0)))
            assert end.distance <= 0.01 and end.speed <= REST


def test_cma_is_repeatable_and_leaves_numpys_seed_alone(world, monkeypatch):
    pytest.importorskip("cma")
    import numpy as np

    monkeypatch.setattr(searches, "EVALUATIONS", 90)
    start = random_throws(1, 3)[0]
    np.random.seed(3)  # noqa: NPY002
    before = np.random.get_state()[1].copy()  # noqa: NPY002
    one, two = (by_cma(world, start, 3.0, seed=8) for _ in range(2))
    assert one.loss == two.loss and len(one.loss) == 90
    assert min(one.loss) < 0.1 * one.loss[0]
    assert (before == np.random.get_state()[1]).all()  # noqa: NPY002
    other = by_cma(world, start, 3.0, seed=9)
    assert other.loss[:9] != one.loss[:9]


def test_first_needs_rest_and_place():
    search = Search()
    distance = torch.tensor([0.005, 0.2, 0.02, 0.009])
    speed = torch.tensor([1.0, 0.0, 0.0, 0.0])
    search.add(torch.zeros(4, 6), Landing(distance**2 + speed**2, distance, speed))
    assert [search.first(tolerance) for tolerance in (0.3, 0.1, 0.03, 0.01)] == [1, 2, 2, 3]
    assert search.first(0.001) is None and search.found
    moving = Search()
    moving.add(torch.zeros(1, 6), Landing(distance[:1], distance[:1], speed[:1]))
    assert not moving.found


def test_the_experiment(tmp_path, monkeypatch):
    pytest.importorskip("cma")
    monkeypatch.setattr(experiment, "QUICK", experiment.BallThrowSettings(2))
    monkeypatch.setattr(experiment, "SIGMAS", (3.0,))
    run = quick_run("ball-throw", tmp_path)
    found = run.results
    assert run.names == {"trajectories.png", "loss.png", "throw.mp4", "throw.html", "results.json"}
    for name in ("gradient", "CMA-ES 3 m/s"):
        counts = [
            found["table"][name][tolerance]["evaluations_by_start"] for tolerance in ("30 cm", "10 cm", "3 cm", "1 cm")
        ]
        assert all(a <= b for looser, tighter in itertools.pairwise(counts) for a, b in zip(looser, tighter))
        assert found["table"][name]["1 cm"]["found"] == 2
    ours, theirs = (found["table"][name]["1 cm"]["evaluations"]["median"] for name in ("gradient", found["best_cma"]))
    assert found["ratios_of_medians"]["1 cm"]["evaluations"] == pytest.approx(theirs / ours)
    assert theirs >= 10 * ours
    assert found["throws_found"]["steps_without_exact_gradient"] == 0
    assert found["throws_found"]["creep_in_another_10_s_m"] < 1e-3
    assert sum("at rest within" in line for line in run.lines) == 4


def test_without_cma_it_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "cma", None)
    with pytest.raises(ImportError, match=r"backdrive\[experiments\]"):
        experiments.find("ball-throw").run(Run(tmp_path, quick=True))
