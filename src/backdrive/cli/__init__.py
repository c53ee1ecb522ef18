"""The command line, `backdrive`."""

from .commands import main

__all__ = ["main"]
