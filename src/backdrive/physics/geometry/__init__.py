"""Shapes in the world, and the contact points of pairs of shapes, with their adjoints."""
