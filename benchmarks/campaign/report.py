"""Counts of all tasks as tables, and whether anything is wrong."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import rich.box
import rich.table

from .families import FAMILIES
from .gradients import BETWEEN, OUTCOMES, RIGHT, RIGHT_MARKED, UNDECIDED, WRONG, WRONG_MARKED

Result = dict[str, Any]

COLUMNS = {
    "gradients": (*OUTCOMES, "touching"),
    "energy": ("worlds", "gains", "marked"),
    "bits": ("comparisons", "different"),
}
MOST_MARKED = 0.02  # of clean motions


def totals(results: Iterable[Result], part: str, family: int | None = None) -> Counter[str]:
    """The sum of the counts of a part, of one family or of all."""
    total: Counter[str] = Counter()
    for result in results:
        if result["part"] == part and family in (None, result["family"]):
            total.update(result.get("counts", {}))
            total["failed"] += "error" in result
    return total


def tables(results: Sequence[Result]) -> list[rich.table.Table]:
    """One for each part: a row for each family, and the sum."""
    found = []
    for part, columns in COLUMNS.items():
        families = sorted({r["family"] for r in results if r["part"] == part})
        if not families:
            continue
        table = rich.table.Table(title=part, title_justify="left", box=rich.box.SIMPLE_HEAD)
        table.add_column("family")
        for name in (*columns, "failed", *(["worst"] if part == "energy" else [])):
            table.add_column(name, justify="right")
        for family in (*families, None):
            count = totals(results, part, family)
            cells = [str(count[name]) for name in (*columns, "failed")]
            if part == "energy":
                worst = [
                    r["worst"] for r in results if r["part"] == part and "worst" in r and family in (None, r["family"])
                ]
                cells.append(f"{max(worst, default=0.0):.0e}")
            name = "all" if family is None else FAMILIES[family].name
            table.add_row(name, *cells, end_section=family == families[-1], style="bold" if family is None else None)
        found.append(table)
    return found


def markdown(results: Sequence[Result]) -> str:
    """For the docs: families in groups."""
    groups: dict[str, list[Result]] = {}
    for result in results:
        groups.setdefault(FAMILIES[result["family"]].group, []).append(result)
    rows: list[tuple[str, ...]] = [
        ("worlds", "motions", "clean", "wrong, unmarked", "marked, of them right", "energy gained", "bits differ")
    ]
    rows.append(("---", *["---:"] * 6))
    for name, some in (*sorted(groups.items()), ("**all**", results)):
        s = summary(some)
        marked = f"{s['clean and marked']}, {s['of them right']}"
        gains, bits = f"{s['gains']} of {s['worlds']}", f"{s['different bits']} of {s['comparisons of bits']}"
        rows.append((name, str(s["motions"]), str(s["clean"]), str(s["wrong and unmarked"]), marked, gains, bits))
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def summary(results: Sequence[Result]) -> dict[str, Any]:
    """The numbers that the promises are about."""
    gradients, energy, bits = (totals(results, part) for part in COLUMNS)
    motions = sum(gradients[name] for name in OUTCOMES)
    clean = motions - gradients[UNDECIDED] - gradients[BETWEEN]
    marked = gradients[RIGHT_MARKED] + gradients[WRONG_MARKED]
    return {
        "motions": motions, "clean": clean, "right": gradients[RIGHT], "wrong and unmarked": gradients[WRONG],
        "clean and marked": marked, "of them right": gradients[RIGHT_MARKED], "undecided": gradients[UNDECIDED],
        "between switches": gradients[BETWEEN],
        "marked of clean": marked / clean if clean else 0.0, "worlds": energy["worlds"], "gains": energy["gains"],
        "gains in marked steps": energy["marked"],
        "comparisons of bits": bits["comparisons"], "different bits": bits["different"],
        "failed tasks": sum("error" in r for r in results),
    }  # fmt: skip


def lines(results: Sequence[Result]) -> list[str]:
    """The summary, in sentences."""
    s, found = summary(results), []
    if s["motions"]:
        found.append(
            f"gradients: {s['motions']} motions, {s['clean']} with clean differences; {s['wrong and unmarked']} "
            f"wrong and unmarked; {s['clean and marked']} marked ({100.0 * s['marked of clean']:.1f} % of the clean, "
            f"aim: at most {100.0 * MOST_MARKED:g} %), of which {s['of them right']} were right; "
            f"{s['between switches']} lie between two switches"
        )
    if s["worlds"]:
        found.append(
            f"energy: {s['worlds']} worlds, {s['gains']} gain energy, {s['gains in marked steps']} of them in a step "
            "whose status says that it was not solved"
        )
    if s["comparisons of bits"]:
        found.append(f"bits: {s['comparisons of bits']} comparisons, {s['different bits']} differ")
    if s["failed tasks"]:
        found.append(f"{s['failed tasks']} tasks crashed or did not come back")
    return found


def fails(results: Sequence[Result]) -> bool:
    s = summary(results)
    return any(s[name] for name in ("wrong and unmarked", "gains", "different bits", "failed tasks"))
