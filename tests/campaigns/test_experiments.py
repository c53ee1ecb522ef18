"""Experiments are found by name, write their results as they go, and chain-mass does what it says."""

import json
import subprocess
import sys

import matplotlib
import pytest
import torch
from quick_runs import quick_run

from backdrive import experiments
from backdrive.experiments import Experiment, Run
from backdrive.experiments.run import _plain

matplotlib.use("Agg")


def results(path) -> dict:
    return json.loads((path / "results.json").read_text("utf-8"))


def test_the_registry():
    assert "chain-mass" in experiments.names()
    found = experiments.find("chain-mass")
    assert found.name == "chain-mass" and "2018" in found.paper and found.summary
    with pytest.raises(ValueError, match="unknown experiment 'chain-mas'; did you mean 'chain-mass'?"):
        experiments.find("chain-mas")


def test_importing_the_registry_loads_no_experiment():
    code = (
        "import sys, backdrive.experiments; print([m for m in sys.modules if 'chain_mass' in m or 'matplotlib' in m])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "[]"


def test_records_are_written_at_once(tmp_path):
    run = Run(tmp_path / "out", quick=True, seed=3)
    run.begin("some")
    run.record(mass=torch.tensor([1.0, 2.0]), bad=float("nan"), nested={1: (True, None, "a")})
    written = results(tmp_path / "out")
    assert written["results"] == {"mass": [1.0, 2.0], "bad": None, "nested": {"1": [True, None, "a"]}}
    assert written["settings"] == {"quick": True, "seed": 3}
    assert written["versions"]["torch"] == torch.__version__
    assert written["experiment"] == "some" and written["complete"] is False
    run.finish()
    assert results(tmp_path / "out")["complete"] is True
    assert run.files == [tmp_path / "out" / "results.json"]


def test_an_interrupt_keeps_what_was_done(tmp_path, monkeypatch):
    import types

    def interrupted(run: Run) -> None:
        run.record(first=1)
        raise KeyboardInterrupt

    module = types.ModuleType("backdrive.experiments.fake")
    module.run = interrupted
    monkeypatch.setitem(sys.modules, "backdrive.experiments.fake", module)
    with pytest.raises(KeyboardInterrupt):
        Experiment("fake", "", "", "fake").run(Run(tmp_path))
    assert results(tmp_path)["results"] == {"first": 1}
    assert results(tmp_path)["complete"] is False


def test_random_numbers_follow_the_seed(tmp_path):
    def draw(seed: int, stream: int) -> float:
        return float(torch.rand((), generator=Run(tmp_path, seed=seed).generator(stream)))

    assert draw(0, 1) == draw(0, 1)
    assert len({draw(seed, stream) for seed in (0, 1) for stream in (0, 1)}) == 4


def test_bad_runs(tmp_path):
    with pytest.raises(ValueError, match="seed"):
        Run(tmp_path, seed=-1)
    (tmp_path / "file").write_text("")
    with pytest.raises(NotADirectoryError):
        Run(tmp_path / "file")
    with pytest.raises(TypeError, match="results are numbers"):
        _plain(object())


def test_progress_is_told(tmp_path):
    seen = []
    run = Run(tmp_path, progress=lambda *told: seen.append(told))
    assert list(run.track("ab", "letters")) == ["a", "b"]
    assert seen == [("letters", 0, 2), ("letters", 1, 2), ("letters", 2, 2)]


def test_chain_mass(tmp_path, monkeypatch):
    """With as little of everything as there can be; without the film, which has tests of its own."""
    from backdrive.experiments.chain_mass import experiment

    monkeypatch.setattr(experiment, "QUICK", experiment.ChainMassSettings((2, 5), 3, 1, 3, (1, 2), 1))
    monkeypatch.setattr(experiment, "film", lambda run, world: None)
    run = quick_run("chain-mass", tmp_path)
    found = run.results
    for links in ("2", "5"):
        assert found["random_starts"][links]["fit"]["found"] == 3
        assert found["random_starts"][links]["fit"]["largest_relative_error"] < 1e-3
        first = found["from_first_guess"][links]
        assert first["fit"]["relative_error"] < 1e-3
        for name in ("fit", "descent"):
            assert first[name]["gradients_wrong"] == 0 and first[name]["gradients_compared"] > 0
        assert len(found["noise"][links]["intervals"]) == 1
        # the paper's descent: its first step is clip x rate
        masses = first["descent"]["mass_by_update"]
        assert masses[1] - masses[0] == pytest.approx(1.0)
    assert found["link_by_link"]["largest_relative_error"] < 0.01
    assert found["link_by_link"]["gradients_wrong"] == 0
    assert len(found["run_time"]["seconds_of_30_updates"]["links"]["analytic"]) == 2
    assert {path.name for path in run.files} >= {"figure_1.png", "starts.png", "noise.png", "results.json"}
    assert any("to 0.1 % in 3 of 3 starts" in line for line in run.lines)


def test_the_chain_is_the_papers(tmp_path):
    from backdrive.experiments.chain_mass.world import ChainWorld

    world = ChainWorld(5)
    path = world.move(world.truth())
    assert path.status.converged.all()
    hits = torch.nonzero(path.status.impacts[:, 0]).flatten()
    assert 1.4 < float(hits[0]) / 30 < 1.6
    ball = path.velocity("ball")[:, 0]
    assert torch.allclose(ball[10], torch.tensor([1.5, 0.0], dtype=torch.float64), atol=1e-12)
    assert ball[60, 0] < 1.0
    assert float(world.mean_square(torch.tensor([7.0, 6.0], dtype=torch.float64))[0]) == 0.0


def test_windows_escape_from_a_minimum_that_is_not_the_least():
    from backdrive.experiments.chain_mass.world import ChainWorld

    world = ChainWorld(5)
    observed = world.observe(world.truth())
    whole, grown = (world.fit(observed, world.total(4.0), windows=windows) for windows in (1, 5))
    assert float(whole.value) == pytest.approx(6.0767, abs=1e-3)
    assert float(grown.value) == pytest.approx(7.0, rel=1e-9)
    assert grown.history.window.tolist() == sorted(grown.history.window.tolist())
