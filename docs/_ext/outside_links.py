"""Links of the Markdown pages to files that GitHub shows and the site does not have as pages.

The sources are written for GitHub: a link leads to a file of the repository. On the site, a link
to a part of the README leads to the page that shows this part, and a link to another file or folder
is set as code.
"""

import re

from sphinx.application import Sphinx

_LINK = re.compile(
    r"(?<!!)\[(?P<text>[^\]\n]+)\]\((?P<path>\.\./[^)\s#]*)(?:#(?P<part>[^)\s]+))?\)"
)
_README_PARTS = {"limits": "limits.md"}  # on which page of the site


def on_the_site(link: re.Match[str], up: str) -> str:
    """Return what stands on the site for a link out of `docs`; `up` leads there from the page."""
    text, path, part = link["text"], link["path"].removeprefix("../"), link["part"]
    if path == "README.md" and part in _README_PARTS:
        return f"[{text}]({up}{_README_PARTS[part]})"
    return text if text.startswith("`") else f"`{path}`"


def rewrite(app: Sphinx, page: str, source: list[str]) -> None:
    """Replace the links of one page, once it has been read."""
    if app.env.doc2path(page).suffix == ".md":
        up = "../" * page.count("/")
        source[0] = _LINK.sub(lambda link: on_the_site(link, up), source[0])


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the replacement."""
    app.connect("source-read", rewrite)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
