"""Randomised smoothing: its estimates are those of the smoothed function, and one rollout makes them."""

import math

import pytest
import torch

import backdrive as bd

F64 = torch.float64
X = torch.tensor([0.7, -1.2, 0.4], dtype=F64)
A = torch.tensor([[2.0, 0.5, 0.0], [0.5, 1.0, -0.3], [0.0, -0.3, 3.0]], dtype=F64)


def quadratic(x):
    """½ xᵀ A x + 5, whose mean over x + σ ε is larger by ½ σ² tr A."""
    return 0.5 * torch.einsum("...i,ij,...j->...", x, A, x) + 5.0


def estimates(function, x, sigma, samples, order, count=400):
    """Values [count] and gradients [count, n] of independent estimates."""
    generator, values, gradients = torch.Generator().manual_seed(1), [], []
    for _ in range(count):
        leaf = x.clone().requires_grad_()
        value = bd.smoothed(function, leaf, sigma, samples=samples, generator=generator, order=order)
        values.append(value.detach())
        gradients.append(torch.autograd.grad(value, leaf)[0])
    return torch.stack(values), torch.stack(gradients)


def deviations(estimates, truth):
    """How far the mean of estimates is from the truth, in its standard errors: the largest."""
    error = estimates.std(0) / math.sqrt(len(estimates))
    return float(((estimates.mean(0) - truth).abs() / error).max())


@pytest.mark.parametrize("sigma", [0.3, torch.tensor([0.1, 0.4, 0.2], dtype=F64)])
@pytest.mark.parametrize("order", [0, 1])
@pytest.mark.parametrize("samples", [2, 16])
def test_without_bias_on_a_quadratic(order, samples, sigma):
    values, gradients = estimates(quadratic, X, sigma, samples, order)
    variances = torch.as_tensor(sigma).square().expand(3)
    assert deviations(values, quadratic(X) + 0.5 * (variances * A.diagonal()).sum()) < 4
    assert deviations(gradients, A @ X) < 4
    assert gradients.std(0).max() > 0  # they are estimates


@pytest.mark.parametrize("order", [0, 1])
def test_more_samples_less_variance(order):
    few, many = (estimates(quadratic, X, 0.3, n, order)[1].var(0).sum() for n in (8, 128))
    assert 11 < few / many < 23  # 16


def test_the_baseline_takes_a_constant_out():
    near, far = (
        estimates(lambda x, c=c: quadratic(x) + c, X, 0.3, 16, 0, count=100)[1] for c in (0.0, 1e6)
    )  # fmt: skip
    assert torch.allclose(near, far, rtol=0, atol=1e-8)


def test_only_values_show_a_jump():
    """A step from 0 to 1 at 0: its mean is the normal distribution function, its gradient the density."""
    step = lambda x: torch.where(x[:, 0] > 0, 1.0, 0.0) + 0.0 * x[:, 0]  # noqa: E731
    x, sigma = torch.tensor([0.1], dtype=F64), 0.5
    density = math.exp(-0.5 * (0.1 / sigma) ** 2) / (sigma * math.sqrt(2 * math.pi))
    assert deviations(estimates(step, x, sigma, 32, 0)[1], density) < 4
    assert estimates(step, x, sigma, 32, 1, count=10)[1].abs().max() == 0


@pytest.mark.parametrize("order", [0, 1])
def test_the_generator_decides(order):
    def once(seed):
        leaf = X.clone().requires_grad_()
        value = bd.smoothed(quadratic, leaf, 0.3, samples=8, generator=torch.Generator().manual_seed(seed), order=order)
        return torch.cat([value.detach()[None], torch.autograd.grad(value, leaf)[0]])

    assert torch.equal(once(3), once(3))
    assert not torch.equal(once(3), once(4))


@pytest.mark.parametrize("order", [0, 1])
def test_other_inputs_get_their_gradient_too(order):
    scale = torch.tensor(2.0, dtype=F64, requires_grad=True)
    value = bd.smoothed(
        lambda x: scale * quadratic(x), X, 0.3, samples=8, generator=torch.Generator().manual_seed(0), order=order
    )
    assert torch.isclose(torch.autograd.grad(value, scale)[0], value.detach() / scale.detach())


def test_it_keeps_dtype_and_shape():
    x = torch.zeros(4, 2, dtype=torch.float32, requires_grad=True)
    seen = []
    for order in (0, 1):
        value = bd.smoothed(
            lambda u: seen.append(u.shape) or u.square().sum((1, 2)), x, 0.1, samples=5,
            generator=torch.Generator().manual_seed(0), order=order,
        )  # fmt: skip
        assert value.dtype == torch.float32 and value.shape == ()
        assert torch.autograd.grad(value, x)[0].shape == x.shape
    assert seen == [(5, 4, 2)] * 2


@pytest.mark.parametrize("order", [0, 1])
def test_one_rollout_is_all_samples(order):
    """A ball falls onto the floor, pushed at random: its mean height, and the gradient, against many rollouts."""
    scene = bd.Scene(dim=2)
    scene.add_static(bd.HalfSpace(normal=(0, 1)), restitution=0.7)
    scene.add_body("ball", bd.Circle(0.1), mass=1.0, position=(0.0, 1.0), restitution=0.7)
    model = scene.build()
    simulator = bd.Simulator(model, 1 / 60, impacts=True)
    forces, samples, sigma = torch.zeros(30, 3, dtype=F64, requires_grad=True), 16, 0.5

    def height(x):
        wrenches = x.transpose(0, 1).unsqueeze(2)  # [T, samples, nbody, 3]
        return simulator.rollout(model.initial_state(samples), wrenches=wrenches).last.q[:, 1]

    value = bd.smoothed(height, forces, sigma, samples=samples, generator=torch.Generator().manual_seed(0), order=order)
    (gradient,) = torch.autograd.grad(value, forces)
    noise = torch.randn(samples, 30, 3, generator=torch.Generator().manual_seed(0), dtype=F64)
    leaves = [(sigma * x).requires_grad_() for x in noise]
    heights = [simulator.rollout(model.initial_state(), wrenches=x.unsqueeze(1)).last.q[1] for x in leaves]
    assert torch.isclose(value, torch.stack(heights).mean(), rtol=1e-14)
    if order == 1:
        expected = torch.stack([torch.autograd.grad(h, x)[0] for h, x in zip(heights, leaves)]).mean(0)
    else:
        total = sum(h.detach() for h in heights)
        others = [(total - h.detach()) / (samples - 1) for h in heights]
        expected = sum((h.detach() - b) * e for h, b, e in zip(heights, others, noise)) / (samples * sigma)
    assert torch.allclose(gradient, expected, rtol=1e-10, atol=1e-14)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"x": [1.0]}, TypeError, "x must be a tensor of floating-point numbers, got list"),
        ({"x": torch.tensor([1])}, TypeError, "x must be a tensor of floating-point numbers, got torch.int64"),
        ({"sigma": 0.0}, ValueError, "sigma must be positive"),
        ({"sigma": -1.0}, ValueError, "sigma must be positive"),
        ({"sigma": math.nan}, ValueError, "sigma must be positive"),
        ({"sigma": math.inf}, ValueError, "sigma must be positive"),
        ({"sigma": torch.ones(2)}, ValueError, r"sigma of shape \(2,\) does not broadcast to x of \(3,\)"),
        ({"sigma": torch.ones(2, 3)}, ValueError, r"sigma of shape \(2, 3\) does not broadcast to x of \(3,\)"),
        ({"samples": 0}, ValueError, r"samples \(with order=1\) must be an integer >= 1, got 0"),
        ({"samples": 2.0}, ValueError, r"samples \(with order=1\) must be an integer >= 1"),
        ({"samples": True}, ValueError, r"samples \(with order=1\) must be an integer >= 1"),
        ({"samples": 1, "order": 0}, ValueError, r"samples \(with order=0\) must be an integer >= 2, got 1"),
        ({"order": 2}, ValueError, "order must be 1 "),
        ({"order": True}, ValueError, "order must be 1 "),
        ({"generator": None}, TypeError, "generator must be a torch.Generator, got NoneType"),
        ({"function": lambda x: x.sum()}, ValueError, r"one loss per sample, a tensor \[8\], got shape \(\)"),
        ({"function": lambda x: x}, ValueError, r"one loss per sample, a tensor \[8\], got shape \(8, 3\)"),
        ({"function": lambda x: 0.0}, ValueError, r"one loss per sample, a tensor \[8\], got float"),
        (
            {"function": lambda x: torch.where(torch.arange(8) < 3, math.nan, x[:, 0])},
            ValueError,
            "3 of 8 samples have a loss that is NaN or infinite",
        ),
    ],
)
def test_bad_input(change, error, message):
    arguments = {"function": quadratic, "x": X, "sigma": 0.1, "samples": 8, "generator": torch.Generator()} | change
    with pytest.raises(error, match=message):
        bd.smoothed(arguments.pop("function"), arguments.pop("x"), arguments.pop("sigma"), **arguments)
