"""JAX on `quadruped`: ``jit`` of a scan over the steps, and of its gradient; the legs are one batch."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ["XLA_FLAGS"] = os.environ.get("XLA_FLAGS", "") + " --xla_cpu_multi_thread_eigen=false"

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import block_diag

from . import quadruped

jax.config.update("jax_enable_x64", True)
Array = Any  # a jax.Array


class Ops:
    """Of arrays [..., n, m]."""

    sin, cos, sqrt, maximum, minimum = jnp.sin, jnp.cos, jnp.sqrt, jnp.maximum, jnp.minimum
    eye = jnp.eye

    @staticmethod
    def solve(A: Array, B: Array) -> Array:
        return jax.scipy.linalg.cho_solve((jnp.linalg.cholesky(A), True), B)

    @staticmethod
    def entry(x: Array, i: int, j: int = 0, keep: bool = False) -> Array:
        return x[..., i : i + 1, j : j + 1] if keep else x[..., i, j]

    @staticmethod
    def rows(x: Array, start: int, end: int) -> Array:
        return x[..., start:end, :]

    @staticmethod
    def columns(x: Array, start: int, end: int) -> Array:
        return x[..., start:end]

    @staticmethod
    def T(x: Array) -> Array:
        return jnp.matrix_transpose(x)

    @staticmethod
    def matrix(rows: Sequence[Sequence[Array]]) -> Array:
        flat = jnp.stack([x for row in rows for x in row], -1)
        return flat.reshape(*flat.shape[:-1], len(rows), -1)

    @staticmethod
    def block(rows: Sequence[Sequence[Array]]) -> Array:
        return jnp.concatenate([jnp.concatenate(tuple(row), -1) for row in rows], -2)

    @staticmethod
    def column(entries: Sequence[Array]) -> Array:
        return jnp.stack(tuple(entries))[:, None]

    @staticmethod
    def legs(function: Callable[..., Any], *batches: Any) -> Any:
        return function(*batches)

    @staticmethod
    def split(x: Array) -> Array:
        return x.reshape(quadruped.FEET, -1, 1)

    @staticmethod
    def under(x: Array) -> Array:
        return x.reshape(-1, 1)

    @staticmethod
    def beside(x: Array) -> Array:
        return jnp.concatenate(tuple(x), -1)

    @staticmethod
    def total(x: Array) -> Array:
        return x.sum(0)

    @staticmethod
    def diagonal(x: Array) -> Array:
        return block_diag(*x)

    @staticmethod
    def spread(x: Array) -> Array:
        return jnp.diag(x[:, 0])

    @staticmethod
    def where_negative(x: Array) -> Array:
        return jnp.where(x < 0, 1.0, 0.0)

    @staticmethod
    def repeat(count: int, function: Callable[..., Any], x: tuple[Array, ...]) -> tuple[Array, ...]:
        return jax.lax.scan(lambda y, _: (function(*y), None), x, length=count)[0]

    @staticmethod
    def constant(x: np.ndarray) -> Array:
        return jnp.asarray(x)

    @staticmethod
    def gather(legs: Sequence[dict[str, Any]]) -> dict[str, Any]:
        return {name: [jnp.stack(parts) for parts in zip(*(leg[name] for leg in legs))] for name in legs[0]}


SETTINGS = "jit of scans over steps and sweeps, CPU, float64, one thread"


def version() -> str:
    return f"jax {jax.__version__}"


def buffers(compiled: Any) -> float:
    """MB that a compiled function allocates when it is called. (The process keeps them: its memory grows only once.)"""
    sizes = compiled.memory_analysis()
    return (sizes.temp_size_in_bytes + sizes.output_size_in_bytes) / 1e6


def prepare(request: dict[str, Any], steps: int) -> tuple[Callable[[], Any], Callable[[], Any], float]:
    """As `with_torch.prepare`; and MB of the compiled gradient's buffers."""
    robot = quadruped.robot_of(Ops, request["robot"])
    q0, v0 = (jnp.array(request[name])[:, None] for name in ("q", "v"))
    controls = jnp.array(request["controls"][:steps])[..., None]

    def roll(q: Array, v: Array, inputs: Array) -> tuple[Array, Array]:
        def one(carried: Any, control: Array) -> tuple[Any, None]:
            q, v, impulses = carried
            return quadruped.step(Ops, robot, request["dt"], request["sweeps"], q, v, impulses, control), None

        still = jnp.zeros((quadruped.FEET * quadruped.ROWS, 1))
        return jax.lax.scan(one, (q, v, still), inputs)[0][:2]

    def loss(q: Array, v: Array, inputs: Array) -> Array:
        return sum((x * x).sum() for x in roll(q, v, inputs))

    inputs = q0, v0, controls
    compiled, backward = (jax.jit(f).lower(*inputs).compile() for f in (roll, jax.grad(loss, (0, 1, 2))))

    def call(function: Callable[..., Any]) -> Callable[[], Any]:
        return lambda: tuple(np.asarray(x[..., 0]) for x in jax.block_until_ready(function(*inputs)))

    return call(compiled), call(backward), buffers(backward)
