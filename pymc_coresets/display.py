"""How results are shown: a title with facts, lines and sentences below it, of 80 characters each.

What belongs here: pure functions of names, words and numbers. Notebooks show the same text, with
the verdict first and in colour.
"""

import textwrap
from collections.abc import Mapping, Sequence
from html import escape

TEXT_WIDTH = 80
"""Characters that a line of printed results has at most."""

#: Names and values, lines that stay as they are, or sentences; what is empty is left out.
type Part = Mapping[str, str] | Sequence[str] | str


def as_text(title: str, *parts: Part) -> str:
    """Return a title and parts as text; long values and sentences take several lines.

    Examples
    --------
    >>> print(as_text("Coreset", {"rows": "5 of 500", "method": "giga"}, "In short: good."))
    Coreset
      rows    5 of 500
      method  giga
    In short: good.
    """
    return "\n".join([title, *(_text_of(part) for part in parts if part)])


def _text_of(part: Part) -> str:
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


def as_html(title: str, facts: Mapping[str, str], verdict: str) -> str:
    r"""Return a title, a verdict in its colour, and facts.

    Examples
    --------
    >>> as_html("Check", {"modes": "1"}, "Doubtful: few draws.")
    '<pre><b>Check</b>\n<b style="color: #c98500">Doubtful: few draws.</b>\n  modes  1</pre>'
    """
    # How verdicts begin; readable on white and on black.
    colours = {"Reliable": "#2a9d5c", "Doubtful": "#c98500", "Not to be used": "#d94a3d"}
    colour = next((c for word, c in colours.items() if verdict.startswith(word)), "inherit")
    lines = [f"<b>{escape(title)}</b>"]
    if verdict:
        lines.append(f'<b style="color: {colour}">{escape(_text_of(verdict))}</b>')
    return f"<pre>{'\n'.join([*lines, escape(_text_of(facts), quote=False)])}</pre>"
