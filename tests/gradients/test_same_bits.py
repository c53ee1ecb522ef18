"""A step is a function of its state, inputs and parameters: states and gradients have the same bits however they come.

Alone, among others, in another order, on two threads, in a loop of steps, and over kept states only.
"""

import importlib.util
import itertools
from pathlib import Path

import numpy as np
import pytest
import torch
from contact_scenes import INTEGRATORS, SHAPES, SOLVERS, ground, rolled
from hypothesis import given, settings
from hypothesis import strategies as st
from mujoco_worlds import load
from torch import Tensor

import backdrive as bd

SEEDS = st.integers(0, 2**32 - 1)
STEPS, DT, ENVIRONMENTS = 12, 0.01, 5
CROWD = 1 + 20_000 // (2 * STEPS)  # environments of two links for which a second thread pays

WAYS = list(itertools.product((2, 3), INTEGRATORS, SOLVERS, (True, False)))
QUICK = [*WAYS[:8], (3, "euler", "gauss-seidel", True)]
EACH = pytest.mark.parametrize(
    ("dim", "integrator", "solver", "impacts"),
    [way if way in QUICK else pytest.param(*way, marks=pytest.mark.slow) for way in WAYS],
)


def random_world(rng: np.random.Generator, dim: int) -> bd.Model:
    """Two to four bodies above a floor, some of them on the one before by a hinge with limits, friction and a motor."""
    scene = ground(dim, friction=rng.uniform(0.2, 0.8), restitution=rng.uniform(0.1, 0.7))
    shapes = [shape for name, shape in SHAPES[dim].items() if name != "plane"]
    for k in range(rng.integers(2, 5)):
        place = (0.55 * k, *rng.uniform(-0.1, 0.1, size=dim - 2), rng.uniform(0.25, 0.45))
        scene.add_body(
            f"body{k}", shapes[rng.integers(len(shapes))], mass=rng.uniform(0.5, 2.0), position=place,
            friction=rng.uniform(0.2, 0.8), restitution=rng.uniform(0.1, 0.7),
        )  # fmt: skip
        if k > 0 and rng.uniform() < 0.5:
            axis = {} if dim == 2 else {"axis": tuple(rng.normal(size=3))}
            hinge = bd.Hinge(**axis, limits=(-0.05, 0.4), friction=0.02)
            joint = scene.add_joint(f"hinge{k}", hinge, parent=f"body{k - 1}", child=f"body{k}")
            scene.add_motor(f"motor{k}", joint=joint)
    return scene.build()


def random_inputs(rng: np.random.Generator, model: bd.Model) -> dict[str, Tensor]:
    """Of every environment: state, controls [B, T, nu] and masses."""

    def normal(*shape: int) -> Tensor:
        return torch.tensor(rng.normal(size=(ENVIRONMENTS, *shape)))

    start = model.initial_state(ENVIRONMENTS)
    return {
        "q": start.q + 0.03 * normal(model.nq), "v": start.v + normal(model.nv),
        "controls": normal(STEPS, model.nu), "mass": model.parameter("mass") * (1.0 + 0.1 * normal(model.nbody).tanh()),
    }  # fmt: skip


def motion(
    sim: bd.Simulator, inputs: dict[str, Tensor], adjoint: bd.Checkpoint | None = None, loop: bool = False
) -> dict[str, Tensor]:
    """The last state and the gradients of a function of it, with an environment in every row."""
    leaves = {name: x.clone().requires_grad_() for name, x in inputs.items()}
    state, controls, parameters = bd.State(leaves["q"], leaves["v"]), leaves["controls"], {"mass": leaves["mass"]}
    if loop:
        for t in range(STEPS):
            state = sim.step(state, controls[:, t], parameters=parameters)
    else:
        state = sim.rollout(state, controls.transpose(0, 1), parameters=parameters, adjoint=adjoint).last
    weight_q, weight_v = (torch.linspace(-1.0, 2.0, n, dtype=torch.float64) for n in (sim.model.nq, sim.model.nv))
    gradients = torch.autograd.grad((state.q @ weight_q + state.v @ weight_v).sum(), list(leaves.values()))
    found = {"last q": state.q.detach(), "last v": state.v.detach()}
    return found | {f"gradient of {name}": x for name, x in zip(leaves, gradients, strict=True)}


def chosen(inputs: dict[str, Tensor], of: Tensor) -> dict[str, Tensor]:
    return {name: x[of] for name, x in inputs.items()}


def assert_same(found: dict[str, Tensor], right: dict[str, Tensor], besides: tuple[str, ...] = ()) -> None:
    for name in found.keys() - set(besides):
        assert torch.equal(found[name], right[name]), f"{name}: {(found[name] - right[name]).abs().max():.1e}"


@EACH
@settings(max_examples=3)
@given(SEEDS)
def test_however_a_motion_is_computed(dim, integrator, solver, impacts, seed):
    rng = np.random.default_rng(seed)
    model = random_world(rng, dim)
    options = {"integrator": INTEGRATORS[integrator], "solver": SOLVERS[solver], "impacts": impacts}
    sim, inputs = rolled(model, DT, threads=1, **options), random_inputs(rng, model)
    right = motion(sim, inputs)
    alone = torch.tensor([rng.integers(ENVIRONMENTS)])
    crowd = torch.tensor(rng.integers(ENVIRONMENTS, size=CROWD))
    assert_same(motion(sim, chosen(inputs, alone)), chosen(right, alone))
    assert_same(motion(rolled(model, DT, threads=2, **options), chosen(inputs, crowd)), chosen(right, crowd))
    for every in (int(rng.integers(2, STEPS)), STEPS):
        assert_same(motion(sim, inputs, bd.Checkpoint(every)), right)
    # The gradient of a parameter is a sum over steps, which torch rounds otherwise than a kernel does.
    assert_same(motion(sim, inputs, loop=True), right, besides=("gradient of mass",))


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize(
    "integrator", ["rk4", *(pytest.param(x, marks=pytest.mark.slow) for x in ("euler", "implicitfast"))]
)
def test_however_mujocos_physics_is_computed(integrator):
    """Adjoints start from the solutions of the constraints that the steps have found, or that are found again."""
    rng, options = np.random.default_rng(3), bd.MuJoCo(integrator=integrator)
    model = load("hopper")
    sim, inputs = bd.Simulator(model, physics=options, threads=1), random_inputs(rng, model)
    right = motion(sim, inputs)
    alone = torch.tensor([rng.integers(ENVIRONMENTS)])
    crowd = torch.tensor(rng.integers(ENVIRONMENTS, size=CROWD))
    assert_same(motion(sim, chosen(inputs, alone)), chosen(right, alone))
    assert_same(motion(bd.Simulator(model, physics=options, threads=2), chosen(inputs, crowd)), chosen(right, crowd))
    for every in (5, STEPS):
        assert_same(motion(sim, inputs, bd.Checkpoint(every)), right)
    assert_same(motion(sim, inputs, loop=True), right, besides=("gradient of mass",))
    forgetful = bd.Simulator(model, physics=options, threads=1)
    forgetful._program.solution_size = 0  # the adjoint solves the constraints again, to rounding
    for name, x in motion(forgetful, inputs).items():
        torch.testing.assert_close(x, right[name], rtol=1e-11, atol=1e-11)


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_short_calls_of_mujocos_physics():
    """Steps, rollouts, policies and torch.func, without parameters: each has its own way to keep solutions."""
    rng, model = np.random.default_rng(4), load("hopper")
    sim, inputs = bd.Simulator(model, physics="mujoco", threads=1), random_inputs(rng, model)
    q, v, controls = inputs["q"], inputs["v"], inputs["controls"].transpose(0, 1)

    def last_speeds(v: Tensor, way: str) -> Tensor:
        state = bd.State(q, v)
        if way == "steps":
            for u in controls:
                state = sim.step(state, u)
            return state.v.square().sum()
        given = {"policy": lambda state, t: controls[t], "steps": STEPS} if way == "policy" else {"controls": controls}
        return sim.rollout(state, **given).last.v.square().sum()

    def gradient(way: str) -> Tensor:
        leaf = v.clone().requires_grad_()
        return torch.autograd.grad(last_speeds(leaf, way), leaf)[0]

    right = gradient("rollout")
    for way in ("steps", "policy"):
        assert torch.equal(gradient(way), right)
    assert torch.equal(torch.func.grad(lambda v: last_speeds(v, "rollout"))(v), right)


BALL = """<mujoco><option timestep="0.005" integrator="RK4"/><worldbody><geom type="plane" size="5 5 1"/>
  <body pos="0 0 0.1"><freejoint/><geom type="sphere" size="0.1" mass="1"/></body></worldbody></mujoco>"""


def test_contacts_that_end_within_a_step():
    """A stage without contacts is free of what the stage before found, also beside environments that have some."""
    rng, model, batch = np.random.default_rng(0), bd.load(BALL), 256
    sim, start = bd.Simulator(model, physics="mujoco", threads=1), model.initial_state(batch)
    q, v = start.q.clone(), start.v + torch.tensor(rng.normal(size=start.v.shape))
    q[:, 2] += 0.003 * torch.tensor(rng.uniform(-1.0, 1.0, size=batch))
    right = sim.rollout(bd.State(q, v), steps=4).last
    for k in range(batch):
        alone = sim.rollout(bd.State(q[k], v[k]), steps=4).last
        assert torch.equal(alone.q, right.q[k]) and torch.equal(alone.v, right.v[k])


# ------------------------------------------------------------------------------------------ several solutions


def check_a_step(sim: bd.Simulator, path: bd.Trajectory, t: int, rng: np.random.Generator) -> bool:
    """From state t of a path, a step goes where the path went, and its gradient is that of differences.

    Returns whether there are differences: there are none next to a change of modes, or where something hits."""
    leaf, size = path.v[t].clone().requires_grad_(), 1e-6
    after = sim.rollout(bd.State(path.q[t], leaf), path.controls[t : t + 1])
    assert torch.equal(after.last.q, path.q[t + 1]) and torch.equal(after.last.v, path.v[t + 1])
    weights, direction = (torch.tensor(rng.normal(size=len(leaf))) for _ in range(2))
    (gradient,) = torch.autograd.grad(after.last.v @ weights, leaf)
    offsets = size * torch.tensor([2.0, 1.0, -1.0, -2.0], dtype=torch.float64)
    around = bd.State(path.q[t].expand(4, -1), path.v[t] + offsets[:, None] * direction)
    near = sim.rollout(around, path.controls[t : t + 1, None].expand(1, 4, -1))
    hits = after.status.impacts is not None and bool(after.status.impacts.any())
    if hits or (near.status.modes != after.status.modes[:, None]).any():
        return False
    loss = near.last.v @ weights
    right = (8.0 * (loss[1] - loss[2]) - (loss[0] - loss[3])) / (12.0 * size)
    torch.testing.assert_close(gradient @ direction, right, rtol=1e-6, atol=1e-6)
    return True


def supports(rng: np.random.Generator) -> bd.Model:
    """Boxes on hinges, which stand on a rough floor with more corners than it takes."""
    scene = ground(3, friction=0.9)
    for k, size in enumerate(rng.uniform(0.1, 0.2, size=(4, 3))):
        angle = 0.5 * np.pi * k + rng.uniform(-0.3, 0.3)
        place = (0.25 * np.cos(angle), 0.25 * np.sin(angle), 0.5 * size[2])
        scene.add_body(f"foot{k}", bd.Box(*size), mass=rng.uniform(0.5, 2.0), position=place, friction=0.9)
        if k > 0:
            hinge = bd.Hinge(axis=tuple(rng.normal(size=3)), damping=0.01)
            scene.add_joint(f"hinge{k}", hinge, parent="foot0", child=f"foot{k}")
    return scene.build()


@pytest.mark.parametrize("integrator", INTEGRATORS.values(), ids=INTEGRATORS)
def test_boxes_with_redundant_supports(integrator):
    """In such a step, several solutions may satisfy all conditions."""
    checked, pressing = 0, 0
    for seed in range(16):
        rng = np.random.default_rng(seed)
        model, t = supports(rng), 8
        sim, start = rolled(model, DT, integrator=integrator, impacts=True, threads=1), model.initial_state()
        v = start.v + 0.3 * torch.tensor(rng.normal(size=model.nv))
        path = sim.rollout(bd.State(start.q, v), steps=t + 1)
        pressing += int(path.status.contacts[-1])
        checked += check_a_step(sim, path, t, rng)
    assert checked >= 4 and pressing >= 16 * 6


def test_an_ant_on_four_feet():
    """It stands on two of them, at a corner each, or on the other two: both satisfy all conditions."""
    found = importlib.util.find_spec("gymnasium")
    assert found is not None and found.origin is not None
    model = bd.load(Path(found.origin).parent / "envs/mujoco/assets/ant.xml")
    ankle = np.radians(31)
    q, rng = model.initial_state().q.clone(), np.random.default_rng(0)
    q[2] = 0.4 * np.sqrt(2) * np.sin(ankle) + 0.08
    q[-8:] = ankle * torch.tensor([0, 1, 0, -1, 0, -1, 0, 1])
    sim, controls = bd.Simulator(model, DT, threads=1), 1e-3 * torch.tensor(rng.normal(size=(120, model.nu)))
    path = sim.rollout(bd.State(q, torch.zeros(model.nv, dtype=torch.float64)), controls)
    assert (path.status.contacts[60:] == 4).sum() >= 40
    assert sum(check_a_step(sim, path, t, rng) for t in range(60, 120)) >= 20
    state = path[0]
    for t in range(len(controls)):
        state = sim.step(state, controls[t])
    assert torch.equal(state.q, path.q[-1]) and torch.equal(state.v, path.v[-1])
