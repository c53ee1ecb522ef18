"""Plan and control through the physics: ``optimize(sim, Cost(stage, final), state, controls)``, and `MPC` around it."""

from .costs import Cost, quadratic
from .dynamics import Dynamics, SimulatedDynamics, TorchDynamics
from .ilqr import ILQR
from .mpc import MPC
from .planning import optimize
from .result import Outcome, Plan
from .rewards import Episodes, Rewarded, Rewards
from .sampling import CEM, MPPI
from .shooting import Shooting

__all__ = [
    "CEM", "ILQR", "MPC", "MPPI", "Cost", "Dynamics", "Episodes", "Outcome", "Plan", "Rewarded", "Rewards", "Shooting",
    "SimulatedDynamics", "TorchDynamics", "optimize", "quadratic",
]  # fmt: skip
