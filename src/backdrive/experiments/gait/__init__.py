"""A quadruped learns to run from standstill, by a network that turns a periodic sine into motor signals."""
