"""Draws of a model's free variables, in whatever form the user has them."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count

import numpy as np
import pymc as pm
import xarray as xr
from numpy.typing import ArrayLike

from pymc_coresets.exceptions import InvalidDataError
from pymc_coresets.reading.graphs import shapes_of

#: Whatever `Draws.of` reads.
type DrawsLike = Draws | xr.DataTree | xr.Dataset | Mapping[str, ArrayLike]


@dataclass(frozen=True, eq=False)
class Draws:
    """Draws of the free variables, on their own (constrained) scale.

    Parameters
    ----------
    values : mapping of str to ndarray
        Name of each variable, and its draws, of shape (n_draws, *shape of the variable).

    Examples
    --------
    >>> import numpy as np
    >>> draws = Draws({"mu": np.zeros(4), "beta": np.ones((4, 2))})
    >>> draws.n_draws
    4
    """

    values: Mapping[str, np.ndarray]

    @property
    def n_draws(self) -> int:
        """Number of draws S."""
        return len(next(iter(self.values.values())))

    @property
    def are_finite(self) -> np.ndarray:
        """Whether each draw is: far out on the unconstrained scale, some are not, (n_draws,)."""
        values = (value.reshape(len(value), -1) for value in self.values.values())
        return np.all([np.isfinite(value).all(axis=1) for value in values], axis=0)

    def take(self, positions: np.ndarray | slice) -> "Draws":
        """Return some of the draws."""
        return Draws({name: value[positions] for name, value in self.values.items()})

    def to_datatree(
        self,
        *,
        n_chains: int = 1,
        dims: Mapping[str, Sequence[str | None]] | None = None,
        coords: Mapping[str, Iterable[object] | None] | None = None,
    ) -> xr.DataTree:
        """Return the draws as the group ``posterior``, with the dimensions and labels of PyMC's.

        Parameters
        ----------
        n_chains : int, default 1
            How many chains of equal length to make of them.
        dims, coords : mapping, optional
            Of the variables, as a model has them.

        Returns
        -------
        xarray.DataTree
            Chain and draw come first.  Dimensions without labels are numbered.

        Examples
        --------
        >>> import numpy as np
        >>> dict(Draws({"b": np.zeros((6, 2))}).to_datatree(n_chains=2)["posterior"]["b"].sizes)
        {'chain': 2, 'draw': 3, 'b_dim_0': 2}
        """
        variables = {}
        for name, values in self.values.items():
            names = dims_of(name, values.ndim - 1, dims or {})
            chains = values.reshape(n_chains, -1, *values.shape[1:])
            variables[name] = xr.Variable(("chain", "draw", *names), chains)
        posterior = xr.Dataset(variables)
        labels = {n: list(v) for n, v in (coords or {}).items() if v and n in posterior.dims}
        numbers = {dim: np.arange(size) for dim, size in posterior.sizes.items()}
        return xr.DataTree.from_dict({"posterior": posterior.assign_coords(numbers | labels)})

    def at(self, number: int) -> dict[str, np.ndarray]:
        """Return the variables at one draw.

        Examples
        --------
        >>> Draws({"mu": np.array([1.0, 2.0])}).at(1)
        {'mu': np.float64(2.0)}
        """
        return {name: values[number] for name, values in self.values.items()}

    @classmethod
    def of(cls, draws: DrawsLike, shapes: Mapping[str, tuple[int, ...]]) -> "Draws":
        """Read draws from a DataTree, a Dataset, or a mapping of arrays.

        Parameters
        ----------
        draws : DataTree, Dataset, Draws, or mapping of str to array_like
            A tree has its draws in the group ``posterior``; the dimensions ``chain`` and ``draw``
            come first, or ``sample`` where neither is there.  An array is of shape
            (n_draws, ...) or (n_chains, n_draws, ...).
        shapes : mapping of str to tuple of int
            The free variables that are needed, with their shapes.

        Returns
        -------
        Draws

        Raises
        ------
        InvalidDataError
            If a variable is missing, has another shape, or holds NaN or infinite values; those of
            `Draws` are not the user's, and may.

        Examples
        --------
        >>> Draws.of({"mu": [[1.0, 2.0], [3.0, 4.0]]}, {"mu": ()}).values["mu"]
        array([1., 2., 3., 4.])
        """
        found = _arrays(draws, shapes)
        for name in shapes:
            if name not in found:
                raise InvalidDataError(f"The draws lack the free variable {name!r}.", topic="draws")
        values = {name: _flat(name, found[name], shape) for name, shape in shapes.items()}
        for name, value in values.items():
            if not (isinstance(draws, Draws) or np.isfinite(value).all()):
                raise InvalidDataError(
                    f"The draws of {name!r} contain NaN or infinite values.", topic="draws"
                )
        lengths = {name: len(value) for name, value in values.items()}
        if len(set(lengths.values())) > 1:
            raise InvalidDataError(
                f"The variables have different numbers of draws: {lengths}.", topic="draws"
            )
        return cls(values)


def _arrays(draws: DrawsLike, names: Iterable[str]) -> dict[str, np.ndarray]:
    if isinstance(draws, xr.DataTree):
        if "posterior" not in draws.children:
            raise InvalidDataError(
                f"The draws have no group 'posterior'; they have {list(draws.children)!r}.",
                topic="draws",
            )
        draws = draws["posterior"].to_dataset()
    if isinstance(draws, xr.Dataset):
        # A model may have a dimension `sample` of its own, but none of the other two.
        several = [d for d in ("chain", "draw") if d in draws.dims]
        first = several or [d for d in ("sample",) if d in draws.dims]
        return {n: draws[n].transpose(*first, ...).to_numpy() for n in names if n in draws}
    if isinstance(draws, Draws):
        draws = draws.values
    if not isinstance(draws, Mapping):
        raise InvalidDataError(
            "Draws must be a DataTree, a Dataset, or a mapping of names to arrays, "
            f"not {type(draws).__name__}.",
            topic="draws",
        )
    return {n: np.asarray(draws[n]) for n in names if n in draws}


def _flat(name: str, value: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    n_leading = value.ndim - len(shape)
    what = ""
    if value.dtype.kind not in "biuf":
        what = f"are not numbers but {value.dtype}"
    elif value.dtype == np.float16:
        what = "are of type float16, too coarse for a log-density: keep them in float32 at least"
    elif n_leading not in (1, 2) or value.shape[n_leading:] != shape:
        sizes = f"expected (n_draws, *{shape}) or (n_chains, n_draws, *{shape})"
        what = f"have shape {value.shape}; {sizes}"
    elif 0 in value.shape[:n_leading]:
        what = f"are none: their shape is {value.shape}"
    if what:
        raise InvalidDataError(f"The draws of {name!r} {what}.", topic="draws")
    return value.reshape(-1, *shape)


def dims_of(name: str, n_axes: int, dims: Mapping[str, Sequence[str | None] | None]) -> list[str]:
    """Name the axes of a variable as ArviZ does: those without names are numbered, from zero.

    Parameters
    ----------
    name : str
    n_axes : int
    dims : mapping
        Of variables, as a model has them.

    Examples
    --------
    >>> dims_of("x", 2, {"x": ("row", None)}), dims_of("y", 2, {"y": ["row"]})
    (['row', 'x_dim_0'], ['row', 'y_dim_0'])
    """
    own, numbers = [*(dims.get(name) or ())], count()
    own += [None] * (n_axes - len(own))
    return [dim or f"{name}_dim_{next(numbers)}" for dim in own]


def drawn_names(model: pm.Model, lengths: Collection[int], *, more_than: int) -> list[str] | None:
    """Return which variables of a coreset's model to keep the draws of; None for all.

    Left out are deterministics along many rows: those of observed variables and of vectors of
    potentials that the model has whole, or as many as `lengths` says.

    Parameters
    ----------
    model : pm.Model
    lengths : collection of int
        Numbers of rows that the model does not show.
    more_than : int
        Up to this number of rows is acceptable.

    Examples
    --------
    >>> with pm.Model() as model:
    ...     mu = pm.Normal("mu")
    ...     fit = pm.Deterministic("fit", mu * np.ones(5))
    >>> drawn_names(model, [5], more_than=4), drawn_names(model, [5], more_than=5)
    (['mu'], None)
    """
    found = model.deterministics
    if not found:
        return None
    whole = [*(model.rvs_to_values[rv] for rv in model.observed_RVs), *model.potentials]
    shapes = shapes_of([*whole, *found])
    of_whole, of_found = shapes[: len(whole)], shapes[len(whole) :]
    rows = {n for n in (*lengths, *(n for s in of_whole for n in s[:1])) if n > more_than}
    along = {v.name for v, shape in zip(found, of_found, strict=True) if rows & set(shape)}
    return [v.name for v in model.unobserved_RVs if v.name not in along] if along else None
