"""Results as a title with facts, tables and sentences below it: as text and as HTML.

Text has lines of 80 characters. HTML has the colours and letters of its surroundings; where the
style is taken out, as in notebooks that are not trusted, the text is shown instead.
"""

import textwrap
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from io import StringIO
from typing import NamedTuple

from rich.console import Console
from rich.table import Table
from rich.text import Text

TEXT_WIDTH = 80
"""Characters that a line of printed results has at most."""

#: Every rule begins with a class of ours: nothing else on the page changes.
_STYLE = (
    ".pmc-plain{display:none}"
    ".pmc-card{display:block!important;max-width:46em;padding:.6em .9em;border:1px solid}"
    ".pmc-card .pmc-scroll{overflow-x:auto}"
    ".pmc-card th,.pmc-card td{text-align:left;vertical-align:top;font-weight:normal}"
    ".pmc-card .pmc-numbers td,.pmc-card .pmc-numbers thead th{text-align:right;white-space:nowrap}"
)
_PAGE = (
    '<div class="pmc"><style>{style}</style><pre class="pmc-plain">{plain}</pre>'
    '<div class="pmc-card" style="display:none"><b>{title}</b>{parts}</div></div>'
)


class Numbers(NamedTuple):
    """A table of names, in the first column, and right-aligned values."""

    header: Sequence[str]
    rows: Sequence[Sequence[str]]


#: Names and values, a table, or sentences; what is empty is left out.
type Part = Mapping[str, str] | Numbers | str


def as_text(title: str, *parts: Part) -> str:
    """Return a title and parts as text; long values, names and sentences take several lines.

    Examples
    --------
    >>> print(as_text("Coreset", {"rows": "5 of 500", "method": "giga"}, "In short: good."))
    Coreset
      rows    5 of 500
      method  giga
    In short: good.
    >>> print(as_text("Draws", Numbers(["", "mean", "sd"], [["sigma", "11.0", "1.00"]])))
    Draws
    <BLANKLINE>
          mean   sd
    sigma 11.0 1.00
    """
    gap = "\n\n" if any(isinstance(part, Numbers) for part in parts) else "\n"
    return gap.join([title, *(_text_of(part) for part in parts if part)])


def as_html(title: str, *parts: Part) -> str:
    """Return a title and parts as HTML; sentences begin in bold, up to their first colon.

    Examples
    --------
    >>> html = as_html("Coreset", {"rows": "<5"}, "Good: use it.")
    >>> "<tr><th>rows</th><td>&lt;5</td></tr>" in html, "<p><b>Good:</b> use it.</p>" in html
    (True, True)
    """
    shown = "".join(_html_of(part) for part in parts if part)
    plain = escape(as_text(title, *parts))
    return _PAGE.format(style=_STYLE, plain=plain, title=escape(title), parts=shown)


def _text_of(part: Part) -> str:
    if isinstance(part, str):
        return textwrap.fill(part, TEXT_WIDTH)
    if isinstance(part, Numbers):
        return _text_of_numbers(part)
    width = max(map(len, part))
    below = " " * (width + 4)  # the beginning of the value
    return "\n".join(
        textwrap.fill(
            value, TEXT_WIDTH, initial_indent=f"  {name:<{width}}  ", subsequent_indent=below
        )
        for name, value in part.items()
    )


def _text_of_numbers(numbers: Numbers) -> str:
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column(Text(numbers.header[0]), overflow="fold")
    for name in numbers.header[1:]:
        table.add_column(Text(name), justify="right", no_wrap=True)
    for cells in numbers.rows:
        table.add_row(*map(Text, cells))
    console = Console(file=StringIO(), width=TEXT_WIDTH, color_system=None)
    with console.capture() as printed:
        console.print(table)
    return "\n".join(line.rstrip() for line in printed.get().splitlines())


def _html_of(part: Part) -> str:
    if isinstance(part, str):
        first, colon, rest = map(escape, part.partition(":"))
        return f"<p><b>{first}:</b>{rest}</p>" if colon else f"<p>{first}</p>"
    if isinstance(part, Numbers):
        head = "".join(f"<th>{escape(name)}</th>" for name in part.header)
        return (
            '<div class="pmc-scroll" tabindex="0"><table class="pmc-numbers">'
            f"<thead><tr>{head}</tr></thead><tbody>{_html_rows(part.rows)}</tbody></table></div>"
        )
    return f"<table>{_html_rows(part.items())}</table>"


def _html_rows(rows: Iterable[Sequence[str]]) -> str:
    return "".join(
        f"<tr><th>{escape(name)}</th>{''.join(f'<td>{escape(v)}</td>' for v in values)}</tr>"
        for name, *values in rows
    )
