"""Count what makes the source hard to find one's way in: ``python -m benchmarks.structure``.

    python -m benchmarks.structure                     the table: before (commit af2aaca), now, and the aim
    python -m benchmarks.structure --list layers       every place that a measure counts
    python -m benchmarks.structure --source FOLDER     the same of another checkout's src/backdrive

All but one of the measures read the source (its syntax tree), and import nothing of it:

parameters  functions and methods with ten parameters or more, ``self`` and ``cls`` aside. Constructors of public
            classes and the public functions `KEYWORDS` do not count.
any         parameters in physics/ whose annotation contains ``Any``, also of ``*args`` and ``**options``.
isinstance  tests of the class of an integrator or a solver (``isinstance``, ``issubclass``, ``type(x) is``, ``case``)
            outside the folders that define them.
classes     class names that more than one module defines.
layers      imports against the order of `LAYERS`, and imports of internals (`INTERNAL`) by the packages that are built
            on the public API. Imports inside functions and for type checking count like any other.
between     modules on the call stack between ``Simulator.rollout`` and the first equation (``rollout`` of
            physics/rollout.py), when a rollout traces its kernel. It is run, in a process of its own. The compiler,
            which calls the physics, does not count.
long        modules of more than 400 lines.

The column af2aaca was counted by this script at that commit. The review that began this found other numbers there: 41
functions with many parameters, with four constructors and three functions that are public; 788 ``Any``, without those
that are part of a larger annotation, such as ``Any | None``, and those of ``*args``; 29 class names of these 32. There
is no number of layers: that commit has none. Its physics/ had the big worlds, too, which are in piles/ now.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src" / "backdrive"

LAYERS = (
    ("ir",), ("backends",), ("schema",), ("model",), ("physics",), ("piles",), ("policy",), ("runtime",),
    (
        "adjoints", "rollout_arguments", "simulator", "simulator_settings", "trajectory", "trajectory_files",
        "contacts", "camera", "gradcheck", "smoothing", "differences", "progress", "threads",
    ),
    ("control",), ("identify",), ("view",), ("envs",), ("learn",), ("scale",), ("experiments",), ("cli",),
)  # fmt: skip
"""From the bottom to the top: a module imports from its own layer and from those before it."""
EVERYWHERE = ("_version",)  # imported by any layer, and imports none
PUBLIC_USERS = ("control", "identify", "learn", "envs", "view", "scale", "experiments", "cli")
INTERNAL = ("ir", "backends", "schema", "physics", "piles", "runtime")
ALLOWED = {"control": ("ir", "backends"), "view": ("schema",)}
"""Internals that a package on the public API uses all the same: control compiles kernels of its own, and view reads the
outlines of shapes from a model's constants, whose layout is in schema."""

KEYWORDS = {
    ("identify/fitting.py", "fit"),
    ("model/scene.py", "Scene.add_body"),
    ("view/pictures.py", "animate"),
    ("cli/commands.py", "view_world"),
    ("simulator.py", "Simulator.rollout"),
}
"""Functions of the public API that users call with one to three arguments, and keywords for the rest."""
PLUG_FOLDERS = ("physics/integrators", "physics/solvers")
PLUG_NAMES = ("SemiImplicitEuler", "Midpoint", "ProjectedGaussSeidel", "InteriorPoint")
MANY, LONG = 10, 400  # parameters of a function, lines of a module


@dataclass(frozen=True)
class Place:
    """Something that a measure counts, and where it is."""

    path: str
    line: int
    text: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.text}"


class Source:
    """The modules of a package, parsed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @cached_property
    def modules(self) -> dict[str, ast.Module]:
        """By path relative to the package."""
        paths = sorted(self.folder.rglob("*.py"))
        return {path.relative_to(self.folder).as_posix(): ast.parse(path.read_text("utf-8")) for path in paths}

    def functions(self, under: str = "") -> Iterator[tuple[str, str, ast.FunctionDef | ast.AsyncFunctionDef]]:
        """(path, class it is a method of or "", function), nested ones, too."""
        for path, tree in self.modules.items():
            if path.startswith(under):
                for node, owner in _with_owners(tree, ""):
                    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                        yield path, owner, node

    def classes(self) -> Iterator[tuple[str, ast.ClassDef]]:
        for path, tree in self.modules.items():
            for node in ast.walk(tree):
                if isinstance(node, ast.ClassDef):
                    yield path, node

    def exported(self) -> set[str]:
        """Names in ``__all__`` of the package and of those of its parts that users import."""
        names: set[str] = set()
        for path in ("__init__.py", *(f"{part}/__init__.py" for part in ("model", *PUBLIC_USERS))):
            for node in ast.walk(self.modules.get(path, ast.Module([], []))):
                if isinstance(node, ast.Assign) and any(_name(target) == "__all__" for target in node.targets):
                    names |= set(ast.literal_eval(node.value))
        return names


def _with_owners(node: ast.AST, owner: str) -> Iterator[tuple[ast.AST, str]]:
    for child in ast.iter_child_nodes(node):
        yield child, owner
        yield from _with_owners(child, child.name if isinstance(child, ast.ClassDef) else owner)


def _parameters(function: ast.FunctionDef | ast.AsyncFunctionDef) -> list[ast.arg]:
    given = function.args
    listed = [*given.posonlyargs, *given.args, *given.kwonlyargs]
    return [arg for arg in (*listed, given.vararg, given.kwarg) if arg is not None and arg.arg not in ("self", "cls")]


def _name(node: ast.AST) -> str:
    """``A`` and ``module.A`` are A; anything else is ""."""
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""


# ---------------------------------------------------------------------------------------------- the measures


def many_parameters(source: Source) -> list[Place]:
    public = source.exported()
    found = []
    for path, owner, function in source.functions():
        count, name = len(_parameters(function)), f"{owner}.{function.name}" if owner else function.name
        constructor = function.name == "__init__" and owner in public
        if count >= MANY and not constructor and (path, name) not in KEYWORDS:
            found.append(Place(path, function.lineno, f"{name} has {count} parameters"))
    return sorted(found, key=lambda place: -int(place.text.split()[-2]))


def any_parameters(source: Source, under: str = "physics/") -> list[Place]:
    return [
        Place(path, arg.lineno, f"{function.name}({arg.arg}: {ast.unparse(arg.annotation)})")
        for path, _, function in source.functions(under)
        for arg in _parameters(function)
        if arg.annotation is not None and _mentions_any(arg.annotation)
    ]


def _mentions_any(annotation: ast.expr) -> bool:
    if isinstance(annotation, ast.Constant) and isinstance(annotation.value, str):
        annotation = ast.parse(annotation.value, mode="eval").body
    return any(_name(node) == "Any" for node in ast.walk(annotation))


def total_parameters(source: Source, under: str) -> int:
    """All parameters of a folder."""
    return sum(len(_parameters(function)) for _, _, function in source.functions(under))


def class_tests(source: Source) -> list[Place]:
    plugs = set(PLUG_NAMES)
    for path, node in source.classes():
        if path.startswith(PLUG_FOLDERS):
            plugs.add(node.name)
    found = []
    for path, tree in source.modules.items():
        if path.startswith(PLUG_FOLDERS):
            continue
        for node in ast.walk(tree):
            tested = [_name(part) for classes in _tested(node) for part in ast.walk(classes)]
            if hits := sorted(plugs.intersection(tested)):
                text = f"{ast.unparse(node)} tests for {', '.join(hits)}"
                found.append(Place(path, getattr(node, "lineno", 0), text))
    return found


def _tested(node: ast.AST) -> list[ast.AST]:
    """The classes that an expression or a pattern compares with."""
    if isinstance(node, ast.Call) and _name(node.func) in ("isinstance", "issubclass") and len(node.args) == 2:
        return [node.args[1]]
    if isinstance(node, ast.Compare) and any(_is_type(side) for side in (node.left, *node.comparators)):
        return [side for side in (node.left, *node.comparators) if not _is_type(side)]
    return [node.cls] if isinstance(node, ast.MatchClass) else []


def _is_type(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and _name(node.func) == "type"


def shared_class_names(source: Source) -> list[Place]:
    modules: dict[str, dict[str, int]] = defaultdict(dict)
    for path, node in source.classes():
        modules[node.name].setdefault(path, node.lineno)
    return [
        Place(min(paths), paths[min(paths)], f"{name} is defined in {', '.join(sorted(paths))}")
        for name, paths in sorted(modules.items())
        if len(paths) > 1
    ]


def layer_violations(source: Source) -> list[Place]:
    height = {name: k for k, names in enumerate(LAYERS) for name in names}
    found = []
    for path, tree in source.modules.items():
        importer = _layer(path)
        if importer == "__init__":  # of the package: it exports everything
            continue
        for line, imported in dict.fromkeys(_imports(path, tree)):
            if imported in EVERYWHERE:
                continue
            if importer not in height or imported not in height:
                found.append(Place(path, line, f"{importer if importer not in height else imported} has no layer"))
            elif height[imported] > height[importer]:
                found.append(Place(path, line, f"{importer} imports {imported}, which is above it"))
            elif importer in PUBLIC_USERS and imported in INTERNAL and imported not in ALLOWED.get(importer, ()):
                found.append(Place(path, line, f"{importer} imports {imported}, which is not public"))
    return found


def _layer(path: str) -> str:
    return path.split("/")[0].removesuffix(".py")


def _imports(path: str, tree: ast.Module) -> Iterator[tuple[int, str]]:
    """(line, layer) of every import from the package; names that the package itself exports are the simulator's."""
    package = ["backdrive", *path.split("/")[:-1]]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            targets = [alias.name.split(".") for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            module = base + (node.module.split(".") if node.module else [])
            targets = [[*module, alias.name] for alias in node.names]
        else:
            continue
        for target in targets:
            if target[0] == "backdrive" and len(target) > 1:
                name = target[1]
                yield node.lineno, name if (name in _LAYER_NAMES or len(target) > 2) else "simulator"


_LAYER_NAMES = {*EVERYWHERE, *(name for names in LAYERS for name in names)}


def modules_before_the_first_equation(source: Source) -> list[Place]:
    with tempfile.TemporaryDirectory() as cache:
        environment = {**os.environ, "PYTHONPATH": str(source.folder.parent), "BACKDRIVE_CACHE": cache}
        done = subprocess.run(
            [sys.executable, "-c", _ROLLOUT], env=environment, capture_output=True, text=True, check=False
        )
    if done.returncode:
        raise RuntimeError(f"the rollout failed:\n{done.stderr}")
    return [Place(path, line, f"in {name}") for path, line, name in json.loads(done.stdout.splitlines()[-1])]


_ROLLOUT = '''
import json, sys, threading
from pathlib import Path
import backdrive as bd

root, found = Path(bd.__file__).parent, []

def profile(frame, event, argument):
    """Keep the call stack of the first call of rollout in physics/rollout.py."""
    if found or event != "call" or frame.f_code.co_name != "rollout":
        return
    if not frame.f_code.co_filename.endswith("physics/rollout.py"):
        return
    while frame is not None:
        path = Path(frame.f_code.co_filename)
        if path.is_relative_to(root):
            found.append((path.relative_to(root).as_posix(), frame.f_lineno, frame.f_code.co_name))
        frame = frame.f_back

scene = bd.Scene(dim=2)
scene.add_static(bd.HalfSpace(normal=(0, 1)))
scene.add_body("ball", bd.Circle(0.2), mass=1.0, position=(0.0, 1.0))
simulator = bd.Simulator(scene.build(), 0.01, impacts=True)
state = scene.build().initial_state(2)
threading.setprofile(profile)
sys.setprofile(profile)
simulator.rollout(state, steps=2)
sys.setprofile(None)
assert found, "no call of physics/rollout.py was seen"
assert found[-1][0] == "simulator.py", f"the kernel was not traced below Simulator.rollout, but {found[-1]}"
between = {}
for path, line, name in reversed(found):
    if path not in ("simulator.py", "physics/rollout.py") and path.split("/")[0] not in ("ir", "backends", "compiler"):
        between.setdefault(path, (path, line, name))
print(json.dumps(list(between.values())))
'''


def long_modules(source: Source) -> list[Place]:
    lines = {path: (source.folder / path).read_text("utf-8").count("\n") for path in source.modules}
    over = sorted((count, path) for path, count in lines.items() if count > LONG)
    return [Place(path, count, f"{count} lines") for count, path in reversed(over)]


# ---------------------------------------------------------------------------------------------- the table


@dataclass(frozen=True)
class Measure:
    """before: the count at af2aaca; None: it does not apply there. aim: the most there may be; None: no such number."""

    title: str
    count: Callable[[Source], list[Place]]
    before: int | None
    aim: int | None


MEASURES = {
    "parameters": Measure(f"functions with {MANY} parameters or more", many_parameters, 34, 0),
    "any": Measure("Any parameters in physics/", any_parameters, 821, 99),
    "isinstance": Measure("class tests of integrators and solvers", class_tests, 15, 0),
    "classes": Measure("class names defined in several modules", shared_class_names, 32, 4),
    "layers": Measure("imports against the layer order", layer_violations, None, 0),
    "between": Measure(
        "modules between Simulator.rollout and the first equation", modules_before_the_first_equation, 5, 3
    ),
    "long": Measure(f"modules of more than {LONG} lines", long_modules, 15, None),
}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser("python -m benchmarks.structure", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--source", type=Path, default=SOURCE, help="the package to count (%(default)s)")
    parser.add_argument("--list", choices=MEASURES, metavar="MEASURE", help="every place of: " + ", ".join(MEASURES))
    options = parser.parse_args()
    source = Source(options.source)
    if options.list:
        print("\n".join(map(str, MEASURES[options.list].count(source))))
        return
    print("| measure | at af2aaca | now | aim |\n|---|---:|---:|---:|")
    for name, measure in MEASURES.items():
        now = len(measure.count(source))
        before = "–" if measure.before is None else measure.before
        aim = "fewer" if measure.aim is None else f"≤ {measure.aim}"
        print(f"| {name}: {measure.title} | {before} | {now} | {aim} |")
    in_piles = len(any_parameters(source, "piles/"))
    print(
        f"\n{total_parameters(source, 'physics/'):,} parameters in physics/. In piles/, {in_piles:,} of "
        f"{total_parameters(source, 'piles/'):,} are Any. {len(source.modules)} modules in all."
    )


if __name__ == "__main__":
    main()
