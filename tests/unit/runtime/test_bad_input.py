"""Every wrong argument is a precise error at the call; what is not finite is reported, and only where it is."""

import math
import re
import warnings

import numpy as np
import pytest
import torch
from scenes import (
    DT,
    arm,
    chain,
    leaves,
    pendulum,
    puck,
    randn,
    random_controls,
    random_state,
    random_wrenches,
    simulator,
    statue,
)

import backdrive as bd

F64 = torch.float64
NAN, INF = math.nan, math.inf


def zeros(*shape, dtype=F64):
    return torch.zeros(*shape, dtype=dtype)


def exactly(text):
    return "^" + re.escape(text) + "$"


# ---------------------------------------------------------------------------------------------- the simulator


@pytest.mark.parametrize("dt", [0.0, -0.01, NAN, INF, -INF, "0.01", None, True, torch.tensor(0.01), 1j])
def test_bad_dt(dt):
    with pytest.raises(ValueError, match="dt must be a positive number of seconds, got "):
        bd.Simulator(chain(), dt)


@pytest.mark.parametrize("dt", [1, np.float64(0.01), 1e-300])
def test_good_dt(dt):
    assert bd.Simulator(chain(), dt).dt == float(dt)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"integrator": "euler"}, TypeError, "integrator must be SemiImplicitEuler() or Midpoint(), got 'euler'"),
        (
            {"integrator": bd.Midpoint},
            TypeError,
            f"integrator must be SemiImplicitEuler() or Midpoint(), got {bd.Midpoint}",
        ),
        ({"specialize": "yes"}, ValueError, "specialize must be True, False or 'auto', got 'yes'"),
        ({"specialize": None}, ValueError, "specialize must be True, False or 'auto', got None"),
        ({"nonfinite": "ignore"}, ValueError, "nonfinite must be 'raise' or 'mark', got 'ignore'"),
        ({"dtype": torch.float16}, TypeError, "dtype must be torch.float64 or torch.float32, got torch.float16"),
        ({"dtype": "float64"}, TypeError, "dtype must be torch.float64 or torch.float32, got float64"),
        ({"threads": 0}, ValueError, "threads must be an integer >= 1, got 0"),
        ({"threads": -1}, ValueError, "threads must be an integer >= 1, got -1"),
        ({"threads": 1.5}, ValueError, "threads must be an integer >= 1, got 1.5"),
    ],
    ids=lambda x: str(x) if isinstance(x, dict) else "",
)
def test_bad_options(options, error, message):
    with pytest.raises(error, match=exactly(message)):
        bd.Simulator(chain(), DT, **options)


@pytest.mark.parametrize("model", [None, "ant.xml", bd.Scene(dim=2), 3])
def test_bad_model(model):
    name = type(model).__name__
    message = f"model must be a backdrive Model (Scene.build() or load()), got {name}"
    with pytest.raises(TypeError, match=exactly(message)):
        bd.Simulator(model, DT)


# ---------------------------------------------------------------------------------------------- shapes and types

CALLS = {
    "step": lambda sim, state, **x: sim.step(state, **x),
    "rollout": lambda sim, state, **x: sim.rollout(state, steps=2, **x),
    "linearize": lambda sim, state, **x: sim.linearize(state, **x),
    "forward_dynamics": lambda sim, state, **x: sim.forward_dynamics(state, **x),
    "inverse_dynamics": lambda sim, state, **x: sim.inverse_dynamics(state, zeros(sim.model.nv), **x),
    "mass_matrix": lambda sim, state, **x: sim.mass_matrix(state, **x),
    "forward": lambda sim, state, **x: sim(state, **x),
}
EVERY_CALL = pytest.mark.parametrize("call", CALLS)

STATES = [
    (None, TypeError, "state must be State(q, v), got NoneType"),
    (zeros(13), TypeError, "state must be State(q, v), got Tensor"),
    (3.0, TypeError, "state must be State(q, v), got float"),
    ((zeros(13),), TypeError, "state must be State(q, v), got tuple"),
    ((zeros(13), zeros(11), zeros(1)), TypeError, "state must be State(q, v), got tuple"),
    ((zeros(12), zeros(11)), ValueError, "state.q must be [13] or [B, 13], got [12]"),
    ((zeros(13), zeros(13)), ValueError, "state.v must be [11] or [B, 11], got [13]"),
    ((zeros(2, 3, 13), zeros(2, 3, 11)), ValueError, "state.q must be [13] or [B, 13], got [2, 3, 13]"),
    ((zeros(()), zeros(11)), ValueError, "state.q must be [13] or [B, 13], got []"),
    ((zeros(13, 2), zeros(11, 2)), ValueError, "state.q must be [13] or [B, 13], got [13, 2]"),
    ((zeros(2, 13), zeros(3, 11)), ValueError, "state.q and state.v must have the same batch, got [2, 13] and [3, 11]"),
    ((zeros(2, 13), zeros(11)), ValueError, "state.q and state.v must have the same batch, got [2, 13] and [11]"),
    ((zeros(0, 13), zeros(0, 11)), ValueError, "the batch is empty: state.q has shape [0, 13]"),
    ((np.zeros(13), zeros(11)), TypeError, "state.q must be a torch tensor, got ndarray"),
    (([0.0] * 13, zeros(11)), TypeError, "state.q must be a torch tensor, got list"),
    ((zeros(13), None), TypeError, "state.v must be a torch tensor, got NoneType"),
    ((zeros(13).to_sparse(), zeros(11)), TypeError, "state.q must be a dense tensor, got torch.sparse_coo"),
    (
        (torch.zeros(13), zeros(11)),
        TypeError,
        "state.q must have the simulator's dtype torch.float64, got torch.float32",
    ),
    (
        (zeros(13), zeros(11, dtype=int)),
        TypeError,
        "state.v must have the simulator's dtype torch.float64, got torch.int64",
    ),
    (
        (zeros(13, dtype=torch.complex128), zeros(11)),
        TypeError,
        "state.q must have the simulator's dtype torch.float64, got torch.complex128",
    ),
]


@EVERY_CALL
@pytest.mark.parametrize(("state", "error", "message"), STATES, ids=[m[:60] for _, _, m in STATES])
def test_bad_states(call, state, error, message):
    with pytest.raises(error, match=exactly(message)):
        CALLS[call](simulator(arm), state)


CONTROLS = [
    ([0.0, 0.0], TypeError, "control{s} must be a torch tensor, got list"),
    (np.zeros(2), TypeError, "control{s} must be a torch tensor, got ndarray"),
    (1.0, TypeError, "control{s} must be a torch tensor, got float"),
    (torch.zeros(2), TypeError, "control{s} must have the simulator's dtype torch.float64, got torch.float32"),
    (zeros(3), ValueError, "control{s} must be [{T}3, 2], got [{T}3]"),
    (zeros(3, 1), ValueError, "control{s} must be [{T}3, 2], got [{T}3, 1]"),
    (zeros(2, 2), ValueError, "control{s} must be [{T}3, 2], got [{T}2, 2]"),
    (zeros(1, 2), ValueError, "control{s} must be [{T}3, 2], got [{T}1, 2]"),
    (zeros(1, 3, 2), ValueError, "control{s} must be [{T}3, 2], got [{T}1, 3, 2]"),
    (zeros(2, 0), ValueError, "control{s} must be [{T}3, 2], got [{T}2, 0]"),
]


@pytest.mark.parametrize("call", ["step", "linearize", "forward_dynamics"])
@pytest.mark.parametrize(("control", "error", "message"), CONTROLS, ids=[m for _, _, m in CONTROLS])
def test_bad_control(call, control, error, message):
    with pytest.raises(error, match=exactly(message.format(s="", T=""))):
        CALLS[call](simulator(arm), random_state(arm(), 3), control=control)


@pytest.mark.parametrize(("control", "error", "message"), CONTROLS, ids=[m for _, _, m in CONTROLS])
def test_bad_controls(control, error, message):
    controls = control.expand(5, *control.shape) if isinstance(control, torch.Tensor) else control
    with pytest.raises(error, match=exactly(message.format(s="s", T="5, "))):
        simulator(arm).rollout(random_state(arm(), 3), controls)


def test_bad_controls_of_one_world():
    sim, state = simulator(arm), random_state(arm())
    with pytest.raises(ValueError, match=exactly("control must be [2], got [1, 2]")):
        sim.step(state, zeros(1, 2))
    with pytest.raises(ValueError, match=exactly("controls must be [4, 2], got [4, 1, 2]")):
        sim.rollout(state, zeros(4, 1, 2))
    with pytest.raises(
        ValueError, match=exactly("controls must be [T, ...], one row for every step, got a single number")
    ):
        sim.rollout(state, zeros(()))
    with pytest.raises(ValueError, match=exactly("control must be [0], got [1]")):
        simulator(puck).step(random_state(puck()), zeros(1))


WRENCHES = [
    ([[0.0] * 6], TypeError, "wrench{es} must be a torch tensor, got list"),
    (torch.zeros(4, 6), TypeError, "wrench{es} must have the simulator's dtype torch.float64, got torch.float32"),
    (zeros(4, 3), ValueError, "wrench{es} must be [{T}3, 4, 6], got [{T}4, 3]"),
    (zeros(3, 6), ValueError, "wrench{es} must be [{T}3, 4, 6], got [{T}3, 6]"),
    (zeros(2, 4, 6), ValueError, "wrench{es} must be [{T}3, 4, 6], got [{T}2, 4, 6]"),
    (zeros(3, 24), ValueError, "wrench{es} must be [{T}3, 4, 6], got [{T}3, 24]"),
]


@pytest.mark.parametrize(("wrench", "error", "message"), WRENCHES, ids=[m for _, _, m in WRENCHES])
def test_bad_wrenches(wrench, error, message):
    sim, state = simulator(arm), random_state(arm(), 3)
    for call in ("step", "forward_dynamics"):
        with pytest.raises(error, match=exactly(message.format(es="", T=""))):
            CALLS[call](sim, state, wrench=wrench)
    wrenches = wrench.expand(5, *wrench.shape) if isinstance(wrench, torch.Tensor) else wrench
    with pytest.raises(error, match=exactly(message.format(es="es", T="5, "))):
        sim.rollout(state, wrenches=wrenches)


def test_wrenches_in_the_plane_have_three_numbers():
    with pytest.raises(ValueError, match=exactly("wrench must be [3, 3], got [3, 6]")):
        simulator(chain).step(random_state(chain()), wrench=zeros(3, 6))


def test_bad_accelerations():
    sim, state = simulator(arm), random_state(arm(), 3)
    with pytest.raises(TypeError, match=exactly("acceleration must be a torch tensor, got NoneType")):
        sim.inverse_dynamics(state, None)
    with pytest.raises(ValueError, match=exactly("acceleration must be [3, 11], got [3, 13]")):
        sim.inverse_dynamics(state, zeros(3, 13))


@pytest.mark.parametrize("steps", [0, -1, 1.0, "3", True, NAN])
def test_bad_steps(steps):
    with pytest.raises(ValueError, match="steps must be an integer >= 1, got "):
        simulator(arm).rollout(random_state(arm()), steps=steps)


def test_contradicting_steps():
    sim, state, controls = simulator(arm), random_state(arm()), zeros(4, 2)
    with pytest.raises(ValueError, match=exactly("controls are for 4 steps, but the rollout is of 5")):
        sim.rollout(state, controls, steps=5)
    with pytest.raises(ValueError, match=exactly("wrenches are for 3 steps, but the rollout is of 4")):
        sim.rollout(state, controls, wrenches=zeros(3, 4, 6))
    with pytest.raises(ValueError, match="steps must be an integer >= 1, got 0"):
        sim.rollout(state, zeros(0, 2))
    with pytest.raises(ValueError, match=re.escape("rollout needs controls [T, B, nu], wrenches")):
        sim.rollout(state)
    assert len(sim.rollout(state, controls, steps=4)) == 5


def test_more_steps_than_memory():
    with pytest.raises((RuntimeError, MemoryError, OverflowError, TypeError)):
        simulator(arm).rollout(random_state(arm()), steps=10**15)
    with pytest.raises((RuntimeError, MemoryError, OverflowError, TypeError)):
        simulator(arm).rollout(random_state(arm()), steps=10**30)


# ---------------------------------------------------------------------------------------------- parameters

PARAMETERS = [
    ([1.0], TypeError, "parameters must be a mapping {name: tensor}, got list"),
    (torch.ones(4), TypeError, "parameters must be a mapping {name: tensor}, got Tensor"),
    ({"mas": zeros(4)}, ValueError, "unknown parameter 'mas'; did you mean 'mass'?"),
    ({3: zeros(4)}, ValueError, "unknown parameter 3"),
    ({"mass,com": zeros(4)}, ValueError, "unknown parameter 'mass,com'"),
    ({"mass": 1.0}, TypeError, "parameter 'mass' must be a torch tensor, got float"),
    ({"mass": [1.0] * 4}, TypeError, "parameter 'mass' must be a torch tensor, got list"),
    (
        {"mass": torch.ones(4, dtype=int)},
        TypeError,
        "parameter 'mass' must be of a floating-point dtype, got torch.int64",
    ),
    ({"mass": torch.ones(3)}, ValueError, "parameter 'mass' must have shape [4], or [B, ...]"),
    ({"mass": torch.ones(3, 2, 4)}, ValueError, "parameter 'mass' must have shape [4], or [B, ...]"),
    ({"mass": torch.ones(())}, ValueError, "parameter 'mass' must have shape [4], or [B, ...]"),
    ({"mass": torch.ones(2, 4)}, ValueError, "parameters are for 2 environments, but the state has 3"),
    (
        {"mass": torch.ones(3, 4), "com": torch.ones(2, 4, 3)},
        ValueError,
        "batch sizes differ: parameter 'mass' has 3, 'com' has 2",
    ),
    ({"mass": torch.tensor([1.0, -2.0, 1.0, 1.0])}, ValueError, "parameter 'mass' of 'lower' must be > 0, got -2.0"),
    ({"mass": zeros(4)}, ValueError, "parameter 'mass' of 'upper' must be > 0, got 0.0"),
    (
        {"mass": torch.tensor([[1.0] * 4, [1.0, 1, 0, 1], [1.0] * 4])},
        ValueError,
        "parameter 'mass' of 'hand' (environment 1) must be > 0, got 0.0",
    ),
    (
        {"mass": torch.tensor([1.0, NAN, 1.0, 1.0])},
        ValueError,
        "parameter 'mass' of 'lower' must be finite and > 0, got nan",
    ),
    ({"com": torch.full((4, 3), INF)}, ValueError, "parameter 'com' of 'upper' must be finite, got inf"),
    (
        {"axis": zeros(2, 3)},
        ValueError,
        "parameter 'axis' of 'shoulder' must not have zero length, got [0.0, 0.0, 0.0]",
    ),
    (
        {"inertia": torch.tensor([1.0, 1.0, 3.0, 0, 0, 0]).expand(4, 6)},
        ValueError,
        "parameter 'inertia' of 'upper' violates the triangle inequality",
    ),
]


@EVERY_CALL
@pytest.mark.parametrize(("parameters", "error", "message"), PARAMETERS, ids=[m[:60] for _, _, m in PARAMETERS])
def test_bad_parameters(call, parameters, error, message):
    with pytest.raises(error, match="^" + re.escape(message)):
        CALLS[call](simulator(arm), random_state(arm(), 3), parameters=parameters)


# ---------------------------------------------------------------------------------------------- not finite


def spoiled(x, place, value):
    x = x.clone()
    x[place] = value
    return x


@pytest.mark.parametrize("value", [NAN, INF, -INF])
@pytest.mark.parametrize(("call", "where"), [(c, w) for c in CALLS for w in "qv" if (c, w) != ("mass_matrix", "v")])
def test_states_that_are_not_finite(call, value, where):
    q, v = random_state(arm(), 3)
    for k in range(11):
        if where == "q":
            bad, shape = bd.State(spoiled(q, (1, k), value), v), [3, 13]
        else:
            bad, shape = bd.State(q, spoiled(v, (1, k), value)), [3, 11]
        message = f"state.{where} is not finite: {value} at {[1, k]} of its shape {shape}"
        with pytest.raises(ValueError, match=exactly(message)):
            CALLS[call](simulator(arm), bad)


def test_specialised_kernels_report_the_same():
    """They know what does not matter, such as where a free body is; a NaN there is reported all the same."""
    sim, (q, v) = bd.Simulator(puck(), DT, specialize=True), random_state(puck(), 2)
    bad = bd.State(spoiled(q, (1, 0), NAN), v)
    for call in ("step", "rollout", "linearize", "forward_dynamics", "inverse_dynamics", "mass_matrix"):
        with pytest.raises(ValueError, match=re.escape("state.q is not finite: nan at [1, 0] of its shape [2, 3]")):
            CALLS[call](sim, bad)


@pytest.mark.parametrize("value", [NAN, INF, -INF])
@pytest.mark.parametrize("motor", [0, 1], ids=["limited", "servo"])
def test_controls_that_are_not_finite(value, motor):
    """Also those that a limit would clip."""
    sim, state = simulator(arm), random_state(arm(), 3)
    control = spoiled(zeros(3, 2), (2, motor), value)
    for call in ("step", "linearize", "forward_dynamics"):
        with pytest.raises(
            ValueError, match=exactly(f"control is not finite: {value} at [2, {motor}] of its shape [3, 2]")
        ):
            CALLS[call](sim, state, control=control)
    message = f"controls is not finite: {value} at [4, 2, {motor}] of its shape [5, 3, 2]"
    with pytest.raises(ValueError, match=exactly(message)):
        sim.rollout(state, spoiled(zeros(5, 3, 2), (4, 2, motor), value))
    message = f"controls is not finite: {value} at [4, {motor}] of its shape [5, 2]"  # as it was given: shared
    with pytest.raises(ValueError, match=exactly(message)):
        sim.rollout(state, spoiled(zeros(5, 2), (4, motor), value))


@pytest.mark.parametrize("value", [NAN, INF])
@pytest.mark.parametrize(
    ("make", "shape"), [(arm, (4, 6)), (chain, (3, 3)), (statue, (1, 6))], ids=["3D", "2D", "fixed"]
)
def test_wrenches_that_are_not_finite(value, make, shape):
    """Also those on bodies that cannot move."""
    sim, state = simulator(make), random_state(make(), 3)
    for place in ((2, 0, 0), (1, shape[0] - 1, shape[1] - 1)):
        wrench = spoiled(zeros(3, *shape), place, value)
        message = f"wrench is not finite: {value} at {list(place)} of its shape {[3, *shape]}"
        for call in ("step", "forward_dynamics"):
            with pytest.raises(ValueError, match=exactly(message)):
                CALLS[call](sim, state, wrench=wrench)
        message = f"wrenches is not finite: {value} at {[1, *place]} of its shape {[2, 3, *shape]}"
        with pytest.raises(ValueError, match=exactly(message)):
            sim.rollout(state, wrenches=torch.stack([zeros(3, *shape), wrench]))


def test_accelerations_that_are_not_finite():
    with pytest.raises(ValueError, match=re.escape("acceleration is not finite: nan at [1, 2] of its shape [3, 11]")):
        simulator(arm).inverse_dynamics(random_state(arm(), 3), spoiled(zeros(3, 11), (1, 2), NAN))


def test_huge_finite_numbers_are_no_error():
    """Their sum overflows, they do not."""
    sim, state = simulator(puck), random_state(puck(), 3)
    q = torch.full_like(state.q, 1.5e308)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = sim.inverse_dynamics(bd.State(q, torch.zeros_like(state.v)), zeros(3, 3))
    assert found.shape == (3, 3)


@pytest.mark.parametrize("what", ["q", "v", "controls", "wrenches"])
def test_mark_leaves_the_other_environments_alone(what):
    """To the bit, and in their gradients, in a batch of several packs of lanes."""
    model, batch, bad = arm(), 37, 21
    sim = simulator(arm, nonfinite="mark")
    values = {
        "q": random_state(model, batch).q,
        "v": random_state(model, batch).v,
        "controls": random_controls(model, 4, batch),
        "wrenches": random_wrenches(model, 4, batch),
    }
    outcomes = []
    for spoil in (False, True):
        x = {name: y.clone() for name, y in values.items()}
        if spoil:
            x[what][(bad, 1) if what in "qv" else (2, bad, 1)] = NAN
        inputs = leaves(*x.values())
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            path = sim.rollout(bd.State(*inputs[:2]), inputs[2], wrenches=inputs[3])
            position = path.position("hand")
        others = [k for k in range(batch) if k != bad]
        loss = path.q[:, others].sum() + position[:, others].sum()
        q_bar, v_bar, u_bar, w_bar = torch.autograd.grad(loss, inputs)
        outcomes.append([path.q, path.v, position, path.status.finite, u_bar, w_bar, q_bar[None], v_bar[None]])
    good, marked = outcomes
    assert good[3].all()
    first = 0 if what in "qv" else 2
    assert marked[3][:, bad].tolist() == [t < first for t in range(4)]
    assert torch.isnan(marked[1][-1, bad]).any()
    for x, y in zip(good, marked):
        assert torch.equal(x[:, others], y[:, others])


def test_mark_in_the_dynamics():
    sim, (q, v) = simulator(arm, nonfinite="mark"), random_state(arm(), 20)
    bad = bd.State(q, spoiled(v, (7, 1), NAN))
    others = [k for k in range(20) if k != 7]
    for function in (sim.forward_dynamics, lambda s: sim.inverse_dynamics(s, zeros(20, 11)), lambda s: sim.step(s).q):
        found, expected = function(bad), function(bd.State(q, v))
        assert torch.isnan(found[7]).any() and torch.equal(found[others], expected[others])


# ---------------------------------------------------------------------------------------------- blow-up


def exploding():
    """A stiff spring with a step far too large."""
    scene = bd.Scene(dim=2)
    scene.add_body("bob", bd.Circle(0.1), mass=1.0)
    scene.add_joint("spring", bd.Slider(axis=(1.0, 0.0), stiffness=1e8), child="bob")
    return bd.Simulator(scene.build(), 1.0, specialize=False)


@pytest.mark.parametrize("grad", [False, True])
def test_blow_up_warns_and_status_says_where(grad):
    sim = exploding()
    state = bd.State(torch.tensor([[0.0], [1.0], [1e-100]], dtype=F64), zeros(3, 1))
    state.q.requires_grad_(grad)
    with pytest.warns(RuntimeWarning, match="the motion of environment 1 is no longer finite after step 3") as record:
        path = sim.rollout(state, steps=60)
    assert len(record) == 1 and record[0].filename == __file__  # it points at this file, not into the package
    finite = path.status.finite
    assert finite[:, 0].all() and not finite[-1, 1]
    for k in range(3):
        first_bad = int((~finite[:, k]).float().argmax()) if not finite[:, k].all() else 60
        assert torch.isfinite(path.q[: first_bad + 1, k]).all()
        assert (
            not (torch.isfinite(path.q[first_bad + 1 :, k]).all() and torch.isfinite(path.v[first_bad + 1 :, k]).all())
            or first_bad == 60
        )
    assert not path.status.converged.all()
    assert "steps finite" in repr(path)
    assert path.position("bob").shape == (61, 3, 2)  # can be looked at
    with pytest.raises(ValueError, match=r"state.[qv] is not finite: -?(nan|inf) at \[1, 0\] of its shape \[3, 1\]"):
        sim.step(path.last)


def test_blow_up_of_a_step_warns():
    with pytest.warns(RuntimeWarning, match="environment 0 is no longer finite after step 0") as record:
        exploding().step(bd.State(torch.tensor([1e305], dtype=F64), zeros(1)))
    assert record[0].filename == __file__


def test_marked_blow_up_is_silent():
    sim = bd.Simulator(exploding().model, 1.0, specialize=False, nonfinite="mark")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        path = sim.rollout(bd.State(torch.ones(1, dtype=F64), zeros(1)), steps=60)
    assert not path.status.finite.all()


def test_good_motion_does_not_warn():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        simulator(pendulum).rollout(random_state(pendulum(), 3), 5.0 * randn(50, 3, 1))


def test_a_batch_that_no_memory_holds():
    """The error names the batch, and the memory that it would take."""
    model, batch = arm(), 2**40
    sim, start = bd.Simulator(model, dt=0.01), model.initial_state()
    huge = bd.State(start.q.expand(batch, -1), start.v.expand(batch, -1))
    for call in (lambda: model.initial_state(batch), lambda: sim.step(huge), lambda: sim.rollout(huge, steps=3)):
        with pytest.raises(MemoryError, match=f"{batch}, .* GB: take a smaller batch of environments"):
            call()
    with pytest.raises(MemoryError, match=f"{2**45 + 1}, 1, .* GB: .* or fewer steps"):
        sim.rollout(start, steps=2**45)
