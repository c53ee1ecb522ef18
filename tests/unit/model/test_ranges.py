"""A value out of range is refused alike by constructors, scene files and as a parameter, for every parameter."""

import json
import math

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

import backdrive.model as bd
from backdrive.model.ranges import POSITIVE, Range

DEFAULTS = {
    "mass": 1.0, "com": 0.1, "inertia": 0.2, "anchor": 0.0, "axis": 1.0, "stiffness": 0.5, "damping": 0.1,
    "armature": 0.1, "rest": 0.3, "limits": (-1.0, 1.0), "joint_friction": 0.2, "gear": 2.0, "kp": 5.0, "kv": 0.5,
    "velocity_kv": 1.0, "friction": 0.5, "restitution": 0.2, "softness": 0.1, "radius": 0.2, "length": 0.3, "side": 0.4,
    "shape_position": 0.05, "gravity": -9.81, "ground": -5.0,
}  # fmt: skip


def scene(dim=3, **changes) -> bd.Scene:
    """Every kind of parameter, each of which takes its value from one keyword."""
    x = {**DEFAULTS, **changes}
    world = bd.Scene(dim, gravity=(0.0,) * (dim - 1) + (x["gravity"],))
    up = (0.0,) * (dim - 1)
    ball = bd.Circle(x["radius"]) if dim == 2 else bd.Capsule(x["radius"], x["length"])
    inertia = x["inertia"] if dim == 2 else (x["inertia"], 0.2, 0.2)
    world.add_static(bd.HalfSpace((*up, 1.0), x["ground"]), name="ground")
    material = {"friction": x["friction"], "restitution": x["restitution"], "softness": x["softness"]}
    world.add_body("a", mass=x["mass"], com=(x["com"], *up), inertia=inertia, **material)
    world.add_shape("a", ball, position=(x["shape_position"], *up))
    world.add_body("b", bd.Box(*(x["side"], 0.5, 0.6)[:dim]), mass=1.0, position=(2.0, *up))
    options = {name: x[name] for name in ("damping", "stiffness", "armature", "rest", "limits")}
    slider = bd.Slider((x["axis"], *up), friction=x["joint_friction"], **options)
    world.add_joint("j", slider, child="a", anchor=(x["anchor"], *up))
    world.add_joint("k", bd.Slider((1.0, *up)), child="b")
    world.add_motor("servo", bd.PositionServo(kp=x["kp"], kv=x["kv"], gear=x["gear"]), joint="j")
    world.add_motor("speed", bd.VelocityServo(kv=x["velocity_kv"]), joint="k")
    return world


MODELS = {dim: scene(dim).build() for dim in (2, 3)}

PLACES = {
    "mass": ("mass", 0, ("bodies", 0, "mass")), "com": ("com", (0, 0), ("bodies", 0, "com", 0)),
    "anchor": ("anchor", (0, 0), ("joints", 0, "anchor", 0)),
    "stiffness": ("stiffness", 0, ("joints", 0, "stiffness")), "damping": ("damping", 0, ("joints", 0, "damping")),
    "armature": ("armature", 0, ("joints", 0, "armature")), "rest": ("reference", 0, ("joints", 0, "rest")),
    "joint_friction": ("joint_friction", 0, ("joints", 0, "friction")), "gear": ("gear", 0, ("motors", 0, "gear")),
    "kp": ("kp", 0, ("motors", 0, "kp")), "kv": ("kv", 0, ("motors", 0, "kv")),
    "velocity_kv": ("kv", 1, ("motors", 1, "kv")),
    "friction": ("friction", 0, ("bodies", 0, "shapes", 0, "friction")),
    "restitution": ("restitution", 0, ("bodies", 0, "shapes", 0, "restitution")),
    "softness": ("softness", 0, ("bodies", 0, "shapes", 0, "softness")),
    "radius": ("size", 0, ("bodies", 0, "shapes", 0, "radius")), "ground": ("size", -1, ("statics", 0, "offset")),
    "side": ("size", {2: 1, 3: 2}, ("bodies", 1, "shapes", 0, "sizes", 0)),
    "shape_position": ("shape_position", (0, 0), ("bodies", 0, "shapes", 0, "position", 0)),
    "gravity": ("gravity", -1, ("gravity", -1)), "axis": ("axis", (0, 0), ("joints", 0, "axis", 0)),
    "inertia": ("inertia", {2: 0, 3: (0, 0)}, ("bodies", 0, "inertia")),
}  # fmt: skip
"""By keyword: parameter, index of its value, place in a scene file."""

SPECIAL = (0.0, -0.0, -1.0, 0.5, 1.0, 1.0 + 1e-9, -1e-9, 1e-9, math.nan, math.inf, -math.inf, 1e100, 1e101, -1e101)


def refusal(function) -> str | None:
    try:
        function()
    except ValueError as error:
        return str(error)
    return None


def as_parameter(dim, keyword, value, batch=None):
    name, at, _ = PLACES[keyword]
    at = at[dim] if isinstance(at, dict) else at
    x = MODELS[dim].parameter(name)
    if batch is not None:
        x = x.repeat(batch, *(1,) * x.ndim)
        at = (batch - 1, *(at if isinstance(at, tuple) else (at,)))
    x[at] = value
    return lambda: MODELS[dim].assemble({name: x})


def test_every_parameter_is_tried():
    table = MODELS[3].parameters()
    tried = {name for name, _, _ in PLACES.values()} | {"limit_low", "limit_high"}
    assert set(table.names) - tried == {"offset"}  # which follows from positions and anchors
    assert all(info.range for info in table)


@pytest.mark.parametrize("dim", [2, 3])
@pytest.mark.parametrize("keyword", PLACES)
def test_constructors_files_and_parameters_agree(keyword, dim, tmp_path):
    file = tmp_path / "world.json"
    scene(dim).save(file)
    text = file.read_text("utf-8")

    @settings(max_examples=20, deadline=None)
    @given(st.one_of(st.floats(allow_nan=True, allow_infinity=True), st.floats(-3.0, 3.0)))
    def check(value):
        built, given = refusal(lambda: scene(dim, **{keyword: value}).build()), as_parameter(dim, keyword, value)
        assert (built is None) == (refusal(given) is None), (value, built, refusal(given))
        if keyword == "inertia" or not math.isfinite(value):
            return  # (in space, a file has the whole matrix; and JSON has finite numbers only)
        *path, last = PLACES[keyword][2]
        content = entry = json.loads(text)
        for key in path:
            entry = entry[key]
        entry[last] = value
        file.write_text(json.dumps(content), "utf-8")
        assert (refusal(lambda: bd.Scene.load(file).build()) is None) == (built is None), (value, built)

    for value in SPECIAL:
        check = example(value)(check)
    check()


@pytest.mark.parametrize("low", [*SPECIAL, 2.0])
def test_limits(low):
    built = refusal(lambda: scene(limits=(low, 1.0)).build())
    alone = refusal(lambda: MODELS[3].assemble({"limit_low": torch.tensor([low]).double()}))
    assert (built is None) == (alone is None)
    assert (built is None) == (low < 1.0)


@pytest.mark.parametrize("keyword", PLACES)
def test_errors_name_the_row_the_environment_and_the_range(keyword):
    message = refusal(as_parameter(3, keyword, math.nan, batch=4))
    name = PLACES[keyword][0]
    info = MODELS[3].parameters()[name]
    assert message.startswith(f"parameter {name!r} of ") and "(environment 3) must be " in message
    assert "got nan at [3, " in message
    assert ("a number" if name == "friction" else "finite") in message
    for bound in (" >= 0", " > 0", " between 0 and 1"):
        assert (bound in message) == (bound == f" {info.range_of(_row(keyword))}")


def _row(keyword):
    at = PLACES[keyword][1]
    at = at[3] if isinstance(at, dict) else at
    return at[0] if isinstance(at, tuple) else at


@given(st.floats(allow_nan=True), st.sampled_from([Range(), Range(0.0), POSITIVE, Range(excluded=0.0)]))
@settings(max_examples=60, deadline=None)
def test_a_range_of_numbers_and_of_tensors(x, range):
    several = torch.tensor([1.0, x, 2.0], dtype=torch.float64)
    assert range.hold(several) == (x in range) == bool(range.inside(several).all())


def test_loaded_files_are_checked(tmp_path):
    pytest.importorskip("mujoco")
    body = '<body><joint type="hinge" damping="{}"/><geom size="0.1"/></body>'
    file = tmp_path / "world.xml"
    for damping, fine in ((0.1, True), (-0.1, False)):
        file.write_text(f"<mujoco><worldbody>{body.format(damping)}</worldbody></mujoco>")
        assert (refusal(lambda: bd.load(file)) is None) == fine
