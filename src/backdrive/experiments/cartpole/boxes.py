"""The model that is a scene: its masses and sizes are learned by `fit`, its steps are the engine's."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from ...identify import Fit, Learn, Observations, fit
from ...model import Box, Hinge, Model, Scene, Slider, State
from ...simulator import Simulator
from ...trajectory import Trajectory
from .game import DT, FORCE, GRAVITY, Steps
from .model_batch import ModelBatch

BOXES = "boxes"
UNKNOWNS = ("mass of cart", "mass of pole", "length of pole", "width of pole")
BOUNDS = ((0.1, 10.0), (0.01, 1.0), (0.1, 10.0), (0.001, 1.0))  # kg, kg, m, m
TRUTH = (1.0, 0.1, 1.0, 0.0)  # Gymnasium's pole is a thin rod.
IDENTIFIABLE = ("mass of both (kg)", "pole's mass x arm (kg m)", "inertia about hinge (kg m²)")
POLE_X, POLE_Y = 2, 3  # Rows of the parameter "size".
SIGN = torch.tensor([1.0, 1.0, -1.0, -1.0], dtype=torch.float64)  # The hinge's angle is positive to the left.
TURN = torch.diag(SIGN)[:, [0, 2, 1, 3]]  # Maps (q, v) to observations: x, its rate, angle, its rate.


class Boxes(ModelBatch):
    """Scenes with masses and sizes `values` [K, 4], in the order of `UNKNOWNS`."""

    def __init__(self, simulator: Simulator, values: Tensor) -> None:
        self.simulator, self.count = simulator, len(values)
        mass, size = values[:, :2], simulator.model.parameter("size").repeat(len(values), 1)
        size[:, POLE_Y], size[:, POLE_X] = values[:, 2], values[:, 3]
        self.parameters = {"mass": mass, **solid({"mass": mass, "size": size})}

    def _of(self, model: Tensor) -> dict[str, Tensor]:
        return {name: x[model] for name, x in self.parameters.items()}

    def predict(self, model: Tensor, seen: Tensor, force: Tensor) -> Tensor:
        return seen_in(self.simulator.step(state_of(seen), force, parameters=self._of(model)))

    def linearize(self, x: Tensor, u: Tensor) -> tuple[Tensor, Tensor]:
        A, B = self.simulator.linearize(state_of(x[:, :4]), u, parameters=self._of(x[:, 4].long()))
        return TURN @ A @ TURN.T, TURN @ B

    def rollout(self, x: Tensor, controls: Tensor) -> Tensor:
        path = self.simulator.rollout(state_of(x[:, :4]), controls, parameters=self._of(x[:, 4].long()))
        return self._states(path, x)

    def track(
        self, x: Tensor, controls: Tensor, gains: Tensor, origin: Tensor, low: Tensor, high: Tensor
    ) -> tuple[Tensor, Tensor]:
        path, used = self.simulator.track(
            state_of(x[:, :4]), controls, gains @ TURN, state_of(origin[:-1, :, :4]), limits=(low, high),
            parameters=self._of(x[:, 4].long()),
        )  # fmt: skip
        return self._states(path, x), used

    def _states(self, path: Trajectory, x: Tensor) -> Tensor:
        seen = seen_in(State(path.q, path.v))
        return torch.cat([seen, x[:, 4:].expand(len(seen), -1, -1)], -1)


def state_of(seen: Tensor) -> State:
    q, v = (seen @ TURN).split(2, -1)
    return State(q, v)


def seen_in(state: State) -> Tensor:
    return torch.cat([state.q, state.v], -1) @ TURN.T


def build() -> Model:
    scene = Scene(dim=2, gravity=(0.0, -GRAVITY))
    scene.add_body("cart", Box(0.5, 0.3), mass=1.0)
    scene.add_body("pole", Box(0.1, 1.0), mass=1.0, position=(0.0, 0.5))
    scene.add_joint("rail", Slider(axis=(1.0, 0.0)), parent=None, child="cart")
    scene.add_joint("hinge", Hinge(), parent="cart", child="pole", anchor=(0.0, 0.0))
    scene.add_motor("force", joint="rail", gear=1.0, limits=(-FORCE, FORCE))
    return scene.build()


def solid(parameters: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Parameters derived from mass [K, 2] and size [K, 4]: the inertias, and the hinge at the pole's lower end."""
    (cart, pole), (x, y, width, length) = (parameters[name].unbind(-1) for name in ("mass", "size"))
    inertia = torch.stack([cart * (x**2 + y**2), pole * (width**2 + length**2)], -1) / 12.0
    up = torch.stack([torch.zeros_like(length), length / 2.0], -1)
    on_cart = torch.zeros_like(up)
    return {
        "inertia": inertia,
        "anchor": torch.stack([on_cart, -up], -2),
        "offset": torch.stack([on_cart, up], -2),
    }


def guess(generator: torch.Generator) -> Tensor:
    """A random guess [4], log-uniform in the middle 80 % between the bounds."""
    low, high = torch.tensor(BOUNDS, dtype=torch.float64).unbind(-1)
    return low * (high / low) ** (0.1 + 0.8 * torch.rand(len(BOUNDS), generator=generator, dtype=torch.float64))


def learn_boxes(simulator: Simulator, steps: Steps, start: Tensor, width: float | None = None) -> Fit:
    """Fit masses and sizes by least squares of one-step errors, from `start` [4]. width: the pole's, if known, m."""
    masses, sizes = (("mass", "cart"), ("mass", "pole")), (("size", "pole.y"), ("size", "pole.x"))
    wanted = [*masses, *(sizes if width is None else sizes[:1])]
    learn = [
        Learn(name, row, start=value, bounds=bounds)
        for (name, row), value, bounds in zip(wanted, start.tolist(), BOUNDS, strict=False)
    ]
    known = simulator.model.parameter("size").clone()
    known[POLE_X] = float(start[3]) if width is None else width
    after = state_of(steps.after)
    seen = Observations(torch.tensor([DT]), q=after.q.unsqueeze(0), v=after.v.unsqueeze(0))
    return fit(
        simulator, seen, learn, state=state_of(steps.before), controls=steps.force.reshape(1, -1, 1),
        parameters={"size": known}, derive=solid,
    )  # fmt: skip


def identifiable(values: Tensor) -> Tensor:
    """The identifiable numbers [3], see `IDENTIFIABLE`, for masses and sizes [4]."""
    cart, pole, length, width = values.unbind(-1)
    return torch.stack([cart + pole, pole * length / 2.0, pole * (length**2 / 3.0 + width**2 / 12.0)], -1)


def identifiable_with_deviations(found: Fit) -> tuple[Tensor, Tensor]:
    """The identifiable numbers and their standard deviations, [3] each.

    The covariance has no component along the direction that leaves all three unchanged.
    """
    J = torch.func.jacrev(identifiable)(found.value)
    return identifiable(found.value), (J @ found.covariance @ J.T).diagonal().sqrt()
