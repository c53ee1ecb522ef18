"""Contact and constraints at the border of what is possible: defined, reported, and without effect on others."""

import functools
import math

import pytest
import torch

import backdrive as bd


def blocks(heights, friction=0.5, masses=None, **body):
    scene = bd.Scene(2)
    scene.add_static(bd.HalfSpace(normal=(0, 1)), friction=friction)
    for k, y in enumerate(heights):
        mass = 1.0 if masses is None else masses[k]
        scene.add_body(f"b{k}", bd.Box(0.4, 0.2), mass=mass, position=(0.0, y), friction=friction, **body)
    return scene.build()


@functools.cache
def pair():
    return bd.Simulator(blocks([0.1, 0.3]), 0.01, nonfinite="mark")


@pytest.mark.parametrize(("friction", "stops"), [(0.0, False), (math.inf, True)])
def test_no_friction_and_infinite_friction(friction, stops):
    model = blocks([0.1], friction=friction, velocity=(1.0, 0.0))
    path = bd.Simulator(model, 0.01).rollout(model.initial_state(), steps=20)
    assert path.status.converged.all()
    assert path.v[-1, 0].item() == pytest.approx(0.0 if stops else 1.0, abs=1e-7)


@pytest.mark.parametrize("solver", [bd.InteriorPoint(), bd.ProjectedGaussSeidel()], ids=lambda s: type(s).__name__)
@pytest.mark.parametrize("masses", [(1.0, 1e6), (1e6, 1.0), (1e-3, 1e3)])
def test_ratios_of_masses(masses, solver):
    model = blocks([0.1, 0.3], masses=masses)
    path = bd.Simulator(model, 0.01, solver=solver).rollout(model.initial_state(), steps=100)
    assert path.status.converged.all()
    # 1e6 kg on 1 kg: the regularisation, 1e-8 of the inverse mass of the light one, yields a millimetre per second.
    assert path.v.abs().max() < 2e-3 and path.v[-1].abs().max() < 1e-5
    assert path.status.depth.max() < 1e-5


def test_nan_stays_in_its_environment():
    """Bit for bit."""
    scene = bd.Scene(2)
    scene.add_static(bd.HalfSpace(normal=(0, 1)))
    scene.add_body("cart", bd.Box(0.4, 0.2), mass=1.0, position=(0.0, 0.1))
    scene.add_motor("push", joint="cart", dof="x")
    model = scene.build()
    simulator = bd.Simulator(model, 0.01, nonfinite="mark")
    generator = torch.Generator().manual_seed(0)
    controls = 20 * torch.randn(50, 6, 1, generator=generator, dtype=torch.float64)
    right = simulator.rollout(model.initial_state(6), controls)
    broken = controls.clone()
    broken[20, 2] = math.nan
    path = simulator.rollout(model.initial_state(6), broken)
    others = [0, 1, 3, 4, 5]
    assert torch.equal(path.q[:, others], right.q[:, others]) and torch.equal(path.v[:, others], right.v[:, others])
    assert path.status.finite[:, others].all() and path.status.converged[:, others].all()
    assert not path.status.finite[20:, 2].any() and not path.status.converged[20:, 2].any()
    leaf = broken.clone().requires_grad_()
    simulator.rollout(model.initial_state(6), leaf).last.q[others].sum().backward()
    fine = controls.clone().requires_grad_()
    simulator.rollout(model.initial_state(6), fine).last.q[others].sum().backward()
    assert torch.equal(leaf.grad[:, others], fine.grad[:, others])


def test_bits_do_not_depend_on_the_others():
    """Environments with different contacts at different times, alone and together, on one thread and two."""
    simulator, model = pair(), pair().model
    generator = torch.Generator().manual_seed(1)
    start = model.initial_state(7)
    q = start.q + 0.3 * torch.rand(7, model.nq, generator=generator, dtype=torch.float64)
    v = torch.randn(7, model.nv, generator=generator, dtype=torch.float64)
    together = simulator.rollout(bd.State(q, v), steps=100)
    threaded = bd.Simulator(model, 0.01, threads=2).rollout(bd.State(q, v), steps=100)
    assert torch.equal(together.q, threaded.q)
    for k in range(7):
        alone = simulator.rollout(bd.State(q[k], v[k]), steps=100)
        assert torch.equal(alone.q, together.q[:, k]) and torch.equal(alone.v, together.v[:, k])
        assert torch.equal(alone.status.residual, together.status.residual[:, k])


def test_redundant_constraints():
    """Welded twice: the same as once."""
    paths = []
    for times in (1, 2):
        scene = bd.Scene(2)
        scene.add_body("a", bd.Box(0.4, 0.2), mass=1.0, position=(0.0, 0.0), angular_velocity=1.0)
        scene.add_body("b", bd.Box(0.4, 0.2), mass=2.0, position=(0.5, 0.0))
        for k in range(times):
            scene.add_constraint(f"weld{k}", bd.Weld(), a="a", b="b")
        model = scene.build()
        paths.append(bd.Simulator(model, 0.01).rollout(model.initial_state(), steps=50))
    assert all(path.status.converged.all() for path in paths)
    assert (paths[0].q - paths[1].q).abs().max() < 1e-6


def test_contradictory_constraints():
    """A rod of 1 m and one of 1.2 m between the same points: no motion satisfies both. It stays bounded."""
    scene = bd.Scene(2)
    scene.add_body("a", bd.Circle(0.1), mass=1.0, position=(1.0, 0.0))
    for k, length in enumerate((1.0, 1.2)):
        scene.add_constraint(f"rod{k}", bd.Distance(length), a="a", anchor_b=(0.0, 0.0))
    model = scene.build()
    path = bd.Simulator(model, 0.01).rollout(model.initial_state(), steps=200)
    assert path.status.finite.all()
    distance = path.position("a").norm(dim=-1)
    assert ((distance > 0.95) & (distance < 1.25)).all()


def test_many_contacts_at_once():
    """There is no preset number of contacts: all pairs that may touch have their places."""
    scene = bd.Scene(2, gravity=(0, 0))
    for k in range(12):
        scene.add_body(f"b{k}", bd.Circle(0.3), mass=1.0, position=(0.5 * (k % 4), 0.5 * (k // 4)))
    model = scene.build()
    path = bd.Simulator(model, 0.01).rollout(model.initial_state(), steps=100)
    assert path.status.converged.all()
    assert path.status.depth[0] == pytest.approx(0.1)
    assert path.status.depth[-1] < 1e-3
    assert path.v.abs().max() < 0.05


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"solver": "newton"}, "solver must be InteriorPoint"),
        ({"pyramid": 5}, "pyramid must be an even number"),
        ({"pyramid": 2}, "pyramid must be an even number"),
        ({"bounce_threshold": -1.0}, "bounce_threshold must be a speed"),
        ({"bounce_threshold": math.nan}, "bounce_threshold must be a speed"),
        ({"impacts": True}, "impacts must be False"),
    ],
)
def test_wrong_settings(options, message):
    with pytest.raises((TypeError, ValueError), match=message):
        bd.Simulator(blocks([0.1]), 0.01, **options)


def test_more_contacts_than_memory():
    scene = bd.Scene(2)
    for k in range(400):
        scene.add_body(f"b{k}", bd.Circle(0.1), mass=1.0, position=(float(k), 0.0))
    with pytest.raises(ValueError, match=r"79,800 pairs of shapes may touch .* Exclude pairs that never meet"):
        bd.Simulator(scene.build(), 0.01)


@pytest.mark.parametrize("pyramid", [4, 6, 8])
def test_finer_pyramids_slide_alike(pyramid):
    """The pyramid touches the cone from outside: a block thrown sideways stops as far as that allows."""
    scene = bd.Scene(3)
    scene.add_static(bd.HalfSpace(normal=(0, 0, 1)), friction=0.4)
    scene.add_body("block", bd.Sphere(0.1), mass=1.0, position=(0, 0, 0.1), friction=0.4, inertia=(1e6, 1e6, 1e6))
    model = scene.build()
    start = model.initial_state(8)
    angles = torch.arange(8, dtype=torch.float64) * 0.2
    start.v[:, 0], start.v[:, 1] = 2 * angles.cos(), 2 * angles.sin()
    path = bd.Simulator(model, 0.002, pyramid=pyramid).rollout(start, steps=600)
    distance = path.last.q[:, :2].norm(dim=1)
    cone = 2.0**2 / (2 * 0.4 * 9.81)
    corner = 1 / math.cos(math.pi / pyramid)
    assert path.status.converged.all()
    assert (distance < cone * 1.01).all() and (distance > cone / corner * 0.98).all()


def test_bad_solver_numbers():
    for bad in ({"iterations": 0}, {"tolerance": 0.0}, {"erp": 2.0}, {"cfm": -1.0}, {"iterations": 2.5}):
        with pytest.raises(ValueError, match=next(iter(bad))):
            bd.ProjectedGaussSeidel(**bad)
    with pytest.raises(ValueError, match="max_iterations"):
        bd.InteriorPoint(max_iterations=0)


def test_forces_of_a_world_without_constraints():
    scene = bd.Scene(2)
    scene.add_body("ball", bd.Circle(0.1), mass=1.0)
    model = scene.build()
    path = bd.Simulator(model, 0.01).rollout(model.initial_state(), steps=3)
    with pytest.raises(ValueError, match="nothing constrains this model"):
        path.contacts  # noqa: B018
    model = blocks([0.1])
    path = bd.Simulator(model, 0.01).rollout(model.initial_state(), steps=4, adjoint=bd.Checkpoint(2))
    with pytest.raises(ValueError, match="contact forces need all states"):
        path.contacts  # noqa: B018
    path = pair().rollout(pair().model.initial_state(), steps=3)
    with pytest.raises(ValueError, match="unknown body"):
        path.contacts.on("b7")
