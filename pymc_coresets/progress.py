"""Progress of long computations in terminals, notebooks and logs, with the seconds of each part.

What belongs here: what is shown while something runs. May import: Rich, IPython in notebooks.
"""

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from typing import Any, Self

from rich.console import Console
from rich.progress import BarColumn, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bars
from rich.table import Column
from rich.text import Text

from pymc_coresets.deadline import paced

_SHOWN = 0.05  #: Seconds that a report rounds to a tenth.

_log = logging.getLogger(__name__)


class Reporter:
    """Shows the parts of a construction as they run; keeps their seconds, counts and figures.

    In a terminal as bars.  In a notebook as a table below the cell, which is replaced as often as
    five times a second: that needs IPython alone, while Rich's bars need widgets, and it is kept in
    the notebook's file.  Otherwise, as in a log, by a line for each part when it has ended: there
    are no control characters, and nothing is overwritten.

    Parameters
    ----------
    show : bool
    console : rich.console.Console, optional
        Where to show it; the standard output by default.

    Examples
    --------
    >>> with Reporter(show=False) as report, report.part("reading the model"):
    ...     pass
    >>> list(report.seconds)
    ['reading the model']
    """

    def __init__(self, *, show: bool, console: Console | None = None) -> None:
        self.seconds: dict[str, float] = {}
        self.counts: dict[str, int] = {}
        self.figures: dict[str, Any] = {}
        self._reading: TaskID | None = None
        console = console or Console()
        in_terminal = console.is_terminal and not console.is_jupyter
        names, notes = (Column(no_wrap=True, overflow="ellipsis") for _ in range(2))
        self._bars = Bars(
            SpinnerColumn(),
            TextColumn("{task.description}", markup=False, table_column=names),
            BarColumn(bar_width=16),
            TextColumn("{task.fields[note]}", markup=False, table_column=notes),
            TimeElapsedColumn(),
            console=console,
            disable=not (show and in_terminal),
        )
        self._shows = show
        self._in_notebook = show and console.is_jupyter
        self._in_log = show and not (in_terminal or console.is_jupyter)
        self._page: Any = None  # IPython's handle of what is shown in a notebook
        self._replaced = 0.0

    def __enter__(self) -> Self:
        self._bars.start()
        if self._in_notebook:
            from IPython.display import DisplayHandle  # noqa: PLC0415 - there is one in notebooks

            self._page = DisplayHandle()
            self._page.display(self._bars.make_tasks_table(self._bars.tasks))
        return self

    def __exit__(self, *exception: object) -> None:
        self._replace_page()
        if not self._bars.disable:  # or else it prints an empty line
            self._bars.stop()

    @contextmanager
    def part(self, name: str, total: int | None = None) -> Iterator[Callable[[object], None]]:
        """Show and time a part; yield a function that counts steps, and shows each as it prints.

        Parameters
        ----------
        name : str
        total : int, optional
            Steps that it takes at most.
        """
        with self._timed(name, total) as task:
            done = 0

            def show(step: object) -> None:
                nonlocal done
                done += 1
                note = str(step) if total is None else f"{done}/{total}, {step}"
                self._update(task, advance=1, note=note)

            yield show

    @contextmanager
    def passes(
        self, name: str, n_rows: int, *, unit: str = "rows"
    ) -> Iterator[Callable[[int], None]]:
        """Show and time passes over the data; yield a function that counts the rows read."""
        with self._timed(name, n_rows) as task:
            done = 0

            def show(rows: int) -> None:
                nonlocal done
                done += rows
                full, within = divmod(done - 1, n_rows)
                note = f"{within + 1:,} of {n_rows:,} {unit}"
                note += f", pass {full + 1}" if full else ""
                self._update(task, completed=within + 1, note=note)

            yield show

    @contextmanager
    def whole(self, name: str) -> Iterator[None]:
        """Time a block, and keep under a name what the parts within it leave of its seconds.

        Nothing below a twentieth of a second, which no report shows.

        Examples
        --------
        >>> with Reporter(show=False) as report, report.whole("choosing rows"):
        ...     time.sleep(0.06)
        >>> list(report.seconds)
        ['choosing rows']
        """
        of_parts, start = sum(self.seconds.values()), time.perf_counter()
        try:
            yield
        finally:
            left = time.perf_counter() - start - (sum(self.seconds.values()) - of_parts)
            if left >= _SHOWN:
                self.seconds[name] = self.seconds.get(name, 0.0) + left

    def tell(self, line: str) -> None:
        """Report something next to the bars, or in the log if they are not shown."""
        tell(line, show=self._shows, console=self._bars.console)

    def rows_read(self, n_rows: int, n_total: int) -> None:
        """Show how far one reading of all rows has come, and how long it will take.

        Parameters
        ----------
        n_rows : int
            Rows read so far.
        n_total : int
            Number of rows N.

        Examples
        --------
        >>> report = Reporter(show=False)
        >>> report.rows_read(1_000, 5_000)
        """
        if self._reading is None:
            self._reading = self._bars.add_task("  reading rows", total=n_total, note="")
        if n_rows >= n_total:
            self._bars.remove_task(self._reading)
            self._reading = None
            return
        [reading] = (task for task in self._bars.tasks if task.id == self._reading)
        since = self._bars.get_time() - (reading.start_time or 0.0)
        left = timedelta(seconds=round(since * (n_total - n_rows) / max(n_rows, 1)))
        note = f"{n_rows:,} of {n_total:,} rows, {left} left"
        self._update(self._reading, completed=n_rows, note=note)

    @contextmanager
    def _timed(self, name: str, total: int | None) -> Iterator[TaskID]:
        task = self._bars.add_task(name, total=total, note="")
        start = time.perf_counter()
        try:
            yield task
        finally:
            seconds = time.perf_counter() - start
            self.seconds[name] = self.seconds.get(name, 0.0) + seconds
            self._bars.stop_task(task)
            _log.debug("%s: %.2f s", name, seconds)
        self._bars.update(task, total=1, completed=1)
        self._replace_page()
        if self._in_log:
            [ended] = (each for each in self._bars.tasks if each.id == task)
            note = f"{ended.fields['note']}, " if ended.fields["note"] else ""
            line = Text(f"{ended.description}: {note}{seconds:.1f} s")
            self._bars.console.print(line, no_wrap=True, overflow="ellipsis")

    def _update(self, task: TaskID, **changes: Any) -> None:  # noqa: ANN401 - those of Rich
        self._bars.update(task, **changes)
        if time.monotonic() - self._replaced >= 0.2:  # seconds
            self._replace_page()

    def _replace_page(self) -> None:
        if self._page is not None:
            self._replaced = time.monotonic()
            self._page.update(self._bars.make_tasks_table(self._bars.tasks))


@contextmanager
def if_it_takes_long(
    name: str, total: int, unit: str, *, show: bool
) -> Iterator[Callable[[int], None]]:
    """Yield a function that counts what is done, and shows a bar if two seconds are not enough.

    Announces what will take long, and ends at a deadline, as `deadline.paced` does.

    Parameters
    ----------
    name : str
    total : int
        Number of units.
    unit : str
        What these are.
    show : bool
        Whether there may be a bar at all.

    Examples
    --------
    >>> with if_it_takes_long("drawing", 10, "levels", show=True) as count:
    ...     count(10)
    """
    done, begun = 0, time.monotonic()
    bars: list[Callable[[int], None]] = []  # one, if it takes long
    with ExitStack() as stack, paced(name, total, unit) as step:

        def count(n: int) -> None:
            nonlocal done
            done += n
            step(n)
            if show and not bars and done < total and time.monotonic() - begun > 2.0:
                report = stack.enter_context(Reporter(show=True))
                bars.append(stack.enter_context(report.passes(name, total, unit=unit)))
                n = done
            for bar in bars:
                bar(n)

        yield count


def tell(line: str, *, show: bool, console: Console | None = None) -> None:
    """Report a step next to the progress, or if that is off, in the log at the level INFO.

    Parameters
    ----------
    line : str
    show : bool
    console : rich.console.Console, optional
        Where to show it; the standard output by default.

    Examples
    --------
    >>> tell("pm.sample on all rows.", show=True)
    pm.sample on all rows.
    """
    if show:
        (console or Console()).print(Text(line), soft_wrap=True)
    else:
        _log.info(line)
