"""Gradients of steps, rollouts, dynamics and poses, with respect to every input, agree with central differences."""

import pytest
import torch
from differences import autograd, central_differences, check_gradient, compare, require_smooth, weights
from hypothesis import given, settings
from hypothesis import strategies as st
from models import (
    KINDS_2D,
    all_joints,
    random_controls,
    random_state,
    random_tree,
    random_wrenches,
    robot,
    trees,
)

import backdrive as bd

DT = 0.02
STEPS = 3
INTEGRATORS = (bd.SemiImplicitEuler(), bd.Midpoint())


def inputs_of(model, seed=0, scale=1.0, steps=STEPS, wrenches=True, parameters=None) -> dict[str, torch.Tensor]:
    """Random values of everything that a rollout of one environment depends on."""
    q, v = (x[0] for x in random_state(model, 1, seed, scale))
    inputs = {"q": q, "v": v, "controls": random_controls(model, steps, seed=seed)}
    if wrenches:
        inputs["wrenches"] = random_wrenches(model, steps, seed=seed)
    names = model.parameters().names if parameters is None else parameters
    return inputs | {name: inside_range(model, name) for name in names}


def inside_range(model, name) -> torch.Tensor:
    """The values of a parameter; those at zero that may not be negative are moved, for differences on both sides."""
    values, lowest = model.parameter(name), [r.bounds[0] for r in model.parameters()[name].ranges]
    at_bound = (values == 0.0) & (torch.tensor(lowest).reshape(-1, *[1] * (values.ndim - 1)) == 0.0)
    return torch.where(at_bound, 0.05, values)


def split(inputs):
    """State, controls [T, E, nu], wrenches [T, E, nbody, k], and parameters."""
    x = dict(inputs)
    state = bd.State(x.pop("q"), x.pop("v"))
    controls, wrenches = x.pop("controls").transpose(0, 1), x.pop("wrenches", None)
    return state, controls, None if wrenches is None else wrenches.transpose(0, 1), x or None


def rollout_loss(sim, steps=STEPS, adjoint=None):
    model = sim.model
    of_q, of_v = weights(steps + 1, model.nq, seed=1), weights(steps + 1, model.nv, seed=2)

    def loss(inputs):
        state, controls, wrenches, parameters = split(inputs)
        path = sim.rollout(state, controls, wrenches=wrenches, parameters=parameters, adjoint=adjoint)
        if not path.q.requires_grad:
            require_smooth(sim.model, path)
        return (path.q * of_q[path.steps, None]).sum((0, 2)) + (path.v * of_v[path.steps, None]).sum((0, 2))

    return loss


# ---------------------------------------------------------------------------------------------- rollouts


@pytest.mark.slow
@settings(max_examples=40, deadline=None, derandomize=True)
@given(trees(max_links=5), st.sampled_from(INTEGRATORS), st.booleans(), st.sampled_from([1.0, 3.0]))
def test_rollouts_of_random_trees(model, integrator, wrenches, scale):
    sim = bd.Simulator(model, DT, integrator=integrator, specialize=False)
    check_gradient(rollout_loss(sim), inputs_of(model, scale=scale, wrenches=wrenches))


@settings(max_examples=20, deadline=None, derandomize=True)
@given(trees(dim=2, max_links=5), st.sampled_from(INTEGRATORS), st.booleans())
def test_rollouts_in_the_plane(model, integrator, wrenches):
    sim = bd.Simulator(model, DT, integrator=integrator, specialize=False)
    check_gradient(rollout_loss(sim), inputs_of(model, wrenches=wrenches))


@pytest.mark.parametrize("integrator", INTEGRATORS, ids=repr)
@pytest.mark.parametrize("seed", [0, 1, 2, 4, 11, 12])
def test_rollouts_of_every_joint(seed, integrator):
    model = all_joints(seed)
    sim = bd.Simulator(model, DT, integrator=integrator, specialize=False)
    check_gradient(rollout_loss(sim), inputs_of(model, seed))


@pytest.mark.parametrize("integrator", INTEGRATORS, ids=repr)
@pytest.mark.parametrize("displacement", [0.0, 1e-5, 1e-3, 0.1])
def test_rollouts_near_rest(displacement, integrator):
    """At rest with relaxed springs, rotation angles are zero, and the formulas that divide by them use their series."""
    model = random_tree(("free", "ball", "hinge", "ball"), seed=1)
    sim = bd.Simulator(model, DT, integrator=integrator, specialize=False)
    inputs = inputs_of(model)
    inputs["q"] = model.parameter("reference") + displacement * weights(model.nq)
    inputs["v"] = displacement * weights(model.nv, seed=1)
    check_gradient(rollout_loss(sim), inputs)


@pytest.mark.slow
@pytest.mark.parametrize(("seed", "dim", "integrator"), [(0, 3, INTEGRATORS[0]), (1, 2, INTEGRATORS[1])])
def test_specialised_rollouts(seed, dim, integrator):
    """Gradients by specialised kernels agree with differences by rolled ones."""
    model = all_joints(seed, dim)
    inputs = inputs_of(model, seed)
    rolled, special = (
        rollout_loss(bd.Simulator(model, DT, integrator=integrator, specialize=s)) for s in (False, True)
    )
    reference, value = central_differences(rolled, inputs)
    compare(autograd(special, inputs), reference, value, inputs)


ROBOT_PARAMETERS = ("com", "offset", "anchor", "axis", "stiffness", "damping", "reference", "gravity")


@pytest.mark.parametrize("name", ["laikago.urdf", "ant.xml", "panda.urdf", "humanoid.xml"])
def test_rollouts_of_robots(name):
    model = robot(name)
    sim = bd.Simulator(model, 0.005, specialize=False)
    names = [*ROBOT_PARAMETERS, *(["gear", "mass"] if name.endswith("xml") else [])]
    check_gradient(rollout_loss(sim, 2), inputs_of(model, scale=0.5, steps=2, parameters=names))


# ---------------------------------------------------------------------------------------------- ways to pass inputs


@pytest.mark.slow
@pytest.mark.parametrize("specialize", [False, True])
@pytest.mark.parametrize("integrator", INTEGRATORS, ids=repr)
def test_shared_parameters(integrator, specialize):
    """The gradient of shared parameters is the sum of those of parameters per environment; nothing else changes."""
    if specialize and integrator == INTEGRATORS[1]:
        pytest.skip("one specialised model is enough")
    model = all_joints(2)
    sim, single = bd.Simulator(model, DT, integrator=integrator, specialize=specialize), inputs_of(model)
    parameters = [name for name in single if name in model.parameters()]
    batch = {n: x if n in parameters else torch.stack([x, 0.9 * x, 1.1 * x]) for n, x in single.items()}
    own = {n: torch.stack([x] * 3) if n in parameters else x for n, x in batch.items()}
    gradients = []
    for values in (batch, own):
        leaves = {n: x.clone().requires_grad_() for n, x in values.items()}
        gradients.append(dict(zip(leaves, torch.autograd.grad(rollout_loss(sim)(leaves).sum(), list(leaves.values())))))
    for name in single:
        mine, right = gradients[0][name], gradients[1][name]
        right = right.sum(0) if name in parameters else right
        torch.testing.assert_close(mine, right, rtol=1e-11, atol=1e-13 * max(1.0, right.abs().max().item()))


def test_without_parameters_and_without_batch():
    """Gradients with respect to state, controls and wrenches do not depend on which other inputs are given."""
    model = all_joints(2)
    sim, inputs = bd.Simulator(model, DT, specialize=False), inputs_of(model)
    names = ("q", "v", "controls", "wrenches")
    full = autograd(rollout_loss(sim), inputs)
    bare = autograd(rollout_loss(sim), {n: inputs[n] for n in names})
    leaves = {n: inputs[n].clone().requires_grad_() for n in names}
    path = sim.rollout(bd.State(leaves["q"], leaves["v"]), leaves["controls"], wrenches=leaves["wrenches"])
    of_q, of_v = weights(STEPS + 1, model.nq, seed=1), weights(STEPS + 1, model.nv, seed=2)
    ((path.q * of_q).sum() + (path.v * of_v).sum()).backward()
    for name in names:
        torch.testing.assert_close(full[name], bare[name], rtol=1e-11, atol=1e-13)
        assert torch.equal(bare[name], leaves[name].grad)


@pytest.mark.parametrize("integrator", INTEGRATORS, ids=repr)
def test_one_parameter_at_a_time(integrator):
    """The gradient of one parameter is the same alone and with all others; in specialised kernels too (2D: small)."""
    model = all_joints(1, dim=2)
    inputs = inputs_of(model)
    together = autograd(rollout_loss(bd.Simulator(model, DT, integrator=integrator, specialize=False)), inputs)
    for specialize, names in ((False, model.parameters().names), (True, ("mass", "offset"))):
        sim = bd.Simulator(model, DT, integrator=integrator, specialize=specialize)
        for name in names:
            some = {n: inputs[n] for n in ("q", "v", "controls", "wrenches", name)}
            alone = autograd(rollout_loss(sim), some)[name]
            torch.testing.assert_close(alone, together[name], rtol=1e-10, atol=1e-12)


# ---------------------------------------------------------------------------------------------- dynamics and poses


def forward_loss(sim):
    of_vdot = weights(sim.model.nv, seed=3)

    def loss(inputs):
        state, controls, wrenches, parameters = split(inputs)
        wrench = None if wrenches is None else wrenches[0]
        vdot = sim.forward_dynamics(state, controls[0], wrench=wrench, parameters=parameters)
        if not vdot.requires_grad:
            path = sim.rollout(state, controls, wrenches=wrenches, parameters=parameters)
            require_smooth(sim.model, path)
        return (vdot * of_vdot).sum(-1)

    return loss


def inverse_loss(sim):
    of_tau = weights(sim.model.nv, seed=4)

    def loss(inputs):
        x = dict(inputs)
        state, vdot = bd.State(x.pop("q"), x.pop("v")), x.pop("vdot")
        return (sim.inverse_dynamics(state, vdot, parameters=x or None) * of_tau).sum(-1)

    return loss


def mass_matrix_loss(sim):
    of_mass = weights(sim.model.nv, sim.model.nv, seed=5)

    def loss(inputs):
        x = dict(inputs)
        state = bd.State(x.pop("q"), x.pop("v"))
        return (sim.mass_matrix(state, parameters=x or None) * of_mass).sum((-1, -2))

    return loss


def pose_loss(sim, quantity):
    """A loss on the poses of all bodies along a short rollout."""

    def loss(inputs):
        state, controls, wrenches, parameters = split(inputs)
        path = sim.rollout(state, controls, wrenches=wrenches, parameters=parameters)
        if not path.q.requires_grad:
            require_smooth(sim.model, path)
        total = 0.0
        for k, body in enumerate(sim.model.bodies):
            x = getattr(path, quantity)(body)
            if quantity == "orientation" and sim.model.dim == 3:  # w >= 0: the sign may change within a difference
                x = x[..., None] * x[..., None, :]
            x = x.reshape(*x.shape[:2], -1)
            total = total + (x * weights(len(x), 1, x.shape[-1], seed=10 + k)).sum((0, 2))
        return total

    return loss


def dynamics_inputs(model, scale=1.0, **more):
    inputs = inputs_of(model, scale=scale)
    del inputs["controls"], inputs["wrenches"]
    return inputs | more


@settings(max_examples=15, deadline=None, derandomize=True)
@given(trees(max_links=5), st.sampled_from([1.0, 3.0]), st.booleans())
def test_forward_dynamics(model, scale, wrenches):
    sim = bd.Simulator(model, DT, specialize=False)
    check_gradient(forward_loss(sim), inputs_of(model, scale=scale, steps=1, wrenches=wrenches))


@settings(max_examples=15, deadline=None, derandomize=True)
@given(trees(max_links=5), st.sampled_from([1.0, 3.0]))
def test_inverse_dynamics(model, scale):
    sim = bd.Simulator(model, DT, specialize=False)
    check_gradient(inverse_loss(sim), dynamics_inputs(model, scale, vdot=random_state(model, 1, 7).v[0]))


@settings(max_examples=8, deadline=None, derandomize=True)
@given(trees(max_links=4))
def test_mass_matrix(model):
    sim = bd.Simulator(model, DT, specialize=False)
    check_gradient(mass_matrix_loss(sim), dynamics_inputs(model))


POSES = ("position", "orientation", "rotation", "velocity", "angular_velocity")


@pytest.mark.parametrize("dim", [2, 3])
@pytest.mark.parametrize("quantity", POSES)
def test_poses(quantity, dim):
    for seed in (0, 2):
        model = all_joints(seed + 10, dim)
        sim = bd.Simulator(model, DT, specialize=False)
        check_gradient(pose_loss(sim, quantity), inputs_of(model, seed, scale=3.0, steps=2))


@pytest.mark.slow
@pytest.mark.parametrize("dim", [2, 3])
def test_specialised_dynamics_and_poses(dim):
    model = random_tree(("free", "ball", "hinge", "planar", "fixed") if dim == 3 else KINDS_2D, 5, dim)
    rolled, special = (bd.Simulator(model, DT, specialize=s) for s in (False, True))
    vdot = random_state(model, 1, 7).v[0]
    cases = [
        (forward_loss, inputs_of(model, steps=1)),
        (inverse_loss, dynamics_inputs(model, vdot=vdot)),
        (lambda sim: pose_loss(sim, "velocity"), inputs_of(model, steps=1, wrenches=False)),
    ]
    for make, inputs in cases:
        mine, right = autograd(make(special), inputs), autograd(make(rolled), inputs)
        for name in inputs:
            scale = max(1.0, right[name].abs().max().item()) if right[name].numel() else 1.0
            torch.testing.assert_close(mine[name], right[name], rtol=1e-10, atol=1e-12 * scale)


# ---------------------------------------------------------------------------------------------- torch gradcheck


@pytest.mark.parametrize("integrator", INTEGRATORS, ids=repr)
def test_gradcheck_of_torch(integrator):
    """`torch.autograd.gradcheck` of a step and of a rollout of five steps, with parameters."""
    model = random_tree(("free", "ball", "hinge", "slider"), seed=22)
    sim = bd.Simulator(model, DT, integrator=integrator, specialize=False)
    x = {n: t.requires_grad_() for n, t in inputs_of(model, steps=5).items()}
    names = ("mass", "anchor", "stiffness", "gravity")

    def step(q, v, control, wrench, *parameters):
        return tuple(sim.step(bd.State(q, v), control, wrench=wrench, parameters=dict(zip(names, parameters))))

    def rollout(q, v, controls, *parameters):
        path = sim.rollout(bd.State(q, v), controls, parameters=dict(zip(names, parameters)))
        return path.q, path.v

    parameters = [x[name] for name in names]
    q, v, controls, wrenches = (x[name] for name in ("q", "v", "controls", "wrenches"))
    control, wrench = (t[0].detach().requires_grad_() for t in (controls, wrenches))
    assert torch.autograd.gradcheck(step, (q, v, control, wrench, *parameters), rtol=1e-6, atol=1e-7)
    assert torch.autograd.gradcheck(rollout, (q, v, controls, *parameters), rtol=1e-6, atol=1e-7)
