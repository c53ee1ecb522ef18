"""Environments of a batch, whose impacts come at different times, do not see each other: the same bits."""

import pytest
import torch
from impact_scenes import INTEGRATORS, Random, run, simulator

import backdrive as bd

BATCH, STEPS, DT = 37, 40, 1 / 60


def balls_and_a_rod(batch):
    scene = bd.Scene(2)
    scene.add_static(bd.HalfSpace((0.0, 1.0)), restitution=0.7, friction=0.3)
    for k in range(3):
        scene.add_body(f"ball{k}", bd.Circle(0.1), mass=0.5 + k, position=(0.5 * k, 0.6 + 0.1 * k), restitution=0.8)
    scene.add_body("rod", bd.Box(0.6, 0.1), mass=1.0, position=(0.5, 1.1), restitution=0.5)
    model = scene.build()
    random = Random(4, batch)
    state = model.initial_state(batch)
    inputs = {"q": state.q + random(-0.05, 0.05, model.nq), "v": state.v + random(-2.0, 2.0, model.nv)}
    inputs["mass"] = model.parameter("mass") * random(0.8, 1.2, model.nbody)
    inputs["restitution"] = random(0.3, 0.9, 5)
    return model, inputs


def results(sim, inputs):
    leaves = {name: x.clone().requires_grad_() for name, x in inputs.items()}
    path = run(sim, leaves, STEPS * DT)
    gradients = torch.autograd.grad(path.q.square().sum() + path.v.square().sum(), list(leaves.values()))
    assert path.status.impacts.sum() > 3 * len(inputs["q"])
    return [path.q.detach().transpose(0, 1), path.v.detach().transpose(0, 1), path.status.impacts.T, *gradients]


@pytest.mark.parametrize("integrator", INTEGRATORS)
def test_batches_and_threads_change_no_bit(integrator):
    model, inputs = balls_and_a_rod(BATCH)
    sim = simulator(model, DT, integrator, threads=1)
    together = results(sim, inputs)
    assert len(together[2].sum(1).unique()) > 3  # impacts come and go at different times
    for x, y in zip(results(simulator(model, DT, integrator, threads=2), inputs), together):
        assert torch.equal(x, y)
    for k in (0, 1, 7, 8, 33, 36):
        alone = results(sim, {name: x[k : k + 1] for name, x in inputs.items()})
        assert all(torch.equal(x[0], y[k]) for x, y in zip(alone, together))


def test_specialised_and_rolled_kernels_agree():
    model, inputs = balls_and_a_rod(8)
    inputs = {name: inputs[name] for name in ("q", "v", "restitution")}
    rolled, special = (
        results(bd.Simulator(model, DT, impacts=True, specialize=specialize), inputs) for specialize in (False, True)
    )
    assert torch.equal(rolled[2], special[2])
    for x, y in zip(rolled, special):
        assert (x - y).abs().max() <= 1e-7 * y.abs().max().clamp_min(1.0)
