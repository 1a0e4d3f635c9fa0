"""Results as text: names and values below a title, and sentences, in lines of 80 characters."""

import textwrap
from collections.abc import Mapping, Sequence

__all__ = ["TEXT_WIDTH", "facts_text", "table_text", "wrapped"]

TEXT_WIDTH = 80
"""Characters that a line of printed results has at most."""

_LEAST_NAME = 12


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
    """Names in the first column, and right-aligned values; names are cut to fit into a line.

    Examples
    --------
    >>> print(table_text(["", "mean", "sd"], [["mu", "0.5", "0.25"], ["sigma", "11.0", "1.00"]]))
          mean   sd
    mu     0.5 0.25
    sigma 11.0 1.00
    """
    lines = [header, *rows]
    widths = [max(map(len, cells)) for cells in zip(*lines, strict=True)]
    room = max(TEXT_WIDTH - sum(widths[1:]) - len(widths) + 1, _LEAST_NAME)
    first, *others = widths
    return "\n".join(
        " ".join(
            [
                f"{_cut(name, room):<{min(first, room)}}",
                *(f"{value:>{width}}" for value, width in zip(values, others, strict=True)),
            ]
        ).rstrip()
        for name, *values in lines
    )


def _cut(name: str, room: int) -> str:
    """Leave out the middle of a long name."""
    if len(name) <= room:
        return name
    head = (room - 1) * 2 // 3
    return f"{name[:head]}…{name[len(name) - (room - 1 - head) :]}"
