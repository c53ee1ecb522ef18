"""The version of the package, in one place: pyproject.toml and ``backdrive.__version__`` have it from here."""

__version__ = "0.1.0"
