"""What stands on a stage, as renderers take it: visuals in a row, and their poses in the world."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from ...model.looks import Looks, Visual
from ..poses import matrices
from ..stage import Staging

Array = np.ndarray


class Scenery:
    """The visuals of some environments, side by side, and where their links put them."""

    def __init__(self, looks: list[Looks], offsets: Array) -> None:
        """looks: of each environment; offsets [B, 3]: where each of them stands, m."""
        self.visuals: list[Visual] = []
        links: list[int] = []
        owners: list[int] = []
        for b, each in enumerate(looks):
            for visual in each.shown:
                if b and visual.link < 0 and visual.kind == "plane":
                    continue  # all stand on the floor of the first
                self.visuals.append(visual)
                links.append(visual.link)
                owners.append(b)
        self._links, self._owners, self._offsets = np.array(links, dtype=np.int64), np.array(owners), offsets
        self._fixed = self._links < 0
        self._positions = np.array([visual.position for visual in self.visuals]).reshape(-1, 3)
        self._rotations = np.array([visual.rotation for visual in self.visuals]).reshape(-1, 3, 3)

    @classmethod
    def of(cls, stage: Staging, paint: Callable[[Looks], Looks] = lambda looks: looks) -> Scenery:
        """That of a stage; several environments stand in a grid. paint: changes looks."""
        if stage.same_looks:
            looks = [paint(stage.looks)] * stage.batch
        else:
            looks = [paint(stage.looks_of(b)) for b in range(stage.batch)]
        hidden = [
            looks[b] if stage.visible[b].all() else _without(looks[b], ~stage.visible[b]) for b in range(stage.batch)
        ]
        return cls(hidden, grid(stage))

    def poses(self, positions: Array, rotations: Array) -> tuple[Array, Array]:
        """Positions [n, 3] and rotations [n, 3, 3] of the visuals, for links at [B, nlink, 3], quaternions [.., 4]."""
        link = np.where(self._fixed, 0, self._links)
        turned = np.where(self._fixed[:, None, None], np.eye(3), matrices(rotations[self._owners, link].astype(float)))
        origin = np.where(self._fixed[:, None], 0.0, positions[self._owners, link]) + self._offsets[self._owners]
        return origin + np.einsum("nij,nj->ni", turned, self._positions), turned @ self._rotations


def _without(looks: Looks, hidden: Array) -> Looks:
    """Without the visuals of hidden links, a mask [nlink]."""
    return replace(looks, visuals=tuple(v for v in looks.visuals if v.link < 0 or not hidden[v.link]))


def grid(stage: Staging) -> Array:
    """Where the environments of a stage stand, [B, 3] m: in a square about the origin, so that they do not meet."""
    if stage.batch == 1:
        return np.zeros((1, 3))
    low, high = stage.bounds_of(slice(None))
    home = (low[0] + high[0]) / 2.0
    across = [0, 2] if stage.up == "+y" else [0, 1]
    spacing = float(np.median((high - low).max((0, 1))[across])) * 1.35 + 1e-3
    columns = math.ceil(math.sqrt(stage.batch))
    rows = math.ceil(stage.batch / columns)
    numbers = np.arange(stage.batch)
    places = np.zeros((stage.batch, 3))
    places[:, across[0]] = (numbers % columns - (columns - 1) / 2.0) * spacing
    places[:, across[1]] = (numbers // columns - (rows - 1) / 2.0) * spacing * (-1.0 if stage.up == "+y" else 1.0)
    apart = np.ptp(home[:, across], axis=0).max() if len(home) else 0.0
    return places if apart < spacing / 2.0 else np.zeros((stage.batch, 3))  # they start at different places already
