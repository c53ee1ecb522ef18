"""Bodies that spin fast keep their energy and momentum for minutes, and precess and flip at the known rates."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from models import random_quaternion

import backdrive as bd

EULER, MIDPOINT = bd.SemiImplicitEuler(), bd.Midpoint()
INTEGRATORS = pytest.mark.parametrize("integrator", [EULER, MIDPOINT], ids=repr)
H = 1 / 120
MINUTES = 2 * 60 * 120  # steps


def spinning(inertia, w, gravity=(0.0, 0.0, 0.0)):
    """A free body about its center of mass. inertia: 3 moments, or a matrix. w: in its own axes."""
    scene = bd.Scene(dim=3, gravity=gravity)
    scene.add_body("body", mass=1.3, inertia=inertia, angular_velocity=w, position=(0.0, 0.0, 5.0))
    return scene.build()


class Motion:
    """A motion of `spinning`. w [T, 3]: in the body's axes; energy [T]; momentum [T, 3], in the world's."""

    def __init__(self, model, integrator, steps, dt=H, specialize=False):
        sim = bd.Simulator(model, dt, integrator=integrator, specialize=specialize)
        self.path = path = sim.rollout(model.initial_state(), steps=steps)
        xx, yy, zz, xy, xz, yz = model.parameter("inertia")[0]
        I = torch.stack([xx, xy, xz, xy, yy, yz, xz, yz, zz]).reshape(3, 3)
        self.w = path.v[:, 3:]
        local = self.w @ I
        self.energy = 0.5 * (self.w * local).sum(-1)
        self.momentum = (path.rotation("body") @ local[..., None])[..., 0]

    def require_energy(self, tolerance=1e-9):
        assert (self.energy / self.energy[0] - 1.0).abs().max() < tolerance

    def require_momentum(self, tolerance=1e-9):
        """Its size is constant; its direction may oscillate, but does not drift."""
        size = self.momentum.norm(dim=-1)
        assert (size / size[0] - 1.0).abs().max() < tolerance
        away = (self.momentum - self.momentum[0]).norm(dim=-1) / size[0]
        quarter = len(away) // 4
        assert away[-quarter:].max() < 1.1 * away[:quarter].max() + 1e-9


@INTEGRATORS
@pytest.mark.parametrize("specialize", [False, True])
def test_symmetric_top(integrator, specialize):
    """Euler's top: the angular velocity goes round the axis of symmetry at the rate (1 - I₃/I₁) ω₃, and the axis round
    the momentum at the rate L/I₁. The implicit midpoint rule turns by 2 atan(h rate/2) in a step."""
    one, three, w = 0.5, 0.2, (0.4, 0.0, 3.0)
    motion = Motion(spinning((one, one, three), w), integrator, MINUTES, specialize=specialize)
    motion.require_energy(1e-11)
    motion.require_momentum(1e-11)
    rate = (1.0 - three / one) * w[2]
    angle = torch.arange(MINUTES + 1, dtype=torch.float64) * (2.0 * math.atan(0.5 * H * rate))
    right = torch.stack([w[0] * angle.cos(), -w[0] * angle.sin(), torch.full_like(angle, w[2])], -1)
    assert (motion.w - right).abs().max() < 1e-9
    assert 2.0 * math.atan(0.5 * H * rate) / H == pytest.approx(rate, rel=1e-4)
    axis = motion.path.rotation("body")[..., 2]
    direction = motion.momentum.mean(0) / motion.momentum.mean(0).norm()
    across = axis - (axis @ direction)[:, None] * direction
    first, second = across[0] / across[0].norm(), torch.linalg.cross(direction, across[0] / across[0].norm())
    turned = np.unwrap(torch.atan2(across @ second, across @ first).numpy())[-1]
    exact = motion.momentum[0].norm().item() / one * MINUTES * H
    assert turned == pytest.approx(exact, rel=2e-4)


def flip_period(inertia, w):
    """The time between two flips about the intermediate axis: 2 K(m) / rate (Landau and Lifshitz, Mechanics, § 37)."""
    i1, i2, i3 = inertia
    twice, square = sum(i * x * x for i, x in zip(inertia, w)), sum((i * x) ** 2 for i, x in zip(inertia, w))
    if square < twice * i2:
        i1, i3 = i3, i1
    rate = math.sqrt((i3 - i2) * (square - twice * i1) / (i1 * i2 * i3))
    m = (i2 - i1) * (twice * i3 - square) / ((i3 - i2) * (square - twice * i1))
    a, b = 1.0, math.sqrt(1.0 - m)
    for _ in range(40):
        a, b = 0.5 * (a + b), math.sqrt(a * b)
    return math.pi / a / rate  # 2 K = π / AGM(1, √(1 - m))


@INTEGRATORS
@pytest.mark.parametrize("specialize", [False, True])
def test_dzhanibekov(integrator, specialize):
    """A wing nut that spins about its intermediate axis flips again and again."""
    inertia, w = (0.1, 0.2, 0.28), (0.02, 4.0, 0.03)
    motion = Motion(spinning(inertia, w), integrator, MINUTES, specialize=specialize)
    motion.require_energy()
    motion.require_momentum()
    signs = motion.w[:, 1].sign()
    flips = (signs[1:] != signs[:-1]).nonzero()[:, 0].double() * H
    assert motion.w[:, 1].min() < -3.99
    assert flips.diff().mean().item() == pytest.approx(flip_period(inertia, w), rel=1e-3)


@INTEGRATORS
def test_a_bullet(integrator):
    """3,000 rad/s, which is four turns per step, about an axis that is tilted a little, in free fall."""
    w = (3.0, -2.0, 3000.0)
    motion = Motion(spinning((1e-6, 1e-6, 1e-7), w, gravity=(0.0, 0.0, -9.81)), integrator, MINUTES)
    motion.require_energy()
    motion.require_momentum()
    axis = motion.path.rotation("body")[..., 2]
    assert (axis - axis[0]).norm(dim=-1).max() < 0.02  # it keeps its direction


def test_a_capsule_that_gained_energy():
    """An explicit torque made 1.6e5 times the energy of it, in two seconds."""
    scene = bd.Scene(dim=3, gravity=(0, 0, 0))
    scene.add_body("body", bd.Capsule(0.1, 0.5), mass=1.0, angular_velocity=(100.0, 3.0, 5.0))
    model = scene.build()
    for integrator in (EULER, MIDPOINT):
        motion = Motion(model, integrator, 240)
        motion.require_energy(1e-12)


@st.composite
def spins(draw, most):
    """An inertia matrix, of any shape from a ball to a rod or a plate, and an angular velocity; most: rad per step."""
    a, b, c = (draw(st.floats(0.0, 1.0)) + 1e-3 for _ in range(3))
    rng = np.random.default_rng(draw(st.integers(0, 10**6)))
    frame, _ = np.linalg.qr(rng.normal(size=(3, 3)))
    size = 10.0 ** draw(st.floats(-6.0, 1.0))
    direction = rng.normal(size=3)
    w = draw(st.floats(0.01, most)) / H * direction / np.linalg.norm(direction)
    return size * frame @ np.diag([b + c, a + c, a + b]) @ frame.T, tuple(w.tolist())


@INTEGRATORS
@settings(max_examples=40)
@given(spins(most=1.5))
def test_random_bodies_keep_energy_and_momentum(integrator, spin):
    motion = Motion(spinning(*spin), integrator, 1200)
    motion.require_energy()
    size = motion.momentum.norm(dim=-1)
    assert (size / size[0] - 1.0).abs().max() < 1e-9


@INTEGRATORS
@settings(max_examples=40)
@given(spins(most=40.0))
def test_no_spin_is_too_fast_to_keep_energy(integrator, spin):
    """Also where Newton's method does not converge."""
    motion = Motion(spinning(*spin), integrator, 600)
    assert torch.isfinite(motion.w).all()
    motion.require_energy()


@pytest.mark.parametrize(("integrator", "tilt"), [(EULER, 0.02), (MIDPOINT, 0.02), (MIDPOINT, 0.5)])
def test_a_heavy_top(integrator, tilt):
    """On a ball joint: it precesses at the slow root of I₁ cosθ Ω² - I₃ ω₃ Ω + m g l = 0, with I₁ about the tip.

    The torque of its weight is that at the start of a step: with semi-implicit Euler a tilted top slowly rights itself.
    """
    mass, length, one, three, spin, g = 0.5, 0.1, 4e-4, 2e-4, 1000.0, 9.81
    a, b, c = (one + mass * length**2) * math.cos(tilt), three * spin, mass * g * length
    rate = (b - math.sqrt(b * b - 4 * a * c)) / (2 * a)
    scene = bd.Scene(dim=3, gravity=(0, 0, -g))
    quaternion = (math.cos(tilt / 2), math.sin(tilt / 2), 0.0, 0.0)
    scene.add_body("top", mass=mass, com=(0, 0, length), inertia=(one, one, three), quaternion=quaternion)
    # In the axes of the body: the precession about the vertical, and the rest of the spin about its own axis.
    w = (0.0, rate * math.sin(tilt), spin)
    scene.add_joint("tip", bd.Ball(), child="top", anchor=(0, 0, 0), velocity=w)
    model = scene.build()
    sim = bd.Simulator(model, 2e-5, integrator=integrator, specialize=False)
    path = sim.rollout(model.initial_state(), steps=50_000)
    axis = path.rotation("top")[..., 2]
    assert (axis[:, 2] - math.cos(tilt)).abs().max() < 1e-3
    turned = np.unwrap(torch.atan2(axis[:, 1], axis[:, 0]).numpy())
    assert turned[-1] - turned[0] == pytest.approx(rate, rel=2e-3)


def test_a_massless_ball_joint():
    """Links without inertia, of bodies with several joints, have no gyroscopic torque."""
    text = """<mujoco><option gravity="0 0 0"/><worldbody><body><inertial mass="1" pos="0 0 0" diaginertia="1 2 2.5"/>
        <joint type="ball"/><joint type="slide" axis="1 0 0"/></body></worldbody></mujoco>"""
    model = bd.load(text)
    v = torch.tensor([1.0, 2.0, 3.0, 0.5], dtype=torch.float64, requires_grad=True)
    last = bd.Simulator(model, 1e-3).rollout(bd.State(model.initial_state().q, v), steps=10).last
    assert torch.isfinite(torch.autograd.grad(last.v.sum(), v)[0]).all()


@INTEGRATORS
def test_the_order_is_kept(integrator):
    """Against a fine motion of the same top, under a torque: halving h halves the error, or quarters it."""
    model = spinning((0.1, 0.2, 0.28), (3.0, 4.0, -2.0))
    load = torch.tensor([0.1, -0.2, 0.05, 0.3, -0.1, 0.2], dtype=torch.float64)

    def end(integrator, steps):
        sim = bd.Simulator(model, 0.5 / steps, integrator=integrator, specialize=False)
        return torch.cat(sim.rollout(model.initial_state(), wrenches=load.expand(steps, 1, 6), steps=steps).last)

    exact = (4 * end(MIDPOINT, 4096) - end(MIDPOINT, 2048)) / 3
    coarse, fine = ((end(integrator, n) - exact).norm() for n in (100, 200))
    assert coarse / fine == pytest.approx(2 if integrator == EULER else 4, rel=0.05)


@pytest.mark.parametrize("seed", range(3))
def test_big_worlds_agree(seed):
    """A body of a big world spins as a body of a small one."""
    rng = np.random.default_rng(seed)
    scene = bd.Scene(dim=3, gravity=(0, 0, -1.0))
    for k in range(6):
        scene.add_body(
            f"box{k}", bd.Box(0.3, 0.2, 0.1), mass=1.0, position=(2.0 * k, 0, 0), quaternion=random_quaternion(rng),
            angular_velocity=tuple(60.0 * rng.normal(size=3)), com=tuple(0.02 * rng.normal(size=3)),
        )  # fmt: skip
    model = scene.build()
    for integrator in (EULER, MIDPOINT):
        ends = [
            bd.Simulator(model, H, integrator=integrator, sparse=sparse).rollout(model.initial_state(), steps=30).last
            for sparse in (False, True)
        ]
        for x, y in zip(*ends):
            torch.testing.assert_close(x, y, rtol=1e-9, atol=1e-9)
