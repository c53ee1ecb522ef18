"""Time backdrive and its peers on the same models, in one run, and check that they computed the same.

    python -m benchmarks                    all tables, minutes
    python -m benchmarks --quick            all tables, rougher, in a minute or two
    python -m benchmarks --only gradient    one table (repeat for more)
    python -m benchmarks --only agreement   MuJoCo's physics against MuJoCo, in minutes: not among all tables
    python -m benchmarks --only view        what looking at motions takes: not among all tables
    python -m benchmarks --scoreboard       all tables, and docs/benchmarks.md with its figures from them
    python -m benchmarks --scoreboard --only pile    that part of the page, from a new run; the others stay

The tables also go to results/benchmarks.json and results/benchmarks.md. The scoreboard is made from the former;
``python -m benchmarks.scoreboard results/benchmarks.json`` makes it again. A missed target is shown and is no failure;
the exit code is 1 if a check fails: if two engines disagree, or a measurement does not hold.
"""

from __future__ import annotations

import argparse
import importlib
import sys
import time
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from . import report, scoreboard
from .timing import Run

SECTIONS = (
    "smooth", "gradient", "contact", "batch", "impact", "pile", "envs", "control", "pendulum", "memory", "startup",
    "mujoco",
)  # fmt: skip
MODULES = {"mujoco": "mujoco_physics", "agreement": "mujoco_agreement"}  # of sections whose module has another name
BY_NAME = ("agreement", "derivatives", "view")  # sections that run only if they are named
SHORTER = 0.3  # of the time of a full run: the scoreboard's


def main() -> int:
    parser = argparse.ArgumentParser("python -m benchmarks", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="shorter measurements, a minute or two")
    parser.add_argument(
        "--only", action="append", choices=SECTIONS + BY_NAME, metavar="NAME", help=", ".join(SECTIONS + BY_NAME)
    )
    parser.add_argument(
        "--scoreboard", action="store_true", help="write docs/benchmarks.md, from a somewhat shorter run"
    )
    parser.add_argument("--output", type=Path, default=Path("results"), help="folder for results (%(default)s)")
    options = parser.parse_args()
    torch.set_num_threads(1)
    console, start, facts, measured = Console(), time.perf_counter(), report.machine(), []
    for name, value in facts.items():
        console.print(f"[dim]{name:>10}[/]  {value}", highlight=False)
    console.print()
    columns = (
        TextColumn("{task.fields[section]}"),
        BarColumn(),
        TimeElapsedColumn(),
        TextColumn("[dim]{task.description}"),
    )
    sections = options.only or SECTIONS
    with Progress(*columns, console=console, transient=True, refresh_per_second=2) as progress:
        task = progress.add_task("", total=len(sections), section="")

        def tell(text: str) -> None:
            progress.update(task, description=text)

        for section in sections:
            progress.update(task, section=section)
            run = Run(options.quick, tell, SHORTER if options.scoreboard else 1.0)
            part = report.Section(section, _module(section).measure(run), run.taken)
            for table in part.tables:
                table.show(console)
            measured.append(part)
            progress.advance(task)
    facts["took"] = f"{time.perf_counter() - start:.0f} s" + (" (--quick)" if options.quick else "")
    results, whole = options.output / "benchmarks.json", measured
    if options.scoreboard and options.only and results.exists():
        facts, whole = report.merged(*report.read(results), facts, measured)
    report.write(options.output, facts, whole)
    if options.scoreboard:
        scoreboard.write(results, Path("docs"))
    tables = [table for part in measured for table in part.tables]
    targets = [target for table in tables for _, target in table.rows if target]
    console.print(
        f"{sum(t.met for t in targets)} of {len(targets)} targets met, {time.perf_counter() - start:.0f} s; "
        f"see {options.output / 'benchmarks.md'}",
        highlight=False,
    )
    return 0 if all(table.sound for table in tables) else 1


def _module(section: str) -> Any:
    return importlib.import_module(f"benchmarks.{MODULES.get(section, section)}")


if __name__ == "__main__":
    sys.exit(main())
