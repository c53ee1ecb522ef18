"""The Jacobian of the residuals is exact: against central differences, on worlds of every kind."""

import identify_worlds as worlds
import pytest
import torch

import backdrive as bd
from backdrive.identify import Learn, Observations
from backdrive.identify.check import _differences
from backdrive.identify.observations import Channels
from backdrive.identify.problem import FitProblem
from backdrive.identify.sensitivity import jacobian
from backdrive.identify.unknowns import Unknowns

STEPS = 40


def problem(make, learn, *, batch=None, seed=0, impacts=False, bodies=None, derive=None, **seen) -> FitProblem:
    simulator = worlds.simulator(make, impacts=True) if impacts else worlds.simulator(make)
    model = simulator.model
    generator = torch.Generator().manual_seed(seed)
    start = model.initial_state(batch)
    v = start.v + 0.3 * torch.randn(start.v.shape, generator=generator, dtype=torch.float64)
    state = bd.State(start.q, v)
    time = torch.tensor([0.0, 0.13, 0.26, 0.4, 0.61, 0.8], dtype=torch.float64)  # some between two steps
    lead = [len(time)] if batch is None else [len(time), batch]

    def random(*shape: int) -> torch.Tensor:
        table = torch.randn(*lead, *shape, generator=generator, dtype=torch.float64)
        return table.masked_fill(torch.rand(table.shape, generator=generator) < 0.2, torch.nan)  # not all was seen

    bodies = model.bodies if bodies is None else bodies
    sizes = {"q": model.nq, "v": model.nv}
    seen = {n: random(sizes[n]) if n in sizes else {b: random() for b in bodies} for n in seen if seen[n]}
    observed = Observations(time, {body: random(model.dim) for body in bodies}, noise=0.1, **seen)
    channels = Channels(observed, model, worlds.DT, batch)
    unknowns = Unknowns(model, learn, {}, state, derive)
    controls = worlds.controls(model, STEPS) if model.nu else None
    return FitProblem(simulator, channels, unknowns, controls, None)


def solid(parameters):
    """Links whose inertia follows from what is learned."""
    mass, size = parameters["mass"], parameters["size"].unflatten(-1, (-1, 2))
    return {"inertia": mass * size.square().sum(-1) / 12.0}


CASES = {
    "masses of a chain": (worlds.chain, ["mass"], {}),
    "masses without inertia, and damping": (worlds.chain, [Learn("mass", scale_inertia=False), "damping"], {}),
    "a total": (worlds.chain, [Learn("mass", shared="total")], {"angle": True}),
    "what moves the bodies itself": (worlds.chain, [Learn("anchor", "hinge2"), Learn("offset", "link3")], {"q": True}),
    "start and gravity": (worlds.chain, ["q0", "v0", Learn("gravity", "y")], {"angle": True, "q": True}),
    "several environments": (worlds.chain, ["mass", "damping"], {"batch": 3, "q": True}),
    "in space": (worlds.arm, ["mass", Learn("stiffness", "elbow"), Learn("gear", bounds=(0.1, 9.0))], {"q": True}),
    "start in space": (worlds.arm, ["v0", Learn("com", "lower")], {"bodies": ["lower", "top"]}),
    "friction and bounces": (
        worlds.ball, [Learn("friction", "ball"), Learn("restitution", "ball"), "v0"], {"impacts": True, "angle": True},
    ),
    "rates": (worlds.chain, ["mass", "damping", "v0"], {"v": True}),
    "rates in space": (worlds.arm, ["mass", Learn("stiffness", "elbow")], {"q": True, "v": True, "batch": 2}),
    "what is derived": (worlds.chain, ["mass", "size"], {"derive": solid, "v": True}),
    "size, by the time of the impact": (worlds.ball, [Learn("size", "ball.radius")], {"impacts": True}),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_jacobian_agrees_with_differences(case):
    make, learn, options = CASES[case]
    for seed in range(2):
        task = problem(make, learn, seed=seed, **options)
        x = task.unknowns.starts(1, None)
        z = task.unknowns.free(torch.cat([x, 1.1 * x + 0.01 * (x == 0)]))  # two starts in one batch
        with torch.no_grad():
            path = task.simulate(z)
        exact = jacobian(task, z, path)
        difference, _ = _differences(task, z, gradient=False)
        assert exact.shape == (2, task.count, len(task.unknowns))
        size = difference.norm(dim=1)
        error = (exact - difference).norm(dim=1) / size.clamp_min(1e-4 * float(size.max()))  # some have no influence
        assert float(error.max()) < 1e-6, (case, seed, error)


def test_jacobian_and_adjoint_give_the_same_gradient():
    task = problem(worlds.chain, ["mass", "damping", "v0"], angle=True)
    z = task.unknowns.free(task.unknowns.starts(1, None)).requires_grad_()
    loss, path = task.loss(z)
    (gradient,) = torch.autograd.grad(loss.sum(), z)
    J, r = jacobian(task, z.detach(), path), task.residuals(path).detach()
    assert torch.allclose(2.0 * (J.mT @ r.unsqueeze(-1)).squeeze(-1) / task.count, gradient, rtol=1e-10)
