"""The best alternative for each model beside a coreset, from `benchmarks.opponents`'s tables.

Of all ways that were right, the one with most effective draws in a second, compilation included,
stands beside the coreset.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path

from benchmarks.opponent_names import MODELS
from benchmarks.opponent_ways import OURS
from benchmarks.tables import markdown

__all__ = ["summary"]

HEADER = (
    *("model", "best other way"),
    *("other: seconds", "coreset: seconds", "coreset: rows"),
    "draws per s, ratio",
)
CORESET = f"{OURS}coreset"
RIGHT = ("right", "right, but warned")


def lines_of(text: str) -> Iterator[Mapping[str, str]]:
    """Return the lines of a table in Markdown."""
    cells = [
        [cell.strip() for cell in line.strip().strip("|").split("|")]
        for line in text.splitlines()
        if line.startswith("|")
    ]
    header, _, *rows = cells
    for row in rows:
        yield dict(zip(header, row, strict=True))


def seconds(line: Mapping[str, str]) -> float:
    """Return the seconds of a way, compilation included."""
    return float(line["compile, s"]) + float(line["rest, s"].removeprefix("≈ "))


def summary(folder: Path) -> str:
    """Return the table of all models, from their tables in a folder."""
    rows = []
    for model, name in MODELS.items():
        text = (folder / f"opponents-{model}.md").read_text()
        lines = {line["way"]: line for line in lines_of(text)}
        ours = lines[CORESET]
        able = [
            line
            for way, line in lines.items()
            if not way.startswith(OURS) and line["was it right?"] in RIGHT and line["per s"]
        ]
        best = max(able, key=lambda line: float(line["per s"]))
        rows.append([
            name, best["way"], f"{seconds(best):.0f}", f"{seconds(ours):.0f}",
            ours["remark"].partition(" rows")[0],
            f"{float(ours['per s']) / float(best['per s']):.2g}",
        ])  # fmt: skip
    return markdown(HEADER, rows)
