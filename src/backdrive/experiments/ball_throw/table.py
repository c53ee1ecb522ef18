"""Evaluations and seconds of each method, as a table and in words."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import Any

from ..run import Run
from .searches import TOLERANCES, Search


def tabulate(run: Run, searches: dict[str, list[Search]]) -> dict[str, dict[str, Any]]:
    """Evaluations and seconds that each method needs for each tolerance; statistics are over successful starts."""
    table: dict[str, dict[str, Any]] = {}
    for name, some in searches.items():
        table[name] = {}
        for tolerance in TOLERANCES:
            firsts = [one.first(tolerance) for one in some]
            evaluations = [None if first is None else first + 1 for first in firsts]
            seconds = [None if first is None else one.seconds[first] for one, first in zip(some, firsts, strict=True)]
            table[name][_centimetres(tolerance)] = {
                "found": sum(first is not None for first in firsts), "starts": len(firsts),
                "evaluations": _spread(evaluations), "seconds": _spread(seconds),
                "evaluations_by_start": evaluations, "seconds_by_start": seconds,
            }  # fmt: skip
    run.record(table=table)
    return table


def _centimetres(tolerance: float) -> str:
    return f"{100 * tolerance:g} cm"


def _spread(values: Sequence[float | None]) -> dict[str, float] | None:
    known = [value for value in values if value is not None]
    return {"median": statistics.median(known), "mean": statistics.fmean(known), "most": max(known)} if known else None


def best_sigma(table: dict[str, dict[str, Any]]) -> str:
    """The CMA-ES that succeeds most often at the last tolerance; among equals, the one with the fewest evaluations."""

    def badness(name: str) -> tuple[int, float]:
        last = table[name][_centimetres(TOLERANCES[-1])]
        return -last["found"], last["evaluations"]["median"] if last["evaluations"] else math.inf

    return min((name for name in table if name != "gradient"), key=badness)


def compare(run: Run, table: dict[str, dict[str, Any]], best: str) -> None:
    """Compare the gradient method with the best CMA-ES, in words and as ratios of medians."""
    ratios = {}
    for tolerance in map(_centimetres, TOLERANCES):
        ours, theirs = table["gradient"][tolerance], table[best][tolerance]
        words = [f"at rest within {tolerance}:"]
        for name, one in (("gradient", ours), (best, theirs)):
            words.append(f"{name} {one['found']} of {one['starts']}")
            if one["found"]:
                words.append(f"in {one['evaluations']['median']:g} evaluations, {one['seconds']['median']:.3f} s;")
        if ours["found"] and theirs["found"]:
            ratios[tolerance] = {
                what: theirs[what]["median"] / ours[what]["median"] for what in ("evaluations", "seconds")
            }
            words.append("{evaluations:.1f} x fewer, {seconds:.1f} x sooner (medians)".format(**ratios[tolerance]))
        run.say(" ".join(words))
    run.record(best_cma=best, ratios_of_medians=ratios)
