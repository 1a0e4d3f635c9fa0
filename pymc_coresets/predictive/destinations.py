"""Where predictions go: into memory, or part by part into a Zarr store."""

import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from secrets import token_hex
from typing import Any

import numpy as np
import xarray as xr

from pymc_coresets.exceptions import InvalidOptionError
from pymc_coresets.options import unwritable
from pymc_coresets.rows.fingerprints import spaced

type Region = tuple[int | slice, ...]
type Destination = InMemory | ZarrStore

_MOST_BYTES = 2**33


def path_of_store(to: str | Path | None) -> Path | None:
    """Return the path of a new Zarr store; None for memory.

    Raises
    ------
    InvalidOptionError
        If there is something at the path already, its folder is missing, or Zarr is not installed.

    Examples
    --------
    >>> path_of_store("y.zarr").name
    'y.zarr'
    """
    if to is None:
        return None
    if not isinstance(to, str | Path):
        raise InvalidOptionError(f"to={to!r} must be the path of a Zarr store to write.")
    if find_spec("zarr") is None:
        raise InvalidOptionError(
            'to=... needs Zarr: pip install "pymc-coresets[zarr]". Without it, leave to= out.'
        )
    path = Path(to)
    try:
        path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        pass
    except (OSError, ValueError) as error:  # no name that a file could have, or no access
        raise unwritable(path, error) from error
    else:
        raise InvalidOptionError(f"There is something at {path} already: name a new store.")
    if not path.parent.is_dir():
        raise InvalidOptionError(f"There is no folder {path.parent} to write {path.name} into.")
    return path


@contextmanager
def destination_at(path: Path | None) -> Iterator[Destination]:
    """Yield memory for None, and else a store, which appears at the path when it is complete.

    Raises
    ------
    InvalidOptionError
        If the folder or the disk takes no more files, or something has appeared at the path.

    Examples
    --------
    >>> with destination_at(None) as memory:
    ...     type(memory).__name__
    'InMemory'
    """
    if path is None:
        yield InMemory()
        return
    part = path.with_name(f".{token_hex(16)}")  # not one of `tempfile`, which no one else may read
    with _refused_if_unwritable(path):
        part.mkdir()
    try:
        yield ZarrStore(path, part)
    except BaseException:
        shutil.rmtree(part, ignore_errors=True)  # the error says more
        raise
    if path.exists():
        raise InvalidOptionError(
            f"Something appeared at {path} while the predictions were written: they are complete, "
            f"and lie in {part}. Rename that folder."
        )
    part.rename(path)


class InMemory:
    """Arrays in this process, 8 GiB at most.

    Examples
    --------
    >>> memory = InMemory()
    >>> memory.create("predictions", xr.Dataset({"y": ("obs", np.zeros(3))}), {})
    >>> memory.write("predictions", "y", (slice(0, 3),), np.arange(3.0))
    >>> memory.finished()["predictions"]["y"].values
    array([0., 1., 2.])
    """

    def __init__(self) -> None:
        self._groups: dict[str, xr.Dataset] = {}

    def create(self, group: str, layout: xr.Dataset, chunks: Mapping[str, Sequence[int]]) -> None:  # noqa: ARG002
        """Allocate the variables of a group, whose values in `layout` mean nothing."""
        wanted = sum(variable.nbytes for variable in layout.data_vars.values())
        if wanted > _MOST_BYTES:
            raise InvalidOptionError(
                f"The predictions would take {spaced(wanted // 10**6)} MB of memory: ask for fewer "
                "with draws=..., for their mean with kind='mean', or write them to a Zarr store "
                "with to='predictions.zarr'."
            )
        empty = {n: v.copy(data=np.empty(v.shape, v.dtype)) for n, v in layout.data_vars.items()}
        self._groups[group] = layout.assign(empty)

    def write(self, group: str, name: str, region: Region, values: np.ndarray) -> None:
        """Copy a part of a variable."""
        self._groups[group][name].to_numpy()[region] = values

    def finished(self) -> xr.DataTree:
        """Return all groups."""
        return xr.DataTree.from_dict(self._groups)


class ZarrStore:
    """A folder in Zarr's format.

    Parameters
    ----------
    path : Path
        Where it will be when it is complete.
    part : Path
        An empty folder, where it is until then.

    Examples
    --------
    >>> import tempfile
    >>> layout = xr.Dataset({"y": ("obs", np.zeros(3))})
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with destination_at(Path(folder, "y.zarr")) as store:
    ...         store.create("predictions", layout, {"y": (3,)})
    ...         store.write("predictions", "y", (slice(0, 3),), np.arange(3.0))
    ...     print(store.finished()["predictions"]["y"].values)
    [0. 1. 2.]
    """

    def __init__(self, path: Path, part: Path) -> None:
        self._path, self._part = path, part
        self._arrays: dict[tuple[str, str], Any] = {}

    def create(self, group: str, layout: xr.Dataset, chunks: Mapping[str, Sequence[int]]) -> None:
        """Write the coordinates of a group, and make arrays of its variables."""
        import zarr  # noqa: PLC0415 - it is optional

        with _refused_if_unwritable(self._path):
            labels = layout.drop_vars(list(layout.data_vars))
            labels.to_zarr(self._part, group=group, mode="a", consolidated=False)
            folder = zarr.open_group(self._part, path=group, mode="r+")
            for name, variable in layout.data_vars.items():
                self._arrays[group, str(name)] = folder.create_array(
                    str(name),
                    shape=variable.shape,
                    chunks=tuple(chunks[str(name)]),
                    dtype=variable.dtype,
                    dimension_names=[str(dim) for dim in variable.dims],
                    attributes=dict(variable.attrs),
                )

    def write(self, group: str, name: str, region: Region, values: np.ndarray) -> None:
        """Write a part of a variable."""
        with _refused_if_unwritable(self._path):
            self._arrays[group, name][region] = values

    def finished(self) -> xr.DataTree:
        """Open the store; its arrays are read when they are used."""
        return xr.open_datatree(self._path, engine="zarr", consolidated=False, chunks=None)


@contextmanager
def _refused_if_unwritable(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise unwritable(path, error) from error
