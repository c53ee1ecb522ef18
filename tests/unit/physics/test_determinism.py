"""The same inputs give the same bits, whatever the batch, the lanes and the threads."""

import pytest
import torch
from differences import weights
from models import all_joints, random_controls, random_state, random_wrenches, robot

import backdrive as bd

STEPS, BATCH = 20, 1000
ALONE = (0, 1, 7, 8, 500, 996, 999)  # first and last lanes, and lanes of an incomplete pack
NAMES = ("mass", "com")


def everything(sim, rows, wrenches=True):
    """All outputs and gradients of the environments `rows` of a batch: each has its environments first."""
    model, dtype = sim.model, sim.dtype
    q, v = random_state(model, BATCH)
    x = {"q": q, "v": v, "controls": random_controls(model, STEPS, BATCH).transpose(0, 1)}
    if wrenches:
        x["wrenches"] = random_wrenches(model, STEPS, BATCH).transpose(0, 1)
    for name in NAMES:
        value = model.parameter(name)
        x[name] = value * (1 + 0.1 * weights(BATCH, *[1] * value.ndim).tanh())
    x = {name: t[rows].to(dtype).requires_grad_() for name, t in x.items()}
    path = sim.rollout(
        bd.State(x["q"], x["v"]), x["controls"].transpose(0, 1), parameters={n: x[n] for n in NAMES},
        wrenches=x["wrenches"].transpose(0, 1) if wrenches else None,
    )  # fmt: skip
    body = model.bodies[-1]
    outputs = {"path q": path.q, "path v": path.v, "position": path.position(body), "velocity": path.velocity(body)}
    loss = sum(
        (y * weights(*y.shape[:1], 1, *y.shape[2:], seed=k).to(dtype)).sum() for k, y in enumerate(outputs.values())
    )
    gradients = torch.autograd.grad(loss, list(x.values()))
    result = {name: y.detach().transpose(0, 1) for name, y in outputs.items()} | dict(zip(x, gradients))
    result["vdot"] = sim.forward_dynamics(bd.State(x["q"], x["v"])).detach()
    assert all(torch.isfinite(y).all() for y in result.values())
    return result


@pytest.mark.parametrize("integrator", [bd.SemiImplicitEuler(), bd.Midpoint()], ids=repr)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_bits(dtype, integrator):
    check(
        bd.Simulator(all_joints(3), 0.01, integrator=integrator, dtype=dtype, threads=1, specialize=False),
        wrenches=True,
    )


def test_bits_of_a_specialised_model():
    check(bd.Simulator(all_joints(3, dim=2), 0.01, threads=1, specialize=True), wrenches=True)


@pytest.mark.slow
def test_bits_of_a_specialised_robot():
    check(bd.Simulator(robot("laikago.urdf"), 0.002, threads=1, specialize=True), wrenches=False)


def check(sim, wrenches):
    sims = [
        bd.Simulator(
            sim.model, sim.dt, integrator=sim.integrator, dtype=sim.dtype, threads=n, specialize=sim.specialize
        )
        for n in (2, 3)
    ]
    together = everything(sim, slice(None), wrenches)
    for other in sims:
        again = everything(other, slice(None), wrenches)
        assert all(torch.equal(again[name], together[name]) for name in together)
    for row in ALONE:
        alone = everything(sim, slice(row, row + 1), wrenches)
        for name in together:
            assert torch.equal(alone[name][0], together[name][row]), f"{name} of environment {row}"
    some = everything(sims[0], slice(3, 16), wrenches)
    assert all(torch.equal(some[name], together[name][3:16]) for name in together)


def test_shared_parameters_and_threads():
    """A sum over environments, always in the same order."""
    model, totals = all_joints(3), []
    for threads in (1, 2):
        sim = bd.Simulator(model, 0.01, threads=threads, specialize=False)
        mass = model.parameter("mass").requires_grad_()
        path = sim.rollout(random_state(model, BATCH), steps=STEPS, parameters={"mass": mass})
        totals.append(torch.autograd.grad((path.v * weights(model.nv)).sum(), mass)[0])
    assert torch.equal(*totals)


@pytest.mark.parametrize("integrator", [bd.SemiImplicitEuler(), bd.Midpoint()], ids=repr)
def test_single_precision(integrator):
    """float32 is float64 with fewer digits: forward and gradients."""
    model = all_joints(3)
    double, single = (
        everything(bd.Simulator(model, 0.01, integrator=integrator, dtype=dtype, specialize=False), slice(0, 50))
        for dtype in (torch.float64, torch.float32)
    )
    for name, right in double.items():
        assert single[name].dtype == torch.float32
        assert (single[name] - right).abs().max() <= 3e-4 * right.abs().max(), name
        assert (single[name] - right).abs().median() <= 1e-5 * right.abs().max(), name
