"""The source stays as easy to find one's way in as it is: layers, parameters, names; see `benchmarks.structure`."""

import pytest

from benchmarks.structure import MEASURES, Source

LIMITS = {"parameters": 0, "any": 20, "isinstance": 0, "classes": 4, "layers": 0, "between": 3, "long": 3}
"""The most that there may be; a smaller count is a reason to lower it, down to the aim."""


@pytest.fixture(scope="module")
def source() -> Source:
    from benchmarks import structure

    return Source(structure.SOURCE)


def places(found) -> str:
    return "\n".join(map(str, found))


@pytest.mark.parametrize("name", LIMITS)
def test_counts_do_not_rise(source, name):
    found = MEASURES[name].count(source)
    assert len(found) <= LIMITS[name], f"{len(found)} of {MEASURES[name].title}:\n{places(found)}"


def package(folder, files) -> Source:
    """A package of (path, code)."""
    for name, text in files:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
    return Source(folder)


NINE = ", ".join(f"x{k}" for k in range(9))
NEWTON = ("physics/solvers/newton.py", "class Newton: pass")
WRONG = [
    ("parameters", ("simulator.py", f"def f({NINE}, y): pass")),
    ("parameters", ("simulator.py", f"class A:\n def f(self, {NINE}, **options): pass")),
    ("any", ("physics/step.py", "def f(x: Any | None): pass")),
    ("any", ("physics/tree/tree.py", "def f(*, x: 'Sequence[Any]'): pass")),
    ("isinstance", ("physics/step.py", "isinstance(x, Midpoint | float)")),
    ("isinstance", ("simulator.py", "type(x) is InteriorPoint")),
    ("isinstance", ("simulator.py", "match x:\n case Midpoint(): pass")),
    ("isinstance", NEWTON, ("simulator.py", "isinstance(x, newton.Newton)")),
    ("classes", ("simulator.py", "class A: pass"), ("model/scene.py", "class A: pass")),
    ("layers", ("ir/graph.py", "from ..model import Model")),
    ("layers", ("physics/step.py", "def f():\n from backdrive import Simulator")),
    ("layers", ("physics/step.py", "if TYPE_CHECKING:\n from ..simulator import Simulator")),
    ("layers", ("physics/tree/dynamics.py", "import backdrive.runtime.call")),
    ("layers", ("physics/tree/dynamics.py", "from ... import runtime")),
    ("layers", ("envs/env.py", "from ..physics.step import step")),
    ("layers", ("control/ilqr.py", "from ..envs import Env")),
    ("layers", ("nowhere.py", "from .model import Model")),
    ("long", ("simulator.py", "x = 1\n" * 401)),
]
RIGHT = [
    ("parameters", ("simulator.py", f"class A:\n def f(self, {NINE}): pass")),
    ("any", ("physics/step.py", "def f(x: Scalar) -> Any: pass")),
    ("any", ("model/scene.py", "def f(x: Any): pass")),
    ("isinstance", ("physics/integrators/midpoint.py", "isinstance(x, Midpoint)")),
    ("isinstance", NEWTON, ("simulator.py", "isinstance(x, float), newton.Newton().solve(x)")),
    ("classes", ("simulator.py", "class A: pass"), ("model/scene.py", "class B: pass")),
    ("layers", ("model/scene.py", "from ..ir import Graph")),
    ("layers", ("runtime/call.py", "import backdrive.physics.step, numpy.model")),
    ("layers", ("physics/tree/dynamics.py", "from ... import ir\nfrom .joints import Joint")),
    ("layers", ("envs/env.py", "from .. import Simulator\nfrom ..control import ilqr")),
    ("layers", ("control/ilqr.py", "from ..ir import Graph")),
    ("long", ("simulator.py", "x = 1\n" * 400)),
]


@pytest.mark.parametrize(("name", "files"), [(name, files) for name, *files in WRONG])
def test_the_counters_see_what_they_count(tmp_path, name, files):
    assert len(MEASURES[name].count(package(tmp_path, files))) == 1


@pytest.mark.parametrize(("name", "files"), [(name, files) for name, *files in RIGHT])
def test_the_counters_let_the_rest_pass(tmp_path, name, files):
    assert MEASURES[name].count(package(tmp_path, files)) == []


def test_constructors_of_public_classes_do_not_count(tmp_path):
    code = f"class A:\n def __init__(self, {NINE}, y): pass\nclass B:\n def __init__(self, {NINE}, y): pass"
    found = MEASURES["parameters"].count(package(tmp_path, [("__init__.py", "__all__ = ['A']"), ("a.py", code)]))
    assert [place.text for place in found] == ["B.__init__ has 10 parameters"]
