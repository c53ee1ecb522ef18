"""Identify the parameters of a world from its observed motion: ``fit(sim, observed, learn=["mass"])``."""

from .check import GradientCheck
from .fitting import fit
from .observations import Observations
from .optimizers import GaussNewton, GradientDescent, LevenbergMarquardt, Outcome, TorchOptimizer
from .result import Fit, History
from .unknowns import Learn

__all__ = [
    "Fit", "GaussNewton", "GradientCheck", "GradientDescent", "History", "Learn", "LevenbergMarquardt", "Observations",
    "Outcome", "TorchOptimizer", "fit",
]  # fmt: skip
