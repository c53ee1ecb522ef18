"""Solvers of the complementarity problem of a step."""
