"""Links of the Markdown files to what GitHub shows and the site does not have as a page.

The sources are written for GitHub: a link leads to a file of the repository, from the folder of the
file that it stands in. On the site, a link to a file or folder outside of `docs` is set as code,
and a link that shows the name of a page's file shows the page's title.
"""

import os
import re
from pathlib import Path

from sphinx.application import Sphinx

_LINK = re.compile(r"(?<!!)\[(?P<text>[^\]\n]+)\]\((?P<path>[^)\s#:]+)(?:#(?P<part>[^)\s]+))?\)")


def on_the_site(link: re.Match[str], source: Path, page: Path, docs: Path) -> str:
    """Return what stands on a page for a link of a source; all paths are folders."""
    text, part = link["text"], link["part"]
    target = (source / link["path"]).resolve()
    # The changelog names pages of its time, some of which have been merged since.
    if not target.is_relative_to(docs) or target.suffix != ".md" or not target.exists():
        return text if text.startswith("`") else f"`{target.relative_to(docs.parent)}`"
    anchor = f"#{part}" if part else ""
    if text.endswith(target.name):  # the name of a file: the page's title stands there instead
        text = ""
    return f"[{text}]({os.path.relpath(target, page)}{anchor})"


def of_page(app: Sphinx, page: str, source: list[str]) -> None:
    """Replace the links of one page, once it has been read."""
    docs, path = Path(app.srcdir), Path(app.env.doc2path(page))
    if path.suffix == ".md":
        folder = path.parent
        source[0] = _LINK.sub(lambda link: on_the_site(link, folder, folder, docs), source[0])


def of_included(app: Sphinx, path: Path, page: str, source: list[str]) -> None:
    """Replace the links of a file that a page includes."""
    docs = Path(app.srcdir)
    at, to = (docs / path).resolve().parent, Path(app.env.doc2path(page)).parent
    source[0] = _LINK.sub(lambda link: on_the_site(link, at, to, docs), source[0])


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the replacements."""
    app.connect("source-read", of_page)
    app.connect("include-read", of_included)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
