"""How results are shown: a title with facts, lines and sentences below it, of 80 characters each.

What belongs here: pure functions of names, words and numbers. Verdicts come first. Notebooks show
the same text, with the verdict in its colour.
"""

import textwrap
from collections.abc import Mapping, Sequence
from html import escape
from typing import Protocol, runtime_checkable

TEXT_WIDTH = 80
"""Characters that a line of printed results has at most."""


@runtime_checkable
class ColouredText(Protocol):
    """Sentences with a colour of their own, as of a verdict."""

    @property
    def text(self) -> str:
        """The sentences."""

    @property
    def colour(self) -> str:
        """Colour of HTML; empty without one."""


#: Names and values, lines that stay as they are, or sentences; what is empty is left out.
type Part = Mapping[str, str] | Sequence[str] | str | ColouredText | None


def counted(number: int, noun: str) -> str:
    """Return a number with its noun, which is in the plural unless there is one.

    Examples
    --------
    >>> counted(1, "gradient"), counted(0, "row"), counted(1_000, "draw")
    ('1 gradient', '0 rows', '1,000 draws')
    """
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def as_text(title: str, *parts: Part) -> str:
    """Return a title and parts as text; long values and sentences take several lines.

    Examples
    --------
    >>> print(as_text("Coreset", "Reliable: exact.", {"rows": "5 of 500", "method": "giga"}))
    Coreset
    Reliable: exact.
      rows    5 of 500
      method  giga
    """
    return "\n".join([title, *(_text_of(part) for part in parts if part)])


def _text_of(part: Mapping[str, str] | Sequence[str] | str | ColouredText) -> str:
    if isinstance(part, ColouredText):
        part = part.text
    if isinstance(part, str):
        return textwrap.fill(part, TEXT_WIDTH)
    if not isinstance(part, Mapping):
        return "\n".join(part)
    width = max(map(len, part))
    below = " " * (width + 4)  # the beginning of the value
    return "\n".join(
        textwrap.fill(
            value, TEXT_WIDTH, initial_indent=f"  {name:<{width}}  ", subsequent_indent=below
        )
        for name, value in part.items()
    )


def as_html(title: str, *parts: Part) -> str:
    r"""Return the same as `as_text`, for notebooks: a coloured part sets the colour of the edge.

    Examples
    --------
    >>> as_html("Coreset", {"rows": "5 of 500"})
    '<pre><b>Coreset</b>\n  rows  5 of 500</pre>'
    """
    lines, edge = [f"<b>{escape(title)}</b>"], ""
    for part in (part for part in parts if part):
        text = escape(_text_of(part), quote=False)
        if isinstance(part, ColouredText) and part.colour:
            text = f'<b style="color: {part.colour}">{text}</b>'
            edge = f' style="border-left: 5px solid {part.colour}; padding-left: 0.8em"'
        lines.append(text)
    return f"<pre{edge}>{'\n'.join(lines)}</pre>"
