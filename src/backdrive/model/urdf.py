"""Where URDF means something else than MuJoCo's compiler makes of it: the inertia of its links.

In URDF a link without inertial has no mass, whatever its shapes. Chains of massless links (a shoulder of
three hinges), point masses, and even inertias that no rigid body can have are common in real robot files;
MuJoCo refuses them all. So its compiler gets stand-ins, and the file's own numbers are put back afterwards.
"""

from __future__ import annotations

import mujoco
import numpy as np

from ..schema.layout import INERTIA_INDEX
from . import checks
from .links import Inertial
from .rotations import from_quaternion

Array = np.ndarray

POINT_MASS_RADIUS = 1e-6
"""Radius of gyration, m, below which a link counts as a point: what is left is noise of the exporter."""


def take_inertials(spec: mujoco.MjSpec) -> tuple[dict[str, Inertial], list[str]]:
    """Replace what MuJoCo refuses by stand-ins; returns the file's values by body, and the non-physical."""
    spec.compiler.inertiafromgeom = mujoco.mjtInertiaFromGeom.mjINERTIAFROMGEOM_FALSE
    own: dict[str, Inertial] = {}
    impossible: list[str] = []
    for body in spec.bodies:
        if body.name == "world":
            continue
        inertia = _inertia(body)
        point = np.abs(inertia).max() <= body.mass * POINT_MASS_RADIUS**2
        if point:
            inertia = np.zeros((3, 3))
        elif _nonphysical(inertia):
            moments = ", ".join(f"{moment:.3g}" for moment in np.linalg.eigvalsh(inertia))
            impossible.append(f"{body.name} (no rigid body has the principal moments {moments})")
        else:
            continue
        com = np.nan_to_num(np.array(body.ipos))  # NaN: not given
        own[body.name] = Inertial(float(body.mass), com, inertia)
        body.explicitinertial = True
        body.mass = 1.0
        body.inertia = np.ones(3)
        body.fullinertia = [np.nan, 0.0, 0.0, 0.0, 0.0, 0.0]
    return own, impossible


def _inertia(body: mujoco.MjsBody) -> Array:
    """About the center of mass, along the body's axes, [3, 3]."""
    matrix = np.diag(np.array(body.inertia))
    if not np.isnan(body.fullinertia[0]):
        for entry, (i, j) in zip(body.fullinertia, INERTIA_INDEX, strict=True):
            matrix[i, j] = matrix[j, i] = entry
    axes = from_quaternion(np.array(body.iquat) / np.linalg.norm(body.iquat))
    return axes @ matrix @ axes.T


def _nonphysical(inertia: Array) -> bool:
    try:
        checks.physical_inertia((inertia + inertia.T) / 2.0, "inertia")
    except ValueError:
        return True
    return False
