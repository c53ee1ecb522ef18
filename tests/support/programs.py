"""Random scalar programs: expression trees, their values, and bounds on the rounding error.

Trees: ("x", k), ("number", c), (operation, *trees), or ("select", relation, a, b, p, q): p if a relation b.
"""

import math
import operator
from random import Random

from hypothesis import strategies as st

from backdrive import ir as bd

INPUTS = 4
_RELATIONS = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}
_FUNCTIONS = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv, "neg": operator.neg,
    "sqrt": bd.sqrt, "sin": bd.sin, "cos": bd.cos, "atan2": bd.atan2, "min": bd.minimum, "max": bd.maximum,
    "abs": bd.absolute, "clip": bd.clip, "floor": bd.floor, "nearest": bd.nearest,
}  # fmt: skip

_leaves = st.one_of(
    st.tuples(st.just("x"), st.integers(0, INPUTS - 1)),
    st.tuples(st.just("x"), st.integers(0, INPUTS - 1)),
    st.tuples(st.just("number"), st.sampled_from([0.0, 1.0, -1.0, 2.0, 0.5, -0.3, 3.7])),
)


def _inner(rough):
    def extend(trees):
        unary = ["neg", "sqrt", "sin", "cos", "abs", *(["floor", "nearest"] if rough else [])]
        return st.one_of(
            st.tuples(st.sampled_from(["+", "-", "*"]), trees, trees),
            st.tuples(st.sampled_from(["+", "-", "*", "/", "min", "max", "atan2"]), trees, trees),
            st.tuples(st.sampled_from(unary), trees),
            st.tuples(st.just("clip"), trees, st.just(("number", -0.7)), st.just(("number", 1.2))),
            st.tuples(st.just("select"), st.sampled_from(list(_RELATIONS)), trees, trees, trees, trees),
        )

    return extend


def trees(rough=True, size=14):
    """Expression trees; with jumps (floor, nearest) if rough."""
    return st.recursive(_leaves, _inner(rough), max_leaves=size)


def grow(random, depth, rough=True):
    """A large tree: hypothesis prefers small ones."""
    if depth == 0 or random.random() < 0.1:
        leaf = ("number", random.uniform(-2, 2)) if random.random() < 0.2 else ("x", random.randrange(INPUTS))
        return leaf
    binary = ["+", "-", "*", "+", "-", "*", "/", "min", "max", "atan2"]
    unary = ["neg", "sqrt", "sin", "cos", "abs", *(["floor", "nearest"] if rough else [])]
    a, b, c, d = (grow(random, depth - 1 - k // 2, rough) if depth > k // 2 else ("x", k) for k in range(4))
    kind = random.random()
    if kind < 0.7:
        return (random.choice(binary), a, b)
    if kind < 0.9:
        return (random.choice(unary), a)
    if kind < 0.95:
        return ("clip", a, ("number", -0.7), ("number", 1.2))
    return ("select", random.choice(list(_RELATIONS)), c, d, a, b)


def program_lists(size, **options):
    """Small trees of hypothesis and large random ones, half and half."""
    small = st.lists(trees(**options), min_size=size // 2, max_size=size // 2)
    rough = options.get("rough", True)
    large = st.integers(0, 2**32).map(lambda n: [grow(Random(n + k), 5, rough) for k in range(size - size // 2)])
    return st.tuples(small, large).map(lambda parts: [*parts[0], *parts[1]])


def evaluate(tree, x):
    """By the compiler's functions: on floats or on traced values."""
    op, *args = tree
    if op == "x":
        return x[args[0]]
    if op == "number":
        return args[0]
    if op == "select":
        relation, a, b, p, q = args
        condition = _RELATIONS[relation](evaluate(a, x), evaluate(b, x))
        return bd.select(condition, evaluate(p, x), evaluate(q, x))
    return _FUNCTIONS[op](*(evaluate(a, x) for a in args))


def bound(tree, x, eps):
    """(value, how far an evaluation with unit roundoff `eps` may be from it; infinite: anything goes)."""
    op, *args = tree
    if op == "x":
        return x[args[0]], 0.0
    if op == "number":
        return args[0], eps * abs(args[0])
    if op == "select":
        relation, *branches = args
        (a, da), (b, db), p, q = (bound(t, x, eps) for t in branches)
        result, error = p if _RELATIONS[relation](a, b) else q
        certain = abs(a - b) > 2 * (da + db) or (da == db == 0)
        return result, error if certain else math.inf
    values = [bound(a, x, eps) for a in args]
    y = _FUNCTIONS[op](*(v for v, _ in values))
    error = _propagate(op, y, values)
    return y, error + 4 * eps * abs(y) if math.isfinite(error) else math.inf


def _propagate(op, y, values):
    (a, da), (b, db) = values[0], (values[1] if len(values) > 1 else (0.0, 0.0))
    if not math.isfinite(da + db):
        return math.inf
    if op in ("+", "-"):
        return da + db
    if op == "*":
        return abs(a) * db + abs(b) * da + da * db
    if op == "/":
        return (da + abs(y) * db) / (abs(b) - db) if abs(b) > 2 * db else math.inf
    if op == "sqrt":
        return da / y if a > 2 * da else math.inf if a < 0 or da else 0.0
    if op == "atan2":  # far from the origin and from the cut
        near = abs(a) + abs(b) < 4 * (da + db) or (b <= 2 * db and abs(a) <= 2 * da)
        return math.inf if near else 2 * (da + db) / max(abs(a), abs(b))
    if op == "floor":
        return 0.0 if da == 0 or min(a - y, y + 1 - a) > 2 * da else math.inf
    if op == "nearest":
        return 0.0 if da == 0 or 0.5 - abs(a - y) > 2 * da else math.inf
    if op in ("sin", "cos"):
        return da + 2.0**-52 if abs(a) < 1e4 and da < 1 else math.inf
    return max(d for _, d in values)  # neg, abs, min, max, clip
