"""The variables that two posteriors have in common, and their scalar components with labels."""

from collections.abc import Hashable, Iterable, Sequence

import numpy as np
import xarray as xr

from pymc_coresets.compat.arviz_api import BaseLabeller, xarray_sel_iter
from pymc_coresets.diagnostics.importance import Floats
from pymc_coresets.diagnostics.posterior_draws import posterior_dataset
from pymc_coresets.exceptions import InvalidDataError, InvalidOptionError
from pymc_coresets.options import names_of

_LARGEST = 1e150


def common_draws(
    full: xr.DataTree | xr.Dataset,
    approximation: xr.DataTree | xr.Dataset,
    var_names: str | Sequence[str] | None = None,
) -> tuple[xr.Dataset, xr.Dataset, tuple[str, ...]]:
    """Return the draws of the variables that two posteriors have in common.

    Parameters
    ----------
    full, approximation : xarray.DataTree or xarray.Dataset
        Draws with dims chain and draw; of a DataTree the group ``posterior``.
    var_names : str or sequence of str, optional
        Variables wanted; by default all that both have with equal shape and labels.

    Returns
    -------
    tuple
        The draws of both posteriors, dims chain and draw first, with numbers along dims without
        labels; and the names of the variables that were left out.

    Raises
    ------
    InvalidOptionError
        If a variable of `var_names` cannot be compared.
    InvalidDataError
        If no variable is left.

    Examples
    --------
    >>> import numpy as np, xarray as xr
    >>> draws = (("chain", "draw"), np.zeros((2, 3)))
    >>> common_draws(xr.Dataset({"mu": draws}), xr.Dataset({"mu": draws, "z": draws}))[2]
    ('z',)
    """
    first = _numbered(posterior_dataset(full, "full"))
    second = _numbered(posterior_dataset(approximation, "approximation"))
    names, skipped = _common_variables(first, second, var_names)
    picked = [data[names].transpose("chain", "draw", ...) for data in (first, second)]
    return picked[0], picked[1], skipped


def labelled_components(draws: xr.Dataset) -> Iterable[tuple[str, Floats]]:
    """Yield ArviZ's label and the draws of each scalar component.

    Parameters
    ----------
    draws : xarray.Dataset
        With dims chain and draw first.

    Yields
    ------
    tuple of str and ndarray of shape (n_chains, n_draws)

    Raises
    ------
    InvalidDataError
        If draws are not finite, or their squares are not.

    Examples
    --------
    >>> import numpy as np, xarray as xr
    >>> draws = xr.Dataset({"b": (("chain", "draw", "k"), np.zeros((2, 3, 2)))})
    >>> [label for label, _ in labelled_components(draws)]
    ['b[0]', 'b[1]']
    """
    labeller = BaseLabeller()
    for name, selection, position in xarray_sel_iter(draws, skip_dims={"chain", "draw"}):
        label = str(labeller.make_label_flat(name, selection, position))
        values = np.asarray(draws[name].isel(position).values, dtype=np.float64)
        if not np.isfinite(values).all():
            raise InvalidDataError(
                f"{label} has draws that are not finite: leave it out through var_names, or find "
                "out why the model yields them."
            )
        if np.abs(values).max() > _LARGEST:
            raise InvalidDataError(
                f"{label} has draws beyond {_LARGEST:g}, whose squares are infinite: leave it out "
                "through var_names, or use another unit."
            )
        yield label, values


def _common_variables(
    full: xr.Dataset, approximation: xr.Dataset, var_names: str | Sequence[str] | None
) -> tuple[list[str], tuple[str, ...]]:
    """Return the names of the variables to compare, and of those that cannot be compared."""
    wanted = names_of("var_names", var_names)
    asked = [wanted] if isinstance(wanted, str) else wanted
    if asked == []:
        raise InvalidOptionError("var_names has no names: leave it out, or name variables.")
    every = [str(name) for name in dict.fromkeys([*full.data_vars, *approximation.data_vars])]
    candidates = every if asked is None else asked
    names = [name for name in candidates if _comparable(full, approximation, name)]
    skipped = tuple(name for name in candidates if name not in names)
    if skipped and asked is not None:
        raise InvalidOptionError(
            f"var_names has {', '.join(skipped)}, which cannot be compared: missing in one of the "
            f"posteriors, or of different shape or labels there. Choose among "
            f"{', '.join(name for name in every if _comparable(full, approximation, name))}."
        )
    if not names:
        raise InvalidDataError(
            f"full has the variables {list(full.data_vars)} and approximation "
            f"{list(approximation.data_vars)}, none of them in common with equal shape and labels: "
            "compare posteriors of the same model."
        )
    return names, skipped


def _comparable(full: xr.Dataset, approximation: xr.Dataset, name: Hashable) -> bool:
    if name not in full.data_vars or name not in approximation.data_vars:
        return False
    pair = full[name], approximation[name]
    if not all({"chain", "draw"} <= set(data.dims) and data.dtype.kind in "biuf" for data in pair):
        return False
    x, y = (data.isel(chain=0, draw=0, drop=True) for data in pair)
    return x.sizes == y.sizes and all(x[dim].equals(y[dim]) for dim in x.dims)


def _numbered(draws: xr.Dataset) -> xr.Dataset:
    """Label the dims that have no labels by numbers, as PyMC does."""
    return draws.assign_coords({dim: draws[dim] for dim in draws.dims})
