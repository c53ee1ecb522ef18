"""Impacts within a step: their times and their effect."""
