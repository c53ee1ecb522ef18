"""Where every contact of one big world stands while it is solved, and sums over what belongs to a body.

Here the code is scalar: integers that are the same in all lanes.
"""

from __future__ import annotations

from typing import Any

from ..compiler import counters, leave, loop, when

SLOTS = 8  # contacts of a pair, at most
SET = 16  # pairs that are solved at the same time, at most: no two of a set share a body that moves
OPEN = 16  # sets that are filled at the same time


def arrange(
    slot: Any, pair: Any, key: Any, body_a: Any, body_b: Any, shape_a: Any, shape_b: Any, old_key: Any, old_place: Any,
    ends: Any, starts: Any, place: Any, touch_at: Any, body_a_at: Any, body_b_at: Any, shape_a_at: Any, shape_b_at: Any,
    old_at: Any, sizes: Any, contacts: Any, old: Any, bodies: Any, lanes: Any, open: Any, no_touch: Any, no_shape: Any,
    no_old: Any,
) -> None:  # fmt: skip
    """Kernel: from the contacts in the order of their pairs to the order in which they are solved.

    Contacts: slot, pair, key (which grows). Pairs: body_a, body_b (0 does not move), shape_a, shape_b. Contacts of the
    step before: old_key, old_place. All pairs of a set are independent, so it does not matter how many of them one
    register has: a set becomes packs of as many pairs as there are lanes. Pairs of many contacts come first.

    ends [pack, 2, lane]: bodies. The contacts of pack p stand in registers starts[p] to starts[p + 1]. place: of every
    contact, counted in lanes over all registers; touch_at, ..., old_at: of every place, what stands there (or no_touch,
    body 0, no_shape, no_old). sizes: packs, registers.
    """
    first, set_of, number = counters(contacts + 1), counters(contacts), counters(contacts)
    fill, pack_of, height = counters(contacts + 1), counters(contacts + 1), counters(contacts + 1)
    inside, current, state = counters(bodies * open), counters(open), counters(5)
    pairs, found, sets, oldest, last = range(5)
    state[pairs], state[sets], state[oldest], state[last] = 0, 0, 0, -1
    for c in loop(contacts):
        for _ in when(pair[c] != state[last]):
            first[state[pairs]] = c
            state[pairs], state[last] = state[pairs] + 1, pair[c]
    first[state[pairs]] = contacts
    for k in loop(bodies * open):
        inside[k] = -2  # the set that a body was put into last, at each place for an open set
    for w in loop(open):
        current[w] = -1

    def put(p: Any) -> None:
        """Into the first open set that has neither body; if there is none, the oldest is closed."""
        i, j = body_a[pair[first[p]]], body_b[pair[first[p]]]
        state[found] = -1
        for w in loop(open):
            here = current[w]
            fits = ((i == 0) | (inside[i * open + w] != here)) & ((j == 0) | (inside[j * open + w] != here))
            for _ in when(fits):
                state[found] = w
            if leave(fits):
                break
        for _ in when(state[found] < 0):
            state[found] = state[oldest]
            current[state[oldest]] = -1
            state[oldest] = (state[oldest] + 1) % open
        w = state[found]
        for _ in when(current[w] < 0):
            fill[state[sets]] = 0
            current[w] = state[sets]
            state[sets] = state[sets] + 1
        here = current[w]
        set_of[p], number[p] = here, fill[here]
        inside[i * open + w], inside[j * open + w] = here, here
        fill[here] = fill[here] + 1
        for _ in when(fill[here] == SET):
            current[w] = -1

    for k in loop(SLOTS):
        for p in loop(state[pairs]):
            for _ in when(first[p + 1] - first[p] == SLOTS - k):
                put(p)

    sizes[0] = 0
    for s in loop(state[sets]):
        pack_of[s] = sizes[0]
        sizes[0] = sizes[0] + (fill[s] + (lanes - 1)) // lanes
    for k in loop(sizes[0]):
        height[k] = 0
    for p in loop(state[pairs]):
        pack, count = pack_of[set_of[p]] + number[p] // lanes, first[p + 1] - first[p]
        for _ in when(height[pack] < count):
            height[pack] = count
    starts[0] = 0
    for k in loop(sizes[0]):
        starts[k + 1] = starts[k] + height[k]
    sizes[1] = starts[sizes[0]]
    for k in loop(sizes[0] * (2 * lanes)):
        ends[k] = 0
    for k in loop(sizes[1] * lanes):
        touch_at[k], body_a_at[k], body_b_at[k] = no_touch, 0, 0
        shape_a_at[k], shape_b_at[k], old_at[k] = no_shape, no_shape, no_old

    state[last] = 0  # of the contacts before
    for p in loop(state[pairs]):
        both, lane = pair[first[p]], number[p] % lanes
        pack = pack_of[set_of[p]] + number[p] // lanes
        row = ends.at(pack * (2 * lanes))
        row[lane], row[lanes + lane] = body_a[both], body_b[both]
        for c in loop(first[p + 1], start=first[p]):
            at = (starts[pack] + (c - first[p])) * lanes + lane
            place[c] = at
            touch_at[at], body_a_at[at], body_b_at[at] = slot[c], body_a[both], body_b[both]
            shape_a_at[at], shape_b_at[at] = shape_a[both], shape_b[both]
            for k in loop(old, start=state[last]):
                state[last] = k
                if leave(key[c] <= old_key[k]):
                    break
            for _ in when(old > 0):
                for _ in when(old_key[state[last]] == key[c]):
                    old_at[at] = old_place[state[last]]


def sum_up(rows: Any, totals: Any, owner: Any, count: Any, width: Any) -> None:
    """Kernel: totals[owner[i]] += rows[i], for rows of `width` registers. The lanes are elements of the rows."""
    for i in loop(count):
        source, target = rows.at(i * width), totals.at(owner[i] * width)
        for k in loop(width):
            target[k] = target[k] + source[k]
