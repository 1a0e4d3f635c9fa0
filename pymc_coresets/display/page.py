"""Results as HTML: a card with a title, pictures, a table of facts, and a verdict.

The style is part of each card, so that one is shown alike in a notebook, in its export and in
documentation. Colours are those of the notebook's theme where it names them, and otherwise follow
the system's preference for light or dark. Where the style is taken out, as in notebooks that are
not trusted, the text is shown instead.
"""

from collections.abc import Mapping, Sequence
from html import escape

from pymc_coresets.display.styles import STYLE

__all__ = ["card", "facts_html", "facts_table", "figure_of", "numbers_table", "verdict_html"]

_TONES = {"Reliable": "pmc-good", "Doubtful": "pmc-doubtful", "Not to be used": "pmc-bad"}


def card(title: str, *parts: str, plain: str) -> str:
    """Put parts of HTML below each other, under a title.

    Parameters
    ----------
    title : str
        What it is; escaped here.
    *parts : str
        HTML, with what users named escaped already.
    plain : str
        The same as text, shown where styles are taken out; escaped here.

    Examples
    --------
    >>> "a &lt; b" in card("Coreset", "<p>text</p>", plain="a < b")
    True
    """
    return (
        f'<div class="pmc"><style>{STYLE}</style><pre class="pmc-plain">{escape(plain)}</pre>'
        f'<div class="pmc-card" style="display:none"><div class="pmc-title"><b>{escape(title)}</b>'
        f"</div>{''.join(parts)}</div></div>"
    )


def facts_html(title: str, facts: Mapping[str, str], *, plain: str, verdict: str = "") -> str:
    """Names and values under a title, and a verdict.

    Examples
    --------
    >>> page = facts_html("Coreset", {"rows": "5"}, plain="Coreset")
    >>> "<tr><th>rows</th><td>5</td></tr>" in page
    True
    """
    return card(title, facts_table(facts), verdict_html(verdict), plain=plain)


def facts_table(facts: Mapping[str, str]) -> str:
    """Return a table of names and values.

    Examples
    --------
    >>> facts_table({"<": "1 & 2"})
    '<table class="pmc-facts"><tr><th>&lt;</th><td>1 &amp; 2</td></tr></table>'
    """
    rows = (f"<tr><th>{escape(n)}</th><td>{escape(v)}</td></tr>" for n, v in facts.items())
    return f'<table class="pmc-facts">{"".join(rows)}</table>'


def numbers_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table of names, in the first column, and right-aligned values.

    Examples
    --------
    >>> "<tr><th>b[&lt;5]</th><td>0.5</td></tr>" in numbers_table(["", "mean"], [["b[<5]", "0.5"]])
    True
    """
    head = "".join(f"<th>{escape(name)}</th>" for name in header)
    lines = (
        f"<tr><th>{escape(name)}</th>{''.join(f'<td>{escape(v)}</td>' for v in values)}</tr>"
        for name, *values in rows
    )
    return (
        '<div class="pmc-scroll" tabindex="0"><table class="pmc-numbers">'
        f"<thead><tr>{head}</tr></thead><tbody>{''.join(lines)}</tbody></table></div>"
    )


def figure_of(picture: str, caption: str) -> str:
    """Return a picture with a caption; nothing where there is no picture.

    Examples
    --------
    >>> figure_of("", "weights")
    ''
    """
    if not picture:
        return ""
    return f"<figure>{picture}<figcaption>{escape(caption)}</figcaption></figure>"


def verdict_html(verdict: str) -> str:
    """Return a verdict whose part before the colon is set in bold, with a colour that fits.

    Examples
    --------
    >>> verdict_html("Good: a < b")
    '<p class="pmc-verdict"><b>Good:</b> a &lt; b</p>'
    """
    if not verdict:
        return ""
    first, colon, rest = verdict.partition(":")
    tone = next((f" {c}" for words, c in _TONES.items() if first.startswith(words)), "")
    words = f"<b>{escape(first)}:</b>{escape(rest)}" if colon else escape(verdict)
    return f'<p class="pmc-verdict{tone}">{words}</p>'
