"""The arrangement of contacts: every contact has one cell, no body is twice in a pack, in an order that is independent
of the number of lanes."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backdrive.piles import kernels
from backdrive.piles.packs import CELL_TABLES, COLOUR, GROUP, OPEN_COLOURS, SLOTS
from backdrive.piles.stages import Stage

NO_POINT, NO_SHAPE, NO_WARM = 9999, 8888, 7777


def arrange(lanes, body_a, body_b, counts, warm_key=(), bodies=40):
    """Arrange pairs of bodies, with `counts` contacts each."""
    pairs, contacts = len(body_a), int(np.sum(counts))
    integers = lambda n, x=-5: np.full(n, x, np.int64)  # noqa: E731
    values = {
        "slot": np.arange(contacts) + 100, "pair": np.repeat(np.arange(pairs), counts), "key": 3 * np.arange(contacts),
        "body_a": body_a, "body_b": body_b, "shape_a": body_a + 1000, "shape_b": body_b + 2000,
        "warm_key": np.array(warm_key, np.int64), "warm_cell": 10 * np.arange(len(warm_key)),
        "ends": integers(contacts * 2 * lanes), "starts": integers(contacts + 1), "cell": integers(contacts),
        "group_packs": integers(contacts + 1), "group_rows": integers(contacts + 1), "row_of": integers(bodies),
        "sizes": integers(4), **{name: integers(contacts * lanes) for name in CELL_TABLES},
        "contacts": contacts, "warm": len(warm_key), "bodies": bodies, "lanes": lanes, "open_colours": OPEN_COLOURS,
        "no_point": NO_POINT, "no_shape": NO_SHAPE, "no_warm": NO_WARM,
    }  # fmt: skip
    Stage(kernels.arranging, bits=64, lanes=1)(1, **values)
    return values


def group_rows_of(out):
    """For every pack, the row of its group for bodies that do not move."""
    groups = out["sizes"][2]
    return np.repeat(out["group_rows"][:groups], np.diff(out["group_packs"][: groups + 1]))


@st.composite
def worlds(draw):
    random = np.random.default_rng(draw(st.integers(0, 2**32)))
    pairs, bodies = draw(st.integers(1, 60)), draw(st.integers(2, 40))
    body_a = random.integers(1, bodies, size=pairs)
    body_b = random.integers(0, bodies, size=pairs) * draw(st.sampled_from([0, 1, 1]))
    body_b[body_a == body_b] = 0
    return body_a, body_b, random.integers(1, SLOTS + 1, size=pairs)


@pytest.mark.parametrize("lanes", [1, 4, 8, 16])
@given(world=worlds())
@settings(max_examples=25)
def test_every_contact_has_its_cell(lanes, world):
    body_a, body_b, counts = world
    out = arrange(lanes, body_a, body_b, counts)
    packs, registers, *_ = out["sizes"].tolist()
    cell, starts, ends = out["cell"], out["starts"][: packs + 1], out["ends"][: packs * 2 * lanes]
    assert len(set(cell.tolist())) == len(cell)
    assert starts[0] == 0 and starts[-1] == registers and (np.diff(starts) >= 1).all()
    ends = ends.reshape(packs, 2, lanes)
    pack, lane = np.searchsorted(starts, cell // lanes, side="right") - 1, cell % lanes
    rows, still = out["row_of"], group_rows_of(out)[pack]
    for k, body in enumerate((body_a, body_b)):
        moving = body[out["pair"]]
        assert (ends[pack, k, lane] == np.where(moving > 0, rows[moving], still)).all()
    for pair in range(len(body_a)):  # one lane of one pack, one register after the other from its first one on
        mine = cell[out["pair"] == pair]
        assert (np.diff(mine) == lanes).all()
        assert mine[0] // lanes in starts
    for one, still in zip(ends, group_rows_of(out)):
        moving = one[one != still]
        assert len(set(moving.tolist())) == len(moving)
    for name, source in (("point_at", "slot"), ("body_a_at", None), ("shape_b_at", None)):
        values, nothing = out[name][: registers * lanes], {"point_at": NO_POINT, "body_a_at": 0, "shape_b_at": NO_SHAPE}
        given_ = out[source] if source else out[name.removesuffix("_at")][out["pair"]]
        assert (values[cell] == given_).all()
        assert (np.delete(values, cell) == nothing[name]).all()


@given(world=worlds())
@settings(max_examples=50)
def test_groups_are_whole_islands(world):
    """Bodies that touch are in one group, and have rows of it; a group of several islands has few pairs."""
    body_a, body_b, counts = world
    out = arrange(4, body_a, body_b, counts)
    packs, _, groups, rows = out["sizes"].tolist()
    group_packs, group_rows = out["group_packs"][: groups + 1], out["group_rows"][: groups + 1]
    assert group_packs[0] == group_rows[0] == 0 and group_packs[-1] == packs and group_rows[-1] == rows
    assert (np.diff(group_packs) > 0).all()
    pack = np.searchsorted(out["starts"][: packs + 1], out["cell"] // 4, side="right") - 1
    first = np.unique(out["pair"], return_index=True)[1]
    group = np.searchsorted(group_packs, pack[first], side="right") - 1
    touched = np.unique(np.concatenate([body_a, body_b]))
    touched = touched[touched > 0]
    own = out["row_of"][touched]
    assert sorted([*own.tolist(), *group_rows[:-1].tolist()]) == list(range(rows))  # each has a row of its own
    assert (np.delete(out["row_of"], touched) == 0).all()
    home = np.searchsorted(group_rows, out["row_of"], side="right") - 1
    for body in (body_a, body_b):
        assert (home[body] == group)[body > 0].all()
    for g in range(groups):
        members = [{a, b} - {0} for a, b in zip(body_a[group == g].tolist(), body_b[group == g].tolist())]
        islands = []
        for pair in members:
            near = [island for island in islands if island & pair]
            islands = [island for island in islands if not island & pair] + [set().union(pair, *near)]
        assert len(islands) == 1 or len(members) <= GROUP


@given(world=worlds())
@settings(max_examples=25)
def test_the_order_does_not_depend_on_the_lanes(world):
    """Pairs of one colour are independent, and colours follow each other."""
    orders = []
    for lanes in (1, 2, 4, 8, 16):
        out = arrange(lanes, *world)
        pack = np.searchsorted(out["starts"][: out["sizes"][0] + 1], out["cell"] // lanes, side="right") - 1
        order = np.lexsort((out["cell"] // lanes, out["cell"] % lanes, pack))
        orders.append(order.tolist())
    assert all(order == orders[0] for order in orders)


def test_contacts_find_their_warm_start():
    out = arrange(4, np.array([1, 2, 3]), np.array([0, 1, 2]), np.array([2, 1, 3]), warm_key=[1, 3, 6, 7, 15, 99])
    assert out["key"].tolist() == [0, 3, 6, 9, 12, 15]
    assert out["warm_at"][out["cell"]].tolist() == [NO_WARM, 10, 20, NO_WARM, NO_WARM, 40]


def test_packs_are_full_where_they_can_be():
    """A chain of bodies, and a crowd around one."""
    chain = np.arange(1, 39)
    assert arrange(8, chain, chain + 1, np.ones(38, int), bodies=41)["sizes"][0] <= 6
    hub = arrange(8, np.arange(2, 40), np.ones(38, int), np.ones(38, int))
    assert hub["sizes"][0] == 38  # each has to wait for the others
    assert COLOUR % 8 == 0
