"""Policy enhancement (Qiao et al. 2021): how methods of learning scale with the number of links of a pendulum."""

from .experiment import run

__all__ = ["run"]
