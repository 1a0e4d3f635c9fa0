"""Files that paths, folders and patterns name, now and later."""

import time
from collections.abc import Iterator, Sequence
from glob import glob, has_magic
from itertools import chain
from pathlib import Path

__all__ = ["NamedFiles", "files_at", "is_address", "paths_of"]

type Paths = str | Path | Sequence[str | Path]

_SETTLED = 2 * 10**9  # nanoseconds
_SKIPPED = (".", "_")  # how the names of files begin that are no data


class NamedFiles:
    """The files of some paths at one time, and those that are added later.

    Folders are listed again only where the time has changed at which they were last written to.

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
        self._known: frozenset[str] = frozenset()
        self._times: dict[Path, int] = {}
        self.added()

    def added(self) -> list[str]:
        """Return the files that are new since this was called last, and of the same kind."""
        if self._times and all(_written(folder) == at for folder, at in self._times.items()):
            return []
        found = {path: list(files_at(path)) for path in self._open}
        folders = {folder for path, files in found.items() for folder in _folders(path, files)}
        # Two files may be written at what is one time for the file system.
        settled = time.time_ns() - _SETTLED
        times = {folder: _written(folder) for folder in folders}
        self._times = {folder: at if at < settled else -1 for folder, at in times.items()}
        before, self._known = self._known, frozenset(chain.from_iterable(found.values()))
        kinds = {Path(file).suffix for file in before}
        return sorted(file for file in self._known - before if Path(file).suffix in kinds)


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
        found = [p for p in Path(path).rglob("*") if p.is_file()]
        yield from sorted(
            str(p)
            for p in found
            if not any(part.startswith(_SKIPPED) for part in p.relative_to(path).parts)
        )
    elif has_magic(path) and not Path(path).exists():
        for match in sorted(glob(path, recursive=True)):  # noqa: PTH207 - absolute ones too
            yield from files_at(match)
    elif Path(path).exists():
        yield path


def _folders(path: str, files: Sequence[str]) -> set[Path]:
    """Return the folders in which files of a folder or a pattern lie, and those above them."""
    root = Path(path)
    while has_magic(str(root)) and not root.exists():
        root = root.parent
    inside = (folder for file in files for folder in Path(file).parents)
    return {root} | {folder for folder in inside if root in folder.parents}


def _written(folder: Path) -> int:
    try:
        return folder.stat().st_mtime_ns
    except OSError:
        return 0
