"""What can be laid over the solids: frames, joints, sites, centers of mass, trails, contacts. Each is a class.

An overlay that is not shown has no nodes and sends nothing. To add one: a subclass of `Overlay`, and its name in
`OVERLAYS`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from ...model import Kind
from ...schema import layout
from ..poses import quaternion_of
from ..stage import ContactArrows, Staging
from .arrangement import Placing
from .parts import product, rotated
from .scene import Poses
from .solids import ball

if TYPE_CHECKING:
    import viser

Array = np.ndarray
RGB = tuple[int, int, int]

CONTACT: RGB = (214, 64, 52)
FORCE: RGB = (240, 150, 40)
CENTER: RGB = (250, 210, 60)
AXIS: RGB = (60, 110, 220)
TRAIL: RGB = (60, 60, 60)
TRAIL_POINTS = 600
"""The most points of the trail of a body."""


class Overlay:
    """Nodes that are laid over a stage."""

    name: ClassVar[str]
    """As the page and users call it."""

    def __init__(self, server: viser.ViserServer, stage: Staging, size: float) -> None:
        """size: of the whole model, m; overlays are drawn in proportion."""
        self.server, self.stage, self.size = server, stage, size
        self.nodes: list[Any] = []
        self._shown = False

    @property
    def shown(self) -> bool:
        return self._shown

    def show(self, shown: bool, arrangement: Placing, poses: Poses) -> None:
        """Add the nodes, or remove them; for a new arrangement, add them anew."""
        for node in self.nodes:
            node.remove()
        self.nodes, self._shown = [], shown
        if shown:
            self.draw(arrangement, poses)

    def draw(self, arrangement: Placing, poses: Poses) -> None:
        """Place the nodes for poses, adding those that are not there."""
        raise NotImplementedError

    @classmethod
    def fits(cls, stage: Staging) -> bool:
        """Whether there is anything to show."""
        return True


class Axes(Overlay):
    """Three coloured axes at some places of links."""

    length = 0.08
    """Relative to the size of the model."""

    def places(self) -> tuple[Array, Array, Array]:
        """Links [n], positions [n, 3] and quaternions [n, 4] in their frames."""
        raise NotImplementedError

    def draw(self, arrangement: Placing, poses: Poses) -> None:
        link, at, turn = self.places()
        x, q = poses.positions[arrangement.environments][:, link], poses.rotations[arrangement.environments][:, link]
        positions = (x + rotated(q, at) + arrangement.shift[:, None]).reshape(-1, 3)
        quaternions = product(q, np.broadcast_to(turn, q.shape)).reshape(-1, 4)
        if not self.nodes:
            length = self.length * self.size
            self.nodes = [
                self.server.scene.add_batched_axes(
                    f"/{self.name}", quaternions, positions, axes_length=length, axes_radius=length / 16.0
                )
            ]
        self.nodes[0].batched_positions, self.nodes[0].batched_wxyzs = positions, quaternions


class BodyFrames(Axes):
    """The frames of the bodies."""

    name = "frames"

    def places(self) -> tuple[Array, Array, Array]:
        n = self.stage.model.nbody
        return self.stage.model.body_link, np.zeros((n, 3)), np.tile([1.0, 0.0, 0.0, 0.0], (n, 1))


class Sites(Axes):
    """The named places of the file."""

    name = "sites"
    length = 0.04

    def places(self) -> tuple[Array, Array, Array]:
        sites, nlink = self.stage.looks.sites, self.stage.model.nlink
        link = np.array([site.link if site.link >= 0 else nlink for site in sites])
        return link, np.stack([s.position for s in sites]), quaternion_of(np.stack([s.rotation for s in sites]))

    @classmethod
    def fits(cls, stage: Staging) -> bool:
        return len(stage.looks.sites) > 0


class Arrows(Overlay):
    """Arrows of any number."""

    radius = 0.012
    """Of the shafts, relative to the size of the model."""
    color: RGB = AXIS

    def arrows(self, arrangement: Placing, poses: Poses) -> tuple[Array, Array]:
        """Feet and vectors, m: [n, 3] each."""
        raise NotImplementedError

    def draw(self, arrangement: Placing, poses: Poses) -> None:
        if not self.nodes:
            self.nodes = [add_arrows(self.server, f"/{self.name}", self.color, self.radius * self.size)]
        set_arrows(self.nodes[0], *self.arrows(arrangement, poses))


class Joints(Arrows):
    """The axes of hinges and sliders, at their anchors."""

    name = "joints"
    radius = 0.006

    def arrows(self, arrangement: Placing, poses: Poses) -> tuple[Array, Array]:
        foot, axis = joint_axes(self.stage, poses, arrangement)
        single = np.isin(self.stage.model.kind, (Kind.HINGE, Kind.SLIDER))
        return foot[:, single].reshape(-1, 3), 0.12 * self.size * axis[:, single].reshape(-1, 3)

    @classmethod
    def fits(cls, stage: Staging) -> bool:
        return bool(np.isin(stage.model.kind, (Kind.HINGE, Kind.SLIDER)).any())


class Centers(Overlay):
    """The centers of mass of the bodies, and a larger one of everything."""

    name = "centers of mass"

    def draw(self, arrangement: Placing, poses: Poses) -> None:
        masses, local = self.stage._inertials
        links, chosen = self.stage.model.body_link, arrangement.environments
        x, q = poses.positions[chosen][:, links], poses.rotations[chosen][:, links]
        own = np.broadcast_to(local, (self.stage.batch, *local.shape[1:]))[chosen % self.stage.batch]
        centers = x + rotated(q, own)
        share = np.broadcast_to(masses, (self.stage.batch, len(links)))[chosen % self.stage.batch]
        whole = (centers * share[..., None]).sum(1) / np.maximum(share.sum(1, keepdims=True), 1e-300)
        places = np.concatenate([centers, whole[:, None]], 1) + arrangement.shift[:, None]
        radius = np.append(np.full(len(links), 0.012), 0.03) * self.size
        set_balls(self, places.reshape(-1, 3), np.tile(radius, arrangement.copies), CENTER)


class ContactForces(Arrows):
    """Contact points, and the forces on the first body of each pair; the length of a weight is a third of the model."""

    name = "contacts"
    color = FORCE

    def __init__(self, server: viser.ViserServer, stage: Staging, size: float) -> None:
        super().__init__(server, stage, size)
        gravity = float(np.linalg.norm(stage.model.gravity)) or 9.81
        self._newton = size / 3.0 / max(float(stage._inertials[0][0].sum()) * gravity, 1e-9)
        self._kept: tuple[int, ContactArrows | None] = (-2, None)
        self.live: ContactArrows | None = None
        """Those of a running simulator."""

    def found(self, poses: Poses) -> ContactArrows | None:
        if poses.frame < 0:
            return self.live
        if self._kept[0] != poses.frame:
            self._kept = poses.frame, self.stage.contacts([poses.frame])
        return self._kept[1]

    def arrows(self, arrangement: Placing, poses: Poses) -> tuple[Array, Array]:
        found = self.found(poses)
        if found is None:
            return np.zeros((0, 3)), np.zeros((0, 3))
        points = found.points[0][arrangement.environments] + arrangement.shift[:, None]
        forces = found.forces[0][arrangement.environments]
        # An arrow pushes away from the ground: it is drawn for the body that moves.
        forces = np.where((found.links[:, 0] < 0)[:, None], -forces, forces)
        pressing = (forces != 0.0).any(-1)
        return points[pressing], self._newton * forces[pressing]

    def draw(self, arrangement: Placing, poses: Poses) -> None:
        feet, vectors = self.arrows(arrangement, poses)
        if not self.nodes:
            self.nodes = [add_arrows(self.server, f"/{self.name}", self.color, self.radius * self.size)]
        set_arrows(self.nodes[0], feet, vectors)
        balls = self.nodes[1:]
        if len(feet) == 0:
            for node in balls:
                node.visible = False
            return
        set_balls(self, feet, np.full(len(feet), 0.015 * self.size), CONTACT, first=1)
        self.nodes[1].visible = True

    @classmethod
    def fits(cls, stage: Staging) -> bool:
        return stage.model.npair > 0 or stage.simulator is not None


class Trails(Overlay):
    """The ways of the bodies that nothing carries: all of the motion, for the roots of the trees."""

    name = "trails"

    def draw(self, arrangement: Placing, poses: Poses) -> None:
        if self.nodes:
            return
        stage = self.stage
        roots = [i for i in stage.model.body_link.tolist() if stage.model.parent[i] < 0 or len(stage.model.bodies) == 1]
        tips = roots if len(roots) > 1 or not roots else [*roots, *leaves(stage)]
        step = max(1, len(stage) // TRAIL_POINTS)
        ways = (
            stage.positions[::step][:, arrangement.environments][:, :, sorted(set(tips))] + arrangement.shift[:, None]
        )
        segments = np.stack([ways[:-1], ways[1:]], -2).reshape(-1, 2, 3)
        thickness = 0.004 * self.size
        self.nodes = [self.server.scene.add_line_segments("/trails", segments, np.array(TRAIL), thickness=thickness)]

    @classmethod
    def fits(cls, stage: Staging) -> bool:
        return len(stage) > 1


def leaves(stage: Staging) -> list[int]:
    """The links of bodies that carry no other."""
    carrying = set(stage.model.parent.tolist())
    return [i for i in stage.model.body_link.tolist() if i not in carrying]


OVERLAYS: tuple[type[Overlay], ...] = (BodyFrames, Joints, Sites, Centers, ContactForces, Trails)


# ---------------------------------------------------------------------------------------------- helpers


def joint_axes(stage: Staging, poses: Poses, arrangement: Placing) -> tuple[Array, Array]:
    """Anchors and axes of the joints of all links in the world: [copies, nlink, 3] each."""
    nlink, chosen = stage.model.nlink, arrangement.environments
    records = np.atleast_2d(stage.constants)[:, : nlink * layout.LINK].reshape(-1, nlink, layout.LINK)
    records = np.broadcast_to(records, (stage.batch, *records.shape[1:]))[chosen % stage.batch]
    x, q = poses.positions[chosen][:, :nlink], poses.rotations[chosen][:, :nlink]
    anchor = x + rotated(q, records[..., layout.ANCHOR :][..., :3])
    return anchor + arrangement.shift[:, None], rotated(q, records[..., layout.AXIS :][..., :3])


def add_arrows(server: viser.ViserServer, name: str, color: RGB, radius: float) -> Any:
    """A node for arrows, none of which is there yet."""
    nothing = np.zeros((1, 2, 3))
    return server.scene.add_arrows(
        name, nothing, color, shaft_radius=radius, head_radius=2.2 * radius, head_length=5.0 * radius, visible=False
    )


def set_arrows(node: Any, feet: Array, vectors: Array) -> None:
    """Show arrows: feet and vectors [n, 3], m; those shorter than their heads are left out."""
    long = np.linalg.norm(vectors, axis=-1) > node.head_length if len(vectors) else np.zeros(0, dtype=bool)
    if not long.any():
        node.visible = False
        return
    node.points = np.stack([feet[long], feet[long] + vectors[long]], 1)
    node.visible = True


def set_balls(overlay: Overlay, places: Array, radii: Array, color: RGB, first: int = 0) -> None:
    """Show balls at places [n, 3] with radii [n], by the overlay's node of that number."""
    turns = np.tile([1.0, 0.0, 0.0, 0.0], (len(places), 1))
    if len(overlay.nodes) <= first:
        vertices, faces = ball()
        node = overlay.server.scene.add_batched_meshes_simple(
            f"/{overlay.name} points", vertices, faces, turns, places, batched_scales=radii, batched_colors=color,
            cast_shadow=False, receive_shadow=False, lod="off",
        )  # fmt: skip
        overlay.nodes.append(node)
        return
    node = overlay.nodes[first]
    if len(places) != len(node.batched_positions):
        node.batched_scales, node.batched_wxyzs = radii, turns
    node.batched_positions = places
