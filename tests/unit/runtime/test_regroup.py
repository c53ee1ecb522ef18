"""Rollouts of MuJoCo's physics in parts, between which environments change their packs: no result depends on it."""

import pytest
import torch
from mujoco_worlds import load

import backdrive as bd
from backdrive.backends.llvm_cpu.launch import Regrouping
from backdrive.runtime import regroup
from backdrive.schema.signatures import RolloutSettings

BATCH, STEPS = 150, 8  # the last pack is not full


@pytest.mark.parametrize("every", range(1, 12))
@pytest.mark.parametrize("steps", range(1, 12))
def test_parts(steps, every):
    """They follow each other, and each is of whole segments or within one."""
    parts = list(regroup.parts_of(RolloutSettings(steps, min(every, steps))))
    assert [0, *(end for _, end in parts)] == [*(start for start, _ in parts), steps]
    for start, end in parts:
        assert 0 < end - start <= regroup.STEPS
        whole = start % every == 0 and (end % every == 0 or end == steps)
        assert whole or start // every == (end - 1) // every


def hoppers(threads: int) -> tuple[bd.Simulator, bd.State, torch.Tensor]:
    """Some fly, some stand, some are at the limits of their joints."""
    model = load("hopper")
    random = torch.Generator().manual_seed(0)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=random, dtype=torch.float64)

    start = model.initial_state(BATCH)
    state = bd.State(start.q + 0.1 * normal(BATCH, model.nq), start.v + normal(BATCH, model.nv))
    simulator = bd.Simulator(model, physics=bd.MuJoCo(integrator="rk4"), threads=threads)
    return simulator, state, normal(STEPS, BATCH, model.nu)


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("every", [1, 2, 3, 5, STEPS])
def test_results_do_not_depend_on_packs(every, threads, monkeypatch):
    simulator, state, controls = hoppers(threads)
    orders = []

    def sort(self: Regrouping, first: int, last: int, original=Regrouping.sort) -> None:
        original(self, first, last)
        assert sorted(self.order[first:last]) == list(range(first, last))
        orders.append(self.order[first:last].copy())

    monkeypatch.setattr(Regrouping, "sort", sort)

    def results() -> list[torch.Tensor]:
        path = simulator.rollout(state, controls, adjoint=bd.Checkpoint(every))
        return [path.q, path.v, path.last.q, path.last.v, path._numbers]

    monkeypatch.setattr(regroup, "LEAST", BATCH + 1)
    right = results()
    assert not orders
    monkeypatch.setattr(regroup, "LEAST", 1)
    assert all(map(torch.equal, results(), right))
    parts = list(regroup.parts_of(RolloutSettings(STEPS, every)))
    threads = simulator._program.threads_for(BATCH, STEPS)
    assert len(orders) == threads * len(parts) and any((order[1:] < order[:-1]).any() for order in orders)
