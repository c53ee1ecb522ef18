"""Joints as equations, limits and joint friction: they hold, and gain no energy."""

import math

import pytest
import torch
from contact_scenes import BOTH, INTEGRATORS, G, at, chain

import backdrive as bd

DIMENSIONS = pytest.mark.parametrize("dim", [2, 3])


def hanging(model, angle, length=0.2):
    """The chain straight, so far from hanging down."""
    down, q = angle - math.pi / 2, []
    for k in range(model.nbody):
        r = length * (k + 0.5)
        turned = [down] if model.dim == 2 else [math.cos(down / 2), 0.0, -math.sin(down / 2), 0.0]
        q += [*at(model.dim, r * math.cos(down), r * math.sin(down)), *turned]
    return bd.State(torch.tensor(q, dtype=torch.float64), torch.zeros(model.nv, dtype=torch.float64))


def joint_gaps(model, path, length=0.2):
    """How far the ends of neighbouring links are apart, [T + 1]."""
    end = torch.zeros(model.dim, dtype=torch.float64)
    end[0] = 0.5 * length
    ends = [
        (path.position(b) - path.rotation(b) @ end, path.position(b) + path.rotation(b) @ end) for b in model.bodies
    ]
    before = [torch.zeros_like(ends[0][0]), *(e[1] for e in ends[:-1])]
    return torch.stack([(e[0] - x).norm(dim=-1) for e, x in zip(ends, before)]).amax(0)


def energy(model, path):
    total, mass, inertia = 0.0, model.parameter("mass"), model.parameter("inertia")
    for k, body in enumerate(model.bodies):
        w = path.angular_velocity(body)
        if model.dim == 2:
            spin = inertia[k] * w.square()
        else:
            spin = (inertia[k][:3] * (path.rotation(body).mT @ w[..., None])[..., 0].square()).sum(-1)
        total = total + 0.5 * (mass[k] * path.velocity(body).square().sum(-1) + spin)
        total = total + G * mass[k] * path.position(body)[..., -1]
    return total


@pytest.mark.parametrize("integrator", INTEGRATORS.values(), ids=INTEGRATORS)
@DIMENSIONS
def test_chain_of_equations_swings(dim, integrator):
    """Ten links for a minute stay together, and gain no energy."""
    model = chain(dim, 10, "maximal")
    path = bd.Simulator(model, 0.005, integrator=integrator, specialize=False).rollout(hanging(model, 0.3), steps=12000)
    assert path.status.converged.all()
    gaps, total = joint_gaps(model, path), energy(model, path)
    assert gaps[-1] <= 1e-4 and gaps.max() <= 3e-4
    lowest = -G * 0.5 * sum(0.2 * k + 0.1 for k in range(10))
    assert total.max() - total[0] <= 0.005 * (total[0] - lowest)
    assert total[-2000:].mean() <= total[:2000].mean()
    assert total[-1] - lowest > 0.8 * (total[0] - lowest)  # nor loses it


@DIMENSIONS
def test_chain_of_equations_whips(dim):
    """Let go when it is level, it whips around at first; even then it stays together, and gains no energy."""
    model = chain(dim, 10, "maximal", length=0.3, bar=0.3, tangles=False)
    path = bd.Simulator(model, 0.005, specialize=False).rollout(hanging(model, math.pi / 2, 0.3), steps=12000)
    assert path.status.converged.all()
    gaps, total = joint_gaps(model, path, 0.3), energy(model, path)
    assert gaps[-1] < 1e-4 and gaps[::20].max() < 5e-3 and gaps.max() < 1e-2
    assert (total - total[0]).max() < 1e-3 * G * float(model.parameter("mass").sum())


@DIMENSIONS
def test_a_tree_and_its_maximal_twin_move_alike(dim):
    """Different equations of one world: the motions approach each other in proportion to the step."""
    models = [chain(dim, 3, coordinates) for coordinates in ("reduced", "maximal")]
    differences = []
    for dt in (0.004, 0.002, 0.001):
        paths = [
            bd.Simulator(m, dt, specialize=False).rollout(m.initial_state(), steps=round(0.5 / dt)) for m in models
        ]
        a, b = (torch.stack([p.position(f"link{k}")[-1] for k in range(3)]) for p in paths)
        differences.append((a - b).abs().max().item())
    assert differences[0] < 0.03
    assert differences[1] < 0.6 * differences[0] and differences[2] < 0.6 * differences[1]


@BOTH
def test_limits_and_joint_friction_hold(solver):
    scene = bd.Scene(2)
    scene.add_body("arm", bd.Box(1.0, 0.1), mass=1.0, position=(0.5, 0.0))
    scene.add_joint("hinge", bd.Hinge(limits=(-0.5, 0.5)), child="arm", anchor=(0, 0))
    scene.add_body("held", bd.Box(1.0, 0.1), mass=1.0, position=(5.5, 0.0))
    scene.add_joint("stiff", bd.Hinge(friction=6.0), child="held", anchor=(5, 0))  # its weight takes 4.9 N m
    model = scene.build()
    path = bd.Simulator(model, 0.01, solver=solver).rollout(model.initial_state(), steps=300)
    assert path.q[-1, 0].item() == pytest.approx(-0.5, abs=1e-5)
    assert path.q[:, 1].abs().max() < 1e-7  # it creeps, by the regularisation of 1e-8
    torque = path.contacts.of("hinge")[-1, 0].item()
    assert torque == pytest.approx(G * 0.5 * math.cos(0.5), rel=1e-6)
    assert path.contacts.of("stiff")[-1, 0].item() == pytest.approx(G * 0.5, rel=1e-6)
