"""Gradients through contact, friction, limits and loops are those of central differences, to every input.

The rolled kernels serve all models here: restitution is always among the parameters, so that it is one kernel.
"""

import pytest
import torch
from contact_differences import Tally, check_gradients, gradients, motion_loss
from contact_scenes import chain, linkage, near_limits, pair_model, pairs, parameters, touching_states, walker
from differences import weights

import backdrive as bd

DT = 0.01
SCHEMES = {
    "gauss-seidel": {"solver": bd.ProjectedGaussSeidel(), "integrator": bd.SemiImplicitEuler()},
    "interior-point": {"solver": bd.InteriorPoint(), "integrator": bd.Midpoint()},
}
IMMOVABLE = ("offset", "anchor")  # those of free joints move nothing, or only where q begins
SHAPES = ("friction", "restitution", "size", "shape_position")
LONG = 1e-4  # relative step of differences over many steps


def simulator(model, scheme="gauss-seidel", specialize=False, dt=DT, **options):
    return bd.Simulator(model, dt, specialize=specialize, **SCHEMES[scheme], **options)


def all_but(model, *names):
    return [name for name in model.parameters().names if name not in (*names, "softness")]


def noise(*shape, seed=0):
    return weights(*shape, seed=seed)


# ---------------------------------------------------------------------------------------------- pairs of shapes


def pair_inputs(model, samples=3, seed=0):
    """Half of the samples hit each other and bounce, the others come to rest on each other."""
    fast = touching_states(model, samples, seed)
    slow = touching_states(model, samples, seed + 1, depth=(-1e-4, 2e-5), speed=0.02)
    q, v = (torch.cat(x) for x in zip(fast, slow))
    return {"q": q, "v": v} | parameters(model, len(q), spread=0.02)


@pytest.mark.parametrize(("a", "b"), pairs(2))
@pytest.mark.parametrize("scheme", SCHEMES)
def test_pairs_in_the_plane(scheme, a, b):
    model = pair_model(2, a, b)
    tally = check_gradients(simulator(model, scheme), pair_inputs(model), 1)
    tally.require(*all_but(model, *IMMOVABLE))


@pytest.mark.parametrize(("a", "b"), pairs(3))
def test_pairs_in_space(a, b):
    model = pair_model(3, a, b)
    tally = check_gradients(simulator(model), pair_inputs(model, 2), 1)
    tally.require(*all_but(model, *IMMOVABLE))


@pytest.mark.parametrize(("dim", "a"), [(2, "box"), (3, "box"), (3, "capsule"), (3, "cylinder"), (3, "convex")])
def test_shapes_that_lie_flat(dim, a):
    """Several contacts of one face, which share its load: over some steps, by the specialised kernels."""
    model = pair_model(dim, a, "plane")
    sim = simulator(model, specialize=True)
    q, v = touching_states(model, 3, depth=(-1e-3, 0.0))
    settled = sim.rollout(bd.State(q, v), steps=300).last
    names = all_but(model, "restitution")
    inputs = {"q": settled.q, "v": settled.v + 0.05 * noise(*v.shape)} | parameters(model, 3, *names)
    check_gradients(sim, inputs, 5).require("q", "v", "friction", "mass", "gravity")


def check_softness(depth):
    model = pair_model(2, "circle", "box")
    q, v = touching_states(model, 6, depth=depth)
    inputs = {"q": q, "v": v} | parameters(model, 6, "softness", "restitution", "friction", spread=0.3)
    check_gradients(simulator(model), inputs, 1).require("q", "v", "softness")


def test_softness():
    """Before they touch."""
    check_softness((-0.005, -1e-3))


def test_softness_of_penetrations():
    check_softness((0.001, 0.01))


# ---------------------------------------------------------------------------------------------- robots and linkages


def robot_inputs(model, steps, samples=3, seed=0, drop=0.0, speed=1.0):
    """Random velocities and controls, and start states from where the first coordinate is lowered by `drop`."""
    q = model.initial_state(batch=samples).q.clone()
    v = speed * noise(samples, model.nv, seed=seed)
    q[:, model.dim - 1] -= drop
    if model.nlimit:
        q, v = near_limits(model, q, v, seed)
    return {"q": q, "v": v, "controls": noise(samples, steps, model.nu, seed=seed + 1)} | parameters(
        model, samples, spread=0.05, seed=seed
    )


ROBOTS = [("gauss-seidel", 2), ("gauss-seidel", 3), ("interior-point", 2)]


@pytest.mark.parametrize(("scheme", "dim"), ROBOTS)
def test_walker(scheme, dim):
    """Steps that hit the ground, a wall and limits; every parameter has an influence."""
    model, tally = walker(dim), Tally()
    sim = simulator(model, scheme)
    for seed in range(2):
        check_gradients(sim, robot_inputs(model, 1, 4, seed, drop=0.26, speed=2.0), 1, tally)
        check_gradients(sim, robot_inputs(model, 8, 2, seed, drop=0.2, speed=2.0), 8, tally, LONG)
    tally.require(*all_but(model))


@pytest.mark.parametrize(("scheme", "dim"), ROBOTS)
def test_walker_over_many_steps(scheme, dim):
    model, tally = walker(dim), Tally()
    sim = simulator(model, scheme)
    for seed in (0, 5):
        check_gradients(sim, robot_inputs(model, 50, 2, seed, drop=0.2), 50, tally, 0.2 * LONG)
    tally.require("q", "v", "controls", *all_but(model))


@pytest.mark.parametrize(("scheme", "dim"), ROBOTS)
def test_loops_and_constraints(scheme, dim):
    """A four-bar linkage, a rod, a weld and locks, with joint friction."""
    model = linkage(dim)
    sim, tally = simulator(model, scheme), Tally()
    for steps in (1, 50):
        check_gradients(sim, robot_inputs(model, steps, 2, steps), steps, tally, LONG)
    tally.require("q", "v", "controls", *all_but(model, *SHAPES))


@pytest.mark.parametrize("coordinates", ["reduced", "maximal"])
@pytest.mark.parametrize(("scheme", "dim"), ROBOTS)
def test_chains_that_fall_on_the_ground(scheme, dim, coordinates):
    """50 steps; in maximal coordinates all joints are constraints, whose anchors are no parameters."""
    model = chain(dim, 3, coordinates, ground=-0.25)
    inputs = robot_inputs(model, 50, 2, speed=0.5)
    tally = check_gradients(simulator(model, scheme), inputs, 50, step=LONG)
    tally.require("q", "v", "mass", "com", "inertia", "gravity", *SHAPES)


# ---------------------------------------------------------------------------------------------- ways to compute them


@pytest.mark.parametrize("dim", [2, 3])
def test_rolled_is_specialised(dim):
    model = walker(dim)
    inputs = robot_inputs(model, 20, 2, drop=0.2)
    rolled, special = (simulator(model, specialize=s) for s in (False, True))
    names = ("q", "v", "controls", "mass", "friction", "restitution", "size", "limit_low", "joint_friction")
    inputs = {name: inputs[name] for name in names}
    for name, x in gradients(rolled, inputs, 20).items():
        torch.testing.assert_close(gradients(special, inputs, 20)[name], x, rtol=1e-9, atol=1e-9 * x.abs().max().item())


@pytest.mark.parametrize("dim", [2, 3])
def test_alone_and_in_a_batch(dim):
    """The gradient of an environment has the same bits, whoever its neighbours are."""
    model = walker(dim)
    sim, inputs = simulator(model), robot_inputs(model, 10, 11, drop=0.2)
    together = gradients(sim, inputs, 10)
    for k in (0, 4, 10):
        alone = gradients(sim, {name: x[k : k + 1] for name, x in inputs.items()}, 10)
        for name, x in alone.items():
            assert torch.equal(x[0], together[name][k]), name


def test_shared_parameters():
    """Their gradient is the sum of those of every environment's own."""
    model = walker(2)
    sim, inputs = simulator(model), robot_inputs(model, 10, 4, drop=0.2)
    names = all_but(model)
    own = inputs | {name: inputs[name][:1].expand_as(inputs[name]) for name in names}
    right = gradients(sim, own, 10)
    leaves = {name: inputs[name][0].clone().requires_grad_() for name in names}
    loss, _ = motion_loss(sim, {"q": inputs["q"], "v": inputs["v"], "controls": inputs["controls"]} | leaves, 10)
    loss.sum().backward()
    for name, x in leaves.items():
        total = right[name].sum(0)
        torch.testing.assert_close(x.grad, total, rtol=1e-10, atol=1e-12 * max(1.0, total.abs().max().item()))


def test_checkpoints_and_linearize():
    """Gradients over kept states only, and step Jacobians, are the same."""
    model = walker(2)
    sim, inputs = simulator(model), robot_inputs(model, 20, 3, drop=0.2)
    few = {name: inputs[name] for name in ("q", "v", "controls")}
    path = sim.rollout(bd.State(few["q"], few["v"]), few["controls"].transpose(0, 1))
    leaf = few["q"].clone().requires_grad_()
    for adjoint in (None, bd.Checkpoint(4), bd.Checkpoint(20)):
        again = sim.rollout(bd.State(leaf, few["v"]), few["controls"].transpose(0, 1), adjoint=adjoint)
        assert torch.equal(again.last.q, path.last.q)
        (gradient,) = torch.autograd.grad(again.last.v.sum(), leaf)
        if adjoint is None:
            right = gradient
        torch.testing.assert_close(gradient, right, rtol=1e-11, atol=1e-12 * right.abs().max().item())
    A, B = sim.linearize(bd.State(few["q"], few["v"]), few["controls"][:, 0])
    state = [few["q"].clone().requires_grad_(), few["v"].clone().requires_grad_()]
    after = sim.step(bd.State(*state), few["controls"][:, 0])
    rows = [torch.cat(torch.autograd.grad(x.sum(), state, retain_graph=True), 1) for x in after.v.unbind(1)]
    torch.testing.assert_close(A[:, model.nv :], torch.stack(rows, 1), rtol=1e-11, atol=1e-11)
    assert B.shape == (3, 2 * model.nv, model.nu)
