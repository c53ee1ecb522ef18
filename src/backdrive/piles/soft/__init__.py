"""MuJoCo's physics for one big world of free bodies: the laws of `physics.soft`, as stages over bodies, pairs and
contacts.

tables      shapes in MuJoCo's order, and the parameters of soft contacts
bodies      each body on its own: its smooth acceleration, and the step from its acceleration
pairs       the narrow phase: contacts where MuJoCo has them
contacts    the rows of a contact on whitened accelerations
newton      the convex problem, by Newton's method with block-sparse factors
step        one step, stage by stage; adjoint: its derivative, by implicit differentiation
"""
