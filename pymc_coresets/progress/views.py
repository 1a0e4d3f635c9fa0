"""Where progress is shown: bars in a terminal, a page in a notebook, lines in a log."""

import time
from collections.abc import Sequence
from html import escape
from typing import Any, Protocol

from rich.console import Console
from rich.progress import BarColumn, SpinnerColumn, Task, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bars
from rich.table import Column

from pymc_coresets.display.page import card

__all__ = ["View", "new_bars", "view_of"]

_BAR_WIDTH = 16
_REFRESH_SECONDS = 0.2


class View(Protocol):
    """Something that shows tasks while they run."""

    def start(self) -> None:
        """Begin to show."""

    def refresh(self) -> None:
        """Show how far the tasks have come."""

    def finish(self, task: Task, seconds: float) -> None:
        """Show that a task has ended."""

    def stop(self) -> None:
        """Show no more."""


def new_bars(console: Console, *, show: bool) -> Bars:
    """Return bars of one line each, whatever their notes; they move in terminals only.

    Each task has a field ``note``.

    Examples
    --------
    >>> new_bars(Console(), show=False).disable
    True
    """
    names, notes = (Column(no_wrap=True, overflow="ellipsis") for _ in range(2))
    return Bars(
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False, table_column=names),
        BarColumn(_BAR_WIDTH),
        TextColumn("{task.fields[note]}", markup=False, table_column=notes),
        TimeElapsedColumn(),
        console=console,
        disable=not (show and console.is_terminal and not console.is_jupyter),
    )


def view_of(bars: Bars, *, show: bool) -> View:
    """Return what shows the tasks of some bars where the program runs.

    Examples
    --------
    >>> from io import StringIO
    >>> console = Console(file=StringIO())
    >>> type(view_of(new_bars(console, show=True), show=True)).__name__
    'LogLines'
    """
    console = bars.console
    if not show:
        return Nowhere()
    if console.is_jupyter:
        return NotebookPage(bars)
    return TerminalBars(bars) if console.is_terminal else LogLines(console)


class Nowhere:
    """Shows nothing."""

    def start(self) -> None:
        """Do nothing."""

    def refresh(self) -> None:
        """Do nothing."""

    def finish(self, task: Task, seconds: float) -> None:
        """Do nothing."""

    def stop(self) -> None:
        """Do nothing."""


class TerminalBars(Nowhere):
    """Rich's own bars, which refresh themselves."""

    def __init__(self, bars: Bars) -> None:
        self._bars = bars

    def start(self) -> None:
        """Begin to show."""
        self._bars.start()

    def stop(self) -> None:
        """Leave the bars as they are."""
        self._bars.stop()


class LogLines(Nowhere):
    """One line for each task, when it has ended: no control characters, nothing to overwrite."""

    def __init__(self, console: Console) -> None:
        self._console = console

    def finish(self, task: Task, seconds: float) -> None:
        """Print the line."""
        note = task.fields["note"]
        line = f"{task.description}: {f'{note}, ' if note else ''}{seconds:.1f} s"
        self._console.print(line, markup=False, highlight=False, no_wrap=True, overflow="ellipsis")


class NotebookPage(Nowhere):
    """A card below the cell, which is replaced as often as five times a second.

    It needs IPython alone, while Rich's bars need widgets, and it is kept in the notebook's file.
    """

    def __init__(self, bars: Bars) -> None:
        self._bars, self._shown = bars, 0.0
        self._handle: Any = None

    def start(self) -> None:
        """Begin to show."""
        from IPython.display import DisplayHandle  # noqa: PLC0415 - there is one in notebooks

        self._handle = DisplayHandle()
        self._handle.display(_Page(self._bars.tasks))

    def refresh(self) -> None:
        """Replace the page, unless that was done just now."""
        if time.monotonic() - self._shown >= _REFRESH_SECONDS:
            self._replace()

    def finish(self, task: Task, seconds: float) -> None:  # noqa: ARG002
        """Replace the page."""
        self._replace()

    def stop(self) -> None:
        """Replace the page for the last time."""
        self._replace()

    def _replace(self) -> None:
        self._shown = time.monotonic()
        self._handle.update(_Page(self._bars.tasks))


class _Page:
    """How far some tasks are, as IPython shows it."""

    def __init__(self, tasks: Sequence[Task]) -> None:
        self._lines = [(task.description, task.fields["note"], _time_of(task)) for task in tasks]
        self._shares = [_share_of(task) for task in tasks]

    def __repr__(self) -> str:
        return "\n".join(", ".join(filter(None, line)) for line in self._lines)

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><td>{escape(name)}</td>"
            f'<td><span class="pmc-bar"><i style="width:{share:.0%}"></i></span></td>'
            f"<td>{escape(note)}</td><td>{elapsed}</td></tr>"
            for (name, note, elapsed), share in zip(self._lines, self._shares, strict=True)
        )
        return card("pymc_coresets", f"<table>{rows}</table>", plain=repr(self))


def _share_of(task: Task) -> float:
    return min(task.completed / task.total, 1.0) if task.total else 0.0


def _time_of(task: Task) -> str:
    seconds = task.finished_time if task.finished else task.elapsed
    return f"{seconds or 0.0:.1f} s"
