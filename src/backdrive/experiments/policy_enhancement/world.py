"""The pendulum of Qiao et al. 2021: a chain of point masses, held out horizontally, is to end at its highest point.

Time is a coordinate of the state, by a clock: a body without influence on the pendulum that moves at 1 m/s. So the task
is the same for every method: observations tell the time, the last frame pays for where the tip is, and the episode
terminates there.
"""

from __future__ import annotations

import itertools

import torch
from torch import Tensor

from ...envs import Task
from ...envs.task import Random
from ...model import Circle, Hinge, Scene, Slider, State

FRAMES, DT, TORQUE, LENGTH = 100, 1.0 / 60.0, 10.0, 0.5
"""Frames of an episode, their duration (s), the largest torque of a hinge (N m), and the length of a link (m)."""
MASSES, INERTIAS = (1.0, 2.16), (0.00494875, 0.00539427)
"""Mass (kg) at the end of the first link and of the others, and their moments of inertia (kg m²)."""
SUBSTEPS = 4
"""Simulator steps in a frame: with one, chains that are driven hard blow up (7 links: 9 % of constant full torques)."""
LARGE_RATE = 10.0
"""Rates of hinges are observed in this unit, rad/s."""


def pendulum(links: int) -> Task:
    """Swing the tip of `links` links to the highest point within 100 frames of 1/60 s.

    Action [links]: torques of the hinges, in units of 10 N m. Observation [3 links + 1]: rates of the hinges, in units
    of 10 rad/s; positions of the links' ends, all x and then all y, m; the share of the episode that is over. Initial
    state: horizontal, at rest. Reward of a step: the decrease of the squared distance d² of the tip from the highest
    point, m², and -d² after the last frame, which terminates the episode. The return of an episode is d₀² - 2 d², at
    most `most(links)`.
    """
    scene = Scene(dim=2, gravity=(0.0, -9.8))
    above = None
    for k in range(links):
        mass, inertia = MASSES[k > 0], INERTIAS[k > 0]
        end = scene.add_body(f"end{k}", Circle(0.05), mass=mass, inertia=inertia, position=(LENGTH * (k + 1), 0.0))
        hinge = scene.add_joint(f"hinge{k}", Hinge(), parent=above, child=end, anchor=(LENGTH * k, 0.0))
        scene.add_motor(f"motor{k}", joint=hinge, gear=TORQUE)
        above = end
    clock = scene.add_body("clock", Circle(0.05), mass=1.0, position=(0.0, -2.0 * links * LENGTH))
    scene.add_joint("time", Slider(axis=(1.0, 0.0)), child=clock, velocity=1.0)
    for a, b in itertools.combinations([*(f"end{k}" for k in range(links)), "clock"], 2):
        scene.exclude(a, b)
    model, reach = scene.build(), links * LENGTH

    def over(state: State) -> Tensor:
        """Whether the last frame is over, bool [B]."""
        return state.q[..., links] > (FRAMES - 0.5) * DT

    def ends(state: State) -> tuple[Tensor, Tensor]:
        """Coordinates x and y of the links' ends, m, [B, links] each."""
        angle = state.q[..., :links].cumsum(-1)
        return LENGTH * angle.cos().cumsum(-1), LENGTH * angle.sin().cumsum(-1)

    def distance(state: State) -> Tensor:
        """Squared distance of the tip from the highest point, m², [B]."""
        angle = state.q[..., :links].cumsum(-1)
        x, y = LENGTH * angle.cos().sum(-1), LENGTH * angle.sin().sum(-1)
        return x.square() + (y - reach).square()

    def observe(state: State) -> Tensor:
        time = state.q[..., links:] / (FRAMES * DT)
        return torch.cat([state.v[..., :links] / LARGE_RATE, *ends(state), time], -1)

    def reward(before: State, action: Tensor, after: State) -> dict[str, Tensor]:
        now = distance(after)
        return {"progress": distance(before) - now, "end": torch.where(over(after), -now, 0.0)}

    def start(random: Random, count: int) -> State:
        return State(*(x.clone() for x in model.initial_state(count)))

    wide = 1.1 * reach
    return Task(
        name=f"{links}-link pendulum", model=model, dt=DT / SUBSTEPS, frame_skip=SUBSTEPS, start=start,
        observe=observe, reward=reward, ends=over, limits=(-wide, wide, -wide, wide),
    )  # fmt: skip


def most(links: int) -> float:
    """The largest possible return of an episode, m²: the tip ends at the highest point."""
    return 2.0 * (links * LENGTH) ** 2
