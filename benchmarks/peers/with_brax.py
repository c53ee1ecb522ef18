"""brax on the same file, by its generalised pipeline: joints as coordinates, contact of its own."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from brax.generalized import pipeline
from brax.io import mjcf

from . import with_jax  # noqa: F401

BATCH_SETTINGS = "jit, vmap, CPU, generalized pipeline, float64"


def version() -> str:
    return f"brax {importlib.metadata.version('brax')}"


def batched(request: dict[str, Any], batch: int) -> Callable[[], Any]:
    """As `with_mjx.batched`."""
    system = mjcf.loads(request["mjcf"])
    system = system.tree_replace({"opt.timestep": request["dt"]})
    q, v, controls = (jnp.array(request[name]) for name in ("q", "v", "controls"))
    start = pipeline.init(system, q, v)
    many = jax.tree.map(lambda x: jnp.broadcast_to(x, (batch, *jnp.shape(x))), start)

    def one(state: Any, control: jax.Array) -> tuple[Any, None]:
        return jax.vmap(lambda each: pipeline.step(system, each, control))(state), None

    roll = jax.jit(lambda state: jax.lax.scan(one, state, controls)[0].q)
    return lambda: jax.block_until_ready(roll(many))
