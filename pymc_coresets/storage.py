"""Files of coresets: written completely or not at all, checked for damage, tied to the data."""

import io
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import asdict, fields
from hashlib import blake2b
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
import pymc as pm
import xarray as xr

from pymc_coresets.compat.xarray_api import netcdf_content
from pymc_coresets.diagnostics.judging import Certificate
from pymc_coresets.diagnostics.known_posterior import NOT_SOUGHT, Modes, SeenModes
from pymc_coresets.diagnostics.lines import NO_PROBES, Probes
from pymc_coresets.exceptions import InvalidDataError, InvalidOptionError
from pymc_coresets.glm.control_variates.expansion import put_back
from pymc_coresets.options import unwritable
from pymc_coresets.reading.quadratic import Quadratic
from pymc_coresets.rowlogp.filled_model import with_rows_of_units
from pymc_coresets.rowlogp.kept_rows import (
    Densities,
    Digests,
    compare_digests,
    digests,
    likelihood_of_stored,
)
from pymc_coresets.rowlogp.of_model import RowsToRead
from pymc_coresets.rows.executors import HasSubmit
from pymc_coresets.rows.sources.row_source import RowSource
from pymc_coresets.solving.solution import Columns
from pymc_coresets.weighted_rows import (
    Fields,
    WeightedRows,
    chosen_rows,
    holds_rows,
    of_model,
    required_likelihood,
    restored_proposal,
    stored_proposal,
)

#: The group of a file, or of draws, that says which rows the coreset has, and their weights.
GROUP = "coreset"

_MARK = b"\npymc_coresets 1 blake2b "  # and the digest of all before it: the end of every file
_COUNTS = ("n_observations", "n_distinct")
_DIGESTS = tuple(field.name for field in fields(Digests))
_WORDS = ("method", "weighting", "status")

#: The dimension of a coreset's rows; and what one of the model's own is called that has its name:
#: in draws, the modes lie below the rows, and a tree has one length for each name.
_ROW, _ROW_OF_MODEL = "row", "row_of_model"

#: What is raised where groups are not those of a coreset.
NO_CORESET = (KeyError, ValueError, TypeError)


# -- files -----------------------------------------------------------------------------------------


def write_netcdf(tree: xr.DataTree, path: str | Path) -> None:
    """Write a tree to a NetCDF file that `read_netcdf` can tell from a damaged one.

    The file appears under its name only when it is complete: what was there before stays until
    then.  It ends with a digest of all before it, which other programs that read NetCDF ignore.

    Parameters
    ----------
    tree : xarray.DataTree
    path : str or Path
        A file of this name is replaced.

    Raises
    ------
    InvalidOptionError
        If h5netcdf is not installed, or the file cannot be written: the path is that of a folder,
        a pipe or a device, or the disk is full.

    Examples
    --------
    >>> import tempfile
    >>> tree = xr.DataTree.from_dict({"coreset": xr.Dataset({"weights": ("row", [2.0, 3.0])})})
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_netcdf(tree, Path(folder, "coreset.nc"))
    ...     read_netcdf(Path(folder, "coreset.nc"))["coreset"]["weights"].values
    array([2., 3.])
    """
    _need_h5netcdf()
    given = _path(path)
    # In memory: the HDF5 library ends the process where it cannot finish a file on a full disk.
    content = netcdf_content(tree)
    try:
        _replace(given, content + _MARK + _file_digest(content))
    except (OSError, ValueError, RuntimeError) as error:
        raise unwritable(path, error) from error


def _replace(path: Path, content: bytes) -> None:
    """Put a file in place at once, when all of it has reached the disk."""
    if path.exists() and not path.is_file():
        raise OSError("it is a folder, a pipe or a device, and no file")
    target = path.resolve()
    part = target.with_name(f".{uuid4().hex}.part")
    try:
        with part.open("xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        part.replace(target)
    finally:
        part.unlink(missing_ok=True)


def read_netcdf(path: str | Path) -> dict[str, xr.Dataset]:
    """Read the groups of a file that `write_netcdf` wrote.

    Parameters
    ----------
    path : str or Path

    Returns
    -------
    dict of str to xarray.Dataset
        Each group of the tree, in memory.

    Raises
    ------
    InvalidOptionError
        If h5netcdf is not installed.
    InvalidDataError
        If there is no such file, it was not written by `write_netcdf`, or it was cut off or
        altered since.

    Examples
    --------
    >>> read_netcdf("nowhere.nc")
    Traceback (most recent call last):
    pymc_coresets.exceptions.InvalidDataError: nowhere.nc cannot be read: [Errno 2] No such file or
    directory: 'nowhere.nc'. (docs: troubleshooting#coresets-in-files)
    """
    _need_h5netcdf()
    source = _path(path)
    try:
        content = source.read_bytes()
    except (OSError, ValueError) as error:
        raise InvalidDataError(
            f"{path} cannot be read: {error}.", topic="coresets-in-files"
        ) from error
    body, mark, digest = content.rpartition(_MARK)
    # Nothing is handed to the HDF5 library unless it is intact: that may crash on damaged files.
    if not mark or digest != _file_digest(body):
        raise InvalidDataError(
            f"{path} is damaged, or is not a coreset file: it was cut off or altered since "
            "to_netcdf() wrote it, or something else wrote it. Take another copy of it, or build "
            "the coreset again.",
            topic="coresets-in-files",
        )
    try:
        with xr.open_datatree(io.BytesIO(body), engine="h5netcdf") as tree:
            return {name: node.to_dataset().load() for name, node in tree.children.items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RuntimeError) as error:
        raise InvalidDataError(
            f"{path} is not a coreset file: {error}.", topic="coresets-in-files"
        ) from error


def _file_digest(content: bytes) -> bytes:
    return blake2b(content, digest_size=32).hexdigest().encode()


def _path(path: str | Path) -> Path:
    try:
        return Path(path)
    except TypeError:
        raise InvalidOptionError(f"path={path!r} must be the name of a file.") from None


def _need_h5netcdf() -> None:
    missing = [name for name in ("h5netcdf", "h5py") if find_spec(name) is None]
    if missing:
        raise InvalidOptionError(
            f'NetCDF files need the package {missing[0]}: pip install "pymc-coresets[netcdf]".'
        )


# -- what is in it ---------------------------------------------------------------------------------


def history_dataset(steps: Columns, figures: Mapping[str, object]) -> xr.Dataset:
    """Return a history as a dataset along the steps, with figures and counts as its attributes.

    Examples
    --------
    >>> from pymc_coresets.solving.solution import History
    >>> dict(history_dataset(History().columns, {"n_passes": 2}).sizes)
    {'step': 0}
    """
    columns = {name: ("step", column) for name, column in steps.items()}
    return xr.Dataset(columns, attrs=dict(figures))


def stored_dataset(coreset: WeightedRows) -> xr.Dataset:
    """Return a coreset as the group of its file, without what belongs to its model.

    Parameters
    ----------
    coreset : WeightedRows

    Returns
    -------
    xarray.Dataset
    """
    seed, certificate = coreset.random_seed, coreset.certificate
    attrs = {name: getattr(coreset, name) for name in (*_COUNTS, *_WORDS, "objective")}
    attrs["random_seed"] = "" if seed is None else str(seed)
    attrs["settings"] = json.dumps(coreset.settings)
    attrs["certificate"] = "" if certificate is None else json.dumps(asdict(certificate))
    columns = {"indices": (_ROW, coreset.indices), "weights": (_ROW, coreset.weights)}
    return xr.Dataset(columns, attrs=attrs)


def _groups_of_modes(modes: Modes, _: WeightedRows) -> dict[str, xr.Dataset]:
    found = {"modes": modes.positions.assign_attrs(modes.attrs), "modes_sds": modes.sds}
    return {name: _renamed(one, _ROW, _ROW_OF_MODEL) for name, one in found.items()}


#: The groups of fields that not all coresets have.
_GROUPS_OF: dict[str, Callable[[Any, WeightedRows], dict[str, xr.Dataset]]] = {
    "data": lambda data, _: {"rows": data},
    "quadratic": lambda quadratic, _: {"quadratic": quadratic.stored},
    "modes": _groups_of_modes,
    "proposal": lambda known, own: {"proposal": stored_proposal(known, own.loglikelihood)},
}


def stored_tree(coreset: WeightedRows) -> xr.DataTree:
    """Return a coreset as the tree that is written to its file, with digests of its data.

    Parameters
    ----------
    coreset : WeightedRows
    """
    hashes = {}
    if coreset.built_from is not None:
        hashes = asdict(coreset.built_from)
    elif coreset.loglikelihood is not None:
        hashes = asdict(digests_of(coreset))
    groups = {GROUP: stored_dataset(coreset).assign_attrs(hashes), "history": coreset.history}
    for field, groups_of in _GROUPS_OF.items():
        if (part := getattr(coreset, field)) is not None:
            groups |= groups_of(part, coreset)
    tree = xr.DataTree.from_dict(groups)
    tree.attrs["n_observations"] = coreset.n_observations
    return tree


def stored_coreset(path: str | Path) -> Fields:
    """Return the arguments of `Coreset` from a file, apart from the log-likelihoods.

    Raises
    ------
    InvalidDataError
        If the file is missing, damaged, or no coreset's.
    """
    groups = read_netcdf(path)
    try:
        return fields_of_groups(groups)
    except NO_CORESET as error:
        raise InvalidDataError(
            f"{path} is not a coreset file: {error}.", topic="coresets-in-files"
        ) from error


def fields_of_groups(groups: Mapping[str, xr.Dataset]) -> Fields:
    """Return the arguments of `Coreset` from the groups of `stored_tree`, but its log-likelihoods.

    Parameters
    ----------
    groups : mapping of str to xarray.Dataset

    Returns
    -------
    dict

    Raises
    ------
    KeyError, ValueError, TypeError
        If something is missing, or not what a coreset has: `NO_CORESET`.
    """
    stored = stored_fields(groups[GROUP], groups["history"])
    modes = None
    if "modes" in groups:
        found = (_renamed(groups[name], _ROW_OF_MODEL, _ROW) for name in ("modes", "modes_sds"))
        modes = Modes.stored(*found)
    quadratic = Quadratic.restored(groups["quadratic"]) if "quadratic" in groups else None
    known = restored_proposal(groups["proposal"], modes) if "proposal" in groups else None
    own = {"modes": modes, "quadratic": quadratic, "proposal": known}
    return stored | {"data": groups.get("rows")} | own


def _renamed(dataset: xr.Dataset, dim: str, other: str) -> xr.Dataset:
    return dataset.rename({dim: other}) if dim in dataset.dims else dataset


def fields_with_model(
    stored: Mapping[str, Any],
    model: pm.Model,
    rows: RowSource | None,
    executor: HasSubmit | None,
) -> Fields:
    """Return all arguments of `Coreset` from stored ones and the model that it was built from.

    Parameters
    ----------
    stored : mapping of str
        As `fields_of_groups` returns it.
    model : pm.Model
    rows, executor
        As of `Coreset.from_netcdf`.

    Returns
    -------
    dict

    Raises
    ------
    InvalidDataError
        If the model or the rows are not those that it was built from.
    """
    wanted = RowsToRead(**stored["settings"], rows=rows, executor=executor)
    found, kept = {**stored}, stored["data"]
    if kept is not None and wanted.units:  # the file has units, with their rows
        if rows is not None:
            raise InvalidOptionError(
                "rows=...: the file has the units of this coreset, and others that it represents "
                "are gone. Leave rows out, or build a coreset of all units."
            )
        numbers = np.arange(len(stored["indices"]))
        found |= {"indices": numbers, "data": kept.assign(position=("unit", numbers))}
    else:
        model, wanted = with_rows_of_units(model, wanted)
    loglik = likelihood_of_stored(model, found, wanted)
    found["loglikelihood"] = loglik
    renewals: dict[str, Callable[[Any], Any]] = {
        "quadratic": lambda own: put_back(own, loglik.observations),
        "proposal": lambda own: of_model(own, list(own.draws.values), loglik, found["quadratic"]),
    }
    for field, renewed in renewals.items():
        if found[field] is not None:
            found[field] = renewed(found[field])
    if found["built_from"] is None:
        return found
    now = digests_of(WeightedRows(**found))
    return found | compare_digests(found["built_from"], now)


def digests_of(coreset: WeightedRows) -> Digests:
    """Return digests of the data and the densities of a coreset's model.

    Parameters
    ----------
    coreset : WeightedRows
    """
    loglik, of_data = required_likelihood(coreset), not holds_rows(coreset)
    return digests(loglik, chosen_rows(coreset), of_data=of_data)


def stored_fields(dataset: xr.Dataset, history: xr.Dataset) -> Fields:
    """Return the arguments of `Coreset` from the groups of its file.

    Parameters
    ----------
    dataset, history : xarray.Dataset

    Returns
    -------
    dict

    Raises
    ------
    KeyError, ValueError, TypeError
        If something is missing, or not what a coreset has.
    """
    attrs = dataset.attrs
    indices, weights = dataset["indices"].to_numpy(), dataset["weights"].to_numpy()
    _check_rows(indices, weights)
    for name in {*_WORDS, *_DIGESTS, "certificate"} & attrs.keys():
        if not isinstance(attrs[name], str):
            raise TypeError(f"its {name} is {attrs[name]!r}, and no word")
    if (objective := float(attrs["objective"])) < 0:
        raise ValueError(f"its divergence is {objective} nats, which is negative")
    if "densities" in attrs:
        Densities.read(attrs["densities"])
    return {
        "indices": indices,
        "weights": weights,
        **{name: int(attrs[name]) for name in _COUNTS},
        **{name: attrs[name] for name in _WORDS},
        "objective": objective,
        "random_seed": None if attrs["random_seed"] == "" else int(attrs["random_seed"]),
        "history": history,
        "settings": RowsToRead(**json.loads(attrs["settings"])).settings,
        "certificate": _stored_certificate(attrs["certificate"]),
        "built_from": Digests(**{name: attrs[name] for name in _DIGESTS})
        if "selected" in attrs
        else None,
    }


def _stored_certificate(text: str) -> Certificate | None:
    if not text:
        return None
    numbers = json.loads(text)
    modes, probes = (numbers.pop(name, None) or {} for name in ("modes", "probes"))
    caveat = str(numbers.pop("caveat", ""))
    if not all(isinstance(value, int | float) for value in numbers.values()):
        raise TypeError("its certificate has entries that are not numbers")
    return Certificate(
        **numbers,
        modes=SeenModes.stored(modes) if modes else NOT_SOUGHT,
        probes=Probes(**probes) if probes else NO_PROBES,
        caveat=caveat,
    )


def _check_rows(indices: np.ndarray, weights: np.ndarray) -> None:
    if indices.ndim != 1 or indices.dtype.kind != "i" or (np.diff(indices, prepend=-1) <= 0).any():
        raise ValueError("its indices are not positions in increasing order")
    if weights.shape != indices.shape or weights.dtype.kind != "f":
        raise ValueError("it does not have one weight for each index")
    if not (np.isfinite(weights) & (weights > 0)).all():
        raise ValueError("its weights are not positive and finite")
