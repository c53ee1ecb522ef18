"""One big world of free bodies: its steps as a sequence of kernels whose lanes are items of that world.

stages      kernels on numpy arrays
tables      a model's bodies and shapes, as the stages see them
broad       which shapes are near each other
packing     contacts, and the order in which they are solved
step        one step and its derivative
rollout     many of them, of a batch of worlds
"""
