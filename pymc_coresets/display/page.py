"""Results as HTML: a title, tables and sentences, in the colours and letters of their surroundings.

Where the style is taken out, as in notebooks that are not trusted, the text is shown instead.
"""

from collections.abc import Iterable, Mapping, Sequence
from html import escape

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


def page_of(title: str, *parts: str, plain: str) -> str:
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
    >>> "a &lt; b" in page_of("Coreset", "<p>text</p>", plain="a < b")
    True
    """
    return _PAGE.format(
        style=_STYLE, plain=escape(plain), title=escape(title), parts="".join(parts)
    )


def facts_html(title: str, facts: Mapping[str, str], *, plain: str, verdict: str = "") -> str:
    """Names and values under a title, and a verdict.

    Examples
    --------
    >>> "<tr><th>rows</th><td>5</td></tr>" in facts_html("Coreset", {"rows": "5"}, plain="Coreset")
    True
    """
    return page_of(
        title, f"<table>{_lines(facts.items())}</table>", sentences(verdict), plain=plain
    )


def numbers_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table of names, in the first column, and right-aligned values.

    Examples
    --------
    >>> "<tr><th>b[&lt;5]</th><td>0.5</td></tr>" in numbers_table(["", "mean"], [["b[<5]", "0.5"]])
    True
    """
    head = "".join(f"<th>{escape(name)}</th>" for name in header)
    return (
        '<div class="pmc-scroll" tabindex="0"><table class="pmc-numbers">'
        f"<thead><tr>{head}</tr></thead><tbody>{_lines(rows)}</tbody></table></div>"
    )


def sentences(words: str) -> str:
    """Return a paragraph whose beginning, up to a colon, is set in bold.

    Examples
    --------
    >>> sentences("Good: a < b")
    '<p><b>Good:</b> a &lt; b</p>'
    """
    first, colon, rest = words.partition(":")
    return f"<p><b>{escape(first)}:</b>{escape(rest)}</p>" if colon else f"<p>{escape(words)}</p>"


def _lines(rows: Iterable[Sequence[str]]) -> str:
    return "".join(
        f"<tr><th>{escape(name)}</th>{''.join(f'<td>{escape(v)}</td>' for v in values)}</tr>"
        for name, *values in rows
    )
