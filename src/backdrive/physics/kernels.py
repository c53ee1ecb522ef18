"""The kernels of a model: the same physics, rolled over tables for every model, or specialised to one.

A kernel is a function of the physics with the arguments that `schema.signatures` declares for it. Functions that take
steps get a `StepContext`, the source of their controls, and their rows as one object; others get the tree and their
rows.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, NamedTuple, get_type_hints

import numpy as np

from ..backends import Executable, Integer, Ints, Kernel, Number, Order, Rows, Table
from ..backends.llvm_cpu.ahead import ahead
from ..backends.llvm_cpu.target import host
from ..ir import Known, Masked
from ..schema import layout
from ..schema.signatures import SIGNATURES, Role
from ..schema.state import state_names
from . import contact_forces, rollout, rollout_adjoint, step_jacobian
from .clipping import Clipping
from .constraints.constraints import ConstraintForm, Constraints
from .constraints.tables import ConstraintTables
from .control_source import ControlSource, GivenControls
from .integrators import SemiImplicitEuler
from .policy import NetworkTables, PolicyNetwork, PolicyRows, PolicySignature
from .scheme import Scheme, StepContext
from .shaped_policy import ShapedNetwork
from .state import StateArrays, StatePath
from .tree import inverse, poses
from .tree.bodies import with_bodies
from .tree.tree import Homogeneous, Tree, topology_table

if TYPE_CHECKING:
    from ..model import Model


class Function(NamedTuple):
    """A function of the physics; rows: the type of the object that it takes, None if it takes rows one by one."""

    call: Callable[..., None]
    rows: type | None = None


FUNCTIONS = {
    "rollout": Function(rollout.rollout, rollout.RolloutRows),
    "rollout_adjoint": Function(rollout_adjoint.rollout_adjoint, rollout_adjoint.RolloutAdjointRows),
    "checkpoint_adjoint": Function(rollout_adjoint.checkpoint_adjoint, rollout_adjoint.CheckpointAdjointRows),
    "policy_rollout": Function(rollout.rollout, rollout.RolloutRows),
    "policy_rollout_adjoint": Function(rollout_adjoint.rollout_adjoint, rollout_adjoint.RolloutAdjointRows),
    "policy_checkpoint_adjoint": Function(rollout_adjoint.checkpoint_adjoint, rollout_adjoint.CheckpointAdjointRows),
    "tracking": Function(rollout.tracking, rollout.TrackingRows),
    "jacobians": Function(step_jacobian.jacobians, step_jacobian.JacobianRows),
    "forces": Function(contact_forces.forces, contact_forces.ForcesRows),
    "forces_adjoint": Function(contact_forces.forces_adjoint, contact_forces.ForcesAdjointRows),
    "forward": Function(inverse.forward),
    "forward_adjoint": Function(inverse.forward_adjoint),
    "inverse": Function(inverse.inverse),
    "inverse_adjoint": Function(inverse.inverse_adjoint),
    "poses": Function(poses.poses),
    "poses_adjoint": Function(poses.poses_adjoint),
}

SIZES = ("nlink", "nq", "nv", "nu", "nconst")
CONSTRAINT_SIZES = ("nshape", "npair", "nslot", "nsingle")
NETWORK_SIZES = ("nneuron", "nweight", "ninput")
SOURCE_ROWS = (
    "inputs", "inputs_bar", "controls", "controls_bar", "weights_bar", "noise", "noise_bar", "neurons", "neurons_bar",
)  # fmt: skip
"""Rows that the source of controls reads and writes."""
ROLLOUTS = ("rollout", "policy_rollout")
ROLLOUT_ADJOINTS = ("rollout_adjoint", "checkpoint_adjoint", "policy_rollout_adjoint", "policy_checkpoint_adjoint")


@dataclass(frozen=True)
class Variant:
    """One of the kernels of a form.

    constraining: None without constraints. wrenches, constants_bar, solution: whether there are such rows. batched:
    whether every environment has its own constants. policy: what its network reads. clips: of an adjoint that limits
    the cotangents of states. homogeneous: of a rolled kernel for homogeneous models.
    """

    form: str
    scheme: Scheme | None = None
    constraining: ConstraintForm | None = None
    wrenches: bool = False
    constants_bar: bool = False
    batched: bool = False
    policy: PolicySignature | None = None
    solution: bool = False
    clips: bool = False
    homogeneous: Homogeneous | None = None

    @property
    def regroups(self) -> bool:
        """Whether callers may choose which environments share a pack. It pays in Runge-Kutta rollouts of MuJoCo's
        physics, where a row that acts in one lane is computed in all; steps of its other integrators are too short."""
        soft = None if self.scheme is None or self.constraining is None else self.scheme.soft
        return soft is not None and soft.integrator == "rk4" and self.form in (*ROLLOUTS, *ROLLOUT_ADJOINTS)

    def absent(self) -> set[str]:
        """The optional rows that this variant does not have: None to the physics."""
        policy = self.policy
        form = None if policy is None else policy.form
        there = {
            "wrenches": self.wrenches,
            "wrenches_bar": self.wrenches,
            "constants_bar": self.constants_bar,
            "solution": self.solution,
            "norms": self.clips,
            "inputs": policy is not None and policy.inputs,
            "inputs_bar": policy is not None and policy.inputs_bar,
            "weights_bar": policy is not None and policy.weights_bar and form is None,
            "neurons": policy is not None and policy.weights_bar and form is not None,
            "neurons_bar": policy is not None and policy.weights_bar and form is not None,
            "noise": form is not None and form.noise,
            "noise_bar": form is not None and form.noise_bar,
        }
        return {name for name, present in there.items() if not present}

    def rows(self) -> tuple[list[str], list[str]]:
        """The names of the rows that the kernel reads and writes, without absent ones; tables are no rows."""
        signature, absent = SIGNATURES[self.form], self.absent()
        reads = [a.name for a in signature.reads if a.role is not Role.PARAMETER and a.name not in absent]
        return reads, [a.name for a in signature.writes if a.name not in absent]


@dataclass(frozen=True)
class Specialisation:
    """The model that a kernel is specialised to. varying [nconst]: the constants that are read at run time; all others
    are constants of the kernel. tables: of the constraints, None without."""

    model: Model
    varying: np.ndarray | None = None
    tables: ConstraintTables | None = None

    @property
    def key(self) -> str:
        return self.model.fingerprint + (self.varying.tobytes().hex() if self.varying is not None else "")


def make_kernel(variant: Variant, special: Specialisation | None = None) -> Kernel:
    """A rolled kernel for every model, or one that is specialised to a model.

    Constraints are read from tables in both: rows come and go with contacts, so that unrolling them is of no use. Only
    loops over all shapes are unrolled.
    """

    def body(**a: Any) -> None:
        call, rows = FUNCTIONS[variant.form]
        tree = _tree(variant, special, a)
        signature = SIGNATURES[variant.form]
        a |= dict.fromkeys(variant.absent() & {x.name for x in (*signature.reads, *signature.writes)})
        if rows is None:
            call(tree, **a)
            return
        source = _control_source(variant, tree, a)
        a.pop("order", None)
        a.setdefault("likeness", None)
        a["clipping"] = Clipping(*map(a.pop, ("clip", "clip_every", "norms"))) if variant.clips else None
        ctx = StepContext(with_bodies(tree), variant.scheme or Scheme(SemiImplicitEuler()), a.pop("h"))
        call(ctx, source, _gather(rows, a))

    key = repr(variant) + ("" if special is None else special.key)
    return Kernel(variant.form, _arguments(variant, special), body, unroll=special is not None, key=key)


@functools.cache
def rolled_kernel(variant: Variant) -> Kernel:
    """Shared by all models, or by all models that are homogeneous in the same way."""
    return make_kernel(variant)


def _arguments(variant: Variant, special: Specialisation | None) -> list[Any]:
    """The arguments of the kernel: rows and integers of its signature, and the tables of the model."""
    signature, (reads, writes) = SIGNATURES[variant.form], variant.rows()
    arguments: list[Any] = [Rows(name) for name in reads]
    arguments += [Rows(name, writable=True) for name in writes]
    arguments += [Integer(name) for name in signature.integers]
    if signature.integrates:
        arguments.append(Number("h"))
    if variant.regroups:
        arguments.append(Order("order"))
        if variant.form in ROLLOUTS:
            arguments.append(Rows("likeness", writable=True))
    if variant.clips:
        arguments += [Number("clip"), Integer("clip_every")]
    varies = special is not None and special.varying is not None and special.varying.any()
    if special is None or variant.constraining or varies:
        arguments.append(Rows("constants") if variant.batched else Table("constants"))
    if variant.constraining:
        arguments += [Ints("constraint_ints"), Table("constraint_floats")]
    if variant.policy:
        arguments += [Ints("network"), Table("weights"), *(Integer(name) for name in NETWORK_SIZES)]
    if special is None:
        arguments += [Ints("topology"), *(Integer(name) for name in SIZES)]
        if variant.constraining:
            arguments += [Integer(name) for name in CONSTRAINT_SIZES]
    return arguments


def _tree(variant: Variant, special: Specialisation | None, a: dict[str, Any]) -> Tree:
    """The model as the kernel sees it; its arguments are taken out of `a`."""
    array, constraining = a.pop("constants", None), variant.constraining
    if special is None:
        sizes = {name: a.pop(name) for name in SIZES}
        tree = Tree(**sizes, topology=a.pop("topology"), constants=array, homogeneous=variant.homogeneous)
    else:
        model = special.model
        sizes = {name: getattr(model, name) for name in SIZES}
        constants = Known(model.constants, special.varying, array)
        tree = Tree(**sizes, topology=Known(topology_table(model)), constants=constants)
        if special.varying is not None and "constants_bar" in a:
            a["constants_bar"] = Masked(a["constants_bar"], special.varying)
    tree = replace(tree, saturating=variant.scheme is not None and variant.scheme.saturates)
    if constraining is None:
        return tree
    if special is None or special.tables is None:
        counts = {name: a.pop(name) for name in CONSTRAINT_SIZES} | {"grounded": False}
    else:
        counts = {"nshape": special.model.nshape}
        counts |= {name: getattr(special.tables, name) for name in ("npair", "nslot", "nsingle", "grounded")}
    tables = {"ints": a.pop("constraint_ints"), "floats": a.pop("constraint_floats")}
    constraints = Constraints(constraining, **counts, **tables, constants=array)
    if special is not None and special.tables is not None:
        ints, floats = Known(special.tables.ints), Known(special.tables.floats)
        known = replace(constraints, ints=ints, floats=floats, constants=tree.constants)
        constraints = replace(constraints, known=known)
    return replace(tree, constraints=constraints)


def _control_source(variant: Variant, tree: Tree, a: dict[str, Any]) -> ControlSource:
    """Where the controls of the steps come from; its arguments are taken out of `a`."""
    rows = {name: a.pop(name) for name in SOURCE_ROWS if name in a}
    if variant.policy is None:
        return GivenControls(tree, **rows)
    tables = NetworkTables(*(a.pop(name) for name in ("network", "weights", *NETWORK_SIZES)))
    network = PolicyNetwork if variant.policy.form is None else ShapedNetwork
    return network(tree, variant.policy, tables, PolicyRows(**rows), guarded=variant.clips)


def _gather(rows: type, a: dict[str, Any]) -> Any:
    """The rows and integers of a kernel as the object that its function takes; arrays of a state are grouped."""
    types = get_type_hints(rows)
    values = {}
    for field in fields(rows):
        grouped = types[field.name] in (StateArrays, StatePath)
        values[field.name] = types[field.name](*map(a.get, _state_rows(field.name))) if grouped else a[field.name]
    return rows(**values)


def _state_rows(name: str) -> tuple[str, ...]:
    """The kernel's rows of a state: "path" is path_q and path_v; "start" and "states" are q and v themselves."""
    name, bar = (name.removesuffix("_bar"), "_bar") if name.endswith("_bar") else (name, "")
    return state_names("" if name in ("start", "states") else f"{name}_", bar)


# ------------------------------------------------------------------------------------------ the kernels of one model

AUTO_LINKS = {2: 120, 3: 40}  # specialize="auto": most links without constraints, by dimension (2D code is shorter)
AUTO_CONSTRAINED = 24  # specialize="auto": most links with contacts or other constraints; more take minutes to compile
AUTO_VARYING = 64  # specialize="auto": most constants that are given at run time


def has_restitution(model: Model) -> bool:
    """Whether a shape bounces."""
    start = layout.shape_start(model.nlink, model.nq, model.nu) + layout.RESTITUTION
    return bool((model.constants[start :: layout.SHAPE][: model.nshape] > 0.0).any())


def _soft_lanes(bits: int) -> int:
    """Environments in a pack with soft constraints: half a register of 512 bits. Each has contacts and iterations of
    its own, and waits for those of the others, so that wider packs are slower where they are not twice as fast."""
    return max(1, min(host().lanes(bits), 256 // bits))


class KernelKey(NamedTuple):
    """One kernel among those of a model.

    parameters: names of the parameters that are given at run time, separated by commas. batched: every environment has
    its own constants. policy: what its network reads. solution: it writes, or its adjoint reads, what solvers found.
    clips: of an adjoint that limits the cotangents of states.
    """

    form: str
    wrenches: bool = False
    constants_bar: bool = False
    batched: bool = False
    parameters: str = ""
    policy: PolicySignature | None = None
    solution: bool = False
    clips: bool = False


@dataclass(frozen=True)
class KernelOptions:
    """How the kernels of a program are made.

    directions: half the sides of the friction pyramid in 3D. bits: of a floating-point number. specialize: see
    `Simulator`.
    """

    scheme: Scheme
    directions: int
    bits: int
    specialize: bool | str


class KernelStore:
    """The kernels of one model, built when they are first wanted. tables: of its constraints, None without any."""

    def __init__(self, model: Model, options: KernelOptions, tables: ConstraintTables | None) -> None:
        self.model, self.options, self.tables = model, options, tables
        self._built: dict[KernelKey, Executable] = {}
        self._coming: dict[KernelKey, Future[Executable]] = {}  # being built in the background
        self._masks: dict[str, np.ndarray] = {}

    def get(self, key: KernelKey) -> Executable:
        executable = self._built.get(key)
        if executable is None:
            coming = self._coming.pop(key, None)
            executable = self._built[key] = self._build(key) if coming is None else coming.result()
        return executable

    def prepare(self, key: KernelKey) -> None:
        """Begin to build a kernel that will be wanted soon."""
        if key not in self._built and key not in self._coming:
            self._coming[key] = ahead(functools.partial(self._build, key))

    def _build(self, key: KernelKey) -> Executable:
        scheme, constraining = None, None
        if SIGNATURES[key.form].integrates:
            scheme, constraining = self.options.scheme, self._constraining(key.parameters)
        variant = Variant(
            key.form, scheme, constraining, key.wrenches, key.constants_bar, key.batched, key.policy, key.solution,
            key.clips,
        )  # fmt: skip
        varying = self.mask(key.parameters)
        if self.specializes(key.parameters):
            tables = self.tables if constraining else None
            kernel = make_kernel(variant, Specialisation(self.model, varying, tables))
        else:
            kernel = rolled_kernel(replace(variant, homogeneous=Homogeneous.links_of(self.model, varying)))
        soft = scheme is not None and scheme.soft is not None and constraining is not None
        return kernel.build(self.options.bits, _soft_lanes(self.options.bits) if soft else None)

    def mask(self, parameters: str) -> np.ndarray:
        """Which constants the parameters determine: bool [nconst]."""
        if parameters not in self._masks:
            mask = np.zeros(len(self.model.constants), bool)
            for name in filter(None, parameters.split(",")):
                mask[self.model.parameters()[name].target] = True
            self._masks[parameters] = mask
        return self._masks[parameters]

    def specializes(self, parameters: str) -> bool:
        """Unrolled code pays while most of the model is constant and it fits the processor's instruction cache."""
        if self.options.specialize != "auto":
            return bool(self.options.specialize)
        most = AUTO_LINKS[self.model.dim] if self.tables is None else AUTO_CONSTRAINED
        return self.model.nlink <= most and int(self.mask(parameters).sum()) <= AUTO_VARYING

    def bounces(self, parameters: str) -> bool:
        """Whether contacts may have restitution."""
        return has_restitution(self.model) or "restitution" in parameters.split(",")

    def _constraining(self, parameters: str) -> ConstraintForm | None:
        if self.tables is None:
            return None
        directions = 1 if self.model.dim == 2 else self.options.directions
        bounces = self.bounces(parameters)
        return ConstraintForm(self.model.dim, directions, self.model.combine, bounces, self.tables.kinds)
