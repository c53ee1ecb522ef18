"""The command ``backdrive``: run experiments, view worlds, check gradients."""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

try:
    import typer
    from rich.console import Console
    from rich.markup import escape
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
    from rich.table import Table
except ImportError as error:
    raise SystemExit("the command line needs typer and rich: pip install 'backdrive[cli]'") from error

from .. import experiments
from ..model import checks

if TYPE_CHECKING:
    from .. import Simulator, State, Trajectory
    from ..experiments import Experiment

FAILED, WRONG_USE, INCONCLUSIVE, INTERRUPTED = 1, 2, 3, 130  # exit codes

app = typer.Typer(
    help="Differentiable physics: run the papers' experiments, show worlds, check gradients.",
    no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False, rich_markup_mode="rich",
)  # fmt: skip
console = Console()

World = Annotated[Path, typer.Argument(help="A scene file (.json), or a MJCF or URDF file.", show_default=False)]
Start = Annotated[Path | None, typer.Option(help="A file with the initial state, instead of the world's own.")]
Step = Annotated[float | None, typer.Option(help="Time step, s; default: the file's, else 1/240.")]
Impacts = Annotated[
    bool | None,
    typer.Option("--impacts/--plain", help="Split time steps at impacts, which makes bounces exact, or do not."),
]


def main() -> None:
    app()


@app.callback(invoke_without_command=True)
def _version(version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False) -> None:
    if version:
        from .. import __version__

        console.print(f"backdrive {__version__}")
        raise typer.Exit


@app.command("list")
def list_experiments() -> None:
    """List the experiments."""
    table = Table(box=None, header_style="bold", pad_edge=False)
    for column in ("name", "what it does", "source"):
        table.add_column(column, no_wrap=column == "name")
    for name in experiments.names():
        experiment = experiments.find(name)
        table.add_row(f"[cyan]{name}[/cyan]", experiment.summary, experiment.paper)
    console.print(table)
    console.print("\nRun one with [cyan]backdrive run NAME[/cyan], or its short version with [cyan]--quick[/cyan].")


def _options_of_experiments() -> str:
    """The options that experiments have of their own, for the help of `run`: a paragraph each."""
    lines = []
    for name in experiments.names():
        given = experiments.find(name).options
        if given:
            options = ", ".join(f"[cyan]--{option}[/cyan] ({meaning})" for option, meaning in given.items())
            lines.append(f"[bold]{name}[/bold] also has {options}.")
    return "\n\n".join(lines)


@app.command(
    "run",
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
    epilog=_options_of_experiments(),
)
def run_experiment(
    context: typer.Context,
    name: Annotated[
        str, typer.Argument(help="Name of the experiment; see [cyan]backdrive list[/cyan].", show_default=False)
    ],
    quick: Annotated[bool, typer.Option("--quick", help="Run the short version, about a minute.")] = False,
    out: Annotated[Path | None, typer.Option(help="Folder for the results.", show_default="results/NAME")] = None,
    seed: Annotated[int, typer.Option(help="Seed of all random numbers.", min=0)] = 0,
) -> None:
    """Run an experiment; figures, a film and [cyan]results.json[/cyan] go to a folder.

    Ctrl-C stops it and keeps the results so far. Some experiments have options of their own, see below:
    [cyan]backdrive run locomotion --env Ant --seconds 120[/cyan].
    """
    with _errors():
        experiment = experiments.find(name)
        options = _own_options(context.args, experiment)
        run = experiments.Run(out or Path("results") / name, quick, seed, log=console.print, options=options)
    console.print(f"[bold]{experiment.name}[/bold]: {experiment.summary} ({experiment.paper})")
    try:
        with _progress() as bar:
            tasks: dict[str, TaskID] = {}

            def advance(what: str, done: int, total: int) -> None:
                if what not in tasks:
                    tasks[what] = bar.add_task(what, total=total)
                bar.update(tasks[what], completed=done, total=total)

            run.progress = advance
            experiment.run(run)
    except KeyboardInterrupt:
        console.print("[yellow]interrupted[/yellow]; the results so far are kept:")
        _list_files(run.files)
        raise typer.Exit(INTERRUPTED) from None
    except ImportError as error:
        raise _failure(str(error), FAILED) from None
    except experiments.WrongOption as error:
        raise _failure(str(error), WRONG_USE) from None
    console.print("results:")
    _list_files(run.files)


def _own_options(arguments: list[str], experiment: Experiment) -> dict[str, str]:
    """The options of an experiment, from `--name value` or `--name=value`."""
    words = [word for argument in arguments for word in argument.split("=", 1)]
    names, values = words[::2], words[1::2]
    for word in names:
        if not word.startswith("--") or word.removeprefix("--") not in experiment.options:
            known = ["--quick", "--out", "--seed", *(f"--{name}" for name in experiment.options)]
            raise ValueError(checks.unknown(f"option of {experiment.name}", word, known))
    if len(values) < len(names):
        raise ValueError(f"{names[-1]} needs a value: {experiment.options[names[-1].removeprefix('--')]}")
    return {name.removeprefix("--"): value for name, value in zip(names, values)}


@app.command("view")
def view_world(
    world: Annotated[
        Path,
        typer.Argument(help="A MJCF or URDF file, a scene (.json), or a saved motion (.bd).", show_default=False),
    ],
    film: Annotated[
        Path | None,
        typer.Option("--film", "--out", help="Write a film, .mp4 or .gif.", show_default="results/WORLD.mp4"),
    ] = None,
    html: Annotated[Path | None, typer.Option(help="Write a page that opens in any browser, .html.")] = None,
    live: Annotated[bool, typer.Option("--live", help="Show it in the browser, in real time.")] = False,
    seconds: Annotated[float, typer.Option(help="Simulated time, s.")] = 5.0,
    state: Start = None,
    dt: Step = None,
    physics: Annotated[str | None, typer.Option(help="rigid or mujoco (of MJCF files).", show_default="rigid")] = None,
    impacts: Impacts = None,
    fps: Annotated[float, typer.Option(help="Frames per second.")] = 30.0,
    speed: Annotated[float, typer.Option(help="Playback speed: 1 is real time, 0.1 ten times slower.")] = 1.0,
    trail: Annotated[list[str] | None, typer.Option(help="Draw the trail of this body; may be repeated.")] = None,
    camera: Annotated[str | None, typer.Option(help="A camera of the file.", show_default="one that shows all")] = None,
    track: Annotated[str | None, typer.Option(help="A body that the camera follows.")] = None,
    renderer: Annotated[str | None, typer.Option(help="opengl or software.", show_default="what works")] = None,
) -> None:
    """Show a world, simulated without controls, or a saved motion: as a film, as a page, or live in the browser."""
    given = {"camera": camera, "track": track, "renderer": renderer}
    film_options: dict[str, Any] = {"fps": fps, "speed": speed, "trail": trail or ()}
    film_options |= {name: value for name, value in given.items() if value is not None}
    files = ViewFiles(film, html, live, world)
    with _errors():
        files.check()
        if world.suffix.lower() == ".bd":
            from .. import Trajectory

            if state or dt or physics or impacts is not None:
                raise ValueError(f"{world} is a motion: --state, --dt, --physics and --impacts are for worlds")
            _show_path(Trajectory.load(world), files, film_options)
            return
        from .. import view
        from ..model import checks

        simulator, start = _prepare(world, state, dt, impacts, physics)
        steps = math.ceil(checks.number(seconds, "seconds", low=0.0, strict=True) / simulator.dt - 1e-9)
        stage = view.Staging.of(simulator, start)
        if files.film is not None:
            view.animate(stage, **film_options)  # refuses what it cannot show, before anything is simulated
        if live:
            view.show(simulator, start)
        if files.film is not None or html is not None:
            _show_path(simulator.rollout(start, steps=steps), replace(files, live=False), film_options)


@dataclass(frozen=True)
class ViewFiles:
    """Where ``backdrive view`` shows: files, or (`live`) in the browser; by default in a film named as the world."""

    given: Path | None
    html: Path | None
    live: bool
    world: Path

    @property
    def film(self) -> Path | None:
        if self.given is not None or self.html is not None or self.live:
            return self.given
        return Path("results") / self.world.with_suffix(_film_suffix()).name

    def check(self) -> None:
        """Raise if one of them is of a wrong kind, or what makes it is not installed."""
        from ..view import backends, video

        if not self.world.is_file():
            raise FileNotFoundError(f"no such file: {self.world}")
        if self.film is not None and self.film.suffix.lower() not in video.FORMATS:
            raise ValueError(f"an animation is a .mp4 or a .gif file, got {str(self.film)!r}")
        for file in (self.film, self.html):
            if file is not None and file.is_dir():
                raise IsADirectoryError(f"{file} is a folder, where a file was wanted")
        if self.html is not None:
            if self.html.suffix.lower() not in (".html", ".htm"):
                raise ValueError(f"a page is a .html file, got {str(self.html)!r}")
            if not self.html.parent.is_dir():
                raise FileNotFoundError(f"there is no folder {self.html.parent} to write {self.html.name} to")
            backends.find("page")
        if self.live:
            backends.find("browser")


def _show_path(path: Trajectory, files: ViewFiles, film_options: dict[str, Any]) -> None:
    from .. import view

    console.print(f"{path}", highlight=False, markup=False)
    written = []
    if files.film is not None:
        animation = view.animate(path, **film_options)
        with _progress() as bar:
            task = bar.add_task("frames", total=len(animation))
            animation.save(files.film, lambda done, total: bar.update(task, completed=done))
        written.append(files.film)
    if files.html is not None:
        view.export(path, files.html)
        written.append(files.html)
    _list_files(written)
    if files.live:
        view.show(path)


@app.command("gradcheck")
def check_gradients(
    world: World,
    steps: Annotated[int, typer.Option(help="Number of steps to check.", min=1)] = 100,
    state: Start = None,
    dt: Step = None,
    impacts: Impacts = None,
    parameter: Annotated[
        list[str] | None,
        typer.Option(help="Also check this parameter; may be repeated.", show_default="mass, friction, restitution"),
    ] = None,
    tolerance: Annotated[float, typer.Option(help="Largest relative error that passes.")] = 1e-6,
) -> None:
    """Compare the gradients of a world with finite differences, input by input and step by step.

    The exit code is 0 if all agree, 1 if one is wrong, and 3 if differences cannot decide (2: wrong use).
    """
    with _errors():
        from .. import gradcheck
        from ..gradcheck import Verdict

        simulator, start = _prepare(world, state, dt, impacts)
        model = simulator.model
        usual = [name for name in ("mass", "friction", "restitution") if name in model.parameters()]
        parameters = {name: model.parameter(name) for name in parameter or usual}
        report = gradcheck(simulator, start, steps=steps, parameters=parameters, tolerance=tolerance)
    console.print(str(report), highlight=False, markup=False)
    raise typer.Exit({Verdict.AGREES: 0, Verdict.WRONG: FAILED, Verdict.INCONCLUSIVE: INCONCLUSIVE}[report.verdict])


def _prepare(
    world: Path, state: Path | None, dt: float | None, impacts: bool | None, physics: str | None = None
) -> tuple[Simulator, State]:
    """The simulator of a world file, and the initial state."""
    from .. import Simulator, State, load

    model = load(world)
    given: dict[str, Any] = {} if impacts is None else {"impacts": impacts}
    if physics is not None:
        given["physics"] = physics
    simulator = Simulator(model, model.timestep or 1 / 240 if dt is None else dt, **given)
    return simulator, model.initial_state() if state is None else State.load(state)


def _film_suffix() -> str:
    return ".mp4" if importlib.util.find_spec("imageio_ffmpeg") else ".gif"


@contextmanager
def _progress() -> Iterator[Progress]:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console) as bar:
        yield bar


@contextmanager
def _errors() -> Iterator[None]:
    """Report wrong input in one line, without a traceback."""
    try:
        yield
    except KeyboardInterrupt:
        console.print("[yellow]interrupted[/yellow]; nothing was written")
        raise typer.Exit(INTERRUPTED) from None
    except ImportError as error:
        raise _failure(str(error), FAILED) from None
    except (ValueError, TypeError, NotImplementedError, OSError) as error:
        raise _failure(str(error), WRONG_USE) from None


def _failure(message: str, code: int) -> typer.Exit:
    Console(stderr=True).print(f"[red]error[/red]: {escape(message)}", highlight=False)
    return typer.Exit(code)


def _list_files(files: list[Path]) -> None:
    for file in files:
        console.print(f"  {escape(str(file))}", highlight=False, soft_wrap=True)


if __name__ == "__main__":
    main()
