"""The experiment `locomotion`: a part is trained, scored in MuJoCo, filmed, kept; an interrupted one goes on."""

import json
import warnings

import matplotlib
import pytest
import torch

from backdrive import experiments, learn
from backdrive.experiments import locomotion

matplotlib.use("Agg")


def run(folder, **options):
    lines, bars = [], set()
    given = experiments.Run(folder, quick=True, seed=3, log=lines.append, options=options)
    given.progress = lambda what, done, total: bars.add(what)
    experiments.find("locomotion").run(given)
    assert len(bars) <= 1
    return json.loads((folder / "results.json").read_text("utf-8")), lines


@pytest.mark.slow
def test_a_part_is_trained_scored_drawn_and_kept(tmp_path, monkeypatch):
    films = []
    monkeypatch.setattr(experiments.Run, "film", lambda self, name, path, **_: films.append((name, path)))
    written, (line,) = run(tmp_path, env="Ant", seconds="0.5")
    assert written["complete"] and "Ant-seed3-0.5s" in line
    (part,) = written["results"]["parts"]
    assert part["env"] == "Ant" and part["seed"] == 3 and part["steps"] > 0
    assert part["mujoco"]["mean"] == pytest.approx(part["backdrive"]["mean"], rel=0.05)
    assert {"Ant-seed3-0.5s.json", "Ant.png"} <= set(written["files"])
    ((name, path),) = films
    assert name == "Ant-seed3-0.5s" and path.q.shape == (101, path.model.nq)
    policy = torch.load(tmp_path / "Ant-seed3-0.5s.policy.pt", weights_only=False)
    assert policy(torch.zeros(1, 105)).shape == (1, 8)
    again, (line,) = run(tmp_path, env="Ant", seconds="0.5")
    assert "kept" in line and again["results"]["parts"] == [part] and len(films) == 1


@pytest.mark.slow
def test_an_interrupted_part_goes_on(tmp_path, monkeypatch):
    monkeypatch.setattr(experiments.Run, "film", lambda self, name, path, **_: None)
    one = learn.Agent._one

    def interrupted(agent, spent):
        if agent.iterations == 3:
            raise KeyboardInterrupt
        one(agent, spent)

    with monkeypatch.context() as patch, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the interrupt
        patch.setattr(learn.Agent, "_one", interrupted)
        with pytest.raises(KeyboardInterrupt):
            run(tmp_path, env="Hopper", seconds="20")
    steps = learn.SHAC.load(tmp_path / "Hopper-seed3-20s.agent.pt").steps
    written, (goes_on, _) = run(tmp_path, env="Hopper", seconds="20")
    assert f"{steps:,} steps" in goes_on and written["results"]["parts"][0]["steps"] > steps


@pytest.mark.slow
@pytest.mark.parametrize("method", ["sac", "ppo"])
def test_other_methods_train_in_gymnasium_for_the_same_time(tmp_path, method):
    pytest.importorskip("stable_baselines3")
    written, (line,) = run(tmp_path, env="Hopper", seconds="2", method=method)
    (part,) = written["results"]["parts"]
    (row,) = written["results"]["table"]
    assert f"Hopper-{method}-seed3-2s" in line and part["method"] == method and part["steps"] > 0
    assert row["scores"] == [part["mujoco"]["mean"]] and row["seeds"] == [3]
    assert {"locomotion.png", "Hopper.png"} <= set(written["files"])
    again, (line,) = run(tmp_path, env="Hopper", seconds="2", method=method)
    assert "kept" in line and again["results"]["parts"] == [part]


def test_the_film_shows_the_motion_of_the_environment():
    from backdrive.envs import VectorEnv

    policy = learn.SHAC("MuJoCoHopper", num_envs=1, threads=1).policy()
    path = locomotion.motion(policy, "MuJoCoHopper", 0.1)
    env = VectorEnv("MuJoCoHopper", num_envs=1, threads=1)
    observation, _ = env.reset_torch(seed=0)
    for _ in range(12):
        observation = env.step_torch(policy(observation.float()).double())[0]
    assert torch.equal(path.last.q, env.state.q[0].detach())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"env": "Ants"}, "unknown env 'Ants'; did you mean 'Ant'?"),
        ({"method": "sack"}, "unknown method 'sack'; did you mean 'sac'?"),
        ({"seconds": "long"}, "--seconds must be a number > 0, got 'long'"),
        ({"seconds": "-1"}, "--seconds must be a number > 0"),
        ({"second": "1"}, "did you mean 'seconds'?"),
    ],
)
def test_wrong_options_are_told(tmp_path, options, message):
    with pytest.raises(experiments.WrongOption, match=message.replace("?", "\\?")):
        run(tmp_path, **options)
