"""One big world of free bodies: its steps as a sequence of kernels whose lanes are items of that world.

stages      kernels on numpy arrays
tables      a model's bodies and shapes, as the stages see them
broad       which shapes are near each other
memory      arrays that are used again
network     contacts as one sparse linear system
modes       their impulses where it is known which stick, slide and separate, and the derivative
interior_point, pivoting        which do
interior_step   the same, from and to what the stages know
step        one step
adjoint     its derivative
rollout     many of them, of a batch of worlds
forces      of the contacts along a rollout
"""
