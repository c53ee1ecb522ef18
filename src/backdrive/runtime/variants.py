"""Which kernels a model runs: compiled for this model or shared by all, with or without optional arguments."""

from __future__ import annotations

import functools
from concurrent.futures import Future
from dataclasses import dataclass
from dataclasses import replace as replaced
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ..backends import Executable
from ..backends.llvm_cpu.ahead import ahead
from ..physics.constraints.constraints import ConstraintForm
from ..physics.constraints.tables import ConstraintTables
from ..physics.kernels import Specialisation, Variant, make_kernel, rolled_kernel
from ..physics.policy import PolicySignature
from ..physics.scheme import Scheme
from ..physics.tree.tree import Homogeneous
from ..schema import layout
from ..schema.signatures import SIGNATURES

if TYPE_CHECKING:
    from ..model import Model

AUTO_LINKS = {2: 120, 3: 40}  # specialize="auto": most links without constraints, by dimension (2D code is shorter)
AUTO_CONSTRAINED = 24  # specialize="auto": most links with contacts or other constraints; more take minutes to compile
AUTO_VARYING = 64  # specialize="auto": most constants that are given at run time


def has_restitution(model: Model) -> bool:
    """Whether a shape bounces."""
    start = layout.shape_start(model.nlink, model.nq, model.nu) + layout.RESTITUTION
    return bool((model.constants[start :: layout.SHAPE][: model.nshape] > 0.0).any())


class KernelKey(NamedTuple):
    """One kernel among those of a model.

    parameters: names of the parameters that are given at run time, separated by commas. batched: every environment has
    its own constants. policy: what its network reads.
    """

    form: str
    wrenches: bool = False
    constants_bar: bool = False
    batched: bool = False
    parameters: str = ""
    policy: PolicySignature | None = None


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
            key.form, scheme, constraining, key.wrenches, key.constants_bar, key.batched, key.policy
        )  # fmt: skip
        varying = self.mask(key.parameters)
        if self.specializes(key.parameters):
            tables = self.tables if constraining else None
            kernel = make_kernel(variant, Specialisation(self.model, varying, tables))
        else:
            kernel = rolled_kernel(replaced(variant, homogeneous=Homogeneous.links_of(self.model, varying)))
        return kernel.build(self.options.bits)

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
