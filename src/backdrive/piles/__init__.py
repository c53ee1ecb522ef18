"""Piles: one big world of free bodies. A step is a sequence of kernels whose lanes are items of that one world: its
bodies, shapes, pairs of shapes, or contacts.

rollout, world       steps of a batch of worlds, and their derivative
step, adjoint        one step, stage by stage, and its derivative
forces               contact forces along a path
placement            the first stages, whatever the physics, and shapes_adjoint: backwards
soft/                MuJoCo's physics

The stages, in their order:

bodies               each body on its own, before and after the contacts
shapes               shapes in the world, and boxes around them
broad_phase          pairs of shapes that are near each other
pairs                the narrow phase: their contact points
arrangement, packs   the order in which contacts are solved: islands, colours, packs
contacts             the rows of a contact
solvers/             the impulses

tables, records      numbers of a model, and the layouts of the stages' records
kernels, arguments   the kernels of the stages
stages, memory       kernels on numpy arrays, and the memory of these
"""
