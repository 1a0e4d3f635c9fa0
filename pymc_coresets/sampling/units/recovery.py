"""Draws of the variables that were integrated out, given those of the shared variables."""

import math
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from itertools import product
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import xarray as xr
from pytensor.graph import ancestors

from pymc_coresets.diagnostics.posterior_draws import SAMPLE_DIMS, draws_tree
from pymc_coresets.exceptions import InvalidOptionError, warn_user
from pymc_coresets.numerics import rows_at_once
from pymc_coresets.options import generator, names_of
from pymc_coresets.potentials.evaluation import LogLikelihood
from pymc_coresets.predictive.stand_ins import HasStandIn
from pymc_coresets.reading.draws import Draws
from pymc_coresets.reading.folding import evaluate, plain_mode
from pymc_coresets.reading.unconstrained import Unconstrained, of_points
from pymc_coresets.rows.memory import in_threads
from pymc_coresets.rows.values import Rows

BY_ITSELF = 200_000_000
"""Largest size in bytes of draws of these variables that `sample` adds automatically."""

#: Number of levels summarised at once, whose draws are held in memory.
_LEVELS = 2_000
#: Proposals per draw of a unit, of which weights choose one; each costs an evaluation of its rows.
#: And their degrees of freedom.
_PROPOSALS, _FREEDOM = 12, 8.0
#: Draws of the shared variables completed at once, held in memory in addition to the result.
_DRAWS = 256


def recover(
    result: HasStandIn,
    idata: xr.DataTree | xr.Dataset,
    var_names: str | Sequence[str] | None = None,
    *,
    levels: Sequence[Any] | None = None,
    summary: bool = False,
    random_seed: int | np.random.Generator | None = None,
) -> xr.Dataset:
    """Draw the variables that were integrated out, given draws of the shared variables.

    For each draw theta_s, the variables of a level are drawn from ``p(z_g | theta_s, y_g)``, which
    depends on the level's own rows only: with `sample`'s draws of theta, these are draws of the
    joint posterior.  Costs about 16 evaluations of the rows of these levels per draw.  Memory: that
    of the result.

    Parameters
    ----------
    idata : xarray.DataTree
        Draws of the shared variables, from `sample` or `reweight`.
    var_names : str or sequence of str, optional
        Variables that were integrated out, and deterministics computed from them; by default all,
        except deterministics along the rows and, with `levels` or `summary`, those computed from
        several levels at once, such as a mean of all.
    levels : sequence, optional
        Labels of some levels, or their numbers if the dimension has no labels.
    summary : bool, default False
        Return mean, standard deviation and quantiles (3 %, 50 %, 97 %) over the draws of each
        level, instead of the draws, with the dimension ``statistic``.
    random_seed : int or Generator, optional
        The result is reproducible from it.

    Returns
    -------
    xarray.Dataset
        With the names, dims and coords of `pm.sample`.  The attribute ``ess_of_proposals`` is the
        mean effective number of the 12 proposals for each value: if it is far smaller, levels have
        several modes or heavy tails.

    Raises
    ------
    InvalidOptionError
        If nothing was integrated out, a name or a level is unknown, or a named variable needs
        levels that are not drawn together.
    InvalidDataError
        If the draws have no values of a variable.

    Warns
    -----
    CoresetWarning
        Before a result of more than 1 GB.

    Notes
    -----
    Importance resampling from Student t distributions of eight degrees of freedom around the mode
    and with the curvature of each level, at each draw.

    Examples
    --------
    >>> import numpy as np, pymc as pm
    >>> from pymc_coresets import build_coreset
    >>> rng = np.random.default_rng(1)
    >>> user = np.repeat(np.arange(2_000), 3)
    >>> y = rng.poisson(np.exp(rng.normal(1.0, 0.5, size=2_000)[user]))
    >>> with pm.Model(coords={"user": np.arange(2_000)}):
    ...     mean, sd = pm.Normal("mean"), pm.HalfNormal("sd")
    ...     level = pm.Normal("level", mean, sd, dims="user")
    ...     seen = pm.Poisson("seen", pm.math.exp(level[user]), observed=y)
    ...     coreset = build_coreset(random_seed=1, progressbar=False)
    >>> idata = coreset.importance_draws(random_seed=1)
    >>> few = coreset.recover(idata, levels=[0, 7], random_seed=1)
    >>> few["level"].sizes["user"], few["level"].dims
    (2, ('chain', 'draw', 'user'))
    """
    loglik = result.stand_in.parts[0]
    if loglik.observations.units is None:
        raise InvalidOptionError(
            "Nothing was integrated out of this model: the draws have all its free variables."
        )
    local = _LocalVariables(loglik)
    given = names_of("var_names", var_names)
    every = local.names if levels is None and not summary else local.of_single_levels
    names = every if given is None else [given] if isinstance(given, str) else given
    if unknown := sorted(set(names) - set(local.names)):
        raise InvalidOptionError(
            f"var_names={unknown!r}: only {local.names!r} were integrated out, or are computed "
            "from variables that were."
        )
    if mixed := sorted(set(names) - set(every)):
        raise InvalidOptionError(
            f"var_names={mixed!r}: a value is computed from several levels at once. Draw all of "
            "them (without levels=... and summary=True)."
        )
    which = local.numbers_of(levels)
    posterior = draws_tree(idata)["posterior"].to_dataset()
    n_bytes = local.n_bytes(names, posterior, len(which))
    if n_bytes > 2**30 and not summary:
        warn_user(
            f"The draws of {names!r} take {n_bytes / 1e9:.1f} GB. Name some levels "
            "(levels=...), or ask for summary=True."
        )
    rng = generator(random_seed)
    if not summary:
        return local.drawn(posterior, names, which, rng)
    parts = [
        _summarised(local.drawn(posterior, names, which[i : i + _LEVELS], rng))
        for i in range(0, len(which), _LEVELS)
    ]
    joined = [xr.concat([part[n] for part in parts], dim=local.level_dim(n)) for n in names]
    return xr.merge(joined).assign_attrs(parts[0].attrs)


def _summarised(draws: xr.Dataset) -> xr.Dataset:
    """Return mean, sd and quantiles over the draws."""
    parts = {
        "mean": draws.mean(SAMPLE_DIMS),
        "sd": draws.std(SAMPLE_DIMS),
        **{
            name: draws.quantile(q, SAMPLE_DIMS).drop_vars("quantile")
            for name, q in {"q3": 0.03, "median": 0.5, "q97": 0.97}.items()
        },
    }
    joined: xr.Dataset = xr.concat(list(parts.values()), dim="statistic")
    return joined.assign_coords(statistic=list(parts)).assign_attrs(draws.attrs)


def with_local(result: HasStandIn, idata: xr.DataTree, rng: np.random.Generator) -> xr.DataTree:
    """Add draws of variables that were integrated out, if their size and cost are moderate.

    The attribute ``integrated`` of the posterior names variables without draws.
    """
    loglik = result.stand_in.parts[0]
    units = loglik.observations.units
    if units is None:
        return idata
    local, posterior = _LocalVariables(loglik), idata["posterior"].to_dataset()
    n_bytes = local.n_bytes(local.names, posterior, len(local.numbers_of(None)))
    n_draws = posterior.sizes["chain"] * posterior.sizes["draw"]
    n_terms = n_draws * _PROPOSALS * len(units.positions)
    if n_bytes > BY_ITSELF or n_terms > 250_000_000:  # about ten seconds of one core
        return idata.assign(posterior=xr.DataTree(posterior.assign_attrs(integrated=local.names)))
    return completed(result, idata, rng)


def completed(result: HasStandIn, idata: xr.DataTree, rng: np.random.Generator) -> xr.DataTree:
    """Add draws of the variables that were integrated out, if they are missing."""
    observations, posterior = result.stand_in.parts[0].observations, idata["posterior"].to_dataset()
    if observations.units is None or set(observations.integrated) <= set(posterior.data_vars):
        return idata
    found = recover(result, idata, random_seed=rng)
    return idata.assign(posterior=xr.DataTree(posterior.merge(found, compat="override")))


class _LocalVariables:
    """The variables that were integrated out of a model whose rows are units."""

    def __init__(self, loglik: LogLikelihood) -> None:
        assert loglik.observations.units is not None
        self.loglik, self.observations = loglik, loglik.observations
        self.source: Any = loglik.observations.units.source  # see `Units`
        self.factor = self.source.factor
        self.model: pm.Model = self.source.rows.held.whole
        self._compiled: dict[tuple[str, ...], Callable[..., list[np.ndarray]]] = {}

    @cached_property
    def space(self) -> Unconstrained:
        """The unconstrained space of the model with these variables."""
        return Unconstrained(self.model)

    @cached_property
    def names(self) -> list[str]:
        """Those variables, and deterministics that are computed from them, but not along rows."""
        model, rows = self.model, self.source.rows
        integrated = {model[name] for name in self.factor.names}
        others = [
            v.name
            for v in model.deterministics
            if v.name not in rows.left_out and not integrated.isdisjoint(ancestors([v]))
        ]
        return [*self.factor.names, *others]

    @cached_property
    def of_single_levels(self) -> list[str]:
        """Variables whose value at a level depends on no other level.

        Tested by changing every other level: values at the levels between must not change.
        """
        points = np.tile(self.space.start, (2, 1))
        for part in self.factor.parts:
            moved = part.flat(self.space.columns[part.name])[1::2]
            is_value = bool(self.factor.values)
            points[1, moved] += np.where(is_value & (points[1, moved] > 0), -1.0, 1.0)
        found = self._variables(tuple(self.names))(points)

        def stays(name: str, values: np.ndarray) -> bool:
            if (axis := self._axis(name)) is None:
                return False
            between = np.moveaxis(values, 1 + axis, 1)[:, ::2]
            return np.array_equal(between[0], between[1], equal_nan=True)

        return [n for n, values in zip(self.names, found, strict=True) if stays(n, values)]

    def numbers_of(self, levels: Sequence[Any] | None) -> np.ndarray:
        """Return the numbers of levels, given their labels."""
        n_levels, dim = self.factor.n_levels, self.observations.dim
        if levels is None:
            return np.arange(n_levels)
        labels = None if dim is None else self.model.coords.get(dim)
        known = {label: i for i, label in enumerate(range(n_levels) if labels is None else labels)}
        missing = [level for level in levels if level not in known]
        if missing:
            raise InvalidOptionError(
                f"levels={missing!r} are not among the {n_levels:,} levels"
                + (f" of {dim!r}." if dim else ".")
            )
        return np.array(sorted({known[level] for level in levels}), dtype=np.int64)

    def n_bytes(self, names: Sequence[str], posterior: xr.Dataset, n_levels: int) -> int:
        """Return the size of a result."""
        n_each = sum(math.prod(self._shapes[name]) for name in names) / self.factor.n_levels
        return int(8 * posterior.sizes["chain"] * posterior.sizes["draw"] * n_each * n_levels)

    @cached_property
    def _shapes(self) -> dict[str, tuple[int, ...]]:
        """Shapes of the variables, with all levels."""
        shapes = evaluate([pt.as_tensor(self.model[name].shape) for name in self.names])
        return {n: tuple(map(int, shape)) for n, shape in zip(self.names, shapes, strict=True)}

    def drawn(
        self,
        posterior: xr.Dataset,
        names: Sequence[str],
        which: np.ndarray,
        rng: np.random.Generator,
    ) -> xr.Dataset:
        """Return draws of variables at levels with these numbers."""
        draws = Draws.of(posterior, self.observations.shapes)
        rows = self.source.rows_of(self.observations, which)
        values: dict[str, list[np.ndarray]] = {name: [] for name in names}
        counted = []
        for start in range(0, draws.n_draws, _DRAWS):
            some = draws.take(slice(start, start + _DRAWS))
            flat, ess = self._at(some, rows, rng)
            counted.append(ess)
            for name, value in self._on_own_scale(some, flat, which, names).items():
                values[name].append(value)
        sizes = [posterior.sizes[dim] for dim in SAMPLE_DIMS]
        found = {
            name: self._labelled(name, np.concatenate(parts), which, sizes, posterior)
            for name, parts in values.items()
        }
        return xr.Dataset(found, attrs={"ess_of_proposals": float(np.mean(counted))})

    def _at(self, draws: Draws, rows: Rows, rng: np.random.Generator) -> tuple[np.ndarray, float]:
        """Return draws (n_draws, n_levels, q) of the variables, unconstrained, and the mean ESS."""
        kernel, n_dims = self.loglik.unit_places, self.factor.n_dims
        evaluate = kernel.program.given(*self.loglik.given(draws))
        pieces = list(_pieces(rows, draws.n_draws))
        every = np.array(list(product(*self.factor.values)), dtype=float)

        def chosen(block: tuple[Rows, np.random.Generator]) -> tuple[np.ndarray, np.ndarray]:
            some, own = block
            if self.factor.values:
                x = np.broadcast_to(every[:, None], (draws.n_draws, len(every), len(some), n_dims))
            else:
                x = _proposed((draws.n_draws, _PROPOSALS, len(some), n_dims), own)
            z, logs = evaluate(np.ascontiguousarray(x), *kernel.arrays(some))
            if not self.factor.values:  # around each mode, where there are nodes around several
                x = np.tile(x, (1, self.source.n_modes, 1, 1))
                logs = logs + (_FREEDOM + 1) / 2 * np.log1p(np.square(x) / _FREEDOM).sum(axis=-1)
            logs = np.where(np.isfinite(logs), logs, -np.inf)
            weights = np.exp(logs - logs.max(axis=1, keepdims=True))
            below = np.cumsum(weights, axis=1)
            ess = np.square(below[:, -1]) / np.square(weights).sum(axis=1)
            level = own.random((len(below), 1, len(some))) * below[:, -1:]
            picked = np.minimum((below <= level).sum(axis=1), x.shape[1] - 1)
            return np.take_along_axis(z, picked[:, None, :, None], axis=1)[:, 0], ess

        parts = list(in_threads(chosen, zip(pieces, rng.spawn(len(pieces)), strict=True)))
        return np.concatenate([z for z, _ in parts], axis=1), float(
            np.mean(np.concatenate([ess for _, ess in parts], axis=1))
        )

    def _on_own_scale(
        self, draws: Draws, flat: np.ndarray, which: np.ndarray, names: Sequence[str]
    ) -> dict[str, np.ndarray]:
        """Return variables on their own scale, with the chosen levels only."""
        full, factor = self.space, self.factor
        points = np.tile(full.start, (draws.n_draws, 1))
        shared, own = self.observations.space, full.columns
        free = shared.free(draws)
        for name, columns in shared.columns.items():
            points[:, own[name].ravel()] = free[:, columns.ravel()]
        for part in factor.parts:
            columns = part.flat(own[part.name])[which]
            points[:, columns.ravel()] = flat[:, :, part.columns].reshape(len(flat), -1)
        found = self._variables(tuple(names))(points)
        chosen = {}
        for name, values in zip(names, found, strict=True):
            axis = self._axis(name)
            chosen[name] = values if axis is None else np.take(values, which, axis=1 + axis)
        return chosen

    def _variables(self, names: tuple[str, ...]) -> Callable[..., list[np.ndarray]]:
        if names not in self._compiled:
            x = pt.vector("x", dtype="float64")
            graphs = self.model.replace_rvs_by_values([self.model[name] for name in names])
            tensors = [pt.as_tensor(v, allow_xtensor_conversion=True) for v in graphs]
            values = self.space.at(x, tensors)
            self._compiled[names] = of_points([x], values, plain_mode("minimum_compile"))
        return self._compiled[names]

    def _axis(self, name: str) -> int | None:
        """Return the axis of a variable that has the levels."""
        dims = self.model.named_vars_to_dims.get(name) or ()
        dim = self.observations.dim
        if dim is not None and dim in dims:
            return int(dims.index(dim))
        n_levels, shape = self.factor.n_levels, self._shapes[name]
        return shape.index(n_levels) if n_levels in shape else None

    def level_dim(self, name: str) -> str:
        """Return the name of a variable's dimension that has the levels."""
        return self._dims(name)[self._axis(name) or 0]

    def _dims(self, name: str) -> list[str]:
        own = self.model.named_vars_to_dims.get(name) or ()
        return [
            (own[i] if i < len(own) else None) or f"{name}_dim_{i}"
            for i in range(len(self._shapes[name]))
        ]

    def _labelled(
        self,
        name: str,
        values: np.ndarray,
        which: np.ndarray,
        sizes: Sequence[int],
        posterior: xr.Dataset,
    ) -> xr.DataArray:
        whole, dims, axis = self._shapes[name], self._dims(name), self._axis(name)
        coords: dict[str, Any] = {dim: posterior[dim] for dim in SAMPLE_DIMS}
        for i, dim in enumerate(dims):
            labels = self.model.coords.get(dim)
            every = np.arange(whole[i]) if labels is None else np.asarray(labels)
            coords[dim] = every[which] if i == axis else every
        return xr.DataArray(
            values.reshape(*sizes, *values.shape[1:]), coords, [*SAMPLE_DIMS, *dims]
        )


def _proposed(shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    """Draw from a t distribution of eight degrees of freedom: Bailey 1994, Math. Comp. 62."""
    radius = 1 / np.sqrt(np.sqrt(1 - rng.random(shape))) - 1
    drawn: np.ndarray = np.sqrt(_FREEDOM * radius) * np.cos(2 * np.pi * rng.random(shape))
    return drawn


def _pieces(rows: Rows, n_draws: int) -> Iterator[Rows]:
    """Cut units into blocks of about as many rows; one of many rows is a block by itself."""
    assert rows.members is not None
    most = rows_at_once(4 * n_draws * _PROPOSALS)  # a few arrays of such a size are needed
    ends = np.cumsum(np.maximum(rows.members.sizes, 1))
    start, done = 0, 0
    while start < len(rows):
        stop = max(int(np.searchsorted(ends, done + most, side="right")), start + 1)
        yield rows.take(slice(start, stop))
        start, done = stop, int(ends[stop - 1])
