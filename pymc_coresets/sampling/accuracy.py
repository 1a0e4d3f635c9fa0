"""Accuracy of draws of any approximation of the posterior, measured against all rows."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
import pymc as pm
import xarray as xr
from numpy.typing import ArrayLike
from scipy.linalg import LinAlgError

from pymc_coresets.diagnostics.evaluated_draws import check_draws
from pymc_coresets.diagnostics.importance import MIN_DRAWS
from pymc_coresets.diagnostics.judging import Check
from pymc_coresets.diagnostics.posterior_draws import Chains, posterior_dataset, require_own
from pymc_coresets.exceptions import InvalidDataError, InvalidOptionError
from pymc_coresets.numerics import log_standard_normal
from pymc_coresets.options import generator, if_given, whole_number
from pymc_coresets.reading.draws import Draws
from pymc_coresets.reading.folding import values_of
from pymc_coresets.reading.unconstrained import Unconstrained
from pymc_coresets.rowlogp.evaluation import LogLikelihood
from pymc_coresets.rowlogp.of_model import RowsToRead, full_model, likelihood_of_model
from pymc_coresets.rows.executors import HasSubmit
from pymc_coresets.rows.sources.row_source import RowSource
from pymc_coresets.sampling.factors.cholesky import CholeskyFactor, factor_of
from pymc_coresets.sampling.probing import finite_points

#: Log-densities of points (n_draws, n_dims) on the unconstrained scale, (n_draws,).
type DensityOfPoints = Callable[[np.ndarray], ArrayLike]

_HELD = "log-density of the approximation"  # a coordinate, which is thinned with the draws
_IMPOSSIBLE = (
    "the approximation has mass outside the posterior's support, or the draws are of another model."
)


def check_approximation(
    model: pm.Model | None,
    idata: xr.DataTree | xr.Dataset,
    log_density: ArrayLike | xr.DataArray | DensityOfPoints | pm.MeanField | pm.FullRank,
    *,
    draws: int | None = None,
    observed: str | Sequence[str] | None = None,
    dim: str | Sequence[str] | None = None,
    rows: RowSource | None = None,
    executor: HasSubmit | None = None,
) -> Check:
    """Assess the accuracy of draws of an approximation of the posterior.

    For Laplace approximations, Pathfinder, ADVI, normalising flows: anything with a known
    log-density at its draws.  The posterior need not be sampled.  Costs one pass over the data for
    400 draws; for all of them if these do not clearly show that the two hardly differ.  Memory
    O(n_draws).

    Parameters
    ----------
    model : pm.Model or None
        With all rows, or prototypes for `rows`; None for that of the context.
    idata : xarray.DataTree or xarray.Dataset
        Independent draws of all free variables, on the model's own scale, with the dimensions
        ``chain`` and ``draw``; a tree has them in its group ``posterior``.
    log_density : array_like, callable, pm.MeanField or pm.FullRank
        Log-density of the approximation at the draws, in nats, up to a constant, **on the
        unconstrained scale**: with respect to the value variables of the model, such as
        ``log(sigma)`` for a positive sigma.  An array has the shape (n_chains, n_draws).  A
        callable, such as a `GaussianApproximation`, turns points (n_draws, n_dims) into
        (n_draws,); their columns are those of ``model.value_vars``, one after the other, each in C
        order.  A result of `pymc.fit` can be passed directly.
    draws : int, optional
        Evaluate exactly this many draws, evenly spread.
    observed, dim, rows, executor
        As in `build_coreset`.

    Returns
    -------
    Check
        As from `Coreset.check`, with suitable wording.

    Raises
    ------
    InvalidDataError
        If the draws have no values of a variable, lie outside the model's support, are impossible
        under the data or fewer than 30; or if log-densities have another shape, or are not finite.
    InvalidOptionError
        If `log_density` is none of these, or an option is out of range.
    UnsupportedModelError
        If the log-likelihood cannot be computed row by row.

    Notes
    -----
    With x = g(theta) the unconstrained point, the log-ratios are ``log p(y | theta) + log p(theta)
    + log|d theta / d x| - log q(x)``.  A density q' that is known on the model's own scale has
    ``log q = log q' + log|d theta / d x|``: for a positive sigma with x = log(sigma), add
    ``log(sigma)``.  Without it the ratios are wrong, and no diagnostic detects it.

    References
    ----------
    Yao, Vehtari, Simpson, Gelman (2018). Yes, but did it work? Evaluating variational inference.
    https://doi.org/10.48550/arXiv.1802.02538

    Examples
    --------
    The posterior of a mean is normal; a normal distribution twice as wide is a poor approximation:

    >>> import numpy as np, pymc as pm
    >>> y = np.random.default_rng(1).normal(size=500)
    >>> with pm.Model() as model:
    ...     likelihood = pm.Normal("y", pm.Normal("mu", 0, 10), 1.0, observed=y)
    >>> precision = 500 + 0.01
    >>> exact = GaussianApproximation(mean=[y.sum() / precision], covariance=[[1 / precision]])
    >>> wide = GaussianApproximation(mean=exact.mean, covariance=4 * exact.covariance)
    >>> for each in (exact, wide):
    ...     check = check_approximation(model, each.draw(model, random_seed=1), each)
    ...     print(round(check.kl, 2), check.needs_reweighting)
    0.00 False
    0.81 True
    """
    draws = if_given(whole_number, "draws", draws, least=MIN_DRAWS)
    wanted = RowsToRead(
        observed=observed,
        dim=dim,
        allow_local=rows is None,  # all draws are there
        rows=rows,
        executor=executor,
    )
    posterior = posterior_dataset(idata, "idata")
    require_own(posterior, "check_approximation()")
    model = full_model(model)
    space = Unconstrained(model)
    density = _density(log_density, space)
    own: Callable[[xr.DataTree, np.ndarray], np.ndarray] = partial(_evaluated, density)
    if not callable(density):
        posterior, own = _holding(posterior, density), _held
    loglik = likelihood_of_model(model, wanted, rng=np.random.default_rng(0))
    densities = partial(_log_densities, loglik, space, own)
    found = check_draws(Chains(posterior), densities, draws=draws, impossible=_IMPOSSIBLE)
    return replace(found, subject="approximation")


@dataclass(frozen=True, eq=False)
class GaussianApproximation:
    """A normal distribution on the unconstrained scale of a model: Laplace's, Pathfinder's, ADVI's.

    Called with points (n_draws, n_dims), it returns their log-densities in nats, (n_draws,).

    Parameters
    ----------
    mean : array_like of shape (n_dims,)
        In the order of ``model.value_vars``, each flattened in C order.
    covariance : array_like of shape (n_dims, n_dims)

    Raises
    ------
    InvalidOptionError
        If they have other shapes, are not finite, or the covariance is not symmetric and positive
        definite.

    Examples
    --------
    >>> GaussianApproximation([0.0], [[4.0]])(np.array([[0.0], [2.0]])).round(3)
    array([-1.612, -2.112])
    """

    mean: ArrayLike
    covariance: ArrayLike

    def __post_init__(self) -> None:
        try:
            mean, covariance = (np.asarray(v, dtype=float) for v in (self.mean, self.covariance))
        except (TypeError, ValueError) as error:
            raise InvalidOptionError(f"mean and covariance must be numbers: {error}.") from error
        if mean.ndim != 1 or covariance.shape != (len(mean), len(mean)):
            raise InvalidOptionError(
                f"mean and covariance have the shapes {mean.shape} and {covariance.shape}, but "
                "must be of (n_dims,) and (n_dims, n_dims)."
            )
        if not (np.isfinite(mean).all() and np.isfinite(covariance).all()):
            raise InvalidOptionError("mean and covariance must be finite.")
        for name, value in {"mean": mean, "covariance": covariance}.items():
            object.__setattr__(self, name, value)
        _ = self._factor

    @cached_property
    def _factor(self) -> CholeskyFactor:
        covariance = np.asarray(self.covariance)
        try:
            scale = np.sqrt(np.abs(np.diag(covariance)))
            if np.all(np.abs(covariance - covariance.T) <= 1e-8 * np.outer(scale, scale)):
                return factor_of(covariance)
        except LinAlgError:
            pass
        raise InvalidOptionError("covariance must be symmetric and positive definite.")

    def __call__(self, x: np.ndarray) -> np.ndarray:
        """Return the log-densities of points (n_draws, n_dims)."""
        mean = np.asarray(self.mean)
        if x.shape[1:] != mean.shape:
            raise InvalidDataError(
                f"The model has {x.shape[1]} unconstrained dimensions, but the Gaussian has "
                f"{len(mean)}: it is the approximation of another model."
            )
        z = self._factor.whiten_gradients(x - mean)
        density: np.ndarray = log_standard_normal(z) - self._factor.log_determinant / 2
        return density

    def draw(
        self,
        model: pm.Model | None = None,
        draws: int = 1_000,
        *,
        chains: int = 4,
        random_seed: int | np.random.Generator | None = None,
    ) -> xr.DataTree:
        """Return independent draws of the free variables, on the model's own scale.

        Parameters
        ----------
        model : pm.Model, optional
            By default that of the context.
        draws, chains : int
            Number of draws per chain, and of chains.
        random_seed : int or Generator, optional
            The result is reproducible from it.

        Returns
        -------
        xarray.DataTree
            With the group ``posterior``.

        Raises
        ------
        InvalidDataError
            If the model has another number of unconstrained dimensions.
        InvalidOptionError
            If an option is out of range.

        Examples
        --------
        >>> with pm.Model() as model:
        ...     sigma = pm.HalfNormal("sigma")
        >>> idata = GaussianApproximation([0.0], [[1.0]]).draw(model, 50, random_seed=1)
        >>> bool((idata["posterior"]["sigma"] > 0).all())
        True
        """
        n_draws = whole_number("draws", draws, least=1) * whole_number("chains", chains, least=1)
        rng, model = generator(random_seed), full_model(model)
        space = Unconstrained(model)
        self(space.start[None])  # raises for another number of dimensions
        z = rng.standard_normal((n_draws, space.n_dims))
        found = space.constrain(np.asarray(self.mean) + self._factor.root_times(z.T).T)
        dims = model.named_vars_to_dims
        return found.to_datatree(n_chains=int(chains), dims=dims, coords=model.coords)


# -- log-densities ---------------------------------------------------------------------------------


def _log_densities(
    loglik: LogLikelihood,
    space: Unconstrained,
    own: Callable[[xr.DataTree, np.ndarray], np.ndarray],
    idata: xr.DataTree,
) -> tuple[np.ndarray, np.ndarray]:
    """Return log-densities of the posterior and an approximation, on the unconstrained scale."""
    draws = Draws.of(idata, loglik.observations.shapes)
    points = finite_points(space, draws)
    with np.errstate(all="ignore"):  # such draws are refused below
        full = loglik.sums(draws).total + loglik.rest.values(points)
    return full, own(idata, points)


def _held(idata: xr.DataTree, points: np.ndarray) -> np.ndarray:
    """Return the values of the approximation that the draws hold."""
    del points
    values: np.ndarray = idata["posterior"][_HELD].transpose("chain", "draw").to_numpy()
    return values.ravel()


def _evaluated(density: DensityOfPoints, idata: xr.DataTree, points: np.ndarray) -> np.ndarray:
    del idata
    with np.errstate(all="ignore"):  # values that are not finite are reported
        return _usable(density(points), (len(points),))


def _density(log_density: object, space: Unconstrained) -> Any:  # noqa: ANN401 - what users pass
    """Return a callable, or a value that may be an array."""
    if isinstance(log_density, pm.MeanField | pm.FullRank):
        return _gaussian_of_fit(log_density, space)
    if isinstance(log_density, type | str | dict) or log_density is None:
        raise InvalidOptionError(
            f"log_density={log_density!r} must be an array of shape (n_chains, n_draws), a "
            "callable, or the result of pm.fit."
        )
    return log_density


def _gaussian_of_fit(
    fit: pm.MeanField | pm.FullRank, space: Unconstrained
) -> GaussianApproximation:
    """Return the distribution of `pm.fit`, in the order of another model's value variables."""
    found = {name: (part, shape) for name, part, shape, _ in fit.ordering.values()}
    wanted = {name: np.shape(value) for name, value in space.point(space.start).items()}
    if {name: tuple(shape) for name, (_, shape) in found.items()} != wanted:
        raise InvalidDataError(
            f"The approximation is of another model: its unconstrained variables are "
            f"{sorted(found)!r}, but the model's are {sorted(wanted)!r}, or they have other shapes."
        )
    mean, covariance = values_of([fit.mean, fit.cov])
    places = np.arange(len(mean))
    order = np.concatenate([places[found[v.name][0]] for v in space.model.value_vars])
    return GaussianApproximation(mean[order], covariance[np.ix_(order, order)])


def _holding(posterior: xr.Dataset, log_density: ArrayLike | xr.DataArray) -> xr.Dataset:
    """Return draws that hold their log-densities as a coordinate."""
    if isinstance(log_density, xr.DataArray) and {*log_density.dims} == {"chain", "draw"}:
        log_density = log_density.transpose("chain", "draw")
    wanted = (posterior.sizes["chain"], posterior.sizes["draw"])
    values = _usable(log_density, wanted)
    return posterior.assign_coords({_HELD: (("chain", "draw"), values)})


def _usable(log_density: object, shape: tuple[int, ...]) -> np.ndarray:
    try:
        values = np.asarray(log_density)
    except (TypeError, ValueError):  # lists of lists of different lengths
        values = np.empty(0, dtype=object)
    if values.dtype.kind not in "fiu":
        raise InvalidOptionError("log_density must be numbers, or a callable that returns them.")
    if values.shape != shape:
        raise InvalidDataError(
            f"log_density has shape {values.shape}, but there are draws of shape {shape}: one "
            "number for each draw is needed."
        )
    bad = np.argwhere(~np.isfinite(values))
    if bad.size:
        raise InvalidDataError(
            f"log_density is {values[tuple(bad[0])]} at draw {tuple(map(int, bad[0]))}, one of "
            f"{len(bad)} that are not finite: the density must be finite and positive at all draws."
        )
    return values.astype(np.float64)
