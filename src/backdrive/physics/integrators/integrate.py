"""Time integrators: how velocities and positions advance by a step h.

    SemiImplicitEuler   v⁺ = v + h v̇(q, v),                q⁺ = q ⊕ h v⁺
    Midpoint            qₘ = q ⊕ h/2 v,  v⁺ = v + h v̇(qₘ, v + h/2 v̇₀),  q⁺ = qₘ ⊕ h/2 v⁺,   v̇₀ = v̇(qₘ, v)

Joint damping is implicit in both: at v⁺, and at (v + v⁺)/2.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

from ...ir import Scalar, switch
from ..math import spatial as sp
from ..tree.joints import JOINTS, JointModel
from ..tree.tree import LinkSubset, Tree


@dataclass(frozen=True)
class SemiImplicitEuler:
    """First order, good energy behaviour; what MuJoCo's Euler integrator does."""


@dataclass(frozen=True)
class Midpoint:
    """Second order, and exact for constant forces; about 1.5 times the work of a semi-implicit Euler step."""


Integrator = SemiImplicitEuler | Midpoint


def move(tree: Tree, q: Any, v: Any, h: Scalar, target: Any, some: LinkSubset | None = None) -> None:
    """target = q ⊕ h v on the manifold, joint by joint (target may be q); of some links only, if they are given."""

    def one(joint: JointModel, i: Any) -> None:
        a, b = tree.q_start(i), tree.v_start(i)
        step = sp.scale(h, v.at(b).get(0, joint.nv))
        target.at(a).put(0, joint.integrate(q.at(a).get(0, joint.nq), step))

    for i in tree.links_among(some):
        switch(tree.kind(i), [partial(one, joint) for joint in JOINTS], i)
