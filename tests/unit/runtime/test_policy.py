"""Policies in the loop: a network in the kernel, by torch, or any function: all are a loop of steps."""

import copy
import functools

import numpy as np
import pytest
import torch
from scenes import arm, chain, leaves, pendulum, project, puck, randn, random_state, random_wrenches
from torch import Tensor

import backdrive as bd

STEPS, BATCH, NINPUT = 12, 5, 2
WAYS = ("compiled", "torch", "function")


@functools.cache
def walker(dim: int, seed: int, restitution: float = 0.0) -> bd.Model:
    """A body on two legs, with random lengths and masses, that falls onto its feet."""
    random = torch.Generator().manual_seed(seed)

    def between(low: float, high: float) -> float:
        return low + (high - low) * float(torch.rand((), generator=random))

    def at(x: float, height: float) -> tuple[float, ...]:
        return (x, height) if dim == 2 else (x, 0.3 * x, height)

    round_shape = bd.Circle if dim == 2 else bd.Sphere
    scene = bd.Scene(dim=dim)
    scene.add_static(bd.HalfSpace(at(0.0, 1.0)), friction=0.7, restitution=restitution)
    lengths = (between(0.25, 0.3), between(0.3, 0.35))
    height = lengths[1] + 0.07
    scene.add_body("trunk", mass=between(2.0, 4.0), inertia=0.05 if dim == 2 else (0.03, 0.05, 0.06),
                   position=at(0.0, height))  # fmt: skip
    for k, (x, length) in enumerate(zip((-0.15, 0.2), lengths)):
        name = f"leg {k}"
        scene.add_body(name, mass=between(0.3, 0.6), inertia=0.01 if dim == 2 else (0.01, 0.01, 0.002),
                       position=at(x, height - length / 2))  # fmt: skip
        foot = (0.0, -length / 2) if dim == 2 else (0.0, 0.0, -length / 2)
        scene.add_shape(name, round_shape(0.05), position=foot, friction=0.7, restitution=restitution)
        axis = {} if dim == 2 else {"axis": (0.2, 1.0, 0.0)}
        hinge = bd.Hinge(damping=0.1, armature=0.01, **axis)
        scene.add_joint(name, hinge, parent="trunk", child=name, anchor=at(x, height))
        motor = bd.PositionServo(kp=20.0, kv=0.3, limits=(-0.4, 0.4)) if k else bd.Motor(gear=2.0)
        scene.add_motor(name, motor, joint=name)
    return scene.build()


WORLDS = {
    "2D chain": (chain, ("q", "v", ("position", "tip"), ("angular_velocity", "pole"))),
    "3D arm": (arm, (("velocity", "hand"), "v", ("rotation", "lower"), "q", ("position", "ball"))),
    "2D contact": (lambda: walker(2, 1), ("q", "v", ("rotation", "leg 1"), ("velocity", "leg 0"))),
    "3D contact": (lambda: walker(3, 2), ("q", "v", ("rotation", "trunk"), ("position", "leg 1"))),
    "2D impacts": (lambda: walker(2, 3, 0.5), ("q", "v", ("angular_velocity", "leg 1"))),
}
worlds = pytest.mark.parametrize("world", WORLDS)


@functools.cache
def simulator(world: str, **options) -> bd.Simulator:
    """Kernels for one model are compiled sooner, if it is small; those for all are tried on some."""
    return bd.Simulator(WORLDS[world][0](), 0.01, specialize=world in ("3D contact", "2D impacts"), **options)


def network(sim: bd.Simulator, sensors, hidden=(9, 11), seed=0, ninput=NINPUT, **options) -> bd.MLP:
    size = sim.observe(sim.model.initial_state(), sensors).shape[-1] + ninput
    generator = torch.Generator().manual_seed(seed)
    return bd.MLP((size, *hidden, sim.model.nu), sensors=sensors, dtype=sim.dtype, generator=generator, **options)


def start(model: bd.Model, *batch: int, seed: int = 0) -> bd.State:
    """Near where the model starts: walkers are in contact after some steps."""
    q, v = model.initial_state(*batch)
    return bd.State(q + 0.01 * randn(*q.shape, seed=seed), v + 0.3 * randn(*v.shape, seed=seed + 1))


def in_loop(sim: bd.Simulator, policy: bd.MLP, inputs: Tensor | None):
    """The policy as a function of state and time."""

    def function(state: bd.State, t: int) -> Tensor:
        seen = sim.observe(state, policy.sensors)
        return policy(seen if inputs is None else torch.cat([seen, inputs[t]], -1))

    return function


def by_hand(sim: bd.Simulator, policy: bd.MLP, state: bd.State, inputs: Tensor | None, steps: int):
    """q, v, controls of a loop of steps."""
    function, states, controls = in_loop(sim, policy, inputs), [state], []
    for t in range(steps):
        controls.append(function(states[-1], t))
        states.append(sim.step(states[-1], controls[-1]))
    return (*(torch.stack(x) for x in zip(*states)), torch.stack(controls))


def rollout(way: str, sim: bd.Simulator, policy: bd.MLP, state: bd.State, inputs: Tensor | None, **options):
    steps = options.pop("steps", STEPS)
    if way == "function":
        return sim.rollout(state, policy=in_loop(sim, policy, inputs), steps=steps, **options)
    policy.compiled = way == "compiled"
    return sim.rollout(state, policy=policy, inputs=inputs, steps=steps, **options)


def close(a, b, tolerance: float) -> bool:
    return all((x - y).abs().max() <= tolerance * (1e-3 + y.abs().max()) for x, y in zip(a, b))


@pytest.mark.slow
@worlds
@pytest.mark.parametrize("style", ["tanh", "relu"])
def test_same_as_a_loop_of_steps(world, style):
    sim, sensors = simulator(world), WORLDS[world][1]
    relu = {"activation": "relu", "output": "tanh", "bias": False}
    policy = network(sim, sensors, **(relu if style == "relu" else {}))
    results = []
    for way in (*WAYS, "by hand"):
        q, v, inputs = leaves(*start(sim.model, BATCH), randn(STEPS, BATCH, NINPUT, seed=7))
        if way == "by hand":
            outputs = by_hand(sim, policy, bd.State(q, v), inputs, STEPS)
        else:
            path = rollout(way, sim, policy, bd.State(q, v), inputs)
            outputs = (path.q, path.v, path.controls)
            assert torch.equal(path.last.q, path.q[-1]) and path.status.converged.all()
            assert bool(path.status.contacts.any()) == ("contact" in world or "impacts" in world)
            assert bool(path.status.impacts.any()) == ("impacts" in world)
        gradients = torch.autograd.grad(project(*outputs), [q, v, inputs, *policy.parameters()])
        results.append((outputs, gradients))
    for outputs, gradients in results[:-1]:
        assert close(outputs, results[-1][0], 1e-12)
        assert close(gradients, results[-1][1], 1e-10)
    assert all(g.abs().max() > 0.0 for g in results[0][1])


@worlds
@pytest.mark.parametrize("way", WAYS)
def test_gradients_against_differences(world, way):
    """Of a random loss, along random directions of every input, of several environments with weights of their own."""
    sim, sensors = simulator(world), WORLDS[world][1]
    compared = 0
    for seed in range(4):
        policy = network(sim, sensors, hidden=(6,), seed=seed, bias=seed % 2 == 0)
        x = leaves(*start(sim.model, 1, seed=seed), randn(STEPS, 1, NINPUT, seed=seed), *policy.parameters())

        def loss(x, policy=policy):
            with torch.no_grad():
                for parameter, value in zip(policy.parameters(), x[3:]):
                    parameter.copy_(value)
            path = rollout(way, sim, policy, bd.State(*x[:2]), x[2])
            return project(path.q, path.v, path.controls), path

        value, path = loss(x)
        gradients = torch.autograd.grad(value, [*x[:3], *policy.parameters()])
        for k, gradient in enumerate(gradients):
            move = 1e-6 * randn(*x[k].shape, seed=10 + k)
            ends, same = [], True
            for sign in (1.0, -1.0):
                with torch.no_grad():
                    end, moved = loss([y + sign * move if i == k else y for i, y in enumerate(x)])
                ends.append(end)
                same &= torch.equal(moved.status.modes, path.status.modes)
            if same:
                compared += 1
                slope = (gradient * move).sum()
                assert abs((ends[0] - ends[1]) / 2.0 - slope) <= 1e-6 * (slope.abs() + 1e-3 * gradient.norm() * 1e-6)
    assert compared >= 10


@pytest.mark.parametrize("specialize", [False, True])
@pytest.mark.parametrize("hidden", [(), (9, 11)])
def test_bits(specialize, hidden):
    """They depend neither on threads nor on the batch around; gradients of weights are sums in one order."""
    model, sensors, batch = walker(2, 1), WORLDS["2D contact"][1], 250
    sims = [bd.Simulator(model, 0.01, specialize=specialize, threads=n) for n in (1, 2, 3)]
    policy = network(sims[0], sensors, hidden)
    q, v = start(model, batch)
    inputs = randn(STEPS, batch, NINPUT, seed=3)

    def everything(sim, rows):
        x = leaves(q[rows], v[rows], inputs[:, rows])
        path = rollout("compiled", sim, policy, bd.State(*x[:2]), x[2], steps=STEPS)
        loss = sum((y * randn(len(y), 1, y.shape[-1])).sum() for y in (path.q, path.v, path.controls))
        own = torch.autograd.grad(loss, [*x, *policy.parameters()])
        return [path.q, path.v, path.controls, own[2], own[0][None], own[1][None]], own[3:]

    together, shared = everything(sims[0], slice(None))
    for sim in sims[1:]:
        again, sums = everything(sim, slice(None))
        assert all(torch.equal(a, b) for a, b in zip((*again, *sums), (*together, *shared)))
    few = slice(3, 12)
    totals = [0.0 for _ in shared]
    for row in range(few.start, few.stop):
        alone, sums = everything(sims[0], slice(row, row + 1))
        assert all(torch.equal(a[:, 0], b[:, row]) for a, b in zip(alone, together))
        totals = [total + own for total, own in zip(totals, sums)]
    assert all(torch.equal(a, b) for a, b in zip(totals, everything(sims[1], few)[1]))


def test_checkpoints_wrenches_and_parameters():
    """All that rollouts can do, with a policy; checkpoints change no bit."""
    sim, sensors = simulator("2D chain"), WORLDS["2D chain"][1]
    policy, model = network(sim, sensors), sim.model
    results = []
    for way, adjoint in (("compiled", None), ("compiled", bd.Checkpoint(5)), ("torch", None), ("function", None)):
        q, v, inputs, wrenches, mass = leaves(
            *start(model, BATCH), randn(STEPS, BATCH, NINPUT), random_wrenches(model, STEPS, BATCH),
            model.parameter("mass").expand(BATCH, -1) * 1.1,
        )  # fmt: skip
        state = bd.State(q, v)
        path = rollout(way, sim, policy, state, inputs, wrenches=wrenches, parameters={"mass": mass}, adjoint=adjoint)
        loss = project(path.last.q, path.last.v, path.controls)
        results.append(torch.autograd.grad(loss, [q, v, inputs, wrenches, mass, *policy.parameters()]))
    assert all(torch.equal(a, b) for a, b in zip(results[0], results[1]))
    assert close(results[2], results[0], 1e-10) and close(results[3], results[0], 1e-10)


def test_checkpoints_with_contact():
    sim, sensors = simulator("3D contact"), WORLDS["3D contact"][1]
    policy, state, inputs = network(sim, sensors), start(sim.model, 2), randn(STEPS, 2, NINPUT)
    paths = [rollout("compiled", sim, policy, state, inputs, adjoint=x) for x in (None, bd.Checkpoint(5))]
    assert paths[0].status.contacts.any()
    results = [torch.autograd.grad(project(path.last.q), list(policy.parameters())) for path in paths]
    assert close(*results, 1e-9)  # the solver starts elsewhere


@pytest.mark.parametrize("way", WAYS)
def test_truncated(way):
    sim, sensors = simulator("3D arm"), WORLDS["3D arm"][1]
    policy = network(sim, sensors)
    inputs, state = randn(STEPS, BATCH, NINPUT), start(sim.model, BATCH)
    path = rollout(way, sim, policy, state, inputs, adjoint=bd.Truncated(5))
    cut = torch.autograd.grad(project(path.q, path.v), list(policy.parameters()))
    states, function = [state], in_loop(sim, policy, inputs)
    for t in range(STEPS):
        now = states[-1] if t == 0 or t % 5 else bd.State(*(x.detach() for x in states[-1]))
        states.append(sim.step(now, function(now, t)))
    expected = torch.autograd.grad(project(*(torch.stack(x) for x in zip(*states))), list(policy.parameters()))
    assert close(cut, expected, 1e-10)
    whole = torch.autograd.grad(project(*by_hand(sim, policy, state, inputs, STEPS)[:2]), list(policy.parameters()))
    assert not close(cut, whole, 1e-3)


def test_sensors_see_what_trajectories_have():
    sim = simulator("3D arm")
    state = random_state(sim.model, 3)
    path = sim.rollout(state, steps=1)
    quantities = ("rotation", "position", "angular_velocity", "velocity")
    seen = sim.observe(state, [(name, "hand") for name in quantities])
    expected = [getattr(path, name)("hand")[0].flatten(1) for name in quantities]
    assert torch.equal(seen, torch.cat(expected, -1))
    planar = simulator("2D chain")
    state = random_state(planar.model)
    path = planar.rollout(state, steps=1)
    seen = planar.observe(state, ["v", ("rotation", "tip"), ("angular_velocity", "tip")])
    expected = [state.v, path.rotation("tip")[0].flatten(), path.angular_velocity("tip")[0].unsqueeze(0)]
    assert torch.equal(seen, torch.cat(expected))


@pytest.mark.parametrize("way", WAYS)
def test_limits_of_motors_limit_policies(way):
    sim = bd.Simulator(pendulum(), 0.01, specialize=False)
    policy = network(sim, ("q", "v"), (), bias=True, ninput=0)
    with torch.no_grad():
        policy.layers[0].bias.fill_(5.0)
    path = rollout(way, sim, policy, sim.model.initial_state(2), None, steps=4)
    assert (path.status.clipped == 1).all() and (path.controls > 1.0).all()
    assert torch.equal(path.q.detach(), sim.rollout(sim.model.initial_state(2), torch.ones(4, 1).double()).q)
    assert all(not g.any() for g in torch.autograd.grad(path.q.sum(), list(policy.parameters())))


@pytest.mark.parametrize("way", WAYS)
def test_one_world_without_a_batch(way):
    sim, sensors = simulator("3D contact"), WORLDS["3D contact"][1]
    policy, state, inputs = network(sim, sensors), start(sim.model), randn(STEPS, NINPUT)
    path = rollout(way, sim, policy, state, inputs)
    batched = rollout(way, sim, policy, bd.State(*(x[None] for x in state)), inputs[:, None])
    assert path.q.shape == (STEPS + 1, sim.model.nq) and path.controls.shape == (STEPS, sim.model.nu)
    assert close((path.q, path.controls), (batched.q[:, 0], batched.controls[:, 0]), 1e-12)
    assert path.status.converged.shape == (STEPS,)


def test_forces_of_contacts_have_gradients_through_the_policy():
    sim, sensors = simulator("3D contact"), WORLDS["3D contact"][1]
    policy, state, inputs = network(sim, sensors), start(sim.model, 2), randn(40, 2, NINPUT)
    results = []
    for way in ("compiled", "function"):
        path = rollout(way, sim, policy, state, inputs, steps=40)
        assert path.status.contacts.any()
        results.append(torch.autograd.grad(project(path.contacts.force), list(policy.parameters())))
    assert close(*results, 1e-9) and all(g.any() for g in results[0])


def test_single_precision():
    sims = [simulator("3D arm", dtype=dtype) for dtype in (torch.float64, torch.float32)]
    sensors = WORLDS["3D arm"][1]
    for way in WAYS:
        results = []
        for sim in sims:
            policy = network(sims[0], sensors).to(sim.dtype)
            state = bd.State(*(x.to(sim.dtype) for x in start(sim.model, BATCH)))
            path = rollout(way, sim, policy, state, randn(STEPS, BATCH, NINPUT, dtype=sim.dtype))
            results.append([path.q, *torch.autograd.grad(project(path.q, path.v), list(policy.parameters()))])
        assert results[1][0].dtype == torch.float32
        assert close(results[1], results[0], 1e-4)


def nodes(tensor: Tensor) -> int:
    """Of the autograd graph behind a tensor."""
    found, pending = set(), [tensor.grad_fn]
    while pending:
        node = pending.pop()
        if node is not None and node not in found:
            found.add(node)
            pending += [after for after, _ in node.next_functions]
    return len(found)


@pytest.mark.parametrize(("way", "grows"), [("compiled", 0), ("torch", 0), ("function", 6)])
def test_the_graph_does_not_grow(way, grows):
    """A network is one node, however long the rollout; a function adds what it does, and one node for each step."""
    sim, sensors = simulator("3D arm"), WORLDS["3D arm"][1]
    policy = network(sim, sensors, (), bias=False, ninput=0)
    counts = [nodes(rollout(way, sim, policy, start(sim.model, 2), None, steps=n).last.q) for n in (5, 15)]
    assert counts[1] - counts[0] <= 10 * grows


def test_larger_networks_are_left_to_torch():
    small, large = bd.MLP((81, 16), bias=False), bd.MLP((81, 1024, 1024, 16), bias=False)
    assert [sum(p.numel() for p in x.parameters()) for x in (small, large)] == [1296, 1147904]
    assert small.in_kernel and not large.in_kernel
    assert "compiled='auto'" in repr(small)


def test_generators_and_copies():
    make = functools.partial(bd.MLP, (4, 5, 2))
    one, two = (make(generator=torch.Generator().manual_seed(3)) for _ in range(2))
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), two.parameters()))
    assert one.layers[0].weight.abs().max() <= 0.5
    other = copy.deepcopy(one)
    other.load_state_dict(make().state_dict())
    assert not torch.equal(other.layers[0].weight, one.layers[0].weight)


def test_what_is_wrong_is_said():
    sim, state = simulator("3D arm"), start(arm(), 2)
    good = network(sim, ("q", "v"), (), ninput=0)
    with pytest.raises(ValueError, match=r"takes 24 observations, but there are 27: 13 \(q\) \+ 11 \(v\) \+ 3 \(in"):
        sim.rollout(state, policy=good, inputs=randn(4, 3))
    with pytest.raises(ValueError, match="has 3 outputs, but the model 2 motors"):
        sim.rollout(state, policy=bd.MLP((24, 3)), steps=2)
    with pytest.raises(ValueError, match="controls or a policy"):
        sim.rollout(state, randn(4, 2, 2), policy=good)
    with pytest.raises(ValueError, match="inputs are for an MLP"):
        sim.rollout(state, policy=lambda s, t: s.v, inputs=randn(4, 3))
    with pytest.raises(ValueError, match="inputs must be"):
        sim.rollout(state, policy=good, inputs=randn(4, 3, 3))
    with pytest.raises(ValueError, match="did you mean 'velocity'"):
        sim.observe(state, [("velocty", "hand")])
    with pytest.raises((ValueError, KeyError), match="hand"):
        sim.observe(state, [("velocity", "hnad")])
    with pytest.raises(ValueError, match="a sensor is"):
        sim.observe(state, ["p"])
    with pytest.raises(ValueError, match="no motors"):
        bd.Simulator(puck(), 0.01).rollout(puck().initial_state(), policy=lambda s, t: s.v, steps=2)
    with pytest.raises(TypeError, match="policy must be"):
        sim.rollout(state, policy=3, steps=2)
    with pytest.raises(ValueError, match=r"the policy's control must be \[2, 2\], got \[2, 11\]"):
        sim.rollout(state, policy=lambda s, t: s.v, steps=2)
    with pytest.raises(TypeError, match="the policy's control must be a torch tensor"):
        sim.rollout(state, policy=lambda s, t: None, steps=2)
    with pytest.raises(NotImplementedError, match="Checkpoint"):
        sim.rollout(state, policy=lambda s, t: s.v[:, :2], steps=4, adjoint=bd.Checkpoint(2))
    with pytest.raises(NotImplementedError, match="torch.func"):
        torch.func.vmap(lambda q: sim.rollout(bd.State(q, state.v[0]), policy=good, steps=2).q)(state.q)

    class Other(bd.MLP):
        def forward(self, observations):
            return super().forward(observations).sin()

    with pytest.raises(TypeError, match="Other has a forward of its own"):
        sim.rollout(state, policy=Other((24, 2)), steps=2)
    for options in ({"activation": "gelu"}, {"output": "relu"}, {"compiled": "yes"}):
        with pytest.raises(ValueError, match=next(iter(options))):
            bd.MLP((4, 2), **options)
    for sizes in ((4,), (4, 0), (4, 2.0)):
        with pytest.raises(ValueError, match="sizes"):
            bd.MLP(sizes)


def test_layers_that_were_changed_are_refused():
    """The sizes say how many weights a kernel reads."""
    sim = simulator("3D arm")
    policy, state = network(sim, ("q", "v"), ninput=0), start(sim.model, 2)
    hidden = policy.sizes[1]
    changes = [
        torch.nn.Linear(hidden - 1, policy.sizes[2], bias=policy.bias, dtype=torch.float64),
        torch.nn.Linear(hidden, policy.sizes[2], bias=not policy.bias, dtype=torch.float64),
        torch.nn.Linear(hidden, policy.sizes[2], bias=policy.bias, dtype=torch.float32),
    ]
    for layer in changes:
        policy.layers[1] = layer
        with pytest.raises(ValueError, match="layers were changed"):
            sim.rollout(state, policy=policy, steps=2)


@pytest.mark.parametrize("way", WAYS)
def test_what_is_not_finite_is_said(way):
    sim = simulator("3D arm")
    policy, state = network(sim, ("q", "v"), ninput=0), start(sim.model, 2)
    with torch.no_grad():
        policy.layers[1].weight[2, 3] = np.nan
    with (
        pytest.raises(ValueError, match=r"layers\.1\.weight is not finite: nan at \[2, 3\]")
        if way != "function"
        else pytest.warns(RuntimeWarning)
    ):
        rollout(way, sim, policy, state, None)


@pytest.mark.parametrize("way", WAYS)
def test_second_derivatives_are_refused(way):
    sim = simulator("3D arm")
    policy = network(sim, ("q", "v"), (), ninput=0)
    path = rollout(way, sim, policy, start(sim.model, 2), None)
    (gradient,) = torch.autograd.grad(path.last.q.sum(), policy.layers[0].weight, create_graph=True)
    with pytest.raises(RuntimeError, match="first derivatives only"):
        gradient.sum().backward()
