"""Where predictions go: into memory, or part by part into a Zarr store."""

from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

import numpy as np
import xarray as xr

from pymc_coresets.exceptions import InvalidOptionError
from pymc_coresets.options import unwritable
from pymc_coresets.rows.fingerprints import spaced

__all__ = ["Destination", "InMemory", "Region", "destination_of"]

type Region = tuple[int | slice, ...]

_MOST_BYTES = 2**33


class Destination(Protocol):
    """Takes groups of variables part by part."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None: ...

    def create(self, group: str, layout: xr.Dataset, chunks: Mapping[str, Sequence[int]]) -> None:
        """Make room for the variables of a group, whose values in `layout` mean nothing."""

    def write(self, group: str, name: str, region: Region, values: np.ndarray) -> None:
        """Put a part of a variable in place."""

    def finished(self) -> xr.DataTree:
        """Return all groups."""


def destination_of(to: str | Path | None) -> Destination:
    """Return memory for None, and else a new Zarr store.

    Raises
    ------
    InvalidOptionError
        If there is something at the path already, its folder is missing, or Zarr is not installed;
        in use, if the folder or the disk takes no more files.

    Examples
    --------
    >>> type(destination_of(None)).__name__
    'InMemory'
    """
    if to is None:
        return InMemory()
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
    # Imported here, for Zarr is optional.
    from pymc_coresets.predictive.zarr_store import ZarrStore  # noqa: PLC0415

    return ZarrStore(path)


class InMemory:
    """Arrays in this process, 8 GiB at most.

    Examples
    --------
    >>> layout = xr.Dataset({"y": ("obs", np.zeros(3))})
    >>> with InMemory() as memory:
    ...     memory.create("predictions", layout, {})
    ...     memory.write("predictions", "y", (slice(0, 3),), np.arange(3.0))
    >>> memory.finished()["predictions"]["y"].values
    array([0., 1., 2.])
    """

    def __init__(self) -> None:
        self._groups: dict[str, xr.Dataset] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        pass

    def create(self, group: str, layout: xr.Dataset, chunks: Mapping[str, Sequence[int]]) -> None:  # noqa: ARG002
        """Allocate a group."""
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
