"""Rollouts of MuJoCo's physics in parts, between which environments change their packs: no result depends on it."""

from collections.abc import Callable

import pytest
import torch
from mujoco_worlds import load

import backdrive as bd
from backdrive.backends.llvm_cpu.launch import Regrouping
from backdrive.runtime import execute, regroup
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


Results = list[torch.Tensor]


def path_of(path: bd.Trajectory) -> Results:
    return [path.q, path.v, path.last.q, path.last.v, path._numbers]


def check(monkeypatch: pytest.MonkeyPatch, simulator: bd.Simulator, results: Callable[[], Results], calls: int) -> None:
    """The results have the same bits in any order, which kernels are given in a number of calls."""
    orders = []

    def sort(self: Regrouping, first: int, last: int, original=Regrouping.sort) -> None:
        original(self, first, last)
        assert sorted(self.order[first:last]) == list(range(first, last))
        orders.append(self.order[first:last].copy())

    monkeypatch.setattr(Regrouping, "sort", sort)
    monkeypatch.setattr(execute, "LEAST", BATCH + 1)
    right = results()
    assert not orders
    monkeypatch.setattr(execute, "LEAST", 1)
    for _ in range(2):  # the second call knows the likeness from the first
        assert all(map(torch.equal, results(), right))
    threads = simulator._program.threads_for(BATCH, STEPS)
    assert len(orders) == 2 * threads * calls
    assert all((order[1:] < order[:-1]).any() for order in orders[len(orders) // 2 :]), "all know it"


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("every", [1, 2, 3, 5, STEPS])
def test_rollouts(every, threads, monkeypatch):
    simulator, state, controls = hoppers(threads)
    parts = list(regroup.parts_of(RolloutSettings(STEPS, every)))
    check(
        monkeypatch, simulator, lambda: path_of(simulator.rollout(state, controls, adjoint=bd.Checkpoint(every))),
        len(parts),
    )  # fmt: skip


@pytest.mark.parametrize("every", [1, 3])
def test_gradients(every, monkeypatch):
    simulator, state, controls = hoppers(1)
    mass = simulator.model.parameter("mass").clone().requires_grad_()
    leaves = [x.clone().requires_grad_() for x in (*state, controls)]

    def gradients() -> Results:
        q, v, u = leaves
        path = simulator.rollout(bd.State(q, v), u, parameters={"mass": mass}, adjoint=bd.Checkpoint(every))
        return list(torch.autograd.grad(path.last.v.square().sum() + path.last.q.sum(), [*leaves, mass]))

    parts = list(regroup.parts_of(RolloutSettings(STEPS, every)))
    check(monkeypatch, simulator, gradients, len(parts) + 1)


@pytest.mark.parametrize("normalize", [False, True])
def test_policies(normalize, monkeypatch):
    """They have an order, and no parts. Networks that normalize have kernels of another form."""
    simulator, state, _ = hoppers(1)
    sizes = (simulator.model.nq + simulator.model.nv, 8, simulator.model.nu)
    policy = bd.MLP(sizes, generator=torch.Generator().manual_seed(0), normalize=normalize)

    def results() -> Results:
        path = simulator.rollout(state, policy=policy, steps=STEPS)
        return [*path_of(path), *torch.autograd.grad(path.last.v.square().sum(), list(policy.parameters()))]

    check(monkeypatch, simulator, results, 2)
