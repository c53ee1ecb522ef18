"""Steps and rollouts as parts of larger graphs: modes, leaves, lifetimes, second derivatives, memory."""

import gc
import subprocess
import sys
import weakref

import pytest
import torch
from scenes import (
    ALL,
    DT,
    arm,
    chain,
    leaves,
    pendulum,
    project,
    puck,
    randn,
    random_controls,
    random_state,
    random_wrenches,
    simulator,
)
from torch import nn

import backdrive as bd
from backdrive.differences import along

EVERY_SCENE = pytest.mark.parametrize("make", ALL, ids=lambda make: make.__name__)
SECOND = "backdrive has first derivatives only"


# ---------------------------------------------------------------------------------------------- gradcheck


@EVERY_SCENE
@pytest.mark.parametrize("integrator", [bd.SemiImplicitEuler(), bd.Midpoint()], ids=repr)
def test_torch_gradcheck_of_a_step(make, integrator):
    model, sim = make(), simulator(make, integrator=integrator)
    inputs = leaves(
        *random_state(model, 2), random_controls(model, 2), random_wrenches(model, 2), model.parameter("mass")
    )
    assert torch.autograd.gradcheck(
        lambda q, v, u, w, mass: sim.step(bd.State(q, v), u, wrench=w, parameters={"mass": mass}), inputs
    )


def test_torch_gradcheck_of_a_rollout():
    model, sim = chain(), simulator(chain)
    inputs = leaves(*random_state(model), random_controls(model, 3), model.parameter("com"))

    def states(q, v, u, com):
        path = sim.rollout(bd.State(q, v), u, parameters={"com": com})
        return path.q, path.v, path.position("tip")

    assert torch.autograd.gradcheck(states, inputs)


def test_torch_gradcheck_of_the_dynamics():
    model, sim = arm(), simulator(arm)
    q, v, u, w, vdot = leaves(
        *random_state(model, 2), random_controls(model, 2), random_wrenches(model, 2), randn(2, model.nv)
    )
    assert torch.autograd.gradcheck(lambda q, v, u, w: sim.forward_dynamics(bd.State(q, v), u, wrench=w), (q, v, u, w))
    assert torch.autograd.gradcheck(lambda q, v, a: sim.inverse_dynamics(bd.State(q, v), a), (q, v, vdot))
    assert torch.autograd.gradcheck(lambda q: sim.mass_matrix(bd.State(q, v.detach())), (q,))


# ---------------------------------------------------------------------------------------------- in larger graphs


class Policy(nn.Module):
    def __init__(self, model):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(model.nq + model.nv, 8), nn.Tanh(), nn.Linear(8, model.nu)).double()

    def forward(self, state):
        return self.net(torch.cat(state, -1))


def closed_loop(sim, policy, state, steps=20):
    loss = 0.0
    for _ in range(steps):
        state = sim.step(state, policy(state))
        loss = loss + state.q.square().sum() + 0.1 * state.v.square().sum()
    return loss


def test_a_policy_in_closed_loop():
    """Twenty steps; the gradient of the network's weights is that of differences, and descent descends."""
    torch.manual_seed(0)
    sim, policy, state = simulator(chain), Policy(chain()), random_state(chain(), 4)
    loss = closed_loop(sim, policy, state)
    loss.backward()
    for p in policy.parameters():
        direction, before = randn(*p.shape), p.detach().clone()

        def loss_at(x, p=p):
            p.copy_(x)
            return closed_loop(sim, policy, state)

        difference = along(loss_at, before, direction, 1e-5)
        p.data = before
        torch.testing.assert_close((p.grad * direction).sum(), difference, rtol=1e-5, atol=1e-6)
    optimiser = torch.optim.Adam(policy.parameters(), 1e-2)
    for _ in range(10):
        optimiser.zero_grad()
        closed_loop(sim, policy, state).backward()
        optimiser.step()
    assert closed_loop(sim, policy, state) < loss


def test_a_simulator_inside_a_module():
    class World(nn.Module):
        def __init__(self):
            super().__init__()
            self.sim = bd.Simulator(chain(), DT, specialize=False)
            self.policy = Policy(chain())

        def forward(self, state):
            return self.sim(state, self.policy(state))

    world = World()
    assert {name.split(".")[0] for name in world.state_dict()} == {"policy"}
    world(random_state(chain(), 2)).q.sum().backward()
    assert all(p.grad is not None for p in world.parameters())


def test_no_grad_and_inference_mode():
    sim, controls = simulator(arm), random_controls(arm(), 3, 2)
    state = bd.State(*leaves(*random_state(arm(), 2)))
    expected = sim.rollout(state, controls)
    assert expected.q.requires_grad
    with torch.no_grad():
        path = sim.rollout(state, controls)
        assert not path.q.requires_grad and not path.position("hand").requires_grad
        assert torch.equal(path.q, expected.q)
    with torch.inference_mode():
        path = sim.rollout(random_state(arm(), 2), controls, parameters={"mass": arm().parameter("mass")})
        assert path.q.is_inference() and torch.allclose(path.q, expected.q, rtol=1e-13, atol=1e-13)
        assert torch.equal(path.position("hand"), path.position("hand"))
        assert sim.mass_matrix(path.last).shape == (2, 11, 11)
        after = sim.step(path.last, controls[0])
    assert torch.equal(sim.step(after).q, sim.step(bd.State(after.q.clone(), after.v.clone())).q)


def test_states_of_inference_mode_cannot_be_differentiated():
    with torch.inference_mode():
        state = random_state(arm())
    (control,) = leaves(random_controls(arm()))
    with pytest.raises(RuntimeError, match="Inference tensors cannot be saved for backward"):
        simulator(arm).step(state, control)


def test_backward_twice_through_one_graph():
    inputs = leaves(*random_state(arm(), 2), random_controls(arm(), 3, 2))
    path = simulator(arm).rollout(bd.State(*inputs[:2]), inputs[2])
    loss = project(path.q, path.position("hand"))
    first = torch.autograd.grad(loss, inputs, retain_graph=True)
    second = torch.autograd.grad(loss, inputs)
    assert all(torch.equal(x, y) for x, y in zip(first, second))
    with pytest.raises(RuntimeError, match="backward through the graph a second time"):
        torch.autograd.grad(loss, inputs)


def test_changing_an_input_in_place_is_noticed():
    inputs = leaves(*random_state(arm(), 2), random_controls(arm(), 3, 2))
    path = simulator(arm).rollout(bd.State(*inputs[:2]), inputs[2])
    with torch.no_grad():
        inputs[2].mul_(2.0)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        path.q.sum().backward()


def test_changing_the_path_in_place_is_noticed():
    (controls,) = leaves(random_controls(arm(), 3, 2))
    path = simulator(arm).rollout(random_state(arm(), 2), controls)
    with torch.no_grad():
        path.q.mul_(2.0)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        path.v.sum().backward()


@pytest.mark.parametrize("wanted", range(5), ids=["q", "v", "controls", "wrenches", "mass"])
def test_gradients_of_some_inputs_only(wanted):
    """Others have none, and those asked for do not change."""
    model, sim = arm(), simulator(arm)
    values = (
        *random_state(model, 2),
        random_controls(model, 3, 2),
        random_wrenches(model, 3, 2),
        model.parameter("mass"),
    )

    def loss(q, v, u, w, mass):
        path = sim.rollout(bd.State(q, v), u, wrenches=w, parameters={"mass": mass})
        return project(path.q, path.v)

    everything = leaves(*values)
    loss(*everything).backward()
    some = [x.clone().requires_grad_(k == wanted) for k, x in enumerate(values)]
    loss(*some).backward()
    assert [x.grad is not None for x in some] == [k == wanted for k in range(5)]
    torch.testing.assert_close(some[wanted].grad, everything[wanted].grad, rtol=1e-13, atol=1e-13)


def test_constants_of_inference_mode_are_not_kept():
    model, sim = arm(), simulator(arm)
    state, controls = bd.State(*random_state(model, 2)), random_controls(model, 3, 2)
    with torch.inference_mode():
        sim.rollout(state, controls, parameters={"mass": model.parameter("mass")})
    controls.requires_grad_()
    sim.rollout(state, controls, parameters={"mass": model.parameter("mass")}).last.q.sum().backward()
    assert controls.grad.abs().max() > 0.0


def test_no_gradient_without_asking():
    path = simulator(arm).rollout(random_state(arm(), 2), random_controls(arm(), 3, 2))
    assert not path.q.requires_grad and path.q.grad_fn is None and not path.position("ball").requires_grad


def test_gradient_of_the_start_row():
    """The path begins with the start itself."""
    q, v = leaves(*random_state(arm(), 2))
    path = simulator(arm).rollout(bd.State(q, v), steps=3)
    dq, dv = torch.autograd.grad(path.q[0].sum(), (q, v))
    assert (dq == 1).all() and (dv == 0).all()


def test_gradient_of_a_part_of_the_outputs():
    q, v = leaves(*random_state(puck(), 2))
    after = simulator(puck).step(bd.State(q, v))
    dq, dv = torch.autograd.grad(after.v.sum(), (q, v))
    assert (dq == 0).all() and (dv == 1).all()


def test_hooks_and_anomaly_mode():
    seen = []
    (controls,) = leaves(random_controls(arm(), 3, 2))
    with torch.autograd.detect_anomaly(check_nan=True):
        path = simulator(arm).rollout(random_state(arm(), 2), controls)
        path.q.register_hook(lambda g: seen.append(g.shape))
        path.q.sum().backward()
    assert seen == [path.q.shape]


def test_saved_tensor_hooks():
    """Only states, inputs and constants are kept, whatever the solver computes in between."""
    kept = []

    def pack(x):
        kept.append(x.shape)
        return x

    inputs = leaves(*random_state(arm(), 2), random_controls(arm(), 5, 2))
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda x: x):
        path = simulator(arm).rollout(bd.State(*inputs[:2]), inputs[2])
    assert sorted(map(tuple, kept)) == sorted([(6, 2, 13), (6, 2, 11), (5, 2, 2)])
    expected = torch.autograd.grad(path.q.sum(), inputs)
    kept.clear()
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda x: x):
        path = simulator(arm).rollout(bd.State(*inputs[:2]), inputs[2], adjoint=bd.Checkpoint(5))
    assert sorted(map(tuple, kept)) == sorted([(2, 2, 13), (2, 2, 11), (5, 2, 2)])
    with torch.autograd.graph.save_on_cpu():
        path = simulator(arm).rollout(bd.State(*inputs[:2]), inputs[2])
    assert all(torch.equal(x, y) for x, y in zip(torch.autograd.grad(path.q.sum(), inputs), expected))


def test_torch_checkpoint_of_steps():
    """torch's own checkpointing computes steps again, to the same bits."""
    from torch.utils.checkpoint import checkpoint

    sim, found = simulator(arm), []
    for again in (False, True):
        q, v = leaves(*random_state(arm(), 2))
        state = bd.State(q, v)
        for _ in range(3):
            state = checkpoint(sim.step, state, use_reentrant=False) if again else sim.step(state)
        found.append(torch.autograd.grad(project(*state), (q, v)))
    assert all(torch.equal(x, y) for x, y in zip(*found))


# ---------------------------------------------------------------------------------------------- second derivatives


def outcomes(sim, q, v, u, mass):
    state = bd.State(q, v)
    yield sim.step(state, u[0]).q
    yield sim.rollout(state, u, parameters={"mass": mass}).v
    yield sim.rollout(state, u).position("hand")
    yield sim.forward_dynamics(state, u[0])
    yield sim.inverse_dynamics(state, v)


@pytest.mark.parametrize("which", range(5), ids=["step", "rollout", "poses", "forward", "inverse"])
def test_second_derivatives_raise(which):
    inputs = leaves(*random_state(arm(), 2), random_controls(arm(), 3, 2), arm().parameter("mass"))
    y = list(outcomes(simulator(arm), *inputs))[which]
    (gradient,) = torch.autograd.grad(y.square().sum(), inputs[0], create_graph=True)
    assert torch.isfinite(gradient).all()  # the first is fine
    with pytest.raises(RuntimeError, match=SECOND):
        gradient.sum().backward()


def test_hessian_raises():
    state = random_state(pendulum())
    loss = lambda u: simulator(pendulum).rollout(state, u).q.square().sum()  # noqa: E731
    with pytest.raises(RuntimeError, match=SECOND):
        torch.autograd.functional.hessian(loss, random_controls(pendulum(), 3))


def test_forward_mode_raises():
    """It is not silently zero."""
    import torch.autograd.forward_ad as forward_ad

    q, v = random_state(arm(), 2)
    message = "backdrive has no forward-mode derivatives"
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(q, torch.ones_like(q))
        with pytest.raises(NotImplementedError, match=message):
            simulator(arm).step(bd.State(dual, v))
    with pytest.raises(NotImplementedError, match=message):
        torch.func.jvp(lambda q: simulator(arm).step(bd.State(q, v)).q, (q,), (torch.ones_like(q),))
    with pytest.raises(NotImplementedError, match=message):
        torch.func.jacfwd(lambda q: simulator(arm).step(bd.State(q, v)).q)(q)


# ---------------------------------------------------------------------------------------------- lifetimes


@pytest.mark.parametrize("which", range(5), ids=["step", "rollout", "poses", "forward", "inverse"])
def test_a_graph_outlives_its_simulator(which):
    inputs = leaves(*random_state(arm(), 2), random_controls(arm(), 3, 2), arm().parameter("mass"))
    expected = torch.autograd.grad(project(list(outcomes(simulator(arm), *inputs))[which]), inputs, allow_unused=True)
    sim = bd.Simulator(arm(), DT, specialize=False)
    loss = project(list(outcomes(sim, *inputs))[which])
    gone = weakref.ref(sim)
    del sim
    gc.collect()
    assert which == 2 or gone() is None
    found = torch.autograd.grad(loss, inputs, allow_unused=True)
    assert all(x is y is None or torch.equal(x, y) for x, y in zip(found, expected))


def test_a_simulator_and_its_program_are_freed():
    sim = bd.Simulator(arm(), DT, specialize=False)
    (control,) = leaves(random_controls(arm(), 2))
    after = sim.step(random_state(arm(), 2), control)
    program = weakref.ref(sim._program)
    del sim
    gc.collect()
    assert program() is not None  # the graph needs it
    del after
    gc.collect()
    assert program() is None


MEMORY = """
import sys, resource, torch, backdrive as bd
sys.path.insert(0, sys.argv[1])
from scenes import arm, random_controls, random_state, simulator

def work(n):
    sim, state = simulator(arm), random_state(arm(), 8)
    mass = arm().parameter("mass").requires_grad_()
    u = random_controls(arm(), 8).requires_grad_()
    for k in range(n):
        after = sim.step(state, u, parameters={"mass": mass})
        (after.q.sum() + after.v.sum()).backward()
        path = sim.rollout(state, u.expand(5, 8, -1))
        path.position("hand").sum().backward()
        sim.linearize(state)
        state = after.detach() if k % 50 else random_state(arm(), 8)

def resident():
    with open("/proc/self/statm") as f:
        return int(f.read().split()[1]) * resource.getpagesize()

work(200)
before = resident()
work(1000)
print(resident() - before)
"""


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_memory_does_not_grow(request):
    """A thousand steps and backwards, in a process of their own."""
    command = [sys.executable, "-c", MEMORY, str(request.config.rootpath / "tests" / "support")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True)
    assert int(done.stdout) < 4 << 20


def test_a_long_rollout_keeps_only_states():
    """Forward and backward over 2,000 steps: what is not a tensor does not grow with time."""
    import tracemalloc

    sim = simulator(arm)
    (controls,) = leaves(random_controls(arm(), 2000, 1))
    tracemalloc.start()
    try:
        path = sim.rollout(random_state(arm(), 1), 0.01 * controls)
        path.last.q.sum().backward()
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert controls.grad.shape == controls.shape
    assert peak < 1 << 20  # of Python, and of numpy: the scratch memory
