"""States and gradients have the same bits alone, in any company and order, on two threads, and step by step."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

import backdrive as bd

from .draw import Draw
from .families import Family
from .motions import Motions, draw_motions

COUNT, STEPS = 9, 12
EVERY = 5  # of Checkpoint
WORK = 50_000  # steps times links of a batch that two threads share

Results = dict[str, Tensor]
"""By name, the environments in the first dimension."""


def differing(family: Family, draw: Draw) -> dict[str, list[str]]:
    """Of a random batch: for every comparison the results whose bits differ."""
    motions = draw_motions(family, COUNT, draw, STEPS)
    while motions.count < 2:
        motions = draw_motions(family, COUNT, draw, STEPS)
    model, every = motions.world.model, list(range(motions.count))
    cotangents = [torch.from_numpy(draw.normal(motions.count, n)).to(family.dtype) for n in (model.nq, model.nv)]
    simulator = family.simulator(model, motions.dt)

    def run(index: list[int], simulator: bd.Simulator = simulator, how: Callable[..., Results] = _rollout) -> Results:
        return how(simulator, motions.some(index), [c[index] for c in cotangents])

    base = run(every)
    companies = {
        "alone": [draw.choice(every)],
        "two": [every[0], every[-1]],
        "company": [draw.choice(every) for _ in range(5)],
        "order": every[::-1],
    }
    found = {name: _differences(base, index, run(index)) for name, index in companies.items()}
    found["Checkpoint"] = _differences(base, every, run(every, how=_checkpoint))
    if not family.sweeps_alone:  # these start from the impulses of the step before, which a single step does not know
        found["step loop"] = _differences(base, every, run(every, how=_loop))
    many = every * (WORK // (motions.steps * max(model.nlink, 1) * motions.count) + 1)
    found["2 threads"] = _differences(base, many, run(many, family.simulator(model, motions.dt, threads=2)))
    return found


def _differences(base: Results, index: list[int], other: Results) -> list[str]:
    """Names of the results that differ; those that the other way of computing does not have are left out."""
    different = []
    for name, x in other.items():
        a, b = base[name][index], x
        if not torch.equal(a, b):
            by = float((a - b).abs().max() / a.abs().max())
            different.append(f"{name} by {by:.0e}")
    return different


def _inputs(motions: Motions, dtype: torch.dtype) -> dict[str, Tensor]:
    given = {"q": motions.start.q, "v": motions.start.v, "controls": motions.controls, "wrenches": motions.wrenches}
    return {name: x.to(dtype).clone().requires_grad_() for name, x in (given | motions.parameters).items()}


def _gradients(last: bd.State, cotangents: list[Tensor], x: dict[str, Tensor]) -> Results:
    given = {name: value for name, value in x.items() if value.numel()}
    loss = (last.q * cotangents[0]).sum() + (last.v * cotangents[1]).sum()
    found = torch.autograd.grad(loss, list(given.values()), allow_unused=True)
    over_time = ("controls", "wrenches")
    return {
        f"gradient of {name}": g.transpose(0, 1) if name in over_time else g
        for name, g in zip(given, found)
        if g is not None
    }


def _rollout(
    simulator: bd.Simulator, motions: Motions, cotangents: list[Tensor], adjoint: bd.Checkpoint | None = None
) -> Results:
    x = _inputs(motions, simulator.dtype)
    path = simulator.rollout(
        bd.State(x["q"], x["v"]), x["controls"], wrenches=x["wrenches"], adjoint=adjoint, steps=motions.steps,
        parameters={name: x[name] for name in motions.parameters},
    )  # fmt: skip
    found = {"q": path.q.detach().transpose(0, 1), "v": path.v.detach().transpose(0, 1)} if adjoint is None else {}
    found |= {"last q": path.last.q.detach(), "last v": path.last.v.detach()}
    return found | _gradients(path.last, cotangents, x)


def _checkpoint(simulator: bd.Simulator, motions: Motions, cotangents: list[Tensor]) -> Results:
    return _rollout(simulator, motions, cotangents, bd.Checkpoint(EVERY))


def _loop(simulator: bd.Simulator, motions: Motions, cotangents: list[Tensor]) -> Results:
    """Step by step. Gradients of parameters are sums over the steps, of which torch adds up the parts in its order."""
    x = _inputs(motions, simulator.dtype)
    state = bd.State(x["q"], x["v"])
    parameters = {name: x[name] for name in motions.parameters}
    states = [state]
    for t in range(motions.steps):
        state = simulator.step(state, x["controls"][t], wrench=x["wrenches"][t], parameters=parameters)
        states.append(state)
    found = {"q": torch.stack([s.q.detach() for s in states], 1), "v": torch.stack([s.v.detach() for s in states], 1)}
    gradients = _gradients(state, cotangents, x)
    sums = {f"gradient of {name}" for name in motions.parameters}
    return found | {name: g for name, g in gradients.items() if name not in sums}
