"""Run as a script with the name of a call: it prints "ready", calls, and expects a SIGINT from its parent meanwhile.

It prints "interrupted" when the call has ended so, and "the same bits" once a short call gave what it gave before.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable

import torch
from torch import Tensor

import backdrive as bd


def boxes(count: int = 3, apart: float = 0.05) -> bd.Model:
    """Boxes that fall on a floor, one on the other; apart: gaps between them, m."""
    scene = bd.Scene(dim=2)
    scene.add_static(bd.HalfSpace((0.0, 1.0), 0.0))
    for k in range(count):
        scene.add_body(f"box {k}", bd.Box(0.3, 0.2), mass=1.0, position=(0.01 * k, 0.1 + apart + (0.2 + apart) * k))
    return scene.build()


def pendulum() -> bd.Model:
    scene = bd.Scene(dim=3)
    link = scene.add_body("link", bd.Box(0.3, 0.05, 0.05), mass=0.1, position=(0.15, 0.0, 0.0))
    scene.add_motor("motor", joint=scene.add_joint("joint", bd.Hinge(axis=(0, 1, 0)), child=link, anchor=(0, 0, 0)))
    return scene.build()


def repeated(state: bd.State, *batch: int) -> bd.State:
    """A batch that takes the memory of one."""
    return bd.State(state.q.expand(*batch, -1), state.v.expand(*batch, -1))


def long_rollout(threads: int) -> Callable[[], object]:
    model = boxes()
    sim = bd.Simulator(model, dt=0.01, threads=threads)
    start = repeated(model.initial_state(), 32)
    sim.rollout(start, steps=2)
    return lambda: sim.rollout(start, steps=300_000)


def long_backward() -> Callable[[], object]:
    model = pendulum()
    sim, start = bd.Simulator(model, dt=0.01), model.initial_state()
    u = torch.zeros(2_000_000, 1, dtype=torch.float64, requires_grad=True)
    sim.rollout(start, u[:2]).q.sum().backward()
    loss = sim.rollout(start, u).last.q.sum()
    return lambda: [loss.backward(retain_graph=True) for _ in range(100)]


def big_batch() -> Callable[[], object]:
    model = boxes(8, apart=0.0)
    sim, start = bd.Simulator(model, dt=0.01, threads=1), model.initial_state()
    sim.step(start)
    many = repeated(start, 1_000_000)
    return lambda: sim.step(many)


def pile(worlds: int) -> Callable[[], object]:
    model = boxes(60)
    sim = bd.Simulator(model, dt=0.01, sparse=True, impacts=False, threads=2)
    start = repeated(model.initial_state(), worlds)
    sim.rollout(start, steps=2)
    return lambda: sim.rollout(start, steps=100_000)


def crowd() -> Callable[[], object]:
    """Fast bodies of very different masses: a step takes all of its budget."""
    scene = bd.Scene(dim=2)
    for normal, offset in (((0, 1), 0), ((1, 0), -1), ((-1, 0), -1), ((0, -1), -2)):
        scene.add_static(bd.HalfSpace(normal, offset), restitution=1.0, friction=1.0)
    for k in range(24):
        position, shape = (-0.9 + 0.25 * (k % 8), 0.12 + 0.25 * (k // 8)), bd.Box(0.2, 0.2) if k % 2 else bd.Circle(0.1)
        scene.add_body(f"{k}", shape, mass=10.0 ** (k % 7 - 3), position=position, restitution=1.0, friction=1.0)
    model = scene.build()
    sim, start = bd.Simulator(model, dt=1 / 60, impacts=True, sparse=False, threads=1), model.initial_state()
    sim.step(start)
    v = 30.0 * torch.randn(8, model.nv, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    return lambda: sim.rollout(bd.State(start.q.expand(8, -1), v), steps=1000)


def plan() -> Callable[[], object]:
    from backdrive.control import ILQR, Cost, optimize

    model = pendulum()
    sim, start, cost = bd.Simulator(model, dt=0.01), model.initial_state(), Cost(lambda s, u, t: u.square().sum())
    u, method = torch.ones(30_000, 1, dtype=torch.float64), ILQR(tolerance=1e-300)
    optimize(sim, cost, start, u[:3])
    return lambda: [optimize(sim, cost, start, u, method=method) for _ in range(1000)]


def policy() -> Callable[[], object]:
    model = pendulum()
    sim, start = bd.Simulator(model, dt=0.01), repeated(model.initial_state(), 512)
    network = bd.MLP((2, 16, 1)).double()
    sim.rollout(start, policy=network, steps=2)
    return lambda: [sim.rollout(start, policy=network, steps=3000) for _ in range(1000)]


CALLS = {
    "rollout": lambda: long_rollout(1),
    "rollout on threads": lambda: long_rollout(2),
    "backward": long_backward,
    "one step of a big batch": big_batch,
    "pile": lambda: pile(1),
    "piles": lambda: pile(3),
    "crowd": crowd,
    "plan": plan,
    "policy": policy,
}


def bits() -> Tensor:
    """Of a short rollout."""
    model = boxes()
    path = bd.Simulator(model, dt=0.01).rollout(model.initial_state(), steps=30)
    return path.q


def main(name: str) -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)  # jobs in the background ignore it
    before, call = bits(), CALLS[name]()
    print("ready", flush=True)
    try:
        call()
    except KeyboardInterrupt:
        print("interrupted", flush=True)
        assert torch.equal(bits(), before)
        print("the same bits")


if __name__ == "__main__":
    main(sys.argv[1])
