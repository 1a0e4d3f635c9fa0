"""Predictions in Zarr's format, written part by part."""

import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from secrets import token_hex
from types import TracebackType
from typing import Any, Self

import numpy as np
import xarray as xr
import zarr

from pymc_coresets.exceptions import InvalidOptionError
from pymc_coresets.options import unwritable

__all__ = ["ZarrStore"]


class ZarrStore:
    """A folder in Zarr's format, which appears under its name when it is complete.

    Parameters
    ----------
    path : Path
        Nothing is there yet.

    Examples
    --------
    >>> import tempfile
    >>> layout = xr.Dataset({"y": ("obs", np.zeros(3))})
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     store = ZarrStore(Path(folder, "y.zarr"))
    ...     with store:
    ...         store.create("predictions", layout, {"y": (3,)})
    ...         store.write("predictions", "y", (slice(0, 3),), np.arange(3.0))
    ...     print(store.finished()["predictions"]["y"].values)
    [0. 1. 2.]
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def __enter__(self) -> Self:
        # Not one of `tempfile`, which none but the user may read.
        self._part = self._path.with_name(f".{token_hex(16)}")
        with _refused_if_unwritable(self._path):
            self._part.mkdir()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if kind is None:
            if self._path.exists():
                raise InvalidOptionError(
                    f"Something appeared at {self._path} while the predictions were written: they "
                    f"are complete, and lie in {self._part}. Rename that folder."
                )
            self._part.rename(self._path)
        else:
            shutil.rmtree(self._part, ignore_errors=True)  # the error says more

    def create(self, group: str, layout: xr.Dataset, chunks: Mapping[str, Sequence[int]]) -> None:
        """Write the coordinates of a group, and make arrays of its variables."""
        with _refused_if_unwritable(self._path):
            self._create(group, layout, chunks)

    def _create(self, group: str, layout: xr.Dataset, chunks: Mapping[str, Sequence[int]]) -> None:
        labels = layout.drop_vars(list(layout.data_vars))
        labels.to_zarr(self._part, group=group, mode="a", consolidated=False)
        folder = zarr.open_group(self._part, path=group, mode="r+")
        for name, variable in layout.data_vars.items():
            folder.create_array(
                str(name),
                shape=variable.shape,
                chunks=tuple(chunks[str(name)]),
                dtype=variable.dtype,
                dimension_names=[str(dim) for dim in variable.dims],
                attributes=dict(variable.attrs),
            )

    def write(
        self, group: str, name: str, region: tuple[int | slice, ...], values: np.ndarray
    ) -> None:
        """Write a part of a variable."""
        with _refused_if_unwritable(self._path):
            array: Any = zarr.open_group(self._part, path=group, mode="r+")[name]
            array[region] = values

    def finished(self) -> xr.DataTree:
        """Open the store; its arrays are read when they are used."""
        return xr.open_datatree(self._path, engine="zarr", consolidated=False, chunks=None)


@contextmanager
def _refused_if_unwritable(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise unwritable(path, error) from error
