"""Parameters are found from motion, by every optimiser, with an honest uncertainty, and failures are named."""

import math
import re
import warnings
from pathlib import Path

import identify_worlds as worlds
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import backdrive as bd
from backdrive.identify import (
    Fit,
    GaussNewton,
    GradientDescent,
    Learn,
    LevenbergMarquardt,
    Observations,
    Outcome,
    TorchOptimizer,
    fit,
)
from backdrive.identify.result import significant, student_width
from backdrive.schema.layout import INERTIA_INDEX

MASSES = torch.tensor([1.0, 0.6, 0.3], dtype=torch.float64)
STEPS = 60


def observed_chain(**options) -> Observations:
    path = worlds.simulator(worlds.chain).rollout(worlds.chain().initial_state(), steps=STEPS)
    return Observations.of(path, **options)


def fit_masses(observed: Observations, **options) -> Fit:
    learn = options.pop("learn", [Learn("mass", ["link2", "link3"], start=1.0)])
    return fit(worlds.simulator(worlds.chain), observed, learn, **options)


OPTIMIZERS = {
    "default": None,
    "Levenberg-Marquardt": LevenbergMarquardt(damping=1.0),
    "Gauss-Newton": GaussNewton(),
    "Adam": TorchOptimizer(lambda z: torch.optim.Adam(z, lr=0.1), max_iterations=250),
    "LBFGS": lambda z: torch.optim.LBFGS(z, lr=1.0, line_search_fn="strong_wolfe", tolerance_change=1e-14),
    "gradient descent": GradientDescent(rate=200.0, clip=0.02, max_iterations=400),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_every_optimizer_finds_the_masses(name):
    found = fit_masses(observed_chain(), optimizer=OPTIMIZERS[name])
    assert torch.allclose(found.value, MASSES[1:], rtol=1e-3), found
    assert found.outcome in (Outcome.CONVERGED, Outcome.MAX_ITERATIONS)
    assert found.history.loss[-1, 0] < 1e-3 * found.history.loss[0, 0]
    assert found.parameters["mass"][0] == 1.0
    assert found["mass of link2"] == found.value[0]


def test_newton_methods_find_them_to_rounding():
    for optimizer in (LevenbergMarquardt(), GaussNewton()):
        found = fit_masses(observed_chain(), optimizer=optimizer)
        assert found.outcome == Outcome.CONVERGED
        assert torch.allclose(found.value, MASSES[1:], rtol=1e-9)


def test_some_bodies_at_some_times_are_enough():
    whole = observed_chain(bodies=["link3"], every=7)
    position = whole.position["link3"].clone()
    position[::2, 0] = math.nan
    found = fit_masses(Observations(whole.time, {"link3": position}))
    assert found.observed == position.numel() - len(position[::2])
    assert torch.allclose(found.value, MASSES[1:], rtol=1e-6)


def test_starts_are_independent_of_each_other():
    starts = torch.tensor([[0.3, 0.3], [2.0, 0.1], [0.7, 3.0]], dtype=torch.float64)
    learn = Learn("mass", ["link2", "link3"], start=starts)
    together = fit_masses(observed_chain(), learn=[learn])
    for k, row in enumerate(starts):
        alone = fit_masses(observed_chain(), learn=[Learn("mass", ["link2", "link3"], start=row)])
        assert torch.allclose(together.values[k], alone.value, rtol=1e-12)
    assert together.losses[together.start] == together.losses.min()
    assert together.history.values.shape[1:] == (3, 2)


def test_the_same_fit_twice_gives_the_same_bits():
    options = {"learn": [Learn("mass", ["link2", "link3"], bounds=(0.1, 5.0))], "starts": 4}
    first, second = (
        fit_masses(observed_chain(), generator=torch.Generator().manual_seed(5), **options) for _ in range(2)
    )
    assert torch.equal(first.values, second.values)
    assert torch.equal(first.history.loss, second.history.loss)


def test_friction_and_restitution_from_a_noisy_track():
    simulator = worlds.simulator(worlds.ball, impacts=True)
    path = simulator.rollout(worlds.ball().initial_state(), steps=60)
    observed = Observations.of(path, noise=0.002, generator=torch.Generator().manual_seed(1))
    found = fit(
        simulator, observed, [Learn("friction", "ball", start=0.05), Learn("restitution", "ball", start=0.4)], windows=4
    )
    truth = torch.tensor([0.1, 0.6], dtype=torch.float64)
    assert bool((found.std < 0.01).all())
    assert bool(((found.interval[:, 0] < truth) & (truth < found.interval[:, 1])).all()), found
    assert found.noise == pytest.approx(1.0, abs=0.2)


def test_uncertainty_of_a_falling_stone_is_that_of_the_straight_line():
    """y is linear in gravity: the covariance has a closed form."""
    simulator = worlds.simulator(worlds.stone)
    path = simulator.rollout(worlds.stone().initial_state(), steps=30)
    observed = Observations.of(path, noise=0.01, generator=torch.Generator().manual_seed(0))
    found = fit(simulator, observed, [Learn("gravity", "y", start=-5.0)])
    n = torch.arange(31, dtype=torch.float64)
    slope = worlds.DT**2 * n * (n + 1) / 2  # semi-implicit steps
    expected = 0.01 / float(slope.norm())
    assert float(found.std) == pytest.approx(expected, rel=1e-9)
    assert (found.interval[0] - found.value).tolist() == pytest.approx([-1.96 * expected, 1.96 * expected], rel=1e-4)


@pytest.mark.parametrize(("freedom", "width"), [(1, 12.706), (2, 4.303), (3, 3.182), (6, 2.447), (30, 2.042)])
def test_few_numbers_make_wide_intervals(freedom, width):
    """Student's distribution, from its table."""
    assert student_width(freedom) == pytest.approx(width, rel=0.01)


def test_a_noise_that_is_not_known_is_taken_from_what_is_left():
    simulator = worlds.simulator(worlds.stone)
    path = simulator.rollout(worlds.stone().initial_state(), steps=30)
    observed = Observations.of(path, noise=0.01, generator=torch.Generator().manual_seed(0))
    known = fit(simulator, observed, ["gravity"])
    unknown = fit(simulator, Observations(observed.time, observed.position), ["gravity"])
    assert torch.allclose(known.value, unknown.value, rtol=1e-9)
    assert unknown.noise == pytest.approx(0.01 * known.noise, rel=1e-9)
    assert torch.allclose(unknown.std, known.std * known.noise, rtol=1e-9)
    half = (unknown.interval[:, 1] - unknown.interval[:, 0]) / 2
    assert torch.allclose(half, student_width(60) * unknown.std, rtol=1e-9)


def test_what_cannot_be_told_apart_has_an_infinite_deviation():
    simulator = worlds.simulator(worlds.ball, impacts=True)
    path = simulator.rollout(worlds.ball().initial_state(), steps=60)
    found = fit(simulator, path, [Learn("restitution", ["ball", "ground"], start=0.5)])
    assert bool(torch.isinf(found.std).all())
    assert found.interval.tolist() == [[0.0, 1.0], [0.0, 1.0]]
    assert float(found.value.mean()) == pytest.approx(0.6, rel=1e-4)  # only their mean acts
    assert "do not tell" in str(found)


def test_what_has_no_influence_stalls():
    simulator = worlds.simulator(worlds.stone)
    path = simulator.rollout(worlds.stone().initial_state(), steps=5)
    observed = Observations(path.time, {"stone": path.position("stone") + 0.1})
    found = fit(simulator, observed, ["mass"])
    assert found.outcome == Outcome.STALLED
    assert math.isinf(found.std)


def test_a_descent_without_bounds_may_diverge_and_says_so():
    observed = observed_chain()
    learn = [Learn("mass", ["link2", "link3"], start=1.0, bounds=None)]
    found = fit_masses(observed, learn=learn, optimizer=GradientDescent(rate=1e4, max_iterations=20))
    assert found.outcome == Outcome.DIVERGED
    assert math.isinf(found.loss)
    assert bool(torch.isinf(found.std).all())


def test_too_few_iterations_are_named():
    found = fit_masses(observed_chain(), optimizer=LevenbergMarquardt(max_iterations=1))
    assert found.outcome == Outcome.MAX_ITERATIONS
    assert found.updates == 1


def test_gradients_are_checked_along_the_way():
    found = fit_masses(observed_chain(), check=True)
    assert found.check
    assert len(found.check.compared) >= 4
    assert found.check.worst < 1e-5
    assert "agree with differences" in str(found)
    descent = fit_masses(observed_chain(), optimizer=GradientDescent(rate=1.0, max_iterations=3), check=True)
    assert [c.update for c in descent.check.compared] == [1, 1, 2, 2, 3, 3]
    assert descent.check.worst < 1e-5


def test_a_wrong_gradient_is_found(monkeypatch):
    from backdrive.identify import optimizers

    right = optimizers.jacobian
    monkeypatch.setattr(optimizers, "jacobian", lambda *args: 1.001 * right(*args))
    found = fit_masses(observed_chain(), check=True)
    assert not found.check
    assert "WRONG" in str(found.check)


def test_a_mode_switch_is_named():
    """In plain stepping the landing of a ball jumps from one step to the next: a difference across has no meaning."""
    simulator = worlds.simulator(worlds.ball)
    path = simulator.rollout(worlds.ball().initial_state(), steps=60)

    def modes(height: float) -> torch.Tensor:
        state = worlds.ball().initial_state()
        return simulator.rollout(bd.State(torch.tensor([0.0, height, 0.0]).double(), state.v), steps=60).status.modes

    low, high = 0.61, 0.65
    for _ in range(40):  # where a step begins to be another one
        middle = (low + high) / 2
        low, high = (middle, high) if torch.equal(modes(middle), modes(low)) else (low, middle)
    learn = [Learn("q0", "ball[1]", start=low)]
    found = fit(simulator, path, learn, optimizer=LevenbergMarquardt(max_iterations=1), check=True)
    assert [c.update for c in found.check.unclear] == [1]
    assert not found.check.wrong
    assert "update 1, start 0, q0 of ball[1]" in str(found.check) and "switched its mode" in str(found.check)


def test_several_environments_with_controls():
    simulator, model = worlds.simulator(worlds.chain), worlds.chain()
    state = model.initial_state(3)
    state = bd.State(state.q + torch.tensor([[0.0], [0.2], [-0.3]]), state.v)
    controls = torch.stack([worlds.controls(model, STEPS, seed=k) for k in range(3)], 1)
    path = simulator.rollout(state, controls)
    learn = [Learn("mass", "link2", start=1.5), Learn("damping", "hinge1", start=0.2)]
    found = fit(simulator, path, learn, state=state, controls=controls)
    assert torch.allclose(found.value, torch.tensor([0.6, 0.05], dtype=torch.float64), rtol=1e-6)


def test_sizes_are_found_by_what_follows_from_them():
    """Of a solid link without contact only the inertia knows how wide it is; here from rates alone."""
    simulator, model = worlds.simulator(worlds.chain), worlds.chain()

    def solid(known):
        size = known["size"].unflatten(-1, (-1, 2))
        return {"inertia": model.parameter("mass") * size.square().sum(-1) / 12.0}

    path = simulator.rollout(model.initial_state(), steps=STEPS)
    seen = Observations(path.time, v=path.v)
    learn = [Learn("size", ["link2.x", "link3.y"], start=0.3)]
    found = fit(simulator, seen, learn, derive=solid)
    assert torch.allclose(found.value, torch.tensor([0.1, 0.5], dtype=torch.float64), rtol=1e-6)
    assert torch.allclose(found.parameters["inertia"], model.parameter("inertia"), rtol=1e-6)
    assert torch.isinf(fit(simulator, seen, learn).std).all()


def test_the_start_is_found():
    simulator, model = worlds.simulator(worlds.chain), worlds.chain()
    path = simulator.rollout(model.initial_state(), steps=STEPS)
    found = fit(simulator, path, [Learn("v0", start=0.5), Learn("q0", "hinge2", start=0.0)])
    assert torch.allclose(found.value, torch.tensor([0.0, 0.0, 0.0, 0.3]).double(), atol=1e-6)


def test_parameters_that_are_given_are_used():
    simulator, model = worlds.simulator(worlds.chain), worlds.chain()
    damping = torch.full((3,), 0.2, dtype=torch.float64)
    path = simulator.rollout(model.initial_state(), steps=STEPS, parameters={"damping": damping})
    found = fit(simulator, path, [Learn("mass", "link3", start=1.0)], parameters={"damping": damping})
    assert float(found.value) == pytest.approx(0.3, rel=1e-6)


def test_it_prints_and_plots_itself(tmp_path):
    import matplotlib

    matplotlib.use("Agg")
    found = fit_masses(observed_chain(noise=0.01))
    text = str(found)
    assert "converged after" in text and "mass of link2" in text and "95 % interval" in text and "kg" in text
    figure = found.plot(truth={"mass of link2": 0.6})
    figure.savefig(tmp_path / "fit.png")
    assert (tmp_path / "fit.png").stat().st_size > 10_000
    with pytest.raises(ValueError, match="did you mean 'mass of link2'"):
        found.plot(truth={"mass of link_2": 0.6})


def test_progress_does_not_change_the_result_nor_the_threads_of_torch():
    threads = torch.get_num_threads()
    shown, hidden = (fit_masses(observed_chain(), progress=progress) for progress in (True, False))
    assert torch.equal(shown.value, hidden.value)
    assert torch.get_num_threads() == threads


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"optimizer": torch.optim.Adam}, TypeError, "a function that makes one"),
        ({"optimizer": 3}, TypeError, "optimizer must be"),
        ({"optimizer": lambda z: z}, TypeError, "torch.optim.Optimizer, got list"),
        ({"windows": 0}, ValueError, "windows"),
        ({"windows": [3.0, 1.0]}, ValueError, "increasing"),
        ({"windows": "all"}, ValueError, "times > 0, in s"),
        ({"starts": 0}, ValueError, "starts"),
        ({"controls": torch.zeros(3, 1).double()}, ValueError, "for 3 steps, but the last observation is after 60"),
        ({"controls": torch.zeros(60, 2).double()}, ValueError, r"controls must be \[T, 1\]"),
        ({"wrenches": torch.zeros(60, 3, 6).double()}, ValueError, r"wrenches must be \[T, 3, 3\]"),
        ({"controls": torch.zeros(60, 1)}, TypeError, "float64"),
        ({"parameters": {"dampin": torch.zeros(3)}}, ValueError, "did you mean 'damping'"),
        ({"parameters": {"damping": torch.zeros(2)}}, ValueError, r"must be a tensor \[3\]"),
        ({"parameters": 3}, TypeError, "mapping"),
        ({"derive": lambda known: 3}, TypeError, "derive must return a mapping"),
        ({"derive": lambda known: {"mass": known["mass"]}}, ValueError, "learned, and derived as well"),
        ({"derive": lambda known: {"inertia": known["mass"][0]}}, ValueError, r"'inertia' as a tensor \[1, 3\]"),
        ({"derive": lambda known: {"inertai": known["mass"]}}, ValueError, "did you mean 'inertia'"),
        ({"state": 3}, TypeError, "State"),
        ({"state": bd.State(torch.zeros(2).double(), torch.zeros(3).double())}, ValueError, r"state.q must be \[3\]"),
        ({"state": bd.State(torch.full((3,), math.nan).double(), torch.zeros(3).double())}, ValueError, "finite"),
    ],
)
def test_bad_input(options, error, message):
    with pytest.raises(error, match=message):
        fit_masses(observed_chain(), **options)


def test_bad_simulators_and_settings():
    with pytest.raises(TypeError, match="Simulator"):
        fit(worlds.chain(), observed_chain(), ["mass"])
    with pytest.raises(TypeError, match="float64"):
        fit(bd.Simulator(worlds.chain(), worlds.DT, dtype=torch.float32), observed_chain(), ["mass"])
    with pytest.raises(ValueError, match="max_iterations"):
        LevenbergMarquardt(max_iterations=0)
    with pytest.raises(ValueError, match="rate"):
        GradientDescent(rate=-1.0)
    learn = [Learn("mass", "link2", start=[[1.0], [2.0]])]
    with pytest.raises(ValueError, match="LBFGS mixes"):
        fit_masses(observed_chain(), learn=learn, optimizer=lambda z: torch.optim.LBFGS(z))


def test_the_code_of_the_page_prints_what_it_says(capsys):
    page = (Path(__file__).parents[3] / "docs" / "identify.md").read_text("utf-8")
    code, expected = re.search(r"```python\n(.*?)```\n\n((?:    [^\n]*\n)+)", page, re.DOTALL).groups()
    exec(code, {})
    printed = capsys.readouterr().out.splitlines()[1:]  # the first line has the time that it took
    assert printed == [line.removeprefix("    ") for line in expected.splitlines()[1:]]


# ---------------------------------------------------------------------------------------------- inertias


@pytest.mark.parametrize("learn", [["inertia"], ["mass", "com", "inertia"]], ids=lambda names: " ".join(names))
@pytest.mark.parametrize("seed", [0, 1])
def test_an_inertia_far_from_the_start(learn, seed):
    """A top spins freely under known forces. Its inertia starts with other axes: steps would lead out of what is
    possible."""
    model, draw = worlds.arm(), np.random.default_rng(seed)
    turn, _ = np.linalg.qr(draw.normal(size=(3, 3)))
    I = turn @ np.diag([0.015, 0.02, 0.025]) @ turn.T
    start = [I[i, j] for i, j in INERTIA_INDEX]
    wrenches = torch.zeros(40, model.nbody, 6, dtype=torch.float64)
    wrenches[:, 2] = 0.1 * torch.from_numpy(draw.normal(size=(40, 6)))
    sim = worlds.simulator(worlds.arm)
    path = sim.rollout(model.initial_state(), steps=40, wrenches=wrenches)
    top = model.q_index("top")
    q = torch.full_like(path.q, torch.nan)
    q[:, top] = path.q[:, top]
    items = [Learn(name, "top", start=start if name == "inertia" else None) for name in learn]
    found = fit(sim, Observations(path.time, q=q), items, wrenches=wrenches, windows=4)
    assert found.outcome == Outcome.CONVERGED, found
    truth = model.parameter("inertia")[2]
    assert (found.parameters["inertia"][2] - truth).abs().max() < 1e-6 * truth.max()
    assert bool((found.interval[-6:, 0] <= truth + 1e-9).all()) and bool((truth - 1e-9 <= found.interval[-6:, 1]).all())


# ---------------------------------------------------------------------------------------------- misfit


def noisy(noise, told, seed):
    """A fit of a chain's masses to a motion with this noise, of which another is told."""
    sim, model = worlds.simulator(worlds.chain), worlds.chain()
    path = sim.rollout(model.initial_state(), steps=30)
    generator = torch.Generator().manual_seed(seed)
    position = {
        body: path.position(body) + noise * torch.randn(31, 2, generator=generator, dtype=torch.float64)
        for body in model.bodies
    }
    return fit(sim, Observations(path.time, position, noise=told), ["damping"])


@settings(max_examples=4, deadline=None)
@given(st.integers(0, 10_000), st.floats(1.5, 5.0))
def test_residuals_above_the_given_noise_are_told(seed, factor):
    with pytest.warns(RuntimeWarning, match=r"the residuals are .* times the given noise"):
        found = noisy(factor * 1e-3, 1e-3, seed)
    assert found.misfit and found.noise_used == "given" and found.noise == pytest.approx(factor, rel=0.3)
    wide = found.widened()
    assert wide.noise_used == "residuals" and "intervals follow from these residuals" in str(wide)
    assert torch.allclose(wide.std, found.noise * found.std, rtol=1e-6)
    assert torch.allclose(wide.covariance, found.noise**2 * found.covariance, rtol=1e-6)
    assert bool((wide.interval[:, 1] > found.interval[:, 1]).all()) and torch.equal(wide.value, found.value)
    assert "widened()" in str(found)
    assert "widened()" not in str(wide) and "no interval means much" in str(wide)


@settings(max_examples=6, deadline=None)
@given(st.integers(0, 10_000))
def test_noise_as_given_is_no_misfit(seed):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = noisy(1e-3, 1e-3, seed)
    assert not found.misfit and "widened" not in str(found)
    assert not noisy(5e-3, None, seed).misfit


@given(st.integers(1, 3000))
@settings(max_examples=40, deadline=None)
def test_the_quantile_of_chi_square(freedom):
    """Against the regularised incomplete gamma function: one in a thousand."""
    low, high = 0.0, 100.0 * freedom + 100.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (low, middle) if significant(middle, freedom) else (middle, high)
    beyond = float(torch.special.gammaincc(torch.tensor(freedom / 2.0).double(), torch.tensor(high / 2.0).double()))
    assert beyond == pytest.approx(1e-3, rel=0.2 if freedom < 20 else 0.05)


def test_a_fit_that_was_stopped_early_is_no_misfit():
    """Its residuals are large because it did not come to its end."""
    sim, model = worlds.simulator(worlds.chain), worlds.chain()
    path = sim.rollout(model.initial_state(), steps=30)
    seen = Observations(path.time, {body: path.position(body) for body in model.bodies}, noise=1e-6)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = fit(sim, seen, [Learn("mass", ["link2"], start=3.0)], optimizer=LevenbergMarquardt(max_iterations=1))
    assert found.noise > 10.0 and not found.misfit
