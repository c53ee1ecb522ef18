"""Scene and state files: what goes out comes in again, bit by bit; what is wrong is named; nothing is executed."""

import contextlib
import json
import math
from dataclasses import fields

import numpy as np
import pytest
import torch

import backdrive.model as bd
from backdrive.model.files import read


def random_scene(seed: int, dim: int, coordinates: str = "reduced") -> bd.Scene:
    """Something of everything, with numbers that have all their digits."""
    rng = np.random.default_rng(seed)

    def vector(n: int = dim, size: float = 2.0) -> list[float]:
        return (size * rng.standard_normal(n)).tolist()

    def turn() -> dict:
        if dim == 2:
            return {"angle": float(9.0 * rng.standard_normal())}
        q = rng.standard_normal(4)
        return {"quaternion": (q / np.linalg.norm(q)).tolist()}

    def shape() -> bd.Shape:
        size = rng.uniform(0.1, 0.5, 3).tolist()
        if dim == 2:
            corners = [(size[0], 0.1), (-0.1, size[1]), (-size[2], -0.2), (0.1, -0.3)]
            return [bd.Circle(size[0]), bd.Box(*size[:2]), bd.Polygon(corners[::-1])][rng.integers(3)]
        points = rng.standard_normal((9, 3)).tolist()
        shapes = [bd.Sphere(size[0]), bd.Box(*size), bd.Capsule(*size[:2]), bd.Cylinder(*size[:2]), bd.Convex(points)]
        return shapes[rng.integers(5)]

    scene = bd.Scene(dim, vector(), combine=str(rng.choice(["mean", "max", "min"])), coordinates=coordinates)
    tree = coordinates == "reduced"
    for i in range(3):
        scene.add_static(bd.HalfSpace(vector(), float(rng.normal())), position=vector(), **turn(), friction=math.inf)
        scene.add_static(
            shape(), position=vector(), **turn(), restitution=rng.uniform(), softness=1e-3, name=f"wall {i}"
        )
    names = [f"body-{i} ü" for i in range(7)]
    for i, name in enumerate(names):
        weight = {"mass": float(rng.uniform(0.1, 3))} if i % 2 else {"density": float(rng.uniform(0.1, 3))}
        free = i >= 4 or not tree
        moves = {"velocity": vector(), "angular_velocity": vector(3) if dim == 3 else 1.7} if free and i != 5 else {}
        inertia = {"inertia": (1.0, 1.5, 2.0) if dim == 3 else 0.3, "com": vector()} if i == 3 else {}
        scene.add_body(name, [shape(), shape()], position=vector(), **turn(), **weight, **moves, **inertia)
        if i % 3 == 0:
            scene.add_shape(name, shape(), position=vector(), **turn(), friction=float(rng.uniform()))
    axis = {} if dim == 2 else {"axis": vector()}
    drive = {"damping": 0.1, "stiffness": 0.2, "rest": -0.0, "armature": 0.3, "limits": (None, 1.1), "friction": 0.01}
    start = {"position": 0.3, "velocity": -0.7}
    scene.add_joint(
        "hinge", bd.Hinge(**axis, **(drive if tree else {})), child=names[0], anchor=vector(), **(start if tree else {})
    )
    scene.add_joint(
        "slider", bd.Slider(axis=vector(), **({"rest": 0.2} if tree else {})), parent=names[0], child=names[1]
    )
    if dim == 3:
        position = {"position": turn()["quaternion"]} if tree else {}
        scene.add_joint("ball", bd.Ball(), parent=names[1], child=names[2], anchor=vector(), **position)
    scene.add_joint("weld", bd.Fixed(), parent=names[1], child=names[3])
    scene.add_joint("loop", bd.Hinge(**axis), parent=names[0], child=names[3], anchor=vector())
    if dim == 2:
        scene.add_joint("plane", bd.Planar(damping=0.2, rest=vector(3)), child=names[4])
        scene.add_motor("push", bd.VelocityServo(kv=1.5, force_limits=(-2, None)), joint="plane", dof="angle")
        scene.add_motor("pull", joint=names[5], dof="y", gear=-2.0, limits=(-1, 1))
    if tree:
        scene.add_motor("turn", bd.PositionServo(kp=3.3, kv=0.1, gear=7.0), joint="hinge")
    scene.add_constraint("rod", bd.Distance(), a=names[4], b=names[5], anchor_a=vector(), anchor_b=vector())
    scene.add_constraint("rope", bd.Distance(2.5), a=names[6], anchor_b=vector())
    scene.add_constraint("rigid", bd.Weld(), a=names[5], b=names[6])
    scene.add_constraint("lock", bd.Lock("y"), a=names[6], anchor_a=vector())
    scene.exclude(names[0], names[4])
    scene.exclude("wall 1", names[5])
    return scene


def assert_same(a: bd.Model, b: bd.Model) -> None:
    for f in fields(a):
        x, y = getattr(a, f.name), getattr(b, f.name)
        if isinstance(x, np.ndarray):
            assert x.dtype == y.dtype and x.shape == y.shape and x.tobytes() == y.tobytes(), f.name
        else:
            assert repr(x) == repr(y), f.name


@pytest.mark.parametrize("coordinates", ["reduced", "maximal"])
@pytest.mark.parametrize("dim", [2, 3])
@pytest.mark.parametrize("seed", range(5))
def test_scenes_come_back_bit_by_bit(tmp_path, seed, dim, coordinates):
    scene = random_scene(seed, dim, coordinates)
    file, again = tmp_path / "world.json", tmp_path / "again.json"
    scene.save(file)
    back = bd.Scene.load(file)
    assert_same(scene.build(), back.build())
    assert scene.build().fingerprint == back.build().fingerprint
    back.save(again)
    assert file.read_bytes() == again.read_bytes()
    assert_same(scene.build(), bd.load(file))
    assert not list(tmp_path.glob(".*"))


def test_the_design_example_reads_well(tmp_path):
    scene = bd.Scene(dim=2)
    scene.add_static(bd.HalfSpace(normal=(0, 1)), friction=0.5)
    scene.add_body("ball", bd.Circle(0.2), mass=1.0, position=(0.0, 2.0), velocity=(3.0, 0.0), restitution=0.8)
    scene.save(tmp_path / "world.json")
    lines = (tmp_path / "world.json").read_text("utf-8").splitlines()
    assert lines[1:4] == ['  "format": "backdrive-scene",', '  "version": 1,', '  "dim": 2,']
    assert max(map(len, lines)) < 260 and len(lines) == 14
    assert json.loads("\n".join(lines))["bodies"][0]["shapes"] == [{"type": "Circle", "radius": 0.2}]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("batch", [None, 3])
def test_states_come_back_bit_by_bit(tmp_path, dtype, batch):
    generator = torch.Generator().manual_seed(0)
    shape = () if batch is None else (batch,)
    q, v = (torch.randn(*shape, n, generator=generator, dtype=torch.float64).to(dtype) for n in (5, 4))
    q[..., 0] = -0.0
    bd.State(q, v).save(tmp_path / "state.json")
    back = bd.State.load(tmp_path / "state.json")
    assert back.q.dtype == dtype and back.q.shape == q.shape
    assert back.q.numpy().tobytes() == q.numpy().tobytes() and back.v.numpy().tobytes() == v.numpy().tobytes()


def test_states_without_coordinates_and_bad_states(tmp_path):
    file = tmp_path / "state.json"
    bd.State(torch.zeros(0), torch.zeros(0)).save(file)
    assert bd.State.load(file).q.shape == (0,)
    with pytest.raises(ValueError, match=r"state\.v has NaN"):
        bd.State(torch.zeros(1), torch.tensor([math.nan])).save(file)
    for content, message in (
        ({"q": [1.0]}, "v is missing"),
        ({"q": [1, [2]], "v": [1]}, r"q\[0\] must be a list"),
        ({"q": [[1], [2, 3]], "v": [[1], [2]]}, r"q\[1\] must have 1 elements, got 2"),
        ({"q": [[1], [2]], "v": [[1]]}, r"q and v must have the same batch"),
        ({"q": [1], "v": ["1"]}, r"v\[0\] must be a number, got '1'"),
        ({"q": [1], "v": [1], "dtype": "object"}, "dtype: expected"),
        ({"q": [1], "v": [1], "w": [1]}, "unknown key 'w'"),
    ):
        file.write_text(json.dumps({"format": "backdrive-state", "version": 1, **content}))
        with pytest.raises(ValueError, match=message):
            bd.State.load(file)
    random_scene(0, 2).save(file)
    with pytest.raises(ValueError, match="not a backdrive state: .* its format is 'backdrive-scene'"):
        bd.State.load(file)


def small() -> dict:
    ball = {"name": "ball", "mass": 1.0, "position": [0, 1], "shapes": [{"type": "Circle", "radius": 0.1}]}
    return {
        "format": "backdrive-scene", "version": 1, "dim": 2,
        "statics": [{"name": "ground", "type": "HalfSpace", "normal": [0, 1]}],
        "bodies": [dict(ball), {**ball, "name": "other", "position": [1, 1]}],
        "joints": [{"name": "j", "type": "Hinge", "parent": "ball", "child": "other"}],
        "motors": [{"name": "m", "type": "Motor", "joint": "j"}],
    }  # fmt: skip


def changed(*path_and_value) -> dict:
    """The small scene with one value replaced, or (``del``) removed."""
    *path, value = path_and_value
    scene = small()
    inner = scene
    for key in path[:-1]:
        inner = inner[key]
    if value is del_:
        del inner[path[-1]]
    elif isinstance(inner, list) and path[-1] == "+":
        inner.append(value)
    else:
        inner[path[-1]] = value
    return scene


del_ = object()
DEEP: list = []
for _ in range(200):
    DEEP = [DEEP]

BAD = [
    (("bodies", 1, "mass", -1), r"bodies\[1\]\.mass must be > 0, got -1"),
    (("bodies", 1, "mass", "1"), r"bodies\[1\]\.mass must be a number, got '1'"),
    (("bodies", 1, "mass", True), r"bodies\[1\]\.mass must be a number, got True"),
    (("bodies", 1, "mass", None), r"bodies\[1\]\.mass must be a number, got None"),
    (
        ("bodies", 1, "mass", 1e200),
        r"bodies\[1\]\.mass must be finite and > 0 \(at most 1e\+100 in magnitude\), got 1e\+200",
    ),
    (("bodies", 1, "mass", 10**400), r"bodies\[1\]\.mass must be finite and > 0, got inf"),
    (("bodies", 1, "mass", DEEP), r"bodies\[1\]\.mass must be a number, got \[\[\["),
    (("bodies", 1, "mass", del_), r"bodies\[1\]: body 'other': give either mass or density"),
    (("bodies", 1, "mas", 1.0), r"bodies\[1\]: unknown key 'mas'; did you mean 'mass'\?"),
    (("bodies", 1, "name", "ball"), r"bodies\[1\]: there is already a body named 'ball'"),
    (("bodies", 1, "name", 3), r"bodies\[1\]\.name must be a text, got 3"),
    (("bodies", 1, "name", del_), r"bodies\[1\]\.name is missing"),
    (("bodies", 1, "position", [1, 2, 3]), r"bodies\[1\]\.position must have 2 elements, got 3"),
    (("bodies", 1, "position", [1, "x"]), r"bodies\[1\]\.position\[1\] must be a number, got 'x'"),
    (("bodies", 1, "restitution", 1.5), r"bodies\[1\]\.restitution must be between 0 and 1, got 1\.5"),
    (("bodies", 1, "friction", "huge"), r"bodies\[1\]\.friction must be a number, got 'huge'"),
    (("bodies", 1, "quaternion", [1, 0, 0, 0]), r"bodies\[1\]: unknown key 'quaternion'"),
    (("bodies", 1, []), r"bodies\[1\] must be an object \{\.\.\.\}, got \[\]"),
    (("bodies", {}), r"bodies must be a list, got \{\}"),
    (("bodies", 0, "shapes", 0, "radius", 0), r"bodies\[0\]\.shapes\[0\]\.radius must be > 0, got 0"),
    (
        ("bodies", 0, "shapes", 0, "type", "Circel"),
        r"shapes\[0\]\.type: unknown type 'Circel'; did you mean 'Circle'\?",
    ),
    (("bodies", 0, "shapes", 0, "type", "os.system"), r"shapes\[0\]\.type: unknown type 'os.system'"),
    (("bodies", 0, "shapes", 0, {"radius": 1}), r"shapes\[0\]\.type is missing: one of Circle, Box"),
    (("bodies", 0, "shapes", 0, {"type": "Box"}), r"shapes\[0\]\.sizes is missing"),
    (("bodies", 0, "shapes", 0, {"type": "Sphere", "radius": 1}), r"shapes\[0\]: body 'ball': Sphere is 3D"),
    (("bodies", 0, "shapes", 0, {"type": "Polygon", "vertices": [[0, 0], [1, 0]]}), r"shapes\[0\]: Polygon vertices"),
    (("bodies", 0, "shapes", 0, {"type": "Convex", "file": "../../etc/passwd"}), r"shapes\[0\]: unknown key 'file'"),
    (("statics", 0, "normal", [0, 0]), r"statics\[0\]: HalfSpace normal must not have zero length"),
    (("joints", 0, "child", "othr"), r"joints\[0\]: joint 'j': child body|did you mean 'other'"),
    (("joints", 0, "child", del_), r"joints\[0\]\.child is missing"),
    (("joints", 0, "type", "Slider"), r"joints\[0\]\.axis is missing"),
    (("joints", 0, "limits", [1, 0]), r"joints\[0\]: Hinge limits must be \(low, high\)"),
    (("joints", 0, "limits", [1]), r"joints\[0\]\.limits must be \[low, high\], got 1 elements"),
    (("motors", 0, "joint", "k"), r"motors\[0\]: motor 'm': unknown joint 'k'"),
    (("motors", 0, "type", "PositionServo"), r"motors\[0\]\.kp is missing"),
    (("exclude", [["ball"]]), r"exclude\[0\] must be a pair of names"),
    (("exclude", [["ball", "grund"]]), r"exclude\[0\]: unknown body 'grund'"),
    (("exclude", [["ball", 1]]), r"exclude\[0\]\[1\] must be a text"),
    (("constraints", [{"name": "c", "type": "Lock", "a": "ball"}]), r"constraints\[0\]\.coordinate is missing"),
    (("gravity", [0, 0, 0]), r"gravity must have 2 elements, got 3"),
    (("combine", "product"), r"unknown value of combine 'product'"),
    (("dim", 2.5), r"dim must be 2 or 3, got 2\.5"),
    (("dim", True), r"dim must be 2 or 3, got True"),
    (("dim", del_), r"dim must be 2 or 3, got None"),
    (("version", 2), r"version: this backdrive reads version 1, got 2"),
    (("format", "blender"), r"not a backdrive scene: .* its format is 'blender'"),
    (("format", del_), r"not a backdrive scene: .* it has no format"),
    (("bodys", []), r"world\.json: unknown key 'bodys'; did you mean 'bodies'\?"),
    (("__class__", "os.system"), r"unknown key '__class__'"),
]


@pytest.mark.parametrize(("change", "message"), BAD, ids=[message[:40] for _, message in BAD])
def test_what_is_wrong_is_named_with_its_place(tmp_path, change, message):
    file = tmp_path / "world.json"
    file.write_text(json.dumps(small()))
    assert bd.load(file).nbody == 2
    file.write_text(json.dumps(changed(*change)))
    for load in (bd.Scene.load, bd.load):
        with pytest.raises(ValueError, match=message) as caught:
            load(file)
        assert str(caught.value).startswith(str(file)) and len(str(caught.value)) < 600


def test_truncated_files_say_where_they_end(tmp_path):
    file = tmp_path / "world.json"
    random_scene(1, 2).save(file)
    text = file.read_text("utf-8")
    for end in range(0, len(text) - 2, 97):
        file.write_text(text[:end], "utf-8")
        with pytest.raises(ValueError, match=r"world\.json: line \d+, column \d+: not valid JSON"):
            bd.Scene.load(file)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "line 1, column 1: not valid JSON .*it is cut off"),
        (b"\x80\x04\x95", "byte 0 is not UTF-8"),
        (b"<mujoco/>", "line 1, column 1: not valid JSON"),
        (b"[1, 2]", "not a backdrive scene: .* it has no format"),
        (b'{"format": "backdrive-scene", "version": 1, "dim": NaN}', "NaN is no number of JSON"),
        (b'{"format": "backdrive-scene", "version": 1, "dim": 2, "dim": 3}', "key 'dim' is given twice"),
        (
            b'{"format": "backdrive-scene", "version": ' + b"9" * 10_000 + b"}",
            "version: this backdrive reads version 1",
        ),
        (b"[" * 200_000, "nested too deeply"),
    ],
)
def test_foreign_and_malicious_files(tmp_path, data, message):
    file = tmp_path / "world.json"
    file.write_bytes(data)
    with pytest.raises(ValueError, match=message):
        bd.Scene.load(file)


def test_random_damage_never_does_anything_but_raise(tmp_path):
    """Cut, doubled or replaced characters: an error of the loader, or a scene."""
    file = tmp_path / "world.json"
    random_scene(2, 2).save(file)
    text = file.read_text("utf-8")
    rng = np.random.default_rng(0)
    loaded = 0
    for _ in range(150):
        at, size = rng.integers(len(text)), rng.integers(1, 4)
        new = "".join(rng.choice(list('0179.-e"[]{},:ntx '), size=rng.integers(0, 4)))
        file.write_text(text[:at] + new + text[at + size :], "utf-8")
        with contextlib.suppress(ValueError):  # any other error fails the test
            bd.Scene.load(file)
            loaded += 1
    assert loaded < 100


def test_what_a_file_cannot_have_is_not_written(tmp_path):
    file = tmp_path / "world.json"
    scene = bd.Scene(dim=2)
    scene.add_body("ball", bd.Circle(0.1), mass=1.0, friction=1e150)
    with pytest.raises(ValueError, match=r"a file cannot have numbers above 1e\+100"):
        scene.save(file)
    assert not file.exists()
    with pytest.raises(FileNotFoundError, match="no such file"):
        bd.Scene.load(file)
    scene = bd.Scene(dim=2)
    scene.add_body("a", bd.Circle(0.1), mass=1.0)
    scene.save(file)
    with pytest.raises(ValueError, match="for XML files"):
        bd.load(file, floating=True)


def test_huge_files_are_refused(tmp_path, monkeypatch):
    file = tmp_path / "world.json"
    random_scene(0, 2).save(file)
    monkeypatch.setattr(read, "LARGEST_FILE", 100)
    with pytest.raises(ValueError, match="larger than"):
        bd.Scene.load(file)


def test_a_body_and_a_static_shape_can_be_kept_apart():
    def pairs(*excluded: tuple[str, str]) -> int:
        scene = bd.Scene(dim=2)
        scene.add_static(bd.HalfSpace((0, 1)), name="ground")
        scene.add_static(bd.Box(1, 1), name="box")
        scene.add_body("a", [bd.Circle(0.1), bd.Box(0.1, 0.1)], mass=1.0)
        scene.add_body("b", bd.Circle(0.1), mass=1.0)
        for pair in excluded:
            scene.exclude(*pair)
        return scene.build().npair

    assert pairs() == 8
    assert pairs(("a", "ground")) == 6 and pairs(("ground", "a")) == 6
    assert pairs(("a", "ground"), ("b", "box")) == 5 and pairs(("a", "b")) == 6
