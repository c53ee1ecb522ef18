"""The command line, `backdrive`."""

from .main import main

__all__ = ["main"]
