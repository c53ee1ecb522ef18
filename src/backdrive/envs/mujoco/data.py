"""What MuJoCo's `mjData` has besides q and v after a step of an environment, from the state of its last evaluation."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ...model import Model, State
from ...simulator import MuJoCo, Simulator
from ...trajectory import Trajectory

PARTS = ("rotation", "position", "angular_velocity", "velocity")
SIZES = (9, 3, 3, 3)


@dataclass(frozen=True)
class Bodies:
    """Motions of all bodies but the world, in world axes: rotation [B, nbody, 3, 3], position of the frame's origin,
    angular velocity, velocity of the origin [B, nbody, 3]."""

    rotation: Tensor
    position: Tensor
    spin: Tensor
    velocity: Tensor


class LastEvaluation:
    """Finds the state at which ``mj_step`` evaluated the forces last, and quantities of it.

    That is the state before the last step of the simulator; with the integrator "rk4", the state of the last stage of
    that step. ``mj_step`` leaves positions of bodies, contacts and forces as they were there.
    """

    def __init__(self, simulator: Simulator) -> None:
        self._simulator, self.model = simulator, simulator.model
        model = simulator.model
        assert model.soft is not None
        self._stage = self._sibling(MuJoCo(last_stage=True)) if model.soft.integrator == "rk4" else None
        self._alone: Simulator | None = None
        self._ends: list[tuple[Tensor, Tensor]] | None = None
        self._sensors = [(part, body) for body in model.bodies for part in PARTS]

    def _sibling(self, physics: MuJoCo) -> Simulator:
        own = self._simulator
        return Simulator(
            self.model, own.dt, physics=physics, dtype=own.dtype, threads=own.threads, nonfinite=own.nonfinite
        )  # fmt: skip

    def state(self, path: Trajectory) -> State:
        """The state of the last evaluation of a rollout, [B, n]."""
        before = path[-2]
        return before if self._stage is None else self._stage.step(before, path.controls[-1])

    def bodies(self, state: State) -> Bodies:
        seen = self._simulator.observe(state, self._sensors).unflatten(-1, (-1, sum(SIZES)))
        rotation, *others = seen.split(SIZES, -1)
        return Bodies(rotation.unflatten(-1, (3, 3)), *others)

    def positions(self, state: State, *bodies: str) -> list[Tensor]:
        """xpos of some bodies, [B, 3] each."""
        sensors = [("position", body) for body in bodies]
        return list(self._simulator.observe(state, sensors).split(3, -1))

    @property
    def alone(self) -> Simulator:
        """By Euler's method: one evaluation a step, at the state before it."""
        if self._alone is None:
            self._alone = self._sibling(MuJoCo(integrator="euler"))
        return self._alone

    def constraint_force(self, state: State, control: Tensor) -> Tensor:
        """qfrc_constraint [B, nv]: the generalised force of all constraints.

        It is M (a - a₀), where a₀ is the acceleration without constraints, and M a = (M + h D) (v⁺ - v) / h in a step
        with implicit damping D.
        """
        simulator = self._simulator
        rate = (self.alone.step(state, control).v - state.v) / simulator.dt
        free = simulator.forward_dynamics(state, control)
        damping = dof_damping(self.model).to(rate) * simulator.dt
        force = simulator.inverse_dynamics(state, rate) - simulator.inverse_dynamics(state, free)
        return force + damping * rate

    def contact_wrenches(self, state: State, control: Tensor, centre: Tensor) -> Tensor:
        """cfrc_ext [B, nbody, 6]: torque about `centre` [B, 3] and force of all contacts on every body but the world
        (where MuJoCo has zeros), in world axes."""
        contacts = self.alone.contacts(state, control)
        force, point = contacts.force[0], contacts.point[0]  # [B, nslot, 3]
        if self._ends is None:
            self._ends = contact_ends(self.model, contacts.pairs)
        wrenches = torch.cat([torch.linalg.cross(point - centre.unsqueeze(-2), force), force], -1)
        total = torch.zeros(len(force), len(self.model.bodies), 6).to(force)
        for (slots, bodies), sign in zip(self._ends, (1.0, -1.0), strict=True):
            total = total.index_add(1, bodies, wrenches[:, slots], alpha=sign)  # (a product's bits depend on the batch)
        return total


def contact_ends(model: Model, pairs: list[tuple[str, str]]) -> list[tuple[Tensor, Tensor]]:
    """For the first and the second shape of all pairs: the slots in which it belongs to a body, and that body."""
    body_of = {int(link): i for i, link in enumerate(model.body_link)}
    shapes = zip(model.shape_names, model.shape_link, strict=True)
    body = {name: body_of[int(link)] for name, link in shapes if link >= 0}
    ends = []
    for k in range(2):
        found = [(slot, body[pair[k]]) for slot, pair in enumerate(pairs) if pair[k] in body]
        ends.append((torch.tensor([x for x, _ in found]).long(), torch.tensor([x for _, x in found]).long()))
    return ends


def dof_damping(model: Model) -> Tensor:
    """The damping of every degree of freedom, [nv]."""
    damping = np.zeros(model.nv)
    for joint, value in enumerate(model.parameter("damping").tolist()):
        link = int(model.joint_link[joint])
        ends = [*model.vadr.tolist(), model.nv]
        damping[ends[link] : ends[link + 1]] = value
    return torch.from_numpy(damping)


class Inertias:
    """Masses and inertias of the bodies of a model that is one tree; results are in world axes."""

    def __init__(self, model: Model) -> None:
        self.mass, self.com, inertia = (model.parameter(name) for name in ("mass", "com", "inertia"))
        xx, yy, zz, xy, xz, yz = inertia.unbind(-1)
        self.inertia = torch.stack([xx, xy, xz, xy, yy, yz, xz, yz, zz], -1).unflatten(-1, (3, 3))

    def centres(self, bodies: Bodies) -> Tensor:
        """xipos [B, nbody, 3]: the centres of mass."""
        return bodies.position + (bodies.rotation @ self.com.to(bodies.position).unsqueeze(-1)).squeeze(-1)

    def centre(self, bodies: Bodies) -> Tensor:
        """The centre of mass of everything, [B, 3]."""
        weights = (self.mass / self.mass.sum()).to(bodies.position)
        return (weights.unsqueeze(-1) * self.centres(bodies)).sum(-2)

    def about(self, bodies: Bodies, centre: Tensor) -> Tensor:
        """cinert [B, nbody, 10]: the inertia of every body about `centre` [B, 3] (xx, yy, zz, xy, xz, yz), its mass
        times the position of its own centre relative to that one, its mass."""
        offset = self.centres(bodies) - centre.unsqueeze(-2)
        mass = self.mass.to(offset).unsqueeze(-1)
        R = bodies.rotation
        own = R @ self.inertia.to(offset) @ R.transpose(-1, -2)
        square = (offset.square().sum(-1, keepdim=True) * mass).unsqueeze(-1)
        outer = mass.unsqueeze(-1) * offset.unsqueeze(-1) * offset.unsqueeze(-2)
        total = own + square * torch.eye(3).to(offset) - outer
        unique = total.flatten(-2)[..., [0, 4, 8, 1, 2, 5]]
        return torch.cat([unique, mass * offset, mass.expand_as(offset[..., :1])], -1)


def velocities_at(bodies: Bodies, centre: Tensor) -> Tensor:
    """cvel [B, nbody, 6]: angular velocity, and the velocity of the body's point that is at `centre` [B, 3]."""
    lever = centre.unsqueeze(-2) - bodies.position
    return torch.cat([bodies.spin, bodies.velocity + torch.linalg.cross(bodies.spin, lever)], -1)


def motor_forces(model: Model, control: Tensor) -> Tensor:
    """qfrc_actuator [B, nv] of torque motors."""
    low, high = torch.from_numpy(model.control_limits).to(control).unbind(-1)
    force = model.parameter("gear").to(control) * control.clamp(low, high)
    at = torch.tensor(model.motor_v.tolist())
    return torch.zeros(*control.shape[:-1], model.nv).to(control).index_add(-1, at, force)
