"""Methods without the gradient of the physics, for comparison: PPO (Stable-Baselines3), SQL and MBPO."""
