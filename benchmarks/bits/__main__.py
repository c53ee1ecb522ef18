"""The command: record, compare, digest, --list."""

from __future__ import annotations

import argparse
import json
import resource
import sys
import time
from pathlib import Path

from . import files
from .registry import Arrays
from .running import Outcome, run_scenes


def main() -> int:
    """Returns the exit code: 0 if all went well, 1 if a scene failed or differs."""
    arguments = _parse()
    if arguments.list:
        return _list()
    if arguments.command == "digest":
        digests = {scene: files.scene_digest(arrays) for scene, arrays in files.load(arguments.file).items()}
        print(json.dumps(digests, indent=0))
        return 0
    names = _chosen(arguments.only)
    began = time.perf_counter()
    if arguments.command == "record":
        code = _record(arguments.file, names, arguments.jobs)
    else:
        code = _compare(arguments.file, names, arguments.jobs, everything=not arguments.only)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    print(f"{time.perf_counter() - began:.0f} s, {used.ru_utime + used.ru_stime:.0f} s of processor time")
    return code


def _record(path: Path, names: list[str], jobs: int) -> int:
    recorded: dict[str, Arrays] = {}
    failed = 0
    for number, outcome in enumerate(run_scenes(names, jobs), 1):
        if outcome.arrays is not None:
            recorded[outcome.name] = outcome.arrays
            count = sum(x.size for x in outcome.arrays.values())
            text = f"{len(outcome.arrays)} arrays, {count} numbers"
        else:
            text = _no_arrays(outcome)
            failed += bool(outcome.error)
        _progress(number, len(names), outcome, text)
    files.save(path, recorded)
    print(f"{len(recorded)} of {len(names)} scenes recorded in {path}")
    return 1 if failed else 0


def _compare(path: Path, names: list[str], jobs: int, everything: bool) -> int:
    old: dict = files.load_digests(path) if path.suffix == ".json" else files.load(path)
    differences = files.digest_differences if path.suffix == ".json" else files.differences
    identical = compared = 0
    for number, outcome in enumerate(run_scenes(names, jobs), 1):
        if outcome.name not in old:
            _progress(number, len(names), outcome, f"not in {path}, not compared")
            continue
        compared += 1
        if outcome.arrays is None:
            _progress(number, len(names), outcome, _no_arrays(outcome))
            continue
        found = differences(old[outcome.name], outcome.arrays)
        identical += not found
        shown = "".join(f"\n        {line}" for line in found)
        _progress(number, len(names), outcome, f"DIFFERS in {len(found)} arrays{shown}" if found else "identical")
    gone = sorted(set(old) - set(names)) if everything else []
    for name in gone:
        print(f"{name}: recorded, but there is no such scene any more")
    compared += len(gone)
    print(f"{identical} of {compared} scenes identical")
    return 0 if identical == compared else 1


def _no_arrays(outcome: Outcome) -> str:
    return f"skipped: {outcome.skipped}" if outcome.skipped else f"FAILED\n{outcome.error}"


def _progress(number: int, total: int, outcome: Outcome, text: str) -> None:
    print(f"[{number:3d}/{total}] {outcome.name}: {text} ({outcome.seconds:.1f} s)", flush=True)


def _chosen(only: list[str] | None) -> list[str]:
    """The names of the scenes to run, in their order; those that `only` has must exist."""
    from .scenes import SCENES

    if unknown := sorted(set(only or ()) - set(SCENES)):
        raise SystemExit(f"there is no scene named {', '.join(unknown)}: see --list")
    return [name for name in SCENES if not only or name in only]


def _list() -> int:
    from .scenes import SCENES

    for name, entry in SCENES.items():
        print(f"{name:32} {entry.description}")
    print(f"{len(SCENES)} scenes")
    return 0


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser("python -m benchmarks.bits", description=__doc__)
    parser.add_argument("--list", action="store_true", help="list all scenes")
    commands = parser.add_subparsers(dest="command")
    for name, text in (
        ("record", "run the scenes and write all arrays to FILE.npz"),
        ("compare", "run them again and compare with FILE.npz, or with a digest FILE.json, to the bit"),
        ("digest", "print the hash of every scene of FILE.npz as JSON"),
    ):
        command = commands.add_parser(name, help=text, description=text)
        command.add_argument("file", type=Path)
        if name != "digest":
            command.add_argument("--only", nargs="+", metavar="NAME", help="these scenes alone")
            command.add_argument("-j", "--jobs", type=int, default=2, help="processes at a time (default 2)")
    arguments = parser.parse_args()
    if not arguments.list and arguments.command is None:
        parser.error("give a command: record, compare or digest; or --list")
    return arguments


if __name__ == "__main__":
    sys.exit(main())
