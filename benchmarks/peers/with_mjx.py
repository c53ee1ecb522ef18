"""MJX, MuJoCo in JAX, with its own soft contact: ``jit`` of a scan over the steps, and of its gradient."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
from mujoco import mjx

from .with_jax import buffers

ITERATIONS, LINE_SEARCH = 1, 4
SETTINGS = (
    f"Newton with iterations={ITERATIONS} (more make a while_loop, which has no reverse mode), "
    f"ls_iterations={LINE_SEARCH}, CPU, float64"
)

BATCH_ITERATIONS, BATCH_LINE_SEARCH = 4, 8
BATCH_SETTINGS = (
    f"jit, vmap, CPU, Newton with iterations={BATCH_ITERATIONS}, ls_iterations={BATCH_LINE_SEARCH}, float64"
)


def version() -> str:
    return f"mujoco-mjx {importlib.metadata.version('mujoco-mjx')}"


def prepare(request: dict[str, Any], steps: int) -> tuple[Callable[[], Any], Callable[[], Any], float]:
    """As `with_torch.prepare`; and MB of the compiled gradient's buffers."""
    model = mujoco.MjModel.from_xml_string(request["mjcf"])
    model.opt.timestep, model.opt.iterations, model.opt.ls_iterations = request["dt"], ITERATIONS, LINE_SEARCH
    put = mjx.put_model(model)
    still = mjx.make_data(put)
    q0, v0, controls = (jnp.array(request[name]) for name in ("q", "v", "controls"))
    controls = controls[:steps]

    def roll(q: jax.Array, v: jax.Array, inputs: jax.Array) -> tuple[jax.Array, jax.Array]:
        def one(data: Any, control: jax.Array) -> tuple[Any, None]:
            return mjx.step(put, data.replace(ctrl=control)), None

        last, _ = jax.lax.scan(one, still.replace(qpos=q, qvel=v), inputs)
        return last.qpos, last.qvel

    def loss(q: jax.Array, v: jax.Array, inputs: jax.Array) -> jax.Array:
        return sum((x * x).sum() for x in roll(q, v, inputs))

    inputs = q0, v0, controls
    compiled, backward = (jax.jit(f).lower(*inputs).compile() for f in (roll, jax.grad(loss, (0, 1, 2))))

    def call(function: Callable[..., Any]) -> Callable[[], Any]:
        return lambda: tuple(np.asarray(x) for x in jax.block_until_ready(function(*inputs)))

    return call(compiled), call(backward), buffers(backward)


def batched(request: dict[str, Any], batch: int) -> Callable[[], Any]:
    """Steps with these controls of so many environments that start alike."""
    model = mujoco.MjModel.from_xml_string(request["mjcf"])
    model.opt.timestep, model.opt.iterations, model.opt.ls_iterations = (
        request["dt"],
        BATCH_ITERATIONS,
        BATCH_LINE_SEARCH,
    )
    put = mjx.put_model(model)
    start = mjx.make_data(put).replace(qpos=jnp.array(request["q"]), qvel=jnp.array(request["v"]))
    many = jax.tree.map(lambda x: jnp.broadcast_to(x, (batch, *jnp.shape(x))), start)
    controls = jnp.array(request["controls"])

    def one(data: Any, control: jax.Array) -> tuple[Any, None]:
        return jax.vmap(lambda each: mjx.step(put, each.replace(ctrl=control)))(data), None

    roll = jax.jit(lambda data: jax.lax.scan(one, data, controls)[0].qpos)
    return lambda: jax.block_until_ready(roll(many))
