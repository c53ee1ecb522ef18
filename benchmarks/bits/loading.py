"""Models that are loaded: MJCF and URDF written here, and Gymnasium's robots if it is installed."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import backdrive as bd

from .measure import merged, motion, parameters_of, rolled, start
from .registry import Arrays, Skipped, add, scene

MJCF = """
<mujoco>
  <option timestep="0.01"/>
  <worldbody>
    <geom name="floor" type="plane" size="5 5 0.1" friction="0.9"/>
    <geom name="step" type="box" size="0.2 0.5 0.05" pos="0.5 0 0.05"/>
    <body name="trunk" pos="0 0 0.4">
      <freejoint/>
      <geom name="hull" type="box" size="0.2 0.15 0.05" density="500"/>
      <body name="front" pos="0.15 0 -0.05">
        <joint name="front" axis="0 1 0" range="-40 40" damping="0.2" armature="0.01" frictionloss="0.02"/>
        <geom name="front" type="capsule" fromto="0 0 0 0 0 -0.25" size="0.04" density="600" friction="1.2"/>
        <body name="foot" pos="0 0 -0.29">
          <joint name="foot" type="slide" axis="0 0 1" range="-0.03 0.03" stiffness="400" damping="5"/>
          <geom name="foot" type="sphere" size="0.05" density="600"/>
        </body>
      </body>
      <body name="back" pos="-0.15 0 -0.05">
        <joint name="back" type="ball" damping="0.3" stiffness="3"/>
        <geom name="back" type="cylinder" fromto="0 0 0 0 0 -0.28" size="0.04" density="600"/>
      </body>
    </body>
    <body name="ball" pos="0.45 0.1 0.3">
      <freejoint/>
      <geom name="ball" type="sphere" size="0.08" mass="0.5"/>
    </body>
  </worldbody>
  <contact><exclude body1="trunk" body2="foot"/></contact>
  <actuator>
    <position name="front" joint="front" kp="20" kv="1" ctrlrange="-0.5 0.5"/>
    <motor name="foot" joint="foot" gear="5" ctrlrange="-1 1"/>
    <velocity name="spin" joint="front" kv="0.5"/>
    <general name="general" joint="front" gainprm="2" biastype="affine" biasprm="0.1 -1 -0.1" forcerange="-3 3"/>
  </actuator>
</mujoco>
"""

LINKED = """
<mujoco>
  <worldbody>
    <geom name="floor" type="plane" size="5 5 0.1"/>
    <body name="a" pos="0 0 0.8">
      <joint name="a" axis="0 1 0"/>
      <geom type="capsule" fromto="0 0 0 0 0 -0.4" size="0.04"/>
      <body name="b" pos="0 0 -0.4">
        <joint name="b1" axis="0 1 0"/>
        <joint name="b2" axis="1 0 0" limited="true" range="-30 30"/>
        <geom type="capsule" fromto="0 0 0 0.4 0 0" size="0.04"/>
      </body>
    </body>
    <body name="c" pos="0.4 0 0.8">
      <joint name="c" type="ball"/>
      <geom type="capsule" fromto="0 0 0 0 0 -0.4" size="0.04"/>
    </body>
  </worldbody>
  <equality><connect body1="b" body2="c" anchor="0.4 0 0"/></equality>
  <contact><exclude body1="b" body2="c"/></contact>
</mujoco>
"""

URDF = """
<robot name="arm">
  <link name="base"><inertial><mass value="2"/><inertia ixx="0.02" iyy="0.02" izz="0.02" ixy="0" ixz="0" iyz="0"/>
    </inertial><collision><geometry><box size="0.2 0.2 0.1"/></geometry></collision></link>
  <link name="upper"><inertial><origin xyz="0 0 0.2"/><mass value="1"/>
    <inertia ixx="0.02" iyy="0.02" izz="0.002" ixy="0" ixz="0" iyz="0"/></inertial>
    <collision><origin xyz="0 0 0.2"/><geometry><cylinder radius="0.04" length="0.3"/></geometry></collision></link>
  <link name="lower"><inertial><origin xyz="0 0 0.15"/><mass value="0.5"/>
    <inertia ixx="0.01" iyy="0.01" izz="0.001" ixy="0" ixz="0" iyz="0"/></inertial>
    <collision><origin xyz="0 0 0.3"/><geometry><sphere radius="0.06"/></geometry></collision></link>
  <joint name="shoulder" type="revolute"><parent link="base"/><child link="upper"/><origin xyz="0 0 0.06"/>
    <axis xyz="0 1 0"/><limit lower="-1" upper="0.3" effort="20" velocity="5"/><dynamics damping="0.2" friction="0.1"/>
  </joint>
  <joint name="elbow" type="prismatic"><parent link="upper"/><child link="lower"/><origin xyz="0 0 0.4"/>
    <axis xyz="0 0 1"/><limit lower="-0.05" upper="0.1" effort="30" velocity="5"/><dynamics damping="3"/></joint>
</robot>
"""


def everything(model: bd.Model, scale: float = 0.5, **options: Any) -> Arrays:
    """By both solvers: controls, wrenches, all parameters; the forces by sweeps only."""
    found = {}
    for name, solver in (("sweeps", None), ("interior", bd.InteriorPoint())):
        sim = rolled(model, solver=solver, **options)
        given = parameters_of(model, "all")
        state = start(model, 3, speed=0.2)
        forces = name == "sweeps"
        found[name] = motion(
            sim,
            state,
            steps=25,
            controls=scale,
            wrenches=0.2,
            parameters=given,
            forces=forces,
            bodies=model.bodies[-1:],
        )
    return merged(**found)


def driven(model: bd.Model, scale: float) -> Arrays:
    """By sweeps, without forces: controls and all parameters of every environment."""
    given = parameters_of(model, "all", 3)
    return motion(rolled(model), start(model, 3, speed=0.2), steps=25, controls=scale, parameters=given)


@scene
def mjcf_legged() -> Arrays:
    """a MJCF model with a free joint, a ball, servos, contacts, and a step"""
    return everything(bd.load(MJCF))


@scene
def mjcf_loop() -> Arrays:
    """a MJCF model with a connect equality and two joints on one body"""
    return everything(bd.load(LINKED))


@scene
def mjcf_fused() -> Arrays:
    """the legged MJCF model with fuse, without its contacts"""
    model = bd.load(MJCF, fuse=True, ignore=("contact", "limit", "frictionloss"))
    return motion(
        rolled(model), start(model, 9, speed=0.2), steps=25, controls=0.5, parameters=parameters_of(model, "all")
    )


@scene
def urdf_arm() -> Arrays:
    """a URDF arm: limits, friction, motors; fixed, floating, and with servos"""
    return merged(
        fixed=everything(bd.load(URDF), 5.0),
        floating=driven(bd.load(URDF, floating=True), 5.0),
        servo=driven(bd.load(URDF, motors=bd.PositionServo(kp=50.0, kv=2.0)), 0.3),
    )


def of_gymnasium(name: str) -> Arrays:
    """A robot from Gymnasium's files falls to the ground, its motors at random, rolled and specialised."""
    try:
        import gymnasium
    except ImportError:
        raise Skipped("gymnasium is not installed") from None
    path = Path(gymnasium.__file__).parent / "envs" / "mujoco" / "assets" / name
    if not path.exists():
        raise Skipped(f"gymnasium has no {name}")
    model = bd.load(path)
    found = {}
    for specialize in (False, True):
        sim = bd.Simulator(model, 0.01, specialize=specialize)
        given = parameters_of(model, ("mass", "friction", "damping"))
        state = start(model, 3, speed=0.2)
        state.q.data[..., 2 if name == "ant.xml" else 1] -= 0.25  # m, near the ground
        found["special" if specialize else "rolled"] = motion(
            sim, state, steps=25, controls=0.7, parameters=given, forces=True, bodies=model.bodies[:1]
        )
    return merged(**found)


for _file in ("ant.xml", "half_cheetah.xml"):
    add(f"gymnasium-{_file.split('.')[0].replace('_', '-')}", f"Gymnasium's {_file}", partial(of_gymnasium, _file))
