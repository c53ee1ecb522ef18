"""All scenes: importing this module puts those of every part on the list."""

from . import (
    adjoints_and_batches,
    big_worlds,
    bounces,
    constraints,
    joints,
    learning,
    loading,
    materials,
    motors,
    policies,
    quantities,
    shapes,
    torch_functions,
)
from .registry import SCENES

__all__ = [
    "SCENES", "adjoints_and_batches", "big_worlds", "bounces", "constraints", "joints", "learning", "loading",
    "materials", "motors", "policies", "quantities", "shapes", "torch_functions",
]  # fmt: skip
