"""The sparse factors of the Hessian of soft constraints, on floats, against NumPy's solutions."""

import numpy as np
import pytest

from backdrive.ir import counters, memory
from backdrive.physics.constraints.constraints import Support
from backdrive.physics.soft.tile_factors import TileFactors
from backdrive.physics.soft.tree_factors import TreeFactors


def random_tree(rng: np.random.Generator, nv: int) -> list[list[int]]:
    """Of every coordinate, those inward of it, falling."""
    ancestors: list[list[int]] = []
    for i in range(nv):
        parent = int(rng.integers(-1, i)) if i and rng.uniform() < 0.4 else i - 1
        ancestors.append([] if parent < 0 else [parent, *ancestors[parent]])
    return ancestors


def add_constraint(M: np.ndarray, dofs: list[int], rng: np.random.Generator) -> None:
    y = np.zeros(len(M))
    y[dofs] = rng.normal(size=len(dofs))
    M += 10.0 ** rng.uniform(-2, 4) * np.outer(y, y)


def in_memory(M: np.ndarray, n: int):
    """A matrix in the memory of a kernel, n rows of n numbers: nv in whole tiles, with a unit matrix at the end."""
    H, whole = memory((len(M) + 3) ** 2), np.eye(n)
    whole[: len(M), : len(M)] = M
    for k, value in enumerate(whole.flat):
        H[k] = float(value)
    return H


def solution(factors, b: np.ndarray, *args) -> np.ndarray:
    x = memory(len(b) + 3)
    for k, value in enumerate(b):
        x[k] = float(value)
    factors.solve(*args, x)
    return np.array([x[k] for k in range(len(b))])


@pytest.mark.parametrize("seed", range(20))
def test_factors_of_trees_and_of_loops(seed):
    rng = np.random.default_rng(seed)
    nv = int(rng.integers(1, 20))
    ancestors, b = random_tree(rng, nv), rng.normal(size=nv)
    M = np.diag(rng.uniform(0.5, 2.0, size=nv))
    for i in range(nv):
        add_constraint(M, [i, *ancestors[i]], rng)
    tree = TreeFactors.__new__(TreeFactors)
    tree.ancestors = ancestors
    n = -(-nv // 3) * 3
    H = in_memory(M, n)
    tree.factor(H, n)
    by_tree = solution(tree, b, H, n)
    np.testing.assert_allclose(by_tree, np.linalg.solve(M, b), rtol=1e-6, atol=1e-9)

    tiles = TileFactors(in_memory(M, n), nv)
    tiles.begin(ancestors)
    tiles.close()
    tiles.factor()
    assert np.array_equal(solution(tiles, b), by_tree)  # the same operations in the same order

    i, j = rng.integers(nv, size=2)
    common = [k for k in ancestors[i] if k in ancestors[j]]
    ways = [[k for k in (m, *ancestors[m]) if k not in common] for m in (i, j)]
    chain = counters(2 * nv + 1)
    for k, dof in enumerate([*ways[0], *common, *ways[1]]):
        chain[k] = int(dof)
    own_a, own_b, shared = len(ways[0]), len(ways[1]), len(common)
    support = Support(0, 1, 1, 0, own_a, -1, 2, 1, own_a + shared, own_b, -1, shared, -1)
    add_constraint(M, [*ways[0], *ways[1], *common], rng)
    tiles = TileFactors(in_memory(M, n), nv)
    tiles.begin(ancestors)
    tiles.mark(chain, support, 6)
    tiles.close()
    tiles.factor()
    np.testing.assert_allclose(solution(tiles, b), np.linalg.solve(M, b), rtol=1e-6, atol=1e-9)
