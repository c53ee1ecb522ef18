"""The campaign of random worlds finds what is wrong, and a few of its tasks find nothing."""

import json

import pytest
import torch

from benchmarks.campaign import energy, gradients, reproductions, work
from benchmarks.campaign.draw import Draw
from benchmarks.campaign.families import FAMILIES
from benchmarks.campaign.gradients import Functional, judge
from benchmarks.campaign.motions import Motions, draw_motions

NUMBER = {family.name: k for k, family in enumerate(FAMILIES)}
SMALL = "pair 2D circle-rectangle sweeps midpoint impacts"


def functional(name: str, count: int = 32, seed: int = 0) -> Functional:
    draw = Draw(seed)
    return Functional.random(draw_motions(FAMILIES[NUMBER[name]], count, draw), draw)


def test_names_of_families_are_unique():
    assert len(NUMBER) == len(FAMILIES)


@pytest.mark.slow
@pytest.mark.parametrize("part", list(work.PARTS))
@pytest.mark.parametrize(
    "name", [SMALL, "tree 2D rectangle sweeps euler plain", "pair 2D circle-circle interior euler impacts"]
)
def test_nothing_is_wrong(part, name, tmp_path):
    count = {"gradients": 64, "energy": 16, "bits": 1}[part]
    result = work.PARTS[part](work.Task(part, NUMBER[name], 0, count, 0), tmp_path)
    assert not result["wrong"] and sum(result["counts"].values()) >= count


@pytest.mark.slow
def test_one_world_of_a_task_is_the_same_alone():
    tasks = [work.Task("gradients", NUMBER[SMALL], 0, 12, 0, world) for world in (None, 1)]
    every, (alone,) = ([*task.worlds(5, draw_motions)] for task in tasks)
    assert len(every) > 2 and alone[0] == every[1][0] == 1
    assert torch.equal(alone[2].vector(), every[1][2].vector())


@pytest.mark.slow
def test_motions_touch_and_differences_are_clean():
    found = judge(functional(SMALL))
    assert found.touching.float().mean() > 0.8 and found.clean.float().mean() > 0.5
    assert found.error[found.clean].max() < gradients.DOUBLE.right


@pytest.mark.slow
def test_wrong_gradients_are_found(monkeypatch):
    """A gradient of which the part of one input is off by 1e-5 of it."""
    right = Motions.rollout

    class Slightly(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, bar):
            factor = torch.ones_like(bar)
            factor[:, 0] += 1e-4
            return bar * factor

    monkeypatch.setattr(Motions, "rollout", lambda self, sim, x: right(self, sim, Slightly.apply(x)))
    outcomes = judge(functional(SMALL)).outcomes()
    assert outcomes.count(gradients.WRONG) > 0.5 * (len(outcomes) - outcomes.count(gradients.UNDECIDED))


@pytest.mark.slow
def test_a_jump_is_not_clean(monkeypatch):
    """A kink at the motion itself, of which no mode tells."""
    states = Functional.states

    def kinked(self, path):
        found = states(self, path)
        return found + (found - found[:1]).abs() if len(found) > len(self.direction) else found

    monkeypatch.setattr(Functional, "states", kinked)
    one = functional(SMALL).some([0])
    assert judge(one).outcomes() == [gradients.UNDECIDED]


@pytest.mark.slow
def test_energy_that_is_gained_is_found():
    motions = energy.draw_worlds(FAMILIES[NUMBER[SMALL]], 8, Draw(1))
    gain, marked = energy.gains(motions)
    assert gain.max() < 1e-9 and not marked.any()
    pushed = Motions(motions.family, motions.world, motions.dt, motions.start, motions.controls,
                     motions.wrenches + 1.0, motions.parameters)  # fmt: skip
    assert energy.gains(pushed)[0].min() > 1e-9


@pytest.mark.slow
def test_reproductions_have_the_same_motion(tmp_path):
    one = functional(SMALL).some([3])
    how = {"part": "gradients", "family": NUMBER[SMALL], "number": 0, "world": 0, "motion": 3}
    folder = reproductions.save(tmp_path, how, one)
    found, again = reproductions.load(tmp_path / folder.rsplit("/", 1)[-1])
    assert found["dt"] == one.motions.dt and json.dumps(found)
    before, after = judge(one), judge(again)
    assert before.outcomes() == after.outcomes() and torch.equal(before.error, after.error)
