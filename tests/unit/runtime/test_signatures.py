"""The kernels' signatures: declared once, and complete."""

import pytest

import backdrive as bd
from backdrive.physics.kernels import FUNCTIONS
from backdrive.runtime.request import Request
from backdrive.schema.signatures import DIFFERENTIABLE, ROLLOUT, SIGNATURES, Role, RolloutSettings
from backdrive.schema.state import NAMES, STATE, state_names

LENGTHS = {"B", "T", "S"}


def ball() -> bd.Model:
    scene = bd.Scene(dim=2)
    scene.add_static(bd.HalfSpace((0, 1)))
    scene.add_body("ball", bd.Circle(0.1), mass=1.0, position=(0.0, 1.0))
    return scene.build()


def test_the_state_has_the_declared_fields():
    assert bd.State._fields == NAMES == ("q", "v")
    model = ball()
    assert all(isinstance(getattr(model, size), int) for field in STATE for size in (field.size, field.tangent))
    assert state_names("path_", "_bar") == ("path_q_bar", "path_v_bar")


def test_every_form_has_a_signature():
    assert FUNCTIONS.keys() == SIGNATURES.keys()
    assert all(signature.form == form for form, signature in SIGNATURES.items())


@pytest.mark.parametrize("form", [signature.form for signature in SIGNATURES.values() if signature.adjoint])
def test_adjoints_have_a_cotangent_of_every_differentiable_argument(form):
    signature = SIGNATURES[form]
    adjoints = [SIGNATURES[name] for name in (signature.adjoint, signature.segment_adjoint) if name]
    assert bool(signature.segment_adjoint) == signature.rollout
    for adjoint in adjoints:
        assert [a.name for a in adjoint.writes] == [f"{a.name}_bar" for a in signature.reads]
        read = [a.name for a in adjoint.reads if a.role is Role.COTANGENT]
        assert read == [f"{a.name}_bar" for a in signature.writes if a.role is Role.OUTPUT]


def test_axes_are_lengths_and_sizes_of_the_model():
    program = bd.Simulator(ball(), 0.01)._program
    for signature in SIGNATURES.values():
        for argument in signature.arguments.values():
            for axis in set(argument.axes) - LENGTHS - {"ninput", "nweight"}:
                assert program.size(axis) >= 0
            assert argument.role is Role.PARAMETER or argument.batch_axis == len(argument.axes) - 2


def test_the_path_is_a_result_only_if_it_is_wanted():
    names = [a.name for a in ROLLOUT.results(RolloutSettings(3))]
    assert names == ["path_q", "path_v", "last_q", "last_v", "status", "solution"]
    assert [a.name for a in ROLLOUT.results(RolloutSettings(3, 3, 0, 0))] == names[2:]


def test_settings():
    settings = RolloutSettings(7, every=3)
    assert (settings.segments, settings.cut) == (3, 8)
    assert RolloutSettings(7, truncate=2).cut == 2
    assert RolloutSettings(7, truncate=2**63).cut == 8
    assert ROLLOUT.parse([7, 3, 0, 1]) == settings
    with pytest.raises(ValueError, match=r"settings are \[7\], expected steps, every, truncate, path"):
        ROLLOUT.parse([7])


def test_unknown_forms_and_inputs():
    program = bd.Simulator(ball(), 0.01)._program
    with pytest.raises(ValueError, match="there is no form 'roll'; expected one of"):
        Request.parse("roll", "q,v", program.number, "", [])
    for signature in DIFFERENTIABLE:
        settings = [1, 1, 0, 0] if signature.rollout else []
        request = Request.parse(signature.form, "q,v", program.number, "", settings)
        assert request.signature is signature
