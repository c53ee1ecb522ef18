"""Methods without the gradient of the physics, to compare with: PPO (Stable-Baselines3), SQL and MBPO."""
