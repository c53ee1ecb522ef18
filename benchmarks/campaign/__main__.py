"""The command: see the package."""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from . import report
from .families import FAMILIES
from .running import run_tasks
from .work import PARTS, Task

MOTIONS, WORLDS = 20_000, 2_000
MOST = 256  # motions of a task


def main() -> int:
    """Returns the exit code: 1 if anything is wrong."""
    options = _parse()
    options.output.mkdir(parents=True, exist_ok=True)
    one = "" if options.world is None else f"-{options.family}-{options.world}"
    log = options.resume or options.output / f"campaign-{options.seed}{one}.jsonl"
    results: list[dict[str, Any]] = []
    if options.resume:
        results = [json.loads(line) for line in log.read_text().splitlines()]
    elif log.exists():
        log.unlink()
    done = {_key(r) for r in results}
    tasks = [task for task in _tasks(options) if _key(vars(task)) not in done]
    console, end = Console(), time.monotonic() + 60.0 * options.minutes
    columns = BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("{task.description}")
    with Progress(*columns, console=console, refresh_per_second=2) as progress, log.open("a") as file:
        bar = progress.add_task("", total=len(tasks))
        for result in run_tasks(tasks, options.jobs, options.output, end):
            results.append(result)
            file.write(json.dumps(result) + "\n")
            file.flush()
            if result.get("wrong") or "error" in result:
                progress.console.print(_told(result), markup=False, highlight=False)
            s = report.summary(results)
            text = f"{s['motions']} motions, {s['wrong and unmarked']} wrong; {s['gains']} gains; "
            progress.update(bar, advance=1, description=text + f"{s['different bits']} bits differ")
    _finish(results, log, console)
    return 1 if report.fails(results) else 0


def _told(result: dict[str, Any]) -> str:
    """What is wrong with a task, in a line."""
    what = result.get("error") or f"{len(result['wrong'])} wrong, the first: {json.dumps(result['wrong'][0])}"
    return f"{result['part']}, {FAMILIES[result['family']].name}: {what}"


def _finish(results: list[dict[str, Any]], log: Path, console: Console) -> None:
    """Print the tables, and write them beside the log, as text and as JSON."""
    tables, lines = report.tables(results), report.lines(results)
    with log.with_suffix(".txt").open("w") as file:
        for out in (console, Console(file=file, width=140)):
            for table in tables:
                out.print(table)
            for line in lines:
                out.print(line, markup=False, highlight=False, soft_wrap=True)
    log.with_suffix(".md").write_text(report.markdown(results) + "\n" + "\n".join(lines) + "\n")
    per_family = {
        part: {FAMILIES[k].name: dict(report.totals(results, part, k)) for k in sorted({r["family"] for r in results})}
        for part in report.COLUMNS
    }
    found = {"summary": report.summary(results), "families": per_family}
    log.with_suffix(".json").write_text(json.dumps(found, indent=1) + "\n")
    console.print(f"{log.with_suffix('.txt')}, .json, .md; go on with --resume {log}", highlight=False)


def _key(task: dict[str, Any]) -> tuple:
    return tuple(task.get(name) for name in ("part", "family", "number", "count", "seed", "world"))


def _tasks(options: argparse.Namespace) -> list[Task]:
    """Of every part and family, those with the lowest numbers first, so that a run that is ended saw all families."""
    weight = sum(each.weight for each in FAMILIES)
    motions, worlds = (math.ceil(x / weight) for x in (options.motions, options.worlds))
    wanted = {"gradients": (motions, MOST), "energy": (worlds, MOST), "bits": (options.batches, options.batches)}
    tasks = []
    for part in PARTS:
        if options.only not in (None, part):
            continue
        total, most = wanted[part]
        for family, each in enumerate(FAMILIES):
            if options.family and options.family != str(family) and options.family not in each.name:
                continue
            share = total if part == "bits" else math.ceil(total * each.weight)
            for number in range(math.ceil(share / most)):
                count = min(most, share - number * most)
                tasks.append(Task(part, family, number, count, options.seed, options.world))
    return sorted(tasks, key=lambda task: (task.number, task.family))


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser("python -m benchmarks.campaign", description="Random worlds, tried in every way.")
    parser.add_argument("--minutes", type=float, default=math.inf, help="begin nothing new after this time")
    parser.add_argument("--seed", type=int, default=0, help="of all random numbers (%(default)s)")
    parser.add_argument("--motions", type=int, default=MOTIONS, help="whose gradients are tried (%(default)s)")
    parser.add_argument("--worlds", type=int, default=WORLDS, help="whose energy is tried (%(default)s)")
    parser.add_argument("--batches", type=int, default=1, help="whose bits are tried, of every family (%(default)s)")
    parser.add_argument("--only", choices=sorted(PARTS), help="one part alone")
    parser.add_argument("--family", metavar="TEXT", help="families with this number, or with this text in their names")
    parser.add_argument("--world", type=int, help="the world with this number alone, of every task")
    parser.add_argument("--resume", type=Path, metavar="FILE", help="go on with this log, with the same options")
    parser.add_argument(
        "--output", type=Path, default=Path("results/campaign"), help="folder for results (%(default)s)"
    )
    parser.add_argument("-j", "--jobs", type=int, default=2, help="processes at a time (%(default)s)")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
