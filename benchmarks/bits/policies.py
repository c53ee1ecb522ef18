"""Closed loops: networks that kernels evaluate, the same by torch, and functions of Python."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor

import backdrive as bd

from .measure import generator, merged, motion, parameters_of, random, rolled, start
from .registry import Arrays, add, scene
from .worlds import cart_pole, robot, walker

WORLDS: dict[str, Any] = {"cart": cart_pole, "walker": walker, "robot": robot}


def network(model: bd.Model, sensors: Any = ("q", "v"), inputs: int = 0, **options: Any) -> bd.MLP:
    """A network with a hidden layer of 8 neurons; bodies that it sees count as rotation, position or velocity."""
    sizes = {"q": model.nq, "v": model.nv}
    turn = 3 if model.dim == 3 else 1
    of_body = {"rotation": model.dim**2, "position": model.dim, "velocity": model.dim, "angular_velocity": turn}
    seen = sum(sizes[s] if isinstance(s, str) else of_body[s[0]] for s in sensors) + inputs
    return bd.MLP((seen, 8, model.nu), sensors=sensors, generator=generator(7), **options)


def closed(world: str, compiled: bool) -> Arrays:
    """The loop with its weights' gradient, with and without inputs over time, sensors of bodies, and parameters."""
    model = WORLDS[world]()
    sim = rolled(model)
    body = model.bodies[-1]
    found = {}
    policy = network(model, compiled=compiled)
    found["plain"] = motion(sim, start(model, 3, speed=0.2), steps=20, policy=policy)
    sensors = ("v", ("position", body), ("rotation", body), ("velocity", body), ("angular_velocity", body))
    policy = network(model, sensors, 2, compiled=compiled, activation="relu", output="tanh")
    found["bodies"] = motion(
        sim, start(model, 3, speed=0.2), steps=20, policy=policy, inputs=random((20, 3, 2), seed=8),
        wrenches=0.2, parameters=parameters_of(model, ("mass", "gear")),
    )  # fmt: skip
    return merged(**found)


for _world in WORLDS:
    add(f"policy-{_world}-kernel", f"an MLP in the kernel drives the {_world}", partial(closed, _world, True))
    add(f"policy-{_world}-torch", f"the same MLP by torch drives the {_world}", partial(closed, _world, False))


@scene
def policy_settings() -> Arrays:
    """MLPs in the kernel: unbatched, 17 environments, no bias, Midpoint, interior point, checkpoints, truncated"""
    model = walker()
    found = {}
    for name, batch, options, adjoint in (
        ("unbatched", None, {}, None),
        ("many", 17, {}, None),
        ("midpoint", 3, {"integrator": bd.Midpoint()}, None),
        ("interior", 3, {"solver": bd.InteriorPoint()}, None),
        ("checkpoint", 3, {}, bd.Checkpoint(every=6)),
        ("truncated", 3, {}, bd.Truncated(7)),
    ):
        policy = network(model, bias=name != "many")
        sim = rolled(model, **options)
        found[name] = motion(sim, start(model, batch, speed=0.2), steps=20, policy=policy, adjoint=adjoint)
    return merged(**found)


@scene
def policy_impacts() -> Arrays:
    """an MLP in the kernel drives a walker whose steps are split at impacts"""
    model = walker(restitution=0.5)
    return motion(rolled(model), start(model, 3, speed=0.2), steps=25, policy=network(model), forces=True)


@scene
def policy_specialized() -> Arrays:
    """an MLP in the kernel, specialised to the walker, and in float32"""
    model = walker()
    special = bd.Simulator(model, 0.01, specialize=True)
    found = {"special": motion(special, start(model, 9, speed=0.2), steps=20, policy=network(model))}
    single = rolled(model, dtype=torch.float32)
    state = start(model, 9, speed=0.2, dtype=torch.float32)
    found["float32"] = motion(single, state, steps=20, policy=network(model, dtype=torch.float32))
    return merged(**found)


@scene
def policy_function() -> Arrays:
    """a function of Python with a gain that is learned, on the cart and on the walker"""
    found = {}
    for name in ("cart", "walker"):
        model = WORLDS[name]()
        gain = random((model.nu, model.nv), 0.3 if name == "cart" else 0.02, seed=9)

        def feedback(state: bd.State, t: int, gain: Tensor = gain) -> Tensor:
            return -state.v @ gain.mT + 0.1 * torch.sin(torch.tensor(0.3 * t, dtype=torch.float64))

        found[name] = motion(rolled(model), start(model, 3, speed=0.2), steps=15, policy=feedback, bodies=("cart",)
                             if name == "cart" else ())  # fmt: skip
        assert gain.grad is not None
        found[name]["grad.gain"] = gain.grad.numpy()
    return merged(**found)
