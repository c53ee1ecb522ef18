"""The kernels of a model: the same physics, rolled over tables for every model, or specialised to one.

Every kernel here is a function of `rollout`, `inverse` or `poses`: its first argument is the world, its others are
rows of the caller's tensors, integers, and the step h.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..backends import Integer, Ints, Kernel, Number, Rows, Table
from ..ir import Known, Masked
from . import contact_forces, rollout
from . import step_jacobian as jacobian
from .constraints.rows import Constraints
from .constraints.tables import Tables
from .integrators.integrate import SemiImplicitEuler
from .policy import GivenControls, NetworkTables, PolicyNetwork, PolicyRows, PolicySignature
from .step import Scheme
from .tree import inverse, poses
from .tree.tree import Homogeneous, Tree, topology_table


@dataclass(frozen=True)
class Form:
    """A function of the physics and its arguments: rows it reads and writes (some may be absent), and integers."""

    function: Callable[..., None]
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    integers: tuple[str, ...] = ()
    integrates: bool = False  # takes the scheme and the step h, and knows constraints and what drives the steps


PATH_ADJOINT = (
    "path_q", "path_v", "controls", "wrenches", "path_q_bar", "path_v_bar", "last_q_bar", "last_v_bar", "last_v"
)  # fmt: skip
POLICY_ADJOINT = (
    (
        "path_q", "path_v", "inputs", "controls", "wrenches",
        "path_q_bar", "path_v_bar", "last_q_bar", "last_v_bar", "last_v", "controls_bar",
    ),
    ("q_bar", "v_bar", "inputs_bar", "weights_bar", "wrenches_bar", "constants_bar"),
)  # fmt: skip

FORMS = {
    "rollout": Form(
        rollout.rollout,
        ("q", "v", "controls", "wrenches"),
        ("path_q", "path_v", "last_q", "last_v", "status"),
        ("steps", "every"),
        True,
    ),
    "rollout_adjoint": Form(
        rollout.rollout_adjoint,
        PATH_ADJOINT,
        ("q_bar", "v_bar", "controls_bar", "wrenches_bar", "constants_bar"),
        ("steps", "truncate"),
        True,
    ),
    "checkpoint_adjoint": Form(
        rollout.checkpoint_adjoint,
        PATH_ADJOINT,
        ("q_bar", "v_bar", "controls_bar", "wrenches_bar", "constants_bar"),
        ("steps", "every", "truncate"),
        True,
    ),
    "policy_rollout": Form(
        rollout.rollout,
        ("q", "v", "inputs", "wrenches"),
        ("path_q", "path_v", "last_q", "last_v", "status", "controls"),
        ("steps", "every"),
        True,
    ),
    "policy_rollout_adjoint": Form(rollout.rollout_adjoint, *POLICY_ADJOINT, ("steps", "truncate"), True),
    "policy_checkpoint_adjoint": Form(
        rollout.checkpoint_adjoint, *POLICY_ADJOINT, ("steps", "every", "truncate"), True
    ),
    "tracking": Form(
        rollout.tracking,
        ("q", "v", "controls", "gains", "origin_q", "origin_v", "low", "high"),
        ("path_q", "path_v", "used", "status"),
        ("steps",),
        True,
    ),
    "jacobians": Form(
        jacobian.jacobians,
        ("q", "v", "controls"),
        ("after", "step"),
        ("rows",),
        True,
    ),
    "forces": Form(contact_forces.forces, ("q", "v", "controls", "wrenches"), ("out",), ("times",), True),
    "forces_adjoint": Form(
        contact_forces.forces_adjoint,
        ("q", "v", "controls", "wrenches", "out_bar"),
        ("q_bar", "v_bar", "controls_bar", "wrenches_bar", "constants_bar"),
        ("times",),
        True,
    ),
    "forward": Form(inverse.forward, ("q", "v", "controls", "wrenches"), ("vdot",)),
    "forward_adjoint": Form(
        inverse.forward_adjoint,
        ("q", "v", "controls", "wrenches", "vdot_bar"),
        ("q_bar", "v_bar", "controls_bar", "wrenches_bar", "constants_bar"),
    ),
    "inverse": Form(inverse.inverse, ("q", "v", "vdot"), ("tau",)),
    "inverse_adjoint": Form(
        inverse.inverse_adjoint, ("q", "v", "vdot", "tau_bar"), ("q_bar", "v_bar", "vdot_bar", "constants_bar")
    ),
    "poses": Form(poses.poses, ("q", "v"), ("out",), ("times",)),
    "poses_adjoint": Form(poses.poses_adjoint, ("q", "v", "out_bar"), ("q_bar", "v_bar", "constants_bar"), ("times",)),
}


@dataclass(frozen=True)
class Constraining:
    """What a kernel must know of the constraints it is made for, besides their tables.

    kinds: the kinds of pairs that there are (places in PAIRS): others need not be compiled.
    """

    dim: int
    directions: int
    combine: str
    bounces: bool
    kinds: tuple[int, ...]


@dataclass(frozen=True)
class Variant:
    """Which of a form's kernels: what is absent, and where the constants come from."""

    form: str
    scheme: Scheme | None = None
    constraining: Constraining | None = None
    wrenches: bool = False
    constants_bar: bool = False
    batched: bool = False  # constants per environment
    watching: PolicySignature | None = None  # of a policy
    homogeneous: Homogeneous | None = None  # of a rolled kernel for such models only

    def absent(self) -> set[str]:
        """Rows that this variant does not have: None to the physics."""
        names = set()
        if not self.wrenches:
            names |= {"wrenches", "wrenches_bar"}
        if not self.constants_bar:
            names |= {"constants_bar"}
        if self.watching is None or not self.watching.inputs:
            names |= {"inputs"}
        if self.watching is None or not self.watching.inputs_bar:
            names |= {"inputs_bar"}
        if self.watching is None or not self.watching.weights_bar:
            names |= {"weights_bar"}
        return names


SIZES = ("nlink", "nq", "nv", "nu", "nconst")
CONSTRAINT_SIZES = ("nshape", "npair", "nslot", "nsingle")
NETWORK_SIZES = ("nneuron", "nweight", "ninput")
DRIVING = ("inputs", "inputs_bar", "controls", "controls_bar", "weights_bar")  # rows that drivers read and write


def make_kernel(
    variant: Variant, model: Any = None, varying: np.ndarray | None = None, tables: Tables | None = None
) -> Kernel:
    """Rolled (without a model), or specialised to a model of which only the `varying` constants are read.

    Constraints are read from tables in both: rows come and go with contacts, so there is no use in unrolling them.
    """
    form, absent, constraining = FORMS[variant.form], variant.absent(), variant.constraining
    rows = [Rows(name) for name in form.reads if name not in absent]
    rows += [Rows(name, writable=True) for name in form.writes if name not in absent]
    arguments: list[Any] = [*rows, *(Integer(name) for name in form.integers)]
    if form.integrates:
        arguments.append(Number("h"))
    if model is None or constraining or (varying is not None and varying.any()):
        arguments.append(Rows("constants") if variant.batched else Table("constants"))
    if constraining:
        arguments += [Ints("constraint_ints"), Table("constraint_floats")]
    if variant.watching:
        arguments += [Ints("network"), Table("weights"), *(Integer(name) for name in NETWORK_SIZES)]
    if model is None:
        arguments += [Ints("topology"), *(Integer(name) for name in SIZES)]
        if constraining:
            arguments += [Integer(name) for name in CONSTRAINT_SIZES]

    def body(**a: Any) -> None:
        array = a.pop("constants", None)
        if model is None:
            sizes = {name: a.pop(name) for name in SIZES}
            tree = Tree(**sizes, topology=a.pop("topology"), constants=array, homogeneous=variant.homogeneous)
        else:
            sizes = {name: getattr(model, name) for name in SIZES}
            constants = Known(model.constants, varying, array)
            tree = Tree(**sizes, topology=Known(topology_table(model)), constants=constants)
            if varying is not None and "constants_bar" in a:
                a["constants_bar"] = Masked(a["constants_bar"], varying)
        if constraining:
            if tables is None:
                counts = {name: a.pop(name) for name in CONSTRAINT_SIZES} | {"grounded": False}
            else:
                counts = {"nshape": model.nshape, "npair": model.npair} | {
                    name: getattr(tables, name) for name in ("nslot", "nsingle", "grounded")
                }
            table = {"ints": a.pop("constraint_ints"), "floats": a.pop("constraint_floats")}
            constraints = Constraints(**vars(constraining), **counts, **table, constants=array)
            tree = replace(tree, constraints=constraints)
        a |= dict.fromkeys(absent & {*form.reads, *form.writes})
        if form.integrates:
            a["scheme"] = variant.scheme or Scheme(SemiImplicitEuler())
            rows = {name: a.pop(name) for name in DRIVING if name in a}
            if variant.watching:
                given = [a.pop(name) for name in ("network", "weights", *NETWORK_SIZES)]
                a["driver"] = PolicyNetwork(tree, variant.watching, NetworkTables(*given), PolicyRows(**rows))
            else:
                a["driver"] = GivenControls(tree, **rows)
        form.function(tree, **a)

    key = repr(variant)
    if model is not None:
        key += model.fingerprint + (varying.tobytes().hex() if varying is not None else "")
    return Kernel(variant.form, arguments, body, unroll=model is not None, key=key)


@functools.cache
def rolled_kernel(variant: Variant) -> Kernel:
    """Shared by all models, or by those whose bodies are alike in the same way."""
    return make_kernel(variant)
