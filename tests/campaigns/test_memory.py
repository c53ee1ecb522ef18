"""What the backward pass keeps and where it is cut changes memory, not gradients (unless it is told to)."""

import pytest
import torch
from differences import weights
from models import all_joints, random_controls, random_state, random_wrenches

import backdrive as bd

DT, STEPS, BATCH = 0.01, 12, 3
INTEGRATORS = (bd.SemiImplicitEuler(), bd.Midpoint())
NAMES = ("mass", "com", "anchor", "damping", "gravity")


def leaves(model, wrenches=True, batched=False):
    q, v = random_state(model, BATCH)
    x = {"q": q, "v": v, "controls": random_controls(model, STEPS, BATCH)}
    if wrenches:
        x["wrenches"] = random_wrenches(model, STEPS, BATCH)
    for name in NAMES:
        value = model.parameter(name)
        x[name] = torch.stack([value, 1.1 * value, 0.9 * value]) if batched else value
    return {name: t.requires_grad_() for name, t in x.items()}


def path_of(sim, x, adjoint=None, start=0, stop=STEPS, state=None):
    wrenches = x["wrenches"][start:stop] if "wrenches" in x else None
    parameters = {n: x[n] for n in NAMES}
    state = bd.State(x["q"], x["v"]) if state is None else state
    return sim.rollout(state, x["controls"][start:stop], wrenches=wrenches, parameters=parameters, adjoint=adjoint)


def loss_of(q, v, numbers):
    """Every state weighted by its number, so that kept ones count alike however many are kept."""
    total = 0.0
    for k, t in enumerate(numbers):
        total = total + (q[k] * weights(*q.shape[1:], seed=int(t))).sum()
        total = total + (v[k] * weights(*v.shape[1:], seed=100 + int(t))).sum()
    return total


def gradients(loss, x):
    return dict(zip(x, torch.autograd.grad(loss, list(x.values()))))


def assert_same(mine, right, relative=1e-12):
    for name in right:
        scale = right[name].abs().max().item()
        torch.testing.assert_close(mine[name], right[name], rtol=relative, atol=relative * max(scale, 1e-3))


@pytest.mark.parametrize("integrator", INTEGRATORS, ids=repr)
@pytest.mark.parametrize("every", [2, 3, 4, 5, 7, 11, 12, 13, 50])  # dividing 12 and not; longer than the rollout
def test_checkpoints(every, integrator):
    model = all_joints(1)
    sim, x = bd.Simulator(model, DT, integrator=integrator, specialize=False), leaves(model)
    stored, kept = path_of(sim, x), path_of(sim, x, bd.Checkpoint(every))
    assert kept.steps.tolist() == [*range(0, STEPS, every), STEPS]
    assert torch.equal(kept.q, stored.q[kept.steps])
    assert torch.equal(kept.v, stored.v[kept.steps])
    assert torch.equal(kept.status.clipped, stored.status.clipped)
    right = gradients(loss_of(stored.q[kept.steps], stored.v[kept.steps], kept.steps), x)
    assert_same(gradients(loss_of(kept.q, kept.v, kept.steps), x), right)


@pytest.mark.parametrize("wrenches", [False, True])
@pytest.mark.parametrize("batched", [False, True])
def test_checkpoints_of_other_kernels(wrenches, batched):
    model = all_joints(1, dim=2)
    for specialize in (False, True) if wrenches != batched else (False,):
        sim, x = bd.Simulator(model, DT, specialize=specialize), leaves(model, wrenches, batched)
        stored, kept = path_of(sim, x), path_of(sim, x, bd.Checkpoint(5))
        right = gradients(loss_of(stored.q[kept.steps], stored.v[kept.steps], kept.steps), x)
        assert_same(gradients(loss_of(kept.q, kept.v, kept.steps), x), right)


def test_checkpoint_of_every_step_is_storing():
    model = all_joints(1)
    sim, x = bd.Simulator(model, DT, specialize=False), leaves(model)
    paths = [path_of(sim, x), path_of(sim, x, bd.Checkpoint(1))]
    first, second = (gradients(loss_of(p.q, p.v, p.steps), x) for p in paths)
    assert all(torch.equal(first[name], second[name]) for name in x)


@pytest.mark.parametrize("integrator", INTEGRATORS, ids=repr)
@pytest.mark.parametrize("cut", [1, 3, 5, 12, 20])
def test_truncation(cut, integrator):
    """As cutting the graph by hand, at every state whose number is a multiple of `cut`."""
    model = all_joints(1)
    sim, x = bd.Simulator(model, DT, integrator=integrator, specialize=False), leaves(model)
    path = path_of(sim, x, bd.Truncated(cut))
    pieces, state = [], None
    for start in range(0, STEPS, cut):
        piece = path_of(sim, x, start=start, stop=min(start + cut, STEPS), state=state)
        pieces.append((piece.q, piece.v) if start == 0 else (piece.q[1:], piece.v[1:]))
        state = piece[-1].detach()
    q, v = (torch.cat([piece[k] for piece in pieces]) for k in range(2))
    assert torch.equal(path.q, q)
    assert torch.equal(path.v, v)
    assert_same(gradients(loss_of(path.q, path.v, path.steps), x), gradients(loss_of(q, v, path.steps), x))


@pytest.mark.parametrize("integrator", INTEGRATORS, ids=repr)
def test_rollout_is_a_chain_of_steps(integrator):
    model = all_joints(1)
    sim, x = bd.Simulator(model, DT, integrator=integrator, specialize=False), leaves(model)
    path, state = path_of(sim, x), bd.State(x["q"], x["v"])
    states = [state]
    for t in range(STEPS):
        parameters = {n: x[n] for n in NAMES}
        states.append(sim.step(states[-1], x["controls"][t], wrench=x["wrenches"][t], parameters=parameters))
    q, v = torch.stack([s.q for s in states]), torch.stack([s.v for s in states])
    assert torch.equal(path.q, q)
    assert torch.equal(path.v, v)
    assert_same(gradients(loss_of(path.q, path.v, path.steps), x), gradients(loss_of(q, v, path.steps), x))


@pytest.mark.parametrize("also_path", [False, True])
@pytest.mark.parametrize(
    "adjoint", [None, bd.Checkpoint(5), bd.Checkpoint(12), bd.Truncated(3), bd.Truncated(5), bd.Truncated(12)], ids=repr
)
def test_last_state(adjoint, also_path):
    """`path.last` is the last row of the path, in gradients too."""
    model = all_joints(1)
    sim, x = bd.Simulator(model, DT, specialize=False), leaves(model)
    path = path_of(sim, x, adjoint)
    assert torch.equal(path.last.q, path.q[-1])
    assert torch.equal(path.last.v, path.v[-1])
    both = []
    for q, v in (path.last, (path.q[-1], path.v[-1])):
        loss = (q * weights(*q.shape, seed=1)).sum() + (v * weights(*v.shape, seed=2)).sum()
        if also_path:
            loss = loss + loss_of(path.q, path.v, path.steps)
        gradient = torch.autograd.grad(loss, list(x.values()), retain_graph=True)
        both.append(dict(zip(x, gradient)))
    assert_same(*both)
    assert both[0]["controls"][-1].abs().max() > 0
