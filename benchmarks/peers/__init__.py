"""One quadruped that falls on its feet, by other tools: how fast they simulate it, and its gradient.

Every module ``with_…`` is one of them. They run as ``python -m benchmarks.peers NAME REQUEST`` in the repository,
by the Python that has the tool installed: only `with_backdrive` imports backdrive.

    quadruped   the equations, plainly, for the tools that differentiate programs
    tools       which Python has a tool, and how it is asked
"""
