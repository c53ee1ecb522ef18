"""The experiments `policy-enhancement` and `sample-enhancement`: parts are trained, kept, drawn, and go on."""

import json
import warnings

import matplotlib
import pytest

from backdrive import experiments, learn
from backdrive.experiments import policy_enhancement, sample_enhancement
from backdrive.experiments.policy_enhancement import experiment as policy
from backdrive.experiments.sample_enhancement import experiment as samples

matplotlib.use("Agg")


def run(folder, name, **options):
    lines = []
    experiments.find(name).run(experiments.Run(folder, quick=True, seed=3, log=lines.append, options=options))
    return json.loads((folder / "results.json").read_text("utf-8")), lines


@pytest.fixture
def short(monkeypatch):
    """Parts of seconds."""
    monkeypatch.setattr(policy, "QUICK_EPOCHS", 6)
    monkeypatch.setattr(samples, "QUICK_EPOCHS", 2)
    monkeypatch.setattr(samples, "STEPS", 50)
    for module in (policy_enhancement, sample_enhancement):
        methods = __import__(f"{module.__name__}.methods", fromlist=["SOFT"])
        small = {"updates": 1, "explore": 40, "batch": 8, "actor": (8,), "critic": (8,)}
        monkeypatch.setattr(methods, "SOFT", {**methods.SOFT, **small})


@pytest.mark.slow
@pytest.mark.parametrize("method", ["sac", "sac-policy", "ppo", "sql", "mbpo", "shac", "bptt"])
def test_a_part_of_policy_enhancement_is_trained_drawn_and_kept(method, tmp_path, short):
    written, (line,) = run(tmp_path, "policy-enhancement", links="2", method=method)
    assert written["complete"] and line.startswith(f"{method}, 2 links: best relative reward")
    (part,) = written["results"]["parts"]
    assert (part["method"], part["links"], part["seeds"]) == (method, 2, [3, 4])
    kept = json.loads((tmp_path / f"{method}-2-quick-seed3.json").read_text())
    for curve in kept["curves"]:
        assert curve["samples"] == sorted(curve["samples"]) and 1200 <= curve["samples"][-1] <= 1400
        assert len(curve["scores"]) == len(curve["samples"]) >= 3
        assert all(score <= kept["most"] for score in curve["scores"])
        if method == "sac-policy":
            assert curve["simulated"][-1] == 1200 + 8 * (1200 - 40)
        else:
            assert curve["simulated"] == curve["samples"]
    assert kept["best"] == [max(curve["scores"]) for curve in kept["curves"]]
    assert {"policy_enhancement.png", "policy_enhancement_curves.png"} <= set(written["files"])
    assert not list(tmp_path.glob("*.pt"))
    again, lines = run(tmp_path, "policy-enhancement", links="2", method=method)
    assert "kept" in lines[0] and again["results"]["parts"] == [part]


@pytest.mark.slow
@pytest.mark.parametrize("method", ["sac", "sac-samples", "ppo", "sql", "mbpo", "shac"])
def test_a_part_of_sample_enhancement_is_trained_drawn_and_kept(method, tmp_path, short):
    written, _ = run(tmp_path, "sample-enhancement", method=method)
    (part,) = written["results"]["parts"]
    assert written["complete"] and part["method"] == method and part["seeds"] == [3]
    assert "sample_enhancement.png" in written["files"] and not list(tmp_path.glob("*.pt"))


@pytest.mark.slow
@pytest.mark.parametrize("method", ["sac-policy", "bptt"])
def test_an_interrupted_part_goes_on_as_if_it_had_not_been(method, tmp_path, short, monkeypatch):
    one, calls = learn.Agent._one, []

    def interrupted(agent, spent):
        calls.append(agent)
        if len(calls) == 5:
            raise KeyboardInterrupt
        one(agent, spent)

    with monkeypatch.context() as patch, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the interrupt
        patch.setattr(learn.Agent, "_one", interrupted)
        with pytest.raises(KeyboardInterrupt):
            run(tmp_path / "a", "policy-enhancement", links="1", method=method)
    assert list((tmp_path / "a").glob("*.pt"))
    found = [run(tmp_path / folder, "policy-enhancement", links="1", method=method)[0] for folder in "ab"]
    curves = [json.loads((tmp_path / x / f"{method}-1-quick-seed3.json").read_text())["curves"] for x in "ab"]
    assert curves[0] == curves[1]
    assert found[0]["results"]["parts"][0]["best"] == found[1]["results"]["parts"][0]["best"]


def test_the_samples_that_a_return_took():
    curve = {"samples": [10, 20, 30], "scores": [1.0, 5.0, 4.0]}
    assert [samples.first(curve, goal) for goal in (0.5, 4.5, 6.0)] == [10, 20, None]
    parts = [
        {"method": "sac", "best": [4.0, 8.0], "curves": [curve, {"samples": [10, 20], "scores": [0.0, 8.0]}]},
        {"method": "sac-samples", "best": [5.0], "curves": [curve]},
    ]
    quarter, half, _ = samples.needed(parts)
    assert quarter == {"return": 1.5, "sac": [20, 20], "sac-samples": [20]}
    assert half == {"return": 3.0, "sac": [20, 20], "sac-samples": [20]}
    assert samples.needed(parts[1:]) == []


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("policy-enhancement", {"links": "8"}, "--links must be a whole number from 1 to 7, got '8'"),
        ("policy-enhancement", {"links": "2.5"}, "--links must be a whole number from 1 to 7"),
        ("policy-enhancement", {"method": "sack"}, "did you mean 'sac'?"),
        ("sample-enhancement", {"method": "sac-policy"}, "unknown method 'sac-policy'"),
        ("sample-enhancement", {"links": "2"}, "unknown option"),
    ],
)
def test_wrong_options_are_told(tmp_path, name, options, message):
    with pytest.raises(experiments.WrongOption, match=message.replace("?", "\\?")):
        run(tmp_path, name, **options)
