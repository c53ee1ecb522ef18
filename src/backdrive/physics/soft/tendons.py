"""Fixed tendons: forces along linear combinations of coordinates, l = Σ c q. Springs, dampers, and motors."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ...ir import Scalar, ScalarArray, clip, vjp, workspace
from ...model.soft import Combination, Tendon
from ...schema import layout
from ..math.arrays import accumulate, zero
from ..math.spatial import Vec
from ..tree.dynamics_adjoint import Cotangents
from ..tree.forces import motor_force
from ..tree.inputs import DynamicsInputs
from ..tree.tree import Tree
from .damping import motor_damping
from .settings import SoftSettings


def combined(coefficients: Sequence[float], x: ScalarArray, places: Sequence[int]) -> Scalar:
    """Σ c x at these places."""
    total: Scalar = 0.0
    for c, k in zip(coefficients, places, strict=True):
        total = total + c * x[k]
    return total


def length(combination: Combination, q: ScalarArray) -> Scalar:
    return combined(combination.coefficients, q, combination.q)


def along(combination: Combination, x: ScalarArray) -> Scalar:
    """The rate of the length for velocities x [nv]."""
    return combined(combination.coefficients, x, combination.v)


def spread(combination: Combination, x: Scalar, target: ScalarArray, places: Sequence[int]) -> None:
    """target += c x at these places."""
    for c, k in zip(combination.coefficients, places, strict=True):
        accumulate(target.at(k), (c * x,))


def tendon_record(tree: Tree, settings: SoftSettings, t: int) -> Vec:
    return tree.constants.at(settings.tendon_place(t)).get(0, layout.TENDON)


def passive_force(record: Vec, length: Scalar, speed: Scalar) -> Scalar:
    """Of spring and damper; the spring is slack within a range of lengths."""
    low, high = record[layout.TENDON_SLACK : layout.TENDON_SLACK + 2]
    stretch = length - clip(length, low, high)
    return -(record[layout.TENDON_STIFFNESS] * stretch) - record[layout.TENDON_DAMPING] * speed


def tendon_forces(tree: Tree, settings: SoftSettings, inputs: DynamicsInputs) -> tuple[ScalarArray, Scalar]:
    """The generalised forces [nv] of all tendons, and the number of their motors at a limit."""
    tau = workspace(tree.nv)
    zero(tree.nv, tau)
    clipped: Scalar = 0.0
    for t, tendon in enumerate(settings.tendons):
        l, speed = length(tendon.length, inputs.q), along(tendon.length, inputs.v)
        force = passive_force(tendon_record(tree, settings, t), l, speed)
        for m in tendon.motors:
            motor = motor_force(tree.motors().get(m, layout.MOTOR), l, speed, speed, inputs.controls[m])
            force, clipped = force + motor.force, clipped + motor.limited
        spread(tendon.length, force, tau, tendon.length.v)
    return tau, clipped


def tendon_forces_adjoint(
    tree: Tree, settings: SoftSettings, inputs: DynamicsInputs, virtual: ScalarArray, cotangents: Cotangents
) -> None:
    """Add the gradient of λ · τ of all tendons; virtual [nv]: λ."""
    for t, tendon in enumerate(settings.tendons):
        state, seed = _state(tendon, inputs), [along(tendon.length, virtual)]
        _, gradient = vjp(
            lambda *x: [passive_force(x[:-2], *x[-2:])], (*tendon_record(tree, settings, t), *state), seed
        )
        _add(tendon, gradient[-2:], cotangents)
        if cotangents.constants is not None:
            accumulate(cotangents.constants.at(settings.tendon_place(t)), gradient[:-2])
        for m in tendon.motors:
            record = tree.motors().get(m, layout.MOTOR)
            _, gradient = vjp(
                lambda *x: [motor_force(x[:-3], x[-3], x[-2], x[-2], x[-1]).force],
                (*record, *state, inputs.controls[m]),
                seed,
            )
            _add(tendon, gradient[-3:-1], cotangents)
            if cotangents.controls is not None:
                accumulate(cotangents.controls.at(m), gradient[-1:])
            _add_motor(tree, m, gradient[:-3], cotangents.constants)


def _state(tendon: Tendon, inputs: DynamicsInputs) -> tuple[Scalar, Scalar]:
    return length(tendon.length, inputs.q), along(tendon.length, inputs.v)


def _add(tendon: Tendon, bars: Sequence[Scalar], cotangents: Cotangents) -> None:
    """Add the cotangents of length and speed."""
    spread(tendon.length, bars[0], cotangents.q, tendon.length.q)
    spread(tendon.length, bars[1], cotangents.v, tendon.length.v)


def _add_motor(tree: Tree, m: int, record_bar: Sequence[Scalar], constants_bar: ScalarArray | None) -> None:
    if constants_bar is not None:
        start = layout.motor_start(tree.nlink, tree.nq, m)
        accumulate(constants_bar.at(start), record_bar)


def tendon_damping(tree: Tree, settings: SoftSettings, inputs: DynamicsInputs, t: int) -> Scalar:
    """How the force of a tendon falls with its speed."""
    tendon, total = settings.tendons[t], tendon_record(tree, settings, t)[layout.TENDON_DAMPING]
    for m in tendon.motors:
        record = tree.motors().get(m, layout.MOTOR)
        total = total + motor_damping(record, *_state(tendon, inputs), inputs.controls[m])
    return total


def related(settings: SoftSettings, combination: Combination) -> Iterator[tuple[int, int, float]]:
    """The coordinates i, j of a combination of which one moves the other, and the product of their coefficients.

    Like MuJoCo's, the matrix has no entries between the branches of a tree: there, the damping of tendons is explicit.
    """
    parts = list(zip(combination.v, combination.coefficients, strict=True))
    for i, a in parts:
        for j, b in parts:
            if i == j or i in settings.chains[j] or j in settings.chains[i]:
                yield i, j, a * b


def damping_power(settings: SoftSettings, combination: Combination, x: ScalarArray, y: ScalarArray) -> Scalar:
    """x · J Jᵀ y, as far as coordinates are `related`."""
    total: Scalar = 0.0
    for i, j, factor in related(settings, combination):
        total = total + factor * x[i] * y[j]
    return total


def add_tendon_slopes(
    tree: Tree, settings: SoftSettings, inputs: DynamicsInputs, x: ScalarArray, h: Scalar, y: ScalarArray
) -> None:
    """y [nv] += h times the damping of all tendons, along x [nv]."""
    for t, tendon in enumerate(settings.tendons):
        damping = h * tendon_damping(tree, settings, inputs, t)
        for i, j, factor in related(settings, tendon.length):
            y[i] = y[i] + factor * damping * x[j]


def tendon_slopes_adjoint(
    tree: Tree, settings: SoftSettings, inputs: DynamicsInputs, seeds: Sequence[Scalar], constants_bar: ScalarArray
) -> None:
    """Add the gradient of Σ seeds · `tendon_damping`."""
    for t, (tendon, seed) in enumerate(zip(settings.tendons, seeds, strict=True)):
        accumulate(constants_bar.at(settings.tendon_place(t) + layout.TENDON_DAMPING), (seed,))
        for m in tendon.motors:
            state = (*_state(tendon, inputs), inputs.controls[m])
            record = tree.motors().get(m, layout.MOTOR)
            _, bar = vjp(lambda *x, state=state: [motor_damping(x, *state)], record, [seed])
            _add_motor(tree, m, bar, constants_bar)
