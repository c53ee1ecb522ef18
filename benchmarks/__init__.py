"""Backdrive and its peers, timed side by side: ``python -m benchmarks`` (see ``__main__``)."""
