"""Collision detection: contact points between the shapes of a model, and their vector-Jacobian products.

    solids           vocabulary: placed solids, hulls, contact points and their records, pairs of shapes
    pairs/           the registry of shape pairs, and their narrow phases, one module per family
    mujoco/          contacts where MuJoCo has them, with its contact frames
    bounds           broad phase
    narrow_phase     one pair of shapes at the current poses
    contact_points   the contact points of a model, over slots
    collision        find and follow contact points, and the adjoint

What a single shape is (sizes, hull, bounding volumes) is in `model.shapes`.
"""
