"""The arguments of every kernel, declared once.

The kernels read their rows and integers from here, and the runtime derives from the same declarations how tensors are
checked, allocated, mapped over (vmap), packed into a kernel's arguments, and differentiated.

Axes are symbols:

    B    environments of the batch
    T    steps of a rollout, or times at which states are given
    S    segments of a rollout: parts of `every` steps, of which only the first state is kept (`Checkpoint`)

and sizes of the model: those of the state (`state.STATE`), and

    nu         controls                       nwrench    6 numbers for every link: force, torque
    nconst     constants of the model         nstatus    numbers of a step's status
    npose      numbers of all links' poses    nforce     numbers of all constraints' forces
    ngain      nu rows of 2 nv feedback gains            njacobian  2 nv + nu, a row of a step's Jacobian
    ninput     inputs of a policy             nweight    its weights, with their padding
    nsolution  numbers that a step's solver found, from which its adjoint starts
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import partial
from typing import NamedTuple

from .state import STATE


class Role(Enum):
    """What an argument is for."""

    STATE = "state"
    INPUT = "input"
    PARAMETER = "parameter"  # a table that the environments share, or of which each may have its own row
    OUTPUT = "output"
    STATUS = "status"  # how a step went; it has no derivative
    SOLUTION = "solution"  # what the solver of a step found, for its adjoint; nobody else sees it
    COTANGENT = "cotangent"  # the derivative of the loss with respect to the argument without the suffix "_bar"


@dataclass(frozen=True)
class Argument:
    """A tensor that a kernel reads or writes.

    optional: it may be absent, and the kernel is then compiled without it.
    paired: kernels that have it also write its cotangent.
    batchable: a parameter whose first axis may be B.
    start, end: of a path, the states before its first and after its last step. A caller's tensor has a row for the
        start before those that the kernel fills.
    """

    name: str
    axes: tuple[str, ...]
    role: Role
    optional: bool = False
    paired: bool = False
    batchable: bool = False
    start: str = ""
    end: str = ""

    @property
    def batch_axis(self) -> int:
        return self.axes.index("B")

    @property
    def size(self) -> str:
        """The symbol of its last axis."""
        return self.axes[-1]

    def cotangent(self) -> Argument:
        """Parameters have one row of cotangents for every environment."""
        axes = ("B", *self.axes) if self.role is Role.PARAMETER else self.axes
        optional = self.optional or self.role is Role.PARAMETER
        return Argument(f"{self.name}_bar", axes, Role.COTANGENT, optional, start=self.start)


class RolloutSettings(NamedTuple):
    """The integers of a rollout.

    steps: T. every: steps of a segment, after each of which the state is kept. truncate: the cotangent is cut at states
    whose number is a multiple of it; 0: nowhere. path: 1 if the states along the way are results, 0 if only the last
    is, which then takes a single segment.
    """

    steps: int
    every: int = 1
    truncate: int = 0
    path: int = 1

    @property
    def segments(self) -> int:
        return -(-self.steps // self.every)

    @property
    def cut(self) -> int:
        """`truncate` as kernels take it: larger than any step's number if nothing is cut."""
        return min(self.truncate or self.steps + 1, self.steps + 1)


ONE_STEP = RolloutSettings(1, 1, 0, 0)  # and only its end


@dataclass(frozen=True, eq=False)
class Signature:
    """The arguments of one form of kernel, in the kernel's order.

    integrates: it takes steps: it knows the scheme and h, constraints and the source of controls.
    adjoint: the form of its derivative, "" without one; segment_adjoint: the same for segments of several steps.
    rollout: its callers give `RolloutSettings`.

    Derived: arguments by their names; over_time: states are given at several times; status: the name of the status that
    it writes, "" without one; on_demand: names of inputs whose cotangents are computed only where they are wanted.
    """

    form: str
    reads: tuple[Argument, ...]
    writes: tuple[Argument, ...]
    integers: tuple[str, ...] = ()
    integrates: bool = False
    adjoint: str = ""
    segment_adjoint: str = ""
    rollout: bool = False

    arguments: dict[str, Argument] = field(init=False)
    over_time: bool = field(init=False)
    status: str = field(init=False)
    on_demand: frozenset[str] = field(init=False)

    def __post_init__(self) -> None:
        set_field = partial(object.__setattr__, self)  # the class is frozen
        set_field("arguments", {a.name: a for a in (*self.reads, *self.writes)})
        set_field("over_time", not self.rollout and "T" in self.reads[0].axes)
        set_field("status", next((a.name for a in self.writes if a.role is Role.STATUS), ""))
        on_demand = (a.name for a in self.reads if a.cotangent().optional and not a.paired)
        set_field("on_demand", frozenset(on_demand))

    def results(self, settings: RolloutSettings | None) -> tuple[Argument, ...]:
        """The tensors that a caller gets: without the path, if it is not wanted."""
        whole = settings is None or settings.path
        return self.writes if whole else tuple(a for a in self.writes if not a.start)

    def adjoint_signature(self, settings: RolloutSettings | None) -> Signature:
        several = settings is not None and settings.every > 1
        return SIGNATURES[self.segment_adjoint if several else self.adjoint]

    def parse(self, settings: Sequence[int]) -> RolloutSettings | None:
        """The settings of a call from plain integers, as operators have them."""
        if self.rollout:
            if len(settings) == len(RolloutSettings._fields):
                return RolloutSettings(*settings)
        elif not settings:
            return None
        expected = ", ".join(RolloutSettings._fields) if self.rollout else "none"
        raise ValueError(f"backdrive {self.form}: settings are {list(settings)}, expected {expected}")


def _states(axes: tuple[str, ...] = ("B",), role: Role = Role.STATE, prefix: str = "") -> tuple[Argument, ...]:
    """An argument for every field of the state."""
    return tuple(Argument(f"{prefix}{f.name}", (*axes, f.size), role) for f in STATE)


def _path(axis: str) -> tuple[Argument, ...]:
    """The states after the steps (or segments) of a rollout."""
    states = zip(_states((axis, "B"), Role.OUTPUT, "path_"), STATE)
    return tuple(replace(a, start=f.name, end=f"last_{f.name}") for a, f in states)


def _adjoint(
    form: str, forward: Signature, integers: tuple[str, ...], residuals: Sequence[tuple[str, Argument]] = ()
) -> Signature:
    """The derivative of a form: from the cotangents of its outputs to those of its inputs.

    It reads the inputs of the forward pass, the states before the steps where there is a path, and cotangents.
    residuals: outputs of the forward pass that it reads besides, each after the argument of the name before it.
    """
    paths = {a.start: a for a in forward.writes if a.start}
    reads = [replace(paths[a.name], role=Role.STATE) if a.name in paths else a for a in forward.reads]
    reads += [a.cotangent() for a in forward.writes if a.role is Role.OUTPUT]
    for name, residual in residuals:
        reads.insert([a.name for a in reads].index(name) + 1, residual)
    writes = tuple(a.cotangent() for a in forward.reads)
    return Signature(form, tuple(reads), writes, integers, forward.integrates)


_CONTROL = Argument("controls", ("B", "nu"), Role.INPUT)
_CONTROLS = Argument("controls", ("T", "B", "nu"), Role.INPUT)
_WRENCH = Argument("wrenches", ("B", "nwrench"), Role.INPUT, optional=True, paired=True)
_WRENCHES = Argument("wrenches", ("T", "B", "nwrench"), Role.INPUT, optional=True, paired=True)
_CONSTANTS = Argument("constants", ("nconst",), Role.PARAMETER, optional=True, batchable=True)
_STATUS = Argument("status", ("T", "B", "nstatus"), Role.STATUS)
_SOLUTION = Argument("solution", ("T", "B", "nsolution"), Role.SOLUTION, optional=True)
_LAST = _states(role=Role.OUTPUT, prefix="last_")
_TIMES = _states(("T", "B"))

ROLLOUT = Signature(
    "rollout",
    (*_states(), _CONTROLS, _WRENCHES, _CONSTANTS),
    (*_path("S"), *_LAST, _STATUS, _SOLUTION),
    ("steps", "every"),
    integrates=True,
    adjoint="rollout_adjoint",
    segment_adjoint="checkpoint_adjoint",
    rollout=True,
)
POLICY_ROLLOUT = Signature(
    "policy_rollout",
    (
        *_states(),
        Argument("inputs", ("T", "B", "ninput"), Role.INPUT, optional=True),
        Argument("weights", ("nweight",), Role.PARAMETER),
        _WRENCHES,
        _CONSTANTS,
    ),
    (*_path("S"), *_LAST, _STATUS, replace(_CONTROLS, role=Role.OUTPUT), _SOLUTION),
    ("steps", "every"),
    integrates=True,
    adjoint="policy_rollout_adjoint",
    segment_adjoint="policy_checkpoint_adjoint",
    rollout=True,
)
TRACKING = Signature(
    "tracking",
    (
        *_states(),
        _CONTROLS,
        Argument("gains", ("T", "B", "ngain"), Role.INPUT),
        *_states(("T", "B"), prefix="origin_"),
        Argument("low", ("B", "nu"), Role.INPUT),
        Argument("high", ("B", "nu"), Role.INPUT),
        _CONSTANTS,
    ),
    (*_path("T"), Argument("used", ("T", "B", "nu"), Role.OUTPUT), _STATUS),
    ("steps",),
    integrates=True,
    rollout=True,
)
JACOBIANS = Signature(
    "jacobians",
    (*_states(), _CONTROL, replace(_SOLUTION, axes=("B", "nsolution")), _CONSTANTS),
    (
        Argument("after", ("nv", "B", "njacobian"), Role.OUTPUT),
        Argument("step", ("nv", "B", "njacobian"), Role.OUTPUT),
    ),
    ("rows",),
    integrates=True,
)
FORCES = Signature(
    "forces",
    (*_TIMES, _CONTROLS, _WRENCHES, _CONSTANTS),
    (Argument("out", ("T", "B", "nforce"), Role.OUTPUT),),
    ("times",),
    integrates=True,
    adjoint="forces_adjoint",
)
CONTACTS = Signature("contacts", FORCES.reads, ())
"""The inputs of the contact forces in one big world. Their number is only known afterwards: no kernel has this form."""
FORWARD = Signature(
    "forward",
    (*_states(), _CONTROL, _WRENCH, _CONSTANTS),
    (Argument("vdot", ("B", "nv"), Role.OUTPUT),),
    adjoint="forward_adjoint",
)
INVERSE = Signature(
    "inverse",
    (*_states(), Argument("vdot", ("B", "nv"), Role.INPUT), _CONSTANTS),
    (Argument("tau", ("B", "nv"), Role.OUTPUT),),
    adjoint="inverse_adjoint",
)
POSES = Signature(
    "poses",
    (*_TIMES, _CONSTANTS),
    (Argument("out", ("T", "B", "npose"), Role.OUTPUT),),
    ("times",),
    adjoint="poses_adjoint",
)

_POLICY_RESIDUALS = (("inputs", replace(_CONTROLS, role=Role.INPUT)),)
_SOLVED = (("controls", _SOLUTION),)  # segments of several steps are solved again

SIGNATURES = {
    signature.form: signature
    for signature in (
        ROLLOUT,
        _adjoint("rollout_adjoint", ROLLOUT, ("steps", "truncate"), _SOLVED),
        _adjoint("checkpoint_adjoint", ROLLOUT, ("steps", "every", "truncate")),
        POLICY_ROLLOUT,
        _adjoint("policy_rollout_adjoint", POLICY_ROLLOUT, ("steps", "truncate"), (*_POLICY_RESIDUALS, *_SOLVED)),
        _adjoint("policy_checkpoint_adjoint", POLICY_ROLLOUT, ("steps", "every", "truncate"), _POLICY_RESIDUALS),
        TRACKING,
        JACOBIANS,
        FORCES,
        _adjoint("forces_adjoint", FORCES, ("times",)),
        FORWARD,
        _adjoint("forward_adjoint", FORWARD, ()),
        INVERSE,
        _adjoint("inverse_adjoint", INVERSE, ()),
        POSES,
        _adjoint("poses_adjoint", POSES, ("times",)),
    )
}
"""All signatures by their forms."""

DIFFERENTIABLE = (ROLLOUT, FORCES, FORWARD, INVERSE, POSES)
"""Those that are operators of PyTorch (`runtime.operators`)."""
