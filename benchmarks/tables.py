"""Tables in Markdown, and where the documentation takes them from."""

import argparse
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

__all__ = ["by_case", "markdown", "parser_of", "save"]


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


def by_case[T](
    cases: Iterable[str],
    measure: Callable[[str], T],
    line_of: Callable[[T], Iterable[str]],
    report: Callable[[Sequence[T]], str],
    *,
    folder: Path | None,
    name: str,
) -> None:
    """Measure one case after the other, show a line of each, and save the table after each."""
    found: list[T] = []
    for case in cases:
        found.append(measure(case))
        print(" | ".join(line_of(found[-1])), flush=True)
        save(folder, name, report(found))
    print(f"\n{report(found)}")
