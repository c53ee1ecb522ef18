"""torch.func over the simulator: vmap, grad, jacrev; and smoothed gradients."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.func import grad, jacrev, vmap

import backdrive as bd

from .big_worlds import heap
from .bounces import flat_table
from .measure import arrays_of, functional, generator, gradients, merged, random, rolled, start
from .registry import Arrays, scene
from .worlds import cart_pole, robot, walker

Loss = Callable[..., Tensor]


def loss_of(sim: bd.Simulator) -> Loss:
    """A smooth function of a rollout's end, of its poses and of its way, by q, v, controls and masses."""
    body = sim.model.bodies[-1]

    def loss(q: Tensor, v: Tensor, u: Tensor, mass: Tensor) -> Tensor:
        path = sim.rollout(bd.State(q, v), u, parameters={"mass": mass})
        return path.last.q.square().sum() + path.v.sin().sum() + path.position(body).sum()

    return loss


@scene
def func_grad() -> Arrays:
    """torch.func.grad and vmap of grad by state, controls and masses, of the cart, the walker and the robot"""
    found = {}
    for name, model in (("cart", cart_pole()), ("walker", walker()), ("robot", robot())):
        q, v = start(model, 3, speed=0.2).detach()
        u = random((3, 8, model.nu), 0.3, seed=3).detach()
        mass = model.parameter("mass") * torch.tensor([[1.0], [1.1], [0.9]], dtype=torch.float64)
        derivative = grad(loss_of(rolled(model)), argnums=(0, 1, 2, 3))
        one = derivative(q[0], v[0], u[0], mass[0])
        many = vmap(derivative)(q, v, u, mass)
        some = vmap(derivative, in_dims=(None, 0, None, None))(q[0], v, u[0], mass[0])
        parts = {"one": one, "many": many, "some": some}
        found[name] = arrays_of(**{f"{k}{i}": x for k, xs in parts.items() for i, x in enumerate(xs)})
    return merged(**found)


@scene
def func_vmap() -> Arrays:
    """vmap of rollouts, steps, dynamics and linearize, nested, and over another dimension"""
    model = walker()
    sim = rolled(model)
    q, v = start(model, 6, speed=0.2).detach()
    u = random((6, model.nu), 0.3, seed=3).detach()
    nested = vmap(vmap(lambda q, v: sim.step(bd.State(q, v)).q))(q.unflatten(0, (2, 3)), v.unflatten(0, (2, 3)))
    turned = vmap(lambda q, v: sim.step(bd.State(q, v)).v, in_dims=1, out_dims=1)(q.mT, v.mT)
    end = vmap(lambda q, v, u: sim.rollout(bd.State(q, v), u.expand(5, -1)).q)(q, v, u)
    A, B = vmap(lambda q, v, u: sim.linearize(bd.State(q, v), u))(q, v, u)
    matrix = vmap(lambda q: sim.mass_matrix(bd.State(q, v[0])))(q)
    force = vmap(lambda q, v: sim.inverse_dynamics(bd.State(q, v), v))(q, v)
    rate = vmap(lambda q, v, u: sim.forward_dynamics(bd.State(q, v), u))(q, v, u)
    return arrays_of(nested=nested, turned=turned, end=end, A=A, B=B, matrix=matrix, force=force, rate=rate)


@scene
def func_jacrev() -> Arrays:
    """jacrev of a rollout by its controls, and vmap of jacrev of a step"""
    model = cart_pole()
    sim = rolled(model)
    q, v = start(model, 3, speed=0.2).detach()
    u = random((6, model.nu), 0.3, seed=3).detach()
    rows = jacrev(lambda u: sim.rollout(bd.State(q[0], v[0]), u).last.v)(u)

    def step(q: Tensor, v: Tensor) -> Tensor:
        return torch.cat(sim.step(bd.State(q, v)))

    by_q, by_v = vmap(jacrev(step, argnums=(0, 1)))(q, v)
    return arrays_of(rows=rows, by_q=by_q, by_v=by_v)


@scene
def func_big_world() -> Arrays:
    """torch.func.grad and vmap of a sparse world"""
    model = heap(24, 2)
    sim = rolled(model)
    q, v = start(model, None, speed=0.1).detach()

    def loss(v: Tensor) -> Tensor:
        return sim.rollout(bd.State(q, v), steps=6).last.v.square().sum()

    return arrays_of(one=grad(loss)(v), many=vmap(grad(loss))(torch.stack([v, 0.5 * v])))


@scene
def smoothed_gradients() -> Arrays:
    """`smoothed` of both orders: discs that bounce off each other, by the start of one, and controls of a cart"""
    table = flat_table()
    sim = rolled(table)
    found = {}

    def end(y: Tensor) -> Tensor:
        q, v = table.initial_state(len(y))
        first = torch.nn.functional.pad(y.unsqueeze(-1), (1, table.nq - 2))
        return sim.rollout(bd.State(q + first, v), steps=25).last.q[:, 1]

    cart = cart_pole()
    driven = rolled(cart)

    def swing(u: Tensor) -> Tensor:
        return driven.rollout(cart.initial_state(len(u)), u.transpose(0, 1)).last.q.square().sum(-1)

    for order in (0, 1):
        y = torch.tensor(0.02, dtype=torch.float64, requires_grad=True)
        mean = bd.smoothed(end, y, sigma=0.02, samples=32, generator=generator(5), order=order)
        found[f"table{order}"] = gradients(functional(mean), {"y": y})
        u = random((10, 1), seed=3)
        mean = bd.smoothed(swing, u, sigma=0.3, samples=32, generator=generator(6), order=order)
        found[f"cart{order}"] = gradients(functional(mean), {"u": u})
    return merged(**found)
