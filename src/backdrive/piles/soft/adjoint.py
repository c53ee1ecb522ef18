"""The derivative of a step of a pile with MuJoCo's physics, by implicit differentiation of the convex problem.

At the solution  y = Pᵀ f(x₀ + P y).  With  H λ = ȳ,  H = 1 + Pᵀ C P the Hessian, the gradient with respect to anything
else is that of the power f · P λ of the contacts for fixed λ and y.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...physics.constraints.forces import FORCE
from ...physics.geometry.mujoco import GEOM_CONTACT
from ...schema import layout
from ..adjoint import PileInputCotangents, PileOutputCotangents
from ..broad_phase import ClassPairs
from ..memory import Memory
from ..shapes_adjoint import ShapesAdjoint
from ..stages import Stage
from ..step import PileInputs
from ..tables import PileConstants
from . import kernels
from .pairs import RECORD, GeomForm
from .step import SoftEngine, SoftPileStep
from .tables import SoftPileConstants

Array = np.ndarray


class SoftAdjoint(ShapesAdjoint):
    """The stages of `SoftEngine`, backwards."""

    def __init__(self, engine: SoftEngine) -> None:
        super().__init__(engine)
        self.engine = engine
        self._bodies = engine.stage(kernels.soft_bodies_adjoint, engine.body)
        self._advance = engine.stage(kernels.advancing_adjoint, engine.end)
        self._contacts = engine.stage(kernels.soft_contacts_adjoint, engine.form)
        self._pair_stages: dict[GeomForm, Stage] = {}

    def backward(
        self, memory: Memory, constants: PileConstants, inputs: PileInputs, step: SoftPileStep,
        bars: PileOutputCotangents,
    ) -> PileInputCotangents:  # fmt: skip
        """From the cotangents after a step to those before it."""
        assert isinstance(constants, SoftPileConstants)
        n, nv, dtype = self.engine.tables.nbody, self.engine.body.nv, self.engine.dtype
        free_bar = memory.zeros("free_bar", *step.placed.free.shape)
        link_bar, v_bar, y_bar = (np.empty((n, k), dtype) for k in (layout.LINK, nv, nv))
        self._advance(
            n, constants=constants.links, free=step.placed.free[1:], v=inputs.v.reshape(n, nv), y=step.y[1:],
            q_next_bar=bars.q.reshape(n, -1), v_next_bar=bars.v.reshape(n, -1), link_bar=link_bar,
            free_bar=free_bar[1:], v_bar=v_bar, y_bar=y_bar, h=self.engine.h,
        )  # fmt: skip
        records_bar = np.zeros_like(constants.records)
        if step.contacts.count:
            self._contacts_vjp(memory, constants, step, y_bar, bars.forces, free_bar, records_bar)
        layout_of, gradient = self.engine.body.inputs, np.empty((n, self.engine.body.inputs.size), dtype)
        rows = {"wrenches": inputs.wrench.reshape(n, 6)} if inputs.wrench is not None else {}
        self._bodies(
            n, constants=constants.links, q=inputs.q.reshape(n, -1), v=inputs.v.reshape(n, -1), out_bar=free_bar[1:],
            gradient=gradient, **rows,
        )  # fmt: skip
        links_bar, q_bar = gradient[:, layout_of["constants"]], gradient[:, layout_of["q"]]
        links_bar[:, : layout.LINK] += link_bar
        v_bar += gradient[:, layout_of["v"]]
        wrench_bar = gradient[:, layout_of["wrench"]].ravel() if inputs.wrench is not None else None
        return PileInputCotangents(q_bar.ravel(), v_bar.ravel(), wrench_bar, np.zeros((0, 3)), links_bar, records_bar)

    def _contacts_vjp(
        self, memory: Memory, constants: SoftPileConstants, step: SoftPileStep, y_bar: Array, forces_bar: Array | None,
        free_bar: Array, records_bar: Array,
    ) -> None:  # fmt: skip
        """From y_bar [nbody, nv] and the cotangents of the forces to free_bar and records_bar, which are added to."""
        assert step.problem is not None and step.solution is not None
        contacts, problem, tables = step.contacts, step.problem, self.engine.tables
        virtual = np.zeros_like(step.y)
        given = np.zeros((contacts.count, FORCE), virtual.dtype)
        if forces_bar is not None:
            given[...] = forces_bar
            self._run(memory, constants, step, virtual, given)
            for k, end in enumerate("ab"):
                moved = contacts.bodies[:, k] > 0
                own = memory.array(f"y_{end} of contacts", contacts.count, virtual.shape[1])
                np.add.at(y_bar, contacts.bodies[moved, k] - 1, own[moved])
        wanted = y_bar[problem.touched - 1].astype(np.float64)
        virtual[problem.touched] = self.engine.newton.hessian_solve(memory, problem, step.solution, wanted)
        both = self._run(memory, constants, step, virtual, given)
        width = self.engine.form.body_width
        bodies_bar = self._rows(memory, "bodies_bar", tables.nbody + 1, width, zero=True)
        materials_bar = self._rows(memory, "materials_bar", tables.nshape, RECORD, zero=True)
        self._add_up(both["body"], list(contacts.bodies.T), bodies_bar)
        self._add_up(both["material"], list(contacts.shapes.T), materials_bar)
        free_bar[:, :width] += bodies_bar[:, :width]
        records_bar += materials_bar[:, :RECORD]
        points_bar = memory.zeros("points_bar", len(step.points), GEOM_CONTACT)
        points_bar[contacts.slot] = memory.array("point of contacts", contacts.count, GEOM_CONTACT)
        self._shapes_vjp(memory, constants, step, points_bar, free_bar, records_bar)

    def _run(
        self, memory: Memory, constants: SoftPileConstants, step: SoftPileStep, virtual: Array, force_bar: Array
    ) -> dict[str, Array]:
        """The gradient of all contacts' power; returns those of both bodies and both materials of all contacts."""
        contacts, n, nv = step.contacts, step.contacts.count, self.engine.body.nv
        widths = {"body": self.engine.form.body_width, "material": RECORD}
        both = {name: self._rows(memory, f"{name} of contacts", 2 * n, k) for name, k in widths.items()}
        outputs: dict[str, Any] = {"point_bar": memory.array("point of contacts", n, GEOM_CONTACT)}
        for k, end in enumerate("ab"):
            outputs |= {f"{name}_{end}_bar": rows[k * n : (k + 1) * n] for name, rows in both.items()}
            outputs[f"y_{end}_bar"] = memory.array(f"y_{end} of contacts", n, nv)
        values = contacts.picks(constants, step.placed.free, step.points)
        values |= contacts.at_ends("y", step.y) | contacts.at_ends("virtual", virtual)
        self._contacts(n, **values, force_bar=force_bar, **outputs, h=self.engine.h)
        return both

    def _pair_vjp(self, some: ClassPairs, count: int, values: dict[str, Any]) -> None:
        form = self.engine.geom_form(some.a, some.b)
        if form not in self._pair_stages:
            width = self.engine.pair_stage(some.a, some.b)[1]
            self._pair_stages[form] = self.engine.stage(kernels.soft_pairs_adjoint, form, width)
        self._pair_stages[form](count, **values)
