"""Put the tables that the benchmarks wrote into the pages: ``make tables``.

A table lies in `docs/tables/NAME.md`, where a benchmark writes it (``... --markdown`` or its
output). A page that shows it has the lines ``<!-- tables/NAME.md -->`` and ``<!-- end -->``, and
what stands between them is replaced. So the pages read well on GitHub, and no number is typed.
"""

import re
from pathlib import Path

DOCS = Path(__file__).parents[1] / "docs"
_PLACE = re.compile(r"(<!-- (tables/[\w-]+\.md) -->\n).*?(<!-- end -->)", flags=re.DOTALL)


def filled(page: str) -> str:
    """Return the text of a page with its tables as they lie in the files."""

    def put(place: re.Match[str]) -> str:
        table = (DOCS / place[2]).read_text().strip()
        return f"{place[1]}\n{table}\n\n{place[3]}"

    return _PLACE.sub(put, page)


def main() -> None:
    """Fill all pages, and name those that changed."""
    for path in sorted(DOCS.glob("*.md")):
        old = path.read_text()
        new = filled(old)
        if new != old:
            path.write_text(new)
            print(path.relative_to(DOCS.parent))


if __name__ == "__main__":
    main()
