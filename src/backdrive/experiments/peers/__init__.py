"""One quadruped that falls on its feet, by other tools: how fast they simulate it, and its gradient.

Every module ``with_…`` is one of them. They run as ``python -m peers NAME REQUEST`` from the folder above, with
whatever Python has the tool installed: only `with_backdrive` imports the rest of the package.

    quadruped   the equations, plainly, for the tools that differentiate programs
    measure     time and memory
"""
