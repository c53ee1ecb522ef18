import mujoco
import numpy as np
import pytest
from records import kinematics, motor_records

import backdrive.model as bd
from backdrive.model import Kind
from backdrive.model.links import LinkSpec, WorldParts, pack
from backdrive.model.rotations import from_quaternion
from backdrive.schema import layout

MJCF = [
    "ant.xml", "humanoid.xml", "half_cheetah.xml", "hopper.xml", "walker2d.xml", "reacher.xml", "swimmer.xml",
    "inverted_double_pendulum.xml",
]  # fmt: skip
URDF = ["laikago.urdf", "a1.urdf", "panda.urdf", "ur5_robot.urdf", "talos_reduced.urdf", "icub.urdf"]
IGNORE = ("contact", "limit", "fluid", "frictionloss", "equality")


def reference(path, floating: bool = False) -> mujoco.MjModel:
    """MuJoCo's own model of a file; of a URDF its tree, without shapes and with all links."""
    spec = mujoco.MjSpec.from_file(str(path))
    if path.suffix == ".urdf":
        spec.compiler.fusestatic = False
        for element in [*spec.geoms, *spec.meshes]:
            spec.delete(element)
        for body in spec.bodies[1:]:
            body.explicitinertial, body.mass, body.inertia = True, 1.0, np.ones(3)
            body.fullinertia = [np.nan, 0, 0, 0, 0, 0]
        if floating:
            spec.worldbody.bodies[0].add_freejoint()
    return spec.compile()


def compare_kinematics(model: bd.Model, expected: mujoco.MjModel) -> None:
    data = mujoco.MjData(expected)
    rng = np.random.default_rng(1)
    for _ in range(3):
        mujoco.mj_integratePos(expected, data.qpos, rng.normal(size=expected.nv), 1.0)
        mujoco.mj_kinematics(expected, data)
        poses = kinematics(model, data.qpos)
        for name, link in zip(model.bodies, model.body_link, strict=True):
            body = _body_id(expected, name)
            np.testing.assert_allclose(poses[link][0], data.xpos[body], rtol=0, atol=1e-12)
            np.testing.assert_allclose(poses[link][1], data.xmat[body].reshape(3, 3), rtol=0, atol=1e-12)


def _body_id(model: mujoco.MjModel, name: str) -> int:
    found = mujoco.mj_name2id(model, mujoco.mjtObj.mjOBJ_BODY, name)
    return found if found >= 0 else int(name.removeprefix("body"))


def full_inertia(model: mujoco.MjModel, body: int) -> np.ndarray:
    axes = from_quaternion(model.body_iquat[body])
    matrix = axes @ np.diag(model.body_inertia[body]) @ axes.T
    return np.array([matrix[i, j] for i, j in layout.INERTIA_INDEX])


@pytest.mark.filterwarnings("ignore:compiler attribute 'settotalmass'")
@pytest.mark.parametrize("name", MJCF)
def test_mjcf_against_mujoco(name, robot):
    path = robot(name)
    model, expected = bd.load(path, ignore=IGNORE), mujoco.MjModel.from_xml_path(str(path))
    assert (model.nq, model.nv, model.nu) == (expected.nq, expected.nv, expected.nu)
    assert (model.nbody, model.njoint) == (expected.nbody - 1, expected.njnt)
    np.testing.assert_array_equal(model.q0, expected.qpos0)
    np.testing.assert_array_equal(model.parameter("reference"), expected.qpos_spring)
    np.testing.assert_array_equal(model.parameter("mass"), expected.body_mass[1:])
    np.testing.assert_array_equal(model.parameter("com"), expected.body_ipos[1:])
    turning = expected.jnt_type != mujoco.mjtJoint.mjJNT_SLIDE  # a slider has no use for its anchor
    np.testing.assert_array_equal(model.parameter("anchor")[turning], expected.jnt_pos[turning])
    np.testing.assert_array_equal(model.parameter("stiffness"), expected.jnt_stiffness)
    np.testing.assert_array_equal(model.parameter("damping"), expected.dof_damping[expected.jnt_dofadr])
    np.testing.assert_array_equal(model.parameter("armature"), expected.dof_armature[expected.jnt_dofadr])
    np.testing.assert_array_equal(model.parameter("gear"), expected.actuator_gear[:, 0])
    np.testing.assert_array_equal(model.gravity, expected.opt.gravity)
    inertia = [full_inertia(expected, body) for body in range(1, expected.nbody)]
    np.testing.assert_array_equal(model.parameter("inertia"), inertia)
    np.testing.assert_array_equal(model.qadr[model.joint_link], expected.jnt_qposadr)
    np.testing.assert_array_equal(model.vadr[model.joint_link], expected.jnt_dofadr)
    np.testing.assert_array_equal(model.motor_v, expected.jnt_dofadr[expected.actuator_trnid[:, 0]])
    np.testing.assert_array_equal(model.motor_q, expected.jnt_qposadr[expected.actuator_trnid[:, 0]])
    limits = motor_records(model)
    np.testing.assert_array_equal(limits[:, layout.CTRL_LOW : layout.CTRL_HIGH + 1], expected.actuator_ctrlrange)
    assert model.timestep == expected.opt.timestep
    assert model.joints == tuple(expected.joint(i).name or f"joint{i}" for i in range(expected.njnt))
    compare_kinematics(model, expected)


@pytest.mark.parametrize("floating", [False, True])
@pytest.mark.parametrize("name", URDF)
def test_urdf_against_mujoco(name, floating, robot):
    path = robot(name)
    model, expected = bd.load(path, ignore=IGNORE, floating=floating), reference(path, floating)
    assert (model.nq, model.nv, model.nbody) == (expected.nq, expected.nv, expected.nbody - 1)
    assert model.bodies == tuple(expected.body(i).name for i in range(1, expected.nbody))
    np.testing.assert_array_equal(model.q0, expected.qpos0)
    assert model.timestep is None
    assert floating == (model.joints[0] == "root")
    compare_kinematics(model, expected)


@pytest.mark.parametrize("name", ["laikago.urdf", "a1.urdf", "panda.urdf", "talos_reduced.urdf", "icub.urdf"])
def test_urdf_inertias_are_those_of_the_file(name, robot):
    path = robot(name)
    model = bd.load(path, ignore=IGNORE)
    spec = mujoco.MjSpec.from_file(str(path))
    for row, body in enumerate(model.bodies):
        link = spec.body(body)
        assert model.parameter("mass")[row] == link.mass
        if link.mass:
            np.testing.assert_array_equal(model.parameter("com")[row], link.ipos)
        full = np.zeros((3, 3))
        for value, (i, j) in zip(np.nan_to_num(link.fullinertia), layout.INERTIA_INDEX, strict=True):
            full[i, j] = full[j, i] = value
        axes = from_quaternion(link.iquat / np.linalg.norm(link.iquat))
        full = axes @ full @ axes.T
        expected = [full[i, j] for i, j in layout.INERTIA_INDEX]
        np.testing.assert_allclose(model.parameter("inertia")[row], expected, rtol=1e-12, atol=1e-15)


def test_fusing_merges_rigidly_attached_links(robot):
    path = robot("laikago.urdf")
    whole = bd.load(path, ignore=IGNORE, floating=True)
    fused = bd.load(path, ignore=IGNORE, floating=True, fuse=True)
    assert (whole.nbody, fused.nbody) == (21, 13)
    assert fused.nq == whole.nq and fused.joints == whole.joints
    assert fused.parameter("mass").sum() == pytest.approx(whole.parameter("mass").sum().item(), rel=1e-14)


def test_a_whole_file_round_trip_of_own_values(robot):
    """Also massless frames and point masses pass the checks of assemble when they are not changed."""
    model = bd.load(robot("icub.urdf"), ignore=IGNORE)
    own = {name: model.parameter(name) for name in model.parameters().names}
    np.testing.assert_allclose(model.assemble(own), model.constants, rtol=1e-15, atol=1e-16)


SMALL = """<mujoco><compiler angle="radian"/><option timestep="0.004" gravity="1 2 3"/>
<worldbody><geom type="plane" size="1 1 1"/>
  <body name="table" pos="0 0 1"><geom type="box" size="1 1 .1" contype="0" conaffinity="0"/></body>
  <body pos=".1 .2 .3" quat=".5 .5 .5 .5">
    <joint type="slide" axis="1 2 0" ref=".7" springref=".2" stiffness="3"/>
    <joint name="turn" axis="0 1 1" pos=".1 0 .2" ref="-.4" damping=".5"/>
    <joint name="socket" type="ball" pos="0 .3 0" armature=".1"/>
    <geom type="capsule" size=".1 .2" contype="0" conaffinity="0"/>
    <body pos="0 0 .5" euler="0 .3 0"><geom type="box" size=".1 .2 .3" contype="0" conaffinity="0"/>
      <body name="leaf" pos="0 0 .2"><joint name="tip" axis="1 0 0" ref="1.1"/>
        <geom size=".1" contype="0" conaffinity="0"/></body></body>
  </body>
  <body name="loose" pos="3 0 0"><freejoint/><geom size=".1" contype="0" conaffinity="0"/></body>
</worldbody>
<actuator><position joint="turn" kp="7" kv="2" gear="3" ctrlrange="-1 2" forcerange="-4 4"/>
  <velocity name="speed" joint="tip" kv="5"/><motor joint="tip" gear="-2"/>
  <general name="odd" joint="tip" gainprm="3" biastype="affine" biasprm="1 2 3"/></actuator></mujoco>"""


def test_joint_references_and_several_joints_per_body():
    model, expected = bd.load(SMALL), mujoco.MjModel.from_xml_string(SMALL)
    names = ("table", "body2", "body3", "leaf", "loose")
    assert model.bodies == names and model.joints == ("joint0", "turn", "socket", "tip", "joint4")
    assert [Kind(k).name for k in model.kind] == [
        "FIXED",
        "SLIDER",
        "HINGE",
        "BALL",
        "FIXED",
        "HINGE",
        "FREE",
    ]
    assert model.parent.tolist() == [-1, -1, 1, 2, 3, 4, -1]
    np.testing.assert_array_equal(model.q0, expected.qpos0)
    np.testing.assert_array_equal(model.parameter("reference"), expected.qpos_spring)
    compare_kinematics(model, expected)
    assert model.gravity.tolist() == [1.0, 2.0, 3.0] and model.timestep == 0.004
    # The offset of a body with several joints is that of its first link.
    assert model.parameters()["offset"].target[3] == layout.link_start(1) + layout.OFFSET
    assert len(model.statics) == 1 and isinstance(model.statics[0].shape, bd.HalfSpace)


def test_actuators_by_what_they_do():
    model = bd.load(SMALL)
    assert model.motors == ("motor0", "speed", "motor2", "odd")
    assert model.motor_kinds == ("position", "velocity", "torque", "general")
    assert model.parameter("gear").tolist() == [3.0, 1.0, -2.0, 1.0]
    assert model.parameter("kp").tolist() == [7.0] and model.parameter("kv").tolist() == [2.0, 5.0]
    assert model.parameter("gain").tolist() == [3.0] and model.parameter("bias").tolist() == [[1.0, 2.0, 3.0]]
    motors = motor_records(model)
    assert motors[0].tolist() == [3.0, 7.0, 0.0, -7.0, -2.0, -1.0, 2.0, -4.0, 4.0]
    assert motors[1, layout.CTRL_LOW :].tolist() == [-np.inf, np.inf, -np.inf, np.inf]


def world(body: str = "", rest: str = "", option: str = "", joint: str = 'axis="0 1 0"', more: str = "") -> str:
    """One arm on a hinge, with something added."""
    return (
        f'<mujoco>{option}<worldbody><body name="arm"><joint name="hinge" {joint}/>{body}'
        f'<inertial pos="0 0 0" mass="1" diaginertia="1 1 1"/></body>{more}</worldbody>{rest}</mujoco>'
    )


def actuator(element: str) -> str:
    return world('<site name="eye"/>', rest=f"<actuator>{element}</actuator>")


def test_disabled_forces():
    flags = '<option><flag gravity="disable" spring="disable" damper="disable" clampctrl="disable"/></option>'
    text = SMALL.replace("<worldbody>", flags + "<worldbody>", 1)
    model = bd.load(text)
    assert not model.gravity.any() and not model.parameter("stiffness").any()
    assert not model.parameter("damping").any()
    motors = motor_records(model)
    assert motors[0, layout.CTRL_LOW] == -np.inf
    off = bd.load(SMALL.replace("<worldbody>", '<option><flag actuation="disable"/></option><worldbody>', 1))
    motors = motor_records(off)
    assert not motors[:, layout.FORCE_LOW :].any()


ROPE = '<tendon><fixed name="rope" {}><joint joint="hinge" coef="1"/></fixed></tendon>'
BALL = '<body name="{0}"><freejoint/><geom name="{0}" size=".1"/></body>'
TWO = BALL.format("one") + BALL.format("two")
HILL = '<geom name="hill" type="hfield" hfield="field"/>'
FIELD = '<asset><hfield name="field" nrow="2" ncol="2" size="1 1 1 1"/></asset>'
PAIR = '<contact><pair geom1="one" geom2="two" {}/></contact>'
UNSUPPORTED = [
    ("contact", world(more=BALL.format("one") + HILL, rest=FIELD), "hill .is of type hfield"),
    ("contact", world(more=HILL.replace('name="hill"', "") + BALL.format("one"), rest=FIELD), "geom 0 of world .is of"),
    (
        "friction",
        world(more=TWO, rest='<contact><pair geom1="one" geom2="two" friction=".3"/></contact>'),
        "pair one, two",
    ),
    ("friction", world(more=TWO.replace('size=".1"', 'size=".1" priority="1" friction=".3"', 1)), "one .its priority"),
    ("limit", world(joint='type="ball" range="0 10"'), "hinge"),
    ("frictionloss", world(joint='type="ball" frictionloss="1"'), "hinge"),
    ("frictionloss", world(joint='type="free" frictionloss="1"'), "hinge"),
    ("equality", world(rest='<equality><joint name="locked" joint1="hinge"/></equality>'), "locked"),
    ("equality", world(rest='<equality><joint joint1="hinge"/></equality>'), "equality0 of hinge"),
    ("tendon", world(rest=ROPE.format('stiffness="2"')), "rope"),
    ("tendon", world(rest=ROPE.format('range="-1 1"')), "rope"),
    ("actuator", actuator('<muscle name="biceps" joint="hinge" lengthrange="0 1"/>'), "biceps .has dynamics"),
    (
        "actuator",
        actuator('<damper name="d" joint="hinge" kv="1" ctrlrange="0 1"/>'),
        "d .gain is not constant",
    ),
    ("actuator", actuator('<motor name="jet" site="eye"/>'), "jet .not on a joint"),
    ("actuator", actuator('<position name="lag" joint="hinge" timeconst="1"/>'), "lag .has dynamics"),
    (
        "actuator",
        actuator('<motor name="m" joint="hinge"/>').replace("axis", 'actuatorfrcrange="-1 1" axis'),
        "m .its joint limits",
    ),
    (
        "actuator",
        actuator('<motor name="m" joint="hinge"/>').replace('axis="0 1 0"', 'type="ball"'),
        "m .on a ball",
    ),
    ("mocap", world(more='<body name="hand" mocap="true"/>'), "hand"),
    (
        "fluid",
        world(option='<option density="1.2" viscosity="3"/>'),
        "option density=1.2, option viscosity=3",
    ),
    ("gravcomp", world().replace('name="arm"', 'name="arm" gravcomp="1"'), "arm"),
    ("spring", world(joint='axis="0 1 0" stiffness="1 2 3"'), "hinge"),
    ("spring", world(joint='axis="0 1 0" damping="1 2 3"'), "hinge"),
]


@pytest.mark.parametrize(("kind", "text", "names"), UNSUPPORTED)
def test_what_cannot_be_represented_is_named(kind, text, names):
    with pytest.raises(ValueError, match=f"(?s)not supported.*{kind}: .*({names}).*ignore=.'{kind}'"):
        bd.load(text).soft.refuse_rigid()  # some elements are those of physics="mujoco" only
    assert bd.load(text, ignore=kind).nbody >= 1
    assert bd.load(text, ignore=[kind]).nu == 0


def test_the_error_lists_every_kind_at_once():
    text = world(more=BALL.format("one") + HILL, rest=FIELD, joint='type="ball" frictionloss="1" range="0 1"')
    with pytest.raises(
        ValueError, match=r"(?s)contact: hill.*frictionloss: hinge.*ignore=\('contact', 'frictionloss'\)"
    ):
        bd.load(text)


def test_limits_friction_and_contact_of_a_robot(robot):
    path = robot("ant.xml")
    model, expected = bd.load(path), mujoco.MjModel.from_xml_path(str(path))
    limited = np.flatnonzero(expected.jnt_limited)
    assert model.parameters()["limit_low"].rows == tuple(expected.joint(j).name for j in limited)
    np.testing.assert_array_equal(model.parameter("limit_low"), expected.jnt_range[limited, 0])
    np.testing.assert_array_equal(model.parameter("limit_high"), expected.jnt_range[limited, 1])
    assert model.combine == "max" and model.shape_names[-1] == "floor" and model.nshape == expected.ngeom
    assert {tuple(pair) for pair in model.pairs.tolist()} == {(i, 13) for i in range(13)}
    np.testing.assert_array_equal(model.parameter("friction"), np.roll(expected.geom_friction[:, 0], -1))
    without = bd.load(path, ignore=("contact", "limit"))
    assert (without.nshape, without.npair, without.nlimit) == (0, 0, 0) and not any(without.shapes)


def test_joint_friction():
    text = world(joint='type="slide" frictionloss="2"')
    model = bd.load(text)
    assert model.nfriction == 1 and model.parameter("joint_friction").tolist() == [2.0]
    assert bd.load(text, ignore="frictionloss").nfriction == 0
    assert (
        bd.load(world(option='<option><flag frictionloss="disable"/></option>', joint='frictionloss="2"')).nfriction
        == 0
    )
    assert bd.load(world(option='<option><flag limit="disable"/></option>', joint='range="-1 1"')).nlimit == 0


def test_frictionless_geoms():
    slick = TWO.replace('size=".1"', 'size=".1" condim="1"')
    assert bd.load(world(more=slick)).parameter("friction").tolist() == [0.0, 0.0]
    floor = '<geom name="floor" type="plane" size="1 1 1"/>'
    assert bd.load(world(more=slick + floor)).parameter("friction").tolist() == [1.0, 1.0, 1.0]


def test_what_has_no_effect_is_no_error():
    sensor = '<sensor><jointpos joint="hinge"/></sensor>'
    off = '<equality><joint joint1="hinge" active="false"/></equality>'
    key = '<keyframe><key qpos="1"/></keyframe>'
    assert bd.load(world(rest=sensor + ROPE.format("") + off + key)).nq == 1


def test_geoms_that_the_file_keeps_apart_are_no_contact():
    def touching(body: str = "", rest: str = "", more: str = "") -> list[tuple[str, str]]:
        model = bd.load(world(body, rest=rest, more=more))
        return [(model.shape_names[a], model.shape_names[b]) for a, b in model.pairs]

    assert touching(more=TWO) == [("one", "two")]
    exclude = '<contact><exclude body1="one" body2="two"/></contact>'
    assert touching(more=TWO, rest=exclude) == []
    assert bd.load(world(more=TWO, rest=exclude)).excluded == (("one", "two"),)
    assert bd.load(world(more=TWO, option='<option><flag contact="disable"/></option>')).nshape == 0
    child = '<geom name="box" size=".1"/><body><joint/><geom name="child" size=".1"/>%s</body>'
    assert touching(child % "") == []
    grandchild = '<body><joint/><geom name="grandchild" size=".1"/></body>'
    assert touching(child % grandchild) == [("box", "grandchild")]
    pair = '<contact><pair geom1="box" geom2="child"/></contact>'
    assert touching(child % "", rest=pair) == [("box", "child")]
    silent = child.replace('size=".1"', 'size=".1" contype="0" conaffinity="0"')
    assert touching(silent % "", rest=pair) == [("box", "child")]
    family = '<option><flag filterparent="disable"/></option>'
    assert bd.load(world(child % "", option=family)).npair == 1


LINKS = """<robot name="r"><link name="base"/>
<link name="arm"><inertial><mass value="{mass}"/>
<inertia ixx="{ixx}" iyy="{iyy}" izz="{iyy}" ixy="0" ixz="0" iyz="0"/></inertial>{geometry}</link>
<joint name="j" type="continuous"><parent link="base"/><child link="arm"/><axis xyz="0 0 1"/></joint>
</robot>"""
MESH = '<collision><geometry><mesh filename="package://nowhere/arm.stl"/></geometry></collision>'


def links(mass: float = 1.0, ixx: float = 1.0, iyy: float = 1.0, geometry: str = "") -> str:
    return LINKS.format(mass=mass, ixx=ixx, iyy=iyy, geometry=geometry)


def test_urdf_text():
    model = bd.load(links())
    assert model.bodies == ("base", "arm") and model.parameter("mass").tolist() == [0.0, 1.0]
    assert bd.load(links(), floating=True).nq == 8
    assert bd.load(links(), floating="base").joints == ("root", "j")


def test_missing_meshes(tmp_path):
    path = tmp_path / "arm.urdf"
    path.write_text(links(geometry=MESH))
    with pytest.raises(FileNotFoundError, match=r"arm.urdf: cannot open '.*arm.stl'.*ignore=.'contact'"):
        bd.load(path)
    assert bd.load(path, ignore="contact").nbody == 2
    (tmp_path / "arm.dae").write_text("what no one can read")
    path.write_text(links(geometry=MESH.replace("package://nowhere/arm.stl", "arm.dae")))
    with pytest.raises(ValueError, match=r"mesh file.*arm\.dae.*ignore=.'contact'"):
        bd.load(path)
    mesh = '<asset><mesh name="m" file="gone.stl"/></asset>'
    weighed = tmp_path / "weighed.xml"
    weighed.write_text(
        f'<mujoco>{mesh}<worldbody><body><freejoint/><geom type="mesh" mesh="m"/></body></worldbody></mujoco>'
    )
    with pytest.raises(FileNotFoundError, match=r"gone\.stl"):  # its inertia depends on it
        bd.load(weighed, ignore="contact")
    inertial = '<inertial mass="1" pos="0 0 0" diaginertia="1 1 1"/>'
    weighed.write_text(weighed.read_text().replace("<freejoint/>", "<freejoint/>" + inertial))
    assert bd.load(weighed, ignore="contact").parameter("mass").tolist() == [1.0]


def test_package_paths_are_found_around_the_file(tmp_path):
    points = [[0, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1]]
    (tmp_path / "nowhere").mkdir()
    faces = "f 1 3 2\nf 1 2 4\nf 1 4 3\nf 2 3 4\n"
    (tmp_path / "nowhere" / "arm.obj").write_text("".join("v {} {} {}\n".format(*p) for p in points) + faces)
    (tmp_path / "robots").mkdir()
    path = tmp_path / "robots" / "arm.urdf"
    path.write_text(links(geometry=MESH.replace("stl", "obj")))
    model = bd.load(path)  # nothing to collide with
    (placed,) = model.shapes[1]
    assert isinstance(placed.shape, bd.Convex) and placed.shape.volume == pytest.approx(1 / 6, rel=1e-6)


@pytest.mark.parametrize(
    ("source", "options", "error", "message"),
    [
        ("nowhere/robot.xml", {}, FileNotFoundError, "no such file: nowhere"),
        (3, {}, TypeError, "expected a path or an XML string"),
        ("<mujoco><worldbody><body></worldbody></mujoco>", {}, ValueError, "the XML text: .*Line number=1"),
        ("<mujoco>\n<bad/></mujoco>", {}, ValueError, "'bad', line 2"),
        ("<html/>", {}, ValueError, "html"),
        ("<", {}, ValueError, "the XML text: "),
        ("<mujoco/>", {}, ValueError, "no bodies"),
        (world(), {"ignore": ("contcat",)}, ValueError, "kind to ignore 'contcat'; did you mean 'contact'"),
        (world(), {"floating": True}, ValueError, "needs one root body without a joint, found none"),
        (links(), {"floating": "bsae"}, ValueError, "'bsae'; did you mean 'base'"),
        (links(mass=0.0, ixx=0.0, iyy=0.0), {}, ValueError, "body 'arm' moves on joint 'j' but has no mass"),
        (links(ixx=3.0), {}, ValueError, "inertia: arm .no rigid body has the principal moments 1, 1, 3"),
        (links(ixx=-1.0), {}, ValueError, "inertia: arm"),
        (world().replace('mass="1"', 'mass="-1"'), {}, ValueError, "(?i)mass"),
        (world().replace("1 1 1", "1 1 3"), {}, ValueError, r"A \+ B >= C"),
        (links().replace('child link="arm"', 'child link="amr"'), {}, ValueError, "child missing"),
    ],
)
def test_bad_files(source, options, error, message):
    with pytest.raises(error, match=message):
        bd.load(source, **options)


def test_an_impossible_inertia_can_be_accepted():
    model = bd.load(links(ixx=3.0), ignore="inertia")
    assert model.parameter("inertia")[1].tolist() == [3.0, 1.0, 1.0, 0.0, 0.0, 0.0]
    model.assemble({"inertia": model.parameter("inertia")})


def test_an_armature_can_carry_a_massless_body():
    rotor = LinkSpec(-1, Kind.HINGE, "rotor", "axle", axis=np.array([0.0, 0.0, 1.0]), armature=0.1)
    assert pack(WorldParts(3, [rotor], [], np.zeros(3))).nv == 1


def test_massless_links_between_joints(robot):
    """A shoulder of three hinges: MuJoCo wants each link to weigh something, the dynamics do not."""
    model = bd.load(robot("human.urdf"), ignore=IGNORE)
    assert (model.parameter("mass") == 0.0).any() and model.nv == 36


def test_non_ascii_paths(tmp_path):
    path = tmp_path / "röbot.xml"
    path.write_text(world(), encoding="utf-8")
    assert bd.load(path).nq == 1 and bd.load(str(path)).nq == 1


@pytest.mark.filterwarnings("ignore:flex 'cloth'")
def test_deformable_bodies_are_named():
    cloth = '<flexcomp name="cloth" type="grid" count="3 3 1" spacing=".1 .1 .1" radius=".01" dim="2"/>'
    with pytest.raises(ValueError, match="flex: cloth"):
        bd.load(world(more=cloth))
