"""torch.compile, torch.func and torch.library know the operators."""

import pytest
import torch
from scenes import (
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
from torch.func import grad, jacrev, vmap

import backdrive as bd

BATCH, STEPS = 3, 4


def loss_of(sim):
    def loss(q, v, u, w, mass):
        path = sim.rollout(bd.State(q, v), u, wrenches=w, parameters={"mass": mass})
        name = sim.model.bodies[-1]
        return project(path.v, path.position(name), path.orientation(name), *path.last)

    return loss


def inputs_of(model, *batch):
    state, controls = random_state(model, *batch), random_controls(model, STEPS, *batch)
    return *state, controls, random_wrenches(model, STEPS, *batch), model.parameter("mass")


def assert_close(found, expected):
    for x, y in zip(found, expected, strict=True):
        torch.testing.assert_close(x, y, rtol=1e-11, atol=1e-11)


# ---------------------------------------------------------------------------------------------- torch.func


@pytest.mark.parametrize("make", [arm, chain], ids=lambda make: make.__name__)
@pytest.mark.parametrize("batch", [(), (BATCH,)], ids=str)
def test_func_grad(make, batch):
    sim, inputs = simulator(make), inputs_of(make(), *batch)
    required = leaves(*inputs)
    expected = torch.autograd.grad(loss_of(sim)(*required), required)
    assert_close(grad(loss_of(sim), argnums=(0, 1, 2, 3, 4))(*inputs), expected)


@pytest.mark.parametrize("make", [arm, chain], ids=lambda make: make.__name__)
def test_vmap_is_a_batch(make):
    sim, (q, v, u, w, _) = simulator(make), inputs_of(make(), BATCH)

    def end(q, v, u, w):
        path = sim.rollout(bd.State(q, v), u, wrenches=w)
        return (*path.last, path.q, path.position(make().bodies[-1]), sim.step(bd.State(q, v), u[0], wrench=w[0]).v)

    *found, path_q, position, step = vmap(end, in_dims=(0, 0, 1, 1))(q, v, u, w)
    path = sim.rollout(bd.State(q, v), u, wrenches=w)
    assert torch.equal(found[0], path.last.q) and torch.equal(path_q, path.q.transpose(0, 1))
    assert torch.equal(position, path.position(make().bodies[-1]).transpose(0, 1))
    assert torch.equal(step, sim.step(bd.State(q, v), u[0], wrench=w[0]).v)


@pytest.mark.parametrize("mapped", range(5), ids=["q", "v", "controls", "wrenches", "mass"])
@pytest.mark.parametrize("batch", [(), (2,)], ids=str)
def test_vmap_of_grad(mapped, batch):
    """Over any one input, the others shared; the mapped function may itself have a batch."""
    sim, inputs = simulator(arm), inputs_of(arm(), *batch)
    scales = torch.tensor([1.0, 1.1, 0.8], dtype=torch.float64)
    many = [torch.stack([s * x for s in scales]) if k == mapped else x for k, x in enumerate(inputs)]
    derivative = grad(loss_of(sim), argnums=(0, 1, 2, 3, 4))
    found = vmap(derivative, in_dims=tuple(0 if k == mapped else None for k in range(5)))(*many)
    for i in range(3):
        one = derivative(*(x[i] if k == mapped else x for k, x in enumerate(many)))
        assert_close([x[i] for x in found], one)


def test_nested_vmap():
    sim, q, v = simulator(chain), randn(2, 3, 3), randn(2, 3, 3, seed=1)
    found = vmap(vmap(lambda q, v: sim.step(bd.State(q, v)).q))(q, v)
    expected = sim.step(bd.State(q.flatten(0, 1), v.flatten(0, 1))).q
    assert torch.equal(found.flatten(0, 1), expected)


def test_vmap_over_another_dimension():
    sim, (q, v) = simulator(arm), random_state(arm(), BATCH)
    found = vmap(lambda q, v: sim.step(bd.State(q, v)).q, in_dims=1, out_dims=1)(q.t(), v.t())
    assert torch.equal(found, sim.step(bd.State(q, v)).q.t())


def test_jacrev_is_repeated_backward():
    sim, (q, v), u = simulator(chain), random_state(chain()), random_controls(chain(), STEPS)
    found = jacrev(lambda u: sim.rollout(bd.State(q, v), u).last.v)(u)
    (controls,) = leaves(u)
    end = sim.rollout(bd.State(q, v), controls).last.v
    for k in range(chain().nv):
        torch.testing.assert_close(found[k], torch.autograd.grad(end[k], controls, retain_graph=True)[0])


def test_jacrev_of_a_planar_step_is_linearize():
    """Without quaternions the tangent space is that of q."""
    sim, (q, v), u = simulator(chain), random_state(chain(), BATCH), random_controls(chain(), BATCH)
    step = lambda q, v, u: torch.cat(sim.step(bd.State(q, v), u))  # noqa: E731
    dq, dv, du = vmap(jacrev(step, argnums=(0, 1, 2)))(q, v, u)
    A, B = sim.linearize(bd.State(q, v), u)
    assert_close([torch.cat([dq, dv], -1), du], [A, B])


def test_batched_gradients():
    """Not of an ordinary graph, where torch maps in a way that functions cannot take part in."""
    sim, (q, v) = simulator(chain), leaves(*random_state(chain()))
    after = sim.step(bd.State(q, v)).v
    rows = [torch.autograd.grad(after[k], q, retain_graph=True)[0] for k in range(3)]
    with pytest.raises(NotImplementedError, match=r"many gradients at once .* use torch.func.jacrev"):
        torch.autograd.grad(after, q, torch.eye(3, dtype=torch.float64), is_grads_batched=True, retain_graph=True)
    found = jacrev(lambda q: sim.step(bd.State(q, v.detach())).v)(q.detach())
    torch.testing.assert_close(found, torch.stack(rows))


def test_vmap_of_linearize_and_dynamics():
    sim, (q, v), u = simulator(arm), random_state(arm(), BATCH), random_controls(arm(), BATCH)
    found = vmap(lambda q, v, u: sim.linearize(bd.State(q, v), u))(q, v, u)
    assert_close(found, sim.linearize(bd.State(q, v), u))
    assert_close([vmap(lambda q: sim.mass_matrix(bd.State(q, v[0])))(q)], [sim.mass_matrix(bd.State(q, v))])
    assert_close(
        [vmap(lambda q, v: sim.inverse_dynamics(bd.State(q, v), v))(q, v)], [sim.inverse_dynamics(bd.State(q, v), v)]
    )


def test_vmap_over_parameters_is_parameters_per_environment():
    sim, state = simulator(arm), random_state(arm())
    mass = arm().parameter("mass") * torch.tensor([[1.0], [1.5]], dtype=torch.float64)
    found = vmap(lambda m: sim.rollout(state, steps=STEPS, parameters={"mass": m}).position("hand"))(mass)
    expected = sim.rollout(state, steps=STEPS, parameters={"mass": mass}).position("hand")
    assert_close([found], [expected.transpose(0, 1)])


def test_second_derivatives_of_func_raise():
    sim, state = simulator(pendulum), random_state(pendulum())
    loss = lambda u: sim.rollout(state, u).q.square().sum()  # noqa: E731
    with pytest.raises(RuntimeError, match="backdrive has first derivatives only"):
        jacrev(jacrev(loss))(random_controls(pendulum(), 2))
    with pytest.raises(NotImplementedError, match="backdrive has no forward-mode derivatives"):
        torch.func.hessian(loss)(random_controls(pendulum(), 2))


def test_bad_numbers_under_vmap():
    q, v = random_state(arm(), BATCH)
    v[1, 2] = float("inf")
    with pytest.raises(ValueError, match="v is not finite: inf at"):
        vmap(lambda q, v: simulator(arm).step(bd.State(q, v)).q)(q, v)


# ---------------------------------------------------------------------------------------------- torch.compile


@pytest.fixture
def compiled():
    torch._dynamo.reset()
    yield lambda f, **options: torch.compile(f, fullgraph=True, backend="aot_eager", **options)
    torch._dynamo.reset()


@pytest.mark.slow
def test_compile_forward_and_backward(compiled):
    sim, inputs = simulator(arm), inputs_of(arm(), BATCH)
    required = leaves(*inputs)
    expected = torch.autograd.grad(loss_of(sim)(*required), required)
    loss = compiled(loss_of(sim))
    assert_close(torch.autograd.grad(loss(*required), required), expected)
    with torch.no_grad():
        torch.testing.assert_close(loss(*inputs), loss_of(sim)(*inputs))
    per_environment = [*inputs[:4], inputs[4].repeat(BATCH, 1) * torch.tensor([[1.0], [1.2], [0.9]])]
    required = leaves(*per_environment)
    expected = torch.autograd.grad(loss_of(sim)(*required), required)
    assert_close(torch.autograd.grad(loss(*required), required), expected)
    with pytest.raises(ValueError, match=r"parameter 'mass' of 'upper' must be > 0, got -1\.0"):
        loss(*inputs[:4], -inputs[4])


def test_compile_in_the_plane(compiled):
    sim, inputs = simulator(chain), inputs_of(chain())
    required = leaves(*inputs)
    expected = torch.autograd.grad(loss_of(sim)(*required), required)
    assert_close(torch.autograd.grad(compiled(loss_of(sim))(*required), required), expected)


def test_compile_for_other_lengths_and_simulators(compiled):
    state, first = random_state(chain(), BATCH), simulator(chain)
    other = bd.Simulator(chain(), 2 * DT, specialize=False)
    end = compiled(lambda sim, q, v, u: project(*sim.rollout(bd.State(q, v), u).last))
    for sim, steps in ((first, 3), (first, 4), (first, 7), (other, 7)):
        (u,) = leaves(random_controls(chain(), steps, BATCH))
        (expected,) = torch.autograd.grad(project(*sim.rollout(state, u).last), u)
        torch.testing.assert_close(torch.autograd.grad(end(sim, *state, u), u)[0], expected)


def test_compile_a_policy_in_closed_loop(compiled):
    torch.manual_seed(0)
    sim, net = simulator(chain), torch.nn.Linear(6, 1).double()

    def loss(q, v):
        state = bd.State(q, v)
        for _ in range(3):
            state = sim(state, net(torch.cat(state, -1)))
        return project(*state)

    state = random_state(chain(), BATCH)
    expected = torch.autograd.grad(loss(*state), list(net.parameters()))
    assert_close(torch.autograd.grad(compiled(loss)(*state), list(net.parameters())), expected)


def test_compile_the_dynamics(compiled):
    sim, state, u = simulator(arm), random_state(arm(), BATCH), random_controls(arm(), BATCH)
    everything = lambda q, v, u: (  # noqa: E731
        *sim.linearize(bd.State(q, v), u), sim.mass_matrix(bd.State(q, v)), sim.inverse_dynamics(bd.State(q, v), v),
        sim.forward_dynamics(bd.State(q, v), u),
    )  # fmt: skip
    inputs = leaves(*state, u)
    found, expected = compiled(everything)(*inputs), everything(*inputs)
    assert_close(found, expected)
    for x, y in zip(found[2:], expected[2:]):
        options = {"materialize_grads": True, "retain_graph": True}
        assert_close(*(torch.autograd.grad(project(z), inputs, **options) for z in (x, y)))


def test_bad_numbers_in_compiled_code(compiled):
    sim, (q, v) = simulator(puck), random_state(puck(), 2)
    v[1, 2] = float("nan")
    with pytest.raises(ValueError, match=r"v is not finite: nan at \[1, 2\]"):
        compiled(lambda q, v: sim.step(bd.State(q, v)).q)(q, v)


def test_compile_vmap(compiled):
    """Compiled code maps the operator itself (of derivatives inside of it torch knows none)."""
    sim, (q, v), u = simulator(chain), random_state(chain(), BATCH), random_controls(chain(), BATCH, STEPS)
    end = vmap(lambda q, v, u: (*sim.rollout(bd.State(q, v), u).last, *sim.linearize(bd.State(q, v), u[0])))
    assert_close(compiled(end)(q, v, u), end(q, v, u))


@pytest.mark.slow
def test_compile_with_the_default_backend():
    """Generated code around the operators; needs a C++ compiler."""
    torch._dynamo.reset()
    sim, inputs = simulator(chain), inputs_of(chain(), BATCH)
    required = leaves(*inputs)
    expected = torch.autograd.grad(loss_of(sim)(*required), required)
    try:
        found = torch.autograd.grad(torch.compile(loss_of(sim), fullgraph=True)(*required), required)
    except Exception as error:
        if "compiler" in str(error).lower() and "C++" in str(error):
            pytest.skip("no C++ compiler")
        raise
    assert_close(found, expected)


# ---------------------------------------------------------------------------------------------- torch.library


def operator_arguments(make, form):
    sim, model, number = simulator(make), make(), simulator(make)._program.number
    (q, v), u, w = random_state(model, 2), random_controls(model, 3, 2), random_wrenches(model, 3, 2).flatten(-2)
    constants = model.assemble({"mass": model.parameter("mass")})
    rows = torch.stack([constants, constants])
    assert sim.dtype == torch.float64
    whole, moved = "q,v,controls,wrenches,constants", "q,v,controls"
    return {
        "rollout": ("rollout", whole, leaves(q, v, u, w, constants), number, "mass", [3, 1, 0, 1]),
        "end": ("rollout", moved, leaves(q, v, u), number, "", [3, 3, 0, 0]),
        "checkpoint": ("rollout", f"{moved},constants", leaves(q, v, u, rows), number, "mass", [3, 2, 0, 1]),
        "forward": ("forward", whole, leaves(q, v, u[0], w[0], rows), number, "mass", []),
        "inverse": ("inverse", "q,v,vdot", leaves(q, v, v), number, "", []),
        "poses": ("poses", "q,v,constants", leaves(q[None], v[None], constants), number, "mass", []),
    }[form]


@pytest.mark.parametrize("form", ["rollout", "checkpoint", "forward", "inverse", "poses"])
def test_opcheck(form):
    torch.library.opcheck(torch.ops.backdrive.evaluate.default, operator_arguments(arm, form))


@pytest.mark.parametrize("form", ["rollout", "end", "checkpoint", "forward", "inverse", "poses"])
def test_the_operator_is_the_function(form):
    """Registered, its results and gradients are those of the functions that run outside of torch.compile."""
    from backdrive.runtime import autograd
    from backdrive.runtime.request import Request

    arguments = operator_arguments(arm, form)
    inputs = arguments[2]

    def function(form, names, tensors, *rest):
        request = Request.parse(form, names, *rest)
        return autograd.evaluate(request, dict(zip(request.names, tensors))).values()

    outcomes = []
    for evaluate in (torch.ops.backdrive.evaluate, function):
        outputs = list(evaluate(*arguments))
        loss = project(*(outputs[:-1] if form not in ("forward", "inverse", "poses") else outputs))
        outcomes.append((outputs, torch.autograd.grad(loss, inputs)))
    for mine, right in zip(*outcomes):
        assert all(torch.equal(x, y) for x, y in zip(mine, right, strict=True))


def test_opcheck_of_the_others():
    number, mass = simulator(arm)._program.number, arm().parameter("mass")
    axis = arm().parameter("axis") * torch.tensor([[[1.0]], [[2.0]]], dtype=torch.float64)
    torch.library.opcheck(torch.ops.backdrive.assemble.default, (number, "mass,axis", leaves(mass, axis)))
    (q, v), u = random_state(arm(), 1, 2), random_controls(arm(), 1, 2)
    names = "path_q,path_v,controls,path_q_bar,path_v_bar,last_q_bar,last_v_bar"
    bars = [randn(1, 2, 13), randn(1, 2, 11), randn(2, 13), randn(2, 11)]
    arguments = ("rollout", names, [q, v, u, *bars], number, "", [1, 1, 0, 0], "")
    torch.library.opcheck(torch.ops.backdrive.vjp.default, arguments)


def test_the_operator_that_assembles_parameters():
    """Its gradient, with shared values and axes that are normalised, is that of the function."""
    inputs = leaves(arm().parameter("mass"), arm().parameter("axis") * randn(2, 1, 1))
    found = torch.ops.backdrive.assemble(simulator(arm)._program.number, "mass,axis", inputs)
    expected = arm().assemble({"mass": inputs[0], "axis": inputs[1]})
    assert torch.equal(found, expected)
    assert_close(torch.autograd.grad(project(found), inputs), torch.autograd.grad(project(expected), inputs))


def test_second_derivatives_of_the_operator_raise():
    arguments = operator_arguments(arm, "forward")
    (gradient,) = torch.autograd.grad(
        torch.ops.backdrive.evaluate(*arguments)[0].sum(), arguments[2][0], create_graph=True
    )
    with pytest.raises(RuntimeError, match="backdrive has first derivatives only"):
        gradient.sum().backward()


def test_tracing_records_the_operator():
    """make_fx and fake tensors see an operator, not numbers that happened to be computed."""
    from torch._subclasses import FakeTensorMode
    from torch.fx.experimental.proxy_tensor import make_fx

    sim, (q, v) = simulator(arm), random_state(arm(), 2)
    traced = make_fx(lambda q: sim.step(bd.State(q, v)).q)(q)
    assert "backdrive.evaluate" in traced.code
    other = random_state(arm(), 2, seed=9).q
    assert torch.equal(traced(other), sim.step(bd.State(other, v)).q)
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        after = sim.step(bd.State(mode.from_tensor(q), mode.from_tensor(v)))
    assert after.q.shape == (2, 13) and type(after.q).__name__ == "FakeTensor"
