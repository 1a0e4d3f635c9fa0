"""How results show themselves: names and values, as text and as HTML."""

import html
from collections.abc import Iterable, Mapping

__all__ = ["facts_html", "facts_text"]


def facts_text(title: str, facts: Mapping[str, str], *closing: str) -> str:
    """Names and values under a title, and closing lines.

    Examples
    --------
    >>> print(facts_text("Coreset", {"rows": "5 of 500", "method": "giga"}))
    Coreset
      rows    5 of 500
      method  giga
    """
    width = max(map(len, facts))
    lines = (f"  {name:<{width}}  {value}" for name, value in facts.items())
    return "\n".join([title, *lines, *closing])


def facts_html(title: str, facts: Mapping[str, str], *, verdict: str = "") -> str:
    """The same as a table, with a verdict whose part before the colon is set in bold.

    Examples
    --------
    >>> facts_html("Coreset", {"rows": "5"})
    "<table><caption><b>Coreset</b></caption><tr><th style='text-align:left'>rows</th><td
     style='text-align:left'>5</td></tr></table>"
    """
    table = f"<table><caption><b>{html.escape(title)}</b></caption>{_rows(facts.items())}</table>"
    first, _, rest = verdict.partition(":")
    words = f"<b>{html.escape(first)}:</b>{html.escape(rest)}"
    return table + (f"<p style='max-width:45em'>{words}</p>" if verdict else "")


def _rows(facts: Iterable[tuple[str, str]]) -> str:
    return "".join(
        f"<tr><th style='text-align:left'>{html.escape(name)}</th>"
        f"<td style='text-align:left'>{html.escape(value)}</td></tr>"
        for name, value in facts
    )
