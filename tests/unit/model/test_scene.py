import math

import numpy as np
import pytest
import torch
from records import motor_records

import backdrive.model as bd
from backdrive.model import Kind
from backdrive.schema import layout

INF = math.inf


def example() -> bd.Model:
    """What DESIGN.md promises a user can write."""
    scene = bd.Scene(dim=2, gravity=(0.0, -9.81))
    scene.add_static(bd.HalfSpace(normal=(0, 1)), friction=0.5)
    ball = scene.add_body(
        "ball", bd.Circle(radius=0.2), mass=1.0,
        position=(0.0, 2.0), velocity=(3.0, 0.0), restitution=0.8, friction=0.3,
    )  # fmt: skip
    link = scene.add_body("link", bd.Box(0.6, 0.1), mass=0.7, position=(2.0, 1.0), angle=0.0)
    hinge = scene.add_joint("hinge", bd.Hinge(), parent=None, child=link, anchor=(2.0, 1.5))
    scene.add_motor("motor", joint=hinge, gear=1.0, limits=(-5, 5))
    assert ball == "ball"
    return scene.build()


def test_the_design_example():
    model = example()
    assert (model.dim, model.nq, model.nv, model.nu, model.nbody, model.njoint) == (2, 4, 4, 1, 2, 2)
    assert (model.bodies, model.joints, model.motors) == (("ball", "link"), ("ball", "hinge"), ("motor",))
    assert model.kind.tolist() == [Kind.PLANAR, Kind.HINGE]
    assert model.parent.tolist() == [-1, -1]
    state = model.initial_state(batch=128)
    assert state.q.shape == (128, 4) and state.v.shape == (128, 4) and state.batch_shape == (128,)
    assert state.q[7].tolist() == [0.0, 2.0, 0.0, 0.0]
    assert state.v[7].tolist() == [3.0, 0.0, 0.0, 0.0]
    assert model.parameter("mass").tolist() == [1.0, 0.7]
    assert model.parameter("offset").tolist() == [[0.0, 0.0], [2.0, 1.0]]
    assert model.parameter("anchor").tolist() == [[0.0, 0.0], [0.0, 0.5]]
    assert motor_records(model)[0].tolist() == [1.0, 1.0, 0.0, 0.0, 0.0, -5.0, 5.0, -INF, INF]
    assert model.gravity.tolist() == [0.0, -9.81]
    assert model.shapes[0][0].restitution == 0.8 and model.statics[0].friction == 0.5
    assert model.timestep is None
    assert str(model).splitlines()[1].split() == ["ball", "planar", "'ball'", "1", "kg"]


def test_default_gravity_points_down():
    assert bd.Scene(dim=2).gravity == (0.0, -9.81)
    assert bd.Scene(dim=3).gravity == (0.0, 0.0, -9.81)


def test_poses_are_relative_to_the_parent():
    scene = bd.Scene(dim=3)
    half = math.sqrt(0.5)
    scene.add_body("tip", bd.Sphere(0.1), mass=1.0, position=(1.0, 3.0, 0.0))
    scene.add_body("arm", bd.Sphere(0.1), mass=1.0, position=(1.0, 2.0, 0.0), quaternion=(half, 0, 0, half))
    scene.add_joint("elbow", bd.Slider(axis=(0, 2, 0)), parent="arm", child="tip", position=0.3, velocity=-1.0)
    scene.add_joint("base", bd.Hinge(axis=(0, 1, 0)), child="arm", anchor=(1.0, 2.0, 0.5), position=0.2)
    model = scene.build()
    # The parent comes first although it was added last.
    assert model.bodies == ("arm", "tip") and model.joints == ("base", "elbow")
    assert model.parent.tolist() == [-1, 0]
    np.testing.assert_allclose(model.parameter("offset")[1], [1.0, 0.0, 0.0], atol=1e-15)
    np.testing.assert_allclose(model.parameter("anchor")[0], [0.0, 0.0, 0.5], atol=1e-15)
    np.testing.assert_allclose(model.parameter("axis"), [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]], atol=1e-15)
    start = layout.link_start(1) + layout.ROTATION
    turn_back = [[0, 1, 0], [-1, 0, 0], [0, 0, 1]]
    np.testing.assert_allclose(model.constants[start : start + 9].reshape(3, 3), turn_back, atol=1e-15)
    assert model.q0.tolist() == [0.2, 0.3] and model.v0.tolist() == [0.0, -1.0]


def test_free_bodies_start_where_they_were_put():
    scene = bd.Scene(dim=3)
    half = math.sqrt(0.5)
    scene.add_body("box", bd.Box(1, 1, 1), mass=2.0, position=(1, 2, 3), quaternion=(half, half, 0, 0),
                   velocity=(4, 5, 6), angular_velocity=(0, 0, 7))  # fmt: skip
    model = scene.build()
    np.testing.assert_allclose(model.q0, [1, 2, 3, half, half, 0, 0])
    np.testing.assert_allclose(model.v0, [4, 5, 6, 0, 7, 0], atol=1e-14)  # the spin, in the body's axes
    np.testing.assert_allclose(model.parameter("reference"), model.q0)


def test_a_planar_joint_to_the_world_has_the_pose_as_coordinates():
    scene = bd.Scene(dim=2)
    scene.add_body("cart", bd.Box(1, 1), mass=1.0, position=(1, 2), angle=7.0, velocity=(3, 4), angular_velocity=5)
    scene.add_joint("float", bd.Planar(damping=0.3), child="cart")
    model = scene.build()
    assert model.joints == ("float",)
    assert model.q0.tolist() == [1.0, 2.0, 7.0] and model.v0.tolist() == [3.0, 4.0, 5.0]
    assert model.parameter("offset").tolist() == [[0.0, 0.0]]
    assert model.parameter("damping").tolist() == [0.3]


def test_a_planar_joint_in_space_starts_from_the_given_pose():
    scene = bd.Scene(dim=3)
    scene.add_body("puck", bd.Cylinder(0.1, 0.1), mass=1.0, position=(0, 0, 2))
    scene.add_joint("table", bd.Planar(), child="puck", position=(0.1, 0.2, 0.3))
    model = scene.build()
    assert model.parameter("offset").tolist() == [[0.0, 0.0, 2.0]]
    assert model.q0.tolist() == [0.1, 0.2, 0.3]


def test_springs_and_given_mass_properties():
    scene = bd.Scene(dim=3)
    scene.add_body("a", mass=2.0, inertia=(0.1, 0.2, 0.25), com=(0, 0, -1))
    scene.add_joint("ball", bd.Ball(stiffness=3.0, rest=(0, 1, 0, 0), armature=0.1), child="a")
    scene.add_body("b", bd.Sphere(0.1), mass=2.0, inertia=(0.1, 0.2, 0.25, 0.01, 0.02, 0.03))
    scene.add_joint("hinge", bd.Hinge(axis=(0, 0, 1), stiffness=1.0, rest=0.5), parent="a", child="b")
    model = scene.build()
    assert model.parameter("reference").tolist() == [0, 1, 0, 0, 0.5]
    assert model.parameter("com")[0].tolist() == [0, 0, -1]
    assert model.parameter("inertia").tolist() == [
        [0.1, 0.2, 0.25, 0, 0, 0],
        [0.1, 0.2, 0.25, 0.01, 0.02, 0.03],
    ]
    assert model.parameter("armature").tolist() == [0.1, 0.0]


def test_a_fixed_joint_has_no_coordinates():
    scene = bd.Scene(dim=2)
    scene.add_body("a", bd.Circle(0.1), mass=1.0)
    scene.add_body("b", bd.Circle(0.1), mass=1.0, position=(1, 0))
    scene.add_joint("weld", bd.Fixed(), parent="a", child="b")
    model = scene.build()
    assert model.nq == 3 and model.q_index("weld") == slice(3, 3) and model.v_index("weld") == slice(3, 3)


def test_servos():
    scene = bd.Scene(dim=2)
    for i in range(3):
        scene.add_body(f"b{i}", bd.Circle(0.1), mass=1.0)
    scene.add_joint("j0", bd.Hinge(), child="b0")
    scene.add_joint("j1", bd.Slider(axis=(1, 0)), child="b1")
    scene.add_motor("p", bd.PositionServo(kp=20.0, kv=2.0, gear=3.0, force_limits=(-1, 1)), joint="j0")
    scene.add_motor("v", bd.VelocityServo(kv=5.0, limits=(-INF, 4)), joint="j1")
    scene.add_motor("t", joint="b2", dof="angle")
    model = scene.build()
    motors = motor_records(model)
    assert motors[0].tolist() == [3.0, 20.0, 0.0, -20.0, -2.0, -INF, INF, -1.0, 1.0]
    assert motors[1].tolist() == [1.0, 5.0, 0.0, 0.0, -5.0, -INF, 4.0, -INF, INF]
    assert model.motor_kinds == ("position", "velocity", "torque")
    assert model.motor_q.tolist() == [0, 1, 4] and model.motor_v.tolist() == [0, 1, 4]
    assert model.parameters()["kp"].rows == ("p",) and model.parameter("kp").tolist() == [20.0]
    assert model.parameters()["kv"].rows == ("p", "v") and model.parameter("kv").tolist() == [2.0, 5.0]


@pytest.mark.slow
def test_a_long_chain_added_backwards():
    scene = bd.Scene(dim=2)
    count = 3000
    for i in range(count):
        scene.add_body(f"b{i}", bd.Circle(0.1), mass=1.0)
    for i in range(count):
        parent = f"b{i + 1}" if i + 1 < count else None
        scene.add_joint(f"j{i}", bd.Hinge(), parent=parent, child=f"b{i}")
    model = scene.build()
    assert model.bodies[0] == f"b{count - 1}"
    assert (model.parent == np.arange(-1, count - 1)).all()


def scene2() -> bd.Scene:
    scene = bd.Scene(dim=2)
    scene.add_body("ball", bd.Circle(0.2), mass=1.0)
    scene.add_body("link", bd.Box(1, 1), mass=1.0)
    scene.add_body("arm", bd.Box(1, 1), mass=1.0)
    scene.add_joint("hinge", bd.Hinge(), child="link")
    scene.add_joint("elbow", bd.Hinge(), parent="link", child="arm")
    return scene


def scene3() -> bd.Scene:
    scene = bd.Scene(dim=3)
    scene.add_body("ball", bd.Sphere(0.2), mass=1.0)
    scene.add_body("link", bd.Sphere(0.2), mass=1.0)
    return scene


def body(scene, **changes):
    arguments = {"name": "new", "shape": bd.Circle(0.1) if scene.dim == 2 else bd.Sphere(0.1), "mass": 1.0}
    return scene.add_body(**(arguments | changes))


def joint(scene, kind, **changes):
    return scene.add_joint("j", kind, **({"child": "ball"} | changes))


def motor(scene, *arguments, **changes):
    return scene.add_motor("m", *arguments, **changes)


BAD = [
    (lambda: bd.Scene(dim=4), ValueError, "dim must be 2 or 3"),
    (lambda: bd.Scene(dim=2, gravity=(0, 0, -9.81)), ValueError, "gravity must have 2 elements, got 3"),
    (lambda: bd.Scene(dim=2, gravity=(0, float("nan"))), ValueError, "gravity must be finite"),
    (lambda: bd.Scene(dim=2).build(), ValueError, "no bodies"),
    # bodies
    (lambda: body(scene2(), name="ball"), ValueError, "already a body named 'ball'"),
    (lambda: body(scene2(), name=3), TypeError, "must be a string"),
    (lambda: body(scene2(), name=""), ValueError, "must not be empty"),
    (lambda: body(scene2(), mass=0.0), ValueError, "body 'new': mass must be > 0, got 0"),
    (lambda: body(scene2(), mass=-1.0), ValueError, "body 'new': mass must be > 0, got -1"),
    (lambda: body(scene2(), mass=float("nan")), ValueError, "mass must be finite"),
    (lambda: body(scene2(), mass="heavy"), TypeError, "mass must be a number, got 'heavy'"),
    (lambda: body(scene2(), mass=None), ValueError, "give either mass or density"),
    (lambda: body(scene2(), density=1.0), ValueError, "give either mass or density"),
    (lambda: body(scene2(), mass=None, density=-1), ValueError, "density must be > 0"),
    (lambda: body(scene2(), shape=bd.Sphere(1.0)), ValueError, "Sphere is 3D, the scene is 2D"),
    (lambda: body(scene3(), shape=bd.Circle(1.0)), ValueError, "Circle is 2D, the scene is 3D"),
    (lambda: body(scene2(), shape=bd.HalfSpace((0, 1))), ValueError, "add it with add_static"),
    (lambda: body(scene2(), shape="box"), TypeError, "expected a shape"),
    (lambda: body(scene2(), shape=[3.0]), TypeError, "expected a shape"),
    (lambda: body(scene2(), position=(1, 2, 3)), ValueError, "position must have 2 elements, got 3"),
    (lambda: body(scene2(), position=1.0), ValueError, "position must have 2 elements"),
    (lambda: body(scene2(), position=("a", "b")), TypeError, "made of numbers"),
    (lambda: body(scene2(), quaternion=(1, 0, 0, 0)), ValueError, "in 2D give an angle"),
    (lambda: body(scene3(), angle=0.1), ValueError, "in 3D give a quaternion"),
    (lambda: body(scene3(), quaternion=(1, 1, 0, 0)), ValueError, "unit quaternion"),
    (lambda: body(scene3(), quaternion=(0, 0, 0, 0)), ValueError, "unit quaternion"),
    (lambda: body(scene2(), angle=float("inf")), ValueError, "angle must be finite"),
    (lambda: body(scene2(), velocity=(1, 2, 3)), ValueError, "velocity must have 2"),
    (lambda: body(scene2(), angular_velocity=(1, 2)), TypeError, "angular_velocity must be a number"),
    (lambda: body(scene3(), angular_velocity=1.0), ValueError, "angular_velocity must have 3"),
    (lambda: body(scene2(), restitution=1.5), ValueError, "restitution must be between 0 and 1"),
    (lambda: body(scene2(), friction=-0.1), ValueError, "friction must be >= 0"),
    (lambda: body(scene2(), softness=-0.1), ValueError, "softness must be >= 0"),
    (lambda: body(scene2(), inertia=0.0), ValueError, "inertia must be > 0"),
    (lambda: body(scene3(), inertia=(1, 1, 3)), ValueError, "body 'new': inertia violates the triangle"),
    (lambda: body(scene3(), inertia=(1, -1, 1)), ValueError, "positive definite"),
    (lambda: body(scene3(), inertia=(1, 1, 1, 2, 0, 0)), ValueError, "positive definite"),
    (lambda: body(scene3(), inertia=np.array([[1, 0.1, 0], [0, 1, 0], [0, 0, 1]])), ValueError, "symmetric"),
    (lambda: body(scene3(), inertia=1.0), ValueError, r"3, 6 or \[3, 3\]"),
    (lambda: body(scene3(), com=(0, 0)), ValueError, "com must have 3"),
    (lambda: (s := scene2(), s.add_body("x", mass=1.0), s.build()), ValueError, "no shape: give its inertia"),
    (lambda: (s := scene2(), s.add_body("x", density=1.0), s.build()), ValueError, "a density needs a shape"),
    (lambda: scene2().add_shape("bal", bd.Circle(1)), ValueError, "unknown body 'bal'; did you mean 'ball'"),
    (lambda: scene2().add_static(bd.Sphere(1)), ValueError, "Sphere is 3D"),
    (lambda: scene2().add_static(bd.Circle(1), friction="high"), TypeError, "friction must be a number"),
    # joints
    (lambda: scene2().add_joint("hinge", bd.Hinge(), child="ball"), ValueError, "already a joint named"),
    (lambda: joint(scene2(), bd.Hinge(), child="bal"), ValueError, "child body 'bal'; did you mean 'ball'"),
    (lambda: joint(scene2(), bd.Hinge(), parent="lnk"), ValueError, "did you mean 'link'"),
    (lambda: joint(scene2(), bd.Hinge(), child=None), TypeError, "must be given by its name"),
    (lambda: joint(scene2(), "hinge"), TypeError, "expected a joint"),
    (lambda: joint(scene2(), bd.Hinge(), parent="ball"), ValueError, "its own parent"),
    (lambda: joint(scene2(), bd.Ball()), ValueError, "Ball is a 3D joint"),
    (lambda: joint(scene2(), bd.Free()), ValueError, "Free is a 3D joint"),
    (lambda: joint(scene3(), bd.Free(), parent="link"), ValueError, "to the world only"),
    (lambda: joint(scene2(), bd.Hinge(axis=(0, 0, 1))), ValueError, "no axis to choose"),
    (lambda: joint(scene3(), bd.Hinge()), ValueError, "needs an axis"),
    (lambda: joint(scene3(), bd.Hinge(axis=(0, 0, 0))), ValueError, "zero length"),
    (lambda: joint(scene3(), bd.Slider(axis=(1, 0))), ValueError, "axis must have 3"),
    (lambda: joint(scene2(), bd.Slider(axis=None)), TypeError, "axis must be made of numbers"),
    (lambda: joint(scene2(), bd.Hinge(), anchor=(1, 2, 3)), ValueError, "anchor must have 2"),
    (lambda: joint(scene2(), bd.Hinge(), position=(1, 2)), ValueError, "position must have 1"),
    (lambda: joint(scene3(), bd.Ball(), position=0.0), ValueError, "position must have 4"),
    (lambda: joint(scene3(), bd.Ball(), position=(1, 1, 0, 0)), ValueError, "unit quaternion"),
    (lambda: joint(scene2(), bd.Planar(), position=(1, 2, 3)), ValueError, "add_body instead"),
    (lambda: moving(), ValueError, r"set add_joint\(..., velocity=...\) instead"),
    (lambda: same_name(), ValueError, "joint 'ball' has the name of body 'ball'"),
    (lambda: bd.Hinge(damping=-1), ValueError, "Hinge damping must be >= 0"),
    (lambda: bd.Hinge(rest="up"), TypeError, "Hinge rest must be a number"),
    (lambda: bd.Ball(rest=(1, 2)), ValueError, "Ball rest must have 4 elements"),
    (lambda: bd.Ball(rest=(1, 1, 0, 0)), ValueError, "unit quaternion"),
    # motors
    (lambda: motor(scene2(), joint="hing"), ValueError, "unknown joint 'hing'; did you mean 'hinge'"),
    (lambda: motor(scene2(), joint=None), TypeError, "by its name"),
    (lambda: motor(scene2(), joint="hinge", limits=(1, -1)), ValueError, "low < high"),
    (lambda: motor(scene2(), joint="hinge", limits=5), TypeError, "must be a pair"),
    (lambda: motor(scene2(), joint="hinge", limits=(0, float("nan"))), ValueError, "low < high"),
    (lambda: motor(scene2(), joint="hinge", gear=0.0), ValueError, "Motor gear must not be 0, got 0"),
    (lambda: motor(scene2(), joint="hinge", dof="x"), ValueError, "has one dof"),
    (lambda: motor(scene2(), joint="ball"), ValueError, "dof must be 'x', 'y' or 'angle'"),
    (lambda: motor(scene3(), joint="ball"), ValueError, "is free; expected a hinge or slider"),
    (lambda: motor(scene2(), bd.Motor(), joint="hinge", gear=2.0), ValueError, r"to Motor\(...\)"),
    (lambda: motor(scene2(), "servo", joint="hinge"), TypeError, "expected a Motor"),
    (lambda: bd.PositionServo(kp=0.0), ValueError, "PositionServo kp must be > 0"),
    (lambda: bd.VelocityServo(kv=-1.0), ValueError, "VelocityServo kv must be > 0"),
    (lambda: (s := scene2(), s.add_motor("m", joint="hinge"), s.add_motor("m", joint="elbow")),
     ValueError, "already a motor named 'm'"),
    (lambda: scene2().exclude("ball", "ball"), ValueError, "two different bodies"),
    (lambda: scene2().exclude("ball", "lnik"), ValueError, "did you mean 'link'"),
    # looking things up
    (lambda: example().body_index("bal"), ValueError, "unknown body 'bal'; did you mean 'ball'"),
    (lambda: example().joint_index("zzz"), ValueError, "expected one of 'ball', 'hinge'"),
    (lambda: example().motor_index("moter"), ValueError, "did you mean 'motor'"),
    (lambda: example().q_index("hing"), ValueError, "did you mean 'hinge'"),
    (lambda: example().initial_state(batch=0), ValueError, "batch must be an integer >= 1"),
    (lambda: example().initial_state(batch=2.5), ValueError, "batch must be an integer >= 1"),
]  # fmt: skip


def moving():
    scene = bd.Scene(dim=2)
    scene.add_body("a", bd.Circle(1.0), mass=1.0, velocity=(1, 0))
    scene.add_joint("j", bd.Hinge(), child="a")


def same_name():
    scene = scene2()
    scene.add_body("other", bd.Circle(1.0), mass=1.0)
    scene.add_joint("ball", bd.Hinge(), child="other")
    scene.build()


@pytest.mark.parametrize(("act", "error", "message"), BAD)
def test_bad_input_is_refused_where_it_is_given(act, error, message):
    with pytest.raises(error, match=message):
        act()


def test_a_refused_body_leaves_no_trace():
    scene = scene2()
    with pytest.raises(ValueError, match="restitution"):
        body(scene, restitution=2.0)
    body(scene)
    assert scene.build().nbody == 4


def test_a_scene_can_grow_after_build():
    scene = scene2()
    before = scene.build()
    body(scene)
    assert scene.build().nbody == before.nbody + 1


def test_states_are_tuples_of_tensors():
    q, v = state = example().initial_state()
    assert state.batch_shape == () and q.dtype == torch.float64
    single = state.to(torch.float32)
    assert single.q.dtype == single.v.dtype == torch.float32
    copy = state.clone()
    copy.q[0] = 5.0
    assert state.q[0] == 0.0
    q.requires_grad_()
    assert not state.detach().q.requires_grad and v.shape == (4,)
