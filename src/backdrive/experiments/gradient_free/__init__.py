"""Methods without the gradient of the physics, to compare with: PPO, SQL and MBPO for a number of samples, and SAC and
PPO for a given time (`timed`). PPO and the timed methods are those of Stable-Baselines3."""
