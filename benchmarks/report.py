"""Tables with targets: on the terminal, as Markdown and as JSON."""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import rich.table
from rich.console import Console

from backdrive.backends.llvm_cpu.target import host


@dataclass(frozen=True)
class Target:
    """What the design asks of a measured value."""

    measured: float
    bound: float
    unit: str
    at_least: bool = False

    @property
    def met(self) -> bool:
        return self.measured >= self.bound if self.at_least else self.measured <= self.bound

    def __str__(self) -> str:
        return f"{'≥' if self.at_least else '≤'} {self.bound:g} {self.unit}"


@dataclass
class Table:
    """Rows of text below `columns`, some with a target; `checks`: (what was compared, error, tolerance)."""

    title: str
    columns: list[str]
    rows: list[tuple[list[str], Target | None]] = field(default_factory=list)
    checks: list[tuple[str, float, float]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def add(self, *cells: str, target: Target | None = None) -> None:
        self.rows.append((list(cells), target))

    def check(self, what: str, error: float, tolerance: float) -> None:
        self.checks.append((what, float(error), tolerance))

    def lines(self) -> list[list[str]]:
        """The cells, with the target and whether it is met."""
        marks = {True: "✓", False: "✗ missed"}
        return [[*cells, str(t) if t else "", marks[t.met] if t else ""] for cells, t in self.rows]

    def footnotes(self) -> list[str]:
        """The comparisons, then the notes. An error that is not a number fails."""
        marks = {True: "✓", False: "✗ DIFFERS"}
        checks = [f"{marks[e <= tol]} {what}: {e:.1e} (≤ {tol:g})" for what, e, tol in self.checks]
        return checks + self.notes

    @property
    def sound(self) -> bool:
        """Whether everybody computed the same thing."""
        return all(error <= tolerance for _, error, tolerance in self.checks)

    def show(self, console: Console) -> None:
        table = rich.table.Table(title=self.title, title_justify="left", title_style="bold", header_style="dim")
        for k, name in enumerate([*self.columns, "target", ""]):
            table.add_column(name, justify="left" if k == 0 else "right")
        for cells, (_, target) in zip(self.lines(), self.rows):
            color = "" if target is None else "[green]" if target.met else "[red]"
            table.add_row(*cells[:-2], *(color + cell for cell in cells[-2:]))
        console.print(table)
        for line in self.footnotes():
            console.print(f"  {line}", style="red" if line.startswith("✗") else "dim", highlight=False)
        console.print()

    def markdown(self) -> str:
        header = [*self.columns, "target", ""]
        rule = ["---", *["---:"] * (len(header) - 1)]
        rows = ["| " + " | ".join(cells) + " |" for cells in [header, rule, *self.lines()]]
        return "\n".join([f"### {self.title}", "", *rows, "", *(f"- {line}" for line in self.footnotes()), ""])


def machine() -> dict[str, str]:
    """What the numbers depend on."""
    target = host()
    packages = ["torch", "numpy", "llvmlite", "mujoco", "pin"]
    versions = {name: importlib.metadata.version(name) for name in packages}
    return {
        "processor": f"{_cpu_name()} ({target.cpu})",
        "cores": f"{os.cpu_count()}, load {os.getloadavg()[0]:.1f} at the start",
        "lanes": f"{target.lanes(64)} × float64, {target.lanes(32)} × float32",
        "versions": ", ".join(f"{k} {v}" for k, v in {"Python": platform.python_version(), **versions}.items()),
    }


def _cpu_name() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    return next((x.split(":")[1].strip() for x in lines if x.startswith("model name")), platform.processor())


@dataclass
class Section:
    """The tables of a section, and the times that they were made from: s of two halves, by case."""

    name: str
    tables: list[Table]
    times: dict[str, list[float]]

    def noise(self) -> list[float]:
        """By which part the halves of every measurement differ."""
        return [max(halves) / min(halves) - 1.0 for halves in self.times.values()]


def write(folder: Path, facts: dict[str, str], sections: list[Section]) -> None:
    """``benchmarks.json`` and ``benchmarks.md``."""
    folder.mkdir(parents=True, exist_ok=True)
    content = {"machine": facts, "sections": [asdict(section) for section in sections]}
    (folder / "benchmarks.json").write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", "utf-8")
    head = "\n".join(f"- {name}: {value}" for name, value in facts.items())
    tables = [table.markdown() for section in sections for table in section.tables]
    (folder / "benchmarks.md").write_text("\n".join([head, "", *tables]), "utf-8")


def read(path: Path) -> tuple[dict[str, str], list[Section]]:
    """What ``benchmarks.json`` has."""
    content = json.loads(path.read_text("utf-8"))

    def table(given: dict[str, Any]) -> Table:
        rows = [(cells, Target(**target) if target else None) for cells, target in given["rows"]]
        return Table(**{**given, "rows": rows, "checks": [tuple(check) for check in given["checks"]]})

    sections = [Section(s["name"], [table(t) for t in s["tables"]], s["times"]) for s in content["sections"]]
    return content["machine"], sections


def merged(
    old_facts: dict[str, str], old: list[Section], facts: dict[str, str], new: list[Section]
) -> tuple[dict[str, str], list[Section]]:
    """Facts and sections of a whole run, some of which were measured again on the same machine."""
    for name in ("processor", "lanes", "versions"):
        if old_facts[name] != facts[name]:
            raise SystemExit(f"the results that are there do not go with these: {name} {old_facts[name]}")
    again = {section.name: section for section in new}
    before = old_facts.get("measured again", "").split(", ")
    names = ", ".join(sorted({*filter(None, before), *again}))
    kept = [again.pop(section.name, section) for section in old]
    return old_facts | {"measured again": names}, [*kept, *again.values()]


def per_second(seconds: float) -> str:
    """A rate from the time of one, with a unit that leaves few digits."""
    rate = 1 / seconds
    for factor, unit in ((1e6, " M"), (1e3, " k")):
        if rate >= factor:
            return f"{rate / factor:.3g}{unit}"
    return f"{rate:.3g}"


def microseconds(seconds: float) -> str:
    return f"{seconds * 1e6:.3g}"
