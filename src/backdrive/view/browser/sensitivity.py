"""Gradients on the page: arrows on the bodies that they belong to, and bodies coloured by a parameter's sensitivity."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ...model import Kind, Model
from ..loss_gradients import Gradients
from ..stage import Staging
from .arrangement import Placing
from .overlays import Overlay, add_arrows, joint_axes, set_arrows
from .parts import rotated
from .scene import Poses

if TYPE_CHECKING:
    import viser

Array = np.ndarray

QUANTITIES = ("none", "position", "velocity", "control", "wrench")
LINEAR, ANGULAR = (225, 60, 150), (130, 80, 220)
"""Colours of derivatives by places, velocities and forces, and of those by angles and torques (right-hand rule)."""
LONGEST = 0.5
"""The length of the largest arrow, relative to the size of the model; at one time in ten, larger ones are cut to it."""
PALE, STRONG = np.array([0.86, 0.88, 0.9]), np.array([0.85, 0.1, 0.15])


class GradientArrows(Overlay):
    """Arrows that point to where the loss grows, or (downhill) to where it falls.

    position, velocity: at each joint; of hinges, sliders and ball joints along their axes, of free bodies at their
    origins in world axes. control: along the axis of the motor's joint. wrench: at the centers of mass. Lengths are
    proportional to the derivative, for each quantity and for linear and angular ones by themselves: see `LONGEST`.
    """

    name = "gradients"

    def __init__(self, server: viser.ViserServer, stage: Staging, size: float, gradients: Gradients) -> None:
        super().__init__(server, stage, size)
        self.gradients = gradients
        self.quantity, self.downhill, self.scale = "none", False, 1.0
        self._largest: dict[str, tuple[float, float]] = {}

    def draw(self, arrangement: Placing, poses: Poses) -> None:
        if self.quantity == "none" or poses.frame < 0:
            for node in self.nodes:
                node.visible = False
            return
        if not self.nodes:
            radius = 0.014 * self.size
            self.nodes = [
                add_arrows(self.server, f"/gradients/{name}", color, radius)
                for name, color in (("linear", LINEAR), ("angular", ANGULAR))
            ]
        arrows = self._vectors(self.quantity, arrangement, poses)
        for node, (feet, vectors), largest in zip(self.nodes, arrows, self._scales(self.quantity), strict=True):
            size = np.linalg.norm(vectors, axis=-1, keepdims=True)
            relative = vectors / np.maximum(size, largest)  # at most 1
            set_arrows(node, feet, (-1.0 if self.downhill else 1.0) * self.scale * LONGEST * self.size * relative)

    def _scales(self, quantity: str) -> tuple[float, float]:
        """The linear and the angular derivative that all but one time in ten stay below."""
        if quantity not in self._largest:
            found = self.gradients
            if quantity == "wrench":
                values = found.force, found.torque
            elif quantity == "control":
                turns = self._angular(found.model.motor_v)
                values = found.control[..., ~turns], found.control[..., turns]
            else:
                turns = self._angular(np.arange(found.model.nv))
                numbers = found.position if quantity == "position" else found.velocity
                values = numbers[..., ~turns], numbers[..., turns]
            linear, angular = (_typical(np.nan_to_num(np.abs(x))) for x in values)
            self._largest[quantity] = linear, angular
        return self._largest[quantity]

    def _angular(self, coordinates: Array) -> Array:
        """Which coordinates of v are angular velocities."""
        model = self.gradients.model
        angular = np.zeros(model.nv, dtype=bool)
        for kind, at in zip(model.kind.tolist(), model.vadr.tolist(), strict=True):
            first = {Kind.HINGE: 0, Kind.BALL: 0, Kind.PLANAR: 2, Kind.FREE: 3}.get(Kind(kind))
            if first is not None:
                angular[at + first : at + Kind(kind).nv] = True
        return angular[coordinates]

    def _vectors(self, quantity: str, arrangement: Placing, poses: Poses) -> list[tuple[Array, Array]]:
        """Feet and vectors of the linear and of the angular arrows for poses, [n, 3] each."""
        found, chosen = self.gradients, arrangement.environments
        numbers = np.array(self.stage.environments)[chosen]  # in the batch of the trajectory
        step = found.step_of(poses.frame)
        if quantity == "wrench":
            links = found.model.body_link
            local = np.broadcast_to(self.stage._inertials[1], (self.stage.batch, len(links), 3))[chosen]
            x, q = poses.positions[chosen][:, links], poses.rotations[chosen][:, links]
            feet = (x + rotated(q, local) + arrangement.shift[:, None]).reshape(-1, 3)
            return [(feet, values[step, numbers].reshape(-1, 3)) for values in (found.force, found.torque)]
        if quantity == "control":
            values = np.zeros((len(chosen), found.model.nv))
            np.add.at(values.T, found.model.motor_v, found.control[step, numbers].T)
        else:
            values = (found.position if quantity == "position" else found.velocity)[poses.frame, numbers]
        return self._by_joint(values, arrangement, poses)

    def _by_joint(self, values: Array, arrangement: Placing, poses: Poses) -> list[tuple[Array, Array]]:
        """Vectors in the world of derivatives [copies, nv] by the coordinates of the joints."""
        model, chosen = self.gradients.model, arrangement.environments
        anchors, axes = joint_axes(self.stage, poses, arrangement)
        linear: list[tuple[Array, Array]] = []
        angular: list[tuple[Array, Array]] = []
        for i, (kind, at) in enumerate(zip(model.kind.tolist(), model.vadr.tolist(), strict=True)):
            own, turn = values[:, at : at + Kind(kind).nv], poses.rotations[chosen, i]
            origin = poses.positions[chosen, i] + arrangement.shift
            if kind == Kind.HINGE:
                angular.append((anchors[:, i], axes[:, i] * own))
            elif kind == Kind.SLIDER:
                linear.append((anchors[:, i], axes[:, i] * own))
            elif kind == Kind.BALL:
                angular.append((anchors[:, i], rotated(turn, own)))
            elif kind == Kind.PLANAR:
                flat = np.pad(own[:, :2], ((0, 0), (0, 1)))
                linear.append((origin, flat))
                angular.append((origin, np.pad(own[:, 2:], ((0, 0), (2, 0)))))
            elif kind == Kind.FREE:
                linear.append((origin, own[:, :3]))
                angular.append((origin, rotated(turn, own[:, 3:])))
        return [_joined(linear), _joined(angular)]


def _typical(values: Array) -> float:
    """What the largest of the values [S, ...] of a time is below, but for one time in ten; not zero."""
    largest = values.reshape(len(values), -1).max(1, initial=0.0)
    return float(np.quantile(largest, 0.9)) or float(largest.max(initial=0.0)) or 1.0


def _joined(arrows: list[tuple[Array, Array]]) -> tuple[Array, Array]:
    if not arrows:
        return np.zeros((0, 3)), np.zeros((0, 3))
    feet, vectors = zip(*arrows, strict=True)
    return np.concatenate(feet), np.nan_to_num(np.concatenate(vectors))


def link_colors(gradients: Gradients, parameter: str, environment: int = 0) -> Array:
    """Colours [nlink, 3] from pale to strong by |dloss / d log p| of a parameter: of a body by its own rows, those of
    its joint, or those of its shapes, whichever the parameter has; the largest one of all bodies is the strongest."""
    model = gradients.model
    values = np.abs(np.nan_to_num(gradients.log_parameters[parameter][environment]))
    values = values.reshape(len(values), -1).max(1) if values.ndim > 1 else values
    strength = np.zeros(model.nlink)
    links = _links_of(model, model.parameters()[parameter].rows)
    np.maximum.at(strength, links[links >= 0], values[links >= 0])  # -1: a shape of the world
    strength /= strength.max() or 1.0
    return PALE + strength[:, None] * (STRONG - PALE)


def _links_of(model: Model, rows: tuple[str, ...]) -> Array:
    """The link that each row of a parameter belongs to: a body's, a joint's, or a shape's."""
    owners = tuple(row.rsplit(".", 1)[0] for row in rows)  # sizes are of shapes: "foot.radius"
    joints = dict(zip(model.joints, model.joint_link.tolist(), strict=True))
    motors = {
        name: int(np.flatnonzero(model.vadr <= v)[-1]) for name, v in zip(model.motors, model.motor_v, strict=True)
    }
    tables = (
        dict(zip(model.bodies, model.body_link.tolist(), strict=True)), joints,
        dict(zip(model.shape_names, model.shape_link.tolist(), strict=True)), motors,
    )  # fmt: skip
    for table in tables:
        for names in (rows, owners):
            if all(name in table for name in names):
                return np.array([table[name] for name in names])
    raise ValueError(f"bodies cannot be coloured by a parameter of {rows[0]!r}: it belongs to none of them")
