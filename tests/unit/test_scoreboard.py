"""The scoreboard is made from the JSON of a run, and says what is in it."""

import pytest

pytest.importorskip("pinocchio")

from benchmarks import report, scoreboard
from benchmarks.__main__ import SECTIONS
from benchmarks.report import Section, Table, Target
from benchmarks.timing import Run


def sections() -> list[Section]:
    table = Table("Environments at once", ["", "1", "64"], notes=["a note"])
    table.add("backdrive", "3", "0.7", target=Target(4.3, 3.0, "×", at_least=True))
    table.add("MJX: not installed: make peers", "", "")
    table.check("that it is the same", 1e-9, 1e-8)
    links = Table("Links", ["links", "MuJoCo"])
    links.add("5", "2.5")
    times = {"backdrive 1": [3e-6, 3.3e-6], "backdrive 64": [7e-7, 7e-7], "MuJoCo 1": [1e-5, 1.2e-5]}
    chains = {"MuJoCo 5": [2e-6, 2e-6], "specialised 5 forward": [4e-8, 4e-8]}
    return [Section("batch", [table], times), Section("pendulum", [links], chains)]


def test_every_part_has_a_title():
    assert set(SECTIONS) == set(scoreboard.TITLES)


def test_what_is_written_is_read(tmp_path):
    facts = {"processor": "some", "took": "12 s"}
    report.write(tmp_path, facts, sections())
    assert report.read(tmp_path / "benchmarks.json") == (facts, sections())


def test_a_part_that_is_measured_again_takes_its_place():
    old, again = sections(), Section("batch", [], {"backdrive 1": [1e-6, 1e-6]})
    machine = {"processor": "some", "lanes": "4", "versions": "torch 2"}
    facts, merged = report.merged(machine | {"took": "12 s"}, old, machine | {"took": "1 s"}, [again])
    assert merged == [again, old[1]]
    assert facts == machine | {"took": "12 s", "measured again": "batch"}
    facts, merged = report.merged(facts, merged, machine, old[1:])
    assert merged == [again, old[1]] and facts["measured again"] == "batch, pendulum"
    with pytest.raises(SystemExit, match="do not go with these: processor some"):
        report.merged(machine, old, machine | {"processor": "other"}, [again])


def test_the_page(tmp_path):
    report.write(tmp_path, {"processor": "some", "took": "12 s"}, sections())
    scoreboard.write(tmp_path / "benchmarks.json", tmp_path)
    page = (tmp_path / "benchmarks.md").read_text("utf-8")
    assert "- processor: some" in page and "this page took 12 s" in page
    assert "0.0 % in the median of\nall 5 cases" in page and "less than 10 %" in page
    assert "| backdrive | 3 | 0.7 | ≥ 3 × | ✓ |" in page
    assert "| MJX: not installed: make peers |" in page
    assert "✓ that it is the same: 1.0e-09 (≤ 1e-08)" in page
    for name in ("batch", "pendulum"):
        assert f"(benchmarks_{name}.png)" in page and (tmp_path / f"benchmarks_{name}.png").stat().st_size > 5000


def test_series_are_cases_with_one_number():
    found = scoreboard.series(Section("x", [], {"a 10 b": [2e-6, 1e-6], "a 5 b": [3e-6, 4e-6], "c": [1.0, 1.0]}))
    assert found == {"a b": [(5, 3.0), (10, 1.0)]}


def test_a_run_keeps_both_halves():
    run = Run(quick=True)
    time = run.interleave({"x": (lambda: sum(range(1000)), 10)}, seconds=0.0)
    assert set(run.taken) == {"x"} and len(run.taken["x"]) == 2
    assert time["x"] == min(run.taken["x"]) > 0


def test_the_tables_of_laikago_go_into_its_page(tmp_path):
    results, docs = tmp_path / "results", tmp_path / "docs"
    results.mkdir(), docs.mkdir()
    (results / "tables.md").write_text("| new |\n", "utf-8")
    (results / "laikago.png").write_bytes(b"picture")
    (docs / "laikago_table.md").write_text(f"a\n{scoreboard.BEGIN}\n\n| old |\n\n{scoreboard.END}\nb\n", "utf-8")
    for _ in range(2):
        scoreboard.write_laikago(results, docs)
    assert (docs / "laikago_table.md").read_text(
        "utf-8"
    ) == f"a\n{scoreboard.BEGIN}\n\n| new |\n\n{scoreboard.END}\nb\n"
    assert (docs / "laikago_table.png").read_bytes() == b"picture"
