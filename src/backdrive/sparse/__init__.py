"""One big world of free bodies: its steps as a sequence of kernels whose lanes are items of that world.

stages      kernels on numpy arrays
tables      a model's bodies and shapes, as the stages see them
broad       which shapes are near each other
memory      arrays that are used again
step        one step
adjoint     its derivative
rollout     many of them, of a batch of worlds
forces      of the contacts along a rollout
"""
