"""Where every contact of one big world stands while it is solved, and sums over what belongs to a body.

Here the code is scalar: integers that are the same in all lanes.
"""

from __future__ import annotations

from typing import Any

from ..ir import counters, leave, loop, when

SLOTS = 8  # contacts of a pair, at most
SET = 16  # pairs that are solved at the same time, at most: no two of a set share a body that moves
OPEN = 16  # sets that are filled at the same time
GROUP = 32  # pairs, at most, of a group of several islands


def arrange(
    slot: Any, pair: Any, key: Any, body_a: Any, body_b: Any, shape_a: Any, shape_b: Any, old_key: Any, old_place: Any,
    ends: Any, starts: Any, group_packs: Any, group_rows: Any, row_of: Any, place: Any, touch_at: Any, body_a_at: Any,
    body_b_at: Any, shape_a_at: Any, shape_b_at: Any, old_at: Any, sizes: Any, contacts: Any, old: Any, bodies: Any,
    lanes: Any, open: Any, no_touch: Any, no_shape: Any, no_old: Any,
) -> None:  # fmt: skip
    """Kernel: from the contacts in the order of their pairs to the order in which they are solved.

    Contacts: slot, pair, key (which grows). Pairs: body_a, body_b (0 does not move), shape_a, shape_b. Contacts of the
    step before: old_key, old_place. Bodies that push each other, directly or through others, are an island; a group is
    one island, or several small ones. Groups are solved one after the other. All pairs of a set are independent, so it
    does not matter how many of them one register has: a set becomes packs of as many pairs as there are lanes. In a
    group, pairs of many contacts come first.

    A group's packs are group_packs[g] to group_packs[g + 1], and its bodies have the rows from group_rows[g] + 1 on;
    the row before these is that of what does not move. row_of: of every body; 0 if nothing touches it. ends [pack, 2,
    lane]: rows. The contacts of pack p stand in registers starts[p] to starts[p + 1]. place: of every contact, counted
    in lanes over all registers; touch_at, ..., old_at: of every place, what stands there (or no_touch, body 0,
    no_shape, no_old). sizes: packs, registers, groups, rows.
    """
    first, set_of, number = counters(contacts + 1), counters(contacts), counters(contacts)
    fill, pack_of, height = counters(contacts + 1), counters(contacts + 1), counters(contacts + 1)
    group_of, order, bucket = counters(contacts), counters(contacts), counters((contacts + 1) * SLOTS)
    above, members, joined = counters(bodies), counters(bodies), counters(bodies)
    inside, current, state = counters(bodies * open), counters(open), counters(9)
    pairs, found, sets, oldest, last, groups, room, at, rows = range(9)
    state[pairs], state[sets], state[oldest], state[last] = 0, 0, 0, -1
    for c in loop(contacts):
        for _ in when(pair[c] != state[last]):
            first[state[pairs]] = c
            state[pairs], state[last] = state[pairs] + 1, pair[c]
    first[state[pairs]] = contacts

    # Islands, by their least body.
    for i in loop(bodies):
        above[i], members[i], joined[i], row_of[i] = i, 0, -1, 0

    def least(i: Any) -> Any:
        state[at] = i
        for _ in loop(bodies):
            if leave(above[state[at]] == state[at]):
                break
            above[state[at]] = above[above[state[at]]]
            state[at] = above[state[at]]
        return state[at]

    def island(p: Any) -> Any:
        """Of a pair; the second body may be the one that does not move."""
        both = pair[first[p]]
        for _ in when(body_a[both] > 0):
            state[found] = least(body_a[both])
        for _ in when(body_a[both] == 0):
            state[found] = least(body_b[both])
        return state[found]

    for p in loop(state[pairs]):
        i, j = body_a[pair[first[p]]], body_b[pair[first[p]]]
        for _ in when((i > 0) & (j > 0)):
            state[found] = least(i)
            k = least(j)
            for _ in when(state[found] < k):
                above[k] = state[found]
            for _ in when(k < state[found]):
                above[state[found]] = k
    for p in loop(state[pairs]):
        k = island(p)
        members[k] = members[k] + 1

    # Groups, and the pairs of each, those of many contacts first.
    state[groups], state[room] = 0, 0
    for p in loop(state[pairs]):
        k = island(p)
        for _ in when(joined[k] < 0):
            for _ in when(members[k] > state[room]):
                for m in loop(SLOTS):
                    bucket[state[groups] * SLOTS + m] = 0
                state[groups], state[room] = state[groups] + 1, GROUP
            state[room] = state[room] - members[k]
            joined[k] = state[groups] - 1
        group_of[p] = joined[k]
        which = joined[k] * SLOTS + (SLOTS - (first[p + 1] - first[p]))
        bucket[which] = bucket[which] + 1
    state[last] = 0
    for k in loop(state[groups] * SLOTS):
        state[at] = bucket[k]
        bucket[k] = state[last]
        state[last] = state[last] + state[at]
    for p in loop(state[pairs]):
        which = group_of[p] * SLOTS + (SLOTS - (first[p + 1] - first[p]))
        order[bucket[which]] = p
        bucket[which] = bucket[which] + 1

    # Sets.
    for k in loop(bodies * open):
        inside[k] = -2  # the set that a body was put into last, at each place for an open set

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

    def give_row(i: Any) -> None:
        for _ in when((i > 0) & (row_of[i] == 0)):
            row_of[i] = state[rows]
            state[rows] = state[rows] + 1

    state[last], state[rows] = -1, 0
    for k in loop(state[pairs]):
        p = order[k]
        for _ in when(group_of[p] != state[last]):
            state[last] = group_of[p]
            group_packs[state[last]], group_rows[state[last]] = state[sets], state[rows]  # (sets: packs, later)
            state[rows] = state[rows] + 1
            for w in loop(open):
                current[w] = -1
        give_row(body_a[pair[first[p]]])
        give_row(body_b[pair[first[p]]])
        put(p)
    group_packs[state[groups]], group_rows[state[groups]] = state[sets], state[rows]

    # Packs.
    sizes[0], sizes[2], sizes[3] = 0, state[groups], state[rows]
    for s in loop(state[sets]):
        pack_of[s] = sizes[0]
        sizes[0] = sizes[0] + (fill[s] + (lanes - 1)) // lanes
    pack_of[state[sets]] = sizes[0]
    for g in loop(state[groups] + 1):
        group_packs[g] = pack_of[group_packs[g]]
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

    # Places.
    for k in loop(sizes[1] * lanes):
        touch_at[k], body_a_at[k], body_b_at[k] = no_touch, 0, 0
        shape_a_at[k], shape_b_at[k], old_at[k] = no_shape, no_shape, no_old
    for g in loop(state[groups]):
        for k in loop(group_packs[g + 1] * (2 * lanes), start=group_packs[g] * (2 * lanes)):
            ends[k] = group_rows[g]
    state[last] = 0  # of the contacts before
    for p in loop(state[pairs]):
        both, lane = pair[first[p]], number[p] % lanes
        pack = pack_of[set_of[p]] + number[p] // lanes
        row = ends.at(pack * (2 * lanes))
        for _ in when(body_a[both] > 0):
            row[lane] = row_of[body_a[both]]
        for _ in when(body_b[both] > 0):
            row[lanes + lane] = row_of[body_b[both]]
        for c in loop(first[p + 1], start=first[p]):
            here = (starts[pack] + (c - first[p])) * lanes + lane
            place[c] = here
            touch_at[here], body_a_at[here], body_b_at[here] = slot[c], body_a[both], body_b[both]
            shape_a_at[here], shape_b_at[here] = shape_a[both], shape_b[both]
            for k in loop(old, start=state[last]):
                state[last] = k
                if leave(key[c] <= old_key[k]):
                    break
            for _ in when(old > 0):
                for _ in when(old_key[state[last]] == key[c]):
                    old_at[here] = old_place[state[last]]


def sum_up(rows: Any, totals: Any, owner: Any, count: Any, width: Any) -> None:
    """Kernel: totals[owner[i]] += rows[i], for rows of `width` registers. The lanes are elements of the rows."""
    for i in loop(count):
        source, target = rows.at(i * width), totals.at(owner[i] * width)
        for k in loop(width):
            target[k] = target[k] + source[k]
