"""Sample enhancement (Qiao et al. 2021): how many samples an Ant needs to learn to walk, with it and without."""

from .experiment import run

__all__ = ["run"]
