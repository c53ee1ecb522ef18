"""The progress bar of `fit(progress=True)` and `optimize(progress=True)`."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator


@contextlib.contextmanager
def bar(shown: bool, what: str, total: int) -> Iterator[Callable[[int, str], None]]:
    """Yields a function of the work done so far (out of `total`) and a text, which updates the bar.

    Without `shown` the function does nothing. The bar disappears at the end.
    """
    if not shown:
        yield lambda done, text: None
        return
    try:
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
    except ImportError as error:
        raise ImportError("progress=True needs rich: pip install 'backdrive[view]'") from error
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[text]}"), TimeElapsedColumn())
    with Progress(*columns, transient=True) as display:
        task = display.add_task(what, total=total, text="")
        yield lambda done, text: display.update(task, completed=min(done, total), text=text)
