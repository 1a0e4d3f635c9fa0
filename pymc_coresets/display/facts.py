"""Results as text: names and values below a title, and sentences, in lines of 80 characters."""

import textwrap
from collections.abc import Mapping

__all__ = ["TEXT_WIDTH", "facts_text", "wrapped"]

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
