"""Figures that the documentation quotes, and where each of them was measured.

`docs/tables/figures.json` has three parts. ``sources`` says which command of the repository printed
a table of `docs/tables`, at which commit and on which day. ``figures`` names a measured number with
its unit, and the cell of the table that holds it. ``constants`` names settings of the code. Pages
quote both by name, with the roles ``measured`` and ``constant``; README.md and paper.md between
comments (`scripts/fill_tables.py`).

Standard library only: the tests and the site read this module in different environments.
"""

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache
from hashlib import sha256
from pathlib import Path

__all__ = ["Constant", "Figure", "Source", "Table", "blocks", "load", "measured_prose", "tables"]

TABLES = Path(__file__).parents[1] / "tables"
FILE = TABLES / "figures.json"

_NUMBER = re.compile(r"-?\d[\d ,]*(?:\.\d+)?(?:e[+-]?\d+)?")
# What a reader takes for a measurement: a number, and a unit of time, memory or error.
_UNIT = r"""(?:processor[ -]|core[ -]|posterior\ |wall\ )*
    (?:s|ms|µs|ns|(?:milli|nano|micro)?seconds?|minutes?|hours?|nats?|[kMGT]i?B|times|sd)"""
_LOOKS_MEASURED = re.compile(
    rf"(?<![\w.$^{{\\/])\d[\d.,–e+ -]*(?:&nbsp;|\s|-)(?:to\s\d\S*\s)?{_UNIT}(?![\w-])", re.VERBOSE
)
_NOT_PROSE = [
    re.compile(r"^(`{3,}).*?\n.*?^\1", re.DOTALL | re.MULTILINE),
    re.compile(r"<!--[mc]:[\w.-]+-->.*?<!--/-->", re.DOTALL),
    re.compile(r"<!--.*?-->", re.DOTALL),
    re.compile(r"\$\$.*?\$\$", re.DOTALL),
    re.compile(r"\{\w[\w:-]*\}`[^`]*`"),
    re.compile(r"`[^`\n]*`"),
    re.compile(r"\$[^$\n]+\$"),
    re.compile(r"\]\([^)]*\)"),
]


@dataclass(frozen=True, kw_only=True)
class Source:
    """What measured a table.

    ``defaults`` says of each default of `build_coreset` that the table describes how many rows it
    chose then, in the models of `benchmarks.defaults`.
    """

    command: str
    commit: str
    date: str
    digest: str
    defaults: dict[str, int] = field(default_factory=dict)

    def __str__(self) -> str:
        """Return what stands below a table."""
        return f"`{self.command}`, commit {self.commit}, {self.date}"


@dataclass(frozen=True, kw_only=True)
class Figure:
    """A measured number. Its value is as it is shown; ``cell`` is where it stands in the table."""

    value: str
    unit: str = ""
    source: str
    row: str
    column: str
    part: int = 0

    def __str__(self) -> str:
        """Return the value with its unit, which stay on one line."""
        return f"{self.value} {self.unit}".rstrip()

    def in_table(self) -> float:
        """Return the number in the table's cell; the sum of a column if the row is ``*``.

        A row is named by what its line begins with. ``J#1`` is the second column of this name.
        """
        name, _, nth = self.column.partition("#")
        for table in tables(self.source):
            places = [i for i, header in enumerate(table.header) if header == name]
            lines = [r for r in table.rows if self.row == "*" or " | ".join(r).startswith(self.row)]
            if places and lines:
                place = places[int(nth or 0)]
                kept = lines if self.row == "*" else lines[:1]
                return sum(number(_NUMBER.findall(line[place])[self.part]) for line in kept)
        raise LookupError(f"{self.source}: no cell {self.row!r}, {self.column!r}")

    def agrees(self) -> bool:
        """Return whether the value is the table's, to the digits that it shows."""
        return number(self.value) == number(shown(self.in_table(), self.value))


@dataclass(frozen=True, kw_only=True)
class Constant:
    """A setting of the code: a public name such as ``Options.tolerance``, or what it is."""

    value: str
    unit: str = ""
    code: str = ""
    note: str = ""

    def __str__(self) -> str:
        """Return the value with its unit."""
        return f"{self.value} {self.unit}".rstrip()


@dataclass(frozen=True)
class Table:
    """A table of Markdown: cells as text."""

    header: Sequence[str]
    rows: Sequence[Sequence[str]]

    def markdown(self) -> str:
        """Return the table as a page has it."""
        # So that names may be broken: at underscores and, by a space without width, at brackets.
        header = [name.replace("_", " ").replace("(", "\u200b(") for name in self.header]
        lines = [header, ["---"] * len(header), *self.rows]
        return "\n".join("| " + " | ".join(line) + " |" for line in lines)

    def parts(self, width: int, keys: int = 1) -> list["Table"]:
        """Return tables of at most so many columns, each of which begins with the first ones."""
        if len(self.header) <= width:
            return [self]
        rest = range(keys, len(self.header))
        chunks = [rest[i : i + width - keys] for i in range(0, len(rest), width - keys)]
        return [self.columns([*range(keys), *chunk]) for chunk in chunks]

    def columns(self, kept: Sequence[int]) -> "Table":
        """Return some of its columns as a table."""
        return Table([self.header[i] for i in kept], [[row[i] for i in kept] for row in self.rows])


def number(text: str) -> float:
    """Return a number as the tables and the pages write it."""
    return float(re.sub(r"[ , ]", "", text))


def shown(value: float, like: str) -> str:
    """Return a number with as many digits as another shows."""
    mantissa, _, exponent = re.sub(r"[ , ]", "", like).partition("e")
    decimals = len(mantissa.partition(".")[2])
    if exponent:
        return f"{value:.{decimals}e}"
    if value >= 1000:
        return f"{value:,.{decimals}f}"
    return f"{value:.{decimals}f}"


def cells(line: str) -> list[str]:
    """Return the cells of a line of a table."""
    return [cell.strip() for cell in re.split(r"(?<!\\)\|", line.strip().strip("|"))]


def blocks(name: str) -> list[str | Table]:
    """Return the text and the tables of a file, in their order."""
    found: list[str | Table] = []
    for block in re.split(r"\n\s*\n", (TABLES / f"{name}.md").read_text().strip()):
        lines = block.split("\n")
        if lines[0].startswith("|"):
            header, _, *rows = map(cells, lines)
            padded = [row + [""] * (len(header) - len(row)) for row in rows]
            found.append(Table(header, padded))
        else:
            found.append(block)
    return found


def tables(name: str) -> Iterable[Table]:
    """Return the tables of a file."""
    return (block for block in blocks(name) if isinstance(block, Table))


def digest(name: str) -> str:
    """Return what changes with the content of a table."""
    return sha256((TABLES / f"{name}.md").read_bytes()).hexdigest()[:12]


@cache
def load() -> tuple[dict[str, Source], dict[str, Figure], dict[str, Constant]]:
    """Return all sources, figures and constants by name."""
    content = json.loads(FILE.read_text())
    return (
        {name: Source(**fields) for name, fields in content["sources"].items()},
        {name: Figure(**fields) for name, fields in content["figures"].items()},
        {name: Constant(**fields) for name, fields in content["constants"].items()},
    )


def measured_prose(text: str) -> list[str]:
    """Return what looks measured in a page's own words: numbers with a unit that have no source."""
    for pattern in _NOT_PROSE:
        text = pattern.sub(" ", text)
    return [found[0] for found in _LOOKS_MEASURED.finditer(text)]
