"""The quadruped, whose measures are those of a `Design`, and its motions from standstill.

The robot is MJCF text, so that rigid physics, MuJoCo's physics and MuJoCo itself simulate the same robot. Each of its
legs has three hinges with position servos: abduction (about x), hip and knee (about y). A servo's torque is
limited, as a real motor's. Trunk, thighs and feet collide with the floor; parts of the robot do not collide with each
other.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ...adjoints import Checkpoint, Truncated
from ...model import Model, State, load
from ...policy import MLP
from ...simulator import Simulator
from ...trajectory import Trajectory

DT, SECONDS = 0.004, 8.0
LEGS = {"FL": (1, 1), "FR": (1, -1), "RL": (-1, 1), "RR": (-1, -1)}  # Signs of x (front: 1) and y (left: 1).
JOINTS = ("abduction", "hip", "knee")
STANCE = (0.0, 0.7, -1.4)  # Joint angles of a standing leg, rad: the foot is below the hip.
SINK = 1e-4  # Depth of the feet in the floor at the start, m: rounding must not decide whether they touch it.
RANGES = ((-0.8, 0.8), (-1.0, 2.4), (-2.6, -0.3))  # Of the joints, rad.
RADIUS = 0.018  # Of thighs and shanks, m.
TOUCHING = 0.01  # A trunk whose lowest corner is below this height counts as fallen, m.

Number = float | Tensor


@dataclass(frozen=True)
class Design:
    """Measures of the robot. Lengths in m, masses in kg; all legs are alike.

    A measure may be a tensor, with which `parameters` is differentiable; `mjcf` takes its value.
    """

    trunk_length: Number = 0.44
    """Distance of front and rear hips is 0.8 of it."""
    trunk_width: Number = 0.16
    """Distance of left and right abduction axes is 0.6 of it."""
    trunk_height: Number = 0.11
    trunk_mass: Number = 6.0
    abduction_length: Number = 0.07
    """From the abduction axis outwards to the plane of the leg."""
    thigh_length: Number = 0.21
    shank_length: Number = 0.21
    """From the knee to the center of the foot."""
    foot_radius: Number = 0.022
    abduction_mass: Number = 0.6
    thigh_mass: Number = 0.8
    shank_mass: Number = 0.15
    foot_mass: Number = 0.06
    gear: Number = 1.0
    """Turns of a motor for one of its joint: of the joint's torque and its limit, of damping and inertia by its
    square."""
    rotor: Number = 0.01
    """Inertia of a motor, kg m²."""
    hip_spring: Number = 0.0
    """Stiffness of a spring that holds hips at their stance, N m/rad."""
    knee_spring: Number = 0.0
    """Stiffness of a spring that holds knees at their stance, N m/rad."""
    torques: tuple[float, float, float] = (20.0, 20.0, 30.0)
    """Limits of the motors' torques for abduction, hip and knee, N m."""
    kp: float = 60.0
    """Gain of the position servos, N m/rad."""
    kv: float = 1.5
    """Damping of the position servos, N m s/rad."""
    damping: Number = 0.1
    """Of the joints, N m s/rad."""
    friction: float = 0.8
    """Of robot and floor."""


class Link(NamedTuple):
    """A body of the robot: where its frame is in its parent's, and its mass properties in its own."""

    name: str
    parent: str | None
    offset: tuple[Number, Number, Number]
    mass: Number
    com: tuple[Number, Number, Number]
    inertia: tuple[Number, Number, Number]
    """Moments about the center of mass, kg m²; the axes are those of the frame."""


def links(design: Design) -> Iterator[Link]:
    """The trunk, and for each leg abduction, thigh and shank with the foot. All frames have the same axes at angles of
    zero, where legs are straight; the origins of a leg's frames are at its joints."""
    d = design
    size = (d.trunk_length, d.trunk_width, d.trunk_height)
    yield Link("trunk", None, (0.0, 0.0, 0.0), d.trunk_mass, (0.0, 0.0, 0.0), _box(d.trunk_mass, *size))
    for leg, (front, left) in LEGS.items():
        at = (0.4 * front * d.trunk_length, 0.3 * left * d.trunk_width, 0.0)
        motor = 0.4 * d.abduction_mass * 0.04**2  # A ball of 4 cm.
        yield Link(
            f"{leg} abduction", "trunk", at, d.abduction_mass, (0.0, 0.5 * left * d.abduction_length, 0.0), (motor,) * 3
        )  # fmt: skip
        thigh = _rod(d.thigh_mass, d.thigh_length)
        outwards = (0.0, left * d.abduction_length, 0.0)
        # The knee's motor is at the hip, so that the thigh's center of mass is high.
        yield Link(
            f"{leg} thigh", f"{leg} abduction", outwards, d.thigh_mass, (0.0, 0.0, -0.25 * d.thigh_length), thigh
        )  # fmt: skip
        mass = d.shank_mass + d.foot_mass
        middle = (0.5 * d.shank_mass + d.foot_mass) * d.shank_length / mass
        rod, ball = _rod(d.shank_mass, d.shank_length), 0.4 * d.foot_mass * d.foot_radius**2
        apart = d.shank_mass * d.foot_mass / mass * (0.5 * d.shank_length) ** 2
        inertia = (rod[0] + ball + apart, rod[1] + ball + apart, rod[2] + ball)
        yield Link(
            f"{leg} shank", f"{leg} thigh", (0.0, 0.0, -d.thigh_length), mass, (0.0, 0.0, -middle), inertia
        )  # fmt: skip


def _box(mass: Number, x: Number, y: Number, z: Number) -> tuple[Number, Number, Number]:
    return tuple(mass / 12 * (a**2 + b**2) for a, b in ((y, z), (x, z), (x, y)))  # type: ignore[return-value]


def _rod(mass: Number, length: Number) -> tuple[Number, Number, Number]:
    """Moments of inertia of an upright rod, kg m²."""
    across = mass * (length**2 / 12 + RADIUS**2 / 4)
    return (across, across, 0.5 * mass * RADIUS**2)


# ---------------------------------------------------------------------------------------------- the model


def quadruped(design: Design = Design()) -> Model:  # noqa: B008 (frozen)
    """The robot on a floor, as it stands."""
    return load(mjcf(design))


def mjcf(design: Design = Design()) -> str:  # noqa: B008 (frozen)
    """The robot on a floor, standing, as MJCF text."""
    measures: dict[str, Any] = {x.name: _value(getattr(design, x.name)) for x in fields(design)}
    d = Design(**measures)
    inner = {link.name: "" for link in links(d)}
    bodies = list(links(d))
    for link in reversed(bodies):  # Children come after their parents.
        text = _body(d, link, inner[link.name])
        if link.parent is None:
            root = text
        else:
            inner[link.parent] = text + inner[link.parent]
    servos = "".join(
        f'<position name="{leg} {joint}" joint="{leg} {joint}" kp="{d.kp}" kv="{d.kv}" gear="{d.gear}" '
        f'forcerange="{-torque} {torque}"/>'
        for leg in LEGS
        for joint, torque in zip(JOINTS, d.torques, strict=True)
    )
    pose = " ".join(str(x) for x in (0.0, 0.0, standing_height(d), 1.0, 0.0, 0.0, 0.0, *STANCE * len(LEGS)))
    return f"""
<mujoco model="quadruped">
  <option timestep="{DT}" integrator="implicitfast" cone="pyramidal"/>
  <default>
    <geom contype="0" conaffinity="1" friction="{d.friction} 0.005 0.0001" condim="3" rgba="0.35 0.45 0.6 1"/>
    <joint type="hinge" armature="{d.rotor * d.gear**2}" damping="{d.damping}" limited="true"/>
  </default>
  <worldbody>
    <light pos="0 0 4" dir="0 0 -1" directional="true"/>
    <geom name="floor" type="plane" size="0 0 1" contype="1" conaffinity="0" rgba="0.8 0.8 0.8 1"/>
    {root}
  </worldbody>
  <actuator>{servos}</actuator>
  <keyframe><key name="stand" qpos="{pose}"/></keyframe>
</mujoco>
"""


def standing_height(design: Design) -> Number:
    """Of the trunk's center above the floor, when the robot stands, m."""
    _, hip, knee = STANCE
    legs = math.cos(hip) * design.thigh_length + math.cos(hip + knee) * design.shank_length
    return legs + design.foot_radius - SINK


def _value(x: object) -> object:
    return float(x) if isinstance(x, Tensor) else x


def _numbers(values: tuple[Number, ...]) -> str:
    return " ".join(repr(float(x)) for x in values)


def _body(d: Design, link: Link, inner: str) -> str:
    leg, _, part = link.name.partition(" ")
    place = (0.0, 0.0, standing_height(d)) if link.parent is None else link.offset
    inertial = (
        f'<inertial pos="{_numbers(link.com)}" mass="{float(link.mass)}" diaginertia="{_numbers(link.inertia)}"/>'
    )
    return (
        f'<body name="{link.name}" pos="{_numbers(place)}">{_joint(d, leg, part)}{inertial}{_geoms(d, leg, part)}'
        f"{inner}</body>"
    )


def _joint(d: Design, leg: str, part: str) -> str:
    if not part:
        return '<freejoint name="trunk"/>'
    k = ("abduction", "thigh", "shank").index(part)
    spring = (0.0, d.hip_spring, d.knee_spring)[k]
    low, high = (math.degrees(x) for x in RANGES[k])
    return (
        f'<joint name="{leg} {JOINTS[k]}" axis="{"1 0 0" if k == 0 else "0 1 0"}" range="{low} {high}" '
        f'stiffness="{spring}" springref="{math.degrees(STANCE[k])}"/>'
    )


def _geoms(d: Design, leg: str, part: str) -> str:
    """What collides: the trunk, the lower end of thighs, and feet. The rest only shows."""
    if not part:
        size = _numbers((d.trunk_length / 2, d.trunk_width / 2, d.trunk_height / 2))
        return f'<geom name="trunk" type="box" size="{size}" rgba="0.85 0.55 0.2 1"/>'
    _, left = LEGS[leg]
    if part == "abduction":
        out = _numbers((0.0, left * d.abduction_length, 0.0))
        return f'<geom type="capsule" size="0.03" fromto="0 0 0 {out}" conaffinity="0"/>'
    length = d.thigh_length if part == "thigh" else d.shank_length
    bar = f'<geom type="capsule" size="{RADIUS if part == "thigh" else 0.6 * RADIUS}" fromto="0 0 0 0 0 {-length}" '
    bar += 'conaffinity="0"/>'
    name, radius = (f"{leg} knee", RADIUS) if part == "thigh" else (f"{leg} foot", d.foot_radius)
    return bar + f'<geom name="{name}" type="sphere" size="{radius}" pos="0 0 {-length}" rgba="0.2 0.2 0.2 1"/>'


# ---------------------------------------------------------------------------------------------- motions


class GaitWorld:
    """The robot of a design, and its motions of 8 s from standstill.

    physics: "mujoco" or "rigid". stance: the controls with which it stands [nu], rad. ranges: of the joints [nu, 2].
    """

    def __init__(
        self, design: Design = Design(), physics: str = "mujoco", dtype: torch.dtype = torch.float64,  # noqa: B008
        dt: float = DT, seconds: float = SECONDS,
    ) -> None:  # fmt: skip
        self.design, self.model, self.physics = design, quadruped(design), physics
        self.simulator = Simulator(self.model, dt, physics=physics, dtype=dtype, threads=1)
        self.seconds, self.steps = seconds, round(seconds / dt)
        self.stance = torch.tensor(STANCE * len(LEGS), dtype=dtype)
        self.ranges = torch.tensor(RANGES * len(LEGS), dtype=dtype)

    def start(self, batch: int | None = None, design: Design | None = None) -> State:
        """The robot stands still. design: of the robot, for a height that is that of its legs; differentiable."""
        height = torch.as_tensor(standing_height(self.design if design is None else design), dtype=self.stance.dtype)
        q = torch.cat([torch.zeros(2), height.reshape(1), torch.tensor([1.0, 0.0, 0.0, 0.0]), self.stance])
        q, v = q.to(self.stance), self.stance.new_zeros(self.model.nv)
        return State(q, v) if batch is None else State(q.repeat(batch, 1), v.repeat(batch, 1))

    def times(self) -> Tensor:
        """Start of every step [T], s."""
        return self.simulator.dt * torch.arange(self.steps, dtype=self.simulator.dtype)

    def move(
        self, controls: Tensor, start: State | None = None, *, wrenches: Tensor | None = None,
        parameters: dict[str, Tensor] | None = None, adjoint: Checkpoint | Truncated | None = None,
        clip: float | None = None,
    ) -> Trajectory:  # fmt: skip
        """The motion for target angles of the joints, [T, nu] or [T, B, nu], rad. The rest: as `Simulator.rollout`.

        The servos turn their motors, so that their own targets are those times the gear of the world's design, or that
        in the parameters.
        """
        gear = self.design.gear if parameters is None or "gear" not in parameters else parameters["gear"]
        controls = gear * controls
        start = self.start(None if controls.ndim == 2 else controls.shape[1]) if start is None else start
        return self.simulator.rollout(
            start, controls, wrenches=wrenches, parameters=parameters, adjoint=adjoint, clip=clip
        )  # fmt: skip

    def react(
        self, policy: MLP, inputs: Tensor, start: State | None = None, *, wrenches: Tensor | None = None,
        parameters: dict[str, Tensor] | None = None, adjoint: Checkpoint | Truncated | None = None,
        clip: float | None = None, noise: Tensor | None = None,
    ) -> Trajectory:  # fmt: skip
        """The motion of a network that observes its sensors and inputs, [T, k] or [T, B, k]; in the kernel."""
        start = self.start(None if inputs.ndim == 2 else inputs.shape[1]) if start is None else start
        return self.simulator.rollout(
            start, policy=policy, inputs=inputs, steps=self.steps, wrenches=wrenches, parameters=parameters,
            adjoint=adjoint, clip=clip, noise=noise,
        )  # fmt: skip


def parameters(world: GaitWorld, design: Design) -> dict[str, Tensor]:
    """The measures of a design as parameters of the world's rollouts, in place of its own; differentiable.

    These are masses, lengths, radii, gear, springs, damping and armature. Limits and gains of the servos and friction
    stay those of the world's design. So does the start: give `move` that of the design, by
    `GaitWorld.start`.
    """
    model, dtype, d = world.model, world.simulator.dtype, design
    table, found = model.parameters(), list(links(d))

    def own(name: str) -> Tensor:
        return model.parameter(name).to(dtype)

    def of_joints(values: dict[str, Number]) -> Tensor:
        """Of the trunk's free joint, and of the legs' hinges in order."""
        return _stack([values.get(name.partition(" ")[2], 0.0) for name in table["stiffness"].rows], dtype)

    inertia = _stack([link.inertia for link in found], dtype)
    sizes = {"trunk.x": d.trunk_length, "trunk.y": d.trunk_width, "trunk.z": d.trunk_height, "floor.offset": 0.0}
    sizes |= {f"{leg} foot.radius": d.foot_radius for leg in LEGS} | {f"{leg} knee.radius": RADIUS for leg in LEGS}
    lower_end = {"knee": d.thigh_length, "foot": d.shank_length}
    ends = [lower_end.get(name.partition(" ")[2], 0.0) for name in table["shape_position"].rows]
    return {
        "mass": _stack([link.mass for link in found], dtype),
        "com": _stack([link.com for link in found], dtype),
        "inertia": torch.cat([inertia, torch.zeros_like(inertia)], -1),
        "offset": torch.cat([own("offset")[:1], _stack([link.offset for link in found[1:]], dtype)]),
        "stiffness": of_joints({"hip": d.hip_spring, "knee": d.knee_spring}),
        "damping": of_joints(dict.fromkeys(JOINTS, d.damping)),
        "armature": of_joints(dict.fromkeys(JOINTS, d.rotor * d.gear**2)),
        "gear": _stack([d.gear] * model.nu, dtype),
        "size": _stack([sizes[name] for name in table["size"].rows], dtype),
        "shape_position": _stack([(0.0, 0.0, -end) for end in ends], dtype),
    }  # fmt: skip


def _stack(values: Sequence[Any], dtype: torch.dtype) -> Tensor:
    """A tensor of (nested sequences of) numbers, some of which may be tensors."""
    parts = [_stack(x, dtype) if isinstance(x, tuple | list) else torch.as_tensor(x, dtype=dtype) for x in values]
    return torch.stack(parts)


# ---------------------------------------------------------------------------------------------- what a motion is worth


def speed(path: Trajectory, seconds: float) -> Tensor:
    """Mean velocity along x from the start to the end, [B], m/s."""
    return (path.last.q[..., 0] - path.q[0, ..., 0]) / seconds


def upright(q: Tensor) -> Tensor:
    """Cosine of the trunk's tilt, [...], for q [..., nq]."""
    return 1.0 - 2.0 * (q[..., 4].square() + q[..., 5].square())


def ahead(q: Tensor) -> Tensor:
    """Cosine of the angle between the trunk's long axis and the x axis, [...], for q [..., nq]."""
    return 1.0 - 2.0 * (q[..., 5].square() + q[..., 6].square())


def lowest_corner(world: GaitWorld, q: Tensor, design: Design | None = None) -> Tensor:
    """Height of the trunk's lowest corner above the floor, [...], m, for q [..., nq]. design: of the robot, if not that
    of the world; its measures may be those of several robots."""
    d, (w, x, y, z) = world.design if design is None else design, q[..., 3:7].unbind(-1)
    row = (2.0 * (x * z - w * y), 2.0 * (y * z + w * x), upright(q))
    size = (d.trunk_length, d.trunk_width, d.trunk_height)
    below = [0.5 * length * (part.square() + 1e-6).sqrt() for part, length in zip(row, size, strict=True)]
    return q[..., 2] - below[0] - below[1] - below[2]


@torch.no_grad()
def fallen(world: GaitWorld, q: Tensor, design: Design | None = None) -> Tensor:
    """Whether the trunk has touched the floor up to each time, bool [T+1, ...], for q [T+1, ..., nq]. design: as
    `lowest_corner` has it."""
    return (lowest_corner(world, q, design) < TOUCHING).cumsum(0) > 0


def torques(world: GaitWorld, q: Tensor, v: Tensor, targets: Tensor) -> Tensor:
    """Torques of the servos at the joints, [..., nu], N m. targets: angles of the joints [..., nu], rad."""
    d = world.design
    most = torch.tensor(d.torques * len(LEGS), dtype=q.dtype)
    force = d.kp * d.gear * (targets - q[..., 7:]) - d.kv * d.gear * v[..., 6:]
    return d.gear * torch.minimum(torch.maximum(force, -most), most)


@torch.no_grad()
def energy_per_metre(world: GaitWorld, path: Trajectory, targets: Tensor) -> float:
    """Positive mechanical work of the motors for a metre along x, J/m: a brake gives nothing back."""
    power = torques(world, path.q[:-1], path.v[:-1], targets) * path.v[:-1, ..., 6:]
    distance = float(path.last.q[..., 0] - path.q[0, ..., 0])
    return float(power.clamp(min=0.0).sum()) * world.simulator.dt / distance
