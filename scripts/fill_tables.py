"""Bring the figures that the documentation quotes up to date with the tables: ``make tables``.

A benchmark writes its table to `docs/tables/NAME.md`. This script notes in `figures.json` there at
which commit and on which day a table changed, takes the figures that stand in its cells from it,
and writes them into README.md and paper.md: between ``<!--m:NAME-->`` and ``<!--/-->`` for a
measured figure, and ``<!--c:NAME-->`` for a constant of the code. The pages of the site take them
when it is built. So no number is copied by hand.

README.md is read where relative links lead nowhere. Its links to the documentation are defined
between ``<!-- links -->`` and ``<!-- end -->``, from the one address below.
"""

import json
import re
import subprocess
import sys
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "docs/_ext"))

from figures import FILE, TABLES, Figure, digest, load, shown  # noqa: E402

# Where the site is published, with a slash at the end. Empty: links lead to the sources.
ADDRESS = ""
PAGES = (ROOT / "README.md", ROOT / "paper.md")
_QUOTED = re.compile(r"<!--(?P<kind>[mc]):(?P<name>~?[\w.-]+)-->.*?<!--/-->", re.DOTALL)
_LINKS = re.compile(r"(<!-- links -->\n).*?(<!-- end -->)", re.DOTALL)
_USED = re.compile(r"\]\[([\w/-]+(?:#[\w-]+)?)\]")


def filled(page: str) -> str:
    """Return the text of README.md or paper.md with its figures and links as they should be."""
    if begins := re.search(r"^[ >]*<!--[mc]:.*$", page, re.MULTILINE):
        # CommonMark takes such a line for a block of HTML, and shows none of its text.
        sys.exit(f"A line begins with a figure: put a word before it.\n{begins[0]}")
    _, figures, constants = load()

    def put(place: re.Match[str]) -> str:
        name = place["name"].lstrip("~")
        found = figures[name] if place["kind"] == "m" else constants[name]
        text = found.value if place["name"].startswith("~") else str(found)
        return f"<!--{place['kind']}:{place['name']}-->{text}<!--/-->"

    def define(place: re.Match[str]) -> str:
        lines = [f"[{name}]: {address(name)}\n" for name in sorted(set(_USED.findall(page)))]
        return f"{place[1]}{''.join(lines)}{place[2]}"

    return _LINKS.sub(define, _QUOTED.sub(put, page))


def address(name: str) -> str:
    """Return where a page of the documentation is: ``guide#section``."""
    page, _, part = name.partition("#")
    anchor = f"#{part}" if part else ""
    return f"{ADDRESS}{page}.html{anchor}" if ADDRESS else f"docs/{page}.md{anchor}"


def refreshed(content: dict[str, Any], measured: str | None = None) -> dict[str, Any]:
    """Return `figures.json` with the tables as they lie in the folder.

    Those of the command that was just run are new, even if they have not changed.
    """
    commit = subprocess.run(
        ["git", "rev-parse", "--short=7", "HEAD"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()
    for path in sorted(TABLES.glob("*.md")):
        source = content["sources"].setdefault(path.stem, {"command": f"benchmarks.{path.stem}"})
        if source["command"] == measured or source.get("digest") != digest(path.stem):
            today = f"{datetime.now(UTC):%Y-%m-%d}"
            source |= {"commit": commit, "date": today, "digest": digest(path.stem)}
            if described := source.get("defaults"):
                now = chosen_now()
                source["defaults"] = {name: now[name] for name in described}
    for fields in content["figures"].values():
        figure = Figure(**fields)
        if not figure.agrees():
            fields["value"] = shown(figure.in_table(), figure.value)
    return content


@cache
def chosen_now() -> dict[str, int]:
    """Return how many rows the defaults choose, in the models that tables are dated by."""
    sys.path.insert(0, str(ROOT))
    from benchmarks.defaults import chosen  # noqa: PLC0415 - the tests fill pages without PyMC

    return chosen()


def main() -> None:
    """Refresh the figures, fill the two pages, and name what changed."""
    parser = ArgumentParser(description=__doc__, formatter_class=RawDescriptionHelpFormatter)
    parser.add_argument("--measured", metavar="COMMAND", help="note that it was run now")
    content = refreshed(json.loads(FILE.read_text()), parser.parse_args().measured)
    texts = {FILE: json.dumps(content, indent=1, ensure_ascii=False) + "\n"}
    write(texts)
    load.cache_clear()
    write({page: filled(page.read_text()) for page in PAGES})


def write(texts: dict[Path, str]) -> None:
    """Write what differs from what is there."""
    for path, text in texts.items():
        if path.read_text() != text:
            path.write_text(text)
            print(path.relative_to(ROOT))


if __name__ == "__main__":
    main()
