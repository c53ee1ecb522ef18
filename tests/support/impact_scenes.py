"""Scenes with impacts whose motion is known in closed form, as functions that torch differentiates.

Inputs are dictionaries of q [S, nq], v [S, nv] and parameters [S, ...] of S random samples. A reference maps them and a
time to (q, v) then, and to whether the sample is of use [S]: meets the assumptions of the closed form.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from contact_scenes import INTEGRATORS, rolled
from differences import weights
from torch import Tensor

import backdrive as bd

Inputs = dict[str, Tensor]
Reference = Callable[[Inputs, float], tuple[Tensor, Tensor, Tensor]]

G = 9.81  # m/s²
STILL = (0.0, 0.0)
DTS = (1 / 30, 1 / 60, 1 / 240, 1 / 1000)


def simulator(model: bd.Model, dt: float, integrator: str = "euler", **options) -> bd.Simulator:
    """Kernels that all planar (or spatial) models share."""
    return rolled(model, dt, impacts=True, integrator=INTEGRATORS[integrator], **options)


class Random:
    """Uniform numbers [S, ...] of a seed."""

    def __init__(self, seed: int, samples: int) -> None:
        self.generator, self.samples = torch.Generator().manual_seed(seed), samples

    def __call__(self, low: float, high: float, *shape: int) -> Tensor:
        x = torch.rand(self.samples, *shape, generator=self.generator, dtype=torch.float64)
        return low + (high - low) * x


# ---------------------------------------------------------------------------------------------- comparison


def run(sim: bd.Simulator, inputs: Inputs, duration: float) -> bd.Trajectory:
    rest = {name: x for name, x in inputs.items() if name not in ("q", "v")}
    return sim.rollout(bd.State(inputs["q"], inputs["v"]), steps=round(duration / sim.dt), parameters=rest)


def gradients_of(loss: Tensor, leaves: Inputs) -> Inputs:
    found = torch.autograd.grad(loss.sum(), list(leaves.values()), allow_unused=True)
    return {name: torch.zeros_like(x) if g is None else g for (name, x), g in zip(leaves.items(), found)}


def check_closed_form(
    sim: bd.Simulator, inputs: Inputs, reference: Reference, duration: float, error: float = 1e-9,
    outputs: tuple[Any, Any] = (slice(None), slice(None)), least: float = 0.5, without: tuple[str, ...] = (),
    embed: Callable[[Inputs], Inputs] = dict,
) -> bd.Trajectory:  # fmt: skip
    """Values, and the gradients of a random function of them with respect to all inputs, are those of the closed form.

    error: allowed, relative to the largest number of its kind (at least 1). outputs: which numbers of q and which of v
    count. least: so many samples must be of use. without: inputs that are not compared. embed: makes the simulator's
    inputs from those that are compared.
    """
    model, found = sim.model, []
    leaves = {name: x.detach().clone().requires_grad_() for name, x in inputs.items()}
    path = run(sim, embed(leaves), duration)
    right_q, right_v, use = reference(leaves, duration)
    assert use.double().mean() >= least, f"only {int(use.sum())} of {len(use)} samples are of use"
    assert path.status.converged[:, use].all() and not path.status.fallbacks[:, use].any()
    for q, v in (path.last, (right_q, right_v)):
        x = torch.cat([q[:, outputs[0]], v[:, outputs[1]]], 1)
        loss = torch.where(use, (x * weights(x.shape[1], seed=model.nv)).sum(1), 0.0)
        found.append({"values": x.detach()} | gradients_of(loss, leaves))
    mine, right = found
    for name, x in right.items():
        if name in without:
            continue
        scale = max(1.0, x[use].abs().max().item())
        wrong = (mine[name] - x)[use].abs().max().item()
        assert wrong <= error * scale, f"{name}: wrong by {wrong:.1e} of {scale:.3g}"  # nor NaN
    return path


# ---------------------------------------------------------------------------------------------- discs


def cross(w: Tensor, r: Tensor) -> Tensor:
    """Velocity of a point at r on what turns with w: [S], [S, 2] -> [S, 2]."""
    return w[:, None] * torch.stack([-r[:, 1], r[:, 0]], 1)


def planar_impact(relative: Tensor, normal: Tensor, W: Tensor, e: Tensor, mu: Tensor) -> tuple[Tensor, Tensor]:
    """The impulse [S, 2] (normal, tangential) of one contact, and whether it sticks [S].

    relative [S, 2]: velocity of the contact point before, in the world; W [S, 2, 2]: its inverse mass, along the normal
    and the tangent (the normal turned by 90 degrees).
    """
    tangent = torch.stack([-normal[:, 1], normal[:, 0]], 1)
    u_n, u_t = (relative * normal).sum(1), (relative * tangent).sum(1)
    sticking = torch.linalg.solve(W, torch.stack([-(1.0 + e) * u_n, -u_t], 1))
    sticks = sticking[:, 1].abs() <= mu * sticking[:, 0]
    side = mu * torch.sign(sticking[:, 1]).detach()
    slide_n = -(1.0 + e) * u_n / (W[:, 0, 0] + W[:, 0, 1] * side)
    return torch.where(sticks[:, None], sticking, torch.stack([slide_n, side * slide_n], 1)), sticks


def mean(x: Tensor, a: int, b: int) -> Tensor:
    return 0.5 * (x[:, a] + x[:, b])


def disc_impact(x: Inputs, v: Tensor, normal: Tensor, a: int, b: int | None, plane: int = -1) -> tuple[Tensor, Tensor]:
    """Velocities [S, 3 n] after disc a hits disc b (None: the plane whose shape is number `plane`); who sticks."""
    other = plane if b is None else b
    e, mu = mean(x["restitution"], a, other), mean(x["friction"], a, other)
    W_n = W_t = torch.zeros_like(e)
    relative = torch.zeros_like(normal)
    ends = [(a, 1.0)] if b is None else [(a, 1.0), (b, -1.0)]
    for k, sign in ends:
        r = -sign * x["size"][:, k, None] * normal
        relative = relative + sign * (v[:, 3 * k : 3 * k + 2] + cross(v[:, 3 * k + 2], r))
        W_n = W_n + 1.0 / x["mass"][:, k]
        W_t = W_t + 1.0 / x["mass"][:, k] + x["size"][:, k] ** 2 / x["inertia"][:, k]
    P, sticks = planar_impact(relative, normal, torch.diag_embed(torch.stack([W_n, W_t], 1)), e, mu)
    tangent = torch.stack([-normal[:, 1], normal[:, 0]], 1)
    force = P[:, :1] * normal + P[:, 1:] * tangent
    parts = list(v.split(3, 1))
    for k, sign in ends:
        spin = -x["size"][:, k] * P[:, 1] / x["inertia"][:, k]
        parts[k] = parts[k] + torch.cat([sign * force / x["mass"][:, k, None], spin[:, None]], 1)
    return torch.cat(parts, 1), sticks


def planar_scene(discs: int, planes: tuple[tuple[tuple[float, float], float], ...] = (), gravity=STILL) -> bd.Model:
    scene = bd.Scene(2, gravity=gravity)
    for k in range(discs):
        scene.add_body(f"disc{k}", bd.Circle(0.2), mass=1.0, position=(k, 1.0))
    for normal, offset in planes:
        scene.add_static(bd.HalfSpace(normal, offset))
    return scene.build()


@functools.cache
def over_floor(gravity: float = 0.0) -> bd.Model:
    return planar_scene(1, (((0.0, 1.0), 0.0),), (0.0, -gravity))


@functools.cache
def row_of_discs(n: int) -> bd.Model:
    return planar_scene(n)


@functools.cache
def between_walls() -> bd.Model:
    return planar_scene(1, (((1.0, 0.0), -1.0), ((-1.0, 0.0), -1.0)))


def materials(
    random: Random, bodies: int, planes: int, e: tuple[float, float], mu: tuple[float, float], offset: float = 0.0
) -> Inputs:  # fmt: skip
    """Of discs over planes; size: the radii, then the planes' offsets."""
    shapes = bodies + planes
    return {
        "mass": random(0.5, 3.0, bodies), "inertia": random(0.01, 0.1, bodies),
        "restitution": random(*e, shapes), "friction": random(*mu, shapes),
        "size": torch.cat([random(0.1, 0.3, bodies), offset + random(-0.1, 0.1, planes)], 1),
    }  # fmt: skip


def disc_over_floor(seed: int, samples: int = 16, e=(0.05, 1.0), mu=(0.0, 0.3), gravity: float = 0.0) -> Inputs:
    """A spinning disc that falls to the floor."""
    random = Random(seed, samples)
    q = torch.cat([random(-1, 1, 1), random(0.7, 1.2, 1), random(-3, 3, 1)], 1)
    v = torch.cat([random(-2, 2, 1), random(-3, -1.8, 1), random(-9, 9, 1)], 1)
    weight = torch.tensor([0.0, -gravity], dtype=torch.float64).repeat(samples, 1)
    return {"q": q, "v": v} | materials(random, 1, 1, e, mu) | {"gravity": weight}


def bounces_on_floor(x: Inputs, duration: float) -> tuple[Tensor, Tensor, Tensor]:
    """Free flight (under gravity along y) and impacts, as many as there are."""
    q, v, g = x["q"], x["v"], x["gravity"]
    up = torch.tensor([0.0, 1.0]).expand(len(q), 2)
    left, use = torch.full_like(q[:, 0], duration), torch.ones(len(q), dtype=torch.bool)
    for _ in range(8):
        height, speed, weight = q[:, 1] - x["size"][:, 0] - x["size"][:, 1], v[:, 1], -g[:, 1]
        height = height - torch.where(height.abs() < 1e-12, height.detach(), 0.0)
        # The later root of h + v t - g t² / 2 = 0, in the form that has a limit for g = 0.
        root = torch.sqrt((speed**2 + 2.0 * weight * height).clamp_min(1e-300))
        falling, none = speed < 0.0, (weight <= 0.0) & (speed >= 0.0)
        below = torch.where(falling, root - speed, torch.where(none, 1.0, weight))
        t = torch.where(falling, 2.0 * height / below, torch.where(none, 1e9, (speed + root) / below))
        hits = t < left
        t = torch.where(hits, t, left)
        q = q + t[:, None] * v + 0.5 * (t**2)[:, None] * torch.cat([g, 0 * g[:, :1]], 1)
        v = v + t[:, None] * torch.cat([g, 0 * g[:, :1]], 1)
        use = use & (~hits | (v[:, 1] < -1.5))  # slow ones may come to rest
        after, _ = disc_impact(x, v, up, 0, None)
        v, left = torch.where(hits[:, None], after, v), left - t
    return q, v, use & (left <= 0.0)


def ball_between_walls(seed: int, samples: int = 16, e=(0.85, 1.0)) -> Inputs:
    """Fast, without friction."""
    random = Random(seed, samples)
    q = torch.cat([random(-0.5, 0.5, 1), random(-1, 1, 1), random(-3, 3, 1)], 1)
    v = torch.cat([random(60, 90, 1), random(-2, 2, 1), random(-9, 9, 1)], 1)
    return {"q": q, "v": v} | materials(random, 1, 2, e, (0.0, 0.0), -1.0)


def bounces_between_walls(x: Inputs, duration: float) -> tuple[Tensor, Tensor, Tensor]:
    place, speed, left = x["q"][:, 0], x["v"][:, 0], torch.full_like(x["q"][:, 0], duration)
    while (left > 0.0).any():
        right = speed > 0.0
        side = torch.where(right, -(x["size"][:, 2] + x["size"][:, 0]), x["size"][:, 1] + x["size"][:, 0])
        t = torch.where(speed.abs() > 0.0, (side - place) / speed, 1e9)
        hits = t < left
        t = torch.where(hits, t, left)
        e = torch.where(right, mean(x["restitution"], 0, 2), mean(x["restitution"], 0, 1))
        place, left = place + t * speed, left - t
        speed = torch.where(hits, -e * speed, speed)
    q, v = x["q"] + duration * x["v"], x["v"]
    return torch.cat([place[:, None], q[:, 1:]], 1), torch.cat([speed[:, None], v[:, 1:]], 1), left <= 0.0


def two_discs(seed: int, samples: int = 16, e=(0.05, 1.0), mu=(0.0, 0.8), pairs: int = 1) -> Inputs:
    """Pairs that meet obliquely, far from other pairs."""
    random = Random(seed, samples)
    x = materials(random, 2 * pairs, 0, e, mu)
    q, v = [], []
    for k in range(pairs):
        q += [random(-1.2, -0.8, 1), random(-0.15, 0.15, 1) + 4 * k, random(-3, 3, 1)]
        q += [random(0.1, 0.4, 1), random(-0.1, 0.1, 1) + 4 * k, random(-3, 3, 1)]
        v += [random(2, 4, 1), random(-0.2, 0.2, 1), random(-9, 9, 1)]
        v += [random(-1, 1, 1), random(-0.2, 0.2, 1), random(-9, 9, 1)]
    return {"q": torch.cat(q, 1), "v": torch.cat(v, 1)} | x


def meeting_of_pairs(x: Inputs, duration: float) -> tuple[Tensor, Tensor, Tensor]:
    """Every disc of an even number meets the next one, once."""
    q, v, use = x["q"], x["v"], torch.ones(len(x["q"]), dtype=torch.bool)
    for a in range(0, x["mass"].shape[1], 2):
        b = a + 1
        r, u = (y[:, 3 * a : 3 * a + 2] - y[:, 3 * b : 3 * b + 2] for y in (x["q"], x["v"]))
        reach = x["size"][:, a] + x["size"][:, b]
        A, B, C = (u * u).sum(1), (r * u).sum(1), (r * r).sum(1) - reach**2
        root = B * B - A * C
        use = use & (root > 0.05 * B * B)  # they meet, and not grazing
        t = (-B - torch.sqrt(torch.where(use, root, 1.0))) / A
        use = use & (t < duration)
        after, _ = disc_impact(x, v, (r + t[:, None] * u) / reach[:, None], a, b)
        for k in (a, b):
            own = torch.zeros(v.shape[1], dtype=torch.bool)
            own[3 * k : 3 * k + 3] = True
            q = torch.where(own, x["q"] + t[:, None] * x["v"] + (duration - t)[:, None] * after, q)
        v = after
    return q, v, use


def cradle(seed: int, n: int, gap: float, samples: int = 8, e=(0.2, 1.0), alike: bool = False) -> Inputs:
    """Discs in a row at rest with gaps, and one that comes. alike: equal masses, elastic."""
    random = Random(seed, samples)
    x = materials(random, n, 0, e, (0.0, 0.0))
    if alike:
        x["mass"], x["restitution"] = torch.full_like(x["mass"], 1.3), torch.ones_like(x["restitution"])
    x["size"] = 0.125 + 0.0625 * torch.arange(n, dtype=torch.float64).repeat(samples, 1)  # sums without rounding
    q, v = torch.zeros(samples, n, 3), torch.zeros(samples, n, 3)
    reach = x["size"][:, 1:] + x["size"][:, :-1]
    q[:, 1:, 0] = torch.cumsum(reach + gap * random(0.5, 1.5, n - 1), 1)
    q[:, 0, 0] = -random(0.3, 0.5)
    v[:, 0, 0] = random(2, 4)
    return {"q": q.flatten(1), "v": v.flatten(1)} | x


def collisions_in_a_row(x: Inputs, duration: float) -> tuple[Tensor, Tensor, Tensor]:
    """One after the other, the earliest first; of those at the same time the first in the row."""
    n = x["mass"].shape[1]
    place, speed, m = x["q"][:, 0::3], x["v"][:, 0::3], x["mass"]
    e = 0.5 * (x["restitution"][:, 1:] + x["restitution"][:, :-1])
    reach, left = x["size"][:, 1:] + x["size"][:, :-1], torch.full_like(place[:, 0], duration)
    for _ in range(60):
        closing = speed[:, :-1] - speed[:, 1:]
        gaps = place[:, 1:] - place[:, :-1] - reach
        t = torch.where(closing > 1e-9, gaps / torch.where(closing > 1e-9, closing, 1.0), 1e9)
        first = torch.where(t < 1e-12, t.detach() * 0.0, t).argmin(1, keepdim=True)
        t = t.gather(1, first)[:, 0]
        hits = t < left
        if not hits.any():
            break
        t = torch.where(hits, t, 0.0)
        place, left = place + t[:, None] * speed, left - t
        a = torch.nn.functional.one_hot(first[:, 0], n).bool()
        b = a.roll(1, 1)
        m_a, m_b = m[a], m[b]
        P = (1.0 + e.gather(1, first)[:, 0]) * closing.gather(1, first)[:, 0] * m_a * m_b / (m_a + m_b)
        P = torch.where(hits, P, 0.0)[:, None]
        speed = torch.where(a, speed - P / m, torch.where(b, speed + P / m, speed))
    place = place + left[:, None] * speed
    q, v = x["q"] + duration * x["v"], x["v"]
    own = torch.arange(3 * n) % 3 == 0
    return (
        torch.where(own, place.repeat_interleave(3, 1), q), torch.where(own, speed.repeat_interleave(3, 1), v), ~hits
    )  # fmt: skip


# ---------------------------------------------------------------------------------------------- boxes and pendulums


@functools.cache
def box_over_floor() -> bd.Model:
    scene = bd.Scene(2, gravity=STILL)
    scene.add_body("box", bd.Box(0.5, 0.3), mass=1.0, position=(0.0, 1.0))
    scene.add_static(bd.HalfSpace((0.0, 1.0)))
    return scene.build()


def tumbling_box(seed: int, samples: int = 24) -> Inputs:
    random = Random(seed, samples)
    q = torch.cat([random(-1, 1, 1), random(0.7, 1.0, 1), random(-3, 3, 1)], 1)
    v = torch.cat([random(-1, 1, 1), random(-3, -2, 1), random(-2, 2, 1)], 1)
    x = materials(random, 1, 1, (0.3, 1.0), (0.0, 0.8))
    x["size"] = torch.cat([random(0.4, 0.6, 1), random(0.2, 0.3, 1), random(-0.1, 0.1, 1)], 1)
    return {"q": q, "v": v} | x


def corner_impact(x: Inputs, duration: float) -> tuple[Tensor, Tensor, Tensor]:
    """The first corner that comes down hits the floor.

    Of no use are samples with another hit, and those to which restitution and friction together would give energy: they
    bounce less.
    """
    signs = torch.tensor([[1.0, 1.0], [-1.0, 1.0], [-1.0, -1.0], [1.0, -1.0]])
    corners = 0.5 * signs * x["size"][:, None, :2]  # [S, 4, 2]

    def arms(angle: Tensor) -> Tensor:
        """From the center to the corners: [S, T] -> [S, T, 4, 2]"""
        c, s, (u, w) = angle.cos()[..., None], angle.sin()[..., None], corners[:, None].unbind(-1)
        return torch.stack([c * u - s * w, s * u + c * w], -1)

    def gaps(q: Tensor, v: Tensor, t: Tensor) -> Tensor:
        """[S, T] -> [S, T, 4]"""
        height = q[:, 1:2] + t * v[:, 1:2] - x["size"][:, 2:]
        return height[..., None] + arms(q[:, 2:] + t * v[:, 2:])[..., 1]

    q, v = x["q"], x["v"]
    with torch.no_grad():
        times = torch.linspace(0.0, duration, 4001).repeat(len(q), 1)
        below = (gaps(q, v, times) < 0.0).any(-1)
        use, t = below.any(1), times.gather(1, below.double().argmax(1, keepdim=True))
        corner = gaps(q, v, t)[:, 0].argmin(1)
    own = corner[:, None, None]
    for _ in range(6):  # Newton's method: the last iteration has the derivative
        arm = arms(q[:, 2:] + t.detach() * v[:, 2:])[:, 0].gather(1, own.expand(-1, 1, 2))[:, 0]
        rate = v[:, 1] + v[:, 2] * arm[:, 0]
        gap = gaps(q, v, t.detach())[:, 0].gather(1, corner[:, None])
        t = t.detach() - gap / rate[:, None]
    q = q + t * v
    arm = arms(q[:, 2:])[:, 0].gather(1, own.expand(-1, 1, 2))[:, 0]
    m, inertia = x["mass"][:, 0], x["inertia"][:, 0]
    W = torch.diag_embed(torch.stack([1 / m, 1 / m], 1)) + arm[:, :, None] * arm[:, None] / inertia[:, None, None]
    e, mu = mean(x["restitution"], 0, 1), mean(x["friction"], 0, 1)
    up = torch.tensor([0.0, 1.0]).expand(len(q), 2)
    P, _ = planar_impact(v[:, :2] + cross(v[:, 2], arm), up, W, e, mu)
    before, v = v, v + torch.stack([-P[:, 1] / m, P[:, 0] / m, (P * arm).sum(1) / inertia], 1)
    with torch.no_grad():
        gain = torch.stack([m, m, inertia], 1) * (v**2 - before**2)
        use = use & (gain.sum(1) < 0.0)
        later = torch.linspace(1e-6, 1.0, 4001) * (duration - t)
        use = use & (gaps(q, v, later) > 0.0).all(-1).all(1)
    return q + (duration - t) * v, v, use


@functools.cache
def pendulum() -> bd.Model:
    """A disc on an arm of length 1 that turns about the origin, over a floor."""
    scene = bd.Scene(2, gravity=STILL)
    scene.add_body("bob", bd.Circle(0.2), mass=1.0, position=(1.0, 0.0))
    scene.add_joint("hinge", bd.Hinge(), child="bob", anchor=(0.0, 0.0))
    scene.add_static(bd.HalfSpace((0.0, 1.0), -0.5))
    return scene.build()


def swinging(seed: int, samples: int = 16) -> Inputs:
    random = Random(seed, samples)
    return {"q": random(0.2, 0.5, 1), "v": random(-2, -1.5, 1)} | materials(random, 1, 1, (0.1, 1.0), (0.0, 0.0), -0.5)


def bounce_of_pendulum(x: Inputs, duration: float) -> tuple[Tensor, Tensor, Tensor]:
    q, v = x["q"], x["v"]
    angle = torch.asin(x["size"].sum(1, keepdim=True))
    t = (angle - q) / v
    after = -mean(x["restitution"], 0, 1)[:, None] * v
    return angle + (duration - t) * after, after, t[:, 0] < duration


# ---------------------------------------------------------------------------------------------- any two bodies


def one_impact(
    x: Inputs, duration: float, gap: Callable[[Tensor], Tensor], rows: Callable[[Tensor], Tensor], inverse_mass: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Coordinates change evenly, and the first two shapes hit each other once.

    gap: of q [S, T, nq], [S, T]; rows: of q [S, nq], normal and tangent [S, 2, nv]; inverse_mass [S, nv]. Of no use are
    samples with another hit, grazing ones, and those to which restitution and friction together would give energy.
    """

    def along(q: Tensor, v: Tensor, t: Tensor) -> Tensor:
        return gap(q[:, None] + t[..., None] * v[:, None])

    q, v = x["q"], x["v"]
    with torch.no_grad():
        times = torch.linspace(0.0, duration, 4001).repeat(len(q), 1)
        below = along(q, v, times) < 0.0
        use, t = below.any(1) & ~below[:, 0], times.gather(1, below.double().argmax(1, keepdim=True))
    for _ in range(8):  # Newton's method: the last iteration has the derivative
        at = t.detach().requires_grad_()
        rate = torch.autograd.grad(along(q.detach(), v.detach(), at).sum(), at)[0]
        t = t.detach() - along(q, v, t.detach()) / rate
    q = q + t * v
    J = rows(q)
    W = (J * inverse_mass[:, None]) @ J.transpose(1, 2)
    e, mu = mean(x["restitution"], 0, 1), mean(x["friction"], 0, 1)
    P, _ = planar_impact((J @ v[..., None])[..., 0], torch.tensor([1.0, 0.0]).expand(len(q), 2), W, e, mu)
    before, v = v, v + inverse_mass * (P[:, None] @ J)[:, 0]
    with torch.no_grad():
        later = torch.linspace(1e-4, 1.0, 2001) * (duration - t)
        use = use & (rate[:, 0] < -0.05) & (along(q, v, later) > 0.0).all(1)
        use = use & (((v**2 - before**2) / inverse_mass).sum(1) < 0.0)
    return q + (duration - t) * v, v, use


def turned(p: Tensor, angle: Tensor) -> Tensor:
    """[..., 2] by an angle [...]"""
    c, s = angle.cos(), angle.sin()
    return torch.stack([c * p[..., 0] - s * p[..., 1], s * p[..., 0] + c * p[..., 1]], -1)


def moment(r: Tensor, f: Tensor) -> Tensor:
    """Of a force f [S, 2] at r [S, 2]: [S, 1]"""
    return (r[:, 0] * f[:, 1] - r[:, 1] * f[:, 0])[:, None]


def from_box(p: Tensor, sides: Tensor) -> tuple[Tensor, Tensor]:
    """How far points [..., 2] are outside a box about the origin, and which way."""
    beyond = (p.abs() - 0.5 * sides).clamp_min(0.0)
    distance = beyond.square().sum(-1).clamp_min(1e-30).sqrt()
    return distance, torch.sign(p) * beyond / distance[..., None]


def normal_and_tangent(n: Tensor) -> tuple[Tensor, Tensor]:
    return n, torch.stack([-n[:, 1], n[:, 0]], 1)


def two_bodies(random: Random) -> Inputs:
    """Materials of two bodies, but sizes."""
    return {
        "mass": random(0.5, 3.0, 2), "inertia": random(0.02, 0.1, 2), "restitution": random(0.05, 1.0, 2),
        "friction": random(0.0, 0.8, 2),
    }  # fmt: skip


@functools.cache
def disc_and_box() -> bd.Model:
    scene = bd.Scene(2, gravity=STILL)
    scene.add_body("disc", bd.Circle(0.1), mass=1.0, position=(-1.0, 0.0))
    scene.add_body("box", bd.Box(0.5, 0.3), mass=1.0, position=(0.2, 0.0))
    return scene.build()


def disc_meets_box(seed: int, samples: int = 24) -> Inputs:
    """Both turn; a side or a corner is hit."""
    random = Random(seed, samples)
    q = [random(-0.9, -0.7, 1), random(-0.3, 0.3, 1), random(-3, 3, 1), random(0.1, 0.3, 1), random(-0.1, 0.1, 1),
         random(-3, 3, 1)]  # fmt: skip
    v = [random(2, 3, 1), random(-0.3, 0.3, 1), random(-5, 5, 1), random(-1, 0, 1), random(-0.3, 0.3, 1),
         random(-2, 2, 1)]  # fmt: skip
    size = torch.cat([random(0.05, 0.15, 1), random(0.4, 0.6, 1), random(0.2, 0.4, 1)], 1)
    return {"q": torch.cat(q, 1), "v": torch.cat(v, 1), "size": size} | two_bodies(random)


def hit_of_box(x: Inputs, duration: float) -> tuple[Tensor, Tensor, Tensor]:
    radius, sides = x["size"].split((1, 2), 1)

    def gap(q: Tensor) -> Tensor:
        return from_box(turned(q[..., :2] - q[..., 3:5], -q[..., 5]), sides[:, None])[0] - radius

    def rows(q: Tensor) -> Tensor:
        n = turned(from_box(turned(q[:, :2] - q[:, 3:5], -q[:, 5]), sides)[1], q[:, 5])
        arm = -radius * n
        other = q[:, :2] + arm - q[:, 3:5]
        return torch.stack(
            [torch.cat([d, moment(arm, d), -d, -moment(other, d)], 1) for d in normal_and_tangent(n)], 1
        )  # fmt: skip

    (m, m1), (inertia, inertia1) = x["mass"].unbind(1), x["inertia"].unbind(1)
    return one_impact(x, duration, gap, rows, 1.0 / torch.stack([m, m, inertia, m1, m1, inertia1], 1))


@functools.cache
def rod_and_ball() -> bd.Model:
    """A rod that turns about its end, at the origin."""
    scene = bd.Scene(2, gravity=STILL)
    scene.add_body("rod", bd.Box(1.0, 0.1), mass=1.0, position=(0.5, 0.0))
    scene.add_joint("pin", bd.Hinge(), child="rod", anchor=(0.0, 0.0))
    scene.add_body("ball", bd.Circle(0.1), mass=1.0, position=(0.6, 0.7))
    return scene.build()


def rod_meets_ball(seed: int, samples: int = 24) -> Inputs:
    random = Random(seed, samples)
    q = [random(-0.2, 0.2, 1), random(0.4, 0.7, 1), random(0.45, 0.6, 1), random(-3, 3, 1)]
    v = [random(1.5, 3, 1), random(-0.3, 0.3, 1), random(-0.5, 0.5, 1), random(-5, 5, 1)]
    size = torch.cat([random(0.95, 1.05, 1), random(0.06, 0.12, 1), random(0.05, 0.12, 1)], 1)
    return {"q": torch.cat(q, 1), "v": torch.cat(v, 1), "size": size} | two_bodies(random)


def hit_of_rod(x: Inputs, duration: float) -> tuple[Tensor, Tensor, Tensor]:
    sides, radius = x["size"].split((2, 1), 1)
    center = torch.tensor([0.5, 0.0])

    def gap(q: Tensor) -> Tensor:
        return from_box(turned(q[..., 1:3], -q[..., 0]) - center, sides[:, None])[0] - radius

    def rows(q: Tensor) -> Tensor:
        n = turned(from_box(turned(q[:, 1:3], -q[:, 0]) - center, sides)[1], q[:, 0])
        arm = -radius * n
        return torch.stack(
            [torch.cat([-moment(q[:, 1:3] + arm, d), d, moment(arm, d)], 1) for d in normal_and_tangent(n)], 1
        )  # fmt: skip

    (m, m1), (inertia, inertia1) = x["mass"].unbind(1), x["inertia"].unbind(1)
    return one_impact(x, duration, gap, rows, 1.0 / torch.stack([inertia + 0.25 * m, m1, m1, inertia1], 1))


RAIL = (0.6, 0.8)


@functools.cache
def bead_and_disc() -> bd.Model:
    """A bead on an oblique rail through the origin."""
    scene = bd.Scene(2, gravity=STILL)
    scene.add_body("bead", bd.Circle(0.1), mass=1.0, position=(0.0, 0.0))
    scene.add_joint("rail", bd.Slider(axis=RAIL), child="bead")
    scene.add_body("disc", bd.Circle(0.1), mass=1.0, position=(0.6, 0.9))
    return scene.build()


def bead_meets_disc(seed: int, samples: int = 24) -> Inputs:
    random = Random(seed, samples)
    q = [random(-0.2, 0.1, 1), random(0.5, 0.7, 1), random(0.7, 1.0, 1), random(-3, 3, 1)]
    v = [random(2, 3, 1), random(-0.5, 0.5, 2), random(-5, 5, 1)]
    return {"q": torch.cat(q, 1), "v": torch.cat(v, 1), "size": random(0.1, 0.2, 2)} | two_bodies(random)


def hit_of_bead(x: Inputs, duration: float) -> tuple[Tensor, Tensor, Tensor]:
    axis, radius = torch.tensor(RAIL), x["size"]

    def gap(q: Tensor) -> Tensor:
        return (q[..., 1:3] - q[..., :1] * axis).norm(dim=-1) - radius.sum(1, keepdim=True)

    def rows(q: Tensor) -> Tensor:
        n = torch.nn.functional.normalize(q[:, 1:3] - q[:, :1] * axis, dim=1)
        arm = -radius[:, 1:] * n
        return torch.stack([torch.cat([-(d @ axis)[:, None], d, moment(arm, d)], 1) for d in normal_and_tangent(n)], 1)

    m, m1 = x["mass"].unbind(1)
    return one_impact(x, duration, gap, rows, 1.0 / torch.stack([m, m1, m1, x["inertia"][:, 1]], 1))


@functools.cache
def pushed_bead() -> bd.Model:
    """A bead that a motor pushes along x, towards a wall."""
    scene = bd.Scene(2, gravity=STILL)
    scene.add_body("bead", bd.Circle(0.1), mass=1.0, position=(0.0, 0.0))
    scene.add_joint("rail", bd.Slider(axis=(1.0, 0.0)), child="bead")
    scene.add_motor("motor", joint="rail", gear=1.0)
    scene.add_static(bd.HalfSpace((-1.0, 0.0), -1.0))
    return scene.build()


def pushed_to_wall(x: Inputs, controls: Tensor, dt: float) -> tuple[Tensor, Tensor]:
    """Under forces [T, S, 1] that are constant in every step: place and speed at the end."""
    place, speed = x["q"][:, 0], x["v"][:, 0]
    wall, e = -x["size"].sum(1), mean(x["restitution"], 0, 1)
    for force in controls:
        a, left = force[:, 0] / x["mass"][:, 0], torch.full_like(place, dt)
        for _ in range(2):
            hits = place + left * speed + 0.5 * left**2 * a > wall
            root = torch.where(hits, speed**2 + 2.0 * a * (wall - place), 1.0).sqrt()
            t = torch.where(hits, 2.0 * (wall - place) / torch.where(hits, speed + root, 1.0), left)
            place, speed, left = place + t * speed + 0.5 * t**2 * a, speed + t * a, left - t
            speed = torch.where(hits, -e * speed, speed)
    return place, speed


# ---------------------------------------------------------------------------------------------- space


@functools.cache
def two_spheres() -> bd.Model:
    scene = bd.Scene(3, gravity=(0.0, 0.0, 0.0))
    for k in range(2):
        scene.add_body(f"sphere{k}", bd.Sphere(0.2), mass=1.0, position=(k, 0.0, 0.0))
    return scene.build()


def meeting_spheres(seed: int, samples: int = 16) -> Inputs:
    """Without friction."""
    random = Random(seed, samples)
    still = torch.tensor([1.0, 0.0, 0.0, 0.0]).repeat(samples, 1)
    q = [random(-1.2, -0.8, 1), random(-0.1, 0.1, 2), still, random(0.1, 0.4, 1), random(-0.1, 0.1, 2), still]
    v = [random(2, 4, 1), random(-0.2, 0.2, 2), torch.zeros(samples, 3)]
    v += [random(-1, 1, 1), random(-0.2, 0.2, 2), torch.zeros(samples, 3)]
    x = {"mass": random(0.5, 3.0, 2), "size": random(0.1, 0.3, 2)}
    x |= {"restitution": random(0.05, 1.0, 2), "friction": torch.zeros(samples, 2)}
    return {"q": torch.cat(q, 1), "v": torch.cat(v, 1)} | x


def meeting_in_space(x: Inputs, duration: float) -> tuple[Tensor, Tensor, Tensor]:
    (p, turn, p1, turn1), (v, spin, v1, spin1) = x["q"].split((3, 4, 3, 4), 1), x["v"].split(3, 1)
    r, u, reach = p - p1, v - v1, x["size"].sum(1)
    A, B, C = (u * u).sum(1), (r * u).sum(1), (r * r).sum(1) - reach**2
    root = B * B - A * C
    use = root > 0.05 * B * B
    t = (-B - torch.sqrt(torch.where(use, root, 1.0))) / A
    use, t = use & (t < duration), t[:, None]
    normal = (r + t * u) / reach[:, None]
    speed = (1.0 + mean(x["restitution"], 0, 1)) * (u * normal).sum(1) / (1.0 / x["mass"]).sum(1)
    force = -speed[:, None] * normal
    after, after1 = v + force / x["mass"][:, :1], v1 - force / x["mass"][:, 1:]
    left = duration - t
    q = torch.cat([p + t * v + left * after, turn, p1 + t * v1 + left * after1, turn1], 1)
    return q, torch.cat([after, spin, after1, spin1], 1), use


@functools.cache
def over_ground(shape: str) -> bd.Model:
    scene = bd.Scene(3, gravity=(0.0, 0.0, 0.0))
    body = bd.Sphere(0.2) if shape == "sphere" else bd.Capsule(0.1, 0.5)
    scene.add_body("body", body, mass=1.0, position=(0.0, 0.0, 1.0))
    scene.add_static(bd.HalfSpace((0.0, 0.0, 1.0)))
    return scene.build()


def in_a_plane(seed: int, shape: str, samples: int = 16) -> Inputs:
    """A capsule (or a sphere, whose length is then zero) that moves in x and z and turns about y; q: x, z, angle."""
    random = Random(seed, samples)
    q = torch.cat([random(-1, 1, 1), random(0.9, 1.2, 1), random(-3, 3, 1)], 1)
    v = torch.cat([random(-1, 1, 1), random(-3, -2, 1), random(-5, 5, 1)], 1)
    size = [random(0.08, 0.12, 1), random(0.4, 0.6, 1 if shape == "capsule" else 0), random(-0.1, 0.1, 1)]
    x = {"restitution": random(0.05, 1.0, 2), "friction": random(0.0, 0.6, 2), "size": torch.cat(size, 1)}
    return {"q": q, "v": v, "mass": random(0.5, 3.0, 1), "inertia": random(0.02, 0.05)} | x


def into_space(x: Inputs) -> Inputs:
    """What a simulator takes: y is along the floor, and the body's z is its axis."""
    (px, pz, angle), (vx, vz, spin), inertia = x["q"].unbind(1), x["v"].unbind(1), x["inertia"]
    o = torch.zeros_like(px)
    q = torch.stack([px, o, pz, torch.cos(0.5 * angle), o, torch.sin(0.5 * angle), o], 1)
    v = torch.stack([vx, o, vz, o, spin, o], 1)
    return {**x, "q": q, "v": v, "inertia": torch.stack([inertia, inertia, inertia, o, o, o], 1)[:, None]}


def end_of_capsule(x: Inputs, duration: float) -> tuple[Tensor, Tensor, Tensor]:
    """Its lower end hits the floor."""
    radius, floor = x["size"][:, :1], x["size"][:, -1:]
    half = 0.5 * x["size"][:, 1:2] if x["size"].shape[1] == 3 else torch.zeros_like(radius)

    def gap(q: Tensor) -> Tensor:
        return q[..., 1] - half * q[..., 2].cos().abs() - radius - floor

    def rows(q: Tensor) -> Tensor:
        side = -half[:, 0] * torch.sign(q[:, 2].cos()).detach()
        ahead, up = side * q[:, 2].sin(), side * q[:, 2].cos() - radius[:, 0]
        o, one = torch.zeros_like(up), torch.ones_like(up)
        return torch.stack([torch.stack([o, one, -ahead], 1), torch.stack([one, o, up], 1)], 1)

    m = x["mass"][:, 0]
    q, v, use = one_impact(x, duration, gap, rows, 1.0 / torch.stack([m, m, x["inertia"]], 1))
    whole = into_space({**x, "q": q, "v": v})
    return whole["q"], whole["v"], use
