"""Vectors, spatial algebra, arrays and dense linear algebra, in traced scalars."""
