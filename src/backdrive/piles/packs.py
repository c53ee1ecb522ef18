"""The order in which the contacts of a pile are solved, and sums over the rows that belong to one body.

Bodies that push each other, directly or through others, form an island. A group is one island, or several small ones;
groups are solved one after the other, each by as many sweeps as it needs. Within a group, pairs of bodies are coloured:
no two pairs of a colour share a moving body, so that they are independent and can be solved at the same time. A colour
is cut into packs of as many pairs as a register has lanes; the contacts of a pair follow each other in its lane.

This code is scalar: its integers are the same in all lanes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..ir import Index, counters, leave, loop, when
from .arguments import IntegerIn, IntsIn, IntsOut, PacksIn, PacksOut

SLOTS = 8  # contacts of a pair, at most
COLOUR = 16  # pairs of a colour, at most: whatever the number of lanes (up to this), the order of pairs is the same
OPEN_COLOURS = 16  # colours that are filled at the same time
GROUP = 32  # pairs of a group of several islands, at most


@dataclass(frozen=True)
class ArrangeArguments:
    """The arguments of `arrange`. A cell is a lane of a register: number = register x lanes + lane.

    Of every contact, in the order of keys: slot of its contact point, pair, key (growing). Of every pair: bodies (0
    does not move) and shapes. Of every contact of the step before: its key and cell.

    Results. ends [pack, 2, lane]: rows of the two bodies of every pair. starts: the contacts of pack p stand in
    registers starts[p] to starts[p + 1]. group_packs: the packs of group g are group_packs[g] to group_packs[g + 1].
    group_rows: its bodies have the rows from group_rows[g] + 1 on; row group_rows[g] is for bodies that do not move.
    row_of: the row of every body, 0 if it has no contact. cell: of every contact. point_at, ..., warm_at: the contact
    point, bodies, shapes and cell of the step before of every cell, or no_point, body 0, no_shape, no_warm in empty
    cells. sizes: numbers of packs, registers, groups, rows.
    """

    slot: IntsIn
    pair: IntsIn
    key: IntsIn
    body_a: IntsIn
    body_b: IntsIn
    shape_a: IntsIn
    shape_b: IntsIn
    warm_key: IntsIn
    warm_cell: IntsIn
    ends: IntsOut
    starts: IntsOut
    group_packs: IntsOut
    group_rows: IntsOut
    row_of: IntsOut
    cell: IntsOut
    point_at: IntsOut
    body_a_at: IntsOut
    body_b_at: IntsOut
    shape_a_at: IntsOut
    shape_b_at: IntsOut
    warm_at: IntsOut
    sizes: IntsOut
    contacts: IntegerIn
    warm: IntegerIn
    bodies: IntegerIn
    lanes: IntegerIn
    open_colours: IntegerIn
    no_point: IntegerIn
    no_shape: IntegerIn
    no_warm: IntegerIn


CELL_TABLES = ("point_at", "body_a_at", "body_b_at", "shape_a_at", "shape_b_at", "warm_at")
PACKS, REGISTERS, GROUPS, ROWS = range(4)  # positions in `ArrangeArguments.sizes`


class Variables:
    """Integers that change while a kernel runs, as attributes."""

    def __init__(self, *names: str) -> None:
        object.__setattr__(self, "_places", {name: k for k, name in enumerate(names)})
        object.__setattr__(self, "_values", counters(len(names)))

    def __getattr__(self, name: str) -> Any:
        return self._values[self._places[name]]

    def __setattr__(self, name: str, x: Any) -> None:
        self._values[self._places[name]] = x


class Arranger:
    """The stages of `arrange`, and the tables they share."""

    def __init__(self, a: ArrangeArguments) -> None:
        self.a, contacts, bodies = a, a.contacts, a.bodies
        self.first = counters(contacts + 1)  # the first contact of every pair that has one; "pair" means these below
        self.colour, self.number = counters(contacts), counters(contacts)  # of every pair; its number in the colour
        self.fill = counters(contacts + 1)  # pairs of every colour
        self.pack_of, self.height = counters(contacts + 1), counters(contacts + 1)  # first pack of a colour; registers
        self.group_of, self.order = counters(contacts), counters(contacts)  # of every pair; pairs in their new order
        self.bucket = counters((contacts + 1) * SLOTS)  # pairs of every group, by their number of contacts
        self.parent, self.members, self.joined = counters(bodies), counters(bodies), counters(bodies)
        self.inside = counters(bodies * a.open_colours)  # the colour that each open colour's place last put a body into
        self.current = counters(a.open_colours)  # the colour at each place for an open one, -1: none
        self.now = Variables("pairs", "found", "colours", "oldest", "last", "groups", "room", "at", "rows")

    def bodies_of(self, p: Index) -> tuple[Any, Any]:
        both = self.a.pair[self.first[p]]
        return self.a.body_a[both], self.a.body_b[both]

    def contact_count(self, p: Index) -> Any:
        return self.first[p + 1] - self.first[p]

    def find_pairs(self) -> None:
        now, a = self.now, self.a
        now.pairs, now.colours, now.oldest, now.last = 0, 0, 0, -1
        for c in loop(a.contacts):
            for _ in when(a.pair[c] != now.last):
                self.first[now.pairs] = c
                now.pairs, now.last = now.pairs + 1, a.pair[c]
        self.first[now.pairs] = a.contacts

    # ------------------------------------------------------------------------------------------ islands

    def root(self, i: Index) -> Any:
        """The least body of an island (union-find, with paths halved on the way)."""
        now, parent = self.now, self.parent
        now.at = i
        for _ in loop(self.a.bodies):
            if leave(parent[now.at] == now.at):
                break
            parent[now.at] = parent[parent[now.at]]
            now.at = parent[now.at]
        return now.at

    def island(self, p: Index) -> Any:
        """The island of a pair, of which one body may be the one that does not move."""
        both, now = self.a.pair[self.first[p]], self.now
        for _ in when(self.a.body_a[both] > 0):
            now.found = self.root(self.a.body_a[both])
        for _ in when(self.a.body_a[both] == 0):
            now.found = self.root(self.a.body_b[both])
        return now.found

    def find_islands(self) -> None:
        now, parent = self.now, self.parent
        for i in loop(self.a.bodies):
            parent[i], self.members[i], self.joined[i], self.a.row_of[i] = i, 0, -1, 0
        for p in loop(now.pairs):
            i, j = self.bodies_of(p)
            for _ in when((i > 0) & (j > 0)):
                now.found = self.root(i)
                k = self.root(j)
                for _ in when(now.found < k):
                    parent[k] = now.found
                for _ in when(k < now.found):
                    parent[now.found] = k
        for p in loop(now.pairs):
            k = self.island(p)
            self.members[k] = self.members[k] + 1

    # ------------------------------------------------------------------------------------------ groups

    def form_groups(self) -> None:
        """Islands join groups; the pairs of each group are ordered by their number of contacts, the largest first."""
        now, joined, bucket = self.now, self.joined, self.bucket
        now.groups, now.room = 0, 0
        for p in loop(now.pairs):
            k = self.island(p)
            for _ in when(joined[k] < 0):
                for _ in when(self.members[k] > now.room):
                    for m in loop(SLOTS):
                        bucket[now.groups * SLOTS + m] = 0
                    now.groups, now.room = now.groups + 1, GROUP
                now.room = now.room - self.members[k]
                joined[k] = now.groups - 1
            self.group_of[p] = joined[k]
            which = joined[k] * SLOTS + (SLOTS - self.contact_count(p))
            bucket[which] = bucket[which] + 1
        now.last = 0
        for k in loop(now.groups * SLOTS):  # from counts to positions
            now.at = bucket[k]
            bucket[k] = now.last
            now.last = now.last + now.at
        for p in loop(now.pairs):
            which = self.group_of[p] * SLOTS + (SLOTS - self.contact_count(p))
            self.order[bucket[which]] = p
            bucket[which] = bucket[which] + 1

    # ------------------------------------------------------------------------------------------ colours

    def put_into_colour(self, p: Index) -> None:
        """The first open colour that has neither body takes the pair; if there is none, the oldest is closed."""
        now, a, inside, current, fill = self.now, self.a, self.inside, self.current, self.fill
        i, j = self.bodies_of(p)
        now.found = -1
        for w in loop(a.open_colours):
            here = current[w]
            fits = (i == 0) | (inside[i * a.open_colours + w] != here)
            fits = fits & ((j == 0) | (inside[j * a.open_colours + w] != here))
            for _ in when(fits):
                now.found = w
            if leave(fits):
                break
        for _ in when(now.found < 0):
            now.found = now.oldest
            current[now.oldest] = -1
            now.oldest = (now.oldest + 1) % a.open_colours
        w = now.found
        for _ in when(current[w] < 0):
            fill[now.colours] = 0
            current[w] = now.colours
            now.colours = now.colours + 1
        here = current[w]
        self.colour[p], self.number[p] = here, fill[here]
        inside[i * a.open_colours + w], inside[j * a.open_colours + w] = here, here
        fill[here] = fill[here] + 1
        for _ in when(fill[here] == COLOUR):
            current[w] = -1

    def give_row(self, i: Index) -> None:
        now, row_of = self.now, self.a.row_of
        for _ in when((i > 0) & (row_of[i] == 0)):
            row_of[i] = now.rows
            now.rows = now.rows + 1

    def colour_pairs(self) -> None:
        """Colours for all pairs, and rows for their bodies, group by group; group_packs are colours for the moment."""
        now, a = self.now, self.a
        for k in loop(a.bodies * a.open_colours):
            self.inside[k] = -2
        now.last, now.rows = -1, 0
        for k in loop(now.pairs):
            p = self.order[k]
            for _ in when(self.group_of[p] != now.last):
                now.last = self.group_of[p]
                a.group_packs[now.last], a.group_rows[now.last] = now.colours, now.rows
                now.rows = now.rows + 1
                for w in loop(a.open_colours):
                    self.current[w] = -1
            self.give_row(a.body_a[a.pair[self.first[p]]])
            self.give_row(a.body_b[a.pair[self.first[p]]])
            self.put_into_colour(p)
        a.group_packs[now.groups], a.group_rows[now.groups] = now.colours, now.rows

    # ------------------------------------------------------------------------------------------ packs and cells

    def cut_into_packs(self) -> None:
        now, a, sizes, pack_of, height = self.now, self.a, self.a.sizes, self.pack_of, self.height
        sizes[PACKS], sizes[GROUPS], sizes[ROWS] = 0, now.groups, now.rows
        for s in loop(now.colours):
            pack_of[s] = sizes[PACKS]
            sizes[PACKS] = sizes[PACKS] + (self.fill[s] + (a.lanes - 1)) // a.lanes
        pack_of[now.colours] = sizes[PACKS]
        for g in loop(now.groups + 1):
            a.group_packs[g] = pack_of[a.group_packs[g]]
        for k in loop(sizes[PACKS]):
            height[k] = 0
        for p in loop(now.pairs):
            pack, count = self.pack(p), self.contact_count(p)
            for _ in when(height[pack] < count):
                height[pack] = count
        a.starts[0] = 0
        for k in loop(sizes[PACKS]):
            a.starts[k + 1] = a.starts[k] + height[k]
        sizes[REGISTERS] = a.starts[sizes[PACKS]]

    def pack(self, p: Index) -> Any:
        return self.pack_of[self.colour[p]] + self.number[p] // self.a.lanes

    def fill_cells(self) -> None:
        now, a, lanes = self.now, self.a, self.a.lanes
        for k in loop(a.sizes[REGISTERS] * lanes):
            a.point_at[k], a.body_a_at[k], a.body_b_at[k] = a.no_point, 0, 0
            a.shape_a_at[k], a.shape_b_at[k], a.warm_at[k] = a.no_shape, a.no_shape, a.no_warm
        for g in loop(now.groups):
            for k in loop(a.group_packs[g + 1] * (2 * lanes), start=a.group_packs[g] * (2 * lanes)):
                a.ends[k] = a.group_rows[g]
        now.last = 0  # in the contacts of the step before; both lists grow
        for p in loop(now.pairs):
            both, lane = a.pair[self.first[p]], self.number[p] % lanes
            pack = self.pack(p)
            row = a.ends.at(pack * (2 * lanes))
            for _ in when(a.body_a[both] > 0):
                row[lane] = a.row_of[a.body_a[both]]
            for _ in when(a.body_b[both] > 0):
                row[lanes + lane] = a.row_of[a.body_b[both]]
            for c in loop(self.first[p + 1], start=self.first[p]):
                here = (a.starts[pack] + (c - self.first[p])) * lanes + lane
                a.cell[c] = here
                a.point_at[here], a.body_a_at[here], a.body_b_at[here] = a.slot[c], a.body_a[both], a.body_b[both]
                a.shape_a_at[here], a.shape_b_at[here] = a.shape_a[both], a.shape_b[both]
                for k in loop(a.warm, start=now.last):
                    now.last = k
                    if leave(a.key[c] <= a.warm_key[k]):
                        break
                for _ in when(a.warm > 0):
                    for _ in when(a.warm_key[now.last] == a.key[c]):
                        a.warm_at[here] = a.warm_cell[now.last]


def arrange(a: ArrangeArguments) -> None:
    """Kernel: from the contacts in the order of their pairs to the cells in which they are solved.

    In a group, pairs of many contacts come first. The order of pairs does not depend on the number of lanes.
    """
    arranger = Arranger(a)
    arranger.find_pairs()
    arranger.find_islands()
    arranger.form_groups()
    arranger.colour_pairs()
    arranger.cut_into_packs()
    arranger.fill_cells()


@dataclass(frozen=True)
class SumArguments:
    """The arguments of `sum_rows`: rows [count, width registers], totals [any, width registers], owner [count]."""

    rows: PacksIn
    totals: PacksOut
    owner: IntsIn
    count: IntegerIn
    width: IntegerIn


def sum_rows(a: SumArguments) -> None:
    """Kernel: totals[owner[i]] += rows[i]. The lanes are elements of the rows."""
    for i in loop(a.count):
        source, target = a.rows.at(i * a.width), a.totals.at(a.owner[i] * a.width)
        for k in loop(a.width):
            target[k] = target[k] + source[k]
