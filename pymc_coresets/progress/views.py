"""Where progress is shown: bars in a terminal, a table in a notebook, lines in a log."""

import time
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bars
from rich.table import Column

__all__ = ["View"]

_BAR_WIDTH = 16
_REFRESH_SECONDS = 0.2


class View:
    """Shows tasks while they run, each in one line, with a field ``note``.

    In a notebook, it is a table below the cell, which is replaced as often as five times a second:
    that needs IPython alone, while Rich's bars need widgets, and it is kept in the notebook's file.
    A log has no control characters, and nothing is overwritten.

    Parameters
    ----------
    console : rich.console.Console
    show : bool

    Examples
    --------
    >>> View(Console(), show=False).bars.disable
    True
    """

    def __init__(self, console: Console, *, show: bool) -> None:
        names, notes = (Column(no_wrap=True, overflow="ellipsis") for _ in range(2))
        self.bars = Bars(
            SpinnerColumn(),
            TextColumn("{task.description}", markup=False, table_column=names),
            BarColumn(_BAR_WIDTH),
            TextColumn("{task.fields[note]}", markup=False, table_column=notes),
            TimeElapsedColumn(),
            console=console,
            disable=not (show and console.is_terminal and not console.is_jupyter),
        )
        self._in_notebook = show and console.is_jupyter
        self._in_log = show and not (console.is_terminal or console.is_jupyter)
        self._handle: Any = None
        self._shown = 0.0

    def start(self) -> None:
        """Begin to show."""
        if not self.bars.disable:
            self.bars.start()
        if self._in_notebook:
            from IPython.display import DisplayHandle  # noqa: PLC0415 - there is one in notebooks

            self._handle = DisplayHandle()
            self._handle.display(self.bars.make_tasks_table(self.bars.tasks))

    def refresh(self) -> None:
        """Show how far the tasks have come, unless that was done just now."""
        if time.monotonic() - self._shown >= _REFRESH_SECONDS:
            self._replace()

    def finish(self, task: TaskID, seconds: float) -> None:
        """Show that a task has ended."""
        self._replace()
        if self._in_log:
            ended = next(each for each in self.bars.tasks if each.id == task)
            note = f"{ended.fields['note']}, " if ended.fields["note"] else ""
            line = f"{ended.description}: {note}{seconds:.1f} s"
            plainly: Any = {"markup": False, "highlight": False}
            self.bars.console.print(line, **plainly, no_wrap=True, overflow="ellipsis")

    def stop(self) -> None:
        """Leave what is shown as it is."""
        self._replace()
        if not self.bars.disable:
            self.bars.stop()

    def _replace(self) -> None:
        if self._handle is not None:
            self._shown = time.monotonic()
            self._handle.update(self.bars.make_tasks_table(self.bars.tasks))
