"""What lcp-physics has in the plane, one by one: docs/from_lcp_physics.md says how it is written here."""

import math

import pytest
import torch

import backdrive as bd

DT, STEPS = 0.01, 100


def roll(scene: bd.Scene, steps: int = STEPS, **options) -> bd.Trajectory:
    model = scene.build()
    return bd.Simulator(model, DT, specialize=False).rollout(model.initial_state(), steps=steps, **options)


def moving(scene: bd.Scene, name: str = "body") -> str:
    return scene.add_body(
        name, bd.Box(0.4, 0.2), mass=1.5, position=(0.3, 2.0), angle=0.2, velocity=(1.0, 0.5), angular_velocity=2.0
    )


@pytest.mark.parametrize("coordinate", ["x", "y", "angle"])
def test_a_lock_keeps_one_coordinate_and_frees_the_others(coordinate):
    scene = bd.Scene(dim=2)
    scene.add_constraint("lock", bd.Lock(coordinate), a=moving(scene))
    path = roll(scene)
    kept = ("x", "y", "angle").index(coordinate)
    free = roll_free()
    for k in range(3):
        if k == kept:
            assert (path.q[:, k] - path.q[0, k]).abs().max() < 1e-9
        else:
            assert torch.allclose(path.q[:, k], free.q[:, k], atol=1e-9)


def roll_free() -> bd.Trajectory:
    scene = bd.Scene(dim=2)
    moving(scene)
    return roll(scene)


def test_a_weld_to_the_world_keeps_all():
    scene = bd.Scene(dim=2)
    scene.add_constraint("weld", bd.Weld(), a=moving(scene))
    path = roll(scene)
    assert (path.q - path.q[0]).abs().max() < 1e-9


def test_a_body_held_by_two_hinges_stays():
    scene = bd.Scene(dim=2)
    scene.add_body("plank", bd.Box(1.0, 0.1), mass=1.0)
    scene.add_joint("left", bd.Hinge(), child="plank", anchor=(-0.4, 0.0))
    scene.add_joint("right", bd.Hinge(), child="plank", anchor=(0.4, 0.0))
    path = roll(scene)
    assert path.q.abs().max() < 1e-9 and path.status.converged.all()


def test_pairs_without_contact_pass_through_each_other():
    def lowest(*excluded: str) -> float:
        scene = bd.Scene(dim=2)
        scene.add_static(bd.HalfSpace((0, 1)), name="ground")
        scene.add_body("ball", bd.Circle(0.1), mass=1.0, position=(0.0, 0.5))
        for name in excluded:
            scene.exclude("ball", name)
        return float(roll(scene).position("ball")[-1, 1])

    assert lowest() == pytest.approx(0.1, abs=1e-3)
    assert lowest("ground") < -3.0


def test_a_force_in_time_moves_a_body_and_has_a_gradient():
    """A push of F along x while t < 0.1 s and a torque afterwards: closed forms, and all of it in the graph."""
    scene = bd.Scene(dim=2, gravity=(0, 0))
    scene.add_body("disc", bd.Circle(0.2), mass=2.0)
    scene.add_body("other", bd.Circle(0.2), mass=2.0, position=(5.0, 0.0))
    model = scene.build()
    time = torch.arange(STEPS, dtype=torch.float64) * DT
    push, twist = (torch.tensor(x, dtype=torch.float64, requires_grad=True) for x in (30.0, 0.7))
    wrench = torch.stack([(time < 0.095) * push, torch.zeros_like(time), (time > 0.095) * twist], -1)
    wrenches = torch.stack([wrench, torch.zeros_like(wrench)], 1)
    path = bd.Simulator(model, DT).rollout(model.initial_state(), wrenches=wrenches)
    assert path.velocity("disc")[-1].tolist() == pytest.approx([30.0 * 0.1 / 2.0, 0.0])
    assert path.angular_velocity("disc")[-1].item() == pytest.approx(0.7 * 0.9 / (0.5 * 2.0 * 0.2**2))
    assert torch.equal(path.position("other")[-1], path.position("other")[0])
    (path.position("disc")[-1, 0] + path.orientation("disc")[-1]).backward()
    ways = sum((STEPS - k) * DT * DT for k in range(10)) / 2.0  # of the steps with a push, per N
    assert push.grad.item() == pytest.approx(ways, rel=1e-12)
    assert twist.grad.item() == pytest.approx(sum((STEPS - k) * DT * DT for k in range(10, STEPS)) / 0.04, rel=1e-12)


def test_forces_in_time_in_a_batch_agree_with_differences():
    """On a chain over the ground, with one force for each body, step and environment."""
    scene = bd.Scene(dim=2)
    scene.add_static(bd.HalfSpace((0, 1)))
    scene.add_body("a", bd.Box(0.6, 0.1), mass=1.0, position=(0.3, 0.8))
    scene.add_body("b", bd.Polygon([(0, 0), (0.5, -0.05), (0.5, 0.1)]), mass=0.5, position=(0.6, 0.8))
    scene.add_joint("first", bd.Hinge(damping=0.1), child="a", anchor=(0.0, 0.8))
    scene.add_joint("second", bd.Hinge(limits=(-1.0, 1.0)), parent="a", child="b", anchor=(0.6, 0.8))
    model = scene.build()
    generator = torch.Generator().manual_seed(3)
    wrenches = torch.randn(39, 3, model.nbody, 3, generator=generator, dtype=torch.float64)
    simulator = bd.Simulator(model, DT, specialize=False)
    report = bd.gradcheck(simulator, model.initial_state(batch=3), wrenches=wrenches)
    assert report.ok, str(report)
    assert any(row.name == "wrenches" and not row.switched and math.isfinite(row.error) for row in report.rollout)


def test_hulls_weigh_what_they_should():
    """A triangle's center of mass and inertia, as lcp-physics' Hull has them about its centroid."""
    scene = bd.Scene(dim=2)
    scene.add_body("hull", bd.Polygon([(0, 0), (3, 0), (0, 3)]), mass=2.0)
    model = scene.build()
    assert model.parameter("com")[0].tolist() == pytest.approx([1.0, 1.0])
    assert model.parameter("inertia")[0].item() == pytest.approx(2.0 * (3**2 + 3**2) / 18)
