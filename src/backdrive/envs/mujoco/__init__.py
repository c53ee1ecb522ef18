"""Twins of Gymnasium's v5 MuJoCo environments: its models, with MuJoCo's physics, and its observations, rewards, starts
and terminations, all differentiable.

Quantities besides q and v that Gymnasium takes from MuJoCo's data are those of MuJoCo's last evaluation of the forces
(`data.LastEvaluation`), as in Gymnasium.
"""
