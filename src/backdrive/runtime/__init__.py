"""Calls of compiled kernels from PyTorch: checks, kernels chosen and run, autograd, vmap and policies in the loop."""
