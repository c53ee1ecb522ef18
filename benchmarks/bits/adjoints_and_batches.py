"""The same motion in other ways: checkpoints, truncation, batches of all sizes, threads, float32, specialised."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch

import backdrive as bd

from .measure import arrays_of, functional, gradients, merged, motion, parameters_of, random, rolled, start
from .registry import Arrays, add, scene
from .worlds import cart_pole, robot, walker

WORLDS: dict[str, Any] = {"cart": cart_pole, "walker": walker, "robot": robot}
LEARNED = ("mass", "damping", "gear", "gravity")


def adjoints(world: str) -> Arrays:
    """Checkpoints that divide the number of steps and such that do not, and truncated gradients."""
    model = WORLDS[world]()
    found = {}
    for name, adjoint in {
        "every1": bd.Checkpoint(every=1), "every7": bd.Checkpoint(every=7), "every10": bd.Checkpoint(every=10),
        "every99": bd.Checkpoint(every=99), "cut8": bd.Truncated(8), "cut99": bd.Truncated(99),
    }.items():  # fmt: skip
        given = parameters_of(model, LEARNED)
        state = start(model, 3, speed=0.2)
        found[name] = motion(rolled(model), state, steps=30, controls=0.5, parameters=given, adjoint=adjoint)
    return merged(**found)


def batches(world: str) -> Arrays:
    """Unbatched and 1, 3, 9, 17 environments; parameters shared, and for each environment."""
    model = WORLDS[world]()
    found = {}
    for batch in (None, 1, 3, 9, 17):
        for kind in ("shared", "own"):
            given = parameters_of(model, LEARNED, batch if kind == "own" else None)
            state = start(model, batch, speed=0.2)
            found[f"{kind}{batch}"] = motion(
                rolled(model), state, steps=20, controls=0.5, wrenches=0.2, parameters=given, bodies=model.bodies[:1]
            )
    return merged(**found)


def settings(world: str) -> Arrays:
    """Threads, float32, specialised kernels, and both integrators with them."""
    model = WORLDS[world]()
    options: dict[str, dict[str, Any]] = {
        "one": {"threads": 1, "specialize": False},
        "two": {"threads": 2, "specialize": False},
        "special": {"specialize": True},
        "special_midpoint": {"specialize": True, "integrator": bd.Midpoint()},
        "auto": {},
        "float32": {"specialize": False, "dtype": torch.float32},
        "float32_special": {"specialize": True, "dtype": torch.float32, "threads": 2},
    }
    found = {}
    for name, given in options.items():
        sim = bd.Simulator(model, 0.01, **given)
        state = start(model, 17, speed=0.2, dtype=sim.dtype)
        learned = parameters_of(model, ("mass",), dtype=sim.dtype)
        found[name] = motion(sim, state, steps=20, controls=0.5, wrenches=0.2, parameters=learned)
    return merged(**found)


for _world in WORLDS:
    add(f"adjoints-{_world}", f"checkpoints and truncated gradients of the {_world}", partial(adjoints, _world))
    add(f"batches-{_world}", f"the {_world} unbatched and in batches of 1, 3, 9, 17", partial(batches, _world))
    add(f"settings-{_world}", f"the {_world} on 1 and 2 threads, float32, specialised", partial(settings, _world))


@scene
def single_steps() -> Arrays:
    """steps one by one in Python, with controls, wrenches and parameters, and the gradient through all of them"""
    found = {}
    for name, make in WORLDS.items():
        model = make()
        sim = rolled(model)
        first = start(model, 3, speed=0.2)
        size = 6 if model.dim == 3 else 3
        u, w = random((10, 3, model.nu), 0.5, seed=3), random((10, 3, model.nbody, size), 0.2, seed=4)
        given = parameters_of(model, ("mass",))
        state = first
        for t in range(10):
            state = sim.step(state, u[t]) if t % 2 else sim.step(state, u[t], wrench=w[t], parameters=given)
        inputs = {"q0": first.q, "v0": first.v, "controls": u, "wrenches": w, "mass": given["mass"]}
        found[name] = arrays_of(q=state.q, v=state.v) | gradients(functional(*state), inputs)
    return merged(**found)


@scene
def wrenches_without_controls() -> Arrays:
    """wrenches alone on free bodies in 2D and 3D, without gravity, in flight"""
    found = {}
    for dim in (2, 3):
        scene = bd.Scene(dim=dim, gravity=(0.0,) * dim)
        shape = bd.Box(0.3, 0.2) if dim == 2 else bd.Box(0.3, 0.2, 0.1)
        com = (0.05, 0.02, 0.01)[:dim]
        for k in range(3):
            scene.add_body(f"b{k}", shape, mass=1.0 + k, position=(2.0 * k, *[0.0] * (dim - 1)), com=com)
        model = scene.build()
        for kind, integrator in (("euler", bd.SemiImplicitEuler()), ("midpoint", bd.Midpoint())):
            sim = rolled(model, integrator=integrator)
            given = parameters_of(model, ("mass", "com", "inertia"), 9)
            found[f"{kind}{dim}d"] = motion(sim, start(model, 9), steps=25, wrenches=1.0, parameters=given)
    return merged(**found)


@scene
def not_finite_is_marked() -> Arrays:
    """nonfinite="mark": an environment whose start is NaN, among others that are not"""
    found = {}
    for name, make in WORLDS.items():
        model = make()
        q, v = start(model, 3, speed=0.2).detach()
        v[1, 0] = float("nan")
        path = rolled(model, nonfinite="mark").rollout(bd.State(q, v), steps=5)
        found[name] = arrays_of(q=path.q, v=path.v, finite=path.status.finite, converged=path.status.converged)
    return merged(**found)
