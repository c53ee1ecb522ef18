"""What else can be asked of a simulator: Jacobians, dynamics, feedback, observations, poses, forces, gradcheck."""

from __future__ import annotations

import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

import backdrive as bd

from .bounces import flat_table
from .joints import tree
from .measure import arrays_of, functional, gradients, merged, motion, parameters_of, random, rolled, start, status_of
from .registry import Arrays, add, scene
from .worlds import cart_pole, robot, walker

WORLDS: dict[str, Any] = {"cart": cart_pole, "walker": walker, "robot": robot, "tree": lambda: tree().build()}


def dynamics(world: str) -> Arrays:
    """Forward and inverse dynamics and the mass matrix, with gradients by state, control, wrench and all parameters."""
    model = WORLDS[world]()
    found = {}
    for batch in (None, 3):
        sim = rolled(model)
        state = start(model, batch)
        lead = () if batch is None else (batch,)
        u, w = random((*lead, model.nu), seed=3), random((*lead, model.nbody, 6 if model.dim == 3 else 3), seed=4)
        vdot = random((*lead, model.nv), seed=5)
        given = parameters_of(model, "all", batch)
        acceleration = sim.forward_dynamics(state, u, wrench=w, parameters=given)
        force = sim.inverse_dynamics(state, vdot, parameters=given)
        matrix = sim.mass_matrix(state, parameters=given)
        wanted = {"q": state.q, "v": state.v, "control": u, "wrench": w, "acceleration": vdot}
        wanted |= {f"parameter.{name}": x for name, x in given.items()}
        arrays = arrays_of(acceleration=acceleration, force=force, matrix=matrix)
        found[f"batch{batch}"] = arrays | gradients(functional(acceleration, force, matrix), wanted)
    return merged(**found)


def jacobians(world: str) -> Arrays:
    """`linearize` by both integrators and solvers, unbatched and batched, with and without parameters."""
    model = WORLDS[world]()
    found: Arrays = {}
    settings: dict[str, dict[str, Any]] = {
        "euler": {}, "midpoint": {"integrator": bd.Midpoint()}, "interior": {"solver": bd.InteriorPoint()},
    }  # fmt: skip
    for name, options in settings.items():
        sim = rolled(model, **options)
        for batch in (None, 3):
            state = start(model, batch, speed=0.2).detach()
            u = random((model.nu,) if batch is None else (batch, model.nu), seed=3).detach()
            moved = sim.rollout(state, steps=8).last.detach()  # where something touches
            for place, at in (("start", state), ("later", moved)):
                A, B = sim.linearize(at, u)
                found |= arrays_of(**{f"{name}{batch}.{place}.A": A, f"{name}{batch}.{place}.B": B})
            A, B = sim.linearize(moved, u, parameters={"mass": 1.1 * model.parameter("mass")})
            found |= arrays_of(**{f"{name}{batch}.heavier.A": A, f"{name}{batch}.heavier.B": B})
    return found


def feedback(world: str) -> Arrays:
    """`track` with random gains and limits about a rollout."""
    model = WORLDS[world]()
    sim = rolled(model)
    found = {}
    for batch in (None, 3, 9):
        lead = () if batch is None else (batch,)
        u = random((15, *lead, model.nu), 0.3, seed=3).detach()
        origin = sim.rollout(start(model, batch, speed=0.1).detach(), u)
        gains = random((15, *lead, model.nu, 2 * model.nv), 0.2, seed=5).detach()
        reference = bd.State(origin.q[:-1], origin.v[:-1])
        limits = torch.full((model.nu,), -0.4, dtype=torch.float64), torch.full((model.nu,), 0.5, dtype=torch.float64)
        moved = start(model, batch, speed=0.2, seed=6).detach()
        given = {"mass": 1.1 * model.parameter("mass")}
        path, used = sim.track(moved, u, gains, reference, limits=limits, parameters=given)
        free, unlimited = sim.track(moved, u, gains, reference)
        found[f"batch{batch}"] = arrays_of(
            q=path.q, v=path.v, used=used, free_q=free.q, free_v=free.v, unlimited=unlimited
        ) | status_of(path)
    return merged(**found)


for _world in WORLDS:
    add(f"dynamics-{_world}", f"forward and inverse dynamics, mass matrix of the {_world}", partial(dynamics, _world))
    add(f"linearize-{_world}", f"Jacobians of a step of the {_world}", partial(jacobians, _world))
    if _world != "tree":
        add(f"track-{_world}", f"a rollout of the {_world} with feedback", partial(feedback, _world))


@scene
def linearize_impacts() -> Arrays:
    """Jacobians of steps that are split at impacts"""
    model = flat_table()
    sim = rolled(model, impacts=True)
    path = sim.rollout(start(model, 3, speed=0.1).detach(), steps=30)
    found = {}
    for t in range(0, 30, 3):
        A, _ = sim.linearize(path[t])
        found[f"A{t}"] = A.numpy()
    return found


@scene
def observations() -> Arrays:
    """`observe` with all sensors, and its gradient by the state"""
    found = {}
    for name in ("walker", "robot"):
        model = WORLDS[name]()
        body = model.bodies[-1]
        quantities = ("rotation", "position", "angular_velocity", "velocity")
        sensors = ("v", *((what, body) for what in quantities), "q", ("position", model.bodies[0]))
        for batch in (None, 3):
            state = start(model, batch)
            seen = rolled(model).observe(state, sensors)
            wanted = {"q": state.q, "v": state.v}
            found[f"{name}{batch}"] = arrays_of(seen=seen) | gradients(functional(seen), wanted)
    return merged(**found)


@scene
def poses_of_all_bodies() -> Arrays:
    """positions, rotations, velocities of all bodies, with gradients by anchors, axes, offsets and the state"""
    found = {}
    for name in ("walker", "tree"):
        model = WORLDS[name]()
        chosen = [n for n in ("anchor", "axis", "offset", "com", "mass") if n in model.parameters()]
        given = parameters_of(model, chosen, 3)
        sim = rolled(model)
        found[name] = motion(sim, start(model, 3), steps=12, parameters=given, bodies=model.bodies)
    return merged(**found)


@scene
def contact_forces() -> Arrays:
    """forces of contacts, of limits and of joint friction: places, impulses, sums on bodies, and their gradients"""
    found = {}
    for name in ("walker", "robot"):
        model = WORLDS[name]()
        state = start(model, 3, speed=0.2)
        given = parameters_of(model, ("mass", "friction"))
        u = random((20, 3, model.nu), 0.3, seed=3)
        path = rolled(model).rollout(state, u, parameters=given)
        contacts = path.contacts
        hip = contacts.of("left_hip" if name == "walker" else "hip0")
        parts = {"force": contacts.force, "point": contacts.point, "impulse": contacts.impulse, "hip": hip}
        parts |= {f"on.{body}": contacts.on(body) for body in model.bodies}
        wanted = {"q": state.q, "v": state.v, "u": u, **given}
        pairs = np.array([" ".join(pair) for pair in contacts.pairs])
        found[name] = arrays_of(**parts) | gradients(functional(*parts.values()), wanted) | {"pairs": pairs}
    return merged(**found)


@scene
def gradcheck_reports() -> Arrays:
    """the numbers of `gradcheck` on the cart and on the walker"""
    found: Arrays = {}
    for name in ("cart", "walker"):
        model = WORLDS[name]()
        state = start(model, None, speed=0.2).detach()
        u = random((8, model.nu), 0.3, seed=3).detach()
        report = bd.gradcheck(rolled(model), state, u, parameters={"mass": model.parameter("mass")})
        rows = [(row.adjoint, row.difference, row.error, row.switched) for row in report.rollout]
        found |= {f"{name}.rows": np.array(rows), f"{name}.switched": np.array(report.switched)}
        found |= {f"{name}.steps.{which}": errors.numpy() for which, errors in report.steps.items()}
    return found


@scene
def model_tables() -> Arrays:
    """parameters and names of models, and a scene that was saved and loaded again"""
    found: Arrays = {}
    for name, make in WORLDS.items():
        model = make()
        found[f"{name}.limits"] = np.array(model.control_limits)
        found[f"{name}.bodies"] = np.array(model.bodies)
        for info in model.parameters():
            found[f"{name}.parameter.{info.name}"] = model.parameter(info.name).numpy()
            found[f"{name}.rows.{info.name}"] = np.array(info.rows)
    with tempfile.TemporaryDirectory() as folder:
        tree().save(Path(folder) / "tree.json")
        again = bd.load(Path(folder) / "tree.json")
        found |= {f"again.{info.name}": again.parameter(info.name).numpy() for info in again.parameters()}
        found["again.same"] = np.array(again.fingerprint == WORLDS["tree"]().fingerprint)
    return found
