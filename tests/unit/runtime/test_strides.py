"""Wherever the numbers of an input lie in memory, the results are the same bits."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scenes import ALL, arm, chain, leaves, project, random_controls, random_state, random_wrenches, simulator

import backdrive as bd


def transposed(x):
    """The last dimension has the largest stride."""
    return x.movedim(-1, 0).contiguous().movedim(0, -1)


def reversed_order(x):
    return x.permute(*reversed(range(x.ndim))).contiguous().permute(*reversed(range(x.ndim)))


def every_second(x):
    wide = torch.full((*x.shape[:-1], 2 * x.shape[-1]), float("nan"), dtype=x.dtype)
    wide[..., ::2] = x
    return wide[..., ::2]


def inside(x):
    """A slice of a larger tensor, in every dimension, that begins in the middle of its memory."""
    wide = torch.full([n + 3 for n in x.shape], float("nan"), dtype=x.dtype)
    part = wide[tuple(slice(1, n + 1) for n in x.shape)]
    part.copy_(x)
    return part


def every_second_row(x):
    if x.ndim < 2:
        return x
    wide = torch.full((x.shape[0], 2 * x.shape[1], *x.shape[2:]), float("nan"), dtype=x.dtype)
    wide[:, ::2] = x
    return wide[:, ::2]


def imaginary(x):
    """A view that torch negates when it is read."""
    view = torch.complex(torch.zeros_like(x), -x).conj().imag
    assert view.is_neg() or not x.numel()
    return view


def subclass(x):
    return torch.nn.Parameter(x.clone(), requires_grad=False)


WAYS = (transposed, reversed_order, every_second, inside, every_second_row, imaginary, subclass)


def everything(sim, q, v, u, w, parameters=None):
    """All results and gradients; the tensors are used as they lie in memory."""
    inputs = [x.detach().requires_grad_() for x in (q, v, u, w)]
    state = bd.State(*inputs[:2])
    path = sim.rollout(state, inputs[2], wrenches=inputs[3], parameters=parameters)
    after = sim.step(state, inputs[2][0], wrench=inputs[3][0])
    outputs = [path.q, path.v, path.position(sim.model.bodies[-1]), *after, sim.inverse_dynamics(state, inputs[1])]
    outputs += [sim.forward_dynamics(state, inputs[2][0]), sim.mass_matrix(state)]
    gradients = torch.autograd.grad(project(*outputs), inputs)
    return [*(x.detach() for x in outputs), *sim.linearize(bd.State(q, v), u[0]), *gradients]


def assert_same(found, expected):
    assert all(torch.equal(x, y) for x, y in zip(found, expected, strict=True))


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
@pytest.mark.parametrize("make", ALL, ids=lambda make: make.__name__)
@pytest.mark.parametrize("batch", [(), (5,)], ids=str)
def test_layouts(way, make, batch):
    model, sim = make(), simulator(make)
    inputs = *random_state(model, *batch), random_controls(model, 4, *batch), random_wrenches(model, 4, *batch)
    expected = everything(sim, *inputs)
    assert_same(everything(sim, *(way(x) for x in inputs)), expected)
    for k in range(4):
        assert_same(everything(sim, *(way(x) if i == k else x for i, x in enumerate(inputs))), expected)
    assert all(torch.equal(x, y) for x, y in zip(inputs, (*random_state(model, *batch), *inputs[2:])))  # not written to


@settings(max_examples=40, deadline=None, derandomize=True)
@given(st.tuples(*[st.sampled_from(WAYS)] * 4), st.integers(1, 20))
def test_mixed_layouts(ways, batch):
    model, sim = chain(), simulator(chain)
    inputs = *random_state(model, batch), random_controls(model, 3, batch), random_wrenches(model, 3, batch)
    assert_same(everything(sim, *(way(x) for way, x in zip(ways, inputs))), everything(sim, *inputs))


def test_expanded_inputs():
    model, sim = arm(), simulator(arm)
    q, v = random_state(model)
    u, w = random_controls(model), random_wrenches(model)
    thin = q.expand(5, -1), v.expand(5, -1), u.expand(4, 5, -1), w.expand(4, 5, -1, -1)
    assert_same(
        everything(sim, *thin), everything(sim, *(x.clone(memory_format=torch.contiguous_format) for x in thin))
    )


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_layouts_of_parameters(way):
    model, sim, state = arm(), simulator(arm), random_state(arm(), 3)
    values = {name: model.parameter(name).expand(3, *model.parameter(name).shape) for name in ("mass", "com", "axis")}
    found = []
    for change in (torch.clone, way):
        parameters = {name: change(x.contiguous()).detach().requires_grad_() for name, x in values.items()}
        path = sim.rollout(state, steps=3, parameters=parameters)
        found.append([path.q.detach(), *torch.autograd.grad(project(path.q, path.v), list(parameters.values()))])
    assert_same(*found)


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_layouts_of_gradients(way):
    """What comes back from the loss may lie anywhere, too, or be one number for all."""
    sim, u = simulator(arm), random_controls(arm(), 4, 5)
    found = []
    for change in (torch.clone, way):
        (controls,) = leaves(u)
        path = sim.rollout(random_state(arm(), 5), controls)
        bars = [
            change(torch.cos(torch.arange(x.numel(), dtype=x.dtype)).reshape(x.shape)) for x in (path.q, path.last.v)
        ]
        found.append(torch.autograd.grad([path.q, path.last.v], controls, bars))
    assert_same(*found)


def test_gradients_that_are_one_number():
    sim, found = simulator(arm), []
    for one in (False, True):
        (controls,) = leaves(random_controls(arm(), 4, 5))
        path = sim.rollout(random_state(arm(), 5), controls)
        ones = torch.ones_like(path.q)
        bar = torch.ones((), dtype=torch.float64).expand_as(path.q) if one else ones
        found.append(torch.autograd.grad(path.q, controls, bar))
    assert_same(*found)


def test_results_do_not_share_memory_with_inputs():
    state = random_state(arm(), 2)
    path = simulator(arm).rollout(state, steps=2)
    path.q.zero_(), path.last.v.zero_()
    assert all(torch.equal(x, y) for x, y in zip(state, random_state(arm(), 2)))


def test_zeros_without_memory():
    """torch has tensors of zeros that own nothing."""
    sim, (q, v) = simulator(arm), random_state(arm(), 2)
    nothing = torch._efficientzerotensor(v.shape, dtype=v.dtype)
    assert torch.equal(sim.step(bd.State(q, nothing)).q, sim.step(bd.State(q, torch.zeros_like(v))).q)
