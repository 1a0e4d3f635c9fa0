"""Draws of the variables that were integrated out, given those of the shared variables."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import Any, cast

import numpy as np
import pytensor.tensor as pt
import xarray as xr
from pytensor.graph import Variable, ancestors, vectorize_graph
from pytensor.tensor import TensorVariable

from pymc_coresets.diagnostics.posterior_draws import SAMPLE_DIMS, draws_tree
from pymc_coresets.exceptions import InvalidOptionError, warn_user
from pymc_coresets.options import generator, names_of
from pymc_coresets.potentials.fused_loops import Kernel
from pymc_coresets.predictive.stand_ins import HasStandIn
from pymc_coresets.reading.draws import Draws
from pymc_coresets.reading.folding import plain_mode
from pymc_coresets.reading.observations import Observations
from pymc_coresets.reading.unconstrained import Unconstrained, of_points
from pymc_coresets.reading.units.integral import CENTRE, FACTOR, placed
from pymc_coresets.rows.memory import in_threads
from pymc_coresets.rows.values import Rows

_PROPOSALS = 12  # for each draw of a unit, of which weights choose one
_FREEDOM = 8.0  # degrees of freedom of proposals
_TAIL = (_FREEDOM + 1) / 2  # power of their density's tails
_NUMBERS = 2**20  # of a block: draws, times proposals, times rows
_DRAWS, _LEVELS = 256, 2_000  # of a block
_LARGE = 2**30  # bytes of a result that is announced
BY_ITSELF = 200_000_000
"""Bytes of draws of these variables up to which `sample` adds them by itself."""
_TERMS_BY_ITSELF = 250_000_000  # that these draws cost at most: some ten seconds of one core


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
    depends on the level's own rows alone: with `sample`'s draws of theta, these are draws of the
    joint posterior.  Costs about 16 evaluations of the rows of these levels for each draw.  Memory:
    that of the result.

    Parameters
    ----------
    idata : xarray.DataTree
        Draws of the shared variables, from `sample` or `reweight`.
    var_names : str or sequence of str, optional
        Variables that were integrated out, and deterministics that are computed from them; by
        default all of both but deterministics along the rows.
    levels : sequence, optional
        Labels of some levels, or their numbers if the dimension has no labels.
    summary : bool, default False
        Return mean, standard deviation and quantiles (3 %, 50 %, 97 %) over the draws of each
        level, in place of the draws, with the dimension ``statistic``.
    random_seed : int or Generator, optional
        The result is reproducible from it.

    Returns
    -------
    xarray.Dataset
        With the names, dims and coords that `pm.sample` gives.  The attribute ``ess_of_proposals``
        says how many of the 12 proposals for each value count, on average: far fewer say that
        levels have several modes or heavy tails.

    Raises
    ------
    InvalidOptionError
        If nothing was integrated out, or a name or a level is unknown.
    InvalidDataError
        If the draws lack a variable.

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
    observations = result.stand_in.parts[0].observations
    if observations.units is None:
        raise InvalidOptionError(
            "Nothing was integrated out of this model: its draws have all free variables."
        )
    local = LocalVariables(observations)
    given = names_of("var_names", var_names)
    names = local.names if given is None else [given] if isinstance(given, str) else given
    if unknown := sorted(set(names) - set(local.names)):
        raise InvalidOptionError(
            f"var_names={unknown!r}: {local.names!r} were integrated out, or are computed from "
            "what was."
        )
    which = local.numbers_of(levels)
    posterior = draws_tree(idata)["posterior"].to_dataset()
    n_bytes = local.n_bytes(names, posterior, len(which))
    if n_bytes > _LARGE and not summary:
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
    axes = {dim for part in parts for dim, n in part.sizes.items() if n != parts[0].sizes[dim]}
    along = axes or {local.level_dim(names[0])}
    return xr.concat(parts, dim=along.pop(), data_vars="minimal") if len(parts) > 1 else parts[0]


@dataclass(frozen=True, eq=False)
class LocalVariables:
    """The variables that were integrated out of a model.

    Parameters
    ----------
    observations : Observations
        Units.
    """

    observations: Observations

    @cached_property
    def names(self) -> list[str]:
        """Those variables, and deterministics that are computed from them, but not along rows."""
        model, rows = self._source.rows.held.whole, self._source.rows
        integrated = {model[name] for name in self._source.factor.names}
        others = [
            v.name
            for v in model.deterministics
            if v.name not in rows.left_out and not integrated.isdisjoint(ancestors([v]))
        ]
        return [*self._source.factor.names, *others]

    @property
    def _source(self) -> Any:  # noqa: ANN401 - see `Units`
        assert self.observations.units is not None
        return self.observations.units.source

    @property
    def _dim(self) -> str | None:
        return cast(str | None, self.observations.dim)

    def numbers_of(self, levels: Sequence[Any] | None) -> np.ndarray:
        """Return the numbers of levels that are given by their labels."""
        n_levels = self._source.factor.n_levels
        if levels is None:
            return np.arange(n_levels)
        labels = self._labels
        known = {label: i for i, label in enumerate(labels)}
        missing = [level for level in levels if level not in known]
        if missing:
            raise InvalidOptionError(
                f"levels={missing!r} are not among the {n_levels:,} levels"
                + (f" of {self._dim!r}." if self._dim else ".")
            )
        return np.array(sorted({known[level] for level in levels}), dtype=np.int64)

    @property
    def _labels(self) -> Sequence[Any]:
        coords = self._source.rows.held.whole.coords
        labels = None if self._dim is None else coords.get(self._dim)
        return range(self._source.factor.n_levels) if labels is None else list(labels)

    def n_bytes(self, names: Sequence[str], posterior: xr.Dataset, n_levels: int) -> int:
        """Return the size of a result."""
        shapes = self._source.rows.held.whole.eval_rv_shapes()
        sizes = [np.prod(shapes[name]) for name in names if name in shapes]
        n_each = sum(sizes) / self._source.factor.n_levels
        n_draws = posterior.sizes["chain"] * posterior.sizes["draw"]
        return int(8 * n_draws * n_each * n_levels * len(names) / max(len(sizes), 1))

    def drawn(
        self,
        posterior: xr.Dataset,
        names: Sequence[str],
        which: np.ndarray,
        rng: np.random.Generator,
    ) -> xr.Dataset:
        """Return draws of variables at levels with these numbers."""
        draws = Draws.of(posterior, self.observations.shapes)
        rows = self._source.rows_of(self.observations, which)
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
        given = [
            np.ascontiguousarray(draws.values[n], dtype=v.type.dtype)
            for n, v in self.observations.parameters.items()
        ]
        evaluate, n_dims = self._kernel.program.given(*given), self._source.factor.n_dims
        pieces = list(_pieces(rows, draws.n_draws))

        every = np.array(list(product(*self._source.factor.values)), dtype=float)

        def chosen(block: tuple[Rows, np.random.Generator]) -> tuple[np.ndarray, np.ndarray]:
            some, own = block
            if self._source.factor.values:
                x = np.broadcast_to(every[:, None], (draws.n_draws, len(every), len(some), n_dims))
            else:
                x = _proposed((draws.n_draws, _PROPOSALS, len(some), n_dims), own)
            z, logs = evaluate(np.ascontiguousarray(x), *self._kernel.arrays(some))
            if not self._source.factor.values:
                logs = logs + _TAIL * np.log1p(np.square(x) / _FREEDOM).sum(axis=-1)
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

    @cached_property
    def _kernel(self) -> Kernel:
        units, obs = self._source.density, self.observations
        inputs = {row.name: row.placeholder for row in obs.rows}
        x = pt.tensor("x", dtype="float64", shape=(None, None, self._source.factor.n_dims))
        z = x if self._source.factor.values else placed(units, inputs[CENTRE], inputs[FACTOR], x)[0]
        density = cast(TensorVariable, vectorize_graph(units.density, {units.variables: z}))
        batched: dict[Variable, TensorVariable] = {
            v: pt.tensor(dtype=v.type.dtype, shape=(None, *v.type.shape))
            for v in [*obs.parameters.values(), x]
        }
        outputs = vectorize_graph([z, density], batched)
        of_rows = [batched[x], *(row.placeholder for row in obs.inputs)]
        axes = {i: row.axis for i, row in enumerate(obs.inputs)}
        parameters = [batched[v] for v in obs.parameters.values()]
        return Kernel(parameters, of_rows, outputs, axes)

    @cached_property
    def _space(self) -> Unconstrained:
        return Unconstrained(self._source.rows.held.whole)

    def _on_own_scale(
        self, draws: Draws, flat: np.ndarray, which: np.ndarray, names: Sequence[str]
    ) -> dict[str, np.ndarray]:
        """Return variables on their own scale, with the chosen levels only."""
        full, factor = self._space, self._source.factor
        points = np.tile(full.start, (draws.n_draws, 1))
        shared, own = self.observations.space, full.columns
        free = shared.free(draws)
        for name, columns in shared.columns.items():
            points[:, own[name].ravel()] = free[:, columns.ravel()]
        start = 0
        for name, axis, shape in zip(factor.names, factor.axes, factor.shapes, strict=True):
            width = int(np.prod(shape, dtype=int))
            columns = np.moveaxis(own[name], axis, 0).reshape(factor.n_levels, width)[which]
            points[:, columns.ravel()] = flat[:, :, start : start + width].reshape(len(flat), -1)
            start += width
        found = self._variables(tuple(names))(points)
        chosen = {}
        for name, values in zip(names, found, strict=True):
            axis = self._axis(name, values.shape[1:])
            chosen[name] = values if axis is None else np.take(values, which, axis=1 + axis)
        return chosen

    def _variables(self, names: tuple[str, ...]) -> Callable[..., list[np.ndarray]]:
        known: dict[tuple[str, ...], Any] = self.__dict__.setdefault("_compiled", {})
        if names not in known:
            model, x = self._space.model, pt.vector("x", dtype="float64")
            graphs = model.replace_rvs_by_values([model[name] for name in names])
            tensors = [pt.as_tensor(v, allow_xtensor_conversion=True) for v in graphs]
            known[names] = of_points([x], self._space.at(x, tensors), plain_mode("minimum_compile"))
        found: Callable[..., list[np.ndarray]] = known[names]
        return found

    def _axis(self, name: str, shape: Sequence[int]) -> int | None:
        """Return the axis of a variable that has the levels."""
        dims = self._space.model.named_vars_to_dims.get(name) or ()
        if self._dim is not None and self._dim in dims:
            return dims.index(self._dim)
        n_levels = self._source.factor.n_levels
        return list(shape).index(n_levels) if n_levels in shape else None

    def level_dim(self, name: str) -> str:
        """Return the name of a variable's dimension that has the levels."""
        model = self._space.model
        shape = tuple(model.eval_rv_shapes().get(name, (self._source.factor.n_levels,)))
        own, axis = model.named_vars_to_dims.get(name) or (), self._axis(name, shape)
        return str((own[axis] if axis is not None and axis < len(own) else None) or f"{name}_dim_0")

    def _labelled(
        self,
        name: str,
        values: np.ndarray,
        which: np.ndarray,
        sizes: Sequence[int],
        posterior: xr.Dataset,
    ) -> xr.DataArray:
        model, shape = self._space.model, values.shape[1:]
        own = model.named_vars_to_dims.get(name) or ()
        dims = [(own[i] if i < len(own) else None) or f"{name}_dim_{i}" for i in range(len(shape))]
        whole = tuple(model[name].shape.eval()) if name not in self.observations.shapes else shape
        axis = self._axis(name, whole)
        coords: dict[str, Any] = {dim: posterior[dim] for dim in SAMPLE_DIMS}
        for i, dim in enumerate(dims):
            labels = model.coords.get(dim)
            every = np.arange(whole[i]) if labels is None else np.asarray(labels)
            coords[dim] = every[which] if i == axis else every
        return xr.DataArray(values.reshape(*sizes, *shape), coords, [*SAMPLE_DIMS, *dims])


def _proposed(shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    """Draw from a t distribution of eight degrees of freedom: Bailey 1994, Math. Comp. 62."""
    radius = 1 / np.sqrt(np.sqrt(1 - rng.random(shape))) - 1
    drawn: np.ndarray = np.sqrt(_FREEDOM * radius) * np.cos(2 * np.pi * rng.random(shape))
    return drawn


def _pieces(rows: Rows, n_draws: int) -> Iterator[Rows]:
    """Cut units into blocks of about as many rows; one of many rows is a block by itself."""
    assert rows.members is not None
    most = max(_NUMBERS // (n_draws * _PROPOSALS), 1)
    ends = np.cumsum(np.maximum(rows.members.sizes, 1))
    start, done = 0, 0
    while start < len(rows):
        stop = max(int(np.searchsorted(ends, done + most, side="right")), start + 1)
        yield rows.take(slice(start, stop))
        start, done = stop, int(ends[stop - 1])


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
    """Add draws of variables that were integrated out, where they are neither large nor dear.

    The attribute ``integrated`` of the posterior names what is left out.
    """
    observations = result.stand_in.parts[0].observations
    if observations.units is None:
        return idata
    local, posterior = LocalVariables(observations), idata["posterior"].to_dataset()
    n_bytes = local.n_bytes(local.names, posterior, len(local.numbers_of(None)))
    n_draws = posterior.sizes["chain"] * posterior.sizes["draw"]
    n_terms = n_draws * _PROPOSALS * len(observations.units.positions)
    if n_bytes > BY_ITSELF or n_terms > _TERMS_BY_ITSELF:
        return idata.assign(posterior=xr.DataTree(posterior.assign_attrs(integrated=local.names)))
    return completed(result, idata, rng)


def completed(result: HasStandIn, idata: xr.DataTree, rng: np.random.Generator) -> xr.DataTree:
    """Add draws of the variables that were integrated out, if they are missing."""
    observations, posterior = result.stand_in.parts[0].observations, idata["posterior"].to_dataset()
    if observations.units is None or set(observations.integrated) <= set(posterior.data_vars):
        return idata
    found = recover(result, idata, random_seed=rng)
    return idata.assign(posterior=xr.DataTree(posterior.merge(found, compat="override")))
