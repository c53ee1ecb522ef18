"""laikago-table: the plain equations move as the engine does, and the table says what was measured."""

import os
from pathlib import Path

import matplotlib
import numpy as np
import pytest
import torch
from quick_runs import quick_run

pytest.importorskip("pinocchio")  # example-robot-data comes with it

import backdrive as bd
from backdrive import experiments
from backdrive.envs.laikago import FOOT, HEIGHT
from backdrive.experiments import Run
from benchmarks import laikago, laikago_table, timing
from benchmarks.laikago_table import Settings, Tool, World
from benchmarks.peers import quadruped, with_mujoco, with_torch

matplotlib.use("Agg")
STEPS = 24


@pytest.fixture(scope="module")
def world() -> World:
    return World(torch.Generator().manual_seed(3), STEPS)


@pytest.fixture
def low(world, monkeypatch) -> World:
    """Released so low that it lands within a few steps."""
    q = world.start.q.clone()
    q[2] = HEIGHT + 0.002
    monkeypatch.setattr(world, "start", bd.State(q, world.start.v))
    return world


def request(world: World, sweeps: int = 60) -> dict:
    settings = Settings((STEPS,), 0.0, 1e9, True)
    return world.request(settings) | {"sweeps": sweeps, "steps": (STEPS,)}


def test_it_is_in_the_registry():
    assert "Qiao" in experiments.find("laikago-table").paper
    assert "laikago-table" in experiments.names()


def test_without_the_repository_it_says_where_it_is(tmp_path, monkeypatch):
    """As an installed package has it: no folder `benchmarks` above it, nor in the current folder."""
    monkeypatch.setattr(experiments, "__file__", os.fspath(tmp_path / "site/backdrive/experiments/__init__.py"))
    monkeypatch.chdir(tmp_path)
    assert "laikago-table" not in experiments.names() and "chain-mass" in experiments.names()
    with pytest.raises(ImportError, match="is in backdrive's repository"):
        experiments.find("laikago-table").run(Run(tmp_path / "out"))
    assert not (tmp_path / "out").exists()


def test_it_is_released_from_the_air_and_lands_on_its_feet():
    world = World(torch.Generator().manual_seed(0), 300)
    path = world.simulator.rollout(world.start, world.controls)
    contacts = path.status.contacts
    fall = (2 * laikago_table.LIFT / 9.81) ** 0.5 / laikago.DT
    assert int(torch.nonzero(contacts)[0]) == pytest.approx(fall, abs=3)
    assert path.status.converged.all()
    assert (contacts[200:] == 4).all()
    limits = torch.tensor([[-1.0472, 0.8727], [-0.5236, 3.9270], [-2.7751, -0.6109]], dtype=torch.float64)
    angles = path.q[:, 7:].reshape(-1, 3)
    assert (angles - limits[:, 0]).min() > 0.1 and (limits[:, 1] - angles).min() > 0.1  # the plain equations have none


def test_the_plain_equations_move_as_the_engine_does(low):
    forward, gradient = with_torch.prepare(request(low), STEPS)
    last, bars = low.gradient(STEPS)
    path = low.simulator.rollout(low.start, low.controls)
    assert path.status.contacts[0] == 0 and path.status.contacts.max() == 4
    q, v = forward()
    assert np.abs(last.q.detach().numpy() - q).max() < 1e-9
    assert np.abs(last.v.detach().numpy() - v).max() < 1e-7

    def tangent(parts):
        q_bar, v_bar, u_bar = (np.asarray(part) for part in parts)
        return np.concatenate([with_mujoco.to_tangent(low.start.q.numpy(), q_bar, 18), v_bar, u_bar.ravel()])

    ours, theirs = tangent(bars), tangent(gradient())
    assert np.linalg.norm(ours - theirs) < 1e-6 * np.linalg.norm(ours)


def test_few_sweeps_move_otherwise(low):
    """The comparison sees it if contacts are not solved."""
    q, _ = with_torch.prepare(request(low, sweeps=1), STEPS)[0]()
    last, _ = low.gradient(STEPS)
    assert np.abs(last.q.detach().numpy() - q).max() > 1e-6


def test_gradients_agree_with_differences(low, tmp_path):
    run = Run(tmp_path)
    laikago_table.check_gradients(run, low, (STEPS,))
    found = run.results["gradient_check"][str(STEPS)]
    assert found["finite"] and found["switched"] <= 3
    assert found["largest_error"] < 1e-6


def test_the_robots_numbers():
    numbers = laikago.numbers(laikago.on_floor())
    assert len(numbers["legs"]) == quadruped.FEET
    mass = numbers["trunk"]["mass"] + sum(joint["mass"] for leg in numbers["legs"] for joint in leg["joints"])
    assert mass == pytest.approx(float(bd.load(laikago.on_floor()).parameter("mass").sum()))
    assert numbers["legs"][0]["radius"] == FOOT


def test_memory_and_time_are_seen():
    calls = []
    halves = timing.shortest(lambda: calls.append(1), 0.01)
    assert len(halves) == timing.HALVES and all(0 < x < 1e-3 for x in halves)
    if not Path("/proc/self/clear_refs").exists():
        pytest.skip("only Linux can reset the peak")
    for _ in range(2):
        grown = timing.growth(lambda: [torch.ones(62_500, dtype=torch.float64) for _ in range(5)])
    assert grown == pytest.approx(2.5, rel=0.2)


def test_the_experiment(tmp_path, monkeypatch):
    """With backdrive itself, one tool that is not installed, and one that is left out."""
    monkeypatch.setattr(laikago_table, "QUICK", Settings((50,), 0.02, 10.0, False))
    tools = (
        Tool("backdrive", "with_backdrive", place=""),
        Tool("CasADi", "with_casadi"),
        Tool("JAX", "with_jax", slow=True),
    )
    monkeypatch.setattr(laikago_table, "TOOLS", tools)
    monkeypatch.setenv("BACKDRIVE_PEERS", os.fspath(tmp_path / "nowhere"))
    run = quick_run("laikago-table", tmp_path / "out")
    found = run.results
    assert run.names == {"laikago.png", "laikago.mp4", "laikago.html", "tables.md", "results.json"}
    row = found["tools"]["backdrive"]["rows"]["50"]
    assert 0 < min(row["forward"]) < min(row["gradient"]) < 1e-3
    assert found["agreement"]["backdrive"]["50"] == {"motion": 0.0, "gradient": 0.0}
    assert found["goals"]["50"]["values"]["forward"] == min(row["forward"])
    assert 0 < found["seconds_of_a_step"]["air"] < found["seconds_of_a_step"]["standing"]
    assert found["tools"]["CasADi"]["missing"] == "not installed: make peers"
    assert found["tools"]["JAX"]["missing"] == "left out in a quick run"
    table = (tmp_path / "out" / "tables.md").read_text("utf-8")
    assert "| CasADi: not installed: make peers |" in table
    assert "| *quoted: PyTorch, in the paper* | 196 |" in table


def test_cells_of_tools_that_did_not_do_everything():
    row = {"forward": [2e-6, 1e-6], "gradient": [8e-6, 4e-6], "memory": 1.0, "compile": 2.0}
    one = {"version": "x 1", "settings": "y", "rows": {"50": row}, "stopped": 500}
    lines = laikago_table.tables({"x": one}, (50, 100, 500)).splitlines()
    assert "| x | 0.001 | – | too slow | 100 % |" in lines
    assert "| x | 0.003 | – | too slow |" in lines
    assert "| x | x 1 | y | 2.0 |" in lines
