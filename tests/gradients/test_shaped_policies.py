"""Policies as reinforcement learning has them: held controls, limits, normalised observations, noise, float32."""

import functools
import itertools
import math

import pytest
import torch
from differences import require_derivative
from hoppers import hopper, hopping, start
from scenes import leaves, randn

import backdrive as bd

STEPS, BATCH, HOLD = 11, 3, 3
DECISIONS = -(-STEPS // HOLD)
SENSORS = ("q[1:]", "v", ("position", "leg"), ("rotation", "trunk"))
OPTIONS = {
    "held": {"hold": HOLD},
    "tanh": {"output": "tanh", "low": -0.3, "high": [0.6]},
    "clamp": {"output": "clamp", "low": [-0.1], "high": 0.2},
    "normal": {"normalize": True, "observation_clip": 1.5},
    "noise": {"std": 0.4},
    "all": {"hold": HOLD, "output": "tanh", "low": -0.9, "high": 0.7, "normalize": True, "observation_clip": 2.0,
            "std": 0.4, "activation": "elu", "layer_norm": True, "observation_limits": (-0.4, math.inf)},
    "layer norm": {"layer_norm": True, "activation": "elu"},
    "layer norm without bias": {"layer_norm": True, "bias": False, "activation": "tanh", "hold": HOLD},
    "observation limits": {"observation_limits": (-0.3, 0.5)},
    "relu": {"hold": HOLD, "activation": "relu", "bias": False, "std": 0.2},
}  # fmt: skip


def network(sim: bd.Simulator, seed: int, dtype=torch.float64, ninput: int = 2, **options) -> bd.MLP:
    size = sim.observe(start(1, dtype=sim.dtype), SENSORS).shape[-1] + ninput
    generator = torch.Generator().manual_seed(seed)
    net = bd.MLP((size, 7, 9, 1), sensors=SENSORS, dtype=dtype, generator=generator, **options)
    if net.normalize:
        net.observation_mean.copy_(0.3 * randn(size, seed=seed))
        net.observation_std.copy_(0.4 + randn(size, seed=seed + 1).abs())
    return net


@functools.cache
def rigid() -> bd.Simulator:
    return bd.Simulator(hopper(), 0.01, physics="rigid", threads=1)


def by_hand(sim, net, state, inputs, noise):
    """A loop of steps; the network is called before every `hold`-th."""
    states, controls = [state], []
    for t in range(STEPS):
        if t % net.hold == 0:
            k = t // net.hold
            seen = torch.cat([sim.observe(state, SENSORS), inputs[k]], -1)
            u = net(seen.to(net.dtype), None if noise is None else noise[k].to(net.dtype)).to(sim.dtype)
        controls.append(u)
        state = sim.step(state, u)
        states.append(state)
    return (*(torch.stack(x) for x in zip(*states)), torch.stack(controls))


def loss_of(q, v, u):
    return sum((x * randn(*x.shape, seed=k).to(x.dtype)).sum() for k, x in enumerate((q, v, u)))


@pytest.mark.parametrize("way", ["compiled", "torch", "checkpoint"])
@pytest.mark.parametrize("name", OPTIONS)
@pytest.mark.parametrize("physics", ["mujoco", "rigid"])
def test_same_as_a_loop_of_steps(name, way, physics):
    sim, seed = (hopping("Euler"), 1) if physics == "mujoco" else (rigid(), 2)
    net = network(sim, seed, compiled=way != "torch", **OPTIONS[name])
    rows, noisy, found = -(-STEPS // net.hold), net.log_std is not None, []
    for hand in (False, True):
        q, v = leaves(*start(BATCH, seed))
        inputs, noise = leaves(randn(rows, BATCH, 2, seed=5), randn(rows, BATCH, 1, seed=6))
        given = {"inputs": inputs, "noise": noise if noisy else None}
        if hand:
            qs, vs, us = by_hand(sim, net, bd.State(q, v), **given)
            ends = (0, 5, 10, 11)
            qs, vs = (qs[list(ends)], vs[list(ends)]) if way == "checkpoint" else (qs, vs)
        else:
            adjoint = bd.Checkpoint(5) if way == "checkpoint" else None
            path = sim.rollout(bd.State(q, v), policy=net, steps=STEPS, adjoint=adjoint, **given)
            qs, vs, us = path.q, path.v, path.controls
        loss_of(qs, vs, us).backward()
        found.append([qs.detach(), vs.detach(), us.detach(), q.grad, v.grad, inputs.grad])
        found[-1] += [noise.grad] * noisy + [x.grad.clone() for x in net.parameters()]
        net.zero_grad()
    for mine, reference in zip(*found, strict=True):
        assert (mine - reference).abs().max() <= 1e-9 * (1e-3 + reference.abs().max())


@pytest.mark.parametrize("integrator", ["Euler", "RK4"])
@pytest.mark.parametrize("seed", range(3))
def test_gradients_are_those_of_differences(integrator, seed):
    """In random directions of everything at once: start, inputs, noise, weights, biases and log_std."""
    sim = hopping(integrator)
    net = network(sim, seed, **OPTIONS["all"])
    given = [*start(BATCH, seed), randn(DECISIONS, BATCH, 2, seed=5), randn(DECISIONS, BATCH, 1, seed=6)]
    everything = [*given, *(x.detach() for x in net.parameters())]

    def rolled_out(numbers):
        parts = [part.view_as(x) for part, x in zip(numbers.split([x.numel() for x in everything]), everything)]
        q, v, inputs, noise = leaves(*parts[:4])
        for parameter, part in zip(net.parameters(), parts[4:], strict=True):
            parameter.data = part.detach().clone()
        path = sim.rollout(bd.State(q, v), policy=net, steps=STEPS, inputs=inputs, noise=noise)
        return loss_of(path.q, path.v, path.controls), [q, v, inputs, noise, *net.parameters()]

    x = torch.cat([part.flatten() for part in everything])
    loss, inputs = rolled_out(x)
    gradient = torch.cat([part.flatten() for part in torch.autograd.grad(loss, inputs)])
    directions = [randn(len(x), seed=10 + k) for k in range(3)]
    require_derivative(gradient, lambda y: float(rolled_out(y)[0]), x, directions, 1e-6, "all")
    for k, name in enumerate(("q", "v", "inputs", "noise", "log_std"), 0):
        sizes = [part.numel() for part in everything]
        begin = sum(sizes[:k])
        only = torch.zeros_like(x)
        only[begin : begin + sizes[k]] = 1.0
        chosen = [only * direction for direction in directions]
        require_derivative(gradient, lambda y: float(rolled_out(y)[0]), x, chosen, 1e-6, name)


@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize("dtypes", [(torch.float64, torch.float32), (torch.float32, torch.float64)])
def test_networks_of_another_dtype(compiled, dtypes):
    """Kernels take their weights as they are, in the precision of the simulator; gradients are those of the network."""
    sim = hopping("Euler", dtype=dtypes[0])
    net = network(sim, 3, dtype=dtypes[1], compiled=compiled, ninput=0, **OPTIONS["all"])
    noise = randn(DECISIONS, BATCH, 1, seed=6).to(dtypes[1])
    path = sim.rollout(start(BATCH, dtype=dtypes[0]), policy=net, steps=STEPS, noise=noise)
    (path.last.q.sum() + path.v.square().sum()).backward()
    assert path.q.dtype == dtypes[0] and all(x.grad.dtype == dtypes[1] for x in net.parameters())
    exact, own = hopping("Euler"), network(hopping("Euler"), 3, ninput=0, **OPTIONS["all"])
    own.load_state_dict(net.state_dict())
    reference = exact.rollout(start(BATCH), policy=own, steps=STEPS, noise=noise.double())
    (reference.last.q.sum() + reference.v.square().sum()).backward()
    assert (path.q - reference.q).abs().max() < 1e-4
    for x, y in zip(net.parameters(), own.parameters(), strict=True):
        assert (x.grad - y.grad).abs().max() < 2e-3 * y.grad.abs().max()


def test_states_are_clipped_at_decisions():
    sim = hopping()
    net = network(sim, 1, ninput=0, **OPTIONS["all"])
    path = sim.rollout(start(BATCH), policy=net, steps=STEPS, clip=0.05)
    path.v.square().sum().backward()
    status = path.adjoint_status
    at = [t for t in range(STEPS) if (t + 1) % HOLD == 0]
    assert bool(status.clipped[at].all()) and int(status.clipped.sum()) == len(at) * BATCH
    assert bool((status.norm > 0.05).all())


def test_one_world_and_shared_rows():
    sim, net = hopping("Euler"), network(hopping("Euler"), 2, **OPTIONS["all"])
    inputs, noise = randn(DECISIONS, 2, seed=5), randn(DECISIONS, 1, seed=6)
    q, v = start(BATCH)
    batch = sim.rollout(bd.State(q, v), policy=net, steps=STEPS, inputs=inputs, noise=noise)
    for net.compiled in (True, False):
        one = sim.rollout(bd.State(q[1], v[1]), policy=net, steps=STEPS, inputs=inputs, noise=noise)
        assert (one.q - batch.q[:, 1]).abs().max() < 1e-12 and one.controls.shape == (STEPS, 1)
    net.compiled = True
    assert len(sim.rollout(bd.State(q, v), policy=net, inputs=inputs, noise=noise).controls) == DECISIONS * HOLD


@pytest.mark.parametrize("sensor", ["q[1:]", "q[:-1]", "v[::2]", "v[0, 3]", "q[-1]", "v"])
def test_sensors_of_parts(sensor):
    state = start(2)
    name, _, part = sensor.partition("[")
    index = [int(x) for x in part[:-1].split(",")] if part and ":" not in part else None
    whole = getattr(state, name)
    expected = whole[:, index] if index is not None else eval(f"x[:, {part}" if part else "x", {"x": whole})
    assert torch.equal(hopping("Euler").observe(state, [sensor]), expected)


@pytest.mark.parametrize("sensor", ["q[4]", "q[", "w", "q[1.5]", "q[a:]", "v[:::1]", ""])
def test_bad_sensors(sensor):
    with pytest.raises(ValueError, match="sensor"):
        hopping("Euler").observe(start(2), [sensor])


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"output": "clamp"}, "needs the limits"),
        ({"low": -1.0, "high": 1.0}, "'linear' has none"),
        ({"low": -1.0, "output": "tanh"}, "give both"),
        ({"low": 1.0, "high": 1.0, "output": "tanh"}, "low must be below high"),
        ({"low": [0.0, 0.0], "high": 1.0, "output": "tanh"}, "low must be a finite number"),
        ({"low": -math.inf, "high": 1.0, "output": "clamp"}, "low must be a finite number"),
        ({"hold": 0}, "hold"),
        ({"std": 0.0}, "std must be > 0"),
        ({"observation_clip": -1.0}, "observation_clip must be > 0"),
        ({"observation_limits": (1.0, 0.0)}, "each low below its high"),
        ({"observation_limits": ([0.0, 0.1], 1.0)}, "observation_low must be a number, or one for each"),
        ({"activation": "gelu"}, "activation must be one of"),
    ],
)
def test_bad_options(options, words):
    with pytest.raises(ValueError, match=words):
        bd.MLP((8, 4, 1), **options)


def test_bad_noise():
    sim, net = hopping("Euler"), network(hopping("Euler"), 2, ninput=0, **OPTIONS["all"])
    with pytest.raises(ValueError, match="noise are for 9 steps, 3 for each row, but the rollout is of 11"):
        sim.rollout(start(2), policy=net, steps=11, noise=randn(3, 2, 1))
    with pytest.raises(ValueError, match="noise must be"):
        sim.rollout(start(2), policy=net, steps=11, noise=randn(4, 2, 2))
    with pytest.raises(ValueError, match="noise is for an MLP"):
        sim.rollout(start(2), policy=lambda state, t: state.v[:, :1], steps=2, noise=randn(2, 2, 1))
    with pytest.raises(TypeError, match="noise must be a tensor"):
        sim.rollout(start(2), policy=net, steps=11, noise=torch.ones(4, 2, 1, dtype=torch.int64))


def test_settings_are_told_and_kept():
    net = bd.MLP((8, 4, 1), **{**OPTIONS["all"]})
    for words in ("hold=3", "low=[-0.9", "high=[0.7", "normalize=True", "observation_clip=2.0"):
        assert words in repr(net)
    keys = set(net.state_dict())
    assert keys == {"log_std", "observation_mean", "observation_std", *(
        f"layers.{k}.{name}" for k, name in itertools.product(range(2), ("weight", "bias")))}  # fmt: skip
    assert set(bd.MLP((8, 4, 1)).state_dict()) == {key for key in keys if key.startswith("layers")}


def test_threads_change_no_bit(tmp_path):
    """Nor does saving a motion whose backward pass is clipped."""
    found = []
    for threads in (1, 2):
        sim = bd.Simulator(hopper("Euler"), physics="mujoco", threads=threads)
        net = network(sim, 6, ninput=0, **OPTIONS["all"])
        state, noise = start(1500, 4), randn(DECISIONS, 1500, 1, seed=6)
        path = sim.rollout(state, policy=net, steps=STEPS, noise=noise, clip=3.0)
        path.v.square().sum().backward()
        found.append([path.q.detach(), path.adjoint_status.norm, *(x.grad for x in net.parameters())])
    assert all(torch.equal(x, y) for x, y in zip(*found, strict=True))
    path.save(tmp_path / "motion.bd")
    assert torch.equal(bd.Trajectory.load(tmp_path / "motion.bd").q, path.q)
