"""The kinematic tree: joints, poses, forward and inverse dynamics, and their adjoints."""
