"""The exact Jacobian of the residuals, by forward propagation of the state's sensitivities.

With x = (q, v) after step t and free numbers z, the sensitivity X_t = ∂x_t/∂z obeys

    X_{t+1} = A_t X_t + B_t,        A_t = ∂x_{t+1}/∂x_t,   B_t = ∂x_{t+1}/∂z,        ∂y_t/∂z = C_t X_t + D_t

for the observed quantities y. The engine differentiates in reverse mode: a row of (A_t, B_t) is the gradient of one
element of x_{t+1}. The rows of all steps and starts are independent, so they are one batch: a Jacobian costs as much as
nq + nv gradients, whatever the numbers of observations and of unknowns.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from ..model import State
from ..trajectory import PathStates, Trajectory, link_poses
from .problem import FitProblem

ROWS = 2048  # Size of a batch of gradients; a larger one would not fit into the processor's cache.


def jacobian(problem: FitProblem, z: Tensor, path: Trajectory) -> Tensor:
    """∂(residuals)/∂z, [S, R, P], along the motion `path` of z [S, P]."""
    with torch.no_grad():
        X = _state_sensitivities(problem, z, path)  # [T + 1, S B, n, P]
        C, D = _observation_jacobians(problem, z, path)
        Y = C @ X if D is None else C @ X + D
        return problem.select(problem.channels.interpolate(Y))


def _state_sensitivities(problem: FitProblem, z: Tensor, path: Trajectory) -> Tensor:
    q, v = path.q.detach(), path.v.detach()
    steps, rows, size = len(q) - 1, q.shape[1], q.shape[2] + v.shape[2]
    X = torch.empty(steps + 1, rows, size, z.shape[1], dtype=torch.float64)
    X[0] = _start_sensitivities(problem, z)
    chunk = max(1, ROWS // (rows * size))
    for begin in range(0, steps, chunk):
        end = min(begin + chunk, steps)
        A, B = _step_jacobians(problem, z, q[begin:end], v[begin:end], begin)
        for t in range(begin, end):
            X[t + 1] = torch.baddbmm(B[t - begin], A[t - begin], X[t])
    return X


def _start_sensitivities(problem: FitProblem, z: Tensor) -> Tensor:
    """X_0, [S B, n, P]."""
    if not problem.unknowns.learns_start:
        return torch.zeros((), dtype=torch.float64)

    def start(row: Tensor) -> Tensor:
        return torch.cat(problem.unknowns.start_state(row.unsqueeze(0)), -1).squeeze(0)

    return torch.func.vmap(torch.func.jacrev(start))(z).repeat_interleave(problem.batch, 0)


def _step_jacobians(problem: FitProblem, z: Tensor, q: Tensor, v: Tensor, begin: int) -> tuple[Tensor, Tensor]:
    """A [T, rows, n, n] and B [T, rows, n, P] of the steps from q, v [T, rows, ...]; begin: the first step."""
    times, starts = len(q), len(z)
    controls, wrenches = (
        None if x is None else x.flatten(0, 1).unsqueeze(0)  # All steps become one step of a larger batch.
        for x in (problem.inputs(x, starts, begin, begin + times) for x in (problem.controls, problem.wrenches))
    )

    def step(q: Tensor, v: Tensor, z: Tensor) -> tuple[Tensor, ...]:
        path = problem.simulator.rollout(
            State(q, v), controls, steps=1, wrenches=wrenches, parameters=problem.unknowns.parameters(z)
        )
        return tuple(path.last)

    A, B = _batched_jacobians(step, q, v, problem.rows(z))
    assert B is not None
    return A, B


def _observation_jacobians(problem: FitProblem, z: Tensor, path: Trajectory) -> tuple[Tensor, Tensor | None]:
    """C [T + 1, rows, D, n] and D [T + 1, rows, D, P]; D is None if y does not depend on the parameters."""
    channels, simulator = problem.channels, problem.simulator
    q, v = path.q.detach(), path.v.detach()
    names = ",".join(sorted(problem.unknowns.parameters(z[:1])))
    links = [simulator._body_links[simulator.model.body_index(body)] for body in channels.bodies]

    def observed(q: Tensor, v: Tensor, constants: Tensor) -> Tensor:
        pieces: list[Tensor] = []
        if links:
            states = PathStates(simulator._program, (q.unsqueeze(0), v.unsqueeze(0)), constants, names)
            positions = link_poses(states)[1].squeeze(0)
            pieces.append(positions[:, links, : simulator.model.dim].flatten(1))
        pieces += [simulator._angles.of(q, body).unsqueeze(-1) for body in channels.turning]
        if channels.has_q:
            pieces.append(q)
        if channels.has_v:
            pieces.append(v)
        return torch.cat(pieces, -1)

    def constants_of(z: Tensor) -> Tensor:
        constants = simulator.model.assemble(problem.unknowns.parameters(z), check=False)
        return constants.expand(len(z), -1)  # The constants have no batch if only the initial state is learned.

    rows = problem.rows(z)
    moves = not torch.equal(*(observed(q[-1], v[-1], constants_of(x)) for x in (rows, rows + 0.01)))  # as anchors do
    constants = constants_of(rows)

    def of_parameters(q: Tensor, v: Tensor, z: Tensor) -> tuple[Tensor, ...]:
        return (observed(q, v, constants_of(z)),)

    def of_state(q: Tensor, v: Tensor) -> tuple[Tensor, ...]:
        return (observed(q, v, constants.repeat(len(q) // len(constants), 1)),)

    chunk = max(1, ROWS // (q.shape[1] * len(channels.names)))
    parts = [slice(begin, begin + chunk) for begin in range(0, len(q), chunk)]
    if not moves:
        return torch.cat([_batched_jacobians(of_state, q[part], v[part])[0] for part in parts]), None
    both = [_batched_jacobians(of_parameters, q[part], v[part], rows) for part in parts]
    return torch.cat([C for C, _ in both]), torch.cat([D for _, D in both if D is not None])


def _batched_jacobians(
    function: Callable[..., tuple[Tensor, ...]], q: Tensor, v: Tensor, rows: Tensor | None = None
) -> tuple[Tensor, Tensor | None]:
    """∂(function)/∂(q, v) [T, rows, outputs, n] at states [T, rows, ...]; and ∂(function)/∂z, given z [rows, P]."""
    times = len(q)
    inputs = [q.flatten(0, 1), v.flatten(0, 1)]
    if rows is not None:
        inputs.append(rows.repeat(times, 1))
    outputs, pull = torch.func.vjp(function, *inputs)[:2]
    bars = [bar.movedim(0, 1).unflatten(0, (times, -1)) for bar in torch.func.vmap(pull)(_seeds(outputs))]
    return torch.cat(bars[:2], -1), None if rows is None else bars[2]


def _seeds(outputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """A unit vector for each element of the outputs [rows, n_i]: [Σ n_i, rows, n_i]."""
    sizes = [x.shape[-1] for x in outputs]
    unit = torch.eye(sum(sizes), dtype=torch.float64)
    return tuple(
        part.unsqueeze(1).expand(-1, len(x), -1) for part, x in zip(unit.split(sizes, 1), outputs, strict=True)
    )
