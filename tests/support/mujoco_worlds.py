"""Models that MuJoCo's physics steps, states that they visit, and MuJoCo's own steps from them."""

from pathlib import Path

import gymnasium
import mujoco
import numpy as np
import torch

import backdrive as bd

ASSETS = Path(gymnasium.__file__).parent / "envs" / "mujoco" / "assets"
INTEGRATORS = {"euler": "EULER", "rk4": "RK4", "implicit": "IMPLICIT", "implicitfast": "IMPLICITFAST"}


def zoo(condim: int = 3, impratio: float = 1.0, power: int = 2) -> str:
    """Spheres and capsules on the ground and on each other: free, ball and hinge joints, a limit, joint friction,
    servos, and solref in both forms; everything that soft constraints know, with parameters of its own."""
    return f"""<mujoco><option timestep="0.004" impratio="{impratio}"/>
<default><geom friction="0.7 0.02 0.003" condim="{condim}" solimp="0.9 0.95 0.001 0.5 {power}"/></default>
<worldbody>
 <geom type="plane" size="5 5 1" margin="0.01" solref="0.03 0.8" solimp="0.8 0.95 0.01 0.3 {power}"/>
 <body pos="0 0 0.09"><freejoint/>
  <geom type="sphere" size="0.1" margin="0.02" gap="0.005" solref="0.02 1.2" solmix="2"/>
  <body pos="0.2 0 0">
   <joint name="h" axis="0 1 0" range="-20 20" limited="true" margin="0.02" damping="0.01" stiffness="0.2"
    frictionloss="0.03" solreffriction="0.05 0.9" solimpfriction="0.8 0.9 0.01 0.5 {power}"
    solreflimit="-3000 -20" solimplimit="0.9 0.95 0.001 0.5 {power}"/>
   <geom type="capsule" size="0.05 0.1" euler="20 70 0"/></body></body>
 <body pos="0.05 0.02 0.4"><freejoint/><geom type="sphere" size="0.1" friction="0.3 0.1 0.01"/>
  <body pos="0 0 0.15"><joint type="ball" damping="0.02"/>
   <geom type="capsule" size="0.05 0.1" pos="0 0 0.1" solref="-2000 -50"/></body></body>
</worldbody>
<actuator><position joint="h" kp="3" kv="0.5" ctrlrange="-1 1"/>
 <velocity joint="h" kv="0.2" forcerange="-0.05 0.05" forcelimited="true"/></actuator></mujoco>"""


def uneven() -> str:
    """The zoo with powers of solimp that differ, and are not integers."""
    return zoo().replace('0.3 2"', '0.3 3.5"').replace('0.001 0.5 2"', '0.001 0.4 1.3"', 1)


LINKED = """<mujoco><option timestep="0.005"/><worldbody><geom type="plane" size="5 5 1"/>
 <body name="a" pos="0 0 0.5"><freejoint/><geom type="capsule" size="0.1 0.2"/>
  <body name="c" pos="0 0 0.4"><joint name="j" axis="0 1 0"/><geom type="capsule" size="0.05 0.1"/></body></body>
 <body name="b" pos="0.5 0 0.6" euler="10 20 30"><freejoint/><geom type="sphere" size="0.1"/></body>
 <body name="e" pos="-0.5 0 0.6" euler="10 20 30"><freejoint/><geom type="sphere" size="0.1"/></body></worldbody>
<actuator><motor joint="j"/></actuator>
<equality><weld body1="a" body2="b" torquescale="0.3" anchor="0.05 0.02 0.01" solref="0.03 0.9"/>
 <connect body1="c" body2="e" anchor="-0.3 0 0.1" solref="-900 -30"/></equality></mujoco>"""
"""Bodies that a weld and a connect hold together."""


MEDIUM = """<mujoco><option timestep="0.005" density="40" viscosity="0.3" wind="0.5 -0.3 0.2"/><worldbody>
 <geom type="plane" size="5 5 1"/>
 <body pos="0 0 0.3"><freejoint/><geom type="box" size="0.1 0.2 0.05" contype="0" conaffinity="0"/>
  <body pos="0.2 0 0" gravcomp="0.6"><joint name="j" axis="0 1 0" damping="0.1"/><geom type="capsule" size="0.05 0.1"/>
   <body pos="0 0 0.2" euler="10 40 20"><geom type="ellipsoid" size="0.1 0.05 0.03" contype="0" conaffinity="0"/>
  </body></body>
  <body pos="-0.2 0 0" gravcomp="1"><joint type="ball"/><geom type="sphere" size="0.1" pos="-0.1 0.02 0"/></body></body>
</worldbody><actuator><position joint="j" kp="1" kv="0.1"/></actuator></mujoco>"""
"""Bodies in a fluid that flows past them, with parts of their weights compensated."""


SERVOS = """<mujoco><option timestep="0.01"/><worldbody>
 <body pos="0 0 0.3"><joint name="i" axis="0 1 0" damping="0.1"/><geom type="capsule" size="0.05 0.1" pos="0.1 0 0"/>
  <body pos="0.2 0 0"><joint name="j" axis="0 1 1"/><geom type="capsule" size="0.05 0.1"/></body></body></worldbody>
<actuator><general joint="i" gear="-2" biastype="affine" biasprm="0.3 0 -3" forcelimited="true" forcerange="-0.5 0.5"/>
 <general joint="j" biastype="affine" biasprm="0 -1 0.05"/><position joint="j" kp="2" kv="0.1" ctrlrange="-0.2 0.2"/>
</actuator></mujoco>"""
"""Servos that brake, with a limit of their force, and one that drives."""


HEAP = """<mujoco><option timestep="0.004"/><default><geom condim="4" friction="0.6 0.02 0.001"/></default><worldbody>
 <geom type="plane" size="5 5 1"/><geom type="box" size="0.2 0.2 0.1" pos="0.2 0 0" euler="5 10 20"/>
 <body pos="0 0 0.25" euler="10 20 30"><freejoint/><geom type="box" size="0.1 0.15 0.08"/></body>
 <body pos="0.05 0.02 0.42" euler="50 20 30"><freejoint/><geom type="cylinder" size="0.1 0.1"/></body>
 <body pos="-0.1 0.1 0.2" euler="80 20 30"><freejoint/><geom type="capsule" size="0.05 0.15"/></body>
 <body pos="0.15 0.1 0.3" euler="30 60 10"><freejoint/><geom type="ellipsoid" size="0.1 0.07 0.13"/></body>
 <body pos="0.1 -0.1 0.32"><freejoint/><geom type="sphere" size="0.08"/></body></worldbody></mujoco>"""
"""One free body of each kind, on each other, on a plane and on a fixed box."""


COUPLED = """<mujoco><option timestep="0.01"/><worldbody>
 <body pos="0 0 0.3"><joint name="i" axis="0 1 0"/><geom type="capsule" size="0.05 0.1" pos="0.1 0 0"/>
  <body pos="0.2 0 0"><joint name="j" axis="0 1 1"/><geom type="capsule" size="0.05 0.1"/>
   <body pos="0.2 0 0"><joint name="k" axis="1 0 0"/><geom type="capsule" size="0.05 0.1"/></body></body></body>
 </worldbody><equality><joint joint1="j" joint2="i" polycoef="0.1 0.5 0.2 0 0" solref="0.05 1"/></equality>
<tendon><fixed name="t" damping="0.1" stiffness="0.2" frictionloss="0.02" limited="true" range="-0.3 0.3">
  <joint joint="i" coef="1"/><joint joint="k" coef="-0.5"/></fixed></tendon>
<actuator><position tendon="t" kp="2" kv="0.3"/></actuator></mujoco>"""
"""Three links on a tendon, and an equation between two joints."""


BALLS = """<mujoco><option timestep="0.005"/><default><joint type="ball" limited="true"/></default><worldbody>
 <body pos="0 0 1"><joint name="p" range="0 30" margin="0.1" damping="0.01" solreflimit="0.03 0.9"/>
  <geom type="capsule" size="0.05 0.2" pos="0 0 0.2"/>
  <body pos="0 0 0.4"><joint name="k" range="0 20"/><geom type="box" size="0.05 0.1 0.2" pos="0 0.05 0.2"/></body>
 </body>
</worldbody></mujoco>"""
"""Two ball joints whose angles are limited."""


ROPES = """<mujoco><option timestep="0.005"/><worldbody><site name="s" pos="0 0.1 1"/>
 <body pos="0 0 0.6"><freejoint/><geom type="sphere" size="0.1"/><site name="t" pos="0 0 0.1"/>
  <body pos="0.2 0 0"><joint axis="0 1 0.3"/><geom type="capsule" size="0.05 0.1" pos="0.1 0 0"/>
   <site name="u" pos="0.2 0.01 0"/></body></body></worldbody>
<tendon><spatial limited="true" range="0 0.35" margin="0.02" solreflimit="0.03 0.9">
  <site site="s"/><site site="t"/></spatial>
 <spatial limited="true" range="0.4 0.8"><site site="s"/><site site="t"/><site site="u"/></spatial></tendon></mujoco>"""
"""Two links that hang on ropes, one of which goes from link to link."""


def tendons(power: int = 2) -> str:
    """A floating body with fingers: fixed tendons with springs, dampers, limits, friction and servos, and equations
    between joints and between tendons."""
    finger = """<body pos="{x} {y} 0"><joint name="{name}" axis="0 1 0.2" damping="0.01" ref="{ref}"/>
     <geom type="capsule" size="0.03 0.1" pos="0 0 0.1"/></body>"""
    places = {"a": (0.3, 0.0), "b": (-0.3, 0.0), "c": (0.0, 0.3), "d": (0.0, -0.3)}
    fingers = "".join(finger.format(name=n, x=x, y=y, ref=10 * x) for n, (x, y) in places.items())
    solimp = f"0.9 0.95 0.01 0.5 {power}"
    return f"""<mujoco><option timestep="0.005"/><default><geom solimp="{solimp}"/>
 <equality solimp="{solimp}"/><tendon solimplimit="{solimp}" solimpfriction="{solimp}"/></default><worldbody>
 <geom type="plane" size="5 5 1"/><body pos="0 0 0.18"><freejoint/><geom type="sphere" size="0.2"/>{fingers}</body>
 <body pos="1 0 0.5"><joint name="e" type="slide" axis="0 0 1"/><geom type="sphere" size="0.1"/></body></worldbody>
<tendon><fixed name="s" stiffness="4" damping="0.2" springlength="-0.05 0.1" limited="true" range="-0.2 0.2"
  margin="0.03" solreflimit="0.03 0.9"><joint joint="a" coef="1"/><joint joint="b" coef="-0.5"/></fixed>
 <fixed name="t" frictionloss="0.05"><joint joint="b" coef="0.7"/><joint joint="c" coef="0.4"/></fixed>
 <fixed name="u"><joint joint="e" coef="2"/></fixed></tendon>
<equality><joint joint1="c" joint2="d" polycoef="0.05 0.8 0.3 -0.2 0.1" solref="0.03 1.1"/>
 <tendon tendon1="t" tendon2="u" polycoef="0.1 0.5 0.2 0 0" solref="-300 -20"/>
 <joint joint1="b" polycoef="0.1 0 0 0 0"/></equality>
<actuator><position tendon="s" kp="2" kv="0.3" gear="1.5"/>
 <general tendon="s" biastype="affine" biasprm="0 0 -0.4" forcelimited="true" forcerange="-0.05 0.05"/>
 <motor joint="d"/><motor tendon="u"/></actuator></mujoco>"""


def materials(pairs: bool = True) -> str:
    """Bodies on a conveyor belt, on a turntable and on sticky ground, with gaps; and explicit pairs with materials of
    their own."""
    explicit = """<contact><pair geom1="ground" geom2="ball" condim="6" friction="0.5 0.9 0.02 0.003 0.004"
     solref="0.03 1.1" solreffriction="0.05 0.8" solimp="0.8 0.9 0.002 0.4 2" margin="0.01" gap="0.02" adhesion="2"/>
     <pair geom1="stick" geom2="egg" condim="4" friction="0.3 0.2 0.01 0.001 0.001" margin="0.005"/></contact>"""
    return f"""<mujoco><option timestep="0.004"/><default><geom friction="0.6 0.02 0.003" condim="6"/></default>
<worldbody>
 <geom name="ground" type="plane" size="5 5 1" pos="0.1 0.2 0" euler="0 4 0" surfacevel="0.3 0.2 0.5 0.1 0.2 0.9"
  adhesion="1.5" gap="0.01"/>
 <body pos="0 0 0.2"><joint axis="0 0 1"/><geom type="box" size="0.3 0.3 0.08" surfacevel="0 0.5 0 0.4 0 0.1"/></body>
 <body pos="0 0 0.4"><freejoint/><geom name="ball" size="0.1" margin="0.02"/></body>
 <body pos="0.1 0.05 0.7" euler="10 80 0"><freejoint/>
  <geom name="stick" type="capsule" size="0.05 0.15" adhesion="3" gap="0.03" friction="0.4 0.01 0.001"/></body>
 <body pos="-0.6 0 0.1" euler="20 0 50"><freejoint/><geom type="box" size="0.1 0.15 0.05" adhesion="0.5"/></body>
 <body pos="0.65 0.05 0.1"><freejoint/><geom name="egg" size="0.08" surfacevel="0 0 0 1 2 0.5"/></body>
</worldbody>{explicit if pairs else ""}</mujoco>"""


GEOMS = ("box", "sphere", "capsule", "cylinder", "ellipsoid")


def heap(count: int, kinds: tuple[str, ...] = GEOMS[:3], seed: int = 0, geom: str = "", option: str = "") -> str:
    """Free bodies of 12 to 20 cm that fall between walls onto the ground; geom: attributes of all of them."""
    rng, side, bodies = np.random.default_rng(seed), max(1, round(0.8 * count ** (1 / 3))), []
    for i in range(count):
        place = np.array([i % side - (side - 1) / 2, i // side % side - (side - 1) / 2, i // side**2 + 0.6])
        x, y, z = 0.21 * place + 0.01 * rng.normal(size=3)
        a, b, c = rng.uniform(0.06, 0.1, 3)
        kind, turn = kinds[i % len(kinds)], "{} {} {}".format(*rng.uniform(0.0, 360.0, 3))
        size = {"sphere": f"{a}", "capsule": f"{0.7 * a} {0.7 * b}", "cylinder": f"{a} {b}"}.get(kind, f"{a} {b} {c}")
        shape = f'<geom type="{kind}" size="{size}" friction="{rng.uniform(0.4, 0.9)} 0.01 0.001" {geom}/>'
        bodies.append(f'<body pos="{x} {y} {z}" euler="{turn}"><freejoint/>{shape}</body>')
    half, plane = 0.105 * side + 0.1, '<geom type="plane" size="5 5 1" pos="{} {} 0" zaxis="{} {} {}"/>'
    walls = [plane.format(x * half, y * half, -x, -y, 0) for x, y in ((1, 0), (-1, 0), (0, 1), (0, -1))]
    ground = plane.format(0, 0, 0, 0, 1)
    inside = "".join((ground, *walls, *bodies))
    return f"<mujoco><option {option}/><worldbody>{inside}</worldbody></mujoco>"


THROWN = """<mujoco><option timestep="0.01" integrator="implicitfast"/><worldbody><geom type="plane" size="5 5 1"/>
 <body pos="0 0 0.3" euler="20 30 10"><freejoint/><geom type="box" size="0.03 0.05 0.1"/>
  <body pos="0 0 0.1"><geom type="capsule" size="0.02 0.03" contype="0" conaffinity="0"/></body></body>
 <body pos="1 0 0.4"><freejoint/><geom type="box" size="0.03 0.05 0.1"/>
  <body pos="0 0 0.2"><joint name="j" axis="1 0 0"/><geom type="capsule" size="0.02 0.1"/></body></body></worldbody>
<actuator><motor joint="j"/></actuator></mujoco>"""
"""A free body of which one part is fixed to it, and one that carries a joint: "implicitfast" tells them apart."""


def source(name: str) -> str:
    """The path of one of Gymnasium's models; or the XML itself."""
    return name if name.startswith("<") else str(ASSETS / f"{name}.xml")


def mujoco_model(name: str, options: bd.MuJoCo) -> mujoco.MjModel:
    """MuJoCo's model, with its solver at full precision (dense Jacobians: its sparse ones are wrong in 4.0.0)."""
    given = source(name)
    model = mujoco.MjModel.from_xml_string(given) if name.startswith("<") else mujoco.MjModel.from_xml_path(given)
    model.opt.jacobian, model.opt.solver = mujoco.mjtJacobian.mjJAC_DENSE, mujoco.mjtSolver.mjSOL_NEWTON
    model.opt.tolerance, model.opt.ls_tolerance, model.opt.iterations = 0.0, 1e-10, 50
    if options.integrator is not None:
        model.opt.integrator = getattr(mujoco.mjtIntegrator, f"mjINT_{INTEGRATORS[options.integrator]}")
    if options.cone is not None:
        model.opt.cone = getattr(mujoco.mjtCone, f"mjCONE_{options.cone.upper()}")
    return model


def visited(model: mujoco.MjModel, count: int, seed: int, steps: int = 300) -> tuple[np.ndarray, ...]:
    """States (qpos, qvel) and controls, [count, ...], of motions under random controls."""
    rng, data, found = np.random.default_rng(seed), mujoco.MjData(model), []
    while len(found) < count:
        mujoco.mj_resetData(model, data)
        data.qvel[:] = 0.3 * rng.normal(size=model.nv)
        control = np.zeros(model.nu)
        for t in range(steps):
            control = np.clip(0.9 * control + 0.3 * rng.normal(size=model.nu), -1.0, 1.0)
            data.ctrl[:] = control
            if t % 7 == 0:
                found.append((data.qpos.copy(), data.qvel.copy(), control))
            mujoco.mj_step(model, data)
            if not np.isfinite(data.qacc).all() or np.abs(data.qvel).max() > 200.0:
                break
    return tuple(np.array(x[:count]) for x in zip(*found, strict=True))


def steps_of_mujoco(model: mujoco.MjModel, q: np.ndarray, v: np.ndarray, u: np.ndarray) -> tuple[np.ndarray, ...]:
    """qpos and qvel after a step from every state, and the number of contacts in each."""
    data, after = mujoco.MjData(model), []
    for qpos, qvel, control in zip(q, v, u, strict=True):
        mujoco.mj_resetData(model, data)
        data.qpos[:], data.qvel[:], data.ctrl[:] = qpos, qvel, control
        mujoco.mj_forward(model, data)
        count = data.ncon
        mujoco.mj_step(model, data)
        after.append((data.qpos.copy(), data.qvel.copy(), count))
    return tuple(np.array(x) for x in zip(*after, strict=True))


def load(name: str) -> bd.Model:
    """Rigid physics would take other friction coefficients than explicit pairs have."""
    return bd.load(source(name), ignore=("friction",))


def tensors(*arrays: np.ndarray) -> list[torch.Tensor]:
    return [torch.from_numpy(np.ascontiguousarray(x)) for x in arrays]
