"""backdrive.gradcheck: says yes to good gradients, no to wrong ones, and knows where there is none."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scenes import ALL, arm, chain, pendulum, random_controls, random_state, random_wrenches, simulator

import backdrive as bd
from backdrive.gradcheck import GradcheckReport, GradcheckRow, Verdict
from backdrive.runtime import execute

STEPS = 4
AGREES, INCONCLUSIVE = Verdict.AGREES, Verdict.INCONCLUSIVE


@pytest.mark.parametrize("make", ALL, ids=lambda make: make.__name__)
@pytest.mark.parametrize("batch", [(), (3,)], ids=str)
def test_good_gradients(make, batch):
    model = make()
    parameters = {name: model.parameter(name) for name in model.parameters().names}
    report = bd.gradcheck(
        simulator(make), random_state(model, *batch), 0.3 * random_controls(model, STEPS, *batch),
        wrenches=random_wrenches(model, STEPS, *batch), parameters=parameters,
    )  # fmt: skip
    assert report and report.ok, str(report)
    assert [row.name for row in report.rollout][:4] == ["q", "v", "controls", "wrenches"]
    assert {row.name for row in report.rollout[4:]} == {f"parameter {name}" for name in parameters}
    assert all(len(errors) == STEPS for errors in report.steps.values()) and not report.switched


@pytest.mark.parametrize("integrator", [bd.SemiImplicitEuler(), bd.Midpoint()], ids=repr)
def test_steps_without_controls(integrator):
    report = bd.gradcheck(simulator(arm, integrator=integrator), random_state(arm(), 2), steps=3)
    assert report, str(report)
    assert list(report.steps) == ["q", "v"]


def test_parameters_per_environment_and_shared_inputs():
    mass = arm().parameter("mass") * torch.tensor([[1.0], [1.5]], dtype=torch.float64)
    wrenches = random_wrenches(arm(), STEPS)
    for state in (random_state(arm()), random_state(arm(), 2)):
        controls = 0.3 * random_controls(arm(), STEPS)
        report = bd.gradcheck(simulator(arm), state, controls, wrenches=wrenches, parameters={"mass": mass})
        assert report, str(report)


def test_inputs_are_left_alone():
    state, controls = random_state(chain(), 2), random_controls(chain(), 3, 2).requires_grad_()
    mass = chain().parameter("mass").requires_grad_()
    bd.gradcheck(simulator(chain), state, controls, parameters={"mass": mass})
    assert controls.grad is None and mass.grad is None
    assert all(torch.equal(x, y) for x, y in zip(state, random_state(chain(), 2)))


def test_works_under_no_grad():
    with torch.no_grad():
        assert bd.gradcheck(simulator(chain), random_state(chain(), 2), steps=2)


def test_the_same_generator_gives_the_same_report():
    reports = [
        str(
            bd.gradcheck(
                simulator(chain), random_state(chain(), 2), steps=3, generator=torch.Generator().manual_seed(5)
            )
        )
        for _ in range(2)
    ]
    assert reports[0] == reports[1]


def test_the_report_is_readable():
    report = bd.gradcheck(
        simulator(chain), random_state(chain(), 2), random_controls(chain(), 3, 2),
        parameters={"mass": chain().parameter("mass")},
    )  # fmt: skip
    lines = str(report).splitlines()
    assert lines[0].split() == ["input", "adjoint", "difference", "error"]
    assert [line.split("  ")[0].strip() for line in lines[1:5]] == ["q", "v", "controls", "parameter mass"]
    assert all(line.endswith("  ok") for line in lines[1:8])
    assert [line.split(":")[0] for line in lines[5:8]] == ["each step, q", "each step, v", "each step, controls"]
    assert lines[-1] == "all agree to 1e-06"
    assert max(map(len, lines)) < 100


def test_tolerance():
    options = simulator(chain), random_state(chain(), 2)
    assert bd.gradcheck(*options, steps=3, tolerance=1e-6)
    assert not bd.gradcheck(*options, steps=3, tolerance=0.0)


# ---------------------------------------------------------------------------------------------- wrong gradients


def wrong_gradient(monkeypatch, which, change, form="rollout"):
    right = execute.vjp

    def wrong(request, *args):
        results = right(request, *args)
        if request.signature.form == form and which in results:  # (steps by themselves have none of parameters)
            results[which] = change(results[which])
        return results

    monkeypatch.setattr(execute, "vjp", wrong)


@pytest.mark.parametrize(
    ("which", "name"),
    [
        ("q_bar", "q"),
        ("v_bar", "v"),
        ("controls_bar", "controls"),
        ("wrenches_bar", "wrenches"),
        ("constants_bar", "parameter mass"),
    ],
)
@pytest.mark.parametrize(
    "change", [lambda x: 1.001 * x, lambda x: -x, torch.zeros_like, lambda x: x + 1e-2, lambda x: x * float("nan")],
    ids=["a little", "sign", "zero", "shifted", "nan"],
)  # fmt: skip
def test_wrong_gradients_are_found(monkeypatch, which, name, change):
    wrong_gradient(monkeypatch, which, change)
    report = bd.gradcheck(
        simulator(arm), random_state(arm(), 2), 0.3 * random_controls(arm(), STEPS, 2),
        wrenches=random_wrenches(arm(), STEPS, 2), parameters={"mass": arm().parameter("mass")},
    )  # fmt: skip
    assert not report and not report.ok
    wrong = [row.name for row in report.rollout if not row.error <= report.tolerance]
    assert wrong == [name]
    text = str(report)
    assert "WRONG" in text and text.endswith("DISAGREE to 1e-06")


def test_the_wrong_step_is_named(monkeypatch):
    """Only gradients of the state of step 2 are wrong."""
    state, right = random_state(chain()), execute.vjp
    path = simulator(chain).rollout(state, steps=STEPS)

    def wrong(request, tensors, *args):
        results = right(request, tensors, *args)
        here = (tensors["path_q"][0] == path.q[2]).all(-1)
        results["q_bar"] = torch.where(here[:, None], 1.1 * results["q_bar"], results["q_bar"])
        return results

    monkeypatch.setattr(execute, "vjp", wrong)
    report = bd.gradcheck(simulator(chain), state, steps=STEPS)
    assert not report
    assert [bool(e > 1e-6) for e in report.steps["q"]] == [False, False, True, False]
    assert "at step 2  WRONG" in str(report)


# ---------------------------------------------------------------------------------------------- limits


def test_motors_that_switch_at_a_limit():
    """A control at its limit has no derivative: neither ok nor wrong."""
    controls = torch.tensor([[0.3], [1.0], [0.5], [2.0]], dtype=torch.float64)  # limits ±1
    report = bd.gradcheck(simulator(pendulum), random_state(pendulum()), controls)
    rows = {row.name: row for row in report.rollout}
    assert rows["controls"].switched and not rows["q"].switched
    assert report.switched == [1]
    assert not report.ok and report.verdict is Verdict.INCONCLUSIVE
    assert rows["controls"].verdict is Verdict.INCONCLUSIVE and rows["q"].verdict is Verdict.AGREES
    assert report.step_verdicts["controls"] == [AGREES, INCONCLUSIVE, AGREES, AGREES]
    assert report.step_verdicts["q"] == [AGREES] * 4
    text = str(report)
    assert "inconclusive: a mode switches" in text and "to decide: start elsewhere" in text
    assert text.endswith("INCONCLUSIVE: 13 of 15 comparisons agree to 1e-06, the others cannot be decided")
    assert "a contact or limit switches within the difference at steps 1: no derivative there" in text
    assert float(report.steps["controls"][1]) > 0.1  # the difference sees half of it


def test_switches_in_a_batch():
    controls = torch.full((3, 4, 1), 0.2, dtype=torch.float64)
    controls[2, 3] = -1.0
    report = bd.gradcheck(simulator(pendulum), random_state(pendulum(), 4), controls)
    assert report.switched == [2] and report.verdict is INCONCLUSIVE


def test_many_switches_are_abbreviated():
    report = bd.gradcheck(simulator(pendulum), random_state(pendulum()), torch.ones(14, 1, dtype=torch.float64))
    assert len(report.switched) == 14
    assert "at steps 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, ...: no derivative there" in str(report)


def test_a_limit_that_acts_throughout_is_fine():
    report = bd.gradcheck(simulator(pendulum), random_state(pendulum()), torch.full((3, 1), 5.0, dtype=torch.float64))
    assert report.ok and not report.switched


# ---------------------------------------------------------------------------------------------- bad input


def test_bad_input():
    single = simulator(chain, dtype=torch.float32)
    with pytest.raises(TypeError, match=r"gradcheck needs a simulator of dtype torch\.float64"):
        bd.gradcheck(single, random_state(chain(), dtype=torch.float32), steps=2)
    with pytest.raises(ValueError, match=r"rollout needs controls \[T, B, nu\]"):
        bd.gradcheck(simulator(chain), random_state(chain()))
    with pytest.raises(ValueError, match=r"unknown parameter 'mas'; did you mean 'mass'\?"):
        bd.gradcheck(simulator(chain), random_state(chain()), steps=2, parameters={"mas": torch.ones(3)})
    with pytest.raises(ValueError, match="controls must be"):
        bd.gradcheck(simulator(chain), random_state(chain()), torch.zeros(2, 5, dtype=torch.float64))
    with pytest.raises(TypeError, match=r"state must be State\(q, v\), got NoneType"):
        bd.gradcheck(simulator(chain), None, steps=2)
    with pytest.raises(TypeError, match="simulator must be a backdrive Simulator, got Model"):
        bd.gradcheck(chain(), random_state(chain()), steps=2)


def test_an_empty_report_agrees():
    assert GradcheckReport(1e-6)
    for verdict in Verdict:
        report = GradcheckReport(1e-6, [GradcheckRow("q", 1.0, 2.0, 0.5, False, 0.0, verdict)])
        assert bool(report) == (verdict is AGREES) and report.verdict is verdict
    assert Verdict.of_all([AGREES, INCONCLUSIVE, Verdict.WRONG]) is Verdict.WRONG
    assert Verdict.of_all([AGREES, INCONCLUSIVE]) is INCONCLUSIVE


# ---------------------------------------------------------------------------------------------- random worlds


def boxes(seed, dim, bodies=2):
    """Boxes on the ground, sliding or at rest, one on the other or beside it."""
    draw = np.random.default_rng(seed)
    scene = bd.Scene(dim)
    scene.add_static(bd.HalfSpace((0.0,) * (dim - 1) + (1.0,)), friction=draw.uniform(0.1, 0.8))
    height = 0.0
    for k in range(bodies):
        sizes = draw.uniform(0.2, 0.5, dim)
        place = np.append(0.02 * draw.normal(size=dim - 1), height + sizes[-1] / 2)
        speed = np.append(draw.choice([0.0, 1.0]) * draw.normal(size=dim - 1), 0.0)
        scene.add_body(f"box{k}", bd.Box(*sizes), mass=draw.uniform(0.5, 2.0), position=place, velocity=speed)
        height += sizes[-1] if draw.random() < 0.7 else 0.5
    return scene.build()


@settings(max_examples=6, deadline=None)
@given(st.integers(0, 10_000), st.sampled_from([2, 3]))
def test_right_gradients_are_never_wrong(seed, dim):
    """Contacts at rest are at switches, and mass has no influence on a slide: that may be inconclusive, not wrong."""
    model = boxes(seed, dim)
    parameters = {name: model.parameter(name) for name in ("mass", "friction")}
    report = bd.gradcheck(bd.Simulator(model, 0.01, specialize=False), model.initial_state(), steps=5,
                          parameters=parameters)  # fmt: skip
    assert report.verdict is not Verdict.WRONG, str(report)
    assert report.ok == all(row.error <= 1e-6 for row in report.rollout) or report.verdict is INCONCLUSIVE


@settings(max_examples=10, deadline=None)
@given(st.sampled_from([pendulum, arm]), st.integers(0, 99), st.sampled_from(["q_bar", "v_bar"]), st.floats(1e-4, 2.0))
def test_wrong_gradients_are_wrong(make, seed, which, error):
    """Of smooth motions, gradients that are off by a factor 1 + error."""
    with pytest.MonkeyPatch.context() as patch:
        wrong_gradient(patch, which, lambda x: (1.0 + error) * x)
        report = bd.gradcheck(
            simulator(make), random_state(make(), seed=seed), steps=3, generator=torch.Generator().manual_seed(seed)
        )
    row = next(row for row in report.rollout if row.name == which.removesuffix("_bar"))
    off = abs(row.adjoint - row.difference) / max(abs(row.adjoint), abs(row.difference))
    assert row.verdict is (Verdict.WRONG if row.error > 1e-6 else AGREES)
    assert row.error > 1e-6 or off < 1e-5


def test_a_derivative_that_nearly_vanishes():
    """A box slides: its mass has no influence but for the compliance of the contact, 1e-9 of other derivatives."""
    scene = bd.Scene(dim=2)
    scene.add_static(bd.HalfSpace((0, 1)), friction=0.3)
    scene.add_body("box", bd.Box(0.4, 0.2), mass=1.5, position=(0, 0.1), velocity=(2, 0), friction=0.3)
    model = scene.build()
    report = bd.gradcheck(bd.Simulator(model, 0.01), model.initial_state(), steps=20,
                          parameters={"mass": model.parameter("mass")})  # fmt: skip
    assert abs(report.rollout[-1].adjoint) < 1e-8 < 1e-6 * abs(report.rollout[0].adjoint)
    assert report.ok, str(report)
