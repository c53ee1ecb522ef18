"""No step creates energy, whatever friction and restitution are; and gradients through the energy guard are exact."""

import pytest
import torch
from bouncing_worlds import kinetic_energy, states, world
from contact_differences import Tally, check_gradients
from contact_scenes import rolled

import backdrive as bd

DT = 1 / 60
SWEEPS = bd.ProjectedGaussSeidel(iterations=400, tolerance=1e-11, exact=False)
DENSE = {
    "plain": {"impacts": False},
    "plain, midpoint": {"impacts": False, "integrator": bd.Midpoint()},
    "plain, interior point": {"impacts": False, "solver": bd.InteriorPoint()},
    "exact": {"impacts": True},
    "exact, midpoint": {"impacts": True, "integrator": bd.Midpoint()},
    "float32": {"dtype": torch.float32},
}
BIG = {"sweeps": {"solver": SWEEPS}, "interior point": {"solver": bd.InteriorPoint()}}


def require_no_gain(sim: bd.Simulator, state: bd.State, steps: int) -> torch.Tensor:
    """[T, B]: how often the guard acted."""
    tolerance = 1e-9 if sim.dtype == torch.float64 else 1e-5
    path = sim.rollout(bd.State(state.q.to(sim.dtype), state.v.to(sim.dtype)), steps=steps)
    energy, solved = kinetic_energy(sim.model, path.v), (path.status.residual <= 1e3 * tolerance).all(0)
    gain = energy.amax(0) / energy[0] - 1.0
    assert solved.float().mean() > 0.9
    assert (gain[solved] <= tolerance).all(), f"the energy grows by {gain[solved].max():.3g} of itself"
    return path.status.guarded


@pytest.mark.parametrize("form", DENSE)
def test_energy_never_grows(form):
    acted = 0
    for seed in range(10):
        model = world(2, seed)
        acted += int(require_no_gain(rolled(model, DT, **DENSE[form]), states(model, seed, 32), 40).sum())
    assert acted > 50


@pytest.mark.parametrize("form", ["plain", "float32"])
def test_energy_of_balls_never_grows(form):
    acted = 0
    for seed in (0, 3, 7, 8):
        model = world(3, seed)
        sim = bd.Simulator(model, DT, specialize=False, **DENSE[form])
        acted += int(require_no_gain(sim, states(model, seed, 32), 40).sum())
    assert acted > 10


@pytest.mark.parametrize("form", BIG)
def test_energy_of_big_worlds_never_grows(form):
    acted = 0
    for seed in (2, 4, 7):
        model = world(2, seed)
        sim = bd.Simulator(model, DT, sparse=True, **BIG[form])
        acted += int(require_no_gain(sim, states(model, seed, 4), 30).sum())
    assert acted > 2


@pytest.mark.parametrize("options", [{"impacts": False}, {"sparse": True, "solver": SWEEPS}], ids=["dense", "big"])
def test_islands_are_guarded_on_their_own(options):
    """A rod that would gain energy, and far from it a ball that bounces without loss."""

    def scene(*bodies):
        scene = bd.Scene(2, gravity=(0.0, 0.0))
        scene.add_static(bd.HalfSpace((0.0, 1.0)), friction=2.0, restitution=1.0)
        surface = {"friction": 2.0, "restitution": 1.0, "mass": 1.0}
        if "rod" in bodies:
            scene.add_body("rod", bd.Box(1.0, 0.02), position=(0.0, 0.41), angle=0.9, velocity=(0.5, -1.0), **surface)
        if "ball" in bodies:
            scene.add_body("ball", bd.Circle(0.1), position=(5.0, 0.105), velocity=(0.0, -1.0), **surface)
        return scene.build()

    def last(model):
        path = bd.Simulator(model, 0.01, specialize=False, **options).rollout(model.initial_state(), steps=4)
        return path.last.v, int(path.status.guarded.sum())

    both, rod, ball = (last(scene(*bodies)) for bodies in (("rod", "ball"), ("rod",), ("ball",)))
    assert (both[1], rod[1], ball[1]) == (1, 1, 0)
    torch.testing.assert_close(both[0], torch.cat([rod[0], ball[0]]), rtol=0, atol=1e-9)


def few_sweeps(seed: int, count: int) -> tuple[bd.Simulator, bd.State]:
    """Worlds whose contacts are far from solved: sweeps without a warm start end after ten."""
    model = world(2, seed)
    solver = bd.ProjectedGaussSeidel(iterations=1, tolerance=1e-11, exact=False)
    return bd.Simulator(model, DT, sparse=True, solver=solver), states(model, seed, count)


def test_impulses_that_have_not_converged_gain_no_energy():
    unsolved = 0
    for seed in range(6):
        sim, state = few_sweeps(seed, 8)
        path = sim.rollout(state, steps=40)
        energy = kinetic_energy(sim.model, path.v)
        unsolved += int((~path.status.converged).sum())
        assert (energy[1:] <= (1.0 + 1e-9) * energy[:-1]).all()
    assert unsolved > 50


def test_gradients_of_impulses_that_have_not_converged():
    """The impulses of an island are scaled, so that it gains no energy: the scale is differentiated too."""
    tally, compared = Tally(), 0
    for seed in range(6):
        sim, state = few_sweeps(seed, 8)
        path = sim.rollout(state, steps=40)
        still = kinetic_energy(sim.model, path.v).diff(dim=0).abs() <= 1e-12  # all that was lost was given back
        t, k = (still & ~path.status.converged).nonzero(as_tuple=True)
        if len(t):
            compared += 1
            inputs = {"q": path.q[t, k][:2], "v": path.v[t, k][:2]}
            check_gradients(sim, inputs, 1, tally, step=2e-5)
    assert compared > 1
    tally.require("q", "v", least=0.3)


def guarded_steps(model: bd.Model, most: int, **options) -> dict[str, torch.Tensor]:
    """States from which the guard acts in the next step, each with parameters of its own."""
    surface = {"mass": model.parameter("mass"), "friction": model.parameter("friction").clamp(0.1)}
    surface["restitution"] = model.parameter("restitution").clamp(0.1, 0.95)
    path = rolled(model, DT, **options).rollout(states(model, 7, 64), steps=30, parameters=surface)
    status = path.status
    t, k = ((status.guarded > 0) & status.converged & (status.contacts > 0)).nonzero(as_tuple=True)
    inputs = {"q": path.q[t, k][:most], "v": path.v[t, k][:most]}
    return inputs | {name: x.repeat(len(inputs["q"]), 1) for name, x in surface.items()}


@pytest.mark.parametrize("form", ["plain", "plain, midpoint", "exact"])
def test_gradients_through_the_guard(form):
    tally = Tally()
    for seed in (2, 4, 7):
        model = world(2, seed)
        inputs = guarded_steps(model, 6, **DENSE[form])
        check_gradients(rolled(model, DT, **DENSE[form]), inputs, 1, tally, step=2e-5)
    tally.require("q", "v", "mass", "friction", "restitution", least=0.3)


@pytest.mark.parametrize("form", ["default", *BIG])
def test_gradients_through_the_guard_of_big_worlds(form):
    """By default, sweeps end at 1e-6."""
    model = world(2, 4)
    sim = bd.Simulator(model, DT, sparse=True, **(BIG | {"default": {}})[form])
    inputs = guarded_steps(model, 1, impacts=False)
    names = ("q", "v", "mass") if form == "interior point" else inputs  # interior points take long
    tally = check_gradients(sim, {name: inputs[name] for name in names}, 1, step=2e-5)
    tally.require("q", "v", "mass", least=0.3)


def test_jacobians_through_the_guard():
    model = world(2, 4)
    inputs = guarded_steps(model, 4, impacts=False)
    sim, none = rolled(model, DT, impacts=False), torch.zeros(4, 0, dtype=torch.float64)
    found = sim.linearize(bd.State(inputs["q"], inputs["v"]), none)[0]
    for k in range(4):
        q, v = (inputs[name][k].clone().requires_grad_() for name in ("q", "v"))
        after = sim.step(bd.State(q, v))
        rows = [torch.cat(torch.autograd.grad(x, (q, v), retain_graph=True)) for x in torch.cat([after.q, after.v])]
        torch.testing.assert_close(found[k], torch.stack(rows), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("solver", [bd.InteriorPoint(), bd.ProjectedGaussSeidel(iterations=20_000, tolerance=1e-12)])
def test_a_heavy_box_hits_a_light_one_on_the_floor_in_a_big_world(solver):
    """The energy of the bounce may enter at a contact that does not bounce: the one with the floor."""
    scene = bd.Scene(2, gravity=(0.0, 0.0))
    scene.add_static(bd.HalfSpace((0.0, 1.0)), friction=0.18, restitution=0.0)
    scene.add_body("light", bd.Box(0.2, 0.2), mass=1.4, friction=0.9, restitution=0.9)
    scene.add_body("heavy", bd.Box(0.15, 0.1), mass=8.5, friction=1.2, restitution=0.9)
    model = scene.build()
    sim = bd.Simulator(model, 1 / 120, solver=solver, sparse=True, impacts=False)
    generator = torch.Generator().manual_seed(0)
    q = torch.tensor([0.3865, 0.1023, 0.0283, 0.4846, 0.2753, -0.1243], dtype=torch.float64)
    v = torch.tensor([-0.33, 1.90, 3.47, 1.55, -1.32, -16.95], dtype=torch.float64)
    q = q + 1e-3 * torch.randn(64, 6, generator=generator, dtype=torch.float64)
    v = v * (0.5 + torch.rand(64, 6, generator=generator, dtype=torch.float64))
    path = sim.rollout(bd.State(q, v), steps=4)
    speeds, inertia = path.v.unflatten(-1, (2, 3)), model.parameter("inertia").flatten()
    terms = model.parameter("mass") * speeds[..., :2].square().sum(-1) + inertia * speeds[..., 2].square()
    energy = 0.5 * terms.sum(-1)
    assert (path.status.contacts > 0).any(0).sum() > 32 and path.status.guarded.sum() > 0
    assert (energy[1:] <= (1.0 + 1e-9) * energy[:-1])[path.status.converged].all()
