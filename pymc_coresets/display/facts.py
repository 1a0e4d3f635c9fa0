"""Results as text: names and values below a title, and sentences, in lines of 80 characters."""

import textwrap
from collections.abc import Mapping, Sequence
from io import StringIO

from rich.console import Console
from rich.table import Table
from rich.text import Text

TEXT_WIDTH = 80
"""Characters that a line of printed results has at most."""


def facts_text(title: str, facts: Mapping[str, str], *closing: str) -> str:
    """Names and values under a title, and closing sentences.

    Values that are too long for a line go on below their beginning.

    Examples
    --------
    >>> print(facts_text("Coreset", {"rows": "5 of 500", "method": "giga"}, "In short: good."))
    Coreset
      rows    5 of 500
      method  giga
    In short: good.
    """
    width = max(map(len, facts))
    lines = [
        textwrap.fill(
            value,
            TEXT_WIDTH,
            initial_indent=f"  {name:<{width}}  ",
            subsequent_indent=" " * (width + 4),
        )
        for name, value in facts.items()
    ]
    return "\n".join([title, *lines, *map(wrapped, closing)])


def wrapped(sentences: str) -> str:
    """Break sentences into lines of at most 80 characters.

    Examples
    --------
    >>> max(map(len, wrapped(30 * "word ").splitlines()))
    79
    """
    return textwrap.fill(sentences, TEXT_WIDTH)


def table_text(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Names in the first column, and right-aligned values; long names take several lines.

    Examples
    --------
    >>> print(table_text(["", "mean", "sd"], [["mu", "0.5", "0.25"], ["sigma", "11.0", "1.00"]]))
          mean   sd
    mu     0.5 0.25
    sigma 11.0 1.00
    """
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column(Text(header[0]), overflow="fold")
    for name in header[1:]:
        table.add_column(Text(name), justify="right", no_wrap=True)
    for cells in rows:
        table.add_row(*map(Text, cells))
    console = Console(file=StringIO(), width=TEXT_WIDTH, color_system=None)
    with console.capture() as printed:
        console.print(table)
    return "\n".join(line.rstrip() for line in printed.get().splitlines())
