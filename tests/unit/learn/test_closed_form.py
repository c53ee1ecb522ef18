"""Derivatives in closed form against autograd of the same equations, and Adam against that of torch, float64."""

from __future__ import annotations

import copy
import itertools
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from backdrive.learn.adam import Adam
from backdrive.learn.closed_form import LOG_STD, perceptrons, squashed_gaussian
from backdrive.learn.seeds import Actors, TwinCritics


def close(found, expected):
    assert found.keys() == expected.keys()
    for name in found:
        scale = float(expected[name].abs().max())
        torch.testing.assert_close(found[name], expected[name], rtol=1e-10, atol=1e-12 * scale)


def random(seed):
    generator = torch.Generator().manual_seed(seed)
    return lambda *shape: torch.randn(*shape, dtype=torch.float64, generator=generator)


def plain(parts, weights, frozen):
    """The same networks, in operations of torch."""
    x = torch.cat(list(parts), -1)
    x = x.repeat(len(weights[0]) // len(x), 1, 1)
    for k in range(0, len(weights), 2):
        weight, bias = (w.detach() if frozen else w for w in weights[k : k + 2])
        x = (x if k == 0 else x.relu()) @ weight + bias
    return x


@given(
    hidden=st.lists(st.integers(1, 6), max_size=3), outputs=st.integers(1, 3), seeds=st.integers(1, 3),
    copies=st.integers(1, 2), wanted=st.tuples(st.booleans(), st.booleans()), frozen=st.booleans(),
    seed=st.integers(0, 99),
)  # fmt: skip
def test_networks_have_the_gradients_of_autograd(hidden, outputs, seeds, copies, wanted, frozen, seed):
    draw = random(seed)
    sizes, networks = [5, *hidden, outputs], copies * seeds
    weights = []
    for n, m in itertools.pairwise(sizes):
        weights += [draw(networks, n, m).requires_grad_(), draw(networks, 1, m).requires_grad_()]
    parts = [draw(seeds, 4, n).requires_grad_(w) for n, w in zip((3, 2), wanted, strict=True)]
    cotangent = draw(networks, 4, outputs)
    learned = {f"part{k}": x for k, x in enumerate(parts) if x.requires_grad}
    learned |= {} if frozen else {f"weight{k}": x for k, x in enumerate(weights)}

    def found(function):
        y = function(parts, weights, frozen)
        slopes = torch.autograd.grad(y, list(learned.values()), cotangent) if learned else ()
        return {"y": y.detach(), **dict(zip(learned, slopes, strict=True))}

    close(found(perceptrons), found(plain))


@given(seeds=st.integers(1, 3), actions=st.integers(1, 4), seed=st.integers(0, 99))
def test_random_policies_have_the_gradients_of_autograd(seeds, actions, seed):
    """Also where the deviation is clamped, and where tanh is saturated (torch's softplus would be wrong by 2e-9)."""
    draw = random(seed)
    outputs = (3.0 * draw(seeds, 6, 2 * actions)).requires_grad_()
    noise, action_bar, density_bar = draw(seeds, 6, actions), draw(seeds, 6, actions), draw(seeds, 6)

    def by_torch(outputs, noise):
        mean, log_std = outputs.chunk(2, -1)
        log_std = log_std.clamp(*LOG_STD)
        y = mean + log_std.exp() * noise
        slope = 2.0 * (
            math.log(2.0) - y - torch.logaddexp(torch.zeros_like(y), -2.0 * y)
        )  # log of the derivative of tanh
        gaussian = -0.5 * noise.square() - log_std - 0.5 * math.log(2.0 * math.pi)
        return y.tanh(), (gaussian - slope).sum(-1)

    def found(function):
        action, density = function(outputs, noise)
        (slope,) = torch.autograd.grad([action, density], outputs, [action_bar, density_bar])
        return {"action": action.detach(), "density": density.detach(), "slope": slope}

    close(found(squashed_gaussian), found(by_torch))


@given(hidden=st.lists(st.integers(1, 6), max_size=3), seeds=st.integers(1, 3), seed=st.integers(0, 99))
def test_critics_have_the_gradients_of_autograd(hidden, seeds, seed):
    """Those of the squared errors by the weights, and of the smaller estimate by the action."""
    draw = random(seed)
    critics = TwinCritics((5, *hidden), [torch.Generator().manual_seed(k) for k in range(seeds)]).double()
    x, action, goal = draw(seeds, 4, 3), draw(seeds, 4, 2).requires_grad_(), draw(seeds, 4)
    first, second = plain([x, action], critics.weights, False).view(2, seeds, 4)
    expected = {"errors": torch.stack([first, second]) - goal, "least": torch.minimum(first, second)}
    loss = expected["errors"].square().mean(-1).sum()
    slopes = torch.autograd.grad(loss, critics.weights, retain_graph=True)
    expected |= {f"weight{k}": slope for k, slope in enumerate(slopes)}
    (expected["slope"],) = torch.autograd.grad(expected["least"].sum(), action)
    for weight in critics.weights:
        weight.grad = torch.full_like(weight, math.nan)
    with torch.no_grad():
        found = {"errors": critics.learn(x, action, goal)}
        found |= {f"weight{k}": weight.grad for k, weight in enumerate(critics.weights)}
        found["least"], found["slope"] = critics.least_and_slope(x, action)
    close(found, {name: y.detach() for name, y in expected.items()})


@given(seeds=st.integers(1, 3), actions=st.integers(1, 4), seed=st.integers(0, 99))
def test_actors_have_the_gradients_of_autograd(seeds, actions, seed):
    draw = random(seed)
    actors = Actors((3, 6, actions), [torch.Generator().manual_seed(k) for k in range(seeds)]).double()
    x, noise, action_bar, density_bar = (
        draw(seeds, 5, 3),
        draw(seeds, 5, actions),
        draw(seeds, 5, actions),
        draw(seeds, 5),
    )
    action, density = actors(x, noise)
    weights = actors.layers.weights
    slopes = torch.autograd.grad([action, density], weights, [action_bar, density_bar])
    for weight in weights:
        weight.grad = torch.full_like(weight, math.nan)
    with torch.no_grad():
        sample = actors.sample(x, noise)
        sample.learn(action_bar, density_bar)
    expected = {"action": action.detach(), "density": density.detach()}
    found = {"action": sample.action, "density": sample.density}
    expected |= {f"weight{k}": slope for k, slope in enumerate(slopes)}
    found |= {f"weight{k}": weight.grad for k, weight in enumerate(weights)}
    close(found, expected)


def test_weights_that_changed_after_the_forward_pass_are_told():
    draw = random(0)
    weights = [draw(1, 3, 2).requires_grad_(), draw(1, 1, 2).requires_grad_()]
    y = perceptrons([draw(1, 4, 3)], weights, False)
    with torch.no_grad():
        weights[0].add_(1.0)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def test_adam_is_that_of_torch():
    draw = random(1)
    first = [draw(3, 2), draw(4)]
    ours, theirs = ([x.clone().requires_grad_() for x in first] for _ in range(2))
    fast, slow = Adam(ours, 0.01), torch.optim.Adam(theirs, 0.01, fused=True)
    for k in range(6):
        slopes = [draw(*x.shape) for x in first]
        if k == 3:  # Its state can be saved, and goes on in another one.
            again = Adam(ours, 0.01)
            again.load_state_dict(copy.deepcopy(fast.state_dict()))
            fast = again
        for x, y, slope in zip(ours, theirs, slopes, strict=True):
            x.grad.copy_(slope)
            y.grad = slope
        fast.update()
        slow.step()
        assert all(torch.equal(x, y) for x, y in zip(ours, theirs, strict=True))
    fast.descend((ours[0] ** 3).sum() + ours[1].sum())
    slow.zero_grad()
    ((theirs[0] ** 3).sum() + theirs[1].sum()).backward()
    slow.step()
    assert all(torch.equal(x, y) for x, y in zip(ours, theirs, strict=True))
