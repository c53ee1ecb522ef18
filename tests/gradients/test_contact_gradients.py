"""Gradients through contact, friction, limits and loops are those of central differences, to every input.

The rolled kernels of a solver and an integrator serve all models of a dimension here (see `rolled`; restitution is
always among the parameters, so that it is one kernel): scenes cost no compilation, and can be random.
"""

import itertools
from dataclasses import replace

import pytest
import torch
from contact_differences import Tally, check_gradients, gradients, motion_loss
from contact_scenes import (
    INTEGRATORS,
    QUADRUPED,
    SHAPES,
    SOLVERS,
    chain,
    linkage,
    near_limits,
    on_the_ground,
    pair_model,
    pairs,
    parameters,
    random_robot,
    rolled,
    touching_states,
    walker,
)
from differences import weights
from hypothesis import given, settings
from hypothesis import strategies as st
from models import random_wrenches

import backdrive as bd

DT = 0.01
SCHEMES = {
    f"{solver}, {integrator}": {"solver": SOLVERS[solver], "integrator": INTEGRATORS[integrator]}
    for solver, integrator in itertools.product(SOLVERS, INTEGRATORS)
}
EVERY_DAY = ("gauss-seidel, euler", "interior-point, midpoint")  # each solver and each integrator; the rest is slow
ALL = pytest.mark.parametrize(
    "scheme", [pytest.param(scheme, marks=() if scheme in EVERY_DAY else pytest.mark.slow) for scheme in SCHEMES]
)
DIMENSIONS = pytest.mark.parametrize("dim", [2, 3])
IMMOVABLE = ("offset", "anchor")  # those of free joints move nothing, or only where q begins
OF_SHAPES = ("friction", "restitution", "size", "shape_position")
LONG = 1e-4  # relative step of differences over many steps


def simulator(model, scheme="gauss-seidel, euler"):
    return rolled(model, DT, **SCHEMES[scheme])


def names_of(model, *without):
    return [name for name in model.parameters().names if name not in (*without, "softness")]


def noise(*shape, seed=0):
    return weights(*shape, seed=seed)


# ---------------------------------------------------------------------------------------------- pairs of shapes


def pair_inputs(model, seed):
    """Half of the samples hit each other and bounce, the others come to rest on each other."""
    fast = touching_states(model, 2, seed)
    slow = touching_states(model, 2, seed + 100, depth=(-1e-4, 2e-5), speed=0.02)
    q, v = (torch.cat(x) for x in zip(fast, slow))
    return {"q": q, "v": v} | parameters(model, len(q), spread=0.02, seed=seed)


@pytest.mark.slow
@ALL
@pytest.mark.parametrize(("dim", "a", "b"), [(dim, *pair) for dim in SHAPES for pair in pairs(dim)])
def test_pairs(dim, a, b, scheme):
    """Every pair of shapes, and every parameter that it has; other poses for every scheme."""
    model, tally = pair_model(dim, a, b), Tally()
    seed = 10 * list(SCHEMES).index(scheme)
    for k in range(2):
        check_gradients(simulator(model, scheme), pair_inputs(model, seed + k), 1, tally)
    tally.require("q", "v", *names_of(model, *IMMOVABLE))


@ALL
@pytest.mark.parametrize("depth", [(-0.005, -1e-3), (0.001, 0.01)], ids=["apart", "penetrating"])
@pytest.mark.parametrize(("dim", "a", "b"), [(2, "circle", "box"), (3, "capsule", "box"), (3, "cylinder", "plane")])
def test_softness(dim, a, b, depth, scheme):
    model = pair_model(dim, a, b)
    q, v = touching_states(model, 4, depth=depth)
    inputs = {"q": q, "v": v} | parameters(model, 4, spread=0.02) | parameters(model, 4, "softness", spread=0.3)
    check_gradients(simulator(model, scheme), inputs, 1).require("q", "v", "softness", "friction", "mass", "gravity")


@ALL
@DIMENSIONS
def test_corrections_that_only_push(dim, scheme):
    """A tall box, in the ground with all corners of its base: what lifts the deepest lifts others more than enough."""
    scene = bd.Scene(dim)
    scene.add_static(bd.HalfSpace((0.0,) * (dim - 1) + (1.0,)))
    scene.add_body("box", bd.Box(*[0.2] * (dim - 1), 1.0), mass=1.0, position=(0.0,) * (dim - 1) + (0.49,))
    model, samples = scene.build(), 4
    state = model.initial_state(samples)
    q, turn = state.q, state.q[:, dim:]  # an angle, or a quaternion
    turn += 0.02 * noise(*turn.shape)
    if dim == 3:
        turn /= turn.norm(dim=1, keepdim=True)
    inputs = {"q": q, "v": state.v + 0.1 * noise(*state.v.shape)}
    check_gradients(simulator(model, scheme), inputs | parameters(model, samples), 1).require("q", "v", "size", "mass")


@ALL
@DIMENSIONS
def test_violated_equations(dim, scheme):
    """Centimetres apart, and two of the equations contradict each other: they are damped by as much as is missing."""
    scene = bd.Scene(dim)
    for name, x in (("a", 0.5), ("b", 1.0)):
        scene.add_body(name, bd.Box(*(0.4, 0.2, 0.3)[:dim]), mass=1.0, position=(x, *(0.1,) * (dim - 1)))
    scene.exclude("a", "b")
    scene.add_constraint("weld", bd.Weld(), a="b", b="a")
    scene.add_constraint("rod", bd.Distance(0.45), a="a", anchor_b=(0.0,) * dim)
    scene.add_constraint("shorter", bd.Distance(0.42), a="a", anchor_b=(0.02,) * dim)
    model, samples = scene.build(), 4
    state = model.initial_state(samples)
    moved = state.q + 0.01 * noise(*state.q.shape)
    if dim == 3:
        for turn in (moved[:, 3:7], moved[:, 10:14]):
            turn /= turn.norm(dim=1, keepdim=True)
    inputs = {"q": moved, "v": state.v + 0.1 * noise(*state.v.shape)}
    check_gradients(simulator(model, scheme), inputs | parameters(model, samples), 2).require("q", "v", "mass")


@pytest.mark.parametrize(
    ("scheme", "specialize"),
    [
        *(pytest.param(scheme, False, marks=() if scheme in EVERY_DAY else pytest.mark.slow) for scheme in SCHEMES),
        pytest.param("gauss-seidel, euler", True, marks=pytest.mark.slow),
    ],
)
@pytest.mark.parametrize(("dim", "a"), [(2, "box"), (3, "box"), (3, "capsule"), (3, "cylinder"), (3, "convex")])
def test_shapes_that_lie_flat(dim, a, scheme, specialize):
    """Several contacts of one face, which share its load, begin to slide and tilt: over some steps."""
    model = pair_model(dim, a, "plane")
    # Friction of a face that slides depends on how its points share the load: without compliance, only by rounding.
    options = SCHEMES[scheme] | {"solver": replace(SCHEMES[scheme]["solver"], cfm=1e-2 if dim == 3 else 0.0)}
    sim = bd.Simulator(model, DT, specialize=True, **options) if specialize else rolled(model, DT, **options)
    samples = 3 if dim == 2 else 9
    q, v = touching_states(model, samples, depth=(-1e-3, 0.0))
    settled = sim.rollout(bd.State(q, v), steps=300, parameters=parameters(model, samples, "restitution")).last
    names = ("mass", "com", "inertia", "gravity", *OF_SHAPES)  # those that the body has
    inputs = {"q": settled.q, "v": settled.v + 0.2 * noise(*v.shape)} | parameters(model, samples, *names)
    check_gradients(sim, inputs, 5, step=LONG).require("q", "v", *(name for name in names if name != "restitution"))


@pytest.mark.slow
@pytest.mark.parametrize("options", [{"combine": "max"}, {"combine": "min"}, {"pyramid": 6}], ids=str)
def test_other_rules_of_friction(options):
    """How the materials of two shapes combine, and finer pyramids."""
    scene = bd.Scene(3, combine=options.get("combine", "mean"))
    scene.add_static(bd.HalfSpace((0, 0, 1)), friction=0.4, restitution=0.3)
    scene.add_body("ball", bd.Sphere(0.2), mass=1.0, friction=0.6, restitution=0.5)
    model = scene.build()
    q = model.initial_state(batch=4).q
    q[:, 2] += 0.2
    v = noise(4, 6) - torch.tensor([4.0, 3.0, 3.0, 0.0, 0.0, 0.0], dtype=q.dtype)
    sim = bd.Simulator(model, DT, specialize=False, pyramid=options.get("pyramid", 4))
    inputs = {"q": q, "v": v} | parameters(model, 4, spread=0.02)
    check_gradients(sim, inputs, 1).require("q", "v", "friction", "restitution", "size")


# ---------------------------------------------------------------------------------------------- robots and linkages


def controls(model, steps, samples, seed):
    return {"controls": noise(samples, steps, model.nu, seed=seed + 1)}


def robot_inputs(model, steps, samples=1, seed=0, drop=0.0, speed=1.0):
    """From the model's own state, lowered by `drop`, with random velocities, controls and parameters (all it has)."""
    given = parameters(model, samples, spread=0.05, seed=seed)
    q = model.initial_state(batch=samples).q.clone()
    v = speed * noise(samples, model.nv, seed=seed)
    q[:, model.dim - 1] -= drop
    if model.nlimit:
        q, v = near_limits(model, q, v, seed, given)
    return {"q": q, "v": v} | controls(model, steps, samples, seed) | given


@ALL
@DIMENSIONS
@settings(max_examples=4)
@given(seed=st.integers(0, 2**16))
def test_random_robots(dim, scheme, seed):
    """One step of trees with random joints, shapes, limits, joint friction and loops, as they hit the ground."""
    model = random_robot(dim, seed)
    given = parameters(model, 1, spread=0.05, seed=seed)
    q, v = on_the_ground(model, 1, seed, given)
    inputs = {"q": q, "v": v} | controls(model, 1, 1, seed) | given
    check_gradients(simulator(model, scheme), inputs, 1).require("q", "v", least=0.3)


@ALL
@DIMENSIONS
def test_walker(dim, scheme):
    """Steps that hit the ground, a wall and limits; every parameter has an influence."""
    model, tally = walker(dim), Tally()
    sim = simulator(model, scheme)
    for seed in range(2):
        check_gradients(sim, robot_inputs(model, 1, 2, seed, drop=0.26, speed=2.0), 1, tally)
        check_gradients(sim, robot_inputs(model, 8, 1, seed, drop=0.2, speed=2.0), 8, tally, LONG)
    tally.require("q", "v", "controls", *names_of(model))


@pytest.mark.slow
@ALL
@DIMENSIONS
def test_walker_over_50_steps(dim, scheme):
    model, tally = walker(dim), Tally()
    sim = simulator(model, scheme)
    for seed in (0, 3, 5, 7, 11) if dim == 2 else (0, 5, 6):
        check_gradients(sim, robot_inputs(model, 50, 1, seed, drop=0.2), 50, tally, (0.2 if dim == 2 else 0.1) * LONG)
    tally.require("q", "v", "controls", *names_of(model))


def test_slope_of_a_barely_converged_solution():
    """A solution of residual 9e-11, not made exact, would have differences that are off by 2e-5."""
    model = walker(3)
    inputs = robot_inputs(model, 50, 2, 5, drop=0.2)
    check_gradients(simulator(model, "interior-point, euler"), inputs, 50, step=0.2 * LONG)


@ALL
@DIMENSIONS
def test_loops_and_constraints(dim, scheme):
    """A four-bar linkage, a rod, a weld and locks, with joint friction: one step, and 50."""
    model, tally = linkage(dim), Tally()
    for steps in (1, 50):
        check_gradients(simulator(model, scheme), robot_inputs(model, steps, 1, steps), steps, tally, LONG)
    tally.require("q", "v", "controls", *names_of(model, *OF_SHAPES))


@ALL
@DIMENSIONS
@pytest.mark.parametrize("coordinates", ["reduced", "maximal"])
def test_chains_that_fall_on_the_ground(dim, scheme, coordinates):
    """50 steps; in maximal coordinates all joints are constraints, whose anchors are no parameters."""
    model = chain(dim, 3, coordinates, ground=-0.25)
    tally = check_gradients(simulator(model, scheme), robot_inputs(model, 50, 3, speed=0.5), 50, step=LONG)
    tally.require("q", "v", "mass", "com", "inertia", "gravity", *OF_SHAPES)


TWO = pytest.mark.parametrize(("dim", "scheme"), [(2, "interior-point, midpoint"), (3, "gauss-seidel, euler")])


@pytest.mark.slow
@TWO
def test_forces(dim, scheme):
    """Of contacts, limits, joint friction and loops."""
    sim = simulator(walker(dim), scheme)
    bounded = tuple(f"{joint}{k}" for joint in ("hip", "knee") for k in (0, 1))
    tally = Tally()
    for seed in range(3):
        inputs = robot_inputs(sim.model, 1, 2, seed, drop=0.26, speed=2.0)
        check_gradients(sim, inputs, 1, tally, forces=bounded)
    tally.require("q", "v", "controls", *names_of(sim.model, "limit_low", "limit_high"))
    sim = simulator(linkage(dim), scheme)
    tally = check_gradients(sim, robot_inputs(sim.model, 1), 1, forces=("a", "d", "rod", "weld", "lock", "upright"))
    tally.require("q", "v", "controls", *names_of(sim.model, *OF_SHAPES))


@pytest.mark.slow
@TWO
def test_wrenches(dim, scheme):
    model = walker(dim)
    inputs = robot_inputs(model, 2, 2, 1, drop=0.26, speed=2.0)
    inputs["wrenches"] = random_wrenches(model, 2, 2)
    check_gradients(simulator(model, scheme), inputs, 2).require(
        "q", "v", "controls", "wrenches", "mass", "size", "gravity"
    )


def test_5000_steps():
    """A robot that drops onto its feet and stands."""
    model = bd.load(QUADRUPED)
    start = model.initial_state()
    leaves = [start.q.clone().requires_grad_(), torch.zeros(5000, model.nu, dtype=torch.float64, requires_grad=True)]
    path = bd.Simulator(model, 0.002).rollout(bd.State(leaves[0], start.v), leaves[1])
    assert path.status.converged.all() and path.status.contacts[-1] == 4
    path.last.q.sum().backward()
    assert all(x.grad.isfinite().all() and x.grad.abs().max() > 0 for x in leaves)
    weight = float(model.parameter("mass").sum()) * 9.81
    assert path.contacts.force[-1, :, 2].sum().item() == pytest.approx(weight, rel=1e-3)


# ---------------------------------------------------------------------------------------------- ways to compute them


@pytest.mark.slow
@DIMENSIONS
def test_rolled_is_specialised(dim):
    model = walker(dim)
    inputs = robot_inputs(model, 20, 2, drop=0.2)
    rolled, special = (bd.Simulator(model, DT, specialize=s) for s in (False, True))
    names = ("q", "v", "controls", "mass", "friction", "restitution", "size", "limit_low", "joint_friction")
    inputs = {name: inputs[name] for name in names}
    right = gradients(special, inputs, 20)
    for name, x in gradients(rolled, inputs, 20).items():
        torch.testing.assert_close(right[name], x, rtol=1e-9, atol=1e-9 * x.abs().max().item())


@DIMENSIONS
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
    names = names_of(model)
    own = inputs | {name: inputs[name][:1].expand_as(inputs[name]) for name in names}
    right = gradients(sim, own, 10)
    leaves = {name: inputs[name][0].clone().requires_grad_() for name in names}
    others = {name: x for name, x in inputs.items() if name not in names}
    loss, _ = motion_loss(sim, others | leaves, 10)
    loss.sum().backward()
    for name, x in leaves.items():
        total = right[name].sum(0)
        torch.testing.assert_close(x.grad, total, rtol=1e-10, atol=1e-12 * max(1.0, total.abs().max().item()))


@pytest.mark.slow
def test_checkpoints_and_linearize():
    """Motion and gradients over kept states only, and step Jacobians, are the same."""
    model = walker(2)
    sim, inputs = simulator(model), robot_inputs(model, 20, 3, drop=0.2)
    few = {name: inputs[name] for name in ("q", "v", "controls")}
    path = sim.rollout(bd.State(few["q"], few["v"]), few["controls"].transpose(0, 1))
    leaf = few["q"].clone().requires_grad_()
    for adjoint in (None, bd.Checkpoint(4), bd.Checkpoint(20)):
        again = sim.rollout(bd.State(leaf, few["v"]), few["controls"].transpose(0, 1), adjoint=adjoint)
        torch.testing.assert_close(again.last.q.detach(), path.last.q, rtol=0.0, atol=0.0)
        (gradient,) = torch.autograd.grad(again.last.v.sum(), leaf)
        if adjoint is None:
            right = gradient
        assert torch.equal(gradient, right)
    A, B = sim.linearize(bd.State(few["q"], few["v"]), few["controls"][:, 0])
    state = [few["q"].clone().requires_grad_(), few["v"].clone().requires_grad_()]
    after = sim.step(bd.State(*state), few["controls"][:, 0])
    rows = [torch.cat(torch.autograd.grad(x.sum(), state, retain_graph=True), 1) for x in after.v.unbind(1)]
    torch.testing.assert_close(A[:, model.nv :], torch.stack(rows, 1), rtol=1e-11, atol=1e-11)
    assert B.shape == (3, 2 * model.nv, model.nu)
