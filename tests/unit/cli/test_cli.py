"""The command line: help, lists, runs and their ends, films, gradient checks, and errors in a line."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

import backdrive as bd
from backdrive import experiments
from backdrive.cli import commands as cli
from backdrive.runtime import execute

runner = CliRunner()


def call(*arguments: object):
    cli.console.width = 200
    result = runner.invoke(cli.app, [str(x) for x in arguments])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


@pytest.fixture
def world(tmp_path) -> Path:
    scene = bd.Scene(dim=2)
    scene.add_static(bd.HalfSpace(normal=(0, 1)))
    scene.add_body("ball", bd.Circle(0.2), mass=1.0, position=(0.0, 0.5), velocity=(1.0, 0.0))
    scene.save(tmp_path / "world.json")
    return tmp_path / "world.json"


@pytest.fixture
def experiment(monkeypatch):
    """An experiment that records, draws, and (if asked) is interrupted half-way."""
    stop = []

    class Module:
        @staticmethod
        def run(run):
            for k in run.track(range(4), "part"):
                run.record(**{f"part{k}": k})
                if k == 1:
                    run.file("note.txt").write_text("half")
                    if stop:
                        raise stop[0]
            run.say("found it")

    monkeypatch.setattr(experiments.importlib, "import_module", lambda name: Module)
    monkeypatch.setitem(experiments._EXPERIMENTS, "toy", experiments.Experiment("toy", "a toy", "nowhere", "toy"))
    return stop


def test_help_says_what_there_is():
    text = call("--help").stdout
    assert all(word in text for word in ("list", "run", "view", "gradcheck"))
    for command in ("list", "run", "view", "gradcheck"):
        result = call(command, "--help")
        assert result.exit_code == 0 and "Usage" in result.stdout
    assert call("--version").stdout.strip() == f"backdrive {bd.__version__}"


def test_help_of_run_names_the_options_of_all_experiments():
    text = call("run", "--help").stdout
    for name in experiments.names():
        for option in experiments.find(name).options:
            assert f"--{option}" in text.split(f"{name} also has", 1)[1]


def test_list_names_every_experiment():
    text = call("list").stdout
    assert "chain-mass" in text and all(name in text for name in experiments.names())


def test_a_run_fills_its_folder(tmp_path, experiment):
    result = call("run", "toy", "--quick", "--seed", "3", "--out", tmp_path / "out")
    assert result.exit_code == 0 and "found it" in result.stdout and "interrupted" not in result.stdout
    assert str(tmp_path / "out" / "results.json") in result.stdout
    content = json.loads((tmp_path / "out" / "results.json").read_text())
    assert content["complete"] and content["settings"] == {"quick": True, "seed": 3}
    assert content["results"] == {"part0": 0, "part1": 1, "part2": 2, "part3": 3}


def test_an_interrupted_run_keeps_what_was_done(tmp_path, experiment):
    experiment.append(KeyboardInterrupt())
    result = call("run", "toy", "--out", tmp_path)
    assert result.exit_code == 130 and "interrupted" in result.stdout and "note.txt" in result.stdout
    content = json.loads((tmp_path / "results.json").read_text())
    assert not content["complete"] and content["results"] == {"part0": 0, "part1": 1}


def test_missing_extras_are_named(tmp_path, experiment):
    experiment.append(ImportError("writing a .mp4 needs imageio-ffmpeg: pip install 'backdrive[view]'"))
    result = call("run", "toy", "--out", tmp_path)
    assert result.exit_code == 1 and "pip install 'backdrive[view]'" in result.stderr


def test_without_typer_the_command_says_what_to_install():
    code = "import sys; sys.modules['typer'] = None; import backdrive.cli"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 1 and "pip install 'backdrive[cli]'" in done.stderr and "Traceback" not in done.stderr


def test_view_writes_a_film(world, tmp_path):
    bd.load(world).initial_state().save(tmp_path / "state.json")
    film = tmp_path / "films" / "ball.gif"
    result = call("view", world, "--seconds", 0.2, "--out", film, "--trail", "ball", "--state", tmp_path / "state.json")
    assert result.exit_code == 0 and str(film) in result.stdout
    assert film.stat().st_size > 1000


def test_gradcheck_agrees(world):
    result = call("gradcheck", world, "--steps", 20, "--dt", 0.01)
    assert result.exit_code == 0 and "all agree to 1e-06" in result.stdout and "parameter mass" in result.stdout
    result = call("gradcheck", world, "--steps", 3, "--tolerance", 0, "--parameter", "gravity")
    assert result.exit_code == 3 and "INCONCLUSIVE" in result.stdout and "parameter gravity" in result.stdout


def test_gradcheck_finds_wrong_gradients(world, monkeypatch):
    right = execute.vjp
    monkeypatch.setattr(execute, "vjp", lambda *args: {name: 1.01 * x for name, x in right(*args).items()})
    result = call("gradcheck", world, "--steps", 3, "--dt", 0.01)
    assert result.exit_code == 1 and "WRONG" in result.stdout and result.stdout.strip().endswith("DISAGREE to 1e-06")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("run", "chain-mas"), "unknown experiment 'chain-mas'; did you mean 'chain-mass'?"),
        (("view", "nothing.json"), "no such file: nothing.json"),
        (("view", "WORLD", "--seconds", "-1"), "seconds must be > 0, got -1"),
        (("view", "WORLD", "--dt", "0"), "dt must be a positive number of seconds, got 0.0"),
        (("view", "WORLD", "--seconds", "0.1", "--out", "film.txt"), "an animation is a .mp4 or a .gif file"),
        (("view", "WORLD", "--seconds", "0.1", "--trail", "bal"), "did you mean 'ball'?"),
        (("gradcheck", "WORLD", "--parameter", "mas"), "unknown parameter 'mas'; did you mean 'mass'?"),
        (("gradcheck", "WORLD", "--state", "WORLD"), "not a backdrive state"),
    ],
)
def test_wrong_use_is_an_error_in_a_line(world, arguments, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = call(*(world if x == "WORLD" else x for x in arguments))
    assert result.exit_code == 2 and message in " ".join(result.stderr.split())
    assert "Traceback" not in result.output and not (tmp_path / "results").exists()


def test_motions_are_filmed(world, tmp_path):
    model = bd.load(world)
    bd.Simulator(model, 0.01).rollout(model.initial_state(), steps=20).save(tmp_path / "motion.bd")
    result = call("view", tmp_path / "motion.bd", "--film", tmp_path / "motion.gif")
    assert result.exit_code == 0 and "20 steps" in result.stdout and (tmp_path / "motion.gif").stat().st_size > 1000
    result = call("view", tmp_path / "motion.bd", "--dt", 0.1)
    assert result.exit_code == 2 and "is a motion" in " ".join(result.stderr.split())
    (tmp_path / "junk.bd").write_text("junk")
    result = call("view", tmp_path / "junk.bd", "--film", tmp_path / "junk.gif")
    assert result.exit_code == 2 and "not a backdrive trajectory" in " ".join(result.stderr.split())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--film", "film.avi"), "an animation is a .mp4 or a .gif file"),
        (("--html", "page.txt"), "a page is a .html file"),
        (("--html", "nowhere/page.html"), "there is no folder nowhere to write page.html to"),
        (("--film", "FOLDER.mp4"), "is a folder, where a file was wanted"),
        (("--trail", "bal"), "did you mean 'ball'?"),
        (("--track", "ball"), "track is for spatial worlds"),
    ],
)
def test_what_cannot_be_shown_is_refused_before_it_is_simulated(world, arguments, message, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "FOLDER.mp4").mkdir()
    monkeypatch.setattr(bd.Simulator, "rollout", lambda *args, **options: pytest.fail("it was simulated"))
    result = call("view", world, *arguments)
    assert result.exit_code == 2 and message in " ".join(result.stderr.split())


def test_worlds_of_three_dimensions_are_filmed(tmp_path):
    (tmp_path / "ball.xml").write_text(
        '<mujoco><worldbody><body><freejoint/><geom size="0.1"/></body></worldbody></mujoco>'
    )
    result = call("view", tmp_path / "ball.xml", "--seconds", 0.1, "--out", tmp_path / "ball.gif")
    assert result.exit_code == 0 and (tmp_path / "ball.gif").stat().st_size > 500


def test_experiments_have_options_of_their_own(tmp_path, experiment, monkeypatch):
    found = experiments.Experiment("toy", "a toy", "nowhere", "toy", options={"env": "a name", "seconds": "of it"})
    monkeypatch.setitem(experiments._EXPERIMENTS, "toy", found)
    result = call("run", "toy", "--env", "Ant", "--out", tmp_path, "--seconds=3", "--seed", "2")
    assert result.exit_code == 0
    settings = json.loads((tmp_path / "results.json").read_text())["settings"]
    assert settings == {"quick": False, "seed": 2, "env": "Ant", "seconds": "3"}
    for wrong, message in (
        (["--evn", "Ant"], "--env"),
        (["--env"], "--env needs a value"),
        (["Ant"], "unknown option"),
    ):
        result = call("run", "toy", *wrong, "--out", tmp_path)
        assert result.exit_code == 2 and message in result.output + (result.stderr or "")
