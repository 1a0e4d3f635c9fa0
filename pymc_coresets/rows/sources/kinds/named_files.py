"""Files that paths, folders and patterns name, now and later."""

from collections.abc import Iterator, Sequence
from glob import glob, has_magic
from pathlib import Path

type Paths = str | Path | Sequence[str | Path]

_SKIPPED = (".", "_")  # how the names of files begin that are no data


class NamedFiles:
    """The files of some paths at one time, and those that are added later.

    Parameters
    ----------
    source : str, Path or sequence of these
        Files, folders and patterns.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     _ = Path(folder, "a.parquet").write_bytes(b"")
    ...     named = NamedFiles(folder)
    ...     _ = Path(folder, "b.parquet").write_bytes(b"")
    ...     [Path(path).name for path in named.added()]
    ['b.parquet']
    """

    def __init__(self, source: Paths) -> None:
        self._open = [path for path in paths_of(source) if not Path(path).is_file()]
        self._known = self._found()

    def added(self) -> list[str]:
        """Return the files that are new since this was called last, and of the same kind."""
        before, self._known = self._known, self._found()
        kinds = {Path(file).suffix for file in before}
        return sorted(file for file in self._known - before if Path(file).suffix in kinds)

    def _found(self) -> set[str]:
        return {file for path in self._open for file in files_at(path)}


def is_address(source: object) -> bool:
    """Whether a source is the address of files of another machine."""
    return isinstance(source, str) and "://" in source


def paths_of(source: Paths) -> list[str]:
    """Return paths as text, with the home of the user in the place of ``~``."""
    given = [source] if isinstance(source, str | Path) else source
    return [str(Path(path).expanduser()) for path in given]


def files_at(path: str) -> Iterator[str]:
    """Yield the files of a folder, of a pattern, or the file itself, by name."""
    if Path(path).is_dir():
        found: list[str] = []
        for folder, folders, names in Path(path).walk():
            folders[:] = [name for name in folders if not name.startswith(_SKIPPED)]
            found += [f"{folder / name}" for name in names if not name.startswith(_SKIPPED)]
        yield from sorted(found)
    elif has_magic(path) and not Path(path).exists():
        for match in sorted(glob(path, recursive=True)):  # noqa: PTH207 - absolute ones too
            yield from files_at(match)
    elif Path(path).exists():
        yield path
