"""rollout(clip=c): between the steps of the backward pass, the derivative of each state is at most c long."""

import functools
import math

import pytest
import torch
from hoppers import Limited, hopping, start
from scenes import leaves, randn

import backdrive as bd

STEPS, BATCH = 12, 5
SIMULATORS = {
    "rigid": lambda: bd.Simulator(hopping().model, 0.01, physics="rigid", threads=1),
    "mujoco": lambda: hopping("Euler"),
    "rk4": lambda: hopping("RK4"),
}
WAYS = ("controls", "checkpoint", "truncated", "compiled", "torch", "function")
FORCED = {"checkpoint": bd.Checkpoint(5), "truncated": bd.Truncated(5)}


def by_hand(sim, state, policy, limit, cut=0):
    """The path of a loop of steps whose states are limited."""
    path, controls = [state], []
    for t in range(STEPS):
        if cut and t and t % cut == 0:
            state = state.detach()
        controls.append(policy(state, t))
        state = sim.step(state, controls[-1])
        state = bd.State(*Limited.apply(limit, *state)) if t < STEPS - 1 else state
        path.append(state)
    return torch.stack([x.q for x in path]), torch.stack([x.v for x in path]), torch.stack(controls)


def rolled_out(sim, way, state, u, net, **options):
    if way == "function":
        return sim.rollout(state, policy=lambda state, t: net(torch.cat(state, -1)), steps=STEPS, **options)
    if way in ("compiled", "torch"):
        net.compiled = way == "compiled"
        return sim.rollout(state, policy=net, steps=STEPS, **options)
    return sim.rollout(state, u, adjoint=FORCED.get(way), **options)


def control_of(u, net, state, t):
    return net(torch.cat(state, -1)) if u is None else u[t]


def network(sim, seed):
    return bd.MLP((2 * sim.model.nv, 6, sim.model.nu), generator=torch.Generator().manual_seed(seed))


def loss_of(q, v, controls, steps):
    """Different weights for every number, at the steps that were kept."""
    keep = slice(None) if steps is None else steps
    terms = zip((q, v, controls), (randn(STEPS + 1, *x.shape[1:], seed=k) for k, x in enumerate((q, v, controls))))
    return sum((x * w[: len(x)][keep if k < 2 else slice(None)]).sum() for k, (x, w) in enumerate(terms))


@pytest.mark.parametrize("physics", SIMULATORS)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("limit", [0.5, 8.0])
def test_gradient_is_that_of_a_loop_with_limited_states(physics, way, limit):
    sim, net = SIMULATORS[physics](), network(SIMULATORS[physics](), 3)
    state, u = start(BATCH), 0.5 * randn(STEPS, BATCH, sim.model.nu, seed=4)
    found = []
    for hand in (False, True):
        q, v, control = leaves(*state, u)
        given = control if way in ("controls", *FORCED) else None
        if hand:
            policy = functools.partial(control_of, given, net)
            qs, vs, us = by_hand(sim, bd.State(q, v), policy, limit, 5 if way == "truncated" else 0)
            (loss_of(qs, vs, us, None) if way != "checkpoint" else _ends(qs, vs, us)).backward()
        else:
            path = rolled_out(sim, way, bd.State(q, v), control, net, clip=limit)
            with pytest.raises(RuntimeError, match="known after"):
                _ = path.adjoint_status
            whole = loss_of(path.q, path.v, path.controls, None)
            (whole if way != "checkpoint" else _ends(path.q, path.v, path.controls)).backward()
            status = path.adjoint_status
        inputs = [q, v, control] if given is not None else [q, v, *net.parameters()]
        found.append([x.grad.clone() for x in inputs])
        net.zero_grad()
    for mine, reference in zip(*found, strict=True):
        assert (mine - reference).abs().max() <= 1e-9 * reference.abs().max()
    assert bool(status.finite.all()) and status.norm.shape == (STEPS, BATCH)
    assert torch.equal(status.clipped[:-1], status.norm[:-1] > limit) and bool(status.clipped.any())
    assert not bool(status.clipped[-1].any())  # The derivative with respect to the last state is the loss's own.


def _ends(q, v, u):
    """Of the first and last states, and all controls."""
    return sum((x[k] * randn(*x.shape[1:], seed=k + 2)).sum() for x in (q, v) for k in (0, -1)) + (u**2).sum()


@pytest.mark.parametrize("way", WAYS)
def test_a_large_limit_changes_no_bit(way):
    sim, net, found = hopping(), network(hopping(), 5), []
    for options in ({}, {"clip": math.inf}, {"clip": 1e9}):
        q, v, u = leaves(*start(BATCH), 0.5 * randn(STEPS, BATCH, sim.model.nu, seed=4))
        path = rolled_out(sim, way, bd.State(q, v), u, net, **options)
        (path.last.q.sum() + path.v.square().sum()).backward()
        found.append([q.grad, v.grad, *(x.grad.clone() if x.grad is not None else u.grad for x in net.parameters())])
        net.zero_grad()
    for other in found[1:]:
        assert all(torch.equal(x, y) for x, y in zip(found[0], other, strict=True))


@pytest.mark.parametrize("way", ["controls", "compiled", "torch"])
def test_what_is_not_finite_is_dropped_and_counted(way):
    """A NaN in the derivatives of one environment changes no other, and none of the weights by more than its part."""
    sim, net, found = hopping(), network(hopping(), 5), []
    for lost in (False, True):
        q, v, u = leaves(*start(BATCH), 0.5 * randn(STEPS, BATCH, sim.model.nu, seed=4))
        path = rolled_out(sim, way, bd.State(q, v), u, net, clip=5.0)
        weights = torch.ones_like(path.v)
        weights[7:, 2] = 0.0
        weights[7, 2] = math.nan if lost else 0.0
        (path.v * weights).sum().backward()
        status = path.adjoint_status
        found.append([q.grad, v.grad, *(x.grad.clone() if x.grad is not None else u.grad for x in net.parameters())])
        net.zero_grad()
        assert int((~status.finite).sum()) == lost and bool(status.finite[6, 2]) != lost
    assert all(torch.equal(x, y) for x, y in zip(*found, strict=True))


@pytest.mark.parametrize("way", ["compiled", "torch"])
def test_motion_that_is_lost_reaches_no_weight(way):
    sim = hopping(nonfinite="mark")
    net, found = network(sim, 5), []
    for lost in (False, True):
        q, v = start(3)
        q = q[:2] if not lost else q.index_fill(0, torch.tensor([2]), math.nan)
        path = rolled_out(sim, way, bd.State(q, v[: len(q)]), None, net, clip=5.0)
        path.v[:, :2].square().sum().backward()
        found.append([x.grad.clone() for x in net.parameters()])
        net.zero_grad()
    assert not bool(path.adjoint_status.finite[:, 2].any())
    assert all(torch.allclose(x, y, rtol=1e-12, atol=0.0) for x, y in zip(*found, strict=True))


@pytest.mark.parametrize("bad", [0.0, -1.0, math.nan, "much", torch.tensor(3.0)])
def test_bad_limits_are_refused(bad):
    sim = hopping()
    with pytest.raises(ValueError, match="clip must be a positive number"):
        sim.rollout(start(2), steps=2, clip=bad)


def test_without_clip_there_is_no_status():
    path = hopping().rollout(start(2), steps=2)
    with pytest.raises(ValueError, match="only rollout"):
        _ = path.adjoint_status


def test_one_world_float32_and_refusals():
    sim = hopping(dtype=torch.float32)
    q, v = (x[0] for x in start(2, dtype=torch.float32))
    q.requires_grad_()
    path = sim.rollout(bd.State(q, v), steps=4, clip=1.0)
    path.q.square().sum().backward()
    assert path.adjoint_status.norm.shape == (4,) and path.adjoint_status.norm.dtype == torch.float32
    clipped = int((path.adjoint_status.norm > 1.0).sum())
    assert repr(path.adjoint_status) == f"AdjointStatus({clipped} of 4 steps clipped, 0 not finite)"
    with pytest.raises(NotImplementedError, match="torch.func"):
        torch.func.grad(lambda q: sim.rollout(bd.State(q, v), steps=2, clip=1.0).last.q.sum())(q.detach())
