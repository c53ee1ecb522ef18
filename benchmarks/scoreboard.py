"""The scoreboard: ``docs/benchmarks.md`` and its figures, from the JSON of a run; and the tables of a falling Laikago.

python -m benchmarks.scoreboard results/benchmarks.json
python -m benchmarks.scoreboard results/laikago-table
"""

from __future__ import annotations

import re
import shutil
import statistics
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.ticker import NullLocator

from .report import Section, read

if TYPE_CHECKING:
    from matplotlib.axes import Axes

HEAD = """# Benchmarks

backdrive and its peers on the same models. This page is written by a command, which anybody can run again:

```
make peers         # first, for the peers that need an environment of their own: MJX, brax, newton, Nimble
make scoreboard    # this page took {took}; it needs an idle machine
```

{machine}

**How.** All cases of a table take turns in one process on one core (two where it says so), float64 unless said; a
case's time is the shortest of many calls. Each engine does the same work on the same model from the same start; a table
ends with the checks (✓) that all of them computed the same thing, and with the settings. Targets are the project's own;
a missed one is shown as missed. MuJoCo is called through `mujoco.rollout` into memory that is there, with islands,
midphase and sensors switched off where that makes it faster. Contacts are rigid here and in Nimble, soft elsewhere.

**Noise.** Every second round of a measurement is kept apart. The two halves differ by {median:.1f} % in the median of
all {count} cases, and by less than {most:.0f} % in nine of ten; differences of that size between two rows, or between
two runs of this page, mean nothing.

The simulation of a falling Laikago and its gradient by PyTorch, JAX, CasADi, CppAD and MJX is on a
[page of its own](laikago_table.md).
"""
TITLES = {
    "smooth": "Without contact",
    "gradient": "Gradients, without contact",
    "contact": "With contact",
    "batch": "One environment to a thousand",
    "impact": "Exact impacts",
    "pile": "Many bodies in one world",
    "pendulum": "Links",
    "memory": "Memory",
    "startup": "Compilation and overhead",
    "mujoco": "MuJoCo's physics",
    "control": "Planning",
    "envs": "Environments",
}


def write(results: Path, folder: Path) -> None:
    """benchmarks.md and benchmarks_*.png in a folder, from benchmarks.json."""
    facts, sections = read(results)
    figures = {"batch": draw_batches, "pile": draw_bodies, "pendulum": draw_links}
    parts = [head(facts, sections)]
    for section in sections:
        parts.append(f"## {TITLES[section.name]}\n")
        if section.name in figures:
            figure, axis = plt.subplots(figsize=(9.0, 4.5), layout="constrained")
            figures[section.name](axis, section)
            axis.grid(True, which="major", alpha=0.3)
            figure.legend(loc="outside right upper", fontsize=8)
            name = f"benchmarks_{section.name}.png"
            figure.savefig(folder / name, dpi=130)
            plt.close(figure)
            parts.append(f"![{axis.get_ylabel()} against {axis.get_xlabel()}]({name})\n")
        parts += [table.markdown() for table in section.tables]
    (folder / "benchmarks.md").write_text("\n".join(parts), "utf-8")


def head(facts: dict[str, str], sections: list[Section]) -> str:
    noise = sorted(100 * x for section in sections for x in section.noise()) or [0.0]
    machine = "\n".join(f"- {name}: {value}" for name, value in facts.items() if name != "took")
    most = noise[int(0.9 * (len(noise) - 1))]
    return HEAD.format(
        took=facts["took"], machine=machine, median=statistics.median(noise), most=most, count=len(noise)
    )  # fmt: skip


def series(section: Section) -> dict[str, list[tuple[int, float]]]:
    """Cases whose name has one number in it: by what is left of the name, the numbers and µs."""
    found: dict[str, list[tuple[int, float]]] = {}
    for case, halves in section.times.items():
        numbers = re.findall(r"\d+", case)
        if len(numbers) == 1:
            name = " ".join(re.sub(r"\d+", "", case).split()).rstrip(",")
            found.setdefault(name, []).append((int(numbers[0]), 1e6 * min(halves)))
    return {name: sorted(points) for name, points in found.items()}


def _lines(axis: Axes, section: Section, names: dict[str, str]) -> None:
    """names: of cases, and what they are called; backdrive's are thick."""
    found = series(section)
    places = sorted({n for case in names for n, _ in found.get(case, ())})
    for k, (case, label) in enumerate(names.items()):
        if case in found:
            wide = 2.2 if label.startswith("backdrive") else 1.2
            axis.loglog(*zip(*found[case]), "o-", color=f"C{k}", ms=4, lw=wide, label=label)
    axis.set_xticks(places, [f"{n:,}" for n in places])
    axis.xaxis.set_minor_locator(NullLocator())


def draw_batches(axis: Axes, section: Section) -> None:
    names = ("MuJoCo", "backdrive", "backdrive, gradient", "MJX", "brax", "newton", "Nimble")
    _lines(axis, section, {name: name for name in names})
    axis.set(xlabel="environments at once", ylabel="µs per environment and step", title="Laikago standing, one core")


def draw_links(axis: Axes, section: Section) -> None:
    names = {"MuJoCo": "MuJoCo"}
    for kind in ("specialised", "rolled"):
        names |= {f"{kind} {way}": f"backdrive, {kind}, {way}" for way in ("forward", "backward")}
    _lines(axis, section, names)
    axis.set(xlabel="links", ylabel="µs per environment and step", title="Pendulums, batched")


def draw_bodies(axis: Axes, section: Section) -> None:
    names = {"": "backdrive", "gradient": "backdrive, forward and gradient", ", exact": "backdrive, InteriorPoint"}
    _lines(axis, section, names)
    for k, solver in enumerate(("Newton", "CG")):
        if solver in section.times:
            axis.plot(200, 1e6 * min(section.times[solver]), "s", color=f"C{k + 3}", label=f"MuJoCo, {solver}")
    axis.set(xlabel="boxes in one world", ylabel="µs per step", title="A heap of boxes, one core")


BEGIN, END = "<!-- tables, written by a command -->", "<!-- end of tables -->"


def write_laikago(results: Path, folder: Path) -> None:
    """Put the tables and the figure that ``backdrive run laikago-table`` has written into its page."""
    page = folder / "laikago_table.md"
    before, rest = page.read_text("utf-8").split(BEGIN)
    after = rest.split(END)[1]
    tables = (results / "tables.md").read_text("utf-8")
    page.write_text(f"{before}{BEGIN}\n\n{tables}\n{END}{after}", "utf-8")
    shutil.copyfile(results / "laikago.png", folder / "laikago_table.png")


if __name__ == "__main__":
    source = Path(sys.argv[1])
    (write_laikago if source.is_dir() else write)(source, Path("docs"))
