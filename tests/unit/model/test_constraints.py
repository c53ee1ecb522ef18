"""Joints that close loops, distances, welds, locks: their equations, checked at the poses that they allow."""

import mujoco
import numpy as np
import pytest
from records import equality_records, kinematics

import backdrive.model as bd
from backdrive.schema import layout
from backdrive.schema.layout import EqualityKind, Kind

ALONG, ABOUT, DISTANCE = EqualityKind.ALONG, EqualityKind.ABOUT, EqualityKind.DISTANCE


def violations(model: bd.Model, poses: list[tuple[np.ndarray, np.ndarray]]) -> np.ndarray:
    """What each equation leaves, m or (for small angles) rad, at the poses of the links: the convention spelled out."""
    world = (np.zeros(3), np.eye(3))
    result = []
    for record, kind, links in zip(equality_records(model), model.equality_kind, model.equality_link, strict=True):
        (xa, Ra), (xb, Rb) = (world if link < 0 else poses[link] for link in links)
        a, b, d = (record[start : start + 3] for start in (layout.POINT_A, layout.POINT_B, layout.DIRECTION))
        relative = record[layout.RELATIVE : layout.RELATIVE + 9].reshape(3, 3)
        apart = xb + Rb @ b - xa - Ra @ a
        turn = Ra.T @ Rb @ relative.T
        spin = 0.5 * np.array([turn[2, 1] - turn[1, 2], turn[0, 2] - turn[2, 0], turn[1, 0] - turn[0, 1]])
        value = {
            ALONG: d @ Ra.T @ apart,
            ABOUT: d @ spin,
            DISTANCE: np.linalg.norm(apart) - record[layout.DISTANCE],
        }
        result.append(value[EqualityKind(kind)])
    return np.array(result)


def at_start(model: bd.Model) -> np.ndarray:
    return violations(model, kinematics(model, model.q0))


def random_pose(dim: int, rng: np.random.Generator) -> dict:
    position = rng.normal(size=dim)
    if dim == 2:
        return {"position": position, "angle": rng.normal()}
    quaternion = rng.normal(size=4)
    return {"position": position, "quaternion": quaternion / np.linalg.norm(quaternion)}


def random_coordinates(model: bd.Model, rng: np.random.Generator) -> np.ndarray:
    q = rng.normal(size=model.nq)
    for i, kind in enumerate(model.kind):
        if kind in (Kind.BALL, Kind.FREE):
            end = model.qadr[i] + layout.NQ[kind]
            q[end - 4 : end] /= np.linalg.norm(q[end - 4 : end])
    return q


JOINTS = {
    "hinge 2D": (2, lambda axis: bd.Hinge(), [ALONG] * 2),
    "slider 2D": (2, lambda axis: bd.Slider(axis=axis), [ALONG, ABOUT]),
    "fixed 2D": (2, lambda axis: bd.Fixed(), [ALONG] * 2 + [ABOUT]),
    "hinge": (3, lambda axis: bd.Hinge(axis=axis), [ALONG] * 3 + [ABOUT] * 2),
    "slider": (3, lambda axis: bd.Slider(axis=axis), [ALONG] * 2 + [ABOUT] * 3),
    "ball": (3, lambda axis: bd.Ball(), [ALONG] * 3),
    "fixed": (3, lambda axis: bd.Fixed(), [ALONG] * 3 + [ABOUT] * 3),
}


@pytest.mark.parametrize("parent", [None, "a"])
@pytest.mark.parametrize("name", JOINTS)
def test_a_joint_as_equations_allows_what_the_joint_allows(name, parent):
    """The same scene in both coordinates: wherever the joint moves, its equations hold; elsewhere they do not."""
    dim, make, kinds = JOINTS[name]
    rng = np.random.default_rng(3)
    joint, anchor = make(rng.normal(size=dim)), rng.normal(size=dim)
    poses = [random_pose(dim, rng) for _ in "ab"]
    shape = bd.Circle(0.1) if dim == 2 else bd.Sphere(0.1)
    models = []
    for coordinates in ("reduced", "maximal"):
        scene = bd.Scene(dim=dim, coordinates=coordinates)
        for body, pose in zip("ab", poses, strict=True):
            scene.add_body(body, shape, mass=1.0, **pose)
        scene.add_joint("joint", joint, parent=parent, child="b", anchor=anchor)
        models.append(scene.build())
    tree, loop = models
    assert tree.nequality == 0 and loop.equality_kind.tolist() == kinds
    assert set(loop.equality_names) == {"joint"}
    assert loop.equality_link.tolist() == [[-1 if parent is None else 0, 1]] * len(kinds)
    freedom = 3 if dim == 2 else 6
    assert loop.nv == 2 * freedom and len(kinds) == freedom - layout.NV[joint.kind]
    directions = equality_records(loop)[:, layout.DIRECTION : layout.DIRECTION + 3]
    np.testing.assert_allclose(np.linalg.norm(directions, axis=1), 1.0)
    np.testing.assert_allclose(at_start(loop), 0.0, atol=1e-14)
    for _ in range(5):
        reached = kinematics(tree, random_coordinates(tree, rng))
        np.testing.assert_allclose(violations(loop, reached), 0.0, atol=1e-12)
        elsewhere = kinematics(loop, random_coordinates(loop, rng))
        assert (np.abs(violations(loop, elsewhere)) > 1e-6).all()


def four_bar(dim: int = 2, **last) -> bd.Scene:
    scene = bd.Scene(dim=dim)
    axis = {} if dim == 2 else {"axis": (0, 0, 1)}
    for i, (x, y) in enumerate([(0, 1), (1, 2), (2, 1)]):
        place = (x, y) if dim == 2 else (x, y, 0)
        scene.add_body(f"bar{i}", bd.Box(*(1.0,) * dim), mass=1.0, position=place)
    scene.add_joint("j0", bd.Hinge(**axis), child="bar0", anchor=(0, 0, 0)[:dim])
    scene.add_joint("j1", bd.Hinge(**axis), parent="bar0", child="bar1", anchor=(0, 2, 0)[:dim])
    scene.add_joint("j2", bd.Hinge(**axis), parent="bar1", child="bar2", anchor=(2, 2, 0)[:dim])
    scene.add_joint("j3", bd.Hinge(**axis, **last), child="bar2", anchor=(2, 0, 0)[:dim])
    return scene


def test_a_four_bar_linkage():
    model = four_bar().build()
    assert (model.nv, model.nequality, model.joints) == (3, 2, ("j0", "j1", "j2"))
    assert model.equality_link.tolist() == [[-1, 2]] * 2
    for angle in (0.0, 0.3, -1.0):  # a parallelogram: the middle bar does not turn
        q = np.array([angle, -angle, angle])
        np.testing.assert_allclose(violations(model, kinematics(model, q)), 0.0, atol=1e-14)
    assert np.abs(violations(model, kinematics(model, np.array([0.3, 0.0, 0.0])))).max() > 0.1
    assert four_bar(3).build().nequality == 5


def test_a_ring_closes_once():
    scene = bd.Scene(dim=2)
    for i in range(5):
        scene.add_body(f"b{i}", bd.Circle(0.1), mass=1.0, position=(i, 0))
    for i in range(5):
        scene.add_joint(f"j{i}", bd.Hinge(), parent=f"b{i}", child=f"b{(i + 1) % 5}")
    model = scene.build()
    assert model.nequality == 2 and model.equality_names == ("j4", "j4")
    assert model.nv == 3 + 4 and model.parent.tolist() == [-1, 0, 1, 2, 3]
    np.testing.assert_allclose(at_start(model), 0.0, atol=1e-15)


def test_maximal_coordinates_are_world_poses():
    scene = bd.Scene(dim=2, coordinates="maximal")
    scene.add_body("a", bd.Circle(0.1), mass=1.0, position=(1, 2), angle=0.3, velocity=(4, 5), angular_velocity=6)
    scene.add_body("b", bd.Circle(0.1), mass=1.0, position=(3, 2))
    scene.add_joint("a", bd.Hinge(), child="a")  # a joint may have a body's name: it has no coordinates
    scene.add_joint("fly", bd.Planar(damping=0.1), child="b")  # and this one is the body's own
    scene.add_motor("push", joint="fly", dof="x")
    model = scene.build()
    assert model.q0.tolist() == [1, 2, 0.3, 3, 2, 0] and model.v0.tolist() == [4, 5, 6, 0, 0, 0]
    assert model.joints == ("a", "fly") and model.parameter("damping").tolist() == [0.0, 0.1]
    assert model.equality_names == ("a", "a")


def constrained(constraint: bd.Constraint, dim: int = 2, b: str | None = None, **anchors) -> bd.Model:
    rng = np.random.default_rng(5)
    scene = bd.Scene(dim=dim)
    for name in "abc":
        scene.add_body(name, bd.Circle(0.1) if dim == 2 else bd.Sphere(0.1), mass=1.0, **random_pose(dim, rng))
    scene.add_constraint("it", constraint, a="c", b=b, **anchors)
    return scene.build()


@pytest.mark.parametrize("b", [None, "a"])
@pytest.mark.parametrize("dim", [2, 3])
def test_welds(dim, b):
    model = constrained(bd.Weld(), dim, b)
    assert model.equality_kind.tolist() == [ALONG] * dim + [ABOUT] * (1 if dim == 2 else 3)
    assert set(model.equality_names) == {"it"}
    np.testing.assert_allclose(at_start(model), 0.0, atol=1e-15)
    rng = np.random.default_rng(0)
    poses = kinematics(model, random_coordinates(model, rng))
    assert (np.abs(violations(model, poses)) > 1e-6).all()
    # Moved as one, nothing is violated.
    (x, R), (y, S) = kinematics(model, model.q0)[0], kinematics(model, model.q0)[2]
    base = (np.zeros(3), np.eye(3)) if b is None else (x, R)
    moved = (np.zeros(3), np.eye(3)) if b is None else poses[0]
    poses[2] = (moved[0] + moved[1] @ base[1].T @ (y - base[0]), moved[1] @ base[1].T @ S)
    np.testing.assert_allclose(violations(model, poses), 0.0, atol=1e-14)


@pytest.mark.parametrize(("dim", "coordinate"), [(2, "x"), (2, "y"), (2, "angle"), (3, "x"), (3, "y"), (3, "z")])
def test_locks_to_the_world(dim, coordinate):
    model = constrained(bd.Lock(coordinate), dim)
    assert model.equality_link.tolist() == [[-1, 2]]
    assert model.equality_kind.tolist() == [ABOUT if coordinate == "angle" else ALONG]
    np.testing.assert_allclose(at_start(model), 0.0, atol=1e-15)
    rng = np.random.default_rng(1)
    own = model.q_index("c").start + {"x": 0, "y": 1, "z": 2, "angle": 2}[coordinate]
    q = random_coordinates(model, rng)
    q[own] = model.q0[own]  # all else may change, whichever way the body turns
    np.testing.assert_allclose(violations(model, kinematics(model, q)), 0.0, atol=1e-14)
    q[own] += 0.25
    expected = np.sin(0.25) if coordinate == "angle" else 0.25
    np.testing.assert_allclose(violations(model, kinematics(model, q)), expected, rtol=1e-12)


def test_a_lock_to_another_body_turns_with_it():
    scene = bd.Scene(dim=2)
    scene.add_body("a", bd.Circle(0.1), mass=1.0, position=(1, 2))
    scene.add_body("b", bd.Circle(0.1), mass=1.0, position=(4, 0), angle=np.pi / 2)
    scene.add_constraint("rail", bd.Lock("x"), a="a", b="b")
    model = scene.build()
    assert model.equality_link.tolist() == [[1, 0]]
    free = model.q0.copy()
    free[0] += 3.0  # along b's y
    np.testing.assert_allclose(violations(model, kinematics(model, free)), 0.0, atol=1e-15)
    held = model.q0.copy()
    held[1] += 3.0
    np.testing.assert_allclose(violations(model, kinematics(model, held)), 3.0)


def test_distances():
    model = constrained(bd.Distance(), b="a")
    record = equality_records(model)[0]
    apart = np.linalg.norm(model.q0[6:8] - model.q0[:2])
    assert model.equality_kind.tolist() == [DISTANCE] and record[layout.DISTANCE] == pytest.approx(apart)
    np.testing.assert_allclose(at_start(model), 0.0, atol=1e-15)
    ends = {"anchor_a": (1, 2, 3), "anchor_b": (1, 2, 7)}
    np.testing.assert_allclose(at_start(constrained(bd.Distance(), 3, "b", **ends)), 0.0, atol=1e-14)
    np.testing.assert_allclose(at_start(constrained(bd.Distance(length=3.0), 3, "b", **ends)), 1.0)
    assert constrained(bd.Distance(), anchor_b=(9, 9)).equality_link.tolist() == [[-1, 2]]


def hanging() -> bd.Scene:
    scene = bd.Scene(dim=2)
    for name in "abc":
        scene.add_body(name, bd.Circle(0.1), mass=1.0)
    scene.add_joint("ab", bd.Hinge(), parent="a", child="b")
    return scene


def closing(joint: bd.Joint, **options) -> str:
    return hanging().add_joint("again", joint, parent="c", child="b", **options)


def driven() -> None:
    scene = four_bar()
    scene.add_motor("m", joint="j3")


def maximal(joint: bd.Joint, **options) -> None:
    scene = bd.Scene(dim=2, coordinates="maximal")
    scene.add_body("a", bd.Circle(0.1), mass=1.0)
    scene.add_body("b", bd.Circle(0.1), mass=1.0)
    scene.add_joint("j", joint, **({"child": "a"} | options))


def twice() -> None:
    scene = four_bar()
    scene.add_constraint("j3", bd.Weld(), a="bar0")


@pytest.mark.parametrize(
    ("act", "error", "message"),
    [
        (
            lambda: closing(bd.Hinge(damping=1.0)),
            ValueError,
            "'again': it closes a loop, and a constraint has no damping",
        ),
        (lambda: closing(bd.Hinge(stiffness=1.0, armature=1.0)), ValueError, "has no stiffness, armature"),
        (lambda: closing(bd.Hinge(limits=(0, 1))), ValueError, "has no limits"),
        (lambda: closing(bd.Hinge(friction=1)), ValueError, "has no friction"),
        (lambda: closing(bd.Hinge(), position=0.0), ValueError, "has no position"),
        (lambda: closing(bd.Hinge(), velocity=1.0), ValueError, "has no velocity"),
        (lambda: closing(bd.Planar()), ValueError, "Planar constrains nothing"),
        (driven, ValueError, "motor 'm': joint 'j3' is a constraint"),
        (twice, ValueError, "already a constraint named 'j3'"),
        (lambda: maximal(bd.Hinge(damping=1.0)), ValueError, "with maximal coordinates .* no damping"),
        (lambda: maximal(bd.Hinge(), position=1.0), ValueError, "no position"),
        (lambda: maximal(bd.Planar(), parent="b"), ValueError, "Planar constrains nothing"),
        (lambda: bd.Scene(dim=2, coordinates="minimal"), ValueError, "value of coordinates 'minimal'; did you mean"),
        (lambda: bd.Scene(dim=2, combine="average"), ValueError, "value of combine 'average'"),
        (lambda: bd.Distance(length=0.0), ValueError, "Distance length must be > 0"),
        (lambda: bd.Lock("w"), ValueError, "Lock takes 'x', 'y', 'z' or 'angle'"),
        (lambda: constrained(bd.Lock("z")), ValueError, "no 'z' to lock in 2D"),
        (lambda: constrained(bd.Lock("angle"), 3), ValueError, "no 'angle' to lock in 3D"),
        (lambda: constrained(bd.Weld(), anchor_a=(0, 0)), ValueError, "a Weld has no anchor_a"),
        (lambda: constrained(bd.Lock("x"), anchor_b=(0, 0)), ValueError, "a Lock has no anchor_b"),
        (lambda: constrained(bd.Distance()), ValueError, "give anchor_b"),
        (lambda: constrained(bd.Distance(), b="a", anchor_a=(1, 1), anchor_b=(1, 1)), ValueError, "the same point"),
        (lambda: constrained(bd.Distance(), b="c"), ValueError, "a and b are the same body"),
        (lambda: constrained(bd.Weld(), b="d"), ValueError, "unknown constraint 'it': body b 'd'"),
        (lambda: constrained("weld"), TypeError, "expected a constraint such as Distance"),
        (lambda: bd.Ball(limits=(0, 1)), ValueError, "Ball has no limits: only a Hinge or a Slider"),
        (lambda: bd.Planar(friction=1.0), ValueError, "Planar has no friction"),
        (lambda: bd.Hinge(limits=(1, 0)), ValueError, "Hinge limits must be .* low < high"),
        (lambda: bd.Hinge(limits=(0, 1, 2)), TypeError, "must be a pair"),
        (lambda: bd.Hinge(friction=float("inf")), ValueError, "Hinge friction must be finite"),
    ],
)
def test_bad_constraints(act, error, message):
    with pytest.raises(error, match=message):
        act()


def test_limits_and_friction():
    scene = hanging()
    scene.add_joint("w", bd.Slider(axis=(1, 0), limits=(None, 2), friction=0.5), child="c")
    scene.add_joint("wa", bd.Hinge(limits=(-np.inf, None)), child="a")
    model = scene.build()
    assert model.limit_link.tolist() == model.friction_link.tolist() == [model.joints.index("w")]
    assert model.parameter("limit_low").tolist() == [-np.inf] and model.parameter("limit_high").tolist() == [2.0]
    assert model.parameter("joint_friction").tolist() == [0.5]


EQUALITIES = """<mujoco><worldbody>
  <body name="a" pos="1 2 3" quat=".5 .5 .5 .5"><joint type="slide"/><joint axis="0 1 0"/><geom size=".1"/>
    <site name="s" pos=".1 .2 .3" euler="10 20 30"/></body>
  <body name="b" pos="0 1 0" euler="30 10 0"><freejoint/><geom size=".1"/>
    <site name="t" pos=".5 0 0" euler="0 50 0"/></body>
  <body name="c" pos="0 1 2"><joint type="ball" pos=".1 0 0"/><geom size=".1"/></body></worldbody>
<equality>%s</equality></mujoco>"""


@pytest.mark.parametrize(
    "element",
    [
        '<connect body1="a" body2="b" anchor=".1 .2 .3"/>',
        '<connect body1="c" anchor="1 2 3"/>',
        '<connect site1="s" site2="t"/>',
        '<weld body1="a" body2="b"/>',
        '<weld body1="c" anchor=".1 .2 .3"/>',
        '<weld body1="b" body2="c" relpose="1 2 3 .5 .5 -.5 .5" anchor=".4 .5 .6"/>',
        '<weld site1="s" site2="t"/>',
    ],
)
def test_equalities_of_a_file_are_violated_as_in_mujoco(element):
    text = EQUALITIES % element
    model, compiled = bd.load(text, ignore="contact"), mujoco.MjModel.from_xml_string(text)
    weld = "weld" in element
    assert model.equality_kind.tolist() == [ALONG] * 3 + ([ABOUT] * 3 if weld else [])
    assert bd.load(text, ignore=("contact", "equality")).nequality == 0
    data = mujoco.MjData(compiled)
    rng = np.random.default_rng(0)
    for scale in (0.0, 0.3, 0.3):
        mujoco.mj_integratePos(compiled, data.qpos, scale * rng.normal(size=compiled.nv), 1.0)
        mujoco.mj_forward(compiled, data)
        expected = data.efc_pos[data.efc_type == mujoco.mjtConstraint.mjCNSTR_EQUALITY]
        found = violations(model, kinematics(model, data.qpos))
        assert np.linalg.norm(found[:3]) == pytest.approx(np.linalg.norm(expected[:3]), abs=1e-12)
        if weld:  # MuJoCo has sin(angle / 2), the equations here sin(angle)
            half = np.linalg.norm(expected[3:])
            sine = 2.0 * half * np.sqrt(1.0 - half**2)
            assert np.linalg.norm(found[3:]) == pytest.approx(sine, abs=1e-12)
