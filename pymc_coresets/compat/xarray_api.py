"""Non-public parts of xarray: whether data were loaded, and its locks for writing."""

import sys
from contextlib import nullcontext
from typing import Any

import xarray as xr


def lies_in_memory(variable: xr.Variable) -> bool:
    """Whether a variable holds its data, and not the file that they are read from.

    Examples
    --------
    >>> import numpy as np, xarray as xr
    >>> lies_in_memory(xr.Variable("row", np.zeros(3)))
    True
    """
    loaded: bool = variable._in_memory  # noqa: SLF001
    return loaded


def netcdf_content(tree: xr.DataTree) -> bytes:
    """Return a tree in memory as the content of a NetCDF file.

    If there is a client of a Dask cluster, xarray would ask the cluster for a lock of the file,
    which has no name there: the tree is written as if there were none.

    Examples
    --------
    >>> import xarray as xr
    >>> netcdf_content(xr.DataTree(xr.Dataset({"x": 1.0})))[1:4]
    b'HDF'
    """
    here: Any = nullcontext()
    if "dask" in sys.modules:
        here = sys.modules["dask"].config.set(scheduler=sys.modules["dask"].get)
    with here:
        return bytes(tree.to_netcdf(engine="h5netcdf"))
