"""Which shapes may touch: in scenes by the rules written down here, in files by what MuJoCo does."""

import itertools

import mujoco
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import backdrive.model as bd
from backdrive.schema.layout import ShapeKind


def names(model: bd.Model) -> set[frozenset[str]]:
    result = {frozenset(model.shape_names[i] for i in pair) for pair in model.pairs}
    assert len(result) == model.npair
    return result


def pairs(*joined: str) -> set[frozenset[str]]:
    return {frozenset(pair.split()) for pair in joined}


def chain(**scene_options) -> bd.Scene:
    """world - a - b = c - d: b and c are one; e is loose."""
    scene = bd.Scene(dim=2, **scene_options)
    for i, name in enumerate("abcde"):
        scene.add_body(name, bd.Circle(0.1), mass=1.0, position=(i, 0))
    scene.add_joint("wa", bd.Hinge(), child="a")
    scene.add_joint("ab", bd.Hinge(), parent="a", child="b")
    scene.add_joint("bc", bd.Fixed(), parent="b", child="c")
    scene.add_joint("cd", bd.Hinge(), parent="c", child="d")
    return scene


@pytest.mark.parametrize("coordinates", ["reduced", "maximal"])
def test_neighbours_do_not_touch(coordinates):
    scene = chain(coordinates=coordinates)
    loose = pairs("a e", "b e", "c e", "d e")
    assert names(scene.build()) == loose | pairs("a d")
    scene.add_joint("da", bd.Hinge(), parent="d", child="a")
    assert names(scene.build()) == loose
    scene.exclude("c", "e")
    assert names(scene.build()) == loose - pairs("c e")
    scene.add_constraint("hold", bd.Weld(), a="e", b="d")
    assert names(scene.build()) == set()  # e is d now, next to a and to b = c


def test_the_world_touches_what_hangs_on_it():
    scene = chain()
    scene.add_static(bd.HalfSpace((0, 1)), name="ground")
    scene.add_static(bd.HalfSpace((1, 0)), name="wall")
    scene.add_static(bd.Box(1, 1), name="block")
    scene.add_body("post", bd.Circle(0.1), mass=1.0)
    scene.add_joint("nail", bd.Fixed(), child="post")
    still = {"ground", "wall", "block", "post"}
    found = names(scene.build())
    assert not any(pair <= still for pair in found)
    assert {p for p in found if p & still} == {frozenset(p) for p in itertools.product("abcde", still)}


def test_order():
    scene = bd.Scene(dim=3)
    shapes = [bd.Box(1, 1, 1), bd.Sphere(1), bd.Cylinder(1, 1), bd.Capsule(1, 1), bd.Sphere(2)]
    for i, shape in enumerate(shapes):
        scene.add_body(f"b{i}", shape, mass=1.0)
    scene.add_static(bd.HalfSpace((0, 0, 1)))
    model = scene.build()
    kinds = model.shape_kind[model.pairs]
    assert (kinds[:, 0] <= kinds[:, 1]).all() and kinds.tolist() == sorted(kinds.tolist())
    assert model.npair == 15 and model.pairs.dtype == np.int64
    assert model.pairs[0].tolist() == [1, 4] and kinds[-1].tolist() == [ShapeKind.HULL, ShapeKind.PLANE]
    assert model.pairs[kinds[:, 1] == ShapeKind.PLANE, 0].tolist() == [1, 4, 3, 2, 0]


def test_names_are_unique():
    scene = bd.Scene(dim=2)
    scene.add_body("a", [bd.Circle(0.1), bd.Circle(0.2)], mass=1.0)
    scene.add_body("b", bd.Circle(0.1), mass=1.0)
    scene.add_static(bd.Circle(1.0), name="b")
    scene.add_static(bd.Circle(1.0), name="a:0")
    scene.add_static(bd.Circle(1.0))
    model = scene.build()
    assert model.shape_names == ("a:0", "a:1", "b", "b_", "a:0_", "static2")
    assert model.shape_link.tolist() == [0, 0, 1, -1, -1, -1] and model.shape_index("b_") == 3
    with pytest.raises(ValueError, match="unknown shape 'bb'"):
        model.shape_index("bb")


def test_names_of_geoms():
    geoms = '<geom name="g" size=".1"/><geom size=".1"/>'
    text = f'<mujoco><worldbody><geom size="1"/><body name="b"><freejoint/>{geoms}</body></worldbody></mujoco>'
    assert bd.load(text).shape_names == ("g", "b:1", "static0")


def test_a_plane_on_a_body_that_does_not_move():
    text = """<mujoco><worldbody><body name="table" pos="0 0 1" euler="90 0 0">
      <body name="top" pos="0 2 0"><geom name="top" type="plane" size="1 1 1" pos="0 0 .5"/></body></body>
      <body name="ball"><freejoint/><geom name="ball" size=".1"/></body></worldbody></mujoco>"""
    model = bd.load(text)
    compiled = mujoco.MjModel.from_xml_string(text)
    data = mujoco.MjData(compiled)
    mujoco.mj_kinematics(compiled, data)
    plane = compiled.geom("top").id
    normal = data.geom_xmat[plane].reshape(3, 3)[:, 2]
    index = model.shape_index("top")
    assert model.shape_link[index] == -1 and names(model) == pairs("top ball")
    offset = model.parameter("size")[model.parameters()["size"].rows.index("top.offset")]
    assert offset.item() == pytest.approx(normal @ data.geom_xpos[plane])


@st.composite
def files(draw) -> str:
    """Random trees of bodies whose geoms all overlap, with all that keeps geoms apart or brings them together."""
    count = draw(st.integers(2, 7))
    masks = st.sampled_from([0, 1, 2, 3])
    children: dict[int, list[int]] = {i: [] for i in range(count + 1)}
    for body in range(1, count + 1):
        children[draw(st.integers(0, body - 1))].append(body)
    geoms: list[str] = []

    def geom() -> str:
        geoms.append(f"g{len(geoms)}")
        kind = draw(st.sampled_from(['type="sphere"', 'type="box"', 'type="capsule"']))
        place = " ".join(f"{draw(st.integers(-9, 9)) / 50}" for _ in range(3))
        return (
            f'<geom name="{geoms[-1]}" {kind} size="1 1 1" pos="{place}" contype="{draw(masks)}" '
            f'conaffinity="{draw(masks)}"/>'
        )

    def element(body: int) -> str:
        inside = "".join(geom() for _ in range(draw(st.integers(0, 2)))) + "".join(element(c) for c in children[body])
        if body == 0:
            return inside
        joints = draw(
            st.sampled_from(["", '<joint axis="1 0 0"/>', '<joint type="ball"/>', '<joint type="slide"/><joint/>'])
        )
        inertial = '<inertial mass="1" pos="0 0 0" diaginertia="1 1 1"/>'
        return f'<body name="b{body}">{joints}{inertial}{inside}</body>'

    tree = element(0)
    contact = ""
    for _ in range(draw(st.integers(0, 2))):
        a, b = draw(st.permutations(range(count + 1)))[:2]
        first, second = (f"b{i}" if i else "world" for i in (a, b))
        if f'body1="{first}" body2="{second}"' not in contact and f'body1="{second}" body2="{first}"' not in contact:
            contact += f'<exclude body1="{first}" body2="{second}"/>'
    if len(geoms) > 1 and draw(st.booleans()):
        a, b = draw(st.permutations(geoms))[:2]
        contact += f'<pair geom1="{a}" geom2="{b}"/>'
    flag = draw(st.sampled_from(["enable", "disable"]))
    option = f'<option><flag filterparent="{flag}"/></option>'
    return f"<mujoco>{option}<worldbody>{tree}</worldbody><contact>{contact}</contact></mujoco>"


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(files())
def test_files_by_what_mujoco_finds_touching(text):
    compiled = mujoco.MjModel.from_xml_string(text)
    data = mujoco.MjData(compiled)
    mujoco.mj_kinematics(compiled, data)
    mujoco.mj_comPos(compiled, data)
    mujoco.mj_collision(compiled, data)
    weld = compiled.body_weldid[compiled.geom_bodyid]
    expected = {
        frozenset(compiled.geom(int(g)).name for g in contact.geom)
        for contact in data.contact
        if weld[contact.geom[0]] != weld[contact.geom[1]]  # an explicit pair that cannot move is of no use
    }
    model = bd.load(text)
    assert names(model) == expected
