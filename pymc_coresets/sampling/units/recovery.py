"""Draws of the variables that were integrated out, given those of the shared variables."""

import math
from collections.abc import Callable, Sequence
from functools import cached_property, partial
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import xarray as xr
from pytensor.graph import ancestors

from pymc_coresets.deadline import forecasts_to
from pymc_coresets.diagnostics.posterior_draws import SAMPLE_DIMS, UNRELIABLE, draws_tree
from pymc_coresets.exceptions import (
    InvalidOptionError,
    OutOfTimeError,
    UnsupportedModelError,
    warn_user,
)
from pymc_coresets.numerics import as_slice, free_memory, rows_at_once
from pymc_coresets.options import flag, generator, names_of
from pymc_coresets.predictive.approximate_posterior import HasApproximatePosterior
from pymc_coresets.progress import if_it_takes_long, tell
from pymc_coresets.reading.draws import Draws, dims_of
from pymc_coresets.reading.folding import written_function
from pymc_coresets.reading.graphs import shapes_of
from pymc_coresets.reading.unconstrained import Unconstrained, of_points
from pymc_coresets.reading.units.labels import texts_of
from pymc_coresets.reading.units.observations_of_units import as_units
from pymc_coresets.reading.user_model import labels_of
from pymc_coresets.rowlogp.evaluation import LogLikelihood
from pymc_coresets.rows.memory import one_blas_thread
from pymc_coresets.sampling.units.conditionals import Conditionals
from pymc_coresets.sampling.units.levels_without_rows import drawn_from_priors

#: Number of levels summarised at once, whose draws are held in memory.
_LEVELS = 2_000
#: Numbers that the temporary arrays of a draw take, for each of its numbers: a block of draws is
#: to fit into a cache.
_ENTRIES = 16
#: Share of the free memory that draws may take without a warning.
_SHARE = 0.2
#: Numbers from which on `sample` adds no draws: they take several times as long as the shared ones.
_MOST = 20_000_000
_NAMED = 5  # levels, in messages
_LEAST_DRAWS = 100  # of each chain: fewer are not worth a word


def recover(
    result: HasApproximatePosterior,
    idata: xr.DataTree | xr.Dataset,
    var_names: str | Sequence[str] | None = None,
    *,
    levels: Sequence[object] | None = None,
    summary: bool = False,
    random_seed: int | np.random.Generator | None = None,
    progressbar: bool | None = None,
) -> xr.Dataset:
    """Draw the variables that were integrated out, given draws of the shared variables.

    For each draw theta_s, the variables of a level are drawn from ``p(z_g | theta_s, y_g)``, which
    depends on the level's own rows only: with `sample`'s draws of theta, these are draws of the
    joint posterior.  Levels without rows are drawn from their prior.  Costs some 2,000 evaluations
    of the rows of these levels, for any number of draws, or about 45 per draw where the variable's
    distribution depends on theta in a complicated way; with several variables for each level,
    three or more per draw.  Memory: twice that of the result.

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
    progressbar : bool, optional
        By default as in the build.  It is shown if drawing takes more than two seconds.

    Returns
    -------
    xarray.Dataset
        With the names, dims and coords of `pm.sample`.

    Raises
    ------
    InvalidOptionError
        If nothing was integrated out, a name or a level is unknown, or a named variable needs
        levels that are not drawn together.
    InvalidDataError
        If the draws have no values of a variable.
    UnsupportedModelError
        If levels have no rows, and PyMC cannot draw from their prior.

    Warns
    -----
    CoresetWarning
        Before a result of more than a fifth of the free memory; and if the variables of some levels
        have so many modes, or such tails, that their draws are not reliable.  The attribute
        ``unreliable`` of the result names these levels, by which `check` calls draws doubtful.

    Notes
    -----
    Discrete variables are drawn in proportion to the densities of all their values.  A single
    continuous one is drawn by the inverse of its distribution function, from the log-density at 40
    places; quantiles are regressed on theta where that is off by less than 0.02 of their normal
    scores at draws that the regression has not seen.  Several, and one of several modes, are drawn
    by independence Metropolis-Hastings, until chains have come to 99.8 % of the mass, by the
    weights of all proposals; levels where 480 proposals come to less than 99 % are not reliable.
    Proposals are from Student t distributions of eight degrees of freedom, around each mode and,
    where dozens were not enough, around what chains have found at all draws; for one variable of
    several modes mostly from a histogram through all of them.

    Examples
    --------
    >>> import numpy as np, pymc as pm
    >>> from pymc_coresets import build_coreset
    >>> rng = np.random.default_rng(1)
    >>> user = np.repeat(np.arange(200), 3)
    >>> y = rng.poisson(np.exp(rng.normal(1.0, 0.5, size=200)[user]))
    >>> with pm.Model(coords={"user": np.arange(200)}):
    ...     mean, sd = pm.Normal("mean"), pm.HalfNormal("sd")
    ...     level = pm.Normal("level", mean, sd, dims="user")
    ...     seen = pm.Poisson("seen", pm.math.exp(level[user]), observed=y)
    ...     coreset = build_coreset(integrate="level", random_seed=1, progressbar=False)
    >>> idata = coreset.importance_draws(random_seed=1)
    >>> few = coreset.recover(idata, levels=[0, 7], random_seed=1)
    >>> few["level"].sizes["user"], few["level"].dims
    (2, ('chain', 'draw', 'user'))
    """
    loglik = result.approximation.parts[0]
    if not loglik.observations.integrated:
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
    n_numbers = local.n_numbers(names, posterior, len(which))
    if not _fits(n_numbers) and not summary:
        warn_user(
            f"The draws of {names!r} take {8 * n_numbers / 1e9:.1f} GB. Name some levels "
            "(levels=...), or ask for summary=True."
        )
    rng, n_levels = generator(random_seed), _LEVELS if summary else max(len(which), 1)
    own = result.approximation.progressbar
    show = own if progressbar is None else flag("progressbar", progressbar)
    parts = []
    title = f"drawing {', '.join(local.factor.names)}"
    with (
        forecasts_to(partial(tell, show=show)),
        if_it_takes_long(title, len(which), "levels", show=show) as bar,
        one_blas_thread(),
    ):
        for start in range(0, max(len(which), 1), n_levels):
            drawn = local.drawn(posterior, names, which[start : start + n_levels], rng, bar)
            parts.append(_summarised(drawn) if summary else drawn)
    if unreliable := local.unreliable:
        warn_user(f"{unreliable[0].upper()}{unreliable[1:]}")
        parts[0].attrs[UNRELIABLE] = unreliable
    if not summary:
        return parts[0]
    joined = [xr.concat([part[n] for part in parts], dim=local.level_dim(n)) for n in names]
    return xr.merge(joined).assign_attrs(parts[0].attrs)


def _fits(n_numbers: int) -> bool:
    """Whether so many numbers take a fifth of the free memory at most."""
    return 8 * n_numbers <= _SHARE * free_memory()


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


def with_local(
    result: HasApproximatePosterior,
    idata: xr.DataTree,
    rng: np.random.Generator,
    *,
    progressbar: bool,
) -> xr.DataTree:
    """Add draws of variables that were integrated out, if they are fewer than 20 million numbers.

    And fit into a fifth of the free memory.  Otherwise the attribute ``integrated`` of the
    posterior names these variables.

    Warns
    -----
    CoresetWarning
        If there are no draws of them, with the reason and the remedy.
    """
    loglik = result.approximation.parts[0]
    if not loglik.observations.integrated:
        return idata
    local, posterior = _LocalVariables(loglik), idata["posterior"].to_dataset()
    n_numbers = local.n_numbers(local.names, posterior, len(local.levels))
    reason = f"they would be {n_numbers / 1e6:,.0f} million numbers"
    fewer = posterior.sizes["draw"] * (_MOST - 1) // max(n_numbers, 1)
    if n_numbers >= _MOST and fewer >= _LEAST_DRAWS:
        reason += f", and are drawn up to draws={fewer}"
    if n_numbers < _MOST and _fits(n_numbers):
        try:
            return completed(result, idata, rng, progressbar=progressbar)
        except (UnsupportedModelError, OutOfTimeError) as error:
            reason = error.message
    warn_user(
        f"The result has no draws of {local.names!r}: {reason}. "
        "coreset.recover(idata) draws all, coreset.recover(idata, levels=[...]) those of some "
        "levels, and coreset.recover(idata, summary=True) returns means and quantiles of all; "
        "after pymc_coresets.sample, coreset = pymc_coresets.coreset_of(idata, model)."
    )
    return idata.assign(posterior=xr.DataTree(posterior.assign_attrs(integrated=local.names)))


def completed(
    result: HasApproximatePosterior,
    idata: xr.DataTree,
    rng: np.random.Generator,
    *,
    model: pm.Model | None = None,
    progressbar: bool | None = None,
) -> xr.DataTree:
    """Add draws of the variables that were integrated out, if they are missing.

    Those of all levels; or of the levels that another model has, and of one if it has none.
    """
    loglik, posterior = result.approximation.parts[0], idata["posterior"].to_dataset()
    if set(loglik.observations.integrated) <= set(posterior.data_vars):
        return idata
    levels = None if model is None else _LocalVariables(loglik).levels_in(model, posterior)
    found = recover(result, idata, levels=levels, random_seed=rng, progressbar=progressbar)
    merged = posterior.merge(found, compat="override").assign_attrs(posterior.attrs | found.attrs)
    return idata.assign(posterior=xr.DataTree(merged))


class _LocalVariables:
    """The variables that were integrated out of a model whose rows are units."""

    def __init__(self, loglik: LogLikelihood) -> None:
        self.loglik, self.observations = loglik, as_units(loglik.observations)
        self.source = self.observations.source
        self.factor = self.source.factor
        self.model: pm.Model = self.source.rows.snapshot.whole
        self._compiled: dict[tuple[str, ...], Callable[..., list[np.ndarray]]] = {}
        self._unreliable: list[int] = []

    @cached_property
    def space(self) -> Unconstrained:
        """The unconstrained space of the model with these variables."""
        return self.source.space

    @property
    def levels(self) -> np.ndarray:
        """The numbers of the levels that have such variables."""
        found: np.ndarray = self.factor.with_variables
        return found

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
            moved = part.flat(self.space.columns[part.name])[1::2][part.has[1::2]]
            is_value = bool(self.factor.values)
            points[1, moved] += np.where(is_value & (points[1, moved] > 0), -1.0, 1.0)
        found = self._variables(tuple(self.names))(points)

        def stays(name: str, values: np.ndarray) -> bool:
            if name in self.factor.names:
                return True
            if (axis := self._axis(name)) is None:
                return False
            between = np.moveaxis(values, 1 + axis, 1)[:, ::2]
            return np.array_equal(between[0], between[1], equal_nan=True)

        return [n for n, values in zip(self.names, found, strict=True) if stays(n, values)]

    @cached_property
    def _labels(self) -> Sequence[object]:
        """Labels of all levels, or their numbers if the dimension has none."""
        labels, numbers = labels_of(self.model), range(self.factor.n_levels)
        return next((labels[d] for d in self.observations.dims if d in labels), numbers)

    def levels_in(self, model: pm.Model, posterior: xr.Dataset) -> Sequence[object] | None:
        """Return the labels of the levels that a model has, too, and at least one.

        None for all of them, where the model has no labels, or other variables have these levels.
        """
        dims = [dim for dim in self.observations.dims if dim in labels_of(self.model)]
        if not dims or dims[0] in posterior.dims or model.coords.get(dims[0]) is None:
            return None
        wanted = set(texts_of(model.coords[dims[0]]))
        known = [self._labels[number] for number in self.levels]
        texts = zip(known, texts_of(known), strict=True)
        return [label for label, text in texts if text in wanted] or known[:1]

    def numbers_of(self, levels: Sequence[object] | None) -> np.ndarray:
        """Return the numbers of levels, given their labels."""
        if levels is None:
            return self.levels
        has = set(self.levels.tolist())
        known = {label: i for i, label in enumerate(self._labels) if i in has}
        missing = [level for level in levels if level not in known]
        if missing:
            raise InvalidOptionError(
                f"levels={missing!r} are not among the {len(has):,} levels"
                + "".join(f" of {dim!r}" for dim in self.observations.dims)
                + "".join(f", such as {label!r}" for label in [*known][:1])
                + "."
            )
        return np.array(sorted({known[level] for level in levels}), dtype=np.int64)

    def n_numbers(self, names: Sequence[str], posterior: xr.Dataset, n_levels: int) -> int:
        """Return how many numbers a result has."""
        n_each = sum(math.prod(self._shapes[name]) for name in names) / len(self.levels)
        return int(posterior.sizes["chain"] * posterior.sizes["draw"] * n_each * n_levels)

    @cached_property
    def _shapes(self) -> dict[str, tuple[int, ...]]:
        """Shapes of the variables, with all levels."""
        shapes = shapes_of([self.model[name] for name in self.names])
        return dict(zip(self.names, shapes, strict=True))

    def drawn(
        self,
        posterior: xr.Dataset,
        names: Sequence[str],
        which: np.ndarray,
        rng: np.random.Generator,
        show: Callable[[int], None],
    ) -> xr.Dataset:
        """Return draws of variables at levels with these numbers."""
        draws = Draws.of(posterior, self.observations.shapes)
        flat = self._unconstrained(draws, which, rng, show)
        values: dict[str, np.ndarray] = {}
        on_own_scale = self._to_own_scale(which, names)
        step = rows_at_once(_ENTRIES * self.space.n_dims)
        for some in (slice(i, i + step) for i in range(0, draws.n_draws, step)):
            for name, part in on_own_scale(draws.take(some), flat[some]).items():
                if name not in values:
                    shape = draws.n_draws, *part.shape[1:]
                    # A first result of that size takes the place of what it is computed from.
                    fits = not values and part.dtype == flat.dtype and math.prod(shape) == flat.size
                    values[name] = flat.reshape(shape) if fits else np.empty(shape, part.dtype)
                values[name][some] = part
        sizes = [posterior.sizes[dim] for dim in SAMPLE_DIMS]
        return xr.Dataset(
            {
                name: self._labelled(name, part, which, sizes, posterior)
                for name, part in values.items()
            }
        )

    def _unconstrained(
        self,
        draws: Draws,
        which: np.ndarray,
        rng: np.random.Generator,
        show: Callable[[int], None],
    ) -> np.ndarray:
        """Return draws of levels' variables, (n_draws, n_levels, q), unconstrained."""
        rows = self.source.rows_of(self.observations, which)
        seen = rows.unit_rows.sizes > 0
        drawn = Conditionals(self.loglik, draws).drawn(rows.take(seen), rng, show)
        self._unreliable += which[seen][~drawn.enough].tolist()
        if seen.all():
            return drawn.values
        flat = np.empty((draws.n_draws, len(which), self.factor.n_dims))
        flat[:, seen] = drawn.values
        parts = self.factor.parts
        flat[:, ~seen] = drawn_from_priors(self.model, parts, draws, which[~seen], rng)
        show(int((~seen).sum()))
        return flat

    @property
    def unreliable(self) -> str:
        """The levels where proposals were too few, if any, with a remedy."""
        if not (levels := [self._labels[i] for i in self._unreliable]):
            return ""
        named = ", ".join(map(str, levels[:_NAMED])) + (", ..." if len(levels) > _NAMED else "")
        return (
            f"draws of {list(self.factor.names)!r} are not reliable at {len(levels):,} "
            f"level{'s' * (len(levels) > 1)} ({named}), where their density has several modes or "
            f"heavy tails. Keep them as parameters ({self.source.options_to_keep}) if these levels "
            "matter."
        )

    def _to_own_scale(
        self, which: np.ndarray, names: Sequence[str]
    ) -> Callable[[Draws, np.ndarray], dict[str, np.ndarray]]:
        """Return a function of draws and of levels' variables, (n_draws, n_levels, q).

        It returns variables on their own scale, with the chosen levels only.
        """
        full, factor, shared = self.space, self.factor, self.observations.space
        own, of_shared = full.columns, shared.columns
        columns = [(own[name].ravel(), at.ravel()) for name, at in of_shared.items()]
        places = [
            (as_slice(part.flat(own[part.name])[which][has].ravel()), part.columns, has)
            for part in factor.parts
            for has in [part.has[which]]
        ]
        variables = self._variables(tuple(names))
        chosen = {name: self._chosen(name, which) for name in names}

        def on_own_scale(draws: Draws, flat: np.ndarray) -> dict[str, np.ndarray]:
            points, free = np.tile(full.start, (draws.n_draws, 1)), shared.free(draws)
            for own_columns, at in columns:
                points[:, own_columns] = free[:, at]
            for of_levels, of_part, has in places:
                own_part = flat[:, :, of_part] if has.all() else flat[:, has][:, :, of_part]
                points[:, of_levels] = own_part.reshape(len(flat), -1)
            found = {}
            for (name, (axis, entries)), values in zip(
                chosen.items(), variables(points), strict=True
            ):
                found[name] = values
                if axis is not None and len(entries) < values.shape[1 + axis]:
                    found[name] = np.take(values, entries, axis=1 + axis)
            return found

        return on_own_scale

    def _chosen(self, name: str, which: np.ndarray) -> tuple[int | None, np.ndarray]:
        """Return the axis of a variable that has the levels, and its entries at some of them."""
        if name in self.factor.names:
            axis, entries = self.factor.entries_of(name, which)
            return int(axis), entries
        every = np.array_equal(which, self.levels)
        return None if every else self._axis(name), which

    def _variables(self, names: tuple[str, ...]) -> Callable[..., list[np.ndarray]]:
        if names not in self._compiled:
            x = self.space.vector
            graphs = self.model.replace_rvs_by_values([self.model[name] for name in names])
            tensors = [pt.as_tensor(v, allow_xtensor_conversion=True) for v in graphs]
            values = self.space.at(x, tensors)
            self._compiled[names] = of_points([x], values, written_function)
        return self._compiled[names]

    def _axis(self, name: str) -> int | None:
        """Return the axis of a variable that has the levels."""
        dims = self.model.named_vars_to_dims.get(name) or ()
        for dim in self.observations.dims:
            if dim in dims:
                return int(dims.index(dim))
        if name in self.factor.names:
            return int(self.factor.entries_of(name, self.levels)[0])
        n_levels, shape = self.factor.n_levels, self._shapes[name]
        return shape.index(n_levels) if n_levels in shape else None

    def level_dim(self, name: str) -> str:
        """Return the name of a variable's dimension that has the levels."""
        return self._dims(name)[self._axis(name) or 0]

    def _dims(self, name: str) -> list[str]:
        return dims_of(name, len(self._shapes[name]), self.model.named_vars_to_dims)

    def _labelled(
        self,
        name: str,
        values: np.ndarray,
        which: np.ndarray,
        sizes: Sequence[int],
        posterior: xr.Dataset,
    ) -> xr.DataArray:
        whole, dims, (axis, entries) = (
            self._shapes[name],
            self._dims(name),
            self._chosen(name, which),
        )
        coords: dict[str, Any] = {dim: posterior[dim] for dim in SAMPLE_DIMS}
        for i, dim in enumerate(dims):
            labels = self.model.coords.get(dim)
            every = np.arange(whole[i]) if labels is None else np.asarray(labels)
            coords[dim] = every[entries] if i == axis else every
        return xr.DataArray(
            values.reshape(*sizes, *values.shape[1:]), coords, [*SAMPLE_DIMS, *dims]
        )
