"""Steps and short rollouts of plain tensors take a shorter way to their kernels: it must lead to the same, and be left
to all else."""

import pytest
import torch

import backdrive as bd
from backdrive.runtime import autograd


def arm(dim: int) -> bd.Model:
    scene = bd.Scene(dim=dim)
    parent = None
    for i in range(3):
        at = (0.0,) * (dim - 1)
        body = scene.add_body(f"link{i}", bd.Box(*(0.1,) * dim), mass=1.0 + i, position=(*at, -0.5 - i))
        axis = {} if dim == 2 else {"axis": (0.3, 1.0, 0.2)}
        joint = scene.add_joint(
            f"joint{i}", bd.Hinge(damping=0.1, **axis), parent=parent, child=body, anchor=(*at, -1.0 * i)
        )
        scene.add_motor(f"motor{i}", joint=joint, limits=(-2.0, 2.0))
        parent = body
    scene.add_body("free", bd.Box(*(0.2,) * dim), mass=2.0, position=(3.0,) * dim)
    return scene.build()


def inputs(model: bd.Model, batch: int | None, dtype: torch.dtype) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    q, v = model.initial_state(batch)
    shape = (model.nu,) if batch is None else (batch, model.nu)
    noise = [torch.randn(x.shape, generator=generator, dtype=torch.float64) for x in (q, v)]
    u = 3.0 * torch.randn(shape, generator=generator, dtype=torch.float64)  # some beyond the limits
    return [x.to(dtype) for x in (q + 0.2 * noise[0], noise[1], u)]


def counting(monkeypatch, name):
    """Which calls took the short way."""
    taken = []
    original = getattr(autograd, name)

    def counted(*args):
        outcome = original(*args)
        taken.append(outcome is not None)
        return outcome

    monkeypatch.setattr(autograd, name, counted)
    return taken


@pytest.fixture
def quick(monkeypatch):
    return counting(monkeypatch, "quick_step")


@pytest.fixture
def quick_rollout(monkeypatch):
    return counting(monkeypatch, "quick_rollout")


@pytest.mark.slow
@pytest.mark.parametrize("specialize", [False, True])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("batch", [None, 1, 7])
@pytest.mark.parametrize("dim", [2, 3])
def test_same_bits_as_a_rollout(quick, dim, batch, dtype, specialize):
    model = arm(dim)
    sim = bd.Simulator(model, 0.01, dtype=dtype, specialize=specialize)
    weights = [torch.randn_like(x) for x in inputs(model, batch, dtype)[:2]]
    results = []
    steps = (
        lambda q, v, u: sim.step(bd.State(q, v), u),
        lambda q, v, u: sim.rollout(bd.State(q, v), u[None], steps=1).last,
    )
    for way in steps:
        x = [y.clone().requires_grad_() for y in inputs(model, batch, dtype)]
        after = way(*x)
        loss = sum((y * w).sum() for y, w in zip(after, weights))
        results.append([*after, *torch.autograd.grad(loss, x)])
    assert quick == [True]
    assert all(torch.equal(a, b) for a, b in zip(*results))


@pytest.mark.parametrize("loss_on", ["last", "path", "both", "last.q"])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("batch", [None, 1, 7])
def test_same_bits_as_a_long_call(quick_rollout, batch, dtype, loss_on):
    model, steps = arm(3), 12
    sim = bd.Simulator(model, 0.01, dtype=dtype, specialize=False)
    q, v, u = inputs(model, batch, dtype)
    noise = torch.randn((steps, *u.shape), generator=torch.Generator().manual_seed(1), dtype=dtype)
    results = []
    for given in ({}, {"steps": steps}):  # who says how long it is takes the long way
        x = [y.clone().requires_grad_() for y in (q, v, u + noise)]
        path = sim.rollout(bd.State(*x[:2]), x[2], **given)
        parts = {"last": [*path.last], "path": [path.q, path.v], "last.q": [path.last.q]}
        parts["both"] = parts["last"] + parts["path"]
        weights = [torch.linspace(-1.0, 2.0, y.numel(), dtype=dtype).view(y.shape) for y in parts[loss_on]]
        loss = sum((y * w).sum() for y, w in zip(parts[loss_on], weights))
        gradients = torch.autograd.grad(loss, x)
        results.append([*path.last, path.q, path.v, path._numbers, path.controls, path.steps, *gradients])
    assert quick_rollout == [True]
    assert all(torch.equal(a, b) for a, b in zip(*results))


def test_other_rollouts_take_the_long_way(quick_rollout):
    model = arm(3)
    sim = bd.Simulator(model, 0.01, specialize=False)
    q, v, u = inputs(model, 4, torch.float64)
    controls = u.expand(6, -1, -1).contiguous()
    expected = sim.rollout(bd.State(q, v), controls)
    for same in (u.expand(6, -1, -1), controls.transpose(1, 2).contiguous().transpose(1, 2)):
        assert torch.equal(sim.rollout(bd.State(q, v), same).q, expected.q)
    sim.rollout(bd.State(q, v), controls[:, 0])  # shared by all environments
    sim.rollout(bd.State(q, v), u.expand(2000, -1, -1).contiguous())  # worth another thread
    with pytest.raises(ValueError, match="controls must be"):
        sim.rollout(bd.State(q, v), controls[..., :2].contiguous())
    with pytest.raises(ValueError, match="steps"):
        sim.rollout(bd.State(q, v), controls[:0])
    with pytest.raises(ValueError, match="state.q must be"):
        sim.rollout(bd.State(q[None], v[None]), controls[None])
    assert quick_rollout == [True] + [False] * 7


@pytest.mark.parametrize("which", range(3))
def test_rollouts_report_what_is_not_finite(which):
    model = arm(3)
    sim = bd.Simulator(model, 0.01, specialize=False)
    x = inputs(model, 4, torch.float64)
    x[2] = x[2].expand(5, -1, -1).clone()
    x[which][2, 1] = float("nan")
    with pytest.raises(ValueError, match="not finite"):
        sim.rollout(bd.State(x[0], x[1]), x[2])


def test_the_path_of_a_recorded_rollout_must_not_be_changed():
    model = arm(2)
    sim = bd.Simulator(model, 0.01, specialize=False)
    q, v, u = inputs(model, 3, torch.float64)
    path = sim.rollout(bd.State(q, v), u.expand(4, -1, -1).clone().requires_grad_())
    with torch.no_grad():
        path.q[1] += 1.0
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        path.last.v.sum().backward()


def test_other_tensors_take_the_long_way(quick):
    model = arm(3)
    sim = bd.Simulator(model, 0.01, specialize=False)
    q, v, u = inputs(model, 4, torch.float64)
    expected = sim.step(bd.State(q, v), u)
    strided = [x.t().contiguous().t() for x in (q, v, u)]
    shared = u[0]
    for args, same in ((strided, True), ((q, v, shared), False), ((q[:, ::1], v, u), True)):
        after = sim.step(bd.State(*args[:2]), args[2])
        if same:
            assert torch.equal(after.q, expected.q)
    assert quick == [True, False, False, True]


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
@pytest.mark.parametrize("which", range(3))
def test_what_is_not_finite_is_still_reported(which, value):
    model = arm(3)
    sim = bd.Simulator(model, 0.01, specialize=False)
    x = inputs(model, 4, torch.float64)
    x[which][2, 1] = value
    with pytest.raises(ValueError, match="not finite"):
        sim.step(bd.State(x[0], x[1]), x[2])


def test_no_second_derivative():
    model = arm(2)
    sim = bd.Simulator(model, 0.01, specialize=False)
    q, v, u = inputs(model, None, torch.float64)
    u.requires_grad_()
    (gradient,) = torch.autograd.grad(sim.step(bd.State(q, v), u).v.square().sum(), u, create_graph=True)
    with pytest.raises(RuntimeError, match="first derivatives only"):
        gradient.sum().backward()


WALKER = """<mujoco><option integrator="{}"/><worldbody><geom type="plane" size="0 0 1"/>
<body pos="0 0 1"><freejoint/><geom type="capsule" size="0.1" fromto="0 0 0 0.4 0 0"/>
<body pos="0.4 0 0"><joint type="hinge" axis="0 1 0"/><geom type="capsule" size="0.1" fromto="0 0 0 0 0 -0.8"/></body>
</body></worldbody></mujoco>"""


def test_threads_pay_earlier_for_steps_that_take_longer(quick):
    """Steps of MuJoCo's physics, and among them those of several stages, are longer than steps without constraints."""
    programs = {}
    for physics, integrator in (("rigid", "Euler"), ("mujoco", "Euler"), ("mujoco", "RK4")):
        model = bd.load(WALKER.format(integrator))
        sim = bd.Simulator(model, 0.002, physics=physics, threads=2, specialize=False)
        programs[physics, integrator] = sim._program
    rigid, euler, rk4 = programs.values()
    assert [x.threads_for(600) for x in (rigid, euler, rk4)] == [1, 1, 2]
    assert [x.threads_for(2400) for x in (rigid, euler, rk4)] == [1, 2, 2]
    assert [x.quick(2400) for x in (rigid, euler, rk4)] == [True, False, False]
    assert rk4.quick(2400, integrates=False), "poses are as cheap as without constraints"
    assert rk4.threads_for(1, steps=10_000) == 1, "one environment is not split"
    alone = bd.Simulator(model, 0.002, physics="mujoco", threads=1, specialize=False)
    state = model.initial_state(600)
    u = torch.zeros(600, 0, dtype=torch.float64)
    states = [simulator.step(state, u) for simulator in (sim, alone)]
    assert quick == [False, True] and torch.equal(states[0].v, states[1].v)
