"""The adjoint of MuJoCo's physics against central differences: state, controls, wrenches and parameters, in states with
contacts, with every integrator and both cones."""

import numpy as np
import pytest
import torch
from mujoco_worlds import (
    BALLS,
    COUPLED,
    GEOMS,
    HEAP,
    LINKED,
    MEDIUM,
    ROPES,
    SERVOS,
    THROWN,
    heap,
    load,
    materials,
    mujoco_model,
    steps_of_mujoco,
    tendons,
    tensors,
    uneven,
    visited,
    zoo,
)

import backdrive as bd

TOLERANCE = 1e-6  # relative to the gradient times the length of the direction
STEP = 1e-4  # of a central difference, relative to the largest value; that with half the step extrapolates it
PARAMETERS = (
    "mass", "inertia", "com", "armature", "damping", "gravity", "friction", "solref", "solimp", "margin",
    "torsional_friction", "rolling_friction", "limit_solref", "limit_solimp", "joint_friction",
    "joint_friction_solref", "joint_friction_solimp", "position_gain", "velocity_gain", "size", "anchor", "offset",
    "density", "viscosity", "wind", "gravcomp", "equality_solref", "equality_solimp", "polycoef", "tendon_stiffness",
    "tendon_damping", "tendon_friction", "tendon_limit_solref", "tendon_limit_solimp", "tendon_friction_solref",
    "tendon_friction_solimp", "adhesion", "surfacevel", "pair_solref", "pair_solimp", "pair_margin", "pair_friction",
    "swing_limit", "swing_solref", "swing_solimp", "rope_limit", "rope_solref",
    "rope_solimp",
)  # fmt: skip

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")
SLOW = pytest.param("implicit", marks=pytest.mark.slow)


class Loss:
    """A random linear function of the states after some steps from a state with contacts, with random wrenches."""

    def __init__(self, name: str, options: bd.MuJoCo, seed: int, steps: int = 1, sparse: bool = False) -> None:
        rng, reference = np.random.default_rng(seed), mujoco_model(name, options)
        self.model = model = load(name)
        self.simulator = bd.Simulator(model, physics=options, sparse=sparse)
        q, v, u = visited(reference, 60, seed)
        contacts = steps_of_mujoco(reference, q, v, u)[2]
        touching = np.flatnonzero(contacts >= min(2, contacts.max()))
        chosen = int(rng.choice(touching))
        names = [x for x in PARAMETERS if x in model.parameters()]
        self.values = dict(zip("qvu", tensors(q[chosen], v[chosen], 0.5 * u[chosen]), strict=True))
        self.values["wrench"] = torch.from_numpy(0.1 * rng.normal(size=(model.nbody, 6)))
        self.values |= {x: self._apart(model.parameter(x), rng) for x in names}
        self.names, self.steps, self.rng = names, steps, rng
        self.weights = tensors(rng.normal(size=model.nq), rng.normal(size=model.nv))

    def _apart(self, value: torch.Tensor, rng: np.random.Generator) -> torch.Tensor:
        """Where two shapes have the same friction, the larger one is not differentiable."""
        return value * (1.0 + 0.05 * torch.from_numpy(rng.uniform(size=tuple(value.shape))))

    def __call__(self, **given: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """The loss, and the fingerprint of the active set."""
        x = self.values | given
        wrenches = x["wrench"].unsqueeze(0).expand(self.steps, -1, -1)
        parameters = {name: x[name] for name in self.names}
        controls = x["u"].expand(self.steps, -1)
        path = self.simulator.rollout(bd.State(x["q"], x["v"]), controls, wrenches=wrenches, parameters=parameters)
        return self.measure(path), path.status.modes

    def measure(self, path: bd.Trajectory) -> torch.Tensor:
        q, v = self.weights
        return (q * path.q[-1]).sum() + (v * path.v[-1]).sum()

    def check(self) -> None:
        leaves = {name: x.clone().requires_grad_() for name, x in self.values.items()}
        loss, modes = self(**leaves)
        gradients = dict(zip(leaves, torch.autograd.grad(loss, list(leaves.values())), strict=True))
        checked = 0
        for name, value in self.values.items():
            if value.numel() == 0 or not bool(value.any()):
                continue
            scale = 1.0 if name in "qvu" else value.abs()
            direction = torch.from_numpy(self.rng.normal(size=tuple(value.shape))) * scale
            direction = direction / direction.norm()
            step = STEP * float(value.abs().max())
            with torch.no_grad():
                ends = [self(**{name: value + s * step * direction}) for s in (1.0, -1.0, 0.5, -0.5)]
            if not all(torch.equal(mode, modes) for _, mode in ends):
                continue  # a contact began, ended, or began to slide
            checked += 1
            far, near = (float(a - b) for (a, _), (b, _) in (ends[:2], ends[2:]))
            difference, found = (8.0 * near - far) / (6.0 * step), float((gradients[name] * direction).sum())
            size = float(gradients[name].norm()) + 1e-3 * float(loss.detach().abs())
            assert abs(found - difference) < TOLERANCE * size, name
        assert checked > len(self.values) // 2


class ForceLoss(Loss):
    """A random linear function of the forces of all constraints, and of the contact points."""

    def measure(self, path: bd.Trajectory) -> torch.Tensor:
        contacts, random = path.contacts, torch.Generator().manual_seed(0)
        singles = [contacts.of(name) for name in dict.fromkeys((*self.model.equality_names, *self.joints()))]
        values = [contacts.force, contacts.point, *singles]
        return sum((torch.randn(x.shape, generator=random, dtype=x.dtype) * x).sum() for x in values)

    def joints(self) -> list[str]:
        links = {*self.model.friction_link.tolist(), *self.model.limit_link.tolist()}
        return [name for name, i in zip(self.model.joints, self.model.joint_link.tolist(), strict=True) if i in links]


def test_gradient_of_the_forces_on_a_leg():
    leg = """<mujoco><option timestep="0.005"/><worldbody><geom type="plane" size="5 5 1" friction="0.8"/>
     <body pos="0 0 0.4"><joint type="slide" axis="0 0 1"/><joint type="slide" axis="1 0 0"/>
      <joint name="h" axis="0 1 0" limited="true" range="-20 20" margin="0.1" frictionloss="0.02"/>
      <geom type="capsule" size="0.1 0.3" friction="0.6" condim="3"/></body></worldbody>
     <actuator><motor joint="h"/></actuator></mujoco>"""
    for seed in range(3):
        ForceLoss(leg, bd.MuJoCo(), seed).check()


@pytest.mark.slow
@pytest.mark.parametrize("integrator", ["euler", "rk4"])
def test_gradient_of_forces(integrator):
    for seed in range(3):
        ForceLoss(zoo(), bd.MuJoCo(integrator=integrator), seed).check()


STICKY = 'condim="6" adhesion="0.2" gap="0.01" surfacevel="0 0.1 0 0.2 0 0"'
HEAPS = [
    ("pyramidal", "euler", heap(6, geom='margin="0.005"')),
    pytest.param("elliptic", "implicitfast", heap(6, GEOMS, geom=STICKY), marks=pytest.mark.slow),
    ("elliptic", "implicit", heap(6).replace("<freejoint/>", '<joint type="free" armature="0.02" damping="0.3"/>')),
]


@pytest.mark.parametrize(("cone", "integrator", "name"), HEAPS)
def test_gradient_of_a_heap_in_the_form_for_big_worlds(cone, integrator, name):
    for seed in range(3):
        options = bd.MuJoCo(cone=cone, integrator=integrator)
        Loss(name, options, seed, steps=2, sparse=True).check()
        ForceLoss(name, options, seed, sparse=True).check()


@pytest.mark.parametrize(("cone", "integrator", "name"), HEAPS)
def test_both_forms_of_a_heap_have_the_same_gradient(cone, integrator, name):
    options, found = bd.MuJoCo(cone=cone, integrator=integrator), []
    for sparse in (True, False):
        loss = Loss(name, options, seed=5, steps=3, sparse=sparse)
        leaves = {x: value.clone().requires_grad_() for x, value in loss.values.items()}
        found.append(torch.autograd.grad(loss(**leaves)[0], list(leaves.values())))
    for name, big, small in zip(leaves, *found, strict=True):
        assert float((big - small).norm()) <= 1e-9 * (1.0 + float(small.norm())), name


@pytest.mark.slow
def test_gradient_of_forces_of_equalities():
    for seed in range(3):
        ForceLoss(LINKED, bd.MuJoCo(cone="elliptic"), seed).check()


@pytest.mark.parametrize("cone", ["pyramidal", "elliptic"])
@pytest.mark.parametrize("integrator", ["euler", "rk4", SLOW, "implicitfast"])
def test_gradient_of_a_step(integrator, cone):
    for seed in range(3):
        Loss(zoo(), bd.MuJoCo(integrator=integrator, cone=cone), seed).check()


@pytest.mark.parametrize("cone", ["pyramidal", "elliptic"])
def test_gradient_with_rolling_friction(cone):
    for seed in range(3):
        Loss(zoo(6, 2.5), bd.MuJoCo(integrator="euler", cone=cone), seed).check()


@pytest.mark.slow
def test_gradient_with_powers_that_differ():
    for seed in range(3):
        Loss(uneven(), bd.MuJoCo(), seed).check()


@pytest.mark.parametrize("name", ["hopper", "half_cheetah", "ant"])
def test_gradient_of_gymnasiums_models(name):
    for seed in range(3):
        Loss(name, bd.MuJoCo(), seed).check()


def test_gradient_with_connect_and_weld():
    for seed in range(3):
        Loss(LINKED, bd.MuJoCo(), seed).check()


@pytest.mark.parametrize("integrator", ["euler", "rk4", SLOW, "implicitfast"])
@pytest.mark.parametrize("name", [MEDIUM, "swimmer"], ids=["medium", "swimmer"])
def test_gradient_in_a_medium(name, integrator):
    for seed in range(3):
        Loss(name, bd.MuJoCo(integrator=integrator), seed).check()


@pytest.mark.parametrize("integrator", ["euler", "implicit", "implicitfast"])
def test_gradient_with_servos(integrator):
    for seed in range(3):
        Loss(SERVOS, bd.MuJoCo(integrator=integrator), seed).check()


@pytest.mark.parametrize("cone", ["pyramidal", "elliptic"])
def test_gradient_with_explicit_pairs_moving_surfaces_and_adhesion(cone):
    for seed in range(2):
        Loss(materials(), bd.MuJoCo(cone=cone), seed).check()


def test_gradient_of_bodies_that_spin():
    for seed in range(2):
        Loss(THROWN, bd.MuJoCo(), seed).check()


def test_gradient_of_a_heap():
    """All pairs of geoms, with respect to their sizes, too."""
    for seed in range(2):
        Loss(HEAP, bd.MuJoCo(), seed).check()


@pytest.mark.parametrize("integrator", ["euler", "implicitfast"])
def test_gradient_with_a_tendon_and_a_coupling(integrator):
    for seed in range(3):
        Loss(COUPLED, bd.MuJoCo(integrator=integrator), seed).check()


@pytest.mark.slow
@pytest.mark.parametrize("integrator", ["euler", "implicit"])
def test_gradient_with_tendons_and_couplings(integrator):
    for seed in range(3):
        Loss(tendons(), bd.MuJoCo(integrator=integrator), seed).check()


@pytest.mark.parametrize("name", [BALLS, ROPES], ids=["balls", "ropes"])
def test_gradient_with_limits_of_ball_joints_and_ropes(name):
    for seed in range(3):
        Loss(name, bd.MuJoCo(), seed).check()


def test_gradient_of_ten_steps():
    Loss("half_cheetah", bd.MuJoCo(), seed=2, steps=10).check()


def test_checkpoints_give_the_same_gradient():
    loss = Loss("half_cheetah", bd.MuJoCo(), seed=0)
    controls = torch.zeros(12, loss.model.nu, dtype=torch.float64)
    found = []
    for adjoint in (None, bd.Checkpoint(every=5)):
        q = loss.values["q"].clone().requires_grad_()
        path = loss.simulator.rollout(bd.State(q, loss.values["v"]), controls, adjoint=adjoint)
        found.append(torch.autograd.grad(path.q[-1].sum(), q)[0])
    assert torch.equal(*found)


@pytest.mark.parametrize("name", ["half_cheetah", "swimmer"])
@pytest.mark.parametrize("integrator", ["euler", "rk4", "implicit", "implicitfast"])
def test_linearize_agrees_with_the_adjoint(integrator, name):
    options = bd.MuJoCo(integrator=integrator)
    simulator = bd.Simulator(load(name), physics=options)
    q, v, u = tensors(*visited(mujoco_model(name, options), 4, seed=1))
    A, B = simulator.linearize(bd.State(q, v), u)
    for k in range(len(q)):
        leaves = [x[k].clone().requires_grad_() for x in (q, v, u)]
        after = simulator.step(bd.State(*leaves[:2]), leaves[2])
        rows = [torch.autograd.grad(x, leaves, retain_graph=True) for x in (*after.q, *after.v)]
        expected = torch.stack([torch.cat(row) for row in rows])
        torch.testing.assert_close(torch.cat([A[k], B[k]], 1), expected, rtol=1e-9, atol=1e-9)
