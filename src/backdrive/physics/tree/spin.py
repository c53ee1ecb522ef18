"""The gyroscopic torque of links that can spin (on free and ball joints), which would gain energy if it were explicit.

A body without torque obeys I α + ω × I ω = 0. The implicit midpoint rule for it,

    I (ω⁺ - ω) + h x × I x = 0   with   x = (ω + ω⁺)/2,

conserves its energy ½ ω · I ω and its momentum |I ω| exactly, at any h. A step of time h therefore replaces the torque
ω × I ω in the equations of motion by x × I x: it adds `torque_change`. I is the inertia of the link itself, not of what
hangs on it: about the center of a ball joint, or about the center of mass of a free link, with the armature.

x is found by Newton's method from x = ω. Of a body that is symmetric about an axis it is found at any speed, of others
up to about 2 rad per step. Beyond that the torque is one that conserves energy alone, and derivatives are approximate.
"""

from __future__ import annotations

from typing import NamedTuple

from ...ir import Scalar, any_lane, carry, is_finite, select, when, while_any
from ..math import spatial as sp
from ..math.spatial import IDENTITY, VECTOR, ZERO3, Vec
from .joints import JointModel
from .tree import LinkConstants, Tree

# Newton's method takes this many steps in all lanes: enough up to 0.01 rad per step of time.
FIRST_STEPS = 2

# In lanes that have not converged then, it takes at most this many more.
MORE_STEPS = 8

# Where equations must not branch, it takes this many.
STRAIGHT_STEPS = 6

# Newton's method has converged when the square of its last step is less than this part of x²: the next, which is not
# taken, would be about the square of the last.
CONVERGED = 1e-13


class Spin(NamedTuple):
    """The rotation that goes on by itself. mean (3): x, rad/s. rest (3): the torque minus x × I x, N m; zero where
    Newton's method converges."""

    mean: Vec
    rest: Vec


def spin_inertia(joint: JointModel, link: LinkConstants, body: Vec) -> Vec:
    """I [9] of a link with the moments `body`, as its joint lets it rotate, kg m²."""
    sigma = sp.moments_about(body, joint.center(link, body))
    trace = sigma[0] + sigma[1] + sigma[2] + link.armature
    return tuple(trace * e - s for e, s in zip(IDENTITY, sp.full(sigma), strict=True))


def torque_change(I: Vec, w: Vec, spin: Spin) -> Vec:
    """How much more torque than ω × I ω the rotation takes, N m."""
    explicit = sp.cross(w, sp.rotate(I, w))
    return sp.sub(sp.add(sp.cross(spin.mean, sp.rotate(I, spin.mean)), spin.rest), explicit)


def free_spin(tree: Tree, I: Vec, w: Vec, h: Scalar) -> Spin:
    """The rotation of a body with angular velocity w (rad/s) and no torque during the time h (s)."""
    mean, rest = (_by_branches if tree.branching else _straight)(ratios(I), w, h)
    return Spin(mean, sp.scale(_trace(I), rest))


def ratios(I: Vec) -> Vec:
    """I / tr(I), on which alone x depends. A link without inertia has no torque, and any ratios will do: 1."""
    massless = _trace(I) <= 0.0
    scaled, unit = sp.scale(1.0 / select(massless, 1.0, _trace(I)), I), select(massless, 1.0, 0.0)
    return tuple(x + unit * e for x, e in zip(scaled, IDENTITY, strict=True))


def _trace(I: Vec) -> Scalar:
    return I[0] + I[4] + I[8]


def newton_matrix(I: Vec, x: Vec, h: Scalar) -> Vec:
    """The derivative [9] of `residual` by x: I + h/2 ([x] I - [I x])."""
    columns = [sp.cross(x, I[j::3]) for j in range(3)]
    L = sp.skew(sp.rotate(I, x))
    return tuple(I[3 * i + j] + (0.5 * h) * (columns[j][i] - L[3 * i + j]) for i in range(3) for j in range(3))


def residual(I: Vec, w: Vec, change: Vec, h: Scalar) -> Vec:
    """I d + h/2 x × I x, of which x = ω + d is the root. change: d."""
    x = sp.add(w, change)
    return sp.add(sp.rotate(I, change), sp.scale(0.5 * h, sp.cross(x, sp.rotate(I, x))))


def _newton(I: Vec, w: Vec, change: Vec, h: Scalar) -> Vec:
    """The next step of Newton's method for d, with the sign reversed."""
    return sp.solve(newton_matrix(I, sp.add(w, change), h), residual(I, w, change, h))


def _conserving(I: Vec, w: Vec, x: Vec, h: Scalar) -> tuple[Vec, Vec]:
    """The mean u of I (ω⁺ - ω) + h u × I x = 0, which conserves energy whatever x is, and u × I x - u × I u."""
    p = sp.rotate(I, x)
    u = sp.solve(tuple(a - (0.5 * h) * b for a, b in zip(I, sp.skew(p), strict=True)), sp.rotate(I, w))
    return u, sp.cross(u, sp.sub(p, sp.rotate(I, u)))


def _straight(I: Vec, w: Vec, h: Scalar) -> tuple[Vec, Vec]:
    change = ZERO3
    for _ in range(STRAIGHT_STEPS):
        change = sp.sub(change, _newton(I, w, change, h))
    return _conserving(I, w, sp.add(w, change), h)


def _by_branches(I: Vec, w: Vec, h: Scalar) -> tuple[Vec, Vec]:
    """As `_straight`; a lane takes as many steps as it needs, whatever other lanes need."""
    change = step = ZERO3
    for _ in range(FIRST_STEPS):
        step = _newton(I, w, change, h)
        change = sp.sub(change, step)
    d, rest, going = carry(VECTOR), carry(VECTOR), carry(1)

    def proceed(change: Vec, step: Vec, otherwise: Scalar) -> None:
        x = sp.add(w, change)
        d.put(0, change)
        going[0] = select(sp.dot(step, step) <= CONVERGED * sp.dot(x, x), 0.0, otherwise)

    proceed(change, step, 1.0)
    rest.put(0, ZERO3)
    for _ in while_any(lambda: going[0] > 0.0, MORE_STEPS):
        change = d.get(0, VECTOR)
        step = tuple(select(going[0] > 0.0, x, 0.0) for x in _newton(I, w, change, h))
        proceed(sp.sub(change, step), step, going[0])
    for _ in when(any_lane(going[0] > 0.0)):
        change = d.get(0, VECTOR)
        last = tuple(select(is_finite(sp.dot(change, change)), x, 0.0) for x in change)
        u, more = _conserving(I, w, sp.add(w, last), h)
        d.put(0, tuple(select(going[0] > 0.0, a - b, c) for a, b, c in zip(u, w, change, strict=True)))
        rest.put(0, tuple(select(going[0] > 0.0, x, 0.0) for x in more))
    return sp.add(w, d.get(0, VECTOR)), rest.get(0, VECTOR)
