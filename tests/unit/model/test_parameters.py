import copy
import pickle
import subprocess
import sys

import numpy as np
import pytest
import torch
from records import motor_records

import backdrive.model as bd
from backdrive.schema import layout

CODE = """
import backdrive.model as bd
scene = bd.Scene(dim=3)
scene.add_body("a", bd.Box(0.1, 0.2, 0.3), mass=1.5)
scene.add_body("b", bd.Capsule(0.1, 0.2), mass=0.5, position=(0, 0, 1))
scene.add_body("c", bd.Sphere(0.1), mass=0.7, position=(0, 1, 1))
scene.add_body("d", bd.Sphere(0.1), mass=0.7, position=(1, 1, 1), friction=float("inf"))
scene.add_static(bd.HalfSpace((0, 0, 1), -0.5), restitution=0.5, softness=0.1, name="floor")
scene.add_joint("shoulder", bd.Ball(stiffness=1.0), parent="a", child="b", anchor=(0, 0, 0.5))
scene.add_joint("elbow", bd.Hinge(axis=(1, 1, 0), damping=0.1, limits=(-1, 2)), parent="b", child="c")
scene.add_joint("rail", bd.Slider(axis=(0, 0, 1), armature=0.2, friction=0.3, limits=(None, 1)), parent="c", child="d")
scene.add_motor("servo", bd.PositionServo(kp=10.0, kv=1.0), joint="elbow")
scene.add_motor("speed", bd.VelocityServo(kv=2.0), joint="rail")
scene.add_motor("torque", joint="rail", gear=4.0)
model = scene.build()
"""


def build() -> bd.Model:
    names: dict = {}
    exec(CODE, names)
    return names["model"]


MODEL = build()
NAMES = MODEL.parameters().names


def test_the_table():
    table = MODEL.parameters()
    assert NAMES == (
        "mass", "com", "inertia", "offset", "anchor", "axis", "stiffness", "damping", "armature",
        "reference", "limit_low", "limit_high", "joint_friction", "gear", "kp", "kv",
        "friction", "restitution", "softness", "size", "shape_position", "gravity",
    )  # fmt: skip
    assert [info.name for info in table] == list(NAMES) and len(table) == len(NAMES)
    assert "mass" in table and "mas" not in table and 3 not in table
    assert table["inertia"].shape == (4, 6) and table["inertia"].unit == "kg m^2"
    assert table["damping"].range == ">= 0" and table["kv"].range == ">= 0 | > 0" and table["gear"].range == "not 0"
    assert (
        table["restitution"].range == "between 0 and 1" and table["limit_low"].range == "any number, below limit_high"
    )
    assert table["axis"].rows == ("elbow", "rail")
    assert table["reference"].shape == (MODEL.nq,)
    assert table["reference"].rows[6:9] == ("a[6]", "shoulder[0]", "shoulder[1]")
    header, *lines = str(table).splitlines()
    assert header.split() == ["name", "shape", "unit", "range", "rows"] and len(lines) == len(NAMES)
    assert len({line.index("  ") >= 0 for line in lines}) == 1
    for name in NAMES:
        assert MODEL.parameter(name).shape == table[name].shape


def test_no_constant_belongs_to_two_parameters():
    targets = np.concatenate([info.target for info in MODEL.parameters()])
    assert len(np.unique(targets)) == len(targets)


def test_the_own_parameters_give_the_own_constants():
    everything = {name: MODEL.parameter(name) for name in NAMES}
    np.testing.assert_allclose(MODEL.assemble(everything), MODEL.constants, rtol=1e-15, atol=1e-16)
    assert torch.equal(MODEL.assemble(), torch.tensor(MODEL.constants))


def test_parameters_are_copies():
    MODEL.parameter("mass")[0] = 99.0
    assert MODEL.parameter("mass")[0] == 1.5
    constants = MODEL.assemble()
    constants[0] = 99.0
    assert MODEL.constants[0] == 1.5
    with pytest.raises(ValueError, match="read-only"):
        MODEL.constants[0] = 1.0


@pytest.mark.parametrize("batch", [(), (3,)])
@pytest.mark.parametrize("name", NAMES)
def test_gradients(name, batch):
    """Autograd against the definition: a random linear function of the constants."""
    value = MODEL.parameter(name).expand(*batch, *MODEL.parameters()[name].shape).clone()
    value = value * (1.0 + 0.01 * torch.rand(value.shape, generator=torch.Generator().manual_seed(0)).double())
    value.requires_grad_()
    assert MODEL.assemble({name: value}).shape == (*batch, len(MODEL.constants))
    finite = torch.isfinite(torch.tensor(MODEL.constants))
    assert torch.autograd.gradcheck(lambda x: MODEL.assemble({name: x}, check=False)[..., finite], (value,))


def test_servo_gains_go_to_all_their_places():
    constants = MODEL.assemble({"kp": torch.tensor([7.0]).double(), "kv": torch.tensor([3.0, 4.0]).double()})
    motors = motor_records(MODEL, constants)
    gains = motors[:, layout.GAIN : layout.BIAS + 3].tolist()
    assert gains == [[7.0, 0.0, -7.0, -3.0], [4.0, 0.0, 0.0, -4.0], [1.0, 0.0, 0.0, 0.0]]


def test_shared_and_batched_parameters_mix():
    mass = torch.tensor([[1.0, 1.0, 1.0, 1.0], [2.0, 2.0, 2.0, 2.0]], dtype=torch.float64, requires_grad=True)
    gravity = torch.tensor([0.0, 0.0, -1.0], requires_grad=True)  # float32 is fine
    constants = MODEL.assemble({"gravity": gravity, "mass": mass})
    assert constants.shape == (2, len(MODEL.constants)) and constants.dtype == torch.float64
    down = layout.gravity_start(MODEL.nlink, MODEL.nq, MODEL.nu) + 2
    assert constants[:, 0].tolist() == [1.0, 2.0] and constants[:, down].tolist() == [-1.0, -1.0]
    constants[:, [0, down]].sum().backward()
    assert mass.grad.tolist() == [[1.0, 0.0, 0.0, 0.0]] * 2
    assert gravity.grad.tolist() == [0.0, 0.0, 2.0] and gravity.grad.dtype == torch.float32


def test_axes_are_normalised():
    axis = torch.tensor([[0.0, 3.0, 4.0], [0.0, 0.0, -2.0]], dtype=torch.float64)
    constants = MODEL.assemble({"axis": axis})
    again = constants[MODEL.parameters()["axis"].target].reshape(2, 3)
    np.testing.assert_allclose(again, [[0.0, 0.6, 0.8], [0.0, 0.0, -1.0]], rtol=1e-15)


def test_shapes_and_limits():
    table = MODEL.parameters()
    assert table["friction"].rows == MODEL.shape_names == ("a", "b", "c", "d", "floor")
    assert table["size"].rows == (
        "a.x", "a.y", "a.z", "b.radius", "b.length", "c.radius", "d.radius", "floor.offset",
    )  # fmt: skip
    assert MODEL.parameter("size").tolist() == [0.1, 0.2, 0.3, 0.1, 0.2, 0.1, 0.1, -0.5]
    assert table["shape_position"].rows == ("a", "b", "c", "d") and table["shape_position"].shape == (4, 3)
    assert MODEL.parameter("friction").tolist() == [0.5, 0.5, 0.5, np.inf, 0.5]
    assert MODEL.parameter("softness").tolist() == [0.0, 0.0, 0.0, 0.0, 0.1]
    assert table["limit_low"].rows == ("elbow", "rail") and table["joint_friction"].rows == ("rail",)
    assert MODEL.parameter("limit_low").tolist() == [-1.0, -np.inf]
    assert MODEL.parameter("limit_high").tolist() == [2.0, 1.0]
    both = {"limit_low": torch.tensor([5.0, -np.inf]), "limit_high": torch.tensor([6.0, np.inf])}
    constants = MODEL.assemble(both)
    assert constants[table["limit_high"].target].tolist() == [6.0, np.inf]
    changed_size = MODEL.assemble({"size": MODEL.parameter("size") * 2.0})
    moved = np.flatnonzero(changed_size.numpy() != MODEL.constants)
    assert sorted(moved) == sorted(table["size"].target)  # inertia does not follow


def test_works_under_functional_transforms():
    mass = MODEL.parameter("mass")
    assert torch.func.grad(lambda m: MODEL.assemble({"mass": m})[0] ** 2)(mass).tolist() == [
        3.0,
        0.0,
        0.0,
        0.0,
    ]
    rows = torch.vmap(lambda m: MODEL.assemble({"mass": m}, check=False)[0])(torch.stack([mass, 2 * mass]))
    assert rows.tolist() == [1.5, 3.0]


def changed(name, index, value, batch=None):
    result = MODEL.parameter(name)
    if batch is not None:
        result = result.repeat(batch, *(1,) * result.ndim)
    result[index] = value
    return {name: result}


@pytest.mark.parametrize(
    ("parameters", "error", "message"),
    [
        ({"mas": torch.ones(4)}, ValueError, "unknown parameter 'mas'; did you mean 'mass'"),
        ({"xyz": torch.ones(4)}, ValueError, "unknown parameter 'xyz'; expected one of 'mass', 'com'"),
        ({"mass": [1.0, 2.0]}, TypeError, "must be a torch tensor, got list"),
        ({"mass": torch.ones(4, dtype=torch.int64)}, TypeError, "floating-point dtype, got torch.int64"),
        ({"mass": torch.ones(4, dtype=torch.complex128)}, TypeError, "floating-point dtype"),
        ({"mass": torch.ones(5)}, ValueError, r"'mass' must have shape \[4\].*got \[5\]"),
        ({"mass": torch.ones(())}, ValueError, r"got \[\]"),
        ({"mass": torch.ones(2, 3, 4)}, ValueError, r"got \[2, 3, 4\]"),
        ({"mass": torch.ones(0, 4)}, ValueError, r"got \[0, 4\]"),
        ({"com": torch.zeros(4, 2)}, ValueError, r"must have shape \[4, 3\]"),
        (
            {"mass": torch.ones(2, 4), "com": torch.zeros(3, 4, 3)},
            ValueError,
            "batch sizes differ: .*'mass' has 2",
        ),
        (changed("mass", 1, 0.0), ValueError, "parameter 'mass' of 'b' must be > 0, got 0.0"),
        (changed("mass", (4, 1), -2.0, batch=5), ValueError, r"of 'b' \(environment 4\) must be > 0, got -2"),
        (changed("mass", 1, float("nan")), ValueError, "parameter 'mass' of 'b' must be finite"),
        (changed("com", (2, 1), float("inf")), ValueError, "parameter 'com' of 'c' must be finite"),
        (changed("gravity", 2, float("nan")), ValueError, "parameter 'gravity' of 'z' must be finite"),
        (
            changed("inertia", (2, 0), -1.0),
            ValueError,
            "parameter 'inertia' of 'c' must be positive definite",
        ),
        (changed("inertia", (2, 3), 5.0), ValueError, "'c' must be positive definite"),
        (changed("inertia", (3, 0), 10.0), ValueError, "'d' violates the triangle inequality"),
        (changed("inertia", (1, 3, 0), 10.0, batch=2), ValueError, r"'d' \(environment 1\) violates"),
        (changed("axis", 1, 0.0), ValueError, "parameter 'axis' of 'rail' must not have zero length"),
        (changed("armature", 2, -1.0), ValueError, "parameter 'armature' of 'elbow' must be >= 0"),
        (changed("friction", 1, -0.1), ValueError, "parameter 'friction' of 'b' must be >= 0"),
        (changed("friction", 1, float("nan")), ValueError, "parameter 'friction' of 'b' must be a number"),
        (changed("restitution", 4, 1.1), ValueError, "parameter 'restitution' of 'floor' must be between 0 and 1"),
        (changed("softness", 0, -1.0), ValueError, "parameter 'softness' of 'a' must be >= 0"),
        (changed("softness", 0, float("inf")), ValueError, "must be finite"),
        (changed("size", (1, 1), 0.0, batch=2), ValueError, r"'size' of 'a.y' \(environment 1\) must be > 0"),
        (changed("size", 4, -1.0), ValueError, "'size' of 'b.length' must be > 0"),
        (changed("shape_position", (1, 2), float("nan")), ValueError, "'shape_position' of 'b' must be finite"),
        (changed("joint_friction", 0, -1.0), ValueError, "'joint_friction' of 'rail' must be >= 0"),
        (changed("limit_low", 0, 2.1), ValueError, "'limit_low' of 'elbow' must be below limit_high, got 2.1"),
        (changed("limit_low", 1, float("inf")), ValueError, "'limit_low' of 'rail' must be below"),
        (changed("limit_high", (1, 0), -2.0, batch=2), ValueError, r"'elbow' \(environment 1\) must be below"),
        (changed("limit_high", 0, float("nan")), ValueError, "'limit_high' of 'elbow' must be a number"),
        (changed("reference", slice(7, 11), 0.0), ValueError, "'reference' of 'shoulder.*zero length"),
    ],
)
def test_bad_parameters(parameters, error, message):
    with pytest.raises(error, match=message):
        MODEL.assemble(parameters)


def test_in_the_plane():
    scene = bd.Scene(dim=2)
    scene.add_body("a", bd.Circle(1.0), mass=2.0)
    scene.add_body("b", bd.Circle(1.0), mass=2.0)
    scene.add_joint("rail", bd.Slider(axis=(3, 4)), child="b")
    model = scene.build()
    assert model.parameter("inertia").tolist() == [1.0, 1.0]
    assert model.parameter("gravity").tolist() == [0.0, -9.81]
    np.testing.assert_allclose(model.parameter("axis"), [[0.6, 0.8]])
    constants = model.assemble({"inertia": torch.tensor([[3.0, 4.0]])})
    assert constants[0, layout.INERTIA + 2] == 3.0 and constants.shape[0] == 1
    with pytest.raises(ValueError, match="'inertia' of 'b' must be > 0"):
        model.assemble({"inertia": torch.tensor([1.0, 0.0])})
    with pytest.raises(ValueError, match="unknown parameter 'kp'"):
        model.parameter("kp")


@pytest.mark.parametrize("duplicate", [copy.deepcopy, copy.copy, lambda model: pickle.loads(pickle.dumps(model))])
def test_copies(duplicate):
    other = duplicate(MODEL)
    assert other is not MODEL and other.fingerprint == MODEL.fingerprint
    assert other.bodies == MODEL.bodies and other.shapes == MODEL.shapes
    assert (other.q0 == MODEL.q0).all() and not other.constants.flags.writeable
    assert torch.equal(other.parameter("kv"), MODEL.parameter("kv"))


@pytest.mark.slow
def test_fingerprints():
    assert build().fingerprint == MODEL.fingerprint
    code = CODE + "print(model.fingerprint)"
    output = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=_env())
    assert output.stdout.strip() == MODEL.fingerprint
    names: dict = {}
    exec(CODE.replace("mass=0.5", "mass=0.5000001"), names)
    assert names["model"].fingerprint != MODEL.fingerprint
    exec(
        CODE.replace('scene.add_motor("torque", joint="rail"', 'scene.add_motor("torque", joint="elbow"'),
        names,
    )
    assert names["model"].fingerprint != MODEL.fingerprint
    exec(CODE.replace('"shoulder"', '"hip"'), names)  # names are for people
    assert names["model"].fingerprint == MODEL.fingerprint


def _env() -> dict[str, str]:
    import os

    import backdrive

    root = os.path.dirname(next(iter(backdrive.__path__)))
    return {**os.environ, "PYTHONPATH": root, "PYTHONHASHSEED": "7"}


def test_repr_and_tree():
    assert repr(MODEL) == "Model(dim=3, nbody=4, njoint=4, nq=13, nv=11, nu=3)"
    lines = str(MODEL).splitlines()
    assert [line.split()[0] for line in lines[1:]] == ["a", "b", "c", "d"]
    assert lines[4].startswith(" " * 8 + "d")


def test_thin_rods_and_plates_are_physical():
    """They meet the triangle inequality with equality, whichever way they are turned."""
    turn, _ = np.linalg.qr(np.random.default_rng(0).normal(size=(3, 3)))
    for moments in ([1.0, 1.0, 1e-12], [1.0, 2.0, 3.0], [2e-7, 1e-7, 1e-7]):
        matrix = turn @ np.diag(moments) @ turn.T
        inertia = MODEL.parameter("inertia")
        inertia[0] = torch.tensor([matrix[i, j] for i, j in layout.INERTIA_INDEX])
        MODEL.assemble({"inertia": inertia})
