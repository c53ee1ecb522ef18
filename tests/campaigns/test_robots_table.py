"""robots-table: the robot stands and steps, the controllers are the paper's, and the table counts what it says."""

import matplotlib
import pytest
import torch
from quick_runs import quick_run

from backdrive import experiments
from backdrive.experiments import robots_table
from backdrive.experiments.robots_table import CALLED, COMPILED, PAPER, SENSORS, SIZES, QuadrupedWorld

matplotlib.use("Agg")
STEPS = 40


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.fixture(scope="module")
def world() -> QuadrupedWorld:
    return QuadrupedWorld(generator())


def test_it_is_in_the_registry():
    found = experiments.find("robots-table")
    assert "Degrave" in found.paper and "128 quadrupeds" in found.summary


def test_the_controllers_are_those_of_the_paper(world):
    assert world.model.nu == 16 and world.model.nlink == 17
    seen = world.simulator.observe(world.start(2), SENSORS)
    assert seen.shape == (2, 78) and robots_table.clock(STEPS).shape == (STEPS, 3)
    for name, sizes in SIZES.items():
        assert sizes[0] == 81 and sizes[-1] == 16
        policy = robots_table.controller(name, generator(), COMPILED)
        assert f"{sum(weight.numel() for weight in policy.parameters()):,}" == name


def test_the_robot_stays_on_its_feet_and_moves_them(world):
    policy = robots_table.controller("1,296", generator(2), COMPILED)
    with torch.no_grad():
        path = world.move(policy, COMPILED, 8, 300)
    assert path.status.converged.all()
    assert path.position("trunk")[..., 2].min() > 0.5
    feet = torch.stack([path.position(foot) for foot in robots_table.FEET])
    assert feet[..., 2].amax() - feet[..., 2].amin() > 0.005  # m: it shuffles
    assert path.controls.std(0).min() > 1e-3
    assert 1.0 < path.status.contacts.double().mean() < 4.0


def test_compiled_and_called_controllers_agree(world):
    policy = robots_table.controller("1,296", generator(2), COMPILED)
    compiled, called = (world.gradient(policy, way, 3, STEPS)[0] for way in (COMPILED, CALLED))
    assert (compiled - called).abs().max() <= 1e-10 * called.abs().max()
    error, switched = robots_table.gradient_error(world, policy, COMPILED, STEPS)
    assert switched or error < 1e-6


def test_the_experiment(tmp_path, monkeypatch, world):
    """The small controller alone: kernels for single precision take a while to compile."""
    small = {key: seconds for key, seconds in PAPER.items() if key[0] == "1,296"}
    monkeypatch.setattr(robots_table, "PAPER", small)
    monkeypatch.setattr(robots_table, "WAYS", {"1,296": (COMPILED, CALLED)})
    monkeypatch.setattr(robots_table, "SINGLE", ())
    monkeypatch.setattr(robots_table, "QUICK", robots_table.RobotsTableSettings(0.1, 2, 1))
    monkeypatch.setattr(robots_table, "QuadrupedWorld", lambda generator: world)
    run = quick_run("robots-table", tmp_path)
    assert run.names == {"seconds.png", "robots.mp4", "robots.html", "results.json"}
    checks = run.results["checks"]["1,296"]
    assert checks["values"] < 1e-10 and checks["gradients"] < 1e-10
    table = run.results["table"]
    assert {(row["parameters"], row["robots"], row["way"]) for row in table} == {
        (*key, way) for key in small for way in (COMPILED, CALLED)
    }
    for row in table:
        least = row["with"]["least"]
        assert least <= row["with"]["median"] <= row["with"]["most"]
        assert row["ratio"] == pytest.approx(least / row["without"]["least"])
        paper = PAPER[row["parameters"], row["robots"]][0]
        assert row["faster_than_paper"]["with"] == pytest.approx(paper / least)
        assert row["faster_than_module"] == 1.0 if row["way"] == CALLED else row["faster_than_module"] > 1.0
    assert len(run.lines) == 5
