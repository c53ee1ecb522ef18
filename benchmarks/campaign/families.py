"""The families of worlds: kinds of shapes and joints, and the settings of the simulator.

A kernel is compiled for the kinds of shape pairs and the settings, so that all worlds of a family share theirs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import combinations_with_replacement, cycle

import torch

import backdrive as bd

from . import machines, worlds
from .draw import Draw
from .worlds import World

MAKERS: dict[str, Callable[..., World]] = {
    "pair": worlds.pair, "heap": worlds.heap, "standing": worlds.standing,
    "tree": machines.tree, "loops": machines.loops,
}  # fmt: skip

SOLVERS: dict[str, Callable[[], bd.ProjectedGaussSeidel | bd.InteriorPoint | None]] = {
    "sweeps": bd.ProjectedGaussSeidel,
    "interior": bd.InteriorPoint,
    # Of big worlds: as many sweeps in every step, so that differences do not see where one more is made.
    "fixed sweeps": lambda: bd.ProjectedGaussSeidel(iterations=30, tolerance=1e-14, exact=False),
    "default": lambda: None,
}
INTEGRATORS: dict[str, Callable[[], bd.SemiImplicitEuler | bd.Midpoint]] = {
    "euler": bd.SemiImplicitEuler,
    "midpoint": bd.Midpoint,
}

PLANAR, SOLID = ("circle", "rectangle", "polygon"), ("sphere", "box", "convex", "capsule", "cylinder")


@dataclass(frozen=True)
class Family:
    """Worlds whose kernels are the same. maker: one of MAKERS. single: in float32."""

    maker: str
    dim: int
    kinds: tuple[str, ...]
    solver: str = "sweeps"
    integrator: str = "euler"
    impacts: bool = False
    pyramid: float = 4
    single: bool = False

    @property
    def name(self) -> str:
        steps = "impacts" if self.impacts else "plain"
        more = [f"pyramid {self.pyramid}"] * (self.pyramid != 4) + ["float32"] * self.single
        return " ".join([self.maker, f"{self.dim}D", "-".join(self.kinds), self.solver, self.integrator, steps, *more])

    @property
    def group(self) -> str:
        """The row of a short table that the family belongs to."""
        what = {
            "pair": "free bodies",
            "heap": "big worlds",
            "standing": "standing bodies",
            "tree": "trees of joints",
            "loops": "closed loops",
        }
        steps = "float32" if self.single else "exact impacts" if self.impacts else "plain steps"
        return f"{what[self.maker]}, {self.dim}D, {steps}"

    @property
    def sparse(self) -> bool:
        return self.maker == "heap"

    @property
    def weight(self) -> float:
        """Motions, relative to other families: those of big worlds take twenty times as long."""
        return 0.2 if self.sparse else 1.0

    @property
    def sweeps_alone(self) -> bool:
        """Gradients are those of the sweeps as they were made, converged or not."""
        return self.sparse and self.solver != "interior"

    @property
    def longest(self) -> int:
        """Steps: machines and heaps that hit in many places are soon chaotic."""
        machine = 15 if self.impacts else 30
        return {"pair": 40, "heap": 8, "standing": 40, "tree": machine, "loops": machine}[self.maker]

    @property
    def dtype(self) -> torch.dtype:
        return torch.float32 if self.single else torch.float64

    def world(self, draw: Draw, uniform: bool = False) -> World:
        """uniform: for the balance of energy, see `worlds.pair`."""
        return MAKERS[self.maker](self.kinds, self.dim, draw, uniform)

    def simulator(
        self, model: bd.Model, dt: float, *, threads: int = 1, dtype: torch.dtype | None = None
    ) -> bd.Simulator:
        return bd.Simulator(
            model, dt, solver=SOLVERS[self.solver](), integrator=INTEGRATORS[self.integrator](), impacts=self.impacts,
            pyramid=self.pyramid, dtype=dtype or self.dtype, threads=threads, specialize=False, nonfinite="mark",
            sparse=self.sparse,
        )  # fmt: skip


def _families() -> Iterator[Family]:
    # Every pair of shapes, with exact impacts in both integrators, and with plain steps in turn.
    turns = cycle([("sweeps", "euler"), ("interior", "midpoint"), ("sweeps", "midpoint"), ("interior", "euler")])
    for dim, shapes in ((2, PLANAR), (3, SOLID)):
        for kinds in combinations_with_replacement(shapes, 2):
            solver, integrator = next(turns)
            yield Family("pair", dim, kinds, "sweeps", "midpoint", True)
            yield Family("pair", dim, kinds, "interior" if solver == "sweeps" else "sweeps", "euler", True)
            yield Family("pair", dim, kinds, solver, integrator, False)
    for dim, kind in ((2, "circle"), (2, "rectangle"), (3, "sphere"), (3, "capsule"), (3, "box")):
        for maker in ("tree", "loops"):
            yield Family(maker, dim, (kind,), "sweeps", "euler", False)
            yield Family(maker, dim, (kind,), "sweeps" if maker == "tree" else "interior", "midpoint", True)
    yield Family("tree", 2, ("rectangle",), "interior", "euler", True)
    yield Family("tree", 3, ("capsule",), "interior", "midpoint", False)
    yield Family("pair", 3, ("box", "capsule"), "sweeps", "euler", True, pyramid=8)
    yield Family("pair", 3, ("box", "box"), "interior", "euler", False, pyramid=6)
    for dim, kinds in ((2, ("rectangle", "circle")), (3, ("box", "capsule"))):
        yield Family("pair", dim, kinds, "sweeps", "euler", False, single=True)
        yield Family("tree", dim, kinds[:1], "sweeps", "midpoint", False, single=True)
    for dim, every in ((2, PLANAR), (3, SOLID)):
        yield Family("heap", dim, every, "fixed sweeps", "euler")
        yield Family("heap", dim, every, "default", "midpoint")
        yield Family("heap", dim, every, "interior", "euler")
    for kinds in combinations_with_replacement(("box", "cylinder"), 2):
        yield Family("standing", 3, kinds, "sweeps", "euler", False)
        yield Family("standing", 3, kinds, "interior", "midpoint", True)
    for maker, kinds in (("pair", ("box", "capsule")), ("standing", ("box", "box")), ("tree", ("capsule",))):
        yield Family(maker, 3, kinds, "sweeps", "euler", False, pyramid=math.inf)
    yield Family("pair", 3, ("box", "box"), "interior", "midpoint", False, pyramid=math.inf)
    yield Family("loops", 3, ("sphere",), "sweeps", "midpoint", True, pyramid=math.inf)


FAMILIES: tuple[Family, ...] = tuple(_families())
