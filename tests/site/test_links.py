"""Every link, image and script of the site leads to something, and nothing comes from elsewhere."""

from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urldefrag, urlsplit

ELSEWHERE = {"http", "https", "mailto", "data", "javascript"}


class Parts(HTMLParser):
    """The anchors, the links and what is loaded of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: set[str] = set()
        self.loaded: set[str] = set()

    def handle_starttag(self, tag, attrs):
        found = dict(attrs)
        self.anchors.update(found[name] for name in ("id", "name") if found.get(name))
        if tag == "a" and found.get("href"):
            self.links.add(found["href"])
        if tag in {"img", "script", "source", "iframe"} and found.get("src"):
            self.loaded.add(found["src"])
        if tag == "link" and found.get("rel") in {"stylesheet", "preload", "icon"}:
            self.loaded.add(found["href"])


@cache
def parts(path: Path) -> Parts:
    found = Parts()
    found.feed(path.read_text())
    return found


def target(page: Path, link: str) -> tuple[Path, str]:
    """Return the file and the anchor that a link of a page leads to."""
    path, anchor = urldefrag(link)
    path = unquote(urlsplit(path).path)
    return (page.parent / path).resolve() if path else page, unquote(anchor)


def test_links_lead_somewhere(site, page):
    broken = []
    for link in parts(site / page).links | parts(site / page).loaded:
        if urlsplit(link).scheme in ELSEWHERE:
            continue
        path, anchor = target(site / page, link)
        anchors = parts(path).anchors if path.suffix == ".html" and path.is_file() else set()
        if not path.is_file() or (anchor and anchors and anchor not in anchors):
            broken.append(link)
    assert not broken


def test_nothing_is_loaded_from_elsewhere(site, page):
    loaded = parts(site / page).loaded
    assert not [link for link in loaded if urlsplit(link).scheme in {"http", "https"}]
