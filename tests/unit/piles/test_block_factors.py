"""The block-sparse factors of big worlds with MuJoCo's physics, against NumPy's solutions."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backdrive.piles.soft.block_factors import BlockPattern, BlockSolver, N

SOLVER = BlockSolver()


def random_system(n: int, pairs: np.ndarray, pattern: BlockPattern, rng: np.random.Generator, stride: int):
    """A positive definite matrix with these couplings, and its blocks; in the order of elimination."""
    A, blocks = np.eye(n * N), np.full((pattern.size, stride), 0.0)
    for pair in pattern.position[pairs]:
        at, G = (pair[:, None] * N + np.arange(N)).ravel(), rng.normal(size=(2 * N, 5))
        A[np.ix_(at, at)] += G @ G.T
    by_block = A.reshape(n, N, n, N).swapaxes(1, 2)
    low, high = np.sort(pattern.position[pairs], axis=1).T
    blocks[:n, : N * N] = by_block[np.arange(n), np.arange(n)].reshape(n, -1)
    blocks[pattern.place(low, high), : N * N] = by_block[high, low].reshape(len(pairs), N * N)
    return A, blocks


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 14), st.integers(0, 30), st.integers(0, 2**32 - 1))
def test_solutions_of_random_systems(n, count, seed):
    rng = np.random.default_rng(seed)
    pairs = np.unique(np.sort(rng.integers(0, n, (count, 2)), axis=1), axis=0)
    pairs = pairs[pairs[:, 0] < pairs[:, 1]]
    pattern = BlockPattern(n, pairs)
    A, blocks = random_system(n, pairs, pattern, rng, stride=40)
    b = rng.normal(size=(n, N))
    kept = b.copy()
    x = SOLVER.factor(pattern, blocks).solve(b)
    assert np.array_equal(b, kept)
    assert np.abs(A @ x.ravel() - b.ravel()).max() < 1e-12 * np.abs(A).max() * n


@pytest.mark.parametrize("n", [30, 100])
def test_a_chain_has_no_fill_in(n):
    pairs = np.column_stack([np.arange(n - 1), np.arange(1, n)])
    shuffled = np.random.default_rng(n).permutation(n)
    assert BlockPattern(n, shuffled[pairs]).size == n + len(pairs)
