"""Inertias of URDF links that MuJoCo's compiler would refuse.

In URDF a link without an inertial has no mass, whatever its shapes. Chains of massless links (a shoulder of three
hinges), point masses, and even inertias that no rigid body can have are common in robot files; MuJoCo refuses them all.
So the compiler gets placeholder values, and the file's own values are restored afterwards.
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
"""A link whose radius of gyration (m) is smaller counts as a point mass: smaller inertias are rounding errors."""


def take_inertials(spec: mujoco.MjSpec) -> tuple[dict[str, Inertial], list[str]]:
    """Replace inertias that MuJoCo refuses by placeholders.

    Returns the file's own values by body, and descriptions of those that no rigid body can have.
    """
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
        com = np.nan_to_num(np.array(body.ipos))  # NaN if the file does not give it
        own[body.name] = Inertial(float(body.mass), com, inertia)
        body.explicitinertial = True
        body.mass = 1.0
        body.inertia = np.ones(3)
        body.fullinertia = [np.nan, 0.0, 0.0, 0.0, 0.0, 0.0]
    return own, impossible


def _inertia(body: mujoco.MjsBody) -> Array:
    """The inertia [3, 3] of a body about its center of mass, along the body's axes."""
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
