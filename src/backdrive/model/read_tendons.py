"""Read fixed tendons, equalities of joints and of tendons, and limits of ball joints, from a compiled MuJoCo model."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

import mujoco
import numpy as np

from .soft import Combination, Coupling, Rope, Swing, Tendon
from .unsupported import (
    disabled,
    fixed_tendon,
    is_coupling,
    is_rope,
    limited_balls,
    name_of,
    nonzero,
    pulls_tendon,
    tendon_joints,
)

Array = np.ndarray


class Combinations(NamedTuple):
    """Tendons, couplings, swings and ropes, with their records in the constants, and the powers of their solimp."""

    tendons: tuple[Tendon, ...]
    couplings: tuple[Coupling, ...]
    swings: tuple[Swing, ...]
    ropes: tuple[Rope, ...]
    records: list[Array]
    powers: list[float]


def read_combinations(
    model: mujoco.MjModel, actuators: Sequence[int], body_links: Sequence[int], ignore: Collection[str]
) -> Combinations:
    """The tendons that have forces or motors, and the equalities; actuators: the number of that of every motor."""
    tendons, records, powers = [], [], []
    for i in range(model.ntendon):
        pulled = [m for m, a in enumerate(actuators) if pulls_tendon(model, a) and model.actuator_trnid[a, 0] == i]
        forces = "tendon" not in ignore
        limited = forces and bool(model.tendon_limited[i]) and not disabled(model, "LIMIT", "CONSTRAINT")
        rubs = forces and nonzero(model, "tendon_frictionloss", i)
        rubs = rubs and not disabled(model, "FRICTIONLOSS", "CONSTRAINT")
        springs = forces and (nonzero(model, "tendon_stiffness", i) or nonzero(model, "tendon_damping", i))
        if not fixed_tendon(model, i) or not (pulled or limited or rubs or springs):
            continue
        name = name_of(model, mujoco.mjtObj.mjOBJ_TENDON, i, "tendon")
        tendons.append(Tendon(name, _length(model, i), limited, rubs, tuple(pulled)))
        records.append(_tendon(model, i, forces))
        powers += [float(model.tendon_solimp_lim[i, 4])] * limited + [float(model.tendon_solimp_fri[i, 4])] * rubs
    couplings = []
    if "equality" not in ignore and not disabled(model, "EQUALITY", "CONSTRAINT"):
        for i in np.flatnonzero(model.eq_active0).tolist():
            if is_coupling(model, i):
                found, record = _coupling(model, i)
                couplings.append(found)
                records.append(record)
                powers.append(float(model.eq_solimp[i, 4]))
    swings = []
    if "limit" not in ignore and not disabled(model, "LIMIT", "CONSTRAINT"):
        for i in np.flatnonzero(limited_balls(model)).tolist():
            name, dof = name_of(model, mujoco.mjtObj.mjOBJ_JOINT, i, "joint"), model.jnt_dofadr[i]
            swings.append(Swing(name, int(model.jnt_qposadr[i]), int(dof)))
            more = (model.jnt_margin[i], model.dof_invweight0[dof], model.jnt_range[i].max())
            records.append(np.array([*model.jnt_solref[i], *model.jnt_solimp[i], *more]))
            powers.append(float(model.jnt_solimp[i, 4]))
    ropes = []
    if "tendon" not in ignore and not disabled(model, "LIMIT", "CONSTRAINT"):
        for i in range(model.ntendon):
            if is_rope(model, i):
                ropes.append(_rope(model, i, body_links))
                more = (model.tendon_margin[i], model.tendon_invweight0[i], *model.tendon_range[i])
                records.append(np.array([*model.tendon_solref_lim[i], *model.tendon_solimp_lim[i], *more]))
                powers.append(float(model.tendon_solimp_lim[i, 4]))
    return Combinations(tuple(tendons), tuple(couplings), tuple(swings), tuple(ropes), records, powers)


def _rope(model: mujoco.MjModel, i: int, body_links: Sequence[int]) -> Rope:
    start = model.tendon_adr[i]
    sites = [int(site) for site in model.wrap_objid[start : start + model.tendon_num[i]]]
    links = tuple(body_links[model.site_bodyid[site]] + 1 for site in sites)
    x, y, z = 0, 1, 2
    places = tuple((float(p[x]), float(p[y]), float(p[z])) for p in model.site_pos[sites])
    return Rope(name_of(model, mujoco.mjtObj.mjOBJ_TENDON, i, "tendon"), links, places)


def _length(model: mujoco.MjModel, tendon: int) -> Combination:
    """The length of a fixed tendon."""
    joints, start = tendon_joints(model, tendon), model.tendon_adr[tendon]
    factors = model.wrap_prm[start : start + len(joints)].tolist()
    return Combination(*_places(model, joints), tuple(factors))


def _places(model: mujoco.MjModel, joints: Sequence[int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Where the coordinates of joints are in q and in v."""
    return tuple(int(model.jnt_qposadr[j]) for j in joints), tuple(int(model.jnt_dofadr[j]) for j in joints)


def _tendon(model: mujoco.MjModel, i: int, forces: bool) -> Array:
    """The TENDON record."""
    stiffness = model.tendon_stiffness[i] * (forces and not disabled(model, "SPRING"))
    damping = model.tendon_damping[i] * (forces and not disabled(model, "DAMPER"))
    weight = [model.tendon_invweight0[i]]
    return np.concatenate(
        [
            [stiffness, damping, *model.tendon_lengthspring[i], model.tendon_frictionloss[i], *model.tendon_range[i]],
            [*model.tendon_solref_lim[i], *model.tendon_solimp_lim[i], model.tendon_margin[i], *weight],
            [*model.tendon_solref_fri[i], *model.tendon_solimp_fri[i], 0.0, *weight],
        ]
    )


def _coupling(model: mujoco.MjModel, i: int) -> tuple[Coupling, Array]:
    """An equality of joints or of tendons, and its COUPLING record."""
    on_joints = model.eq_type[i] == mujoco.mjtEq.mjEQ_JOINT
    both = [int(x) for x in (model.eq_obj1id[i], model.eq_obj2id[i]) if x >= 0]
    if on_joints:
        combinations = [Combination(*_places(model, [joint]), (1.0,)) for joint in both]
        zeros = [model.qpos0[model.jnt_qposadr[joint]] for joint in both]
        weight = sum(model.dof_invweight0[model.jnt_dofadr[joint]] for joint in both)
    else:
        combinations = [_length(model, tendon) for tendon in both]
        zeros = [model.tendon_length0[tendon] for tendon in both]
        weight = sum(model.tendon_invweight0[tendon] for tendon in both)
    second, polynomial = None, model.eq_data[i, :5].copy()
    if len(both) == 2:
        second = combinations[1]
    else:
        polynomial[1:] = 0.0
    name = name_of(model, mujoco.mjtObj.mjOBJ_EQUALITY, i, "equality")
    zeros = [*zeros, 0.0][:2]
    record = np.concatenate([model.eq_solref[i], model.eq_solimp[i], [weight], polynomial, zeros])
    return Coupling(name, combinations[0], second), record.astype(np.float64)
