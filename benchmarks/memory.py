"""Peak memory of a long rollout with its gradient."""

from __future__ import annotations

from pathlib import Path

from .report import Table, Target
from .timing import Run

STEPS = 5000
KNOWN = 2.5  # MB, a buffer that the method must see


def measure(run: Run) -> list[Table]:
    title = f"Memory: forward + backward over {STEPS:,} steps of one Laikago"
    table = Table(title, ["", "peak growth, MB", "least … most"])
    if not Path("/proc/self/clear_refs").exists():
        table.notes.append("Not measured: only Linux can reset the peak.")
        return [table]
    control = []
    for label, every, bound in (("all states kept", 1, 4.0), ("Checkpoint(every=70)", 70, None)):
        runs = [run.fresh("memory", STEPS, every) for _ in range(1 if run.quick else 5)]
        control += [abs(r["control"] - KNOWN) / KNOWN for r in runs]
        growth = sorted(r["growth"] for r in runs)
        middle = growth[len(growth) // 2]
        target = None if bound is None else Target(middle, bound, "MB")
        table.add(label, f"{middle:.2f}", f"{growth[0]:.2f} … {growth[-1]:.2f}", target=target)
    table.check(f"a buffer of {KNOWN} MB, measured the same way, relative", max(control), 0.1)
    table.notes.append(
        "By how much the peak of resident memory (VmHWM, reset after a warm-up) rises, in fresh processes; "
        "the median. The inputs are there before. The states are 1.5 MB."
    )
    return [table]
