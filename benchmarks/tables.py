"""Tables in Markdown, and where the documentation takes them from."""

import argparse
from collections.abc import Iterable
from pathlib import Path

__all__ = ["markdown", "parser_of", "save"]


def markdown(headings: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """Return a table in Markdown."""
    columns = list(headings)
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def parser_of(description: str | None) -> argparse.ArgumentParser:
    """Return a benchmark's parser, with the option that all of them have."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--tables", type=Path, metavar="FOLDER", help="save its tables there, as in docs/tables"
    )
    return parser


def save(folder: Path | None, name: str, table: str) -> None:
    """Save a table under its name in the documentation, where a folder is given."""
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)  # a run of minutes should not end in an error
        (folder / f"{name}.md").write_text(table + "\n")
