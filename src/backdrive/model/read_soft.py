"""Read the options and the parameters of soft constraints from a compiled MuJoCo model."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import mujoco
import numpy as np

from ..schema import layout
from .read_tendons import read_combinations
from .rotations import from_quaternion
from .soft import SoftOptions, SoftParts
from .unsupported import disabled, geom_name, only_soft

if TYPE_CHECKING:
    from .links import Equality, LinkSpec

Array = np.ndarray

_INTEGRATORS = {
    mujoco.mjtIntegrator.mjINT_EULER: "euler",
    mujoco.mjtIntegrator.mjINT_RK4: "rk4",
    mujoco.mjtIntegrator.mjINT_IMPLICIT: "implicit",
    mujoco.mjtIntegrator.mjINT_IMPLICITFAST: "implicitfast",
}


class SoftSources(NamedTuple):
    """How the elements of the file became those of the model.

    joint_links, body_links: the link of every joint and body. geoms: that of every shape. actuators: that of every
    motor. ignore: kinds of elements that were left out.
    """

    links: Sequence[LinkSpec]
    joint_links: Sequence[int]
    body_links: Sequence[int]
    geoms: Sequence[int]
    equalities: Sequence[Equality]
    actuators: Sequence[int]
    ignore: Collection[str]


def apply_override(model: mujoco.MjModel) -> None:
    """If the file overrides the parameters of all contacts, give those to all geoms and pairs."""
    if model.opt.enableflags & int(mujoco.mjtEnableBit.mjENBL_OVERRIDE):
        model.geom_margin[:], model.pair_margin[:] = 0.5 * model.opt.o_margin, model.opt.o_margin
        sliding, _, torsional, rolling, _ = model.opt.o_friction
        model.geom_friction[:], model.pair_friction[:] = (sliding, torsional, rolling), model.opt.o_friction
        for name in ("solref", "solimp"):
            for kind in ("geom", "pair"):
                getattr(model, f"{kind}_{name}")[:] = getattr(model.opt, f"o_{name}")
        model.pair_solreffriction[:] = model.opt.o_solref


def read_soft(model: mujoco.MjModel, sources: SoftSources) -> SoftParts:
    """The options, and the records of links, shapes, limits, joint frictions and equalities, in the model's order."""
    links = sources.links
    weights = np.zeros((len(links), 2))
    for body, link in enumerate(sources.body_links):
        if link >= 0:
            weights[link] = model.body_invweight0[body]
    joint_of = {link: joint for joint, link in enumerate(sources.joint_links)}
    limited = [joint_of[i] for i, link in enumerate(links) if link.limits is not None]
    rubbing = [joint_of[i] for i, link in enumerate(links) if link.friction > 0.0]
    contact = "contact" not in sources.ignore and not disabled(model, "CONTACT", "CONSTRAINT")
    geoms = list(sources.geoms) if contact else []
    records = [weights.ravel(), *(_shape(model, geom) for geom in geoms)]
    for joint in limited:
        solver = (model.jnt_solref[joint], model.jnt_solimp[joint], [model.jnt_margin[joint]])
        records.append(np.concatenate([*solver, [model.dof_invweight0[model.jnt_dofadr[joint]]]]))
    for joint in rubbing:
        dof = model.jnt_dofadr[joint]
        solver = (model.dof_solref[dof], model.dof_solimp[dof], [0.0])
        records.append(np.concatenate([*solver, [model.dof_invweight0[dof]]]))
    records += _equalities(model, len(sources.equalities))
    number = {geom: i for i, geom in enumerate(geoms)}
    explicit = [k for k in range(model.npair) if model.pair_geom1[k] in number and model.pair_geom2[k] in number]
    records += [_pair(model, k) for k in explicit]
    powers = [record[layout.SOLIMP + 4] for record in records[1:]]
    if has_medium(model, sources.ignore):
        records.append(_medium(model, sources))
    combinations = read_combinations(model, sources.actuators, sources.body_links, sources.ignore)
    powers += combinations.powers
    options = replace(
        _options(model, geoms, powers, sources),
        explicit=tuple((number[model.pair_geom1[k]], number[model.pair_geom2[k]]) for k in explicit),
        adheres=bool(_field(model, "geom_adhesion")[geoms].any() or _field(model, "pair_adhesion")[explicit].any()),
        moving=bool(_field(model, "geom_surfacevel", 6)[geoms].any()),
        tendons=combinations.tendons,
        couplings=combinations.couplings,
        swings=combinations.swings,
        ropes=combinations.ropes,
    )
    return SoftParts(options, np.concatenate([*records, *combinations.records]))


def has_medium(model: mujoco.MjModel, ignore: Collection[str]) -> bool:
    """Whether a fluid drags the bodies, or their weight is compensated."""
    if disabled(model, "SPRING") and disabled(model, "DAMPER"):  # MuJoCo then leaves out all passive forces
        return False
    fluid = "fluid" not in ignore and (model.opt.density > 0.0 or model.opt.viscosity > 0.0)
    return fluid or ("gravcomp" not in ignore and bool(np.any(model.body_gravcomp)))


def _medium(model: mujoco.MjModel, sources: SoftSources) -> Array:
    """The MEDIUM floats, and a MEDIUM_LINK record for every link."""
    fluid, held = ("fluid" not in sources.ignore), ("gravcomp" not in sources.ignore)
    medium = np.array([model.opt.density, model.opt.viscosity, *model.opt.wind]) * fluid
    records = np.tile([*np.eye(3).ravel(), 0.0], (len(sources.links), 1))
    for body, link in enumerate(sources.body_links):
        if link >= 0:
            axes = from_quaternion(model.body_iquat[body]).ravel()
            records[link] = [*axes, model.body_gravcomp[body] * held]
    return np.concatenate([medium, records.ravel()])


def _shape(model: mujoco.MjModel, geom: int) -> Array:
    """The SOFT_SHAPE record of a geom."""
    numbers = (model.geom_margin[geom], model.geom_solmix[geom], model.geom_priority[geom], model.geom_condim[geom])
    solver = (model.geom_solref[geom], model.geom_solimp[geom])
    pull = (model.geom_gap[geom], _field(model, "geom_adhesion")[geom])
    return np.concatenate([*solver, numbers, model.geom_friction[geom, 1:], pull, _surface(model, geom)])


def _surface(model: mujoco.MjModel, geom: int) -> Array:
    """The velocity of a geom's surface in the frame of its shape: that of a plane has its origin at the end of the
    normal, and the axes of the world."""
    linear, angular = np.split(_field(model, "geom_surfacevel", 6)[geom], 2)
    if mujoco.mjtGeom(model.geom_type[geom]) != mujoco.mjtGeom.mjGEOM_PLANE or not (linear.any() or angular.any()):
        return np.concatenate([linear, angular])
    data = mujoco.MjData(model)
    mujoco.mj_kinematics(model, data)
    turn, origin = data.geom_xmat[geom].reshape(3, 3), data.geom_xpos[geom]
    linear, angular = turn @ linear, turn @ angular
    return np.concatenate([linear + np.cross(angular, turn[:, 2] - origin), angular])


def _pair(model: mujoco.MjModel, k: int) -> Array:
    """The SOFT_PAIR record of an explicit pair."""
    numbers = (model.pair_margin[k], model.pair_gap[k], _field(model, "pair_adhesion")[k], model.pair_dim[k])
    solver = (model.pair_solref[k], model.pair_solimp[k])
    return np.concatenate([*solver, numbers, model.pair_friction[k], model.pair_solreffriction[k]])


def _field(model: mujoco.MjModel, name: str, width: int = 0) -> Array:
    """A field over geoms or pairs; zero in versions of MuJoCo that lack it."""
    count = model.npair if name.startswith("pair_") else model.ngeom
    return getattr(model, name) if hasattr(model, name) else np.zeros((count, width) if width else count)


def _equalities(model: mujoco.MjModel, count: int) -> list[Array]:
    """The SOFT_EQUALITY record of every equation: three of a connect, six of a weld."""
    records = []
    if count:
        for i in np.flatnonzero(model.eq_active0).tolist():
            kind = mujoco.mjtEq(model.eq_type[i])
            rows = {mujoco.mjtEq.mjEQ_CONNECT: 3, mujoco.mjtEq.mjEQ_WELD: 6}.get(kind, 0)
            more = [float(model.eq_data[i, 10]), 1.0] if rows == 6 else [0.0, 0.0]
            records += [np.concatenate([model.eq_solref[i], model.eq_solimp[i], more])] * rows
    return records


def _options(model: mujoco.MjModel, geoms: Sequence[int], powers: Sequence[float], sources: SoftSources) -> SoftOptions:
    option = model.opt
    elliptic = mujoco.mjtCone(option.cone) == mujoco.mjtCone.mjCONE_ELLIPTIC
    integrator = _INTEGRATORS.get(mujoco.mjtIntegrator(option.integrator), "other")
    return SoftOptions(
        integrator=integrator,
        cone="elliptic" if elliptic else "pyramidal",
        impratio=float(option.impratio),
        iterations=int(option.iterations),
        eulerdamp=not disabled(model, "EULERDAMP"),
        refsafe=not disabled(model, "REFSAFE"),
        condim=max((int(x) for x in (*model.geom_condim[geoms], *model.pair_dim)), default=1),
        power=_power(powers),
        medium=has_medium(model, sources.ignore),
        own=tuple((kind, tuple(names)) for kind, names in only_soft(model, sources.ignore).items()),
        unsupported=tuple(_unsupported(model, geoms, sources, integrator)),
    )


def _unsupported(model: mujoco.MjModel, geoms: Sequence[int], sources: SoftSources, integrator: str) -> Iterator[str]:
    """The elements that MuJoCo's physics has no equations for yet."""
    if integrator == "other":
        yield f"integrator {mujoco.mjtIntegrator(model.opt.integrator).name}"
    friction, overridden = model.opt.o_friction, model.opt.enableflags & int(mujoco.mjtEnableBit.mjENBL_OVERRIDE)
    if overridden and (friction[0] != friction[1] or friction[3] != friction[4]):
        yield "o_friction that differs between two directions"
    if model.opt.noslip_iterations > 0 and geoms:
        yield f"noslip_iterations={model.opt.noslip_iterations}"
    for flag in ("DIAGEXACT", "SPECULATIVE", "IPC", "SLEEP"):
        bit = getattr(mujoco.mjtEnableBit, f"mjENBL_{flag}", None)
        if bit is not None and model.opt.enableflags & int(bit):
            yield f"the flag {flag.lower()}"
    if "fluid" not in sources.ignore and (model.opt.density > 0.0 or model.opt.viscosity > 0.0):
        for geom in np.flatnonzero(model.geom_fluid[:, 0]).tolist():
            yield f"fluidshape of {geom_name(model, geom)}"


def _power(powers: Sequence[float]) -> int:
    """The power of all solimp, if it is the same small integer; else 0."""
    different = {max(power, 1.0) for power in powers}
    if not different:
        return 2
    power = different.pop()
    return int(power) if not different and power == round(power) and power <= 8.0 else 0
